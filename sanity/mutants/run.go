package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A fate is what became of a mutant.
type fate string

const (
	killed   fate = "killed"
	endless  fate = "timed out" // the tests did not end, which is noticed too
	unbuilt  fate = "does not compile"
	survived fate = "survived"
)

// An outcome is a mutant and what became of it.
type outcome struct {
	mutant
	Fate fate
	// By is the test that killed it.
	By      string
	Seconds float64
}

// limits for the tests of a mutant, from what they take without one.
type limits struct{ tests, then time.Duration }

const (
	// slack is added to three times what the tests take: the machine may be busy.
	slack = 20 * time.Second
	// building bounds what comes on top of the tests where they have to be built.
	building = 10 * time.Minute
)

// A crew tries the mutants of one target.
type crew struct {
	// plain is a copy for each worker, where the mutants are tried that have to
	// be built one by one.
	plain []*scratch
	// built is the copy with all others behind switches; nil: there is none.
	built    *scratch
	switched []bool
	limit    limits
}

// baseline runs the tests without any mutant. They have to pass, or every mutant
// would count as killed.
func (c *crew) baseline(ctx context.Context) error {
	for _, stage := range []struct {
		tests []test
		limit *time.Duration
	}{{c.plain[0].target.Tests, &c.limit.tests}, {c.plain[0].target.Then, &c.limit.then}} {
		began := time.Now()
		became, _, out, err := c.run(ctx, 0, 0, stage.tests, time.Hour)
		if err != nil {
			return err
		}
		if became != survived {
			return fmt.Errorf("the tests of %s do not pass without any mutant:\n%s", strings.Join(folders(stage.tests), ", "), out)
		}
		*stage.limit = 3*time.Since(began) + slack
	}
	return nil
}

// run runs tests with the n-th mutant, counted from 1, switched on; 0: none. Where
// nothing is built they are run in the worker's copy as it is.
func (c *crew) run(ctx context.Context, worker, n int, tests []test, limit time.Duration) (fate, string, string, error) {
	if c.built != nil && (n == 0 || c.switched[n-1]) {
		return c.built.runSwitched(ctx, n, tests, limit)
	}
	return c.plain[worker].runPlain(ctx, tests, limit)
}

// try has the tests run with the n-th mutant: those that take longer only if it
// survives the others.
func (c *crew) try(ctx context.Context, worker, n int, m mutant) (o outcome, err error) {
	began := time.Now()
	if c.built == nil || !c.switched[n-1] {
		undo, err := c.plain[worker].change(m)
		if err != nil {
			return outcome{}, err
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	o = outcome{mutant: m}
	target := c.plain[worker].target
	o.Fate, o.By, _, err = c.run(ctx, worker, n, target.Tests, c.limit.tests)
	if err == nil && o.Fate == survived && len(target.Then) > 0 {
		o.Fate, o.By, _, err = c.run(ctx, worker, n, target.Then, c.limit.then)
	}
	o.Seconds = time.Since(began).Seconds()
	return o, err
}

// change makes the change in the copy.
func (c *scratch) change(m mutant) (undo func() error, err error) {
	path := filepath.Join(c.folder, m.File)
	was, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(path, was, 0o644) }, os.WriteFile(path, []byte(m.applied(string(was))), 0o644)
}

// buildTests builds the programs that runSwitched runs.
func (c *scratch) buildTests(ctx context.Context) error {
	for _, t := range append(slices.Clone(c.target.Tests), c.target.Then...) {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", c.program(t), "./"+t.Folder)
		cmd.Dir = c.folder
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building the tests of %s: %w\n%s", t.Folder, err, out)
		}
	}
	return nil
}

func (c *scratch) program(t test) string {
	return filepath.Join(c.folder, "tests-"+strings.ReplaceAll(t.Folder, "/", "-"))
}

// runSwitched runs what buildTests has built, until the first test fails.
func (c *scratch) runSwitched(ctx context.Context, n int, tests []test, limit time.Duration) (f fate, by, out string, err error) {
	f = survived
	for _, t := range tests {
		cmd := []string{c.program(t), "-test.paniconexit0", "-test.failfast", "-test.timeout=" + limit.String(), "-test.run=" + t.Run, "-test.skip=" + t.Skip}
		f, by, out, err = c.execute(ctx, filepath.Join(c.folder, t.Folder), n, limit+slack, cmd)
		if err != nil || f != survived {
			break
		}
	}
	return f, by, out, err
}

// runPlain builds and runs the tests of the copy as it is, until the first fails.
func (c *scratch) runPlain(ctx context.Context, tests []test, limit time.Duration) (f fate, by, out string, err error) {
	f = survived
	for _, t := range tests {
		cmd := []string{"go", "test", "-vet=off", "-count=1", "-failfast", "-ldflags=-s -w", "-timeout=" + limit.String(), "-run=" + t.Run, "-skip=" + t.Skip, "./" + t.Folder}
		f, by, out, err = c.execute(ctx, c.folder, 0, limit+building, cmd)
		if err != nil || f != survived {
			break
		}
	}
	return f, by, out, err
}

// execute runs one program of tests, and reads from what it prints what became of
// the mutant.
func (c *scratch) execute(ctx context.Context, folder string, n int, most time.Duration, args []string) (fate, string, string, error) {
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(bounded, args[0], args[1:]...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), fmt.Sprintf("%s=%d", switchVariable, n))
	// A killed go would leave the test binary behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	text, err := cmd.CombinedOutput()
	out := string(text)
	switch {
	case ctx.Err() != nil:
		return "", "", "", ctx.Err()
	case err == nil:
		return survived, "", out, nil
	case bounded.Err() != nil || strings.Contains(out, "panic: test timed out after"):
		return endless, "", out, nil
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return unbuilt, "", out, nil
	}
	return killed, killer(out), out, nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// killer is the test that failed, the innermost one.
func killer(out string) string {
	all := failed.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return "panic"
	}
	return all[len(all)-1][1]
}
