package scenarios

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/facts"
	"github.com/csi-fencepost/csi-fencepost/sanity/scenarios/outcome"
)

// The page and what it is made from.
const (
	pageFile     = "CATALOGUE.md"
	outcomesFile = "outcomes.json"
)

// chapters of the page: each story is in one.
var chapters = []struct {
	title   string
	stories []string
}{
	{"Where this project comes from", []string{"azure-firewall", "cstor-node-deleted", "vsphere-cassandra", "openshift-postgres"}},
	{"Nodes that are silent, gone or another machine", []string{"force-detach", "failed-detach", "taint-alive", "taint-early", "taint-old", "taint-unseen",
		"node-deleted", "scaled-in", "scaled-in-wait", "same-name", "same-name-va", "same-node-uid", "renamed", "borrowed-id", "silent-move", "rwop", "block",
		"cloud-taint", "cloud-untold", "confirm", "release", "release-old"}},
	{"Partitions", []string{"partition", "part-taint", "part-heals", "part-returns", "part-quick", "part-fenced"}},
	{"Fencing and failover", []string{"power-off", "polled-off", "polled-apart", "polled-blip", "kernel-hang", "kubelet-gone", "paused-resumed", "quick-reboot", "level-two", "no-agent", "bmc-stuck-on", "bmc-address",
		"late-off", "fencer-dies", "restarts-often", "readmitted", "power-on", "driver-fails", "rack", "all-silent", "outage-trickle", "storage-fence", "storage-boot", "storage-on",
		"storage-other", "two-drivers", "apart-power", "apart-lie", "sts-is-back", "by-hand", "opt-out-pod", "opt-out-node", "array-outage", "wrong-client"}},
	{"Virtual machines with a real lock on their disk", []string{"vm-cut-off", "vm-power-off", "vm-hang", "vm-fo-off", "vm-fo-cut", "vm-fo-hang"}},
	{"Real kubelets, containers and file systems", []string{"real-part", "real-move", "real-forget", "real-quick", "real-again", "real-drain", "real-heals", "real-returns",
		"real-rollout", "real-fenced", "real-fenced-b", "real-deaf", "real-hung", "real-hung-lost", "real-hung-ready", "real-runtime", "real-runtime-f", "real-reboot", "real-outlives",
		"real-slow", "real-gone", "real-gone-slow"}},
	{"Kubelets that forget, and clocks that are wrong", []string{"kubelet-forget", "kubelet-refuse", "kubelet-quick", "kubelet-quick2", "kubelet-asked", "kubelet-young", "anew-drain", "clock-ahead", "clock-behind"}},
	{"Ledger, PersistentVolume and VolumeAttachment", []string{"stripped-va", "two-pvs", "two-pvs-rwx", "pv-again", "restored-pv", "ledger-wiped", "garbled", "other-cluster", "no-pv",
		"unseen-detach", "reconcile", "late-unpublish", "late-attach", "orphan", "orphan-refused", "orphan-late", "secrets"}},
	{"API server, controllers, and csi-fencepost itself", []string{"api-outage", "api-hangs", "kcm-change", "crash-takeover", "crash-move", "twins", "bypassed"}},
	{"Every day", []string{"move", "policies", "drain", "drain-throttle", "kubelet-again", "recreate", "surge-0", "driver-again", "upgrade", "back-off", "two-wait", "back-detach", "stale-attached", "cloud-gone", "waiter-dies", "never-there", "asked-gone", "target-gone", "list-slow", "list-fails", "drain-unseen",
		"in-again", "new-node-id"}},
	{"None of our business, or as configured", []string{"live-migration", "rox", "rwx", "forward", "observe", "revokes", "injected", "injected-obs"}},
}

// kinds: which stories play which workload with which access mode. A cell that
// begins with a dash says why there is none.
var kinds = [][]string{
	{"", "ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany", "raw block, one node", "raw block, many nodes"},
	{"pod without a controller", "force-detach", "rwop", "rox", "rwx", "block", "live-migration"},
	{"Deployment with one replica", "azure-firewall, openshift-postgres, power-off", sameCall, sameCall, sameCall, sameCall, sameCall},
	{"StatefulSet", "vsphere-cassandra, sts-is-back", sameCall, sameCall, sameCall, sameCall, sameCall},
}

// sameCall: what a workload is decides how its pod comes back, not what the
// attacher asks.
const sameCall = "– the calls are a pod's"

