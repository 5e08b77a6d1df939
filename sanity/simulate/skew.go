package simulate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// The bubble's clock is the truth, and what timers run by. What is stamped is
// stamped with the wall clock of who stamps it: a node's, the API server's, or the
// controllers'. These are ahead of the truth, or behind it, by a skew that SetClock
// changes.
const (
	serverClock     = "api-server"
	controllerClock = "controllers"
)

// jumps are those that a clock makes, and the skews that it may have from the start:
// below the resolution of a stamp, seconds, a few minutes, more than an hour. None is
// a sum of what Clock lets pass: that a clock is set back by exactly as long as it
// takes until a kubelet's Ready changes again is a coincidence that is not looked for.
var jumps = [...]string{"700ms", "-700ms", "3s", "-3s", "213.3s", "-213.3s", "1h1m7.3s", "-1h1m7.3s"}

// now is what the machine's clock says.
func (m *machine) now() time.Time { return time.Now().Add(m.skew) }

// serverNow is what the API server's clock says.
func (w *World) serverNow() time.Time { return time.Now().Add(w.serverSkew) }

// stamp is a time as Kubernetes writes it.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// skewOf is the clock's of that name; nil: there is none, or it stands still.
func (w *World) skewOf(clock string) *time.Duration {
	switch clock {
	case serverClock:
		return &w.serverSkew
	case controllerClock:
		return &w.controllerSkew
	}
	if s := w.slot(clock); s != nil && s.machine.power {
		return &s.machine.skew
	}
	return nil
}

// jumpEvents emits that every clock may be set.
func (w *World) jumpEvents(emit func(Event)) {
	at := func(clock string) {
		for _, by := range jumps {
			emit(Event{Verb: SetClock, A: clock, B: by})
		}
	}
	for _, s := range w.slots {
		if s.machine.power {
			at(s.name)
		}
	}
	at(serverClock)
	at(controllerClock)
}

// jump sets a clock. A kubelet whose clock was set will report its status sooner or
// later, though nothing else is new.
func (w *World) jump(e Event) {
	by, err := time.ParseDuration(e.B)
	if err != nil {
		panic(err) // enabled ones can be read
	}
	*w.skewOf(e.A) += by
	w.Stats.Jumps++
	if s := w.slot(e.A); s != nil {
		s.machine.jumped = true
		if by > 0 {
			s.machine.leapt = time.Now()
		}
	}
	if e.A == serverClock && by < 0 {
		w.serverFell = time.Now()
	}
}

// forgot tells whether a kubelet of the node has forgotten what a container there still uses.
func (w *World) forgot(clock string) bool {
	s := w.slot(clock)
	if s == nil {
		return clock == serverClock && slices.ContainsFunc(w.slots, func(s *slot) bool { return w.forgot(s.name) })
	}
	for _, mount := range s.machine.mounts {
		if mount.forgotten {
			return true
		}
	}
	return false
}

// forcedDetach is how many of the schedules begin in which clocks leap: the controller
// has taken a volume from a node that was silent for as long as it waits, and the node
// goes on. By chance alone that comes about in one of a thousand.
func (w *World) forcedDetach() {
	v := w.volumes[0]
	s := v.pod.node
	for _, e := range []Event{{Verb: Pause, A: s.name}, {Verb: ForceDel, A: v.name}, {Verb: Clock, A: "370s"}, {Verb: NotReady, A: s.name},
		{Verb: Unlist, A: v.name, B: s.name}, {Verb: Detach, A: v.name, B: s.name}, {Verb: Resume, A: s.name}} {
		w.follow(e, true)
	}
}

// leapt tells whether, since the VolumeAttachment was deleted, the node's clock was set forward or
// the API server's back. Then a restart of the kubelet that the Ready condition shows can look as
// if it had been before the deletion: where its last heartbeat is of after the jump, the difference
// between the two clocks is not that of the restart. Who saw the one come after the other knows
// better (turnSeen).
func (w *World) leapt(v *volume, m *machine) bool {
	va := w.va(v, m.slot)
	if va == nil {
		return false
	}
	deleted, ok := v.deleted[va.UID]
	if !ok || m.leapt.Before(deleted) && w.serverFell.Before(deleted) {
		return false
	}
	read := w.serving["get:va/"+w.attachmentLabel(va.Name)]
	for _, t := range m.slot.turns {
		if (read == 0 || t.step < read) && w.turnSeen(deleted, t.at) {
			return false
		}
	}
	return true
}

// turnSeen tells whether every replica that runs, and the one that judged, watched when the kubelet
// changed its word, and had seen the deletion by then for longer than one watch may be behind
// another: when it was made, or when the replica's watches began.
func (w *World) turnSeen(deleted, turned time.Time) bool {
	for _, p := range append(slices.Collect(maps.Values(w.procs)), w.server) {
		if p == nil || p.dead && p != w.server {
			continue
		}
		seen := deleted
		if p.unbroken.After(seen) {
			seen = p.unbroken
		}
		if p.unbroken.IsZero() || turned.Sub(seen) <= observe.OrderSlack {
			return false
		}
	}
	return true
}

// unheard tells whether the node controller does not hear the kubelet. It takes a lease for renewed
// when its renewTime is later than the latest that it has seen (K8s node_lifecycle_controller.go,
// tryUpdateNodeHealth). A kubelet whose clock was set back is not heard before that clock is where
// it was, but for its statuses.
func (s *slot) unheard() bool {
	return s.connected() && s.machine.now().Before(s.renewTime) && time.Since(s.heard) >= notReadyAfter
}

// randomSkew draws the skews that clocks have from the start: most have none.
func randomSkew(r *rand.Rand, nodes int) string {
	var skews []string
	if r.IntN(3) > 0 {
		return ""
	}
	clocks := []string{serverClock, controllerClock}
	for i := range nodes {
		clocks = append(clocks, fmt.Sprint("n", i+1))
	}
	for _, clock := range clocks {
		if r.IntN(2) == 0 {
			skews = append(skews, clock+":"+jumps[r.IntN(len(jumps))])
		}
	}
	return strings.Join(skews, ",")
}

// skews of the clocks from the start, by name.
func (s Setup) skews() (map[string]time.Duration, error) {
	skews := map[string]time.Duration{}
	for word := range strings.SplitSeq(s.Skew, ",") {
		if word == "" {
			continue
		}
		clock, text, _ := strings.Cut(word, ":")
		by, err := time.ParseDuration(text)
		if err != nil {
			return nil, err
		}
		skews[clock] = by
	}
	return skews, nil
}

// steadyVerbs draws how much a schedule likes the faults that came after the others,
// from random numbers of their own: what the other schedules are stays as it was.
func (t *temper) steadyVerbs(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 4))
	t.verbs[SetClock] = [...]int{0, 0, 0, 1, 1, 3}[r.IntN(6)]
	t.verbs[CutADC] = [...]int{0, 0, 0, 5, 10, 30}[r.IntN(6)]
	t.verbs[JoinADC] = 30
	t.leaps = t.forgets && r.IntN(2) == 0
}
