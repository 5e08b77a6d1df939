package bed

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// stageLabel keeps a stage's pods on its own nodes.
const stageLabel = "fencepost.test/stage"

// Node is one machine.
type Node struct {
	Name string // of the Node object
	ID   string // the driver's node ID

	stage    *Stage
	hardware *hardware
	kube     *controlplane.Node // the hardware's
	csi      *array.Node
	bmc      *bmc.BMC // nil until asked for
}

// AddNode boots a machine and registers the driver on it. name and id get the
// stage's name in front.
func (s *Stage) AddNode(name, id string, clockOffset time.Duration) *Node {
	s.T.Helper()
	return s.addNode(name, id, "", clockOffset)
}

// Rename adds the machine of a node that is off once more, under another name: to
// the driver and by its system UUID it is the same.
func (s *Stage) Rename(old *Node, name string) *Node {
	s.T.Helper()
	return s.addNode(name, strings.TrimPrefix(old.ID, s.Name+"-"), old.kube.SystemUUID(), 0)
}

func (s *Stage) addNode(name, id, systemUUID string, clockOffset time.Duration) *Node {
	s.T.Helper()
	n := &Node{Name: s.Name + "-" + name, ID: s.Name + "-" + id, stage: s}
	if s.Options.PlainNames {
		n.Name = name
	}
	vm, awaitVM := s.startVM(n.Name)
	n.hardware = &hardware{vm: vm}
	kube, err := s.Bed.Cluster.AddNode(s.ctx(), n.Name, controlplane.NodeOptions{
		Labels: map[string]string{stageLabel: s.Name}, SystemUUID: systemUUID, ClockOffset: clockOffset, Network: s.Options.Networks, Real: s.realPrograms(), Cut: n.hardware.cut})
	s.must("node "+n.Name, err)
	n.hardware.kube, n.kube = kube, kube
	s.T.Cleanup(func() { n.hardware.powerOff() })
	awaitVM()
	n.register()
	s.Nodes = append(s.Nodes, n)
	return n
}

// Adopt puts the stage's driver on a machine of another stage, under a node ID
// of its own: two drivers on one node.
func (s *Stage) Adopt(other *Node, id string) *Node {
	s.T.Helper()
	n := &Node{Name: other.Name, ID: s.Name + "-" + id, stage: s, hardware: other.hardware, kube: other.kube}
	n.register()
	s.Nodes = append(s.Nodes, n)
	return n
}

// RenameID starts the driver's node side anew under another node ID of the same machine,
// as the upgrade of a driver does that names its nodes otherwise than before. The driver
// knows the ID of before no more.
func (n *Node) RenameID(id string) {
	n.stage.T.Helper()
	old := n.ID
	n.csi.Stop()
	n.ID = n.stage.Name + "-" + id
	n.stage.must("new node ID of "+n.Name, n.stage.Array.RenameMachine(old, n.ID))
	n.stage.Array.Inject(array.Fault{Method: array.Unpublish, Node: old, Do: array.Fail, Code: codes.NotFound, Message: "node " + strconv.Quote(old) + " does not exist"})
	n.serve()
}

// register adds the driver to the machine.
func (n *Node) register() {
	n.stage.T.Helper()
	n.serve()
	n.hardware.add(n)
}

