package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

// A part of the case.
type part struct {
	name string
	// about says in a sentence what it attacks, for the page.
	about string
	// needs is a file without which there is no such part.
	needs string
	// built is the package whose tests are all of it: what neither it nor what it
	// imports is made of does not change the result. Empty: any file may.
	built string
	// from says where its figures are from, where they are not of a run of this
	// program; empty: they are.
	from string
	// counts are how the names of those figures begin that sum it up.
	counts []string
	// command runs it, and has it write its result into file.
	command func(o options, file string) []string
}

var parts = []part{
	{name: "simulation", needs: "proxy/sidecar/simulation_test.go", built: "./proxy/sidecar",
		about:  "The wiring that is shipped, driven by one seed a schedule through crashes, partitions, lost and late answers, lying operators and faults of the driver; R1 and R2 are checked after every step, and that nothing stays stuck at the end.",
		counts: []string{"tier 1: schedules", "tier 1: steps", "tier 1: crashes of a replica", "tier 1: machines that lost their power", "tier 2: schedules"},
		command: func(o options, file string) []string {
			n := "1000000"
			if o.quick {
				n = "2000"
			}
			return []string{"go", "test", "./proxy/sidecar", "-run", "^TestSimulation$", "-count=1", "-timeout=0", "-v", "-schedules=" + n, "-failures=20", "-result=" + file}
		}},
	{name: "model", needs: "sanity/model/fencepost.pml", built: "./sanity/model",
		about:  "A model of the protocol, bounded worlds of it explored completely, with the same rules, and without its guards, one at a time, where a violation has to be found.",
		counts: []string{"states of all searches together", "guards taken out", "found by a violation"},
		command: func(_ options, file string) []string {
			return []string{"go", "test", "./sanity/model", "-whole", "-count=1", "-timeout=0", "-v", "-result=" + file}
		}},
	{name: "mutants", needs: "sanity/mutants/main.go",
		about:  "One small change to the code at a time: each comparison turned round, each guard taken out. A test has to notice.",
		counts: []string{"mutants that compile", "killed by", "survived"},
		command: func(o options, file string) []string {
			c := []string{"go", "run", "./sanity/mutants", "-result=" + file}
			if o.quick {
				c = append(c, "-only=fence,fence/ledger")
			}
			if o.reuse {
				c = append(c, "-reuse")
			}
			return c
		}},
	{name: "fuzzing", needs: "sanity/fuzz/main.go",
		about:  "Everything that reads what others wrote, fed with what nobody would write.",
		counts: []string{"fuzz targets", "inputs tried", "inputs that broke"},
		command: func(o options, file string) []string {
			each := o.fuzztime
			if o.quick {
				each = min(each, 5*time.Second)
			}
			return []string{"go", "run", "./sanity/fuzz", "-time=" + each.String(), "-result=" + file}
		}},
	{name: "failover", needs: "fence/failover/server_test.go", built: "./fence/failover",
		about:  "The tests of the failover's controller, which make test plays on the model of the API server, on a real one and in real time.",
		counts: []string{"tests of the failover"},
		command: func(_ options, file string) []string {
			return []string{"go", "test", "./fence/failover", "-count=1", "-timeout=30m", "-real", "-result=" + file}
		}},
	{name: "real-nodes", needs: "sanity/scenarios/real_test.go",
		about:  "Stories on nodes with Kubernetes' own kubelet, containerd, containers that write a database, and ext4, with csi-fencepost, again and again. As root.",
		counts: []string{"stories on real nodes", "plays", "of them as promised"},
		command: func(o options, file string) []string {
			n := "5"
			if o.quick {
				n = "1"
			}
			return []string{"go", "test", "./sanity/scenarios", "-run", "^TestRealAgain$", "-count=1", "-timeout=0", "-parallel=6", "-v", "-times=" + n, "-result=" + file}
		}},
	{name: "catalogue", needs: "sanity/scenarios/CATALOGUE.md", from: "from the outcomes that make catalogue kept, each of its own commit",
		about:  "Named scenarios from public reports, on the real control plane, with Kubernetes alone and with csi-fencepost.",
		counts: []string{"stories", "played with csi-fencepost", "violations with csi-fencepost"},
		command: func(_ options, file string) []string {
			return []string{"go", "test", "./sanity/scenarios", "-run", "^TestCatalogueResult$", "-count=1", "-result=" + file}
		}},
}

func names() []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// An outcome is what became of a part.
type outcome struct {
	part part
	// result is nil where there is none.
	result *result.Result
	// reused tells that it is from an earlier run; quick, that it was run smaller than it can be.
	reused, quick bool
	// err is why the part failed, or why it has no result.
	err error
}

// failures are what broke a promise.
func (o outcome) failures() []string {
	switch {
	case o.result == nil:
		return nil
	case len(o.result.Failures) == 0 && o.err != nil:
		return []string{o.err.Error() + ", and its result does not say of what"}
	}
	return o.result.Failures
}

