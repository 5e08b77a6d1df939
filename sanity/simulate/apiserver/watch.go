package apiserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"sort"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchStream is a watch that a client keeps open. It ends when the client closes
// it, its gate cuts it, Cut is called, or a compaction has overtaken it; never by
// itself: the timeoutSeconds of a watch, which clients draw at random, are not kept.
type WatchStream struct {
	server *Server
	call   *call
	gate   Gate

	ctx    context.Context
	cancel context.CancelCauseFunc
	woken  chan struct{} // full: there may be something new

	// What follows belongs to the reader, next to the server's lock.
	next     int    // of the kind's changes, those that are forgotten too
	seen     uint64 // the version up to which the client knows all
	bookmark bool   // the next event is a bookmark
	buffer   []byte
	at       int // of buffer
}

var errClosed = errors.New("the watch is closed")

// Request is what began the watch.
func (w *WatchStream) Request() Request { return w.call.Request }

// Seen is the version up to which the client was shown everything.
func (w *WatchStream) Seen() uint64 {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return w.seen
}

// Cut ends the watch; err is how the stream ends, nil: properly (EOF).
func (w *WatchStream) Cut(err error) {
	if err == nil {
		err = io.EOF
	}
	w.cancel(err)
}

// Watches are those that are open, in the order of their requests' descriptions.
func (s *Server) Watches() []*WatchStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.watches)
	sort.SliceStable(out, func(i, j int) bool { return out[i].call.Request.String() < out[j].call.Request.String() })
	return out
}

// Bookmark has each watch that asked for bookmarks told how far it is, as the API
// server does about once a minute. Its gate is asked first.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.call.options.bookmarks {
			w.bookmark = true
			w.nudge()
		}
	}
}

