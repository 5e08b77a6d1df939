package simulate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Moments of the wide world that no schedule draws: they are for scripts. Each is of
// everyday life, and chance would seldom bring what has to come before and after it.

// momentEvents are those that may happen now.
func (w *World) momentEvents(emit func(Event)) {
	if !w.setup.Wide {
		return
	}
	for _, v := range w.volumes {
		if v.pod.node == nil && len(v.more)+len(v.adc)+len(v.attached) == 0 && !w.called(v) {
			emit(Event{Verb: NewVolume, A: v.name})
		}
		for _, s := range w.slots {
			if a, n := v.adc[s], w.peekNode(s.name); a != nil && !a.unlisted.IsZero() && n != nil && !volumesAttachedHas(n, v) {
				emit(Event{Verb: KeepListed, A: v.name, B: s.name})
			}
		}
	}
	for _, s := range w.slots {
		if s.connected() && w.peekNode(s.name) != nil && !s.machine.kubelet.fresh && len(w.calls)+len(w.parked) == 0 && s.machine.former == "" {
			emit(Event{Verb: RenameID, A: s.name})
		}
	}
}

func (w *World) doMoment(e Event) bool {
	switch e.Verb {
	case NewVolume:
		w.newVolume(w.volume(e.A))
	case KeepListed:
		w.listAttached(w.slot(e.B), w.volume(e.A), true)
	case RenameID:
		w.renameID(w.slot(e.A))
	default:
		return false
	}
	return true
}

// newVolume deletes the claim, disk and all, and makes it anew. Nobody ever had the new one, which
// external-provisioner has made for the claim.
func (w *World) newVolume(v *volume) {
	pv, ok := w.objects.Volumes.Get(v.name)
	if !ok {
		return
	}
	w.objects.Volumes.Delete(v.name)
	pv.UID, pv.ResourceVersion = "", ""
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": DriverName}
	pv.Spec.ClaimRef.UID = types.UID(pv.Name)
	w.objects.Volumes.Put(pv)
	made, _ := w.objects.Volumes.Get(v.name)
	made.Spec.ClaimRef.ResourceVersion = made.ResourceVersion // the claim's was one before
	w.objects.Volumes.Put(made)
	v.ever, v.before = nil, nil
}

// renameID upgrades the driver, which calls the node's machine otherwise than before. It knows the
// machine by the new node ID alone, with all that is attached to it.
func (w *World) renameID(s *slot) {
	m := s.machine
	old, id := m.id, m.id+"-renamed"
	m.id, m.former = id, old
	for _, v := range w.volumes {
		if v.attached[old] {
			delete(v.attached, old)
			v.attached[id], v.attachedFor[id] = true, m
		}
		if p, is := v.published[old]; is {
			v.published[id] = p
		}
		if v.shared[old] {
			v.share(id, true)
		}
		for _, ids := range [][]string{v.before, v.ever, v.late, v.leaving} {
			if i := slices.Index(ids, old); i >= 0 {
				ids[i] = id
			}
		}
	}
	w.register(s)
}

// calledAs tells whether the machine has that node ID, or had it before its driver was upgraded.
func (m *machine) calledAs(id string) bool { return m.id == id || id != "" && m.former == id }

// provider names the machine to its cloud.
func (m *machine) provider() string { return "cloud:///" + m.system }

// provide has the cloud's controller say which instance a new Node is.
func (w *World) provide(m *machine, n *corev1.Node) {
	if w.setup.Cloud {
		n.Spec.ProviderID = m.provider()
	}
}
