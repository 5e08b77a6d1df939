package guard

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// id of the driver on a node.
func id(node string) string { return "id-" + node }

// node boots a machine, Ready since the given time.
func (r *rig) node(name string, since time.Time) { r.t.Helper(); r.machine(name, name, since) }

// machine is a Node with the node ID and the system UUID of node of.
func (r *rig) machine(name, of string, since time.Time) {
	r.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-of-" + name, SystemUUID: "system-" + of}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	_, err := r.client.CoreV1().Nodes().Create(r.t.Context(), n, metav1.CreateOptions{})
	r.must(err)
	_, err = r.client.StorageV1().CSINodes().Create(r.t.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: id(of)}}}}, metav1.CreateOptions{})
	r.must(err)
}

func (r *rig) changeNode(name string, change func(*corev1.Node)) {
	r.t.Helper()
	n, err := r.client.CoreV1().Nodes().Get(r.t.Context(), name, metav1.GetOptions{})
	r.must(err)
	change(n)
	_, err = r.client.CoreV1().Nodes().Update(r.t.Context(), n, metav1.UpdateOptions{})
	r.must(err)
}

// status changes a Node's status.
func (r *rig) status(name string, change func(*corev1.NodeStatus)) {
	r.t.Helper()
	r.changeNode(name, func(n *corev1.Node) { change(&n.Status) })
}

// lists sets whether a Node's status names the volume.
func (r *rig) lists(name string, inUse, attached bool) {
	r.t.Helper()
	unique := r.ids.UniqueName(handle)
	r.status(name, func(s *corev1.NodeStatus) {
		s.VolumesInUse, s.VolumesAttached = nil, nil
		if inUse {
			s.VolumesInUse = []corev1.UniqueVolumeName{unique}
		}
		if attached {
			s.VolumesAttached = []corev1.AttachedVolume{{Name: unique}}
		}
	})
}

// reboot gives a node another boot ID, and a kubelet that lists nothing.
func (r *rig) reboot(node, boot string) {
	r.t.Helper()
	r.lists(node, false, false)
	r.status(node, func(s *corev1.NodeStatus) {
		s.NodeInfo.BootID = boot
		s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now())
	})
}

func (r *rig) taint(node string) {
	r.t.Helper()
	r.changeNode(node, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
	})
}

// lease gives a node a lease of that version.
func (r *rig) lease(node, version string) {
	r.t.Helper()
	api := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_ = api.Delete(r.t.Context(), node, metav1.DeleteOptions{})
	_, err := api.Create(r.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: version}}, metav1.CreateOptions{})
	r.must(err)
}

// register sets the node ID that a node's CSINode carries; empty: its driver is
// not registered, as while the node's plugin restarts.
func (r *rig) register(node, nodeID string) {
	r.t.Helper()
	n, err := r.client.StorageV1().CSINodes().Get(r.t.Context(), node, metav1.GetOptions{})
	r.must(err)
	n.Spec.Drivers = nil
	if nodeID != "" {
		n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: driverName, NodeID: nodeID}}
	}
	_, err = r.client.StorageV1().CSINodes().Update(r.t.Context(), n, metav1.UpdateOptions{})
	r.must(err)
}

// renewUID makes a Node another object.
func (r *rig) renewUID(name string) {
	r.t.Helper()
	r.changeNode(name, func(n *corev1.Node) { n.UID += "-anew" })
}

// heir is a Node with the node ID of another, and a VolumeAttachment of its own.
func (r *rig) heir(of, name string) {
	r.t.Helper()
	r.machine(name, of, hourAgo)
	r.attachmentWith(name, id(of), time.Time{})
}