func (w *WatchStream) nudge() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// watchLocked begins a watch with the events that it begins with.
func (s *Server) watchLocked(ctx context.Context, c *call, gate Gate, fate Fate) (*WatchStream, error) {
	o := &c.options
	w := &WatchStream{server: s, call: c, gate: gate, woken: make(chan struct{}, 1)}
	state := o.newest || o.version == 0 || o.initial != nil && *o.initial
	if state {
		at, err := s.readVersionLocked(c, fate)
		if err != nil {
			return nil, err
		}
		w.seen = at
		for _, item := range s.selectLocked(c, at) {
			w.append(string(watch.Added), c.encode(item))
		}
		if o.initial != nil && *o.initial && o.bookmarks {
			w.appendBookmark(at, true)
		}
	} else {
		w.seen = o.version
	}
	t := &s.tables[c.kind.id]
	w.next = t.forgotten + sort.Search(len(t.log), func(i int) bool { return t.log[i].version() > w.seen })
	if w.seen < s.oldest {
		w.append(string(watch.Error), encodeStatus(statusOf(expired(w.seen, s.oldest)), c.proto))
		w.next = -1
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	s.watches = append(s.watches, w)
	return w, nil
}

// Read implements io.Reader: it waits for the next event, and then for the gate.
func (w *WatchStream) Read(p []byte) (int, error) {
	for w.at == len(w.buffer) {
		if err := w.fill(); err != nil {
			w.end(err)
			return 0, err
		}
	}
	n := copy(p, w.buffer[w.at:])
	w.at += n
	return n, nil
}

// Close implements io.Closer.
func (w *WatchStream) Close() error {
	w.end(errClosed)
	return nil
}

func (w *WatchStream) end(err error) {
	w.cancel(err)
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.watches = slices.DeleteFunc(w.server.watches, func(other *WatchStream) bool { return other == w })
}

// fill waits for one event and puts it into the buffer.
func (w *WatchStream) fill() error {
	if w.next < 0 {
		return io.EOF // after an error, nothing follows
	}
	for {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		event, there := w.peek()
		if !there {
			select {
			case <-w.woken:
			case <-w.ctx.Done():
			}
			continue
		}
		passage := w.gate.Deliver(w.ctx, event)
		switch {
		case w.ctx.Err() != nil:
			return context.Cause(w.ctx)
		case passage.Cut && passage.Err == nil:
			return io.EOF
		case passage.Cut:
			return passage.Err
		}
		w.take()
		return nil
	}
}

// peek tells what the watch shows next.
func (w *WatchStream) peek() (Event, bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	e := Event{Watch: w.call.Request}
	if w.lostLocked() {
		e.Type, e.Version = string(watch.Error), w.seen
		return e, true
	}
	c, kind, shown := w.upcomingLocked()
	switch {
	case c != nil:
		e.Type, e.Namespace, e.Name, e.Version = string(kind), shown.object.GetNamespace(), shown.object.GetName(), c.version()
		return e, true
	case w.bookmark:
		e.Type, e.Version = string(watch.Bookmark), s.version
		return e, true
	}
	return e, false
}

// take puts what peek showed into the buffer. Nothing that happened meanwhile
// comes before it, but a compaction.
func (w *WatchStream) take() {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	w.buffer, w.at = w.buffer[:0], 0
	if w.lostLocked() {
		w.append(string(watch.Error), encodeStatus(statusOf(expired(w.seen, s.oldest)), w.call.proto))
		w.next = -1
		return
	}
	c, kind, shown := w.upcomingLocked()
	switch {
	case c != nil:
		w.append(string(kind), w.call.encode(shown))
		w.seen = c.version()
		w.next++
	case w.bookmark:
		w.bookmark = false
		w.seen = s.version
		w.appendBookmark(s.version, false)
	}
}

// lostLocked tells whether a compaction took away what the watch has not seen.
func (w *WatchStream) lostLocked() bool {
	return w.next < w.server.tables[w.call.kind.id].forgotten
}

// upcomingLocked is the first change that the watch shows, and as what: to a
// watch that selects, an object that is selected no more is deleted.
func (w *WatchStream) upcomingLocked() (*change, watch.EventType, *stored) {
	t := &w.server.tables[w.call.kind.id]
	for ; w.next-t.forgotten < len(t.log); w.next++ {
		c := &t.log[w.next-t.forgotten]
		before := w.call.selects(c.before)
		after := c.kind != watch.Deleted && w.call.selects(c.now)
		switch {
		case after && before:
			return c, watch.Modified, c.now
		case after:
			return c, watch.Added, c.now
		case before && c.kind == watch.Deleted:
			return c, watch.Deleted, c.now
		case before:
			return c, watch.Deleted, c.before.under(c.version())
		}
	}
	return nil, "", nil
}

// under is the same object with another version.
func (o *stored) under(version uint64) *stored {
	object := clone(o.object)
	object.SetResourceVersion(strconv.FormatUint(version, 10))
	return &stored{object: object, key: o.key, version: version, proto: marshal(object)}
}

// appendBookmark says how far the watch is, and that its beginning is over.
func (w *WatchStream) appendBookmark(version uint64, over bool) {
	o := w.call.kind.empty()
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	if over {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	w.append(string(watch.Bookmark), w.call.encode(&stored{object: o, proto: marshal(o)}))
}

// append frames an event: in protobuf, a metav1.WatchEvent behind its length.
func (w *WatchStream) append(kind string, object []byte) {
	if !w.call.proto {
		w.buffer = append(w.buffer, `{"type":"`...)
		w.buffer = append(w.buffer, kind...)
		w.buffer = append(w.buffer, `","object":`...)
		w.buffer = append(w.buffer, object...)
		w.buffer = append(w.buffer, "}\n"...)
		return
	}
	extension := appendBytes(make([]byte, 0, len(object)+8), 1, object)
	start := len(w.buffer)
	w.buffer = append(w.buffer, 0, 0, 0, 0)
	w.buffer = appendBytes(w.buffer, 1, kind)
	w.buffer = appendBytes(w.buffer, 2, extension)
	binary.BigEndian.PutUint32(w.buffer[start:], uint32(len(w.buffer)-start-4))
}

var _ io.ReadCloser = (*WatchStream)(nil)

// answer is the stream as an HTTP answer.
func (w *WatchStream) answer(r *http.Request) *http.Response {
	return respond(r, http.StatusOK, contentType(w.call.proto, true), w, -1)
}