// between: what one version of Kubernetes does otherwise than another, where a story
// or a reader of the page can notice.
var between = []string{
	"Up to v1.36 the Event of a pod that waits for the volume of another node begins with \"Multi-Attach error for volume\", from v1.37 on with \"Waiting for detach for volume\". Its reason is FailedAttachVolume as before.",
	"From v1.37 on the node lifecycle controller reads a node's lease live before it calls the node unhealthy ([kubernetes/kubernetes#138698](https://github.com/kubernetes/kubernetes/pull/138698)). Where that read fails, or shows a lease that its watch has not brought yet, it calls no node unhealthy in that round. A silent node is called so as before, and no sooner.",
	"Of what decides over a volume (the attach-detach controller, the garbage collection of pods, the eviction for taints) nothing else changed from v1.36.3 to v1.37.2.",
	"`failed-detach` with Kubernetes alone ends 5 s after the second node was published to. Whether that node mounts and writes within them is chance and no version's doing: on v1.37.2 it did in two plays of four.",
}

// everyStory is all that the page shows.
var everyStory = slices.Concat(all, injected, machines, machineFailovers, reals)

func storyNamed(name string) (scenario, bool) {
	i := slices.IndexFunc(everyStory, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return scenario{}, false
	}
	return everyStory[i], true
}

// catalogue is the page without its outcomes. Which of the book's versions was
// measured decides the order of its tables.
func catalogue(t *testing.T, book *outcome.Book) outcome.Page {
	t.Helper()
	v, err := controlplane.KubernetesVersions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kubelets, err := facts.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	page := outcome.Page{Measured: book.Measured(v.Newest, v.Previous, v.Oldest), Between: between, Address: Address, Kubelets: kubelets.Table()}
	for _, other := range []outcome.Version{
		{Kubernetes: v.Newest, What: "The newest, which everything here runs on where nothing else is said: `make catalogue`."},
		{Kubernetes: v.Previous, What: "The one before the newest: `make catalogue KUBERNETES=previous`."},
		{Kubernetes: v.Oldest, What: "The oldest that the Go module proxy serves completely ([what was tried](../controlplane/kubernetes-oldest/README.md)): `make catalogue KUBERNETES=oldest`."},
	} {
		if other.Kubernetes != page.Measured {
			page.Others = append(page.Others, other)
		}
	}
	for _, c := range chapters {
		chapter := outcome.Chapter{Title: c.title}
		for _, name := range c.stories {
			s, _ := storyNamed(name)
			why := ""
			if s.known != nil {
				why = s.known.why
			}
			chapter.Stories = append(chapter.Stories, outcome.Story{Name: s.name, Rule: s.rule, From: s.from, GuardedOnly: s.guardedOnly, Known: why})
		}
		page.Chapters = append(page.Chapters, chapter)
	}
	for i, row := range kinds {
		if i > 0 {
			row = slices.Clone(row)
			for j := 1; j < len(row); j++ {
				if row[j] != sameCall {
					row[j] = "`" + strings.ReplaceAll(row[j], ", ", "`, `") + "`"
				}
			}
		}
		page.Kinds = append(page.Kinds, row)
	}
	return page
}

// TestEachStoryIsInOneChapter: else the page would leave it out.
func TestEachStoryIsInOneChapter(t *testing.T) {
	seen := map[string]int{}
	for _, c := range chapters {
		for _, name := range c.stories {
			seen[name]++
			if _, ok := storyNamed(name); !ok {
				t.Errorf("chapter %q: there is no story %q", c.title, name)
			}
		}
	}
	for _, s := range everyStory {
		if seen[s.name] != 1 {
			t.Errorf("story %q is in %d chapters, want one (chapters_test.go)", s.name, seen[s.name])
		}
	}
}

// TestEachReportedCaseIsPlayed, and each story's case is one that was reported.
func TestEachReportedCaseIsPlayed(t *testing.T) {
	told := map[string][]string{}
	for _, s := range everyStory {
		for _, ref := range outcome.References(s.from) {
			told[ref] = append(told[ref], s.name)
		}
	}
	known := map[string]bool{}
	for _, c := range Cases {
		if len(c.Refs) == 0 || c.What == "" {
			t.Errorf("case %+v lacks its words or its references", c)
		}
		for _, ref := range c.Refs {
			if known[ref] {
				t.Errorf("%s is in two cases", ref)
			}
			known[ref] = true
			if _, err := Address(ref); err != nil {
				t.Errorf("case %q: %v", c.What, err)
			}
			if len(told[ref]) == 0 {
				t.Errorf("no story is from %s: %s", ref, c.What)
			}
		}
	}
	for ref, stories := range told {
		if !known[ref] {
			t.Errorf("%s, from which %q are, is in no case of cases.go", ref, stories)
		}
	}
}

