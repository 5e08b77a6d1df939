package scenarios

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// origins: the four situations that csi-fencepost was made for, as the people
// tell them who were in them.
var origins = []scenario{
	// Firewall rules drop all traffic of a node. Its Azure disk stays attached to a
	// machine that is otherwise well, and the pod is wanted elsewhere.
	{
		name:    "azure-firewall",
		rule:    "R1: a node behind firewall rules keeps the disk of its Deployment, which it writes to, until it is proven off",
		from:    "https://portworx.com/debugging-errors-kubernetes-azure-network-partition/, k/61832",
		options: bed.StageOptions{Networks: true, Array: trusting},
		story:   firewalled,
	},
	// The kubelet is stopped and the Node deleted, and because the force detach takes
	// six minutes, the VolumeAttachment is deleted by hand, with its finalizer.
	{
		name:    "cstor-node-deleted",
		stage:   "cstor",
		rule:    "R1: a kubelet that is stopped, a Node and a VolumeAttachment that are deleted do not free the volume of containers that write",
		from:    "https://openebs.io/blog/recover-from-volume-multi-attach-error-in-on-prem-kubernetes-clusters/, k/106151",
		options: bed.StageOptions{Array: unlisting},
		story:   nodeAndAttachmentDeleted,
	},
	// A Cassandra StatefulSet on in-tree vsphereVolumes. The Node is deleted, its
	// machine still has the disk, and even after the force detach the next machine
	// cannot add it, until an administrator detaches it by hand. Then the same
	// with the machine powered off, and its return, when its configuration still
	// names the disk.
	{
		name:    "vsphere-cassandra",
		stage:   "vsphere",
		rule:    "R1: the in-tree vSphere volume of a StatefulSet stays on a machine whose Node was deleted until its disk is detached by hand; a machine that comes back with a disk that has moved gets in nobody's way",
		from:    "https://cormachogan.com/2019/06/18/kubernetes-storage-on-vsphere-101-failure-scenarios/, kubernetes-sigs/vsphere-csi-driver#359, k/71829, k/75738",
		options: bed.StageOptions{Driver: vSphere},
		ownBed:  true, // one driver of that name in a cluster
		story:   cassandra,
	},
	// A PostgreSQL on EBS whose node went down: its pod is Unknown, and the next one
	// waits for the volume. The pod is deleted by force; after that it takes the
	// force detach, or a taint that says that the instance is shut down.
	{
		name:    "openshift-postgres",
		stage:   "openshift",
		rule:    "R1: the EBS volume of a PostgreSQL whose pod is Unknown and was deleted by force stays where it is written to; the cloud's shutdown taint, where it is to count, moves it by itself",
		from:    "https://jstakun.blogspot.com/2019/07, k/65392, k/129805",
		options: bed.StageOptions{Array: unlisting, Config: "evidence: {cloudShutdownTaint: true}"},
		story:   postgres,
	},
}

func firewalled(p *play) {
	v, d, old, next := p.database()
	cut := p.partition(old)
	p.PodOf(d.PodName()).ForceDelete() // its replacement waits on the other node
	if !p.guarded() {
		p.given(v, next, cut, "the firewall rules were set")
		return
	}
	waiting := p.replacement(d, next)
	p.stands(v, old, next, waiting, fence.HolderStale)
	p.mustWriteOn(v, old)
	old.PowerOff()
	old.Confirm()
	confirmed := time.Now()
	d.WaitRunningOn(next, 60*time.Second)
	v.WaitPublished(next, 10*time.Second)
	p.outcome("refused, then moved %.1f s after the operator's word", time.Since(confirmed).Seconds())
}

// replacement waits until the Deployment's pod is on that node, running or not.
func (p *play) replacement(d *bed.Deployment, on *bed.Node) *bed.Pod {
	p.t.Helper()
	var pod *bed.Pod
	p.WaitFor(60*time.Second, "the replacement is on "+on.Name, func() bool {
		name := d.PodName()
		if name == "" {
			return false
		}
		pod = p.PodOf(name)
		now := pod.Get()
		return now != nil && now.Spec.NodeName == on.Name
	})
	return pod
}

func nodeAndAttachmentDeleted(p *play) {
	p.attachRequired()
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("percona", old, v)
	db.WaitRunning(60 * time.Second)
	old.KillKubelet() // its containers write on
	old.WaitNotReady()
	db.ForceDelete()
	old.Delete()
	v.StripAttachment(old) // to get round the six minutes
	stripped := time.Now()
	db2 := p.Pod("percona2", next, v)
	if !p.guarded() {
		p.given(v, next, stripped, "the VolumeAttachment was deleted by hand")
		return
	}
	p.stands(v, old, next, db2, fence.HolderUnknown)
	old.PowerOff()
	p.Log("confirmed: %s", old.Confirm())
	p.moves(v, db2, next, "the operator's word")
}

// attachRequired says it of the driver, as cStor's CSIDriver did.
func (p *play) attachRequired() {
	p.t.Helper()
	yes := true
	_, err := p.Client.StorageV1().CSIDrivers().Create(p.t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: p.Driver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &yes}}, metav1.CreateOptions{})
	p.must(err)
}

