package guards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Play plays a scenario in a copy of the checkout at root with its guard taken out.
// It is an error if the scenario passes, does not come to its end, or fails for
// another reason than the table expects.
func (g Guard) Play(ctx context.Context, root string, out io.Writer) error {
	fmt.Fprintf(out, "%s, taken out of %s: %s\n", g.Name, g.where(), g.Says)
	files, err := g.TakeOut(root)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "guard-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := copyCheckout(ctx, root, folder); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	// The tests that play one scenario of a kind each.
	run := fmt.Sprintf("^Test(Scenario|Partition|Failover|FailoverPartition)$/^%s$", regexp.QuoteMeta(g.Story()))
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout", "30m", "-run", run, "./sanity/scenarios")
	cmd.Dir = folder
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 30*time.Second
	log, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	return g.judge(string(log), out)
}

// judge reads out of the log of a scenario what came of it.
func (g Guard) judge(log string, out io.Writer) error {
	ended := func(how string) bool {
		return regexp.MustCompile(`(?m)^\s*--- ` + how + `: Test[A-Za-z]*/` + regexp.QuoteMeta(g.Story()) + ` `).MatchString(log)
	}
	if ended("PASS") {
		return fmt.Errorf("%s PASSED WITHOUT ITS GUARD", g.Name)
	}
	if !ended("FAIL") {
		fmt.Fprintln(out, log)
		return fmt.Errorf("%s was NOT PLAYED", g.Name)
	}
	expected, err := regexp.CompilePOSIX(g.Expect)
	if err != nil {
		return err
	}
	found := 0
	for line := range strings.Lines(log) {
		if found < 3 && expected.MatchString(strings.TrimSuffix(line, "\n")) {
			found++
			fmt.Fprint(out, line)
		}
	}
	if found == 0 {
		fmt.Fprintln(out, log)
		return fmt.Errorf("%s FAILED FOR ANOTHER REASON than expected: %s", g.Name, g.Expect)
	}
	fmt.Fprintf(out, "%s FAILED AS IT SHOULD\n", g.Name)
	return nil
}

// copyCheckout copies what git knows of, and what is new and not ignored.
func copyCheckout(ctx context.Context, root, folder string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir, list.Stderr = root, os.Stderr
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // what was deleted and not committed yet is not there
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// where names the functions that the guard is taken out of.
func (g Guard) where() string {
	var all []string
	for _, e := range g.Edits {
		if name := "`" + e.Package + "` `" + e.Func + "`"; !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}
