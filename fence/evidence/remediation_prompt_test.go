package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// watched is an API server in memory: the lists of customs, and watches that say
// what the test sends.
type watched struct {
	customs
	streams   map[string]*io.PipeWriter // by path
	forbidden bool                      // to watch
	prompts   []string
	log       strings.Builder
}

// following runs Prompts against the lists that arrange made, until the test ends.
func following(t *testing.T, arrange func(*watched)) *watched {
	t.Helper()
	c := &watched{customs: customs{bodies: map[string]any{}}, streams: map[string]*io.PipeWriter{}}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: c, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	arrange(c)
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(c)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(t.Context()), logger))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := Prompts{Client: client.CoreV1().RESTClient(), Call: func(_ context.Context, p Prompt) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.prompts = append(c.prompts, strings.Join(append([]string{p.Kind, p.Name, p.Node, p.Driver}, p.CIDRs...), "|"))
		}}
		p.Run(ctx)
	}()
	t.Cleanup(func() {
		before := c.logged()
		cancel()
		<-done
		if after := c.logged(); !slices.Equal(after, before) {
			t.Errorf("logged because it was told to end: %q", after)
		}
	})
	return c
}

// RoundTrip implements http.RoundTripper.
func (c *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	q := r.URL.Query()
	if q.Get("watch") != "true" {
		c.ServeHTTP(w, r)
		return w.Result(), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forbidden || q.Get("resourceVersion") != "5" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		return w.Result(), nil
	}
	out, in := io.Pipe()
	context.AfterFunc(r.Context(), func() { in.CloseWithError(r.Context().Err()) })
	c.streams[r.URL.Path] = in
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, Body: out}, nil
}

// Write takes a line of the log.
func (c *watched) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(line)
}

func (c *watched) logged() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(strings.Split(c.log.String(), "\n"), func(s string) bool { return s == "" })
}

// prompted are the prompts since the last call.
func (c *watched) prompted() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.prompts
	c.prompts = nil
	slices.Sort(all)
	return all
}

// lists counts the requests for a list of that kind.
func (c *watched) lists(r resource) (n int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, path := range c.asked {
		if path == r.path() {
			n++
		}
	}
	return n
}

// stream is the watch of that kind that is under way.
func (c *watched) stream(t *testing.T, r resource) *io.PipeWriter {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[r.path()] == nil {
		t.Fatalf("%ss are not watched", r.kind)
	}
	return c.streams[r.path()]
}

// send writes into the watch of that kind, and waits until that was read.
func (c *watched) send(t *testing.T, r resource, text string) {
	t.Helper()
	stream, read := c.stream(t, r), false
	go func() {
		_, err := io.WriteString(stream, text)
		read = err == nil
	}()
	if synctest.Wait(); !read {
		t.Fatalf("the watch of %ss is not read", r.kind)
	}
}