// TestEachKindOfWorkloadIsPlayedOrSaysWhyNot holds the table of kinds against the
// stories.
func TestEachKindOfWorkloadIsPlayedOrSaysWhyNot(t *testing.T) {
	for _, row := range kinds {
		if len(row) != len(kinds[0]) {
			t.Errorf("row %q has %d cells, want %d", row[0], len(row), len(kinds[0]))
		}
	}
	for _, row := range kinds[1:] {
		for _, names := range row[1:] {
			if names == sameCall {
				continue
			}
			for _, name := range strings.Split(names, ", ") {
				if _, ok := storyNamed(name); !ok {
					t.Errorf("%s: there is no story %q", row[0], name)
				}
			}
		}
	}
}

// TestThePageIsWhatTheOutcomesSay: nobody edits it by hand.
func TestThePageIsWhatTheOutcomesSay(t *testing.T) {
	want := pageOf(t, outcomesFile)
	got, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what %s and the stories say; run: make catalogue STORIES=none\n%s", pageFile, outcomesFile, firstDifference(string(got), want))
	}
}

var resultFlag = flag.String("result", "", "file for what the outcomes add up to (make prove); empty: none")

// TestCatalogueResult writes what the outcomes add up to. It fails for a play with
// csi-fencepost that failed, or in which the oracle saw a violation.
func TestCatalogueResult(t *testing.T) {
	book, err := outcome.Open(outcomesFile)
	if err != nil {
		t.Fatal(err)
	}
	file := *resultFlag
	if file == "" {
		file = filepath.Join(t.TempDir(), "catalogue.json")
	}
	r := resultOf(t, book)
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	for _, text := range r.Failures {
		t.Error(text)
	}
	var played, ofCommits float64
	for _, f := range r.Figures {
		switch {
		case strings.HasPrefix(f.Name, "played with"):
			played += f.Value
		case strings.HasPrefix(f.Name, "outcomes of commit"):
			ofCommits += f.Value
		}
	}
	if played == 0 || played != ofCommits || len(r.Left) == 0 {
		t.Errorf("%.0f plays, and %.0f outcomes of a commit; left: %q", played, ofCommits, r.Left)
	}
}

// resultOf adds up the outcomes on each Kubernetes.
func resultOf(t *testing.T, book *outcome.Book) result.Result {
	t.Helper()
	page := catalogue(t, book)
	r := result.Result{Part: "catalogue", Command: "make catalogue"}
	for _, o := range book.All() {
		r.Seconds += o.Seconds
		if r.Began.IsZero() || o.Began.Before(r.Began) {
			r.Began = o.Began
		}
	}
	r.Add("stories", float64(page.Count(book, page.Measured).Stories), "stories")
	r.Add("reported cases that they are from", float64(len(Cases)), "cases")
	for _, version := range page.Versions() {
		c, on := page.Count(book, version), ", on Kubernetes "+version
		r.Add("played with csi-fencepost"+on, float64(c.Guarded.Played), "stories")
		r.Add("violations with csi-fencepost"+on, float64(c.Guarded.Violated), "stories")
		r.Add("failed with csi-fencepost"+on, float64(c.Guarded.Failed), "stories")
		r.Add("failed as they are known to"+on, float64(c.Known), "stories")
		r.Add("played with Kubernetes alone"+on, float64(c.Alone.Played), "stories")
		r.Add("violations with Kubernetes alone"+on, float64(c.Alone.Violated), "stories")
		r.Add("failed with Kubernetes alone"+on, float64(c.Alone.Failed), "stories")
		for _, name := range c.Broken {
			r.Failures = append(r.Failures, "story "+name+on+": it failed, or the storage array saw a violation, or it passed although it is known to fail, see CATALOGUE.md")
		}
	}
	for _, c := range page.Commits(book) {
		r.Add("outcomes of commit "+c.String(), float64(c.Outcomes), "outcomes")
	}
	r.Left = append(r.Left, page.Left(book)...)
	return r
}

// TestNoOutcomeIsOfAStoryThatIsGone: its figures would stand for nothing.
func TestNoOutcomeIsOfAStoryThatIsGone(t *testing.T) {
	book, err := outcome.Open(outcomesFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(book.All()) == 0 {
		t.Fatalf("%s has no outcome", outcomesFile)
	}
	for _, o := range book.All() {
		if s, ok := storyNamed(o.Story); !ok || o.Alone && s.guardedOnly {
			t.Errorf("%s has an outcome of %q (alone: %v), which is not played like that any more", outcomesFile, o.Story, o.Alone)
		}
	}
}

// pageOf makes the page from a file of outcomes.
func pageOf(t *testing.T, outcomes string) string {
	t.Helper()
	book, err := outcome.Open(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := catalogue(t, book).Write(book)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func firstDifference(got, want string) string {
	x, y := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d is\n%s\nwant\n%s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(x), len(y))
}