// serve serves the driver's node side and waits until Kubernetes knows its node ID.
func (n *Node) serve() {
	n.stage.T.Helper()
	csi, err := n.stage.Array.ServeNode(n.stage.ctx(), array.NodeOptions{NodeID: n.ID, PluginDir: n.kube.PluginDir(), RegistrationDir: n.kube.RegistrationDir()})
	n.stage.must("driver on node "+n.Name, err)
	n.csi = csi
	if n.stage.machines != nil {
		n.stage.machines.add(n)
	}
	if n.stage.disks != nil {
		n.stage.disks.add(n)
	}
	n.stage.T.Cleanup(csi.Stop)
	n.stage.WaitFor(60*time.Second, "the CSINode of "+n.Name+" names "+n.ID, func() bool {
		node, err := n.stage.Client.StorageV1().CSINodes().Get(n.stage.ctx(), n.Name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, d := range node.Spec.Drivers {
			if d.Name == n.stage.Driver {
				return d.NodeID == n.ID
			}
		}
		return false
	})
}

// SayExternalIP has the Node say that address too, as its cloud does.
func (n *Node) SayExternalIP(address string) {
	n.stage.T.Helper()
	patch := `{"status":{"addresses":[{"type":"ExternalIP","address":` + quote(address) + `}]}}`
	_, err := n.stage.Client.CoreV1().Nodes().Patch(n.stage.ctx(), n.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	n.stage.must("address of "+n.Name, err)
}

// CutOff stops the kubelet: as far as Kubernetes can see the node is gone, and
// its containers write on. See Partition for a kubelet that works on, unheard.
func (n *Node) CutOff() { n.stage.must("cut off "+n.Name, n.kube.Pause()) }

// Reconnect lets the kubelet go on.
func (n *Node) Reconnect() { n.stage.must("reconnect "+n.Name, n.kube.Resume()) }

// PowerOff takes the machine's power: kubelet, containers and writers are gone.
func (n *Node) PowerOff() { n.stage.must("power off "+n.Name, n.hardware.powerOff()) }

// Boot starts the machine under a new boot ID, and waits until it is Ready.
func (n *Node) Boot() {
	n.stage.T.Helper()
	boot, err := n.hardware.powerOn()
	n.stage.must("power on "+n.Name, err)
	n.stage.must("boot "+n.Name, boot.wait())
}

// HasPower tells whether the machine is on.
func (n *Node) HasPower() bool { return n.hardware.On() }

// KillKubelet ends the kubelet; the containers run on. StartKubelet starts it
// again on the same machine.
func (n *Node) KillKubelet() { n.kube.KillKubelet() }

// StartKubelet starts the kubelet again and waits until it is Ready.
func (n *Node) StartKubelet() {
	n.stage.T.Helper()
	n.stage.must("kubelet of "+n.Name, n.kube.StartKubelet(n.stage.ctx()))
}

// Get reads the Node; nil: there is none.
func (n *Node) Get() *corev1.Node {
	node, err := n.stage.Client.CoreV1().Nodes().Get(n.stage.ctx(), n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	n.stage.must("node "+n.Name, err)
	return node
}

// Delete deletes the Node object; the machine goes on.
func (n *Node) Delete() {
	n.stage.must("delete node "+n.Name, n.stage.Client.CoreV1().Nodes().Delete(n.stage.ctx(), n.Name, metav1.DeleteOptions{}))
}

// Ready tells whether the Node is Ready.
func (n *Node) Ready() bool {
	node := n.Get()
	return node != nil && Ready(node)
}

// WaitNotReady waits until Kubernetes has noticed that the node is silent, and schedules
// nothing to it any more: the taint comes after the condition.
func (n *Node) WaitNotReady() time.Duration {
	n.stage.T.Helper()
	took := n.stage.WaitFor(n.stage.Bed.Clocks.NodeMonitorGracePeriod+60*time.Second, n.Name+" is NotReady", func() bool { return !n.Ready() })
	n.stage.WaitFor(30*time.Second, "nothing is scheduled to "+n.Name, func() bool {
		node := n.Get()
		return node == nil || unreachable(node, corev1.TaintEffectNoSchedule)
	})
	return took
}

// unreachable tells whether the node controller has tainted a Node, with that effect.
func unreachable(node *corev1.Node, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == effect && (t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady)
	})
}

// OutOfServiceTaint is the taint with which an operator declares a node dead.
var OutOfServiceTaint = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// Taint puts a taint on, Untaint takes it off. To a node that has fallen silent the node controller
// adds its second taint a moment after the first, and then nobody can tell any more who wrote those
// before it: an operator, who takes longer to type, comes after both.
func (n *Node) Taint(t corev1.Taint) {
	n.stage.T.Helper()
	n.stage.WaitFor(30*time.Second, "the node controller has tainted "+n.Name, func() bool {
		node := n.Get()
		return node == nil || unreachable(node, corev1.TaintEffectNoSchedule) == unreachable(node, corev1.TaintEffectNoExecute)
	})
	n.update(func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, t) })
}

func (n *Node) Untaint(key string) {
	n.stage.T.Helper()
	n.update(func(node *corev1.Node) {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	})
}

// Cordon keeps new pods away.
func (n *Node) Cordon() {
	n.stage.T.Helper()
	n.update(func(node *corev1.Node) { node.Spec.Unschedulable = true })
}

func (n *Node) update(change func(*corev1.Node)) {
	n.stage.T.Helper()
	n.stage.must("update of node "+n.Name, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := n.stage.Client.CoreV1().Nodes().Get(n.stage.ctx(), n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		_, err = n.stage.Client.CoreV1().Nodes().Update(n.stage.ctx(), node, metav1.UpdateOptions{})
		return err
	}))
}

// Lists tells whether the Node's status names the volume in volumesInUse, in
// volumesAttached.
func (n *Node) Lists(v *Volume) (inUse, attached bool) {
	node := n.Get()
	if node == nil {
		return false, false
	}
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + n.stage.Driver + "^" + v.Handle)
	for _, a := range node.Status.VolumesAttached {
		attached = attached || a.Name == name
	}
	return slices.Contains(node.Status.VolumesInUse, name), attached
}