// fault says what is wrong with a part; empty: nothing.
func (o outcome) fault() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.result == nil:
		return "missing"
	case len(o.result.Failures) > 0:
		return fmt.Sprintf("%d failures, the first: %s", len(o.result.Failures), o.result.Failures[0])
	}
	return ""
}

// prove runs the part, or reads what an earlier run of the same sources said.
func (p part) prove(ctx context.Context, o options, here place, out io.Writer) outcome {
	became := outcome{part: p, quick: p.quick(o)}
	file := p.file(o)
	if o.reuse && !slices.Contains(o.only, p.name) {
		r, why := p.kept(ctx, file, here, o)
		if r != nil {
			became.result, became.reused = r, true
			return became
		}
		if len(o.only) > 0 {
			became.err = fmt.Errorf("missing: %s", why)
			return became
		}
		fmt.Fprintf(out, "\n%s is not reused: %s\n", p.name, why)
	}
	if _, err := os.Stat(p.needs); err != nil {
		became.err = fmt.Errorf("missing: there is no %s", p.needs)
		return became
	}
	became.result, became.err = p.run(ctx, o, here, file, out)
	return became
}

// run runs the part and keeps its result, also one with failures. A part that fails
// without a word of it in its result is not kept: later nobody could tell.
func (p part) run(ctx context.Context, o options, here place, file string, out io.Writer) (*result.Result, error) {
	if err := errors.Join(os.RemoveAll(stamp(file)), os.RemoveAll(file)); err != nil {
		return nil, err
	}
	sources, err := here.of(ctx, p) // as they are before it begins
	if err != nil {
		return nil, err
	}
	command := p.command(o, file)
	fmt.Fprintf(out, "\n== %s ==\n%s\n", p.name, strings.Join(command, " "))
	failed := execute(ctx, out, command)
	r, err := result.Read(file)
	switch {
	case err != nil && failed != nil:
		return nil, fmt.Errorf("it failed before it had a result: %w", failed)
	case err != nil:
		return nil, fmt.Errorf("missing: it wrote no result: %w", err)
	case failed != nil && len(r.Failures) == 0:
		return &r, failed
	}
	return &r, os.WriteFile(stamp(file), []byte(sources+"\n"+repeatable(command)+"\n"), 0o644)
}

// quick tells whether the part is run smaller than without flags: not each can be.
func (p part) quick(o options) bool {
	whole := o
	whole.quick, whole.fuzztime = false, fuzzFor
	return o.quick && repeatable(p.command(o, "")) != repeatable(p.command(whole, ""))
}

// file is where the part's result is kept.
func (p part) file(o options) string {
	folder := o.kept
	if p.quick(o) {
		folder = o.keptQuick
	}
	file, _ := filepath.Abs(filepath.Join(folder, p.name+".json"))
	return file
}

// stamp is the file beside a result that says of which sources it is, and of which
// command.
func stamp(file string) string { return strings.TrimSuffix(file, ".json") + ".of" }

// kept is the result of an earlier run, if it is of the same sources and of the
// command that is asked for now, or why there is none.
func (p part) kept(ctx context.Context, file string, here place, o options) (r *result.Result, why string) {
	of, err := os.ReadFile(stamp(file))
	if err != nil {
		return nil, "no earlier run has a result"
	}
	was, command, _ := strings.Cut(strings.TrimSpace(string(of)), "\n")
	sources, err := here.of(ctx, p)
	switch {
	case err != nil:
		return nil, err.Error()
	case was != sources:
		return nil, "the sources have changed since the earlier run"
	case command != repeatable(p.command(o, "")):
		return nil, "the earlier run was another: " + cmp.Or(command, "it does not say which")
	}
	kept, err := result.Read(file)
	if err != nil || kept.Part != p.name {
		return nil, "the result of the earlier run cannot be read"
	}
	return &kept, ""
}

// repeatable is a command without what is of one run alone: where its result goes,
// and what it may take from earlier ones.
func repeatable(words []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		return strings.HasPrefix(word, "-result=") || word == "-reuse"
	}), " ")
}

func execute(ctx context.Context, out io.Writer, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd.Run()
}

// label of a run in few words.
func (o outcome) label() string {
	var words []string
	switch {
	case o.result == nil:
		return "MISSING"
	case o.fault() != "":
		words = append(words, "FAILED")
	}
	if o.quick {
		words = append(words, "quick")
	}
	switch {
	case o.part.from != "" && o.reused:
		words = append(words, "reused", o.part.from)
	case o.part.from != "":
		words = append(words, o.part.from)
	case o.reused:
		words = append(words, "reused from "+o.result.Began.Format("2006-01-02 15:04")+" UTC")
	default:
		words = append(words, "ran now")
	}
	return strings.Join(words, ", ")
}
