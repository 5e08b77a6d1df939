package kubeapi

import (
	"slices"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// Whoever may write VolumeAttachments takes no volume from a node that uses it.
func TestWhoeverWritesVolumeAttachmentsTakesNoVolumeFromItsHolder(t *testing.T) {
	r := newRig(t, "va-writer", bed.StageOptions{})
	for name, forge := range map[string]func(r *rig, v *bed.Volume, h, target *node){
		"it says that it is not attached": func(r *rig, v *bed.Volume, h, _ *node) {
			r.patchAttachment(v, h, `{"status":{"attached":false}}`, "status")
		},
		"and is deleted": func(r *rig, v *bed.Volume, h, _ *node) {
			r.patchAttachment(v, h, `{"status":{"attached":false}}`, "status")
			r.deleting(v, h)
			h.lists(v, true, false) // the controller goes by it
		},
		"it is stripped": func(r *rig, v *bed.Volume, h, _ *node) {
			r.deleting(v, h)
			r.gone(v, h)
			h.lists(v, true, false)
		},
		"another one has the holder's node ID": func(r *rig, v *bed.Volume, h, target *node) {
			r.attachment(v, target)
			r.patchAttachment(v, target, `{"metadata":{"annotations":{"`+csi.NodeIDAnnotation+`":"`+h.id+`"}}}`)
			r.deleting(v, target)
		},
	} {
		for _, slow := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				parts.take(t)
				r := r.in(t)
				id := forgedName(name, slow)
				v, h, target := r.volume(id), r.node(id+"-holder"), r.node(id+"-target")
				if slow {
					// The first publish takes longer than the attacher waits.
					r.attachment(v, h)
					r.Array.Inject(array.Fault{Method: array.Publish, Volume: v.Handle, Do: array.Fail, Code: codes.DeadlineExceeded, Message: "it takes too long", Times: 1})
					if err := r.publish(v.Handle, h); err == nil {
						t.Fatal("the first publish succeeds")
					}
				}
				r.attach(v, h)
				r.settle()
				forge(r, v, h, target)
				r.settle()
				// It may be answered without a call: the node of that VolumeAttachment has nothing.
				_ = r.unpublish(v.Handle, h)
				r.attachment(v, target)
				r.settle()
				if err := r.publish(v.Handle, target); err == nil {
					t.Error("it is published elsewhere")
				}
				if calls := r.calls(v.Handle); slices.Contains(calls, "unpublish "+h.id) {
					t.Errorf("it is unpublished from the node that uses it: %q", calls)
				}
				r.wantAttached(v.Handle, h)
			})
		}
	}
}

// Whoever may write VolumeAttachments has a volume that nobody holds attached to a node of his
// choice, and others wait for it. Of one that a node holds that comes to nothing.
func TestWhoeverWritesVolumeAttachmentsChoosesTheNodeOfAVolumeThatNobodyHolds(t *testing.T) {
	r := newRig(t, "va-chooser", bed.StageOptions{})
	chosen, h, target := r.node("chosen"), r.node("holder"), r.node("target")
	free, held := r.volume("free"), r.volume("held")
	r.attach(held, h)
	for _, v := range []*bed.Volume{free, held} {
		r.attachment(v, chosen)
	}
	r.settle()
	r.must(r.publish(free.Handle, chosen))
	r.attached(free, chosen)
	r.wantRefused(r.publish(held.Handle, chosen), fence.HolderAlive, h.name)
	r.wantAttached(held.Handle, h)
	r.attachment(free, target)
	r.settle()
	r.wantRefused(r.publish(free.Handle, target), fence.HolderWanted, chosen.name)
	r.deleting(free, chosen)
	r.settle()
	r.must(r.publish(free.Handle, target))
	r.wantAttached(free.Handle, target)
}

func forgedName(of string, slow bool) string {
	name := map[string]string{"it says that it is not attached": "says", "and is deleted": "deleted", "it is stripped": "stripped"}[of]
	if name == "" {
		name = "id"
	}
	if slow {
		name += "-slow"
	}
	return name
}

// Whoever may write CSINodes has external-attacher call for one node with the ID of
// another. A kubelet may write its own only.
func TestWhoeverWritesCSINodesTakesNoVolumeFromItsHolder(t *testing.T) {
	r := newRig(t, "csinode-writer", bed.StageOptions{})
	v, h, other := r.volume("v"), r.node("holder"), r.node("other")
	r.attach(v, h)
	r.settle()
	says := func(n *node, id string) {
		t.Helper()
		api := r.Client.StorageV1().CSINodes()
		if err := api.Delete(r.ctx(), n.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if id != "" {
			_, err := api.Create(r.ctx(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.name},
				Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: r.Driver, NodeID: id}}}}, metav1.CreateOptions{})
			r.must(err)
		}
		r.settle()
	}
	refuses := func(when string) {
		t.Helper()
		if err := r.unpublish(v.Handle, h); err == nil {
			t.Errorf("%s: it is unpublished from the node that uses it", when)
		}
		if err := r.publish(v.Handle, other); err == nil {
			t.Errorf("%s: it is published elsewhere", when)
		}
		r.wantAttached(v.Handle, h)
	}
	r.attachment(v, other)
	says(other, h.id)
	refuses("the other node says that it has the holder's ID")
	r.deleting(v, other)
	refuses("and its VolumeAttachment is being deleted")
	says(h, other.id)
	refuses("and the holder that it has the other's")
	says(h, "")
	refuses("the holder says none")
	says(other, "")
	refuses("nobody says any")
	says(other, other.id)
	refuses("the other node says its own again")
}

