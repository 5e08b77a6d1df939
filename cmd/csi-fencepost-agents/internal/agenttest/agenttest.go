// Package agenttest holds every agent against the same rules, at a fake of its platform's
// API that serves TLS on loopback.
package agenttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// Result of a run.
type Result struct {
	Code     int
	Out, Err string
}

// Run is the agent as a program, with these parameters on its standard input.
func Run(t testing.TB, a *contract.Agent, action string, parameters map[string]string) Result {
	t.Helper()
	return run(t, a, input(action, parameters))
}

// input is what a program of fence agents writes.
func input(action string, parameters map[string]string) string {
	var in strings.Builder
	fmt.Fprintf(&in, "action=%s\n", action)
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		fmt.Fprintf(&in, "%s=%s\n", key, parameters[key])
	}
	return in.String()
}

func run(t testing.TB, a *contract.Agent, input string) Result {
	t.Helper()
	var out, errs bytes.Buffer
	p := contract.Program{
		Name: "csi-fencepost-agents", Agents: []*contract.Agent{a},
		Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs, Interval: time.Millisecond,
	}
	code := p.Run(context.WithoutCancel(t.Context()), []string{"/usr/sbin/fence_fencepost_" + a.Name})
	return Result{code, out.String(), errs.String()}
}

// Server serves the API over TLS, with a certificate that only its fingerprint makes trusted.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	requests int
	refusal  http.Handler
	times    int
	said     []string
	echo     func(http.ResponseWriter, string)
	echoed   []string
}

// NewServer serves until the test ends.
func NewServer(t testing.TB, api http.Handler) *Server {
	t.Helper()
	s := &Server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusal := s.next(); refusal != nil {
			refusal.ServeHTTP(w, r)
			return
		}
		if s.quoted(w, r) {
			return
		}
		noted := &noted{ResponseWriter: w, code: http.StatusOK}
		api.ServeHTTP(noted, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.said = append(s.said, fmt.Sprintf("%d %s", noted.code, noted.text.String()))
	}))
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *Server) next() http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.times == 0 {
		return nil
	}
	s.times--
	return s.refusal
}

// Refuse answers the next requests so; times below 0: all of them.
func (s *Server) Refuse(times int, with http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times, s.refusal = times, with
}

// Echo answers by with the credentials of each request that has some.
func (s *Server) Echo(by func(w http.ResponseWriter, credentials string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.echo, s.echoed = by, nil
}

// Echoed are the credentials that were answered with.
func (s *Server) Echoed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.echoed
}

// quoted answers with the request's credentials, where it has some and is to be answered so.
func (s *Server) quoted(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, name := range []string{"Authorization", "X-Auth-Token", "X-Amz-Security-Token"} {
		if value := r.Header.Get(name); value != "" {
			all = append(all, value[strings.LastIndex(value, " ")+1:])
		}
	}
	for _, c := range r.Cookies() {
		all = append(all, c.Value)
	}
	if s.echo == nil || len(all) == 0 {
		return false
	}
	s.echoed = append(s.echoed, all...)
	s.echo(w, strings.Join(all, " and "))
	return true
}

// Requests so far.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Said is what the API has answered since it was asked for that: status codes, each with a text.
func (s *Server) Said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.said
	s.said = nil
	return said
}

// noted keeps what is answered.
type noted struct {
	http.ResponseWriter
	code int
	text strings.Builder
}

func (n *noted) WriteHeader(code int) {
	n.code = code
	n.ResponseWriter.WriteHeader(code)
}

func (n *noted) Write(text []byte) (int, error) {
	n.text.Write(text)
	return n.ResponseWriter.Write(text)
}

// Fingerprint of its certificate.
func (s *Server) Fingerprint() string {
	return fmt.Sprintf("%x", sha256.Sum256(s.Certificate().Raw))
}

// Power is what the fake's machines do, for its API to show.
type Power struct {
	mu    sync.Mutex
	state string
	sent  []string
	looks int
	// Off and On are the states that the commands lead to, Between that in which it is for
	// two looks before.
	Off, On, Between string
	aim              string
}

// Set the machine's state.
func (p *Power) Set(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.aim = state, ""
}

// State as the API shows it now.
func (p *Power) State() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aim != "" {
		if p.looks++; p.looks > 2 {
			p.state, p.aim = p.aim, ""
		}
	}
	return p.state
}

// Send is a command that the API took; its words are noted.
func (p *Power) Send(off bool, words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, words)
	p.state, p.aim, p.looks = p.Between, p.On, 0
	if off {
		p.aim = p.Off
	}
}

// Sent are the commands so far.
func (p *Power) Sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}
