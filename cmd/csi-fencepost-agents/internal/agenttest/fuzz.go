package agenttest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// Host is where a platform is asked that Fuzz answers for.
const Host = "platform.example.com"

const (
	// next stands between the answers of an input, which are given to one request each, in their
	// order; the last one is given to all further ones.
	next = "\x1e"
	// within is the parameter timeout, latency the time that each answer takes. None of it passes.
	within, latency = 2 * time.Second, 50 * time.Millisecond
	// flow is as many answers as a seed has at most: no agent needs more until it knows a state.
	flow = 12
)

var actions = []string{"status", "off", "list"}

// Fuzz runs the agent of a world with answers that anybody may have written, without a network in
// between, whose timing would be taken for something new. The seeds are what the world's server
// answers in each of these states. Open is the agent's own, where client answers.
//
// Whatever is answered: the agent reads a machine as off only where one answer of a success says so
// of the very machine (off and is are patterns of such an answer), and no answer was an error; who it
// is, is printed as the parameters have it; an error is one line without the secret; nothing is sent
// but by https, and to nobody but the platform or whom it names (Elsewhere); and all ends with the parameter timeout.
func Fuzz(f *testing.F, w *World, open func(context.Context, contract.Values, *http.Client) (contract.Platform, error), off, is string, states ...string) {
	w.Parameters = with(w.Parameters, "timeout", strconv.Itoa(int(within/time.Second)))
	if w.UUID != "" {
		w.Parameters["uuid"] = w.UUID
	}
	inputs := map[string]string{} // made once: sorting looks like something new to the fuzzer
	for at, action := range actions {
		inputs[action] = input(action, w.Parameters)
		for _, state := range states {
			w.Power.Set(state)
			w.Server.Said()
			Run(f, w.Agent, action, w.Parameters)
			said := w.Server.Said()
			if len(said) == 0 {
				f.Fatalf("%s asks nothing of a machine that is %s", action, state)
			}
			said = said[:min(len(said), flow)]
			f.Add(byte(at), strings.Join(said, next))
			for _, id := range w.Identities { // of another machine
				f.Add(byte(at), strings.ReplaceAll(strings.Join(said, next), id, id[:len(id)-1]+"7"))
			}
			for i, text := range said {
				// One says the same without success; or the flow ends with an error that quotes the secret.
				f.Add(byte(at), strings.Join(slices.Concat(said[:i], []string{"500" + text[3:]}, said[i+1:]), next))
				f.Add(byte(at), strings.Join(append(slices.Clone(said[:i]), "401 "+w.Parameters[w.Secret]+" is wrong"), next))
			}
		}
	}
	isOff, isIt := regexp.MustCompile("(?i)"+off), regexp.MustCompile("(?i)"+is)
	f.Fuzz(func(t *testing.T, action byte, text string) {
		synctest.Test(t, func(t *testing.T) {
			p := &answers{left: strings.Split(text, next)}
			agent := *w.Agent
			agent.Open = func(ctx context.Context, v contract.Values) (contract.Platform, error) {
				return open(ctx, v, &http.Client{Transport: p})
			}
			began := time.Now()
			does := actions[int(action)%len(actions)]
			got := run(t, &agent, inputs[does])
			if took := time.Since(began); took > 2*within {
				t.Errorf("it takes %s", took)
			}
			for _, r := range p.asked {
				if r.URL.Scheme != "https" || r.URL.User != nil || r.URL.Host != Host && !w.Elsewhere {
					t.Errorf("it asks %s", r.URL)
				}
			}
			if err := w.judge(does, got); err != nil {
				t.Errorf("%s: exit %d, %q, %q: %v", does, got.Code, got.Out, got.Err, err)
			}
			says := func(a answer) bool { return a.succeeds() && isOff.MatchString(a.text) && isIt.MatchString(a.text) }
			if (does == "status" && got.Code == 2 || does == "off" && got.Code == 0) && !slices.ContainsFunc(p.given, says) {
				t.Errorf("%s: exit %d, and no answer says that the machine is off", does, got.Code)
			}
			if at := slices.IndexFunc(p.given, func(a answer) bool { return !a.succeeds() }); does == "status" && got.Code == 2 && at >= 0 {
				t.Errorf("it is off, with the answer %d", p.given[at].code)
			}
		})
	})
}

var identity = regexp.MustCompile(`(?m)^Identity: (.*)$`)

// judge is what is wrong with what a run has printed.
func (w *World) judge(action string, got Result) error {
	odd := func(text string) bool {
		return strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) })
	}
	switch {
	case odd(got.Out) || odd(got.Err):
		return fmt.Errorf("a terminal acts on it")
	case strings.Contains(got.Err, w.Parameters[w.Secret]):
		return fmt.Errorf("the secret is shown")
	case got.Code == 1 && (got.Out != "" || strings.Count(got.Err, "\n") != 1 || strings.Contains(got.Err, "a fault of this program")):
		return fmt.Errorf("this is no error of one line")
	case got.Code == 1:
		return nil
	case got.Err != "" || got.Code != 0 && got.Code != 2 || got.Code == 2 && action != "status":
		return fmt.Errorf("it is neither an error nor an answer")
	case action == "list":
		return nil
	case action != "status":
		if got.Out != "" {
			return fmt.Errorf("it prints what nobody has asked for")
		}
		return nil
	case !strings.HasPrefix(got.Out, map[int]string{0: "Status: ON\n", 2: "Status: OFF\n"}[got.Code]):
		return fmt.Errorf("the words are not the code's")
	}
	if all := identity.FindAllString(got.Out, -1); len(all) != len(w.Identities) {
		return fmt.Errorf("it is said to be %d machines", len(all))
	}
	for _, id := range w.Identities {
		named := slices.ContainsFunc(slices.Collect(maps.Values(w.Parameters)), func(v string) bool { return strings.Contains(v, id) })
		if named && !strings.Contains(got.Out, "\nIdentity: "+id+"\n") {
			return fmt.Errorf("it is not said to be %s", id)
		}
	}
	return nil
}

// answers is a platform that answers so, whatever is asked.
type answers struct {
	left  []string
	asked []*http.Request
	given []answer
}

type answer struct {
	code int
	text string
}

func (a answer) succeeds() bool { return a.code >= 200 && a.code <= 299 }

// code of an answer that does not have 200 stands before it.
var code = regexp.MustCompile(`^([2-5][0-9][0-9]) `)

func (p *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(latency):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	a := answer{http.StatusOK, p.left[0]}
	if len(p.left) > 1 {
		p.left = p.left[1:]
	}
	if parts := code.FindStringSubmatch(a.text); parts != nil {
		a.code, _ = strconv.Atoi(parts[1])
		a.text = strings.TrimPrefix(a.text, parts[0])
	}
	p.asked, p.given = append(p.asked, r), append(p.given, a)
	kind := "application/json"
	if strings.HasPrefix(a.text, "<") {
		kind = "text/xml"
	}
	return &http.Response{StatusCode: a.code, Status: http.StatusText(a.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {kind}, "X-Subject-Token": {"token-of-keystone"}}, Body: io.NopCloser(strings.NewReader(a.text)), ContentLength: int64(len(a.text))}, nil
}
