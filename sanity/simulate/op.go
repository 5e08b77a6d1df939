package simulate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// side is where a parked call goes.
type side int

const (
	toAPI side = iota
	toDriver
	toAgent
	toKubelet
	toCaller // the answer to the attacher
)

// op is one call that waits for the scheduler.
type op struct {
	key    string
	from   *Process
	to     side
	write  bool // it changes something
	effect func() (any, error)
	answer chan reply
	// orphan tells that nobody waits for the answer any more; it may take effect all the same.
	orphan bool
	volume string // of a driver call: these are served in the order of arrival
	since  time.Time
	takes  time.Duration // it is not answered before that
	many   bool          // a publish for many writers
	reads  reads         // of the call that it is part of
}

type reply struct {
	value any
	err   error
}

var (
	errDead    = errors.New("this process has ended")
	errRefused = errors.New("connection refused")
	errLost    = errors.New("unexpected EOF") // the answer got lost
)

// park waits for the scheduler's word about a call. A caller that gives up
// leaves what it asked for on its way.
func (p *Process) park(ctx context.Context, to side, key string, write bool, effect func() (any, error)) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := &op{key: key, from: p, to: to, write: write, effect: effect, answer: make(chan reply, 1), since: time.Now()}
	if o.reads, _ = ctx.Value(readsKey{}).(reads); o.reads == nil {
		o.reads = p.reads
	}
	o.many, _ = ctx.Value(manyKey{}).(bool)
	o.takes, _ = ctx.Value(takesKey{}).(time.Duration)
	if to == toDriver {
		o.volume = volumeOfKey(key)
	}
	w := p.w
	w.mu.Lock()
	if p.dead || w.over {
		w.mu.Unlock()
		return nil, errDead
	}
	w.parked = append(w.parked, o)
	w.mu.Unlock()
	select {
	case r := <-o.answer:
		return r.value, r.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case r := <-o.answer:
		return r.value, r.err
	default:
	}
	if !write || to == toAgent || to == toCaller {
		w.remove(o) // an agent leaves nothing behind (package agent)
	}
	o.orphan = true
	return nil, ctx.Err()
}

// volumeOfKey is the volume of driver:publish/VOLUME/NODE.
func volumeOfKey(key string) string {
	parts := strings.Split(key, "/")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

func (w *World) remove(o *op) {
	if i := slices.Index(w.parked, o); i >= 0 {
		w.parked = slices.Delete(w.parked, i, i+1)
	}
}

// find the parked call of a process with that key, the oldest one; nil: none.
func (w *World) find(process, key string) *op {
	for _, o := range w.parked {
		if o.from.name == process && o.key == key {
			return o
		}
	}
	return nil
}

// reachable tells whether nothing is cut between the process and where the call goes.
func (o *op) reachable() bool {
	switch {
	case time.Since(o.since) < o.takes:
		return false
	case o.orphan:
		return true // it is on its way already
	case o.to == toAPI:
		return !o.from.noAPI
	case o.to == toDriver:
		return !o.from.noDriver
	case o.to == toAgent:
		return !o.from.noAgent
	}
	return true
}

// firstOfVolume tells whether it is its turn: a driver does one thing with a volume at a time, in
// the order in which it was asked.
func (w *World) firstOfVolume(o *op) bool {
	if o.to != toDriver || o.volume == "" {
		return true
	}
	for _, other := range w.parked {
		if other.to == toDriver && other.volume == o.volume {
			return other == o
		}
	}
	return true
}

// serve lets the call take effect, and answers.
func (w *World) serve(o *op) {
	w.remove(o)
	w.serving, w.server = o.reads, o.from
	if !o.write {
		o.reads[o.key] = w.steps
	}
	if node, ok := strings.CutPrefix(o.key, "get:node/"); ok {
		w.noteRead(w.slot(node), o.reads)
	}
	value, err := o.effect()
	if !o.orphan {
		o.answer <- reply{value, err}
	}
}

// fail answers without effect.
func (w *World) fail(o *op, err error) {
	w.remove(o)
	if !o.orphan {
		o.answer <- reply{nil, err}
	}
}

// lose lets it take effect and loses the answer.
func (w *World) lose(o *op) {
	w.remove(o)
	w.serving, w.server = o.reads, o.from
	_, _ = o.effect()
	if !o.orphan {
		o.answer <- reply{nil, errLost}
	}
}
