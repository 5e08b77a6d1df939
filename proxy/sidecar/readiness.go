package sidecar

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/proxy/statusz"
)

// Readiness is what /readyz answers: ready once every named check passes. The
// zero readiness has no check and is not ready.
type Readiness struct {
	mu     sync.Mutex
	names  []string
	checks map[string]func() error
}

// Set adds a check, or replaces the one of that name. check returns why it is
// not ready, or nil; it is called at each question and must not block.
func (r *Readiness) Set(name string, check func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checks == nil {
		r.checks = map[string]func() error{}
	}
	if r.checks[name] == nil {
		r.names = append(r.names, name)
	}
	r.checks[name] = check
}

// checked are the checks, each with why it does not pass, and whether all pass.
func (r *Readiness) checked() (ready bool, checks []statusz.Check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready, checks = len(r.names) > 0, []statusz.Check{}
	for _, name := range r.names {
		c := statusz.Check{Name: name}
		if err := r.checks[name](); err != nil {
			ready, c.Why = false, err.Error()
		}
		checks = append(checks, c)
	}
	return ready, checks
}

// report returns whether every check passes, and a line for each.
func (r *Readiness) report() (ready bool, text string) {
	ready, checks := r.checked()
	var lines strings.Builder
	for _, c := range checks {
		if c.Why != "" {
			fmt.Fprintf(&lines, "[-] %s: %s\n", c.Name, c.Why)
		} else {
			fmt.Fprintf(&lines, "[+] %s\n", c.Name)
		}
	}
	return ready, lines.String()
}

// ServeHTTP answers 200 when ready, 503 when not, with the reasons.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	ready, text := r.report()
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprint(printable.Writer{To: w}, text)
}

// NotReady is a check that does not pass, for the reason given.
func NotReady(reason string) func() error {
	err := errors.New(reason)
	return func() error { return err }
}
