package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

func main() {
	tool.Main("fuzz", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	each := flags.Duration("time", 30*time.Second, "how long each target is fuzzed")
	only := flags.String("only", "", "only targets in whose folder and name this regular expression is found")
	path := flags.String("result", "bin/prove/fuzzing.json", "where the result goes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	targets, err := find(".", match)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("-only=%s: no fuzz target is named so", *only)
	}
	command := "go run ./sanity/fuzz -time=" + each.String()
	if *only != "" {
		command += " -only=" + *only
	}
	r := result.Result{Part: "fuzzing", Command: command, Began: time.Now().UTC()}
	if err := fuzzAll(ctx, targets, *each, &r, out); err != nil {
		return err
	}
	if err := r.Write(*path); err != nil {
		return err
	}
	if len(r.Failures) > 0 {
		return fmt.Errorf("%d targets broke a rule:\n%s", len(r.Failures), strings.Join(r.Failures, "\n"))
	}
	return nil
}

func fuzzAll(ctx context.Context, targets []target, each time.Duration, r *result.Result, out io.Writer) error {
	var inputs, fuzzed float64
	var figures []result.Figure
	for i, t := range targets {
		fmt.Fprintf(out, "%d/%d %s: ", i+1, len(targets), t)
		e, err := t.fuzz(ctx, ".", each)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.Failures = append(r.Failures, err.Error())
			fmt.Fprintln(out, "FAILED")
		} else {
			fmt.Fprintf(out, "%.0f inputs in %.0f s\n", e.inputs, e.seconds)
		}
		inputs, fuzzed = inputs+e.inputs, fuzzed+e.seconds
		figures = append(figures, result.Figure{Name: t.String(), Value: e.inputs, Unit: "inputs"})
	}
	r.Seconds = time.Since(r.Began).Seconds()
	r.Add("fuzz targets", float64(len(targets)), "targets")
	r.Add("inputs tried", inputs, "inputs")
	r.Add("time spent fuzzing", fuzzed, "s")
	r.Add("inputs that broke a rule", float64(len(r.Failures)), "inputs")
	r.Figures = append(r.Figures, figures...)
	return nil
}

// tried is what one target has tried.
type tried struct{ inputs, seconds float64 }

// few tells whether it was less than one a second, of which nothing can be said.
func (t tried) few() bool { return t.inputs == 0 || t.inputs < t.seconds }

var progress = regexp.MustCompile(`fuzz: elapsed: (\S+), execs: (\d+)`)

// atItsEnd is go test's own race (golang.org/issue/75804): its time is up, and it takes that for a failure.
// A failure of the target has more lines than this, an input that broke a rule another first one.
var atItsEnd = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([\d.]+s\)\n    context deadline exceeded\nFAIL\n`)

// fuzz runs the target in the checkout at root. An error carries what go test says of the input that
// broke a rule.
func (t target) fuzz(ctx context.Context, root string, each time.Duration) (tried, error) {
	// go test makes what it finds interesting smaller for a minute each, and hardly tries anything
	// where what a target covers differs from run to run, as with a server in it.
	args := []string{"test", "-run=^$", "-fuzz=^" + t.name + "$", "-fuzztime=" + each.String(), "-fuzzminimizetime=10x", "."}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(root, t.folder) // which may be of a module of its own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	text, err := cmd.CombinedOutput()
	var e tried
	for _, m := range progress.FindAllStringSubmatch(string(text), -1) {
		took, _ := time.ParseDuration(m[1])
		e.seconds = took.Seconds()
		e.inputs, _ = strconv.ParseFloat(m[2], 64)
	}
	switch {
	case err != nil && (!atItsEnd.Match(text) || e.seconds < each.Seconds()):
		return e, fmt.Errorf("%s: %w\n%s", t, err, text)
	case e.few():
		return e, fmt.Errorf("%s tried %.0f inputs in %.0f s, and should try one a second at least:\n%s", t, e.inputs, e.seconds, text)
	}
	return e, nil
}
