package simulate

import (
	"slices"
	"strings"
	"time"
)

// ordinary tells whether it is one of the verbs of a world without faults: what the parts of
// Kubernetes, and the attacher of the leading process, do by themselves.
func ordinary(verb string) bool {
	switch verb {
	case Serve, Publish, Unpublish, GiveUp, Attach, Confirmed, Unlist, Detach, DetachFail, EndPod, Renew, Sync, Status, Verify, Mount, Unmnt, Register,
		NotReady, Start, CollectGC, Sight, Land, Drop, EndOther, LandDetach:
		return true
	}
	return false
}

// restless is how many events a world without faults may have before it comes to
// rest.
const restless = 6000

// unstarted says why a replica could not start. Once is no fault: the driver's answer
// may have been lost.
func (w *World) unstarted() (text string) {
	for _, name := range w.replicas {
		if p := w.procs[name]; p != nil && p.failed != nil {
			text += "; " + name + " cannot start: " + p.failed.Error()
		}
	}
	return text
}

// latest are the last few events.
func (w *World) latest() string {
	var words []string
	for i := range w.recent {
		if e := w.recent[(w.steps+1+i)%len(w.recent)]; e.Verb != "" {
			words = append(words, e.String())
		}
	}
	return strings.Join(words, ", ")
}

// settle lets everything take its course, one event after another, until done or
// for so long. It tells whether it is done.
func (w *World) settle(done func() bool, within time.Duration) bool {
	end, most := time.Now().Add(within), w.steps+restless
	for idle := time.Second; ; {
		if w.steps > most {
			w.violation("stuck", "nothing comes to rest"+w.unstarted()+", last "+w.latest())
		}
		if w.Violation != "" {
			return false
		}
		if !w.round() {
			if done() {
				return true
			}
			if !time.Now().Before(end) {
				return false
			}
			if w.faults != nil {
				w.Trace = append(w.Trace, Event{Verb: Clock, A: idle.String()})
			}
			w.pass(idle)
			w.settleDown()
			idle = min(idle*2, 16*time.Second)
			continue
		}
		idle = time.Second
	}
}

// round performs every ordinary event that is enabled, once each; false: nothing
// happened but what repeats itself.
func (w *World) round() bool {
	events := w.events[:0]
	w.course(func(e Event) {
		if w.ordinarily(e) {
			events = append(events, e)
		}
	})
	w.events = events
	happened := false
	for _, e := range events {
		if w.Violation != "" {
			return happened
		}
		if !w.isEnabled(e) || !w.ordinarily(e) {
			continue
		}
		if w.meets != nil {
			if met, done := w.meets(e); met {
				happened = happened || done
				continue
			}
		}
		happened = true
		if w.injected(e) {
			continue
		}
		w.tries(e)
		w.quietly(e)
	}
	return happened
}

// quietly performs an event that is no line of the script: it comes again by itself,
// but around faults that were planned by the number of a write (Exhaustive).
func (w *World) quietly(e Event) {
	trace := w.Trace
	w.perform(e)
	if w.faults == nil {
		w.Trace = trace
	}
}

// ordinarily tells whether a world without faults does it now. The leading attacher alone calls,
// again after a while. A kubelet renews its lease by itself as time passes, but one that has just
// booted does so before it is Ready: it is not silent for as long as its machine was off.
func (w *World) ordinarily(e Event) bool {
	switch e.Verb {
	case Publish, Unpublish:
		// Two calls of a volume at once would answer ABORTED to each other for ever:
		// nothing here jitters.
		return e.A == w.leader && !w.apart.absent(w.procs[e.A]) && w.patience[e.callKey()].due() && !slices.ContainsFunc(w.calls, func(c *call) bool { return c.v.name == e.B })
	case Renew:
		s := w.slot(e.A)
		return s.renewedBoot != s.machine.boot()
	case Drop:
		return false
	case Schedule:
		return false
	}
	return true
}

// patience of the attacher with one call: 2 s, then four times as long, 1 min at most:
// a refusal for want of anything new costs as much as one that matters. What a person
// does ends it: a call that waits for that is tried again at once (tier 2 has the real
// wake-ups).
type patience struct {
	tried time.Time
	pause time.Duration
}

func (p *patience) due() bool { return p == nil || time.Since(p.tried) >= p.pause }

func (w *World) tries(e Event) {
	if e.Verb != Publish && e.Verb != Unpublish {
		return
	}
	p := w.patience[e.callKey()]
	if p == nil {
		p = &patience{pause: time.Second / 2}
		if e.Verb == Unpublish {
			p.pause = 700 * time.Millisecond // so that the two do not meet each time
		}
		w.patience[e.callKey()] = p
	}
	p.tried, p.pause = time.Now(), min(4*p.pause, time.Minute)
}

// isEnabled asks only those who could say so.
func (w *World) isEnabled(want Event) (found bool) {
	see := func(e Event) { found = found || e == want }
	switch want.Verb {
	case Serve:
		o := w.find(want.A, want.B)
		return o != nil && o.reachable() && w.firstOfVolume(o)
	case Publish, Unpublish, GiveUp:
		v, s := w.volume(want.B), w.slot(want.C)
		if p := w.procs[want.A]; v != nil && s != nil && p.up() {
			w.attacherEvents(p, v, s, w.vaOf(v, s), see)
		}
	case Attach, Confirmed, Unlist, Detach, DetachFail:
		v, s := w.volume(want.A), w.slot(want.B)
		if v != nil && s != nil {
			va := w.vaOf(v, s)
			w.forgetDetached(v, s, va)
			w.controllerEvents(v, s, va, see)
		}
	case Verify, Mount, Unmnt, Unpod, Outlive:
		if s := w.slot(want.B); s != nil {
			w.kubeletEvents(s, see)
		}
	case Register, Renew, Sync, Rebuild, Status:
		if s := w.slot(want.A); s != nil {
			w.kubeletEvents(s, see)
		}
	default:
		w.course(see)
	}
	return found
}

// calm tells whether every volume is where its pod is, and nothing is under way.
func (w *World) calm() bool {
	if len(w.calls) > 0 || len(w.parked) > 0 {
		return false
	}
	for _, v := range w.volumes {
		if len(v.more) > 0 {
			if !w.calmWith(v) {
				return false
			}
			continue
		}
		s := v.pod.node
		if s == nil || v.pod.terminating || !s.connected() || !v.attached[s.machine.id] || !s.machine.serves(v) {
			return false
		}
		for other := range v.adc {
			if other != s {
				return false
			}
		}
	}
	return true
}
