package run

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
)

// Whatever the sidecar is told: it is read, or refused as a wrong use.
func FuzzArguments(f *testing.F) {
	f.Add("--csi-address=/a\n--listen=/b\n--metrics-path=/{x\n--leader-election")
	f.Add("--csi-address=/a\n--listen\n/b\n--timeout=1s")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-v") || strings.Contains(a, "log") }) {
			return // flags that change this process
		}
		var usage cli.UsageError
		var help *cli.Help
		flags, err := parseRunFlags(args)
		if err != nil && !errors.As(err, &usage) && !errors.As(err, &help) && !errors.Is(err, errVersion) {
			t.Errorf("%q: %v is no error of use", args, err)
		}
		if err == nil {
			flags.mux(t) // no path that was taken panics
		}
	})
}

// Whatever request comes, by somebody else or by one who was let in before: nothing but the probes is
// served unless the API lets the bearer of its token do that there; and without a token nobody is asked.
func FuzzAuthorization(f *testing.F) {
	for _, text := range []string{
		"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token-of-prometheus\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: bearer made-up\r\nAuthorization: Bearer token-of-prometheus\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /statusz HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token-of-prometheus\r\n\r\n",
		"POST /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token-of-prometheus\r\nContent-Length: 1\r\n\r\nx",
		"GET /healthz/../metrics HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET //healthz?x=/metrics HTTP/1.0\r\n\r\n",
		"GET http://a/%6detrics HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer token-of-tenant\r\n\r\n",
		"CONNECT /statusz.json HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token-of-prometheus\r\n\r\n",
		"HEAD /healthz HTTP/1.1\r\nHost: a\r\nAuthorization: Basic token-of-prometheus\r\n\r\n",
		"GET /healthz/leader-election HTTP/1.1\r\nHost: a\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		api := &reviewer{}
		handler := served(t, api)
		before := httptest.NewRequest(http.MethodGet, "/metrics", nil) // the answer to it is remembered
		before.Header.Set("Authorization", "Bearer token-of-prometheus")
		handler.ServeHTTP(httptest.NewRecorder(), before)
		asked := api.asked.Load()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(t.Context()))
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		lets := strings.EqualFold(scheme, "Bearer") && token == "token-of-prometheus" && strings.EqualFold(r.Method, "GET") && r.URL.Path == "/metrics"
		switch body := w.Body.String(); {
		case strings.Contains(body, "secret") && !lets:
			t.Errorf("%q is served with %d %q", text, w.Code, body)
		case strings.Contains(body, "well") && r.URL.Path != healthPath && r.URL.Path != ReadyPath:
			t.Errorf("%q is served as a probe", text)
		case lets && w.Code != http.StatusOK:
			t.Errorf("%q is let, and answered with %d %q", text, w.Code, body)
		case w.Code >= 200 && w.Code < 300 && !strings.Contains(body, "secret") && !strings.Contains(body, "well"):
			t.Errorf("%q is answered with %d %q", text, w.Code, body)
		case len(token) > 3 && strings.Contains(fmt.Sprint(body, w.Header()), token) && !strings.Contains("a token of the Kubernetes API is needed, as the header Authorization: Bearer TOKEN", token) && !strings.Contains(r.Method+r.URL.Path+r.URL.RawQuery, token):
			t.Errorf("%q: the answer shows the token: %q", text, body)
		}
		if (token == "" || !strings.EqualFold(scheme, "Bearer")) && api.asked.Load() != asked {
			t.Errorf("%q has the API asked", text)
		}
	})
}
