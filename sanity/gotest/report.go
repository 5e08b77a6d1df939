package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// report prints what becomes of each package, when it has ended.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	began    time.Time
	packages map[string]*suite // that have not ended
	times    []took            // of packages that have
	tests    []took            // that have no subtests
	failed   []string          // packages and tests
}

// took is how long a package or a test took.
type took struct {
	name    string
	seconds float64
}

// suite is a package whose tests run.
type suite struct {
	lines   []line
	parents map[string]bool
	became  map[string]string  // a test's last action
	waited  map[string]float64 // seconds that a test waited for its turn
	took    []took
}

// line is what a test said, or, where it has no test, the package's program.
type line struct{ test, text string }

func newReport(out io.Writer) *report {
	return &report{out: out, began: time.Now(), packages: map[string]*suite{}}
}

func (r *report) goTest(ctx context.Context, words []string) error {
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, words...)...)
	command.Stderr = os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	r.say("+ go test %s\n", strings.Join(words, " "))
	if err := command.Start(); err != nil {
		return err
	}
	read := r.read(output)
	if err := errors.Join(command.Wait(), read); err != nil {
		return fmt.Errorf("go test %s: %w", strings.Join(words, " "), err)
	}
	return nil
}

// read takes the events in until there are no more. What is no event is printed
// as it is.
func (r *report) read(events io.Reader) error {
	reader := bufio.NewReader(events)
	for {
		text, err := reader.ReadString('\n')
		if text != "" {
			r.take(text)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal([]byte(text), &e) != nil {
		fmt.Fprint(r.out, text)
		return
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Package == "":
	case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		r.end(e)
	default:
		s := r.packages[e.Package]
		if s == nil {
			s = &suite{parents: map[string]bool{}, became: map[string]string{}, waited: map[string]float64{}}
			r.packages[e.Package] = s
		}
		s.take(e)
	}
}

// itsTurn finds that the test waited so long for others, and did nothing.
var itsTurn = regexp.MustCompile(`its turn came after ([0-9.]+)s`)

func (s *suite) take(e event) {
	switch e.Action {
	case "output":
		s.lines = append(s.lines, line{e.Test, e.Output})
		if m := itsTurn.FindStringSubmatch(e.Output); m != nil {
			seconds, _ := strconv.ParseFloat(m[1], 64) // as the expression has it
			s.waited[e.Test] += seconds
		}
	case "run":
		s.became[e.Test] = "run"
		if i := strings.LastIndex(e.Test, "/"); i > 0 {
			s.parents[e.Test[:i]] = true
		}
	case "pass", "fail", "skip":
		s.became[e.Test] = e.Action
		s.took = append(s.took, took{e.Test, e.Elapsed - s.waited[e.Test]})
	}
}

// end prints what go test would print of a package that has ended.
func (r *report) end(e event) {
	s := r.packages[e.Package]
	delete(r.packages, e.Package)
	if s == nil {
		s = &suite{}
	}
	r.times = append(r.times, took{short(e.Package), e.Elapsed})
	for _, t := range s.took {
		if !s.parents[t.name] {
			r.tests = append(r.tests, took{short(e.Package) + " " + t.name, t.seconds})
		}
	}
	if e.Action == "fail" {
		r.failed = append(r.failed, short(e.Package))
		for _, t := range s.unfinished() {
			r.failed = append(r.failed, short(e.Package)+" "+t)
		}
	}
	for _, l := range s.lines {
		if e.Action == "fail" && s.told(l) || l.test == "" && isVerdict(l.text) {
			fmt.Fprint(r.out, l.text)
		}
	}
}

// unfinished are the tests that failed, and those in which the program ended.
func (s *suite) unfinished() (names []string) {
	seen := map[string]bool{}
	for _, l := range s.lines {
		if became := s.became[l.test]; !seen[l.test] && (became == "fail" || became == "run") {
			names, seen[l.test] = append(names, l.test), true
		}
	}
	return names
}

// told tells whether go test prints the line of a package that fails.
func (s *suite) told(l line) bool {
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(l.text, prefix) {
			return false
		}
	}
	became := s.became[l.test]
	return l.test == "" || became != "pass" && became != "skip"
}

// isVerdict tells whether the line says what became of a package.
func isVerdict(text string) bool {
	return strings.HasPrefix(text, "ok  \t") || strings.HasPrefix(text, "?   \t") || strings.HasPrefix(text, "FAIL\t")
}

const modulePath = "github.com/csi-fencepost/csi-fencepost/"

func short(pkg string) string { return strings.TrimPrefix(pkg, modulePath) }

func (r *report) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format, args...)
}

// close prints what took longest, and what failed or did not end.
func (r *report) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.packages {
		fmt.Fprintf(r.out, "FAIL\t%s did not end\n", name)
		for _, l := range s.lines {
			if s.told(l) {
				fmt.Fprint(r.out, l.text)
			}
		}
	}
	fmt.Fprintf(r.out, "\n%s in all. The slowest packages:\n%s\nThe slowest tests:\n%s", time.Since(r.began).Round(time.Second), slowest(r.times), slowest(r.tests))
	if len(r.failed) > 0 {
		fmt.Fprintf(r.out, "\nFAILED:\n  %s\n", strings.Join(r.failed, "\n  "))
	}
}
