//go:build catalogue

package scenarios

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/scenarios/outcome"
)

var (
	storiesFlag = flag.String("stories", "missing", "which stories are played: missing (those without an outcome, and those that failed otherwise than they are known to), known-to-fail, all, none, or names with commas")
	waysFlag    = flag.String("ways", "both", "how they are played: both, guarded or alone")
	clocksFlag  = flag.String("clocks", outcome.Real, "real: Kubernetes' own; short")
	bookFlag    = flag.String("outcomes", outcomesFile, "where the outcomes are kept")
	pageFlag    = flag.String("catalogue", pageFile, "where the page is written")
)

// vms keeps the host from having more virtual machines at once than it can
// carry: each stage has two.
var vms = make(chan struct{}, 2)

// TestCatalogue plays stories with Kubernetes alone and with csi-fencepost, keeps
// what came of each as soon as it ends, and writes the page from all that was
// kept. A run that was broken off is gone on with by the next one.
func TestCatalogue(t *testing.T) {
	switch *clocksFlag {
	case outcome.Real:
		clocks = bed.RealClocks
	case outcome.Short:
	default:
		t.Fatalf("-clocks is %q: it has to be %s or %s", *clocksFlag, outcome.Real, outcome.Short)
	}
	book, err := outcome.Open(*bookFlag)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{t: t, book: book, version: shared.programs.ControlPlane.Version, commit: commit(t)}
	t.Run("play", func(t *testing.T) {
		for _, p := range k.wanted() {
			name := p.story.name + "/guarded"
			if p.alone {
				name = p.story.name + "/alone"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				k.play(t, p)
			})
		}
	})
	text, err := catalogue(t, book).Write(book)
	if err == nil {
		err = os.WriteFile(*pageFlag, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if *resultFlag != "" {
		if err := resultOf(t, book).Write(*resultFlag); err != nil {
			t.Fatal(err)
		}
	}
}

// keeper keeps the outcomes.
type keeper struct {
	t               *testing.T
	version, commit string

	mu   sync.Mutex
	book *outcome.Book
}

// toPlay is one story, with csi-fencepost or without.
type toPlay struct {
	story scenario
	alone bool
}

// wanted are the plays that the flags ask for.
func (k *keeper) wanted() (plays []toPlay) {
	k.t.Helper()
	names := outcome.References(*storiesFlag)
	for _, name := range names {
		if _, ok := storyNamed(name); !ok && !slices.Contains([]string{"missing", "known-to-fail", "all", "none"}, name) {
			k.t.Fatalf("-stories: there is no story %q", name)
		}
	}
	versions, err := controlplane.KubernetesVersions(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range everyStory {
		for _, alone := range []bool{false, true} {
			switch {
			// The kubelets of real nodes are built of the newest Kubernetes only.
			case s.options.Real && k.version != versions.Newest:
			case alone && (s.guardedOnly || *waysFlag == "guarded"), !alone && *waysFlag == "alone":
			case *storiesFlag == "missing" && !k.missing(s, alone):
			case slices.Contains(names, s.name), *storiesFlag == "all", *storiesFlag == "missing", *storiesFlag == "known-to-fail" && s.known != nil:
				plays = append(plays, toPlay{s, alone})
			}
		}
	}
	return plays
}

func (k *keeper) missing(s scenario, alone bool) bool {
	o, ok := k.book.Find(s.name, alone, k.version)
	return !ok || o.Failed && !(o.Known && s.known != nil) || !alone && !o.Known && s.known != nil || o.Clocks != *clocksFlag && o.Clocks != outcome.Real
}

// play plays one and keeps what came of it, also if it failed half-way.
func (k *keeper) play(t *testing.T, p toPlay) {
	if p.story.options.Machines {
		vms <- struct{}{}
		t.Cleanup(func() { <-vms })
	}
	o := outcome.Outcome{Story: p.story.name, Alone: p.alone, Kubernetes: k.version, Clocks: *clocksFlag, Commit: k.commit, Began: time.Now()}
	var end *ended
	failure := "" // of a story that is known to fail
	defer func() {
		o.Seconds, o.Failed = time.Since(o.Began).Seconds(), t.Failed()
		if end != nil {
			end.note(&o)
		}
		if failure != "" {
			o.Known = !o.Failed
			o.Failed = true
			o.Text = strings.TrimPrefix(o.Text+"; "+failure, "; ")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if err := k.book.Put(o); err != nil {
			t.Error(err)
		}
	}()
	t.Logf("%s", p.story.rule)
	if p.story.known != nil && !p.alone {
		failure = playMarked(t, p.story, func(e *ended) { end = e })
		return
	}
	playScenario(t, p.story, p.alone, func(e *ended) { end = e })
}

// commit is what is played: "+" where sources were changed since.
func commit(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"--no-optional-locks", "-C", root}, args...)...).Output()
		if err != nil {
			t.Fatalf("git %s: %v: the outcomes have to say what was played", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	head := git("rev-parse", "--short", "HEAD")
	if git("status", "--porcelain", "--", "cmd", "csi", "fence", "proxy", "go.mod") != "" {
		return fmt.Sprintf("%s+", head)
	}
	return head
}
