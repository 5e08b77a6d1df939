package guardrig

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ID of the driver on a node.
func ID(node string) string { return "id-" + node }

// Node boots a machine, Ready since the given time.
func (r *Rig) Node(name string, since time.Time) { r.T.Helper(); r.machine(name, name, since) }

// machine is a Node with the node ID and the system UUID of node of.
func (r *Rig) machine(name, of string, since time.Time) {
	r.T.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-of-" + name, SystemUUID: "system-" + of}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	_, err := r.Client.CoreV1().Nodes().Create(r.T.Context(), n, metav1.CreateOptions{})
	r.Must(err)
	_, err = r.Client.StorageV1().CSINodes().Create(r.T.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: DriverName, NodeID: ID(of)}}}}, metav1.CreateOptions{})
	r.Must(err)
}

// ChangeNode changes a Node.
func (r *Rig) ChangeNode(name string, change func(*corev1.Node)) {
	r.T.Helper()
	n, err := r.Client.CoreV1().Nodes().Get(r.T.Context(), name, metav1.GetOptions{})
	r.Must(err)
	change(n)
	_, err = r.Client.CoreV1().Nodes().Update(r.T.Context(), n, metav1.UpdateOptions{})
	r.Must(err)
}

// Status changes a Node's status.
func (r *Rig) Status(name string, change func(*corev1.NodeStatus)) {
	r.T.Helper()
	r.ChangeNode(name, func(n *corev1.Node) { change(&n.Status) })
}

// Lists sets whether a Node's status names the volume.
func (r *Rig) Lists(name string, inUse, attached bool) {
	r.T.Helper()
	unique := r.ids.UniqueName(Handle)
	r.Status(name, func(s *corev1.NodeStatus) {
		s.VolumesInUse, s.VolumesAttached = nil, nil
		if inUse {
			s.VolumesInUse = []corev1.UniqueVolumeName{unique}
		}
		if attached {
			s.VolumesAttached = []corev1.AttachedVolume{{Name: unique}}
		}
	})
}

// Reboot gives a node another boot ID, and a kubelet that lists nothing.
func (r *Rig) Reboot(node, boot string) {
	r.T.Helper()
	r.Lists(node, false, false)
	r.Status(node, func(s *corev1.NodeStatus) {
		s.NodeInfo.BootID = boot
		s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now())
	})
}

// Taint sets a node's out-of-service taint.
func (r *Rig) Taint(node string) {
	r.T.Helper()
	r.ChangeNode(node, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
	})
}

// Lease gives a node a lease of that version.
func (r *Rig) Lease(node, version string) {
	r.T.Helper()
	api := r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_ = api.Delete(r.T.Context(), node, metav1.DeleteOptions{})
	_, err := api.Create(r.T.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: version}}, metav1.CreateOptions{})
	r.Must(err)
}

// Register sets the node ID that a node's CSINode carries; empty: its driver is
// not registered, as while the node's plugin restarts.
func (r *Rig) Register(node, nodeID string) {
	r.T.Helper()
	n, err := r.Client.StorageV1().CSINodes().Get(r.T.Context(), node, metav1.GetOptions{})
	r.Must(err)
	n.Spec.Drivers = nil
	if nodeID != "" {
		n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: DriverName, NodeID: nodeID}}
	}
	_, err = r.Client.StorageV1().CSINodes().Update(r.T.Context(), n, metav1.UpdateOptions{})
	r.Must(err)
}

// RenewUID makes a Node another object.
func (r *Rig) RenewUID(name string) {
	r.T.Helper()
	r.ChangeNode(name, func(n *corev1.Node) { n.UID += "-anew" })
}

// Heir is a Node with the node ID of another, and a VolumeAttachment of its own.
func (r *Rig) Heir(of, name string) {
	r.T.Helper()
	r.machine(name, of, HourAgo)
	r.AttachmentWith(name, ID(of), time.Time{})
}
