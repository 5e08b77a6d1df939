package model

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed fencepost.pml
var source string

// Source is the text of the model.
func Source() string { return source }

// Search is one exploration of the model.
type Search struct {
	// Defines are the model's switches: NODES=3, NO_TOKEN.
	Defines []string
	// Shortest searches breadth first, so that the trail of a violation is as
	// short as there is one.
	Shortest bool
	// DeadEnds looks for states in which nothing can happen any more; without it
	// only assertions are checked.
	DeadEnds bool
	// Memory that the states may take, in MB.
	Memory int
	// Depth that a path may have; not asked of a shortest search.
	Depth int
	// Optimized has the compiler take twice as long, which pays where the search takes
	// minutes. What is found is the same.
	Optimized bool
}

// Outcome is what a search found.
type Outcome struct {
	// Violation is the first one; empty: there is none.
	Violation string
	// Trail are the steps to it, one a line, as spin prints them.
	Trail []string
	// States that were stored, Transitions that were made, Depth of the deepest
	// path.
	States, Transitions, Depth float64
	// Memory in MB, Seconds that the search took, without the compiler's.
	Memory, Seconds float64
}

// Run explores the model in the folder dir, which it fills with files. An error
// says that spin, gcc or the search did not come to an end; nothing is known
// then.
func (s Search) Run(ctx context.Context, dir string) (*Outcome, error) {
	path := filepath.Join(dir, "fencepost.pml")
	if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
		return nil, err
	}
	if _, err := command(ctx, dir, "spin", append(flags("-D", s.Defines), "-a", "fencepost.pml")...); err != nil {
		return nil, err
	}
	if _, err := command(ctx, dir, "gcc", s.compile()...); err != nil {
		return nil, err
	}
	began := time.Now()
	text, err := command(ctx, dir, "./pan", s.arguments()...)
	if err != nil {
		return nil, err
	}
	o, err := parse(text)
	if err != nil {
		return nil, err
	}
	o.Seconds = time.Since(began).Seconds()
	if o.Violation == "" {
		return o, nil
	}
	o.Trail, err = s.trail(ctx, dir)
	return o, err
}

func flags(prefix string, values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, prefix+v)
	}
	return out
}

func (s Search) compile() []string {
	level := "-O0"
	if s.Optimized {
		level = "-O1"
	}
	args := []string{level, "-w", "-o", "pan", "-DSAFETY", "-DNOFAIR", fmt.Sprintf("-DMEMLIM=%d", s.Memory), "pan.c"}
	if s.Shortest {
		args = append(args, "-DBFS")
	}
	return args
}

func (s Search) arguments() []string {
	args := []string{"-n"} // no list of unreached states
	if !s.DeadEnds {
		args = append(args, "-E")
	}
	if !s.Shortest {
		args = append(args, fmt.Sprintf("-m%d", s.Depth))
	}
	return args
}

// command runs a program in dir and returns what it printed. Spin and pan exit
// with other codes than 0 for what they find, too: only a signal, a program that
// is not there and the compiler's faults are errors here.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.WaitDelay = 5 * time.Second
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", name, ctx.Err())
	case errors.As(err, &exit) && exit.Exited() && (name == "./pan" || slices.Contains(args, "-t")):
		return string(out), nil
	case err != nil:
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, last(string(out), 500))
	}
	return string(out), nil
}

func last(s string, n int) string {
	if len(s) > n {
		s = s[len(s)-n:]
	}
	return strings.TrimSpace(s)
}

var (
	errorLine  = regexp.MustCompile(`(?m)^pan:\d+: (.*)$`)
	errorCount = regexp.MustCompile(`errors: (\d+)`)
	depth      = regexp.MustCompile(`depth reached (\d+)`)
	states     = regexp.MustCompile(`(?m)^\s*(\S+) states, stored`)
	made       = regexp.MustCompile(`(?m)^\s*(\S+) transitions \(`)
	memory     = regexp.MustCompile(`(?m)^\s*(\S+)\s+total actual memory usage`)
	unfinished = regexp.MustCompile(`(?i)search not completed|max search depth too small|out of memory|MEMLIM bound|hash table full|truncated`)
)

// parse reads what pan printed. A search that found nothing must have been
// complete.
func parse(text string) (*Outcome, error) {
	o := &Outcome{}
	if m := errorLine.FindStringSubmatch(text); m != nil {
		o.Violation = strings.TrimSpace(m[1])
	}
	count := errorCount.FindStringSubmatch(text)
	if count == nil {
		return nil, fmt.Errorf("pan did not come to an end: %s", last(text, 500))
	}
	if (count[1] == "0") != (o.Violation == "") {
		return nil, fmt.Errorf("pan counts %s errors, and its message is %q", count[1], o.Violation)
	}
	if why := unfinished.FindString(text); why != "" && o.Violation == "" {
		return nil, fmt.Errorf("the search was cut short: %s", why)
	}
	for what, into := range map[*regexp.Regexp]*float64{depth: &o.Depth, states: &o.States, made: &o.Transitions, memory: &o.Memory} {
		m := what.FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("pan does not say %s: %s", what, last(text, 500))
		}
		var err error
		if *into, err = strconv.ParseFloat(m[1], 64); err != nil {
			return nil, err
		}
	}
	return o, nil
}

var step = regexp.MustCompile(`^\s*\d+:\tproc\s+\d+ \(([^)]*)\) (\S+) .*?\t(\[.*\])`)

// trail replays the violation in spin's simulator.
func (s Search) trail(ctx context.Context, dir string) ([]string, error) {
	text, err := command(ctx, dir, "spin", append(flags("-D", s.Defines), "-t", "-p", "fencepost.pml")...)
	if err != nil {
		return nil, err
	}
	var steps []string
	for line := range strings.Lines(text) {
		if m := step.FindStringSubmatch(line); m != nil {
			steps = append(steps, m[1]+" "+m[2]+" "+m[3])
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("the trail has no steps: %s", last(text, 500))
	}
	return steps, nil
}
