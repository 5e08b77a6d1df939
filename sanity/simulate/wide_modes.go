package simulate

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	coordinationv1 "k8s.io/api/coordination/v1"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// In the wide world the sidecar does not always guard, etcd is restored, and the driver's
// list fails for a while.
//
// While nobody guards, two machines may write, and volumes are taken from machines in use:
// that is Kubernetes alone. It is excused where the later of the two publishes, or the
// unpublish, was of a call that nobody guarded, and counted (Stats.Unguarded). What such a
// call has left behind is a holding like any other, once somebody guards again.

// Modes of the sidecars.
const (
	enforces = "enforce"
	observes = "observe"
	bypasses = "bypass"
	// besides means that the attacher of another pod leads, which has no sidecar. Ours go on, and
	// are asked nothing until theirs lead again.
	besides = "beside"
)

// unguards tells whether nobody guards the calls that are made now.
func (w *World) unguards() bool {
	return w.mode == observes || w.mode == bypasses || w.mode == besides
}

func (w *World) modeEvents(emit func(Event)) {
	for _, mode := range [...]string{enforces, observes, bypasses, besides} {
		if mode != w.mode && (mode != enforces || w.mode != "") {
			emit(Event{Verb: Mode, A: mode})
		}
	}
	emit(Event{Verb: Backup})
	if w.saved != nil {
		emit(Event{Verb: Restore})
	}
	switch {
	case w.unlisted != none || w.listTakes > 0:
		emit(Event{Verb: ListWorks})
	case w.setup.Lists != Nothing:
		emit(Event{Verb: ListFails})
		if w.setup.ByList {
			emit(Event{Verb: SlowLists})
		}
	}
}

// rollOut ends all replicas. Those that start have the new mode.
func (w *World) rollOut(mode string) {
	if was := w.mode; mode == besides && w.guards() || mode == enforces && was == besides {
		w.mode = mode
		w.lead()
		return
	}
	w.mode = mode
	for _, name := range w.replicas {
		if p := w.procs[name]; !p.ended() {
			w.crash(p)
			w.Stats.Crashes--
		}
	}
}

// lead has the attachers that led so far end, and others lead: an attacher that leads no
// more is a process no more.
func (w *World) lead() {
	for _, name := range w.replicas {
		p := w.procs[name]
		for _, c := range slices.Clone(w.calls) {
			if c.p == p {
				w.ended(c, errDead)
			}
		}
		p.attacher = new(proxy.Caller)
	}
}

// configuration that a replica starts with.
func (w *World) configuration() *config.Configuration {
	c := w.setup.Configuration()
	c.Evidence.Kubelet = w.whole == nil // in tier 2 they have no address
	if w.mode == observes || w.mode == bypasses {
		c.Mode = config.Observe
	}
	return c
}

// unguarded is a key of the reads of a call that nobody guards.
const unguarded = "unguarded"

func (w *World) readsOf(*call) reads {
	if w.unguards() {
		return reads{unguarded: 1}
	}
	return reads{}
}

// caller is who answers the attacher's calls.
type caller interface {
	ControllerPublishVolume(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error)
}

func (w *World) sideOf(c *call) caller {
	if w.mode == bypasses || w.mode == besides {
		return direct{driver: spec.NewControllerClient(w.conn)}
	}
	return c.p.side
}

// publication is the last publish to a node ID: in which step, whether nobody guarded it,
// and why nothing tells of it any more (wide_limits.go).
type publication struct {
	step      int
	unguarded bool
	forgotten forgotten
}

func (v *volume) notePublished(id string, step int, unguarded bool) {
	if v.published == nil {
		v.published = map[string]publication{}
	}
	v.published[id] = publication{step: step, unguarded: unguarded}
}

// unguardedPair tells whether nobody guarded the later of the two publishes.
func (w *World) unguardedPair(v *volume, m, other *machine) bool {
	later := v.published[m.id]
	if p := v.published[other.id]; p.step > later.step {
		later = p
	}
	if !later.unguarded {
		return false
	}
	w.Stats.Unguarded++
	return true
}

// unguardedCall tells whether nobody guards the call that takes the volume from the machine.
func (w *World) unguardedCall(v *volume, m *machine) bool {
	if w.serving[unguarded] == 0 {
		return false
	}
	w.Stats.Unguarded++
	w.forgive(v, m)
	return true
}

// saved is what etcd held when it was saved.
type saved struct {
	version int
	step    int
	nodes   kept[*corev1.Node]
	leases  kept[*coordinationv1.Lease]
	volumes kept[*corev1.PersistentVolume]
	vas     kept[*storagev1.VolumeAttachment]
	csi     kept[*storagev1.CSINode]
}

type kept[T object] struct {
	items map[string]T
	names []string
}

func keep[T object](t *table[T]) kept[T] { return kept[T]{maps.Clone(t.items), slices.Clone(t.names)} }

func (t *table[T]) putBack(k kept[T]) { t.items, t.names = maps.Clone(k.items), slices.Clone(k.names) }

func (w *World) backup() {
	m := w.memory
	w.saved = &saved{m.version, w.steps, keep(m.nodes), keep(m.leases), keep(m.volumes), keep(m.vas), keep(m.csi)}
}

// restore puts back what etcd held, resourceVersions included. The controllers, csi-fencepost
// and the kubelets begin anew, as the steps of a restore have it: none trusts what it has
// cached.
func (w *World) restore() {
	m, s := w.memory, w.saved
	m.version = s.version
	m.nodes.putBack(s.nodes)
	m.leases.putBack(s.leases)
	m.volumes.putBack(s.volumes)
	m.vas.putBack(s.vas)
	m.csi.putBack(s.csi)
	w.forgetPublished()
	clear(w.hinted)
	clear(w.hints)
	w.rollOut(w.mode)
	w.restartController()
	for _, sl := range w.slots {
		sl.machine.outlived = false // the API server has forgotten it
		if sl.machine.runs() {
			w.doKubelet(Event{Verb: RestartKubelet, A: sl.name, B: "quick"})
		}
	}
	w.show()
}
