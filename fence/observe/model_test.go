package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// model is the index, slow and obviously right: whole objects, and every question
// answered by a look at each.
type model struct {
	ids     *csi.Identity
	objects [kinds]map[string]runtime.Object
}

func newModel(ids *csi.Identity) *model {
	m := &model{ids: ids}
	for kind := range m.objects {
		m.objects[kind] = map[string]runtime.Object{}
	}
	return m
}

func all[T runtime.Object](m *model, kind int) (list []T) {
	for _, name := range slices.Sorted(maps.Keys(m.objects[kind])) {
		list = append(list, m.objects[kind][name].(T))
	}
	return list
}

func get[T runtime.Object](m *model, kind int, name string) (obj T, found bool) {
	obj, found = m.objects[kind][name].(T)
	return obj, found
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

func (m *model) volumesOf(handle string) (names []string) {
	for _, pv := range all[*corev1.PersistentVolume](m, volumes) {
		if own, ok := m.ids.PVHandle(pv); ok && m.ids.Key(own) == m.ids.Key(handle) {
			names = append(names, pv.Name)
		}
	}
	return sorted(names)
}

func (m *model) ours() (list []*storagev1.VolumeAttachment) {
	for _, va := range all[*storagev1.VolumeAttachment](m, attachments) {
		if va.Spec.Attacher == m.ids.Driver {
			list = append(list, va)
		}
	}
	return list
}

func (m *model) attachmentsOf(handle string) (names []string) {
	pvs := m.volumesOf(handle)
	for _, va := range m.ours() {
		inline, isInline := m.ids.InlineHandle(va)
		pv := va.Spec.Source.PersistentVolumeName
		if isInline && m.ids.Key(inline) == m.ids.Key(handle) || pv != nil && slices.Contains(pvs, *pv) ||
			va.Name == csi.AttachmentName(handle, m.ids.Driver, va.Spec.NodeName) {
			names = append(names, va.Name)
		}
	}
	return sorted(names)
}

func (m *model) nodesListing(handle string) (names []string) {
	for _, n := range all[*corev1.Node](m, nodes) {
		for _, listed := range m.ids.NodeHandles(n) {
			if m.ids.Key(listed) == m.ids.Key(handle) {
				names = append(names, n.Name)
			}
		}
	}
	return sorted(names)
}

func (m *model) nodeIDs() map[string]string {
	ids := map[string]string{}
	for _, n := range all[*storagev1.CSINode](m, csiNodes) {
		if id := m.ids.NodeID(n); id != "" {
			ids[n.Name] = id
		}
	}
	return ids
}

func (m *model) handleOf(va *storagev1.VolumeAttachment) string {
	if handle, ok := m.ids.InlineHandle(va); ok {
		return handle
	}
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		if pv, found := get[*corev1.PersistentVolume](m, volumes, *name); found {
			handle, _ := m.ids.PVHandle(pv)
			return handle
		}
	}
	return ""
}

// heldBy gives, by handle, all that may be told of it: of two PVs with one handle
// either may be named.
func (m *model) heldBy(node string) map[string][]Held {
	type parts struct {
		pvs, attachments []string
		detaching        map[string]bool
	}
	byHandle := map[string]*parts{}
	at := func(handle string) *parts {
		if byHandle[handle] == nil {
			byHandle[handle] = &parts{detaching: map[string]bool{}}
		}
		return byHandle[handle]
	}
	for _, va := range m.ours() {
		handle := m.handleOf(va)
		if va.Spec.NodeName != node || handle == "" {
			continue
		}
		p := at(handle)
		p.attachments = append(p.attachments, va.Name)
		p.detaching[va.Name] = va.DeletionTimestamp != nil
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			p.pvs = append(p.pvs, *pv)
		}
	}
	withEntry := map[string][]Held{}
	for _, pv := range all[*corev1.PersistentVolume](m, volumes) {
		handle, ours := m.ids.PVHandle(pv)
		l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
		if !ours || err != nil {
			continue
		}
		for _, e := range l.ByNodeName(node) {
			at(handle)
			withEntry[handle] = append(withEntry[handle], Held{Handle: handle, PV: pv.Name, Entry: e})
		}
	}
	possible := map[string][]Held{}
	for handle, p := range byHandle {
		base := withEntry[handle]
		if base == nil {
			base = []Held{{Handle: handle}}
			if len(p.pvs) > 0 {
				base = nil
			}
			for _, pv := range p.pvs {
				base = append(base, Held{Handle: handle, PV: pv})
			}
		}
		for _, h := range base {
			if len(p.attachments) == 0 {
				possible[handle] = append(possible[handle], h)
			}
			for _, name := range p.attachments {
				h.Attachment, h.Detaching = name, p.detaching[name]
				possible[handle] = append(possible[handle], h)
			}
		}
	}
	return possible
}

func (m *model) holding() (names []string) {
	for _, va := range m.ours() {
		names = append(names, va.Spec.NodeName)
	}
	for _, pv := range all[*corev1.PersistentVolume](m, volumes) {
		l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
		if _, ours := m.ids.PVHandle(pv); !ours || err != nil {
			continue
		}
		for _, e := range l.Holders {
			if e.NodeName != "" && e.State != fence.TakenOver && e.State != fence.Released && m.attachedElsewhere(pv.Name, e.NodeName) {
				names = append(names, e.NodeName)
			}
		}
	}
	return sorted(names)
}

