package simulate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// In the wide world taints are found that were put on for another incident, days ago or
// before the node fell silent, as the API server stamps them. Nobody of ours looked when
// that was, or a record would have them: csi-fencepost was not there yet, or observed.

// oldTaints are how long ago they were put on, and so while the node was still heard.
var oldTaints = [...]string{"72h", "20s"}

// oldTaintEvents emits the old taints that a Node may have where nobody looks, and the node is
// heard.
func (w *World) oldTaintEvents(s *slot, n *corev1.Node, emit func(Event)) {
	if n == nil || tainted(n) || w.peekLease(s.lease) == nil || !s.connected() || s.renewedBoot != s.machine.boot() || w.binds() {
		return
	}
	for _, ago := range oldTaints {
		d, err := time.ParseDuration(ago)
		// Who has changed the taints since is named as the writer of all of them.
		since := func(f metav1.ManagedFieldsEntry) bool {
			return f.FieldsV1.GetRawString() == taintFields.GetRawString() && f.Time.After(w.serverNow().Add(-d))
		}
		if err == nil && time.Since(s.renewed) < d-time.Second && !slices.ContainsFunc(n.ManagedFields, since) {
			emit(Event{Verb: OldTaint, A: s.name, B: ago})
		}
	}
}

// binds tells whether some replica runs that writes down what it sees of a Node.
func (w *World) binds() bool {
	if w.mode == observes || w.mode == bypasses {
		return false
	}
	for _, name := range w.replicas {
		if !w.procs[name].ended() {
			return true
		}
	}
	return false
}

func (w *World) oldTaint(s *slot, ago string) {
	d, err := time.ParseDuration(ago)
	if err != nil {
		panic(err) // enabled ones can be read
	}
	at := w.serverNow().Add(-d)
	for _, f := range w.peekLease(s.lease).ManagedFields {
		if before := f.Time.Add(-time.Second); before.Before(at) {
			at = before // that clock was set since
		}
	}
	w.taintAt(s, true, at)
	s.taintedAt, s.machine.outlived = time.Now().Add(-d), true
}

// oldIncident is how some schedules begin: nobody of ours looks, the node of the first
// volume has an old taint, and falls silent. By chance alone who looks next finds that in
// one of thousands.
func (w *World) oldIncident() {
	if w.volumes[0].pod.node == nil {
		return // even the beginning did not come right
	}
	node, ago := w.volumes[0].pod.node.name, oldTaints[w.seed%2]
	for _, e := range []Event{{Verb: Away}, {Verb: OldTaint, A: node, B: ago}, {Verb: CutNode, A: node}, {Verb: Clock, A: "16s"}, {Verb: Back}} {
		w.follow(e, true)
	}
	for _, name := range w.replicas {
		w.follow(Event{Verb: Start, A: name}, true)
	}
}

// noteOutlived notes that the node's machine renews its lease under a taint. Where the API server's
// clock was set back in between, its stamps say otherwise, which is a limit.
func (w *World) noteOutlived(s *slot, n *corev1.Node) {
	if tainted(n) && !w.serverFell.After(s.taintedAt) {
		s.machine.outlived = true
	}
}
