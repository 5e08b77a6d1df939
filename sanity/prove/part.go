package main

import (
	"cmp"
	"context"
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
	// from says where its figures are from, where it is not this run; empty: it is.
	from string
	// command runs it, and has it write its result into file.
	command func(o options, file string) []string
}

var parts = []part{
	{name: "simulation", needs: "cmd/csi-fencepost/simulation_test.go", built: "./cmd/csi-fencepost",
		about: "The wiring that is shipped, driven by one seed a schedule through crashes, partitions, lost and late answers, lying operators and faults of the driver; R1 and R2 are checked after every step, and that nothing stays stuck at the end.",
		command: func(o options, file string) []string {
			n := "1000000"
			if o.quick {
				n = "2000"
			}
			return []string{"go", "test", "./cmd/csi-fencepost", "-run", "^TestSimulation$", "-count=1", "-timeout=0", "-v", "-schedules=" + n, "-failures=20", "-result=" + file}
		}},
	{name: "model", needs: "sanity/model/fencepost.pml", built: "./sanity/model",
		about: "A model of the protocol, bounded worlds of it explored completely, with the same rules, and without its guards, one at a time, where a violation has to be found.",
		command: func(_ options, file string) []string {
			return []string{"go", "test", "./sanity/model", "-count=1", "-timeout=0", "-v", "-result=" + file}
		}},
	{name: "mutants", needs: "sanity/mutants/main.go",
		about: "One small change to the code at a time: each comparison turned round, each guard taken out. A test has to notice.",
		command: func(o options, file string) []string {
			c := []string{"go", "run", "./sanity/mutants", "-result=" + file}
			if o.quick {
				c = append(c, "-only=fence,csi/ledger")
			}
			if o.reuse {
				c = append(c, "-reuse")
			}
			return c
		}},
	{name: "fuzzing", needs: "sanity/fuzz/main.go",
		about: "Everything that reads what others wrote, fed with what nobody would write.",
		command: func(o options, file string) []string {
			each := o.fuzztime
			if o.quick {
				each = min(each, 5*time.Second)
			}
			return []string{"go", "run", "./sanity/fuzz", "-time=" + each.String(), "-result=" + file}
		}},
	{name: "catalogue", needs: "sanity/scenarios/CATALOGUE.md", from: "from the outcomes of the last make catalogue",
		about: "Named scenarios from public reports, on the real control plane, with Kubernetes alone and with csi-fencepost.",
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
	// reused: from an earlier run.
	reused bool
	// err is why the part failed, or why it has no result.
	err error
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
	file, _ := filepath.Abs(filepath.Join(o.kept, p.name+".json"))
	if o.reuse && !slices.Contains(o.only, p.name) {
		if r := p.kept(ctx, file, here); r != nil {
			return outcome{part: p, result: r, reused: true}
		}
		if len(o.only) > 0 {
			return outcome{part: p, err: fmt.Errorf("missing: no earlier run of these sources has a result")}
		}
	}
	if _, err := os.Stat(p.needs); err != nil {
		return outcome{part: p, err: fmt.Errorf("missing: there is no %s", p.needs)}
	}
	if err := os.RemoveAll(file); err != nil {
		return outcome{part: p, err: err}
	}
	sources, err := here.of(ctx, p) // as they are before it begins
	if err != nil {
		return outcome{part: p, err: err}
	}
	command := p.command(o, file)
	fmt.Fprintf(out, "\n== %s ==\n%s\n", p.name, strings.Join(command, " "))
	failed := execute(ctx, out, command)
	r, err := result.Read(file)
	switch {
	case err != nil && failed != nil:
		return outcome{part: p, err: fmt.Errorf("it failed before it had a result: %w", failed)}
	case err != nil:
		return outcome{part: p, err: fmt.Errorf("missing: it wrote no result: %w", err)}
	case failed != nil && len(r.Failures) == 0:
		return outcome{part: p, result: &r, err: failed}
	}
	if failed == nil {
		err = os.WriteFile(stamp(file), []byte(sources), 0o644)
	}
	return outcome{part: p, result: &r, err: err}
}

// stamp is the file beside a result that says of which sources it is.
func stamp(file string) string { return strings.TrimSuffix(file, ".json") + ".of" }

// kept is the result of an earlier run, if it succeeded and is of the same
// sources.
func (p part) kept(ctx context.Context, file string, here place) *result.Result {
	of, err := os.ReadFile(stamp(file))
	if err != nil {
		return nil
	}
	if sources, err := here.of(ctx, p); err != nil || string(of) != sources {
		return nil
	}
	r, err := result.Read(file)
	if err != nil || r.Part != p.name {
		return nil
	}
	return &r
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
	switch {
	case o.fault() != "" && o.result == nil:
		return "MISSING"
	case o.fault() != "":
		return "FAILED"
	case o.reused:
		return "reused from " + o.result.Began.Format("2006-01-02 15:04") + " UTC"
	}
	return cmp.Or(o.part.from, "ran now")
}
