package controlplane

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const plainInterval = 10 * time.Second // between lines where there is no terminal

// report shows how far a build is: one line that is overwritten on a terminal,
// a line every 10 s elsewhere. It is the standard error of go build -v.
type report struct {
	out      io.Writer
	title    string
	terminal bool
	total    int // packages to compile; 0: not known

	mu      sync.Mutex
	started time.Time
	shown   time.Time
	done    int
	drawn   bool
	partial []byte
	others  []string // lines that are neither package nor download: errors
}

func newReport(out io.Writer, title string) *report {
	if out == nil {
		out = io.Discard
	}
	r := &report{out: out, title: strings.TrimSpace(title), started: time.Now()}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		r.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return r
}

// Write takes the standard error of a go command.
func (r *report) Write(output []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partial = append(r.partial, output...)
	for {
		line, rest, found := bytes.Cut(r.partial, []byte("\n"))
		if !found {
			return len(output), nil
		}
		r.partial = rest
		r.lineLocked(string(line))
	}
}

func (r *report) lineLocked(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		r.showLocked(strings.TrimPrefix(line, "go: "))
	case line != "" && !strings.ContainsAny(line, " \t#:"): // an import path
		r.done++
		r.showLocked(r.progressLocked() + ", " + line)
	default:
		r.others = append(r.others, line)
	}
}

func (r *report) progressLocked() string {
	switch {
	case r.total == 0:
		return fmt.Sprintf("%d packages", r.done)
	case r.done >= r.total:
		return fmt.Sprintf("all %d packages, linking", r.total)
	}
	return fmt.Sprintf("%d of %d packages (%d%%)", r.done, r.total, 100*r.done/r.total)
}

// step shows what is done now.
func (r *report) step(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.showLocked(what)
}

func (r *report) showLocked(what string) {
	now := time.Now()
	elapsed := now.Sub(r.started).Round(time.Second)
	if r.terminal {
		if now.Sub(r.shown) < 100*time.Millisecond {
			return
		}
		r.shown, r.drawn = now, true
		line := fmt.Sprintf("%s: %s, %s", r.title, elapsed, what)
		if len(line) > 79 {
			line = line[:79]
		}
		fmt.Fprintf(r.out, "\r\033[K%s", line)
		return
	}
	if now.Sub(r.shown) < plainInterval {
		return
	}
	r.shown, r.drawn = now, true
	fmt.Fprintf(r.out, "%s: %s, %s\n", r.title, elapsed, what)
}

// close shows how long it took, if anything was shown.
func (r *report) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.drawn {
		return
	}
	if r.terminal {
		fmt.Fprint(r.out, "\r\033[K")
	}
	fmt.Fprintf(r.out, "%s: took %s\n", r.title, time.Since(r.started).Round(time.Second))
}

// errors is what the go command said that was not progress.
func (r *report) errors() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(append(r.others, string(r.partial)), "\n")
}