// Without the policies, too: what makes a PersistentVolume anew, or changes what may be
// changed of it, takes no volume from a node that the other sources name.
func TestWhoeverWritesPersistentVolumesTakesNoVolumeFromANodeThatShowsIt(t *testing.T) {
	r := newRig(t, "pv-writer", bed.StageOptions{})
	h, target := r.node("holder"), r.node("target")
	pvs := r.Client.CoreV1().PersistentVolumes()
	attached := func(name string) *bed.Volume {
		v := r.volume(name)
		r.attach(v, h)
		r.attachment(v, target)
		r.settle()
		return v
	}
	anew := attached("anew")
	anew.DeletePV()
	anew.CreatePV(bed.VolumeOptions{})
	r.settle()
	r.wantRefused(r.publish(anew.Handle, target), fence.HolderAlive, h.name)
	r.wantAttached(anew.Handle, h)

	many := attached("many")
	_, err := pvs.Patch(r.ctx(), many.Name, types.MergePatchType, []byte(`{"spec":{"accessModes":["ReadWriteMany"]}}`), metav1.PatchOptions{})
	r.must(err)
	r.settle()
	request := r.publishRequest(many.Handle, target)
	request.VolumeCapability = mount(spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
	if _, err := r.proxy.ControllerPublishVolume(r.ctx(), request); err == nil {
		t.Error("a volume that a single writer has is published to another node, since its PersistentVolume says many by now")
	}
	r.wantAttached(many.Handle, h)

	// One of his own sorts before it, and brings along what is no ledger: the ledger does not
	// go there, and the volume does not wait for that.
	third := attached("third")
	time.Sleep(1100 * time.Millisecond) // the API server stamps to the second
	twin := third.PV().DeepCopy()
	twin.ObjectMeta = metav1.ObjectMeta{Name: "0-third-of-" + r.Name, Annotations: map[string]string{ledger.Annotation: "x"}}
	twin.Spec.ClaimRef, twin.Status = nil, corev1.PersistentVolumeStatus{}
	_, err = pvs.Create(r.ctx(), twin, metav1.CreateOptions{})
	r.must(err)
	r.settle()
	r.wantRefused(r.publish(third.Handle, target), fence.HolderAlive, h.name)
	r.letGo(third, h)
	r.settle()
	r.must(r.publish(third.Handle, target))
	r.wantState(third, target, fence.Publishing)

	// One of his own sorts before it, and is being deleted: the ledger does not go there.
	second := attached("second")
	mine := second.PV().DeepCopy()
	mine.ObjectMeta = metav1.ObjectMeta{Name: "0-of-" + r.Name, Finalizers: []string{"example.com/mine"}}
	mine.Spec.ClaimRef, mine.Status = nil, corev1.PersistentVolumeStatus{}
	_, err = pvs.Create(r.ctx(), mine, metav1.CreateOptions{})
	r.must(err)
	r.must(pvs.Delete(r.ctx(), mine.Name, metav1.DeleteOptions{}))
	r.settle()
	r.wantRefused(r.unpublish(second.Handle, h), fence.HolderAlive, h.name)
	r.wantState(second, h, fence.Publishing)
	_, err = pvs.Patch(r.ctx(), mine.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	r.must(err)
	r.settle()
	r.wantRefused(r.publish(second.Handle, target), fence.HolderAlive, h.name)
	r.wantState(second, h, fence.Publishing)
	r.wantAttached(second.Handle, h)
}

// Whoever may write the status of all Nodes says of a node that lives what its kubelet could say of
// itself: that a volume is not in use, or that it has booted since the volume is being detached from it, once it
// was heard in the boot before. Nothing but nodes.yaml keeps him from it. What he writes besides moves nothing.
func TestWhoeverWritesTheStatusOfAllNodesGivesUpTheirVolumes(t *testing.T) {
	r := newRig(t, "status-writer", bed.StageOptions{})
	h, target := r.node("holder"), r.node("target")
	given, kept := r.volume("given"), r.volume("kept")
	h.renew()
	for _, v := range []*bed.Volume{given, kept} {
		r.attach(v, h)
		h.lists(v, true, true)
		r.deleting(v, h)
		r.attachment(v, target)
	}
	h.renew()
	h.lists(kept, true, false) // what is attached is the controller's word
	r.settle()
	r.wantRefused(r.unpublish(kept.Handle, h), fence.HolderAlive, h.name)
	h.status(func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "another" })
	r.settle()
	if err := r.unpublish(kept.Handle, h); err == nil {
		t.Error("by a boot that its kubelet did not say it is unpublished")
	}
	if err := r.publish(kept.Handle, target); err == nil {
		t.Error("by a boot that its kubelet did not say it is published elsewhere")
	}
	r.wantAttached(kept.Handle, h)
	h.status(func(s *corev1.NodeStatus) { s.NodeInfo.BootID = h.boot })

	h.lists(given, false, false)
	r.settle()
	r.must(r.unpublish(given.Handle, h))
	r.must(r.publish(given.Handle, target))
	r.wantAttached(given.Handle, target)

	// A boot counts of a machine that its system UUID tells.
	b := r.node("booted")
	b.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = claimedUUID("51") })
	b.renew()
	r.settle()
	u := r.usedOn(b, "booted", target)
	r.keepsRenewing(b)
	r.settle()
	r.wantKept("it uses it", u)
	time.Sleep(1100 * time.Millisecond)
	b.status(nothingButAHeartbeat)
	r.settle()
	r.wantKept("it is heard", u)
	b.status(func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "another" })
	r.settle()
	r.must(r.publish(u.Handle, target))
	r.wantAttached(u.Handle, target)
}

