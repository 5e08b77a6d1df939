package trust

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// MaxAnswer bounds an answer: the list of a cluster of many thousand machines fits.
const MaxAnswer = 64 << 20

// Bounded gives no more of an answer than MaxAnswer: the rest is an error, also for an SDK that reads as
// much as there is. A refusal that breaks off says so at its end: some
// SDKs show what came of it, and nothing else. By what each request says who asks, no error shows.
func Bounded(by http.RoundTripper) http.RoundTripper { return bounded{by} }

type bounded struct{ by http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	hide(r)
	res, err := b.by.RoundTrip(r)
	if err == nil {
		Bound(res, r.URL.Host)
	}
	return res, err
}

// Bound makes an answer of that host a bounded one.
func Bound(res *http.Response, of string) {
	if res.Body != nil {
		res.Body = &body{ReadCloser: res.Body, left: MaxAnswer, of: of, marked: res.StatusCode < 300}
	}
}

type body struct {
	io.ReadCloser
	left   int64
	of     string
	marked bool
	failed error
}

func (b *body) Read(p []byte) (n int, err error) {
	if b.failed != nil || len(p) == 0 {
		return 0, b.failed
	}
	// One byte more than there may be tells that there is more.
	n, err = b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		n, err = n-1, fmt.Errorf("the answer of %s is longer than %d bytes, and is read no further: see whether it is the platform's API that answers there", b.of, MaxAnswer)
	}
	if b.failed = err; err == nil || err == io.EOF || b.marked {
		return n, err
	}
	b.ReadCloser = io.NopCloser(io.MultiReader(strings.NewReader(brokenOff), failing{err}))
	b.left, b.marked, b.failed = int64(len(brokenOff)), true, nil
	return n, nil
}

// brokenOff stands at the end of a text that goes on (contract.Shortened).
const brokenOff = "…"

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// ForTokens is a client for what an SDK fetches credentials by: of the system's authorities, through the
// environment's proxy. It follows no redirection, for what it sends is a secret. No error shows that, nor
// a token of an answer, whatever else is wrong with it: of the run that ctx is of.
func ForTokens(ctx context.Context) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext // a cloud's metadata are near, or not there
	return &http.Client{Transport: tokens{ctx, Bounded(t)}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
