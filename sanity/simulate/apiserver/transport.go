package apiserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// transport is one client's way to the server.
type transport struct {
	server *Server
	client string
	gate   Gate
}

// RoundTrip implements http.RoundTripper. It runs in the goroutine of the caller.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		closeBody(r)
		return nil, err
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	c, wrong := t.parse(r, body)
	fate := t.gate.Admit(ctx, c.Request)
	switch gaveUp := ctx.Err(); {
	case fate.How == Fail:
		return failure(r, c, fate.Err)
	case gaveUp != nil && fate.How != Lose:
		return nil, gaveUp
	}
	answer, err := t.serve(ctx, r, c, wrong, fate)
	if err == nil && fate.How == Repeat && c.Verb != Watch {
		answer, err = t.serve(ctx, r, c, wrong, fate)
	}
	if err != nil {
		return nil, err
	}
	if fate.How == Lose {
		answer.Body.Close()
		return failure(r, c, fate.Err)
	}
	return t.arrive(ctx, r, c, answer)
}

// arrive lets the gate hold the answer.
func (t *transport) arrive(ctx context.Context, r *http.Request, c *call, answer *http.Response) (*http.Response, error) {
	gate, asks := t.gate.(Answerer)
	if !asks || c.Verb == Watch {
		return answer, nil
	}
	if err := gate.Answer(ctx, c.Request, answer.StatusCode); err != nil {
		return failure(r, c, err)
	}
	return answer, ctx.Err()
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// failure is what a client gets of an error that is not the server's.
func failure(r *http.Request, c *call, err error) (*http.Response, error) {
	if err == nil {
		err = Reset
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		return statusAnswer(r, c, &s), nil
	}
	return nil, err
}

func statusAnswer(r *http.Request, c *call, status *metav1.Status) *http.Response {
	status.Status = metav1.StatusFailure
	answer := bytesAnswer(r, c, int(status.Code), encodeStatus(status, c.proto))
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		answer.Header.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds))) // client-go heeds it
	}
	return answer
}

func bytesAnswer(r *http.Request, c *call, code int, body []byte) *http.Response {
	return respond(r, code, contentType(c.proto, false), io.NopCloser(bytes.NewReader(body)), int64(len(body)))
}

// statusOf is what the API server makes of an error.
func statusOf(err error) *metav1.Status {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	return &s
}

// serve is what happens on the server.
func (t *transport) serve(ctx context.Context, r *http.Request, c *call, wrong error, fate Fate) (*http.Response, error) {
	s := t.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.notCalled {
		page := []byte("404 page not found\n")
		return respond(r, http.StatusNotFound, "text/plain; charset=utf-8", io.NopCloser(bytes.NewReader(page)), int64(len(page))), nil
	}
	if c.Verb == Watch && wrong == nil {
		w, err := s.watchLocked(ctx, c, t.gate, fate)
		if err == nil {
			return w.answer(r), nil
		}
		wrong = err
	}
	body, code, err := []byte(nil), 0, wrong
	if err == nil {
		body, code, err = s.handleLocked(c, fate)
	}
	if u := (*unmodelled)(nil); errors.As(err, &u) {
		s.complainLocked("%s: %s", c.Request, u.what)
		return statusAnswer(r, c, &metav1.Status{Code: http.StatusNotImplemented, Reason: "NotModelled", Message: "the simulated API server: " + u.Error()}), nil
	}
	if err != nil {
		return statusAnswer(r, c, statusOf(err)), nil
	}
	return bytesAnswer(r, c, code, body), nil
}

// handleLocked serves everything but a watch.
func (s *Server) handleLocked(c *call, fate Fate) (body []byte, code int, err error) {
	var out *stored
	code = http.StatusOK
	if c.Verb.Writes() && fate.At != 0 {
		return nil, 0, unmodelledf("a write to version %d", fate.At)
	}
	switch c.Verb {
	case Get:
		out, err = s.getLocked(c, fate)
	case List:
		items, meta, err := s.listLocked(c, fate)
		if err != nil {
			return nil, 0, err
		}
		return c.encodeList(items, meta), code, nil
	case Create:
		code = http.StatusCreated
		out, err = s.createLocked(c.kind, clone(c.sent))
	case Update:
		out, code, err = s.putRequestLocked(c)
	case Patch:
		out, err = s.patchLocked(c)
	case Delete:
		gone := false
		if out, gone, err = s.deleteLocked(c.kind, c.Namespace, c.Name, c.deletion.DeepCopy()); err == nil {
			return c.deleted(out, gone), code, nil
		}
	default:
		err = unmodelledf("%s", c.Verb)
	}
	if err != nil {
		return nil, 0, err
	}
	return c.encode(out), code, nil
}