// Where a configuration believes the cloud's taint, whoever patches Nodes says by it that a silent node is
// off; of one that renews its lease he says nothing by it, and nothing anywhere else.
func TestWhoeverPutsTheCloudsShutdownTaintOnSaysThatASilentNodeIsOff(t *testing.T) {
	for name, believed := range map[string]bool{"cloud-taint": true, "cloud-taint-off": false} {
		t.Run(name, func(t *testing.T) {
			o := bed.StageOptions{}
			if believed {
				o.Config = "evidence: {cloudShutdownTaint: true}"
			}
			r := newRig(t, name, o)
			v, old, target := r.volume("v"), r.node("old"), r.node("target")
			old.renew()
			r.attach(v, old)
			old.lists(v, true, false)
			time.Sleep(1100 * time.Millisecond)
			old.spec(func(s *corev1.NodeSpec) {
				s.Taints = append(s.Taints, corev1.Taint{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule})
			})
			r.deleting(v, old)
			r.attachment(v, target)
			old.renew()
			r.settle()
			r.wantRefused(r.publish(v.Handle, target), fence.HolderAlive, old.name)
			old.spec(func(s *corev1.NodeSpec) { s.Taints = nil })
			old.fallSilent()
			time.Sleep(suspectAfter + 500*time.Millisecond)
			old.spec(func(s *corev1.NodeSpec) {
				s.Taints = append(s.Taints, corev1.Taint{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule})
			})
			r.settle()
			if !believed {
				r.wantRefused(r.publish(v.Handle, target), fence.HolderStale, old.name)
				r.wantAttached(v.Handle, old)
				return
			}
			r.must(r.publish(v.Handle, target))
			r.wantAttached(v.Handle, target)
		})
	}
}

// A device that reads a running machine as off, and says not whose machine it is: nothing follows from
// it of a node that renews its lease, and it is believed of one that is silent.
func TestADeviceThatLiesIsBelievedOfASilentNodeOnly(t *testing.T) {
	r := newRigWithout(t, "liar", bed.StageOptions{})
	plugs := r.Plugs("fence_bmc")
	lives, silent, target := r.node("lives"), r.node("silent"), r.node("target")
	r.Options.Config = "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, nodeParameters: {plug: {" +
		lives.name + ": one, " + silent.name + ": two}}}}]}]}"
	for _, plug := range []string{"one", "two"} {
		r.must(plugs.Set(plug, false))
	}
	r.start("fp")
	r.proxy = r.dial("fp")
	volumes := map[*node]*bed.Volume{lives: r.volume("of-lives"), silent: r.volume("of-silent")}
	for n, v := range volumes {
		n.renew()
		r.attach(v, n)
		n.lists(v, true, false)
		r.deleting(v, n)
		r.attachment(v, target)
	}
	refused := func(n *node) {
		t.Helper()
		r.wantRefused(r.publish(volumes[n].Handle, target), fence.HolderAlive, n.name)
		r.wantAttached(volumes[n].Handle, n)
	}
	r.settle()
	lives.renew()
	silent.renew()
	r.settle()
	refused(lives)
	refused(silent)
	silent.fallSilent()
	for end := time.Now().Add(suspectAfter + 2*time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		lives.renew()
	}
	refused(lives) // its device has said off for a while
	r.must(r.publish(volumes[silent].Handle, target))
	r.wantAttached(volumes[silent].Handle, target)
	refused(lives)
}
