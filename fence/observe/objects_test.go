package observe

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	anyDriver = "d.example.com"
	gceDriver = "pd.csi.storage.gke.io"
	other     = "other.example.com"
)

// Few of each, so that they meet.
var (
	pvNames   = []string{"pvc-0b7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c1", "pvc-0b7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c2", "pv-1", "static", "csi-ab"}
	nodeNames = []string{"n1", "n2", "ip-10-0-0-1.ec2.internal", "node-4"}
	handlesOf = map[string][]string{
		anyDriver: {"vol-0a1b2c3d4e5f67890", "vol-0a1b2c3d4e5f67891", "0001-0009-rook-ceph-0000000000000001-0b7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c1", "Plain"},
		gceDriver: {"projects/p/zones/us-central1-a/disks/d1", "projects/UNSPECIFIED/zones/us-central1-a/disks/d1", "projects/p/zones/us-central1-b/disks/d1", "projects/p/zones/us-central1-a/disks/d2", "odd"},
	}
)

// maker makes random objects, each with a version of its own.
type maker struct {
	*rand.Rand
	driver  string
	version int
}

func pick[T any](m *maker, from []T) T { return from[m.IntN(len(from))] }
func (m *maker) chance(of int) bool    { return m.IntN(of) == 0 }
func (m *maker) handle() string        { return pick(m, handlesOf[m.driver]) }

func (m *maker) meta(name string) metav1.ObjectMeta {
	m.version++
	// Another UID now and then: the object was deleted and made again.
	return metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("uid-%d", m.IntN(3))), ResourceVersion: strconv.Itoa(m.version)}
}

// make makes an object of a kind under one of its names, or changes old.
func (m *maker) make(kind int, old runtime.Object) (name string, obj runtime.Object) {
	switch kind {
	case volumes:
		name = pick(m, pvNames)
		obj = m.volume(name)
	case attachments:
		va := m.attachment()
		if o, ok := old.(*storagev1.VolumeAttachment); ok {
			status, deleted := va.Status, va.DeletionTimestamp
			va = o.DeepCopy() // all else never changes
			va.Status, va.DeletionTimestamp = status, deleted
		}
		name, obj = va.Name, va
	case nodes:
		name = pick(m, nodeNames)
		obj = m.node(name)
	case csiNodes:
		name = pick(m, nodeNames)
		n := &storagev1.CSINode{ObjectMeta: m.meta(name)}
		for _, driver := range []string{other, m.driver} {
			if m.chance(2) {
				n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: driver, NodeID: pick(m, []string{"i-1", "i-2", "i-3"})})
			}
		}
		obj = n
	case leases:
		name = pick(m, nodeNames)
		obj = &coordinationv1.Lease{ObjectMeta: m.meta(name)}
	case records:
		node := pick(m, nodeNames)
		name = record.LeaseName(node)
		lease := &coordinationv1.Lease{ObjectMeta: m.meta(name)}
		if m.chance(4) {
			lease.Name, name = "a-leader-election", "a-leader-election"
		}
		obj = lease
	}
	return name, obj
}

func (m *maker) volume(name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: m.meta(name)}
	handle := m.handle()
	switch {
	case m.chance(6):
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: other, VolumeHandle: handle}
	case m.chance(8):
		pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "s"}
	case m.driver == gceDriver && m.chance(2):
		pv.Labels = map[string]string{corev1.LabelTopologyZone: pick(m, []string{"us-central1-a", "us-central1-b"})}
		pv.Spec.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: pick(m, []string{"d1", "d2"})}
	default:
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: m.driver, VolumeHandle: handle}
	}
	switch {
	case m.chance(8):
		pv.Annotations = map[string]string{ledger.Annotation: "{garbled"}
	case m.chance(2):
		l := &ledger.Ledger{Version: ledger.Version, Driver: m.driver, Handle: handle, Cluster: "c", PVUID: "u"}
		for i := range m.IntN(3) {
			l.Holders = append(l.Holders, ledger.Entry{NodeID: fmt.Sprintf("i-%d", i), NodeName: pick(m, append([]string{""}, nodeNames...)), NodeUID: "u", BootID: "b",
				State: pick(m, []fence.State{fence.Publishing, fence.Held, fence.Leaving, fence.Released, fence.TakenOver})})
		}
		pv.Annotations = map[string]string{ledger.Annotation: l.String()}
	}
	return pv
}

func (m *maker) attachment() *storagev1.VolumeAttachment {
	node, handle := pick(m, nodeNames), m.handle()
	va := &storagev1.VolumeAttachment{ObjectMeta: m.meta(""), Spec: storagev1.VolumeAttachmentSpec{Attacher: m.driver, NodeName: node}}
	va.Name = pick(m, []string{csi.AttachmentName(handle, m.driver, node), csi.AttachmentName(handle, m.driver, node), "va-odd", "csi-" + csi.AttachmentName(handle, m.driver, node)})
	if m.chance(5) {
		va.Spec.Attacher = other
		va.Name = csi.AttachmentName(handle, other, node)
	}
	// Another node, attacher or source is another attachment.
	pv := pick(m, pvNames)
	switch {
	case m.chance(5) && m.driver == gceDriver:
		va.Spec.Source.InlineVolumeSpec = &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: pick(m, []string{m.driver, m.driver, other}), VolumeHandle: handle}}}
	default:
		va.Spec.Source.PersistentVolumeName = &pv
	}
	va.UID = types.UID(fmt.Sprintf("%s-%s-%v-%s", va.UID, va.Spec.Attacher, va.Spec.Source.InlineVolumeSpec != nil, pv+node+handle))
	va.Status.Attached = m.chance(2)
	if m.chance(3) {
		va.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return va
}

func (m *maker) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: m.meta(name)}
	ids := &csi.Identity{Driver: m.driver}
	for _, handle := range handlesOf[m.driver] {
		if m.chance(3) {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, ids.UniqueName(handle))
		}
		if m.chance(3) {
			n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: ids.UniqueName(handle), DevicePath: "/dev/x"})
		}
	}
	if m.chance(3) {
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, (&csi.Identity{Driver: other}).UniqueName("x"))
	}
	n.Status.NodeInfo.BootID = pick(m, []string{"boot-1", "boot-2"})
	n.Status.NodeInfo.SystemUUID = pick(m, systemUUIDs)
	n.Spec.ProviderID = pick(m, []string{"", "cloud:///i-1"})
	if m.chance(4) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "x", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: time.Unix(int64(m.IntN(2)), 0)}}}
	}
	if !m.chance(5) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: pick(m, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown}),
			LastTransitionTime: metav1.Time{Time: time.Unix(int64(m.IntN(2)), 0)}, LastHeartbeatTime: metav1.Time{Time: time.Unix(int64(m.version), 0)}}}
	}
	return n
}

// systemUUIDs: the second is the first in the other byte order.
var systemUUIDs = []string{"4c4c4544-0042-3510-8052-b4c04f564433", "44454C4C-4200-1035-8052-B4C04F564433", "template", ""}
