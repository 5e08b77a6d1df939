package bed

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// Busy keeps a container from being unmounted on that node, as a process that
// hangs in its disk does: it writes on, whatever Kubernetes decides. Clear lets
// the kubelet unmount it.
func (v *Volume) Busy(on *Node) *array.Injection {
	return v.stage.Array.Inject(array.Fault{Method: "NodeUnpublishVolume", Volume: v.Handle, Node: on.ID, Do: array.Fail, Message: "target is busy"})
}

// Staged keeps the volume from being unstaged on that node, once no pod has it any more.
func (v *Volume) Staged(on *Node) *array.Injection {
	return v.stage.Array.Inject(array.Fault{Method: "NodeUnstageVolume", Volume: v.Handle, Node: on.ID, Do: array.Fail, Message: "its pages are being written"})
}

// Writing tells whether the array accepted a write from that node within the
// last second.
func (v *Volume) Writing(on *Node) bool {
	for _, name := range v.Writers(time.Second) {
		if name == on.Name {
			return true
		}
	}
	return false
}

// MountedOn tells whether the machine has power and the volume staged or
// published to a container.
func (v *Volume) MountedOn(n *Node) bool {
	for _, id := range v.stage.Array.InUse(v.Handle) {
		if id == n.ID {
			return true
		}
	}
	return false
}

// WaitDetaching waits until Kubernetes has taken the volume off the node's
// volumesAttached and asked for its detach.
func (v *Volume) WaitDetaching(n *Node, limit time.Duration) time.Duration {
	v.stage.T.Helper()
	return v.stage.WaitFor(limit, v.Name+" is taken off volumesAttached of "+n.Name+", and its VolumeAttachment is deleted", func() bool {
		_, attached := n.Lists(v)
		va := v.Attachment(n)
		return !attached && va != nil && va.DeletionTimestamp != nil
	})
}

// StartKubeletForgetting starts the kubelet, after a kill if it runs, at a moment
// at which the volume is not in volumesAttached, so that it forgets that it has
// it mounted. The attach-detach controller takes a volume off for some 0.1 s in
// each try to detach it; this does the same by hand, to hit that moment.
func (n *Node) StartKubeletForgetting(v *Volume) {
	n.stage.T.Helper()
	for range 5 {
		n.KillKubelet()
		n.Unlist(v)
		n.StartKubelet()
		if n.forgets(v, 5*time.Second) {
			return
		}
	}
	n.stage.T.Fatalf("%s: the kubelet of %s did not forget %s in 5 restarts", n.stage.Name, n.Name, v.Name)
}

// WaitForgotten waits until the kubelet, Ready, says that it does not use the
// volume which its machine has mounted.
func (n *Node) WaitForgotten(v *Volume, limit time.Duration) {
	n.stage.T.Helper()
	if !n.forgets(v, limit) {
		n.stage.T.Fatalf("%s: waited %s in vain: the kubelet of %s forgets %s", n.stage.Name, limit, n.Name, v.Name)
	}
}

func (n *Node) forgets(v *Volume, limit time.Duration) bool {
	for began := time.Now(); time.Since(began) < limit; time.Sleep(20 * time.Millisecond) {
		inUse, _ := n.Lists(v)
		if n.Ready() && !inUse && v.MountedOn(n) {
			return true
		}
	}
	return false
}

// Unlist takes the volume off the Node's volumesAttached; the attach-detach controller
// puts it back, if it is attached and is to be, within a second or so.
func (n *Node) Unlist(v *Volume) {
	n.stage.T.Helper()
	n.setAttached(slices.DeleteFunc(n.Get().Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v.uniqueName() }))
}

// setAttached writes the Node's volumesAttached.
func (n *Node) setAttached(volumes []corev1.AttachedVolume) {
	n.stage.T.Helper()
	entries := []string{}
	for _, a := range volumes {
		entries = append(entries, `{"name":`+quote(string(a.Name))+`,"devicePath":`+quote(a.DevicePath)+`}`)
	}
	patch := `{"status":{"volumesAttached":[` + strings.Join(entries, ",") + `]}}`
	_, err := n.stage.Client.CoreV1().Nodes().Patch(n.stage.ctx(), n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	n.stage.must("volumesAttached of "+n.Name, err)
}

// ListAttached puts the volume into the Node's volumesAttached. The attach-detach
// controller leaves it there when it computes its removal from a Node that it read
// before the attach (kubernetes/pkg/controller/volume/attachdetach/statusupdater/
// node_status_updater.go); this does the same by hand, to hit that moment.
func (n *Node) ListAttached(v *Volume) {
	n.stage.T.Helper()
	n.setAttached(append(n.Get().Status.VolumesAttached, corev1.AttachedVolume{Name: v.uniqueName()}))
}

func (v *Volume) uniqueName() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + v.stage.Driver + "^" + v.Handle)
}

// ReadySince is the lastTransitionTime of the Node's Ready condition.
func (n *Node) ReadySince() time.Time {
	node := n.Get()
	if node == nil {
		return time.Time{}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
