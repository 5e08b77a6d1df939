package writer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// every is the time between two writes.
	every = 10 * time.Millisecond
	// tellEvery bounds how often progress is told.
	tellEvery = 100 * time.Millisecond
	// pendingAfter is after how long a write without an answer is told.
	pendingAfter = time.Second
)

// Start says what is to be written to.
type Start struct {
	VolumeID       string            `json:"volumeId"`
	NodeID         string            `json:"nodeId"`
	PublishContext map[string]string `json:"publishContext,omitempty"`
}

// A Target is an open volume.
type Target interface {
	// Write does write n. It answers when the storage has, with its error.
	Write(n uint64) error
	// Close lets go of the volume.
	Close() error
}

// Open opens the volume for writing and says how: direct or sync.
type Open func(Start) (target Target, how string, err error)

// Serve speaks the protocol with one suite until in ends or ctx does. It lets go
// of the volume then. A write that never returns keeps it from returning.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open Open) error {
	s := &session{out: out, open: open}
	defer s.stop()
	lines := make(chan string)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var readErr error
	go func() {
		defer close(lines)
		for r := bufio.NewScanner(in); ; {
			if !r.Scan() {
				readErr = r.Err()
				return
			}
			select {
			case lines <- r.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return readErr
			}
			s.handle(line)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A session is one suite, and the volume that it has started.
type session struct {
	open Open

	mu  sync.Mutex // of out
	out io.Writer

	target Target
	quit   chan struct{}
	done   sync.WaitGroup
	begun  atomic.Uint64 // number of the last write that began
	ended  atomic.Uint64 // number of the last write that has an answer
}

func (s *session) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...) // a suite that is gone is noticed by its input's end
}

func (s *session) handle(line string) {
	switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
	case "start":
		s.start(rest)
	case "mark":
		s.tell("marked %d", s.begun.Load())
	case "stop":
		s.stop()
		s.tell("stopped")
	default:
		s.tell("error unknown word %q: start, mark or stop", word)
	}
}

func (s *session) start(text string) {
	if s.target != nil {
		s.tell("error it is writing already: stop comes before the next start")
		return
	}
	var what Start
	if err := json.Unmarshal([]byte(text), &what); err != nil {
		s.tell("error start: %s", oneLine(err))
		return
	}
	target, how, err := s.open(what)
	if err != nil {
		s.tell("error %s", oneLine(err))
		return
	}
	s.target, s.quit = target, make(chan struct{})
	s.tell("started %s", how)
	s.done.Go(s.write)
	s.done.Go(s.tellPending)
}

func (s *session) stop() {
	if s.target == nil {
		return
	}
	close(s.quit)
	s.done.Wait()
	s.target.Close()
	s.target = nil
}

// write writes until the session stops.
func (s *session) write() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var told time.Time
	var good, bad uint64 // not told yet
	var why error
	last := error(nil)
	for {
		n := s.begun.Add(1)
		err := s.target.Write(n)
		s.ended.Store(n)
		changed := (last != nil) != (err != nil)
		if last = err; err != nil {
			bad, why = n, err
		} else {
			good = n
		}
		// A change is told at once, and what came before it is not left out: one
		// write that succeeded after the mark is the answer.
		if changed || time.Since(told) >= tellEvery {
			if good != 0 {
				s.tell("wrote %d", good)
			}
			if bad != 0 {
				s.tell("failed %d %s", bad, oneLine(why))
			}
			told, good, bad = time.Now(), 0, 0
		}
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
	}
}

// tellPending tells of a write that hangs.
func (s *session) tellPending() {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var waits uint64
	var since time.Time
	for {
		select {
		case <-s.quit:
			return
		case now := <-tick.C:
			switch n := s.begun.Load(); {
			case n == s.ended.Load():
				waits = 0
			case n != waits:
				waits, since = n, now
			case now.Sub(since) >= pendingAfter:
				s.tell("pending %d", n)
			}
		}
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