func postgres(p *play) {
	v, d, old, next := p.database()
	old.CutOff()
	cut := time.Now()
	old.WaitNotReady() // its pod is Unknown to a person who looks
	p.PodOf(d.PodName()).ForceDelete()
	if !p.guarded() {
		p.given(v, next, cut, "the node went silent")
		return
	}
	waiting := p.replacement(d, next)
	p.stands(v, old, next, waiting, fence.HolderStale)
	p.mustWriteOn(v, old)
	old.PowerOff()
	old.Taint(shutdownTaint) // as AWS' node controller does with a stopped instance
	tainted := time.Now()
	d.WaitRunningOn(next, 60*time.Second)
	v.WaitPublished(next, 10*time.Second)
	p.outcome("refused, then moved %.1f s after the cloud's taint", time.Since(tainted).Seconds())
}

// vSphere is the driver to which Kubernetes migrates in-tree vsphereVolumes.
const vSphere = "csi.vsphere.vmware.com"

func cassandra(p *play) {
	const path = "[vsanDatastore] kubevols/cassandra-data-0.vmdk"
	p.must(p.Array.CreateVolume(path, array.VolumeOptions{}))
	v := p.Volume("data", bed.VolumeOptions{Handle: path, Source: &corev1.PersistentVolumeSource{
		VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: path, FSType: "ext4"}}})
	old, next := p.Nodes[0], p.Nodes[1]
	next.Cordon()
	p.StatefulSet("cassandra", v)
	pod := p.PodOf("cassandra-0")
	p.WaitFor(90*time.Second, "cassandra-0 runs", func() bool { return pod.RunsOn(old) })
	next.Uncordon()
	p.mustWriteOn(v, old)

	// The machine lives, its Node is deleted: vSphere's driver then answers an
	// unpublish well, because it knows no such node, and detaches nothing.
	unknown := p.Array.Inject(array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Lie})
	locked := p.Array.Inject(array.Fault{Method: array.Publish, Node: next.ID, Do: array.Fail, Code: codes.Internal, Message: "Failed to add disk 'scsi0:1'."})
	old.CutOff()
	old.WaitNotReady()
	pod.ForceDelete()
	old.Delete()
	deleted := time.Now()
	if p.guarded() {
		p.stands(v, old, next, pod, fence.HolderUnknown)
		if n := locked.Hits(); n > 0 {
			p.t.Errorf("the driver was asked %d times for a disk that another machine has", n)
		}
	} else {
		p.WaitFor(p.patience(), "the disk cannot be added", func() bool { return locked.Hits() > 0 })
		p.outcome("\"Failed to add disk\" %.0f s after the Node was deleted, after the force detach too", time.Since(deleted).Seconds())
	}

	// The administrator detaches the disk by hand, at the machine.
	p.must(p.Array.Detach(v.Handle, old.ID))
	locked.Clear()
	detached := time.Now()
	if p.guarded() {
		p.Command("release", "pv", v.Name, "--node", old.Name, "--reason", "detached in vCenter")
	}
	p.WaitFor(p.patience(), "cassandra-0 runs on the next machine", func() bool { return pod.RunsOn(next) })
	v.WaitPublished(next, 10*time.Second)
	p.outcome("runs elsewhere %.1f s after the disk was detached by hand", time.Since(detached).Seconds())
	unknown.Clear()
	p.vSphereReturns(v, pod, next)
}

// vSphereReturns: the machine that has the disk is powered off, and comes back
// with a configuration that still names it.
func (p *play) vSphereReturns(v *bed.Volume, pod *bed.Pod, off *bed.Node) {
	p.t.Helper()
	third := p.AddNode("n3", "id3", 0)
	off.PowerOff()
	off.WaitNotReady()
	pod.ForceDelete()
	if p.guarded() {
		p.Log("confirmed: %s", off.Confirm())
	}
	gone := time.Now()
	p.WaitFor(p.patience(), "cassandra-0 runs on the third machine", func() bool { return pod.RunsOn(third) })
	p.outcome("powered off: runs elsewhere %.1f s after that", time.Since(gone).Seconds())
	p.mustWriteOn(v, third)

	p.must(p.Array.Attach(v.Handle, off.ID)) // its configuration names the disk
	off.Boot()
	if p.guarded() {
		p.Never(15*time.Second, "the machine that is back got in the way", func() bool { return !pod.RunsOn(third) || !v.AttachedTo(third) })
		p.mustWriteOn(v, third)
	}
	// And the pod can go to that machine again.
	third.Cordon()
	back := p.drainTo(pod, off)
	p.outcome("back on the machine that had come back %.1f s after a drain", back.Seconds())
	if attached := p.Array.Attached(v.Handle); p.guarded() && !slices.Equal(attached, []string{off.ID}) {
		p.t.Errorf("the disk is attached to %q, want %s alone", attached, off.ID)
	}
}

// drainTo deletes the pod in the ordinary way and waits until it runs on n.
func (p *play) drainTo(pod *bed.Pod, n *bed.Node) time.Duration {
	p.t.Helper()
	began := time.Now()
	first := pod.UID()
	p.must(p.Client.CoreV1().Pods(p.Name).Delete(p.t.Context(), pod.Name, metav1.DeleteOptions{}))
	p.WaitFor(p.patience(), fmt.Sprintf("%s runs on %s", pod.Name, n.Name), func() bool { return pod.UID() != first && pod.RunsOn(n) })
	return time.Since(began)
}