func event(kind string, object any) string {
	text, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestAnObjectThatIsThereAppearsOrChangesPromptsWithItsNodeOrAddresses(t *testing.T) {
	leaving := func(name string) map[string]any {
		return object(name, "uid-"+name, map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"})
	}
	generated := func() map[string]any {
		return object("generated-x7", "r1", map[string]any{"annotations": map[string]string{remediatedNode: "n1"}})
	}
	synctest.Test(t, func(t *testing.T) {
		c := following(t, func(c *watched) {
			c.set(networkFences, nf("a", nil, "192.0.2.1/32", "2001:db8::1/128"))
			c.set(fenceAgentsRemediations, leaving("n3"))
			c.set(selfNodeRemediations, generated())
		})
		want := []string{"NetworkFence|a||" + driver + "|192.0.2.1/32|2001:db8::1/128", "SelfNodeRemediation|generated-x7|n1|"}
		if got := c.prompted(); !slices.Equal(got, want) {
			t.Fatalf("what is there prompts %q, want %q", got, want)
		}
		for _, step := range []struct {
			kind   string
			object map[string]any
			want   string
		}{
			{"ADDED", object("n2", "r2", nil), "FenceAgentsRemediation|n2|n2|"},
			{"MODIFIED", object("n2", "r2", nil), "FenceAgentsRemediation|n2|n2|"},
			{"MODIFIED", leaving("n2"), ""},
			{"DELETED", object("n2", "r2", nil), ""},
			{"BOOKMARK", object("", "", nil), ""},
			{"ADDED", generated(), "FenceAgentsRemediation|generated-x7|n1|"},
		} {
			c.send(t, fenceAgentsRemediations, event(step.kind, step.object))
			if got := strings.Join(c.prompted(), " "); got != step.want {
				t.Errorf("%s %v prompts %q, want %q", step.kind, step.object, got, step.want)
			}
		}
	})
}

func TestAKindThatIsNotInstalledIsAskedForOnceAMinuteSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := following(t, func(*watched) {})
		time.Sleep(2*absentAgain + time.Second)
		for _, r := range []resource{networkFences, fenceAgentsRemediations, selfNodeRemediations} {
			if n := c.lists(r); n != 3 {
				t.Errorf("%s: asked for %d times in two minutes", r.kind, n)
			}
		}
		if got, log := c.prompted(), c.logged(); len(got) > 0 || len(log) > 0 {
			t.Errorf("prompts %q, log %q", got, log)
		}
		c.set(selfNodeRemediations, object("n1", "r1", nil))
		time.Sleep(absentAgain)
		if got := c.prompted(); len(got) != 1 {
			t.Errorf("once it is installed: prompts %q", got)
		}
	})
}

func TestAWatchThatEndsIsBegunAgainWithAListAfterAPause(t *testing.T) {
	for name, end := range map[string]struct{ text, log string }{
		"broken off": {"", ""},
		"too old":    {event("ERROR", map[string]any{"code": 410}), ""},
		"garbled":    {event("ADDED", "x"), "cannot understand a FenceAgentsRemediation"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := following(t, func(c *watched) { c.set(fenceAgentsRemediations, object("n1", "r1", nil)) })
				c.send(t, fenceAgentsRemediations, end.text)
				_ = c.stream(t, fenceAgentsRemediations).Close()
				if n := c.lists(fenceAgentsRemediations); n != 1 {
					t.Errorf("listed %d times without a pause", n)
				}
				time.Sleep(brokenAgain)
				if got := c.prompted(); len(got) != 2 {
					t.Errorf("prompts of two lists: %q", got)
				}
				log := c.logged()
				if told := len(log) == 1 && end.log != "" && strings.Contains(log[0], end.log); !told && (len(log) > 0 || end.log != "") {
					t.Errorf("logged %q, want %q", log, end.log)
				}
			})
		})
	}
}

func TestATroubleWithAKindIsLoggedWhenItBeginsAndTriedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		trouble func(c *watched, on bool)
		log     string
		every   time.Duration
	}{
		"the API server fails": {func(c *watched, on bool) { c.answer(map[bool]int{true: 500}[on]) }, "cannot read NetworkFences", brokenAgain},
		"no right to list":     {func(c *watched, on bool) { c.answer(map[bool]int{true: 403}[on]) }, "cannot read NetworkFences", absentAgain},
		"no right to watch":    {func(c *watched, on bool) { c.mu.Lock(); defer c.mu.Unlock(); c.forbidden = on }, "cannot watch NetworkFences", absentAgain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := following(t, func(c *watched) {
					c.set(networkFences)
					tt.trouble(c, true)
				})
				told := func() (n int) {
					for _, line := range c.logged() {
						if strings.Contains(line, tt.log) {
							n++
						}
					}
					return n
				}
				time.Sleep(2*absentAgain + time.Second)
				if want := 1 + int(2*absentAgain/tt.every); c.lists(networkFences) != want || told() != 1 {
					t.Errorf("tried %d times in two minutes, want %d; log %q", c.lists(networkFences), want, c.logged())
				}
				tt.trouble(c, false)
				time.Sleep(absentAgain)
				tt.trouble(c, true)
				_ = c.stream(t, networkFences).Close()
				time.Sleep(brokenAgain)
				if told() != 2 {
					t.Errorf("when it came back: log %q", c.logged())
				}
			})
		})
	}
}
