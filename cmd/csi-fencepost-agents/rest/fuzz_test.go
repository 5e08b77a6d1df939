package rest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/rest"
)

// transport answers by a function.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Whatever an API answers, and whatever path it has given before: nobody is asked but its host, by
// https, under its base; only JSON with a status of success is an answer; and an error is short.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"ID": "1"}`, "/systems/1?a=b")
	f.Add(404, strings.Repeat("no ", 200), "//other.example.com/")
	f.Add(200, `{"ID": 1}`, "@other.example.com/")
	f.Add(201, `{"ID": "1"} {}`, "/%2e%2e/x")
	f.Add(301, `{"ID": "1"}`, "/x#y")
	f.Add(500, "", "https://other.example.com/")
	f.Add(204, "null", "/\\@other.example.com")
	f.Fuzz(func(t *testing.T, code int, text, path string) {
		if code < 200 || code > 999 {
			return // not an answer to net/http
		}
		const base = "https://api.example.com:8443/base"
		c := &rest.Client{Base: base, HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Scheme != "https" || r.URL.Host != "api.example.com:8443" || r.URL.User != nil || !strings.HasPrefix(r.URL.Path, "/base/") {
				t.Errorf("%q leads to %s", path, r.URL)
			}
			return &http.Response{StatusCode: code, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
		})}}
		var got, want struct{ ID string }
		err := c.Get(t.Context(), path, &got)
		is := code >= 200 && code <= 299 && json.Unmarshal([]byte(text), &want) == nil
		if err == nil && (!is || got != want) {
			t.Errorf("status %d with %q is %+v", code, text, got)
		}
		if err != nil && len(err.Error()) > 2000+4*len(path) {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		for _, one := range []int{401, 404} {
			if rest.Refused(err, one) && code != one {
				t.Errorf("%d is taken for %d", code, one)
			}
		}
	})
}

// An API that goes on and on is no answer, and takes no more memory than the longest one.
func TestAnAnswerWithoutAnEndIsAnError(t *testing.T) {
	for _, code := range []int{200, 500} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			for piece := []byte(strings.Repeat(" ", 1<<20)); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := (&rest.Client{HTTP: server.Client(), Base: server.URL}).Get(t.Context(), "/x", &struct{}{})
		runtime.ReadMemStats(&after)
		server.Close()
		want := map[int]string{200: "GET /x: the answer is longer than 67108864 bytes", 500: "status 500 Internal Server Error"}[code]
		if err == nil || err.Error() != want {
			t.Errorf("%d: %v", code, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*64<<20 {
			t.Errorf("%d: %d MiB were needed", code, grown>>20)
		}
	}
}
