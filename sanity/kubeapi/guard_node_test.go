package kubeapi

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// node is a machine, as the API server tells of it. The test is its kubelet.
//
// A Node without a lease is alive while it is Ready, and unknown when it is not:
// most tests need no lease, and so no time for it to turn stale.
type node struct {
	r        *rig
	name, id string
	uid      string
	boot     string    // empty while Kubernetes knows nothing of it
	since    time.Time // Ready, or not
}

// node boots a machine: its Node is Ready since an hour and its CSINode has the
// driver's ID.
func (r *rig) node(name string) *node {
	r.t.Helper()
	return r.nodeCalled(r.Name+"-"+name, "id-"+r.Name+"-"+name)
}

// nodeCalled is node with a name and a node ID of one's own.
func (r *rig) nodeCalled(name, id string) *node {
	r.t.Helper()
	n := r.machine(name, id)
	_, err := r.Client.StorageV1().CSINodes().Create(r.ctx(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: n.name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: r.Driver, NodeID: n.id}}},
	}, metav1.CreateOptions{})
	r.must(err)
	created, err := r.Client.CoreV1().Nodes().Create(r.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.name, Labels: map[string]string{corev1.LabelHostname: n.name}}}, metav1.CreateOptions{})
	r.must(err)
	n.uid, n.boot = string(created.UID), "boot-1-of-"+id
	n.status(func(s *corev1.NodeStatus) {
		s.NodeInfo.BootID = n.boot
		s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	})
	return n
}

// strangerNode is a machine of which Kubernetes knows nothing.
func (r *rig) strangerNode(name string) *node {
	r.t.Helper()
	return r.machine(r.Name+"-"+name, "id-"+r.Name+"-"+name)
}

func (r *rig) machine(name, id string) *node {
	r.t.Helper()
	r.must(r.Array.AddMachine(id))
	return &node{r: r, name: name, id: id, since: time.Now().Add(-time.Hour)}
}

// status changes the Node's status as a kubelet does: with a heartbeat.
func (n *node) status(change func(*corev1.NodeStatus)) {
	n.r.t.Helper()
	n.r.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := n.r.Client.CoreV1().Nodes().Get(n.r.ctx(), n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&node.Status)
		for i := range node.Status.Conditions {
			c := &node.Status.Conditions[i]
			c.LastTransitionTime, c.LastHeartbeatTime = metav1.NewTime(n.since), metav1.Now()
		}
		_, err = n.r.Client.CoreV1().Nodes().UpdateStatus(n.r.ctx(), node, metav1.UpdateOptions{})
		return err
	}))
}

// lists sets whether the Node's status names the volume.
func (n *node) lists(v *bed.Volume, inUse, attached bool) {
	n.r.t.Helper()
	n.listsHandle(v.Handle, inUse, attached)
}

func (n *node) listsHandle(handle string, inUse, attached bool) {
	n.r.t.Helper()
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + n.r.Driver + "^" + handle)
	n.status(func(s *corev1.NodeStatus) {
		s.VolumesInUse = slices.DeleteFunc(s.VolumesInUse, func(u corev1.UniqueVolumeName) bool { return u == name })
		s.VolumesAttached = slices.DeleteFunc(s.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == name })
		if inUse {
			s.VolumesInUse = append(s.VolumesInUse, name)
		}
		if attached {
			s.VolumesAttached = append(s.VolumesAttached, corev1.AttachedVolume{Name: name})
		}
	})
}

// ready writes the Ready condition, changed now.
func (n *node) ready(s corev1.ConditionStatus) {
	n.r.t.Helper()
	n.since = time.Now()
	n.status(func(st *corev1.NodeStatus) { st.Conditions[0].Status = s })
}

// fallSilent is what the node controller writes of a kubelet that is gone.
func (n *node) fallSilent() { n.r.t.Helper(); n.ready(corev1.ConditionUnknown) }

// delete deletes the Node and its CSINode.
func (n *node) delete() {
	n.r.t.Helper()
	n.r.must(n.r.Client.CoreV1().Nodes().Delete(n.r.ctx(), n.name, metav1.DeleteOptions{}))
	n.r.must(n.r.Client.StorageV1().CSINodes().Delete(n.r.ctx(), n.name, metav1.DeleteOptions{}))
}

// taint puts the out-of-service taint on, untaint takes it off.
// taint has a person say that the machine is off: another writer than the kubelet, and in
// a later second than its last word, as far as the API server's stamps tell seconds.
func (n *node) taint() {
	n.r.t.Helper()
	time.Sleep(1100 * time.Millisecond)
	n.spec(func(s *corev1.NodeSpec) { s.Taints = append(s.Taints, bed.OutOfServiceTaint) })
}

func (n *node) untaint() {
	n.r.t.Helper()
	n.spec(func(s *corev1.NodeSpec) {
		s.Taints = slices.DeleteFunc(s.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	})
}

func (n *node) spec(change func(*corev1.NodeSpec)) {
	n.r.t.Helper()
	n.r.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := n.r.Client.CoreV1().Nodes().Get(n.r.ctx(), n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&node.Spec)
		_, err = n.r.Client.CoreV1().Nodes().Update(n.r.ctx(), node, metav1.UpdateOptions{FieldManager: "a-person"})
		return err
	}))
}

// renew renews the kubelet's lease, and makes it if there is none.
func (n *node) renew() {
	n.r.t.Helper()
	n.r.must(n.renewed(n.r.ctx()))
}

func (n *node) renewed(ctx context.Context) error {
	api := n.r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())
	lease, err := api.Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		_, err = api.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.name, RenewTime: &now}}, metav1.CreateOptions{})
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = api.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func (n *node) leaseRV() string {
	lease, err := n.r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(n.r.ctx(), n.name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return lease.ResourceVersion
}

// confirm is an operator's word that the machine is off.
func (n *node) confirm() {
	n.r.t.Helper()
	_, err := n.r.records().Confirm(n.r.ctx(), n.name, record.Confirmation{By: "ann", Reason: "unplugged",
		Machines: []record.Machine{{NodeID: n.id, NodeUID: n.uid, BootID: n.boot, LeaseRV: n.leaseRV()}}})
	n.r.must(err)
}

// powerOff takes the machine's power, and everything but the proof with it.
func (n *node) powerOff() {
	n.r.t.Helper()
	n.r.must(n.r.Array.PowerOff(n.id))
	n.fallSilent()
}
