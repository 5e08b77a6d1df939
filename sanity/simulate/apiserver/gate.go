package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// A Gate decides what becomes of each request, and of each event of a watch. It
// is called in the goroutine of the client that waits, with no lock held, before
// anything has happened, and may block for as long as it likes. It has to
// return once ctx ends: then the client has given up.
type Gate interface {
	// Admit is asked once for each request, a watch's too.
	Admit(ctx context.Context, r Request) Fate
	// Deliver is asked for each event of a watch that comes after those with
	// which it begins. While it blocks, the watch lags behind.
	Deliver(ctx context.Context, e Event) Passage
}

// An Answerer is a Gate that also decides when an answer arrives: Answer is
// called between the effect of a request and its answer, and may block. An error
// stands in the place of the answer, as Fate.Err does. code is the HTTP status.
// A watch has no answer.
type Answerer interface {
	Gate
	Answer(ctx context.Context, r Request, code int) error
}

// Open is the gate that serves everything at once.
var Open Gate = open{}

type open struct{}

func (open) Admit(context.Context, Request) Fate    { return Fate{} }
func (open) Deliver(context.Context, Event) Passage { return Passage{} }

// Verb is what a request does, in the words of Kubernetes' authorization.
type Verb string

// All verbs that are modelled.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Watch  Verb = "watch"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Writes tells whether the verb changes something.
func (v Verb) Writes() bool { return v == Create || v == Update || v == Patch || v == Delete }

// A Request is what a client asks.
type Request struct {
	// Client is the name that its Transport was made with.
	Client string
	// Label is the context's (WithLabel): it tells requests of one client apart
	// that are the same otherwise.
	Label string

	Verb        Verb
	Resource    string // plural, lower case: "leases"
	Subresource string // "status", or empty
	Namespace   string
	Name        string // of a Create: as in the body

	// Digest stands for the body and for what a list or watch selects: 8
	// hexadecimal digits that are equal where those are. Time limits of a watch,
	// which a client draws at random, are left out.
	Digest string
	// Stale tells that the client accepts a state that is not the newest, but none before the
	// version Floor (Fate.At).
	Stale bool
	Floor uint64
}

// String is the same for the same request, and orders requests by client.
func (r Request) String() string {
	var b strings.Builder
	b.WriteString(r.Client)
	b.WriteByte(' ')
	b.WriteString(string(r.Verb))
	b.WriteByte(' ')
	b.WriteString(r.Resource)
	if r.Subresource != "" {
		b.WriteString("/" + r.Subresource)
	}
	if r.Namespace != "" || r.Name != "" {
		b.WriteByte(' ')
		if r.Namespace != "" {
			b.WriteString(r.Namespace + "/")
		}
		b.WriteString(r.Name)
	}
	if r.Digest != "" {
		b.WriteString(" #" + r.Digest)
	}
	if r.Label != "" {
		b.WriteString(" [" + r.Label + "]")
	}
	return b.String()
}

// An Event is what a watch shows next.
type Event struct {
	// Watch is the request that began the watch.
	Watch Request
	// Type is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
	Type      string
	Namespace string
	Name      string
	// Version is the object's resourceVersion, a DELETED one's that of its deletion.
	Version uint64
}

// String is the same for the same event.
func (e Event) String() string {
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	return fmt.Sprintf("%s: %s %s @%d", e.Watch, e.Type, name, e.Version)
}

// How a request ends.
type How int

const (
	// Serve does as the API server does. A client that has given up before is not served.
	Serve How = iota
	// Fail has nothing happen, and the client gets Fate.Err.
	Fail
	// Lose has it served, also when the client has given up, and the client gets Fate.Err instead of
	// the answer.
	Lose
	// Repeat has it served twice, as when something between client and server sends it again, and
	// the client gets the second answer. It is not for a watch.
	Repeat
)

// Fate is what becomes of a request. The zero Fate serves it.
type Fate struct {
	How How
	// Err is what the client gets from Fail and Lose. One that carries a
	// metav1.Status (all of package apierrors do) is that HTTP answer, any other
	// is an error of the connection; nil is Reset.
	Err error
	// At, if not 0, answers a read from the state right after that version,
	// as an API server does whose watch cache is behind. Only where the request is
	// Stale, and not before its Floor: anything else is complained of.
	At uint64
}

// Passage is what becomes of an event of a watch. The zero Passage delivers it.
type Passage struct {
	// Cut ends the watch in place of the event, which is not shown. A reflector
	// watches again from the last event that it has seen.
	Cut bool
	// Err is how the stream ends; nil: properly (EOF).
	Err error
}

// What a client's connection may answer.
var (
	// Refused is what a client gets where nothing listens.
	Refused error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	// Reset is what a client gets whose connection broke. client-go asks again by itself when it
	// reads.
	Reset error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	// Timeout is what a client gets whose answer did not come in time.
	Timeout error = timeout{}
	// ErrBroken is what a client gets whose answer ended in the middle.
	ErrBroken = errors.New("http2: client connection lost")
)

type timeout struct{}

func (timeout) Error() string   { return "http2: timeout awaiting response headers" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

type labelKey struct{}

// WithLabel labels the requests that are made with the context (Request.Label).
func WithLabel(ctx context.Context, label string) context.Context {
	return context.WithValue(ctx, labelKey{}, label)
}

func labelOf(ctx context.Context) string {
	label, _ := ctx.Value(labelKey{}).(string)
	return label
}
