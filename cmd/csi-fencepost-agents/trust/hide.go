package trust

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// hide has no error show by what a request says who asks: whoever refuses it may quote it.
func hide(r *http.Request) {
	for _, name := range []string{"Authorization", "X-Auth-Token", "X-Amz-Security-Token"} {
		value := r.Header.Get(name)
		contract.Hide(r.Context(), value, value[strings.LastIndex(value, " ")+1:])
	}
	for _, c := range r.Cookies() {
		contract.Hide(r.Context(), c.Value)
	}
}

// tokens are asked for by what is a secret, in a form, and answered with secrets. Some libraries show all
// of an answer that they cannot read.
type tokens struct {
	run context.Context // some libraries ask with none
	by  http.RoundTripper
}

var isToken = regexp.MustCompile(`"[a-z_]*token"\s*:\s*"([^"]+)`)

func (t tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		form, _ := url.ParseQuery(string(text))
		contract.Hide(t.run, form.Get("assertion"), form.Get("subject_token"))
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(text))
	}
	res, err := t.by.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(res.Body)
	for _, found := range isToken.FindAllSubmatch(text, -1) {
		contract.Hide(t.run, string(found[1]))
	}
	read := io.Reader(bytes.NewReader(text))
	if err != nil {
		read = io.MultiReader(read, failing{err})
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{read, res.Body}
	return res, nil
}
