package agenttest

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// Fuzz answers each question about plug with the same status code and text, without a network in
// between, whose timing would be taken for something new. A machine is off only where the text has
// a word that means it. Seeds are answers of the platform.
func Fuzz(f *testing.F, platform func(*http.Client) contract.Platform, plug, off string, seeds ...string) {
	for _, seed := range seeds {
		f.Add(http.StatusOK, seed)
		f.Add(http.StatusBadRequest, seed)
	}
	word := regexp.MustCompile("(?i)" + off)
	f.Fuzz(func(t *testing.T, code int, text string) {
		if code < 200 || code > 599 || code == http.StatusTooManyRequests { // the SDKs wait then, and ask again
			return
		}
		p := platform(&http.Client{Transport: says{code, text}})
		m, err := p.Find(t.Context(), plug)
		switch {
		case (m == nil) == (err == nil):
			t.Errorf("machine %v with error %v", m, err)
		case err == nil && m.State == contract.Off && (code > 299 || !word.MatchString(text)):
			t.Errorf("status %d with %q is off", code, text)
		}
	})
}

type says struct {
	code int
	text string
}

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.code, Status: http.StatusText(s.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(s.text)), ContentLength: int64(len(s.text))}, nil
}
