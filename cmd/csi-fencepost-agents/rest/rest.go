// Package rest asks APIs that answer with JSON, or with what the Client decodes.
//
// An answer counts only with a status of success. Only what the caller decodes is looked at, so
// a property that decides nothing cannot keep a machine from being read.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

// maxAnswer bounds an answer, whoever gives the HTTP client.
const maxAnswer = trust.MaxAnswer

// Client of one API.
type Client struct {
	HTTP *http.Client
	// Base is https://HOST:PORT, to which paths are added.
	Base string
	// Who says in each request who asks: the last that is done to it.
	Who Who
	// Decode, if it is set, reads answers that are no JSON.
	Decode func(text []byte, out any) error
}

// Who writes into a request, whose body is that text, who asks.
type Who func(ctx context.Context, r *http.Request, body []byte) error

// As asks with the same header each time.
func As(header http.Header) Who {
	return func(_ context.Context, r *http.Request, _ []byte) error {
		maps.Copy(r.Header, header)
		return nil
	}
}

// Open is the API at the address of a parameter (trust.Endpoint), where it shows the certificate
// that the parameters ca_file and fingerprint have it show (trust.Client). Who asks is still to be set.
func Open(v contract.Values, parameter string) (*Client, error) {
	base, err := trust.Endpoint(v, parameter)
	if err != nil {
		return nil, err
	}
	client, err := trust.Client(v)
	return &Client{HTTP: client, Base: base}, err
}

// StatusError is an answer without success.
type StatusError struct {
	Code int
	// Says is the answer, shortened to what a message bears.
	Says string
	// Text is the answer.
	Text []byte
}

func (e *StatusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("status %d %s %s", e.Code, http.StatusText(e.Code), e.Says))
}

// Get decodes the answer to a GET of path into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, "", nil, out)
}

// PostForm sends a form, and decodes the answer into out, which may be nil.
func (c *Client) PostForm(ctx context.Context, path string, form url.Values, out any) error {
	return c.do(ctx, http.MethodPost, path, "application/x-www-form-urlencoded", []byte(form.Encode()), out)
}

// PostJSON sends in. The answer is not read beyond its status.
func (c *Client) PostJSON(ctx context.Context, path string, in any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, path, "application/json", text, nil)
}

func (c *Client) do(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	// The path may be the API's own word: it must not lead to another host.
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%q is no path on %s", path, c.Base)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if c.Decode == nil {
		req.Header.Set("Accept", "application/json")
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.Who != nil {
		if err := c.Who(ctx, req, body); err != nil {
			return err
		}
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case res.StatusCode < 200 || res.StatusCode > 299:
		return &StatusError{res.StatusCode, contract.Shortened(string(text), err == nil), text}
	case err != nil:
		return fmt.Errorf("%s %s: the answer ends: %w", method, path, err)
	case len(text) > maxAnswer:
		return fmt.Errorf("%s %s: the answer is longer than %d bytes", method, path, maxAnswer)
	case out == nil:
		return nil
	}
	decode := c.Decode
	if decode == nil {
		decode = json.Unmarshal
	}
	if err := decode(text, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not what it has to be: %w", method, path, err)
	}
	return nil
}

// Refused tells whether the API answered with that status.
func Refused(err error, code int) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == code
}