func (m *model) attachmentsOn(node string) (n int) {
	for _, va := range all[*storagev1.VolumeAttachment](m, attachments) {
		if va.Spec.NodeName == node {
			n++
		}
	}
	return n
}

func (m *model) attachedElsewhere(pv, node string) bool {
	for _, va := range m.ours() {
		if name := va.Spec.Source.PersistentVolumeName; name != nil && *name == pv && va.Spec.NodeName != node {
			return true
		}
	}
	return false
}

// changes are what has to be told when an object of a kind becomes another; nil:
// it was, or is, not there.
func (m *model) changes(kind int, was, is runtime.Object) (told []Change) {
	tell := func(c Change) {
		if c != (Change{}) && !slices.Contains(told, c) {
			told = append(told, c)
		}
	}
	switch kind {
	case volumes:
		old, new := m.volumeFacts(was), m.volumeFacts(is)
		if old != new {
			tell(Change{Volume: new.handle})
			if old.handle != new.handle {
				tell(Change{Volume: old.handle})
			}
		}
	case attachments:
		old, new := m.attachmentFacts(was), m.attachmentFacts(is)
		if old != new {
			tell(Change{Node: new.node})
			if old.uid != new.uid {
				tell(Change{Node: old.node})
			}
		}
	case nodes:
		if n, ok := is.(*corev1.Node); ok {
			if o, ok := was.(*corev1.Node); !ok || !sameNode(m.ids, o, n) {
				tell(Change{Node: n.Name})
			}
		} else if o, ok := was.(*corev1.Node); ok {
			tell(Change{Node: o.Name})
		}
	case csiNodes:
		id := func(obj runtime.Object) (name, id string) {
			if n, ok := obj.(*storagev1.CSINode); ok {
				return n.Name, m.ids.NodeID(n)
			}
			return "", ""
		}
		oldName, old := id(was)
		newName, new := id(is)
		if old != new {
			tell(Change{Node: max(oldName, newName)})
		}
	case leases:
		if l, ok := was.(*coordinationv1.Lease); ok && is == nil {
			tell(Change{Node: l.Name})
		}
	case records:
		facts := func(obj runtime.Object) (node, version string) {
			if l, ok := obj.(*coordinationv1.Lease); ok {
				if node, ok := record.NodeOf(l); ok {
					return node, l.ResourceVersion
				}
			}
			return "", ""
		}
		oldNode, oldVersion := facts(was)
		newNode, newVersion := facts(is)
		if oldNode != newNode {
			tell(Change{Node: oldNode})
		}
		if oldNode != newNode || oldVersion != newVersion {
			tell(Change{Node: newNode})
		}
	}
	return told
}

type volumeFacts struct{ handle, ledger string }

func (m *model) volumeFacts(obj runtime.Object) volumeFacts {
	pv, _ := obj.(*corev1.PersistentVolume)
	handle, ok := m.ids.PVHandle(pv)
	if !ok {
		return volumeFacts{}
	}
	return volumeFacts{handle, pv.Annotations[ledger.Annotation]}
}

type attachmentFacts struct {
	node, uid           string
	attached, detaching bool
}

func (m *model) attachmentFacts(obj runtime.Object) attachmentFacts {
	va, _ := obj.(*storagev1.VolumeAttachment)
	if va == nil || va.Spec.Attacher != m.ids.Driver {
		return attachmentFacts{}
	}
	return attachmentFacts{va.Spec.NodeName, string(va.UID), va.Status.Attached, va.DeletionTimestamp != nil}
}

func (m *model) systemShared(node, systemUUID string) bool {
	for _, n := range all[*corev1.Node](m, nodes) {
		if n.Name != node && fence.SystemKey(n.Status.NodeInfo.SystemUUID) == fence.SystemKey(systemUUID) {
			return true
		}
	}
	return false
}

// sameNode: of what is watched nothing is another.
func sameNode(ids *csi.Identity, a, b *corev1.Node) bool {
	return slices.Equal(nodeTexts(ids, a), nodeTexts(ids, b))
}

// nodeTexts are what is watched of a Node, but its version.
func nodeTexts(ids *csi.Identity, n *corev1.Node) []string {
	texts := []string{string(n.UID), n.Spec.ProviderID, n.Status.NodeInfo.BootID, fence.SystemKey(n.Status.NodeInfo.SystemUUID)}
	for _, t := range n.Spec.Taints {
		texts = append(texts, "taint", t.Key, t.Value, string(t.Effect), fmt.Sprint(t.TimeAdded))
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			texts = append(texts, "ready", string(c.Status), c.LastTransitionTime.UTC().String())
		}
	}
	lists := map[string][]string{}
	for _, name := range n.Status.VolumesInUse {
		if handle, ok := ids.HandleOf(name); ok {
			lists["in use"] = append(lists["in use"], ids.Key(handle))
		}
	}
	for _, a := range n.Status.VolumesAttached {
		if handle, ok := ids.HandleOf(a.Name); ok {
			lists["attached"] = append(lists["attached"], ids.Key(handle))
		}
	}
	for _, list := range []string{"in use", "attached"} {
		texts = append(texts, list+strings.Join(sorted(lists[list]), "|"))
	}
	return texts
}
