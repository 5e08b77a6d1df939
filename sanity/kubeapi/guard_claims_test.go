package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// usedBy is a volume that a node uses which renews its lease, while another one waits for it.
type usedBy struct {
	*bed.Volume
	holder, target *node
}

func (r *rig) used(name string, target *node) *usedBy {
	r.t.Helper()
	n := r.node(name)
	n.renew()
	return r.usedOn(n, name, target)
}

// silent is such a volume of a node that nobody hears any more, and that has no lease.
func (r *rig) silent(name string, target *node) *usedBy {
	r.t.Helper()
	u := r.usedOn(r.node(name), name, target)
	u.holder.fallSilent()
	return u
}

func (r *rig) usedOn(n *node, name string, target *node) *usedBy {
	r.t.Helper()
	u := &usedBy{r.volume(name), n, target}
	r.attach(u.Volume, u.holder)
	u.holder.lists(u.Volume, true, false)
	r.deleting(u.Volume, u.holder)
	r.attachment(u.Volume, target)
	return u
}

func (r *rig) attachmentUID(u *usedBy) string {
	r.t.Helper()
	va, err := r.Client.StorageV1().VolumeAttachments().Get(r.ctx(), csi.AttachmentName(u.Handle, r.Driver, u.holder.name), metav1.GetOptions{})
	r.must(err)
	return string(va.UID)
}

// wantKept fails unless the holder keeps the volume, whoever asks.
func (r *rig) wantKept(what string, u *usedBy) {
	r.t.Helper()
	if err := r.unpublish(u.Handle, u.holder); err == nil {
		r.t.Errorf("%s: it is unpublished from the node that uses it", what)
	}
	if err := r.publish(u.Handle, u.target); err == nil {
		r.t.Errorf("%s: it is published elsewhere", what)
	}
	if calls := r.calls(u.Handle); len(calls) != 1 {
		r.t.Errorf("%s: the driver was called with %q", what, calls)
	}
}

// Without the policies, too: what is written into the record of a node that renews its lease
// takes no volume from it that it uses, but a fence at the storage of the volume's own driver.
func TestWhoeverWritesRecordsTakesNoVolumeFromANodeThatRenewsItsLease(t *testing.T) {
	r := newRig(t, "record-writer", bed.StageOptions{})
	fenced := func(rec *record.Record, kind fence.Kind, driver string, m record.FencedMachine) {
		rec.PutFence(record.Fence{ID: "f", Kind: kind, Driver: driver, Phase: record.Fenced, Actor: "x", Agents: []string{"x"}, Machine: m}, "Fenced")
	}
	release := func(rec *record.Record, u *usedBy, life record.Life, m record.FencedMachine) {
		rec.AddRelease(record.Release{ID: "r", Volume: u.Handle, Driver: r.Driver, NodeID: u.holder.id, NodeUID: m.NodeUID, BootID: m.BootID, LeaseRV: m.LeaseRV,
			Attachment: r.attachmentUID(u), Token: r.readLedger(u.Volume).Get(u.holder.id).Token, Life: life, By: "x", Reason: "x"})
	}
	forged := map[string]func(rec *record.Record, u *usedBy, m record.FencedMachine){
		"confirmed": func(rec *record.Record, u *usedBy, m record.FencedMachine) {
			rec.AddConfirmation(record.Confirmation{ID: "c", By: "x", Reason: "x", Machines: []record.Machine{{NodeID: u.holder.id, NodeUID: m.NodeUID, BootID: m.BootID, LeaseRV: m.LeaseRV}}})
		},
		"power": func(rec *record.Record, _ *usedBy, m record.FencedMachine) { fenced(rec, fence.PowerReading, "", m) },
		"another": func(rec *record.Record, _ *usedBy, m record.FencedMachine) {
			fenced(rec, fence.StorageFence, "another.test", m)
		},
		"tainted": func(rec *record.Record, _ *usedBy, m record.FencedMachine) {
			rec.Taints = map[string]record.TaintBinding{corev1.TaintNodeOutOfService: {NodeUID: m.NodeUID, BootID: m.BootID, LeaseRV: m.LeaseRV, NodeRV: "1"}}
		},
		"silent": func(rec *record.Record, u *usedBy, m record.FencedMachine) { release(rec, u, record.Silent, m) },
		"gone":   func(rec *record.Record, u *usedBy, m record.FencedMachine) { release(rec, u, record.Gone, m) },
		"living": func(rec *record.Record, u *usedBy, m record.FencedMachine) { release(rec, u, record.Living, m) },
	}
	target, all := r.node("target"), map[string]*usedBy{}
	for what := range forged {
		all[what] = r.used(what, target)
	}
	for what, u := range all {
		u.holder.renew()
		m := record.FencedMachine{NodeUID: u.holder.uid, BootID: u.holder.boot, LeaseRV: u.holder.leaseRV()}
		_, err := r.records().Update(r.ctx(), u.holder.name, func(rec *record.Record) (bool, error) { forged[what](rec, u, m); return true, nil })
		r.must(err)
	}
	r.settle()
	for what, u := range all {
		r.wantKept(what, u)
	}
}

// A lease says that its node lives by changing. Whatever is written into it, or that it is
// gone, makes no living node look dead: neither where silence is enough
// (unpublishRevokesAccess), nor where the Node's absence is (nodeDeleted).
func TestWhoeverWritesNodeLeasesMakesNoLivingNodeLookDead(t *testing.T) {
	r := newRig(t, "lease-writer", bed.StageOptions{Config: "driver: {unpublishRevokesAccess: true}\nevidence: {nodeDeleted: true}"})
	leases := r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	forged := map[string]string{
		"past": `{"renewTime":"2020-01-01T00:00:00.000000Z"}`, "future": `{"renewTime":"2100-01-01T00:00:00.000000Z"}`, "never": `{"renewTime":null,"acquireTime":null}`,
		"short": `{"leaseDurationSeconds":1}`, "another": `{"holderIdentity":"another"}`, "deleted": "",
	}
	target, all := r.node("target"), map[string]*usedBy{}
	for what := range forged {
		all[what] = r.used(what, target)
	}
	for _, u := range all {
		u.holder.renew() // as its kubelet does every ten seconds, whatever others write
	}
	r.settle()
	for what, u := range all {
		if forged[what] == "" {
			r.must(leases.Delete(r.ctx(), u.holder.name, metav1.DeleteOptions{}))
		} else {
			_, err := leases.Patch(r.ctx(), u.holder.name, types.MergePatchType, []byte(`{"spec":`+forged[what]+`}`), metav1.PatchOptions{})
			r.must(err)
		}
		u.holder.fallSilent() // as Kubernetes' own controller may take it for
	}
	r.settle()
	for what, u := range all {
		r.wantKept(what, u)
	}
}

// Whoever may delete Nodes, and what else tells of them, proves nothing by that. A machine
// that takes the name has not the volume's holder's word.
func TestWhoeverDeletesNodesTakesNoVolumeFromItsHolder(t *testing.T) {
	r := newRig(t, "node-deleter", bed.StageOptions{})
	v, h, target := r.volume("v"), r.node("holder"), r.node("target")
	h.renew()
	r.attach(v, h)
	r.attachment(v, target)
	refuses := func(when string) {
		t.Helper()
		r.settle()
		if err := r.unpublish(v.Handle, h); err == nil {
			t.Errorf("%s: it is unpublished from the machine that uses it", when)
		}
		r.wantRefused(r.publish(v.Handle, target), fence.HolderUnknown, h.name)
	}
	h.delete()
	refuses("the Node is gone")
	r.must(r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(r.ctx(), h.name, metav1.DeleteOptions{}))
	refuses("and its lease")
	r.deleting(v, h)
	r.gone(v, h)
	refuses("and its VolumeAttachment")
	_, err := r.Client.CoreV1().Nodes().Create(r.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name}}, metav1.CreateOptions{})
	r.must(err)
	h.status(func(s *corev1.NodeStatus) {
		s.NodeInfo.BootID, s.NodeInfo.SystemUUID = "another-boot", "another-machine"
	})
	refuses("and a Node that uses nothing has its name")
	r.wantCalls(v.Handle, "publish "+h.id)
}

// registersAgain is a machine whose Node was deleted, and whose kubelet makes another one.
func (n *node) registersAgain() {
	n.r.t.Helper()
	made, err := n.r.Client.CoreV1().Nodes().Create(n.r.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}, metav1.CreateOptions{})
	n.r.must(err)
	n.uid = string(made.UID)
	n.status(func(s *corev1.NodeStatus) {
		s.NodeInfo.BootID = n.boot
		s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	})
}

// With evidence.nodeDeleted whoever deletes a Node claims that its machine is gone, and with
// driver.unpublishRevokesAccess he has its volumes unpublished from it, as from a silent node.
func TestWhoeverDeletesNodesSaysNoMoreThanThatTheyAreGone(t *testing.T) {
	const bmc = "\nfencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, nodeParameters: {plug: {NAME-read-on: p1}}}}]}]}"
	set := func(r *rig) (of func(string) *usedBy) {
		target := r.node("target")
		return func(name string) *usedBy { return r.used(name, target) }
	}
	alive := func(r *rig, all ...*usedBy) {
		r.settle()
		for _, u := range all {
			u.holder.renew()
		}
		r.settle()
	}
	moved := func(u *usedBy) []string {
		return []string{"publish " + u.holder.id, "unpublish " + u.holder.id, "publish " + u.target.id}
	}
	t.Run("evidence.nodeDeleted", func(t *testing.T) {
		r := newRigWithout(t, "deleted-proves", bed.StageOptions{Config: "evidence: {nodeDeleted: true}" + strings.ReplaceAll(bmc, "NAME", "deleted-proves")})
		r.must(r.Plugs("fence_bmc").Set("p1", true))
		r.start("fp")
		r.proxy = r.dial("fp")
		of := set(r)
		renews, registers, on, other, gone := of("renews"), of("registers"), of("read-on"), of("other"), of("gone")
		for _, u := range []*usedBy{renews, registers, on, gone} {
			u.holder.delete()
			if u != renews { // whose kubelet goes on
				r.must(r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(r.ctx(), u.holder.name, metav1.DeleteOptions{}))
			}
		}
		registers.holder.registersAgain()
		alive(r, renews, registers, other)
		r.wantKept("its kubelet renews its lease", renews)
		r.wantKept("it has registered again", registers)
		r.wantKept("an agent reads it as on", on)
		r.wantKept("another Node was deleted", other)
		r.must(r.publish(gone.Handle, gone.target))
		r.wantCalls(gone.Handle, moved(gone)...)
	})
	t.Run("driver.unpublishRevokesAccess", func(t *testing.T) {
		r := newRig(t, "deleted-revoked", bed.StageOptions{Config: "driver: {unpublishRevokesAccess: true}"})
		of := set(r)
		registers, other, gone := of("registers"), of("other"), of("gone")
		registers.holder.delete()
		gone.holder.delete()
		registers.holder.registersAgain()
		alive(r, registers, other)
		r.wantKept("it has registered again", registers)
		r.wantKept("another Node was deleted", other)
		// Its access is taken first: the Node's absence by itself moves nothing.
		busy := r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: gone.Handle, Do: array.Fail, Message: "the array is busy"})
		r.wantRefused(r.publish(gone.Handle, gone.target), fence.UnpublishFailed, gone.holder.name, "the array is busy")
		r.wantAttached(gone.Handle, gone.holder)
		busy.Clear()
		r.must(r.publish(gone.Handle, gone.target))
		r.wantAttached(gone.Handle, gone.target)
	})
}

// A node that is NotReady and whose Lease is deleted looks silent to a sidecar that has just
// started, until its kubelet makes the Lease anew. That takes the volume only where silence is
// enough (unpublishRevokesAccess), and only from the node of which both are so.
func TestWhoeverDeletesTheLeaseOfANodeThatIsNotReadyMakesItLookSilentUntilItIsBack(t *testing.T) {
	for _, o := range []struct {
		name, config string
		moves        bool
	}{{"lease-gone-revoked", "driver: {unpublishRevokesAccess: true}", true}, {"lease-gone", "evidence: {nodeDeleted: true}", false}} {
		t.Run(o.config, func(t *testing.T) {
			r := newRigWithout(t, o.name, bed.StageOptions{Config: o.config})
			before := r.start("fp")
			r.proxy = r.dial("fp")
			target := r.node("target")
			silent, back, ready, there := r.used("silent", target), r.used("back", target), r.used("ready", target), r.used("there", target)
			before.Stop(5 * time.Second)
			for _, u := range []*usedBy{silent, back, ready, there} {
				if u != ready {
					u.holder.fallSilent() // as Kubernetes' own controller may take it for
				}
				if u != there {
					r.must(r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(r.ctx(), u.holder.name, metav1.DeleteOptions{}))
				}
			}
			r.start("fp")
			r.wantKept("it is Ready", ready)
			r.wantKept("its Lease is there", there)
			if !o.moves {
				r.wantRefused(r.publish(silent.Handle, target), fence.HolderUnknown, silent.holder.name)
				r.wantKept("silence is not enough", silent)
			}
			back.holder.renew()
			r.wantKept("its kubelet has made the Lease anew", back)
			if o.moves {
				r.must(r.publish(silent.Handle, target))
				r.wantAttached(silent.Handle, target)
			}
		})
	}
}

// Whoever makes the objects of csi-addons and medik8s proves nothing by that: the driver's own
// list has to say so, or somebody to have switched on that they are believed.
func TestWhoeverMakesFencingObjectsTakesNoVolumeFromItsHolder(t *testing.T) {
	r := newRig(t, "object-writer", bed.StageOptions{Array: func(s *array.Switches) { s.NetworkFence = true }})
	v, h, target := r.volume("v"), r.node("holder"), r.node("target")
	const address = "192.0.2.77"
	r.must(r.Array.SetAddresses(h.id, address))
	h.status(func(s *corev1.NodeStatus) {
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	})
	r.attach(v, h)
	h.lists(v, true, false)
	h.fallSilent()
	r.deleting(v, h)
	r.attachment(v, target)
	fences, far, self := networkFence.at(common), remediation.at(common), selfRemediation.at(common)
	for _, kind := range []customKind{fences, far, self} {
		kind.install(t)
	}
	fences.put(t, h.name, fields{"driver": r.Driver, "fenceState": "Fenced", "cidrs": []string{address + "/32"}}, fields{"result": "Succeeded", "message": "fencing operation successful"})
	far.put(t, h.name, fields{}, fields{"conditions": []any{fields{"type": "FenceAgentActionSucceeded", "status": "True", "reason": "FenceAgentSucceeded"}}})
	self.put(t, h.name, fields{}, fields{"phase": "Reboot-Completed"})
	r.settle()
	for range 2 { // what is seen for the first time is bound, and counts the second time
		r.wantRefused(r.publish(v.Handle, target), fence.EvidenceVoid, h.name, "does not confirm it")
		r.wantRefused(r.unpublish(v.Handle, h), fence.EvidenceVoid, h.name)
	}
	r.wantCalls(v.Handle, "publish "+h.id)
	r.must(r.addons().Fence(r.ctx(), addons.Credentials{}, []netip.Prefix{netip.MustParsePrefix(address + "/32")}))
	r.must(r.publish(v.Handle, target))
}

// Where a configuration believes the remediations of medik8s, whoever makes one says by it that a silent node
// is off, also with the policies in force; of one that renews its lease he says nothing, however often he does.
func TestWhoeverMakesRemediationsThatAreBelievedSaysThatASilentNodeIsOff(t *testing.T) {
	r := newRigOn(t, policed, "remediated", bed.StageOptions{Config: "evidence: {outOfServiceTaint: false, fenceAgentsRemediation: true, selfNodeRemediation: true}"})
	r.writer("csi-fencepost-writer-of-")
	target, far, self := r.node("target"), remediation.at(policed), selfRemediation.at(policed)
	claims := map[customKind]fields{
		far:  {"conditions": []any{fields{"type": "FenceAgentActionSucceeded", "status": "True", "reason": "FenceAgentSucceeded"}}},
		self: {"phase": "Reboot-Completed"},
	}
	for kind := range claims {
		kind.install(t)
	}
	r.start("fp")
	r.proxy = r.dial("fp")
	lives := r.used("lives", target)
	lives.holder.fallSilent() // as Kubernetes' own controller may take it for
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		lives.holder.renew()
		for kind, claim := range claims {
			kind.put(t, lives.holder.name, fields{}, claim)
		}
		r.settle()
		for range 2 { // what is seen for the first time is bound, and counts the second time
			r.wantKept("its kubelet renews its lease", lives)
		}
		for kind := range claims {
			kind.remove(t, lives.holder.name)
		}
	}
	for kind, claim := range claims {
		u := r.silent(strings.ToLower(kind.name), target)
		r.settle()
		r.wantKept("nobody says anything of it", u)
		kind.put(t, u.holder.name, fields{}, claim)
		r.WaitFor(10*time.Second, "a "+kind.name+" is believed of a silent node", func() bool { return r.publish(u.Handle, target) == nil })
		r.wantAttached(u.Handle, target)
	}
}

// addons is the array as its csi-addons sidecar calls it.
func (r *rig) addons() *addons.Client {
	r.t.Helper()
	conn, err := grpc.NewClient("unix:"+r.Socket("csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.must(err)
	r.t.Cleanup(func() { conn.Close() })
	return addons.NewClient(conn)
}

// Whoever patches Nodes lifts no fence: what a kubelet was seen to list stands in the node's
// record, and not in an annotation, in which the version before kept it.
func TestWhoeverAnnotatesANodeLiftsNoFence(t *testing.T) {
	r := newRigWithout(t, "annotated", bed.StageOptions{Failover: true, Array: func(s *array.Switches) { s.NetworkFence = true },
		Config: "failover: {enabled: true}\nfencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: array, timeout: 5s, csiAddons: {}}]}]}"})
	n := r.node("n")
	const address = "192.0.2.78"
	r.must(r.Array.SetAddresses(n.id, address))
	n.status(func(s *corev1.NodeStatus) {
		s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	})
	n.renew()
	r.must(r.addons().Fence(r.ctx(), addons.Credentials{}, []netip.Prefix{netip.MustParsePrefix(address + "/32")}))
	rv := n.leaseRV()
	_, err := r.records().Update(r.ctx(), n.name, func(rec *record.Record) (bool, error) {
		rec.PutFence(record.Fence{ID: "f", Kind: fence.StorageFence, Driver: r.Driver, Phase: record.Fenced, Actor: "x", Agents: []string{"array"},
			Machine: record.FencedMachine{NodeUID: n.uid, BootID: n.boot, LeaseRV: rv}}, "Fenced")
		return true, nil
	})
	r.must(err)
	witness, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		"csi-fencepost.io/witness": fmt.Sprintf("boot %s, ready since %s, fence %s", n.boot, n.since.UTC().Format(time.RFC3339), rv)}}})
	r.must(err)
	_, err = r.Client.CoreV1().Nodes().Patch(r.ctx(), n.name, types.MergePatchType, witness, metav1.PatchOptions{})
	r.must(err)
	r.start("fp")
	n.renew()
	r.WaitEvent("Node", n.name, 30*time.Second, "FencepostFencingBlocked", "Reboot it")
	r.Never(2*time.Second, "the fence is lifted", func() bool { return !r.Array.CutOff(n.id) })
	rec, err := r.records().Get(r.ctx(), n.name)
	if err != nil || rec.Fence(fence.StorageFence, r.Driver) == nil {
		t.Errorf("the record: %+v, %v", rec, err)
	}
}

// What is written into a record of a taint makes none: it has to be on the Node, and to be
// believed at all.
func TestWhoeverWritesRecordsHasNoTaintBelievedThatIsNotThere(t *testing.T) {
	bound := func(r *rig, n *node, rv string) {
		r.t.Helper()
		_, err := r.records().Update(r.ctx(), n.name, func(rec *record.Record) (bool, error) {
			rec.Taints = map[string]record.TaintBinding{corev1.TaintNodeOutOfService: {NodeUID: n.uid, BootID: n.boot, LeaseRV: rv, NodeRV: "1"}}
			return true, nil
		})
		r.must(err)
	}
	dead := func(r *rig) (*bed.Volume, *node, *node) {
		r.t.Helper()
		v, target := r.volume("v"), r.node("target")
		old := r.node("old")
		old.renew()
		r.attach(v, old)
		old.powerOff()
		old.lists(v, true, false)
		r.deleting(v, old)
		r.attachment(v, target)
		time.Sleep(suspectAfter + watchLag)
		return v, old, target
	}
	refuses := func(r *rig, v *bed.Volume, old, target *node, when string) {
		r.t.Helper()
		r.settle()
		if err := r.publish(v.Handle, target); err == nil {
			r.t.Errorf("%s: it is published elsewhere", when)
		}
		if err := r.unpublish(v.Handle, old); err == nil {
			r.t.Errorf("%s: it is unpublished", when)
		}
		r.wantCalls(v.Handle, "publish "+old.id)
	}
	t.Run("no taint is on the Node", func(t *testing.T) {
		r := newRig(t, "untainted", bed.StageOptions{})
		v, old, target := dead(r)
		bound(r, old, old.leaseRV())
		refuses(r, v, old, target, "it is silent")
	})
	t.Run("none is believed", func(t *testing.T) {
		r := newRig(t, "unbelieved", bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}"})
		v, old, target := dead(r)
		old.taint()
		rv := old.leaseRV()
		bound(r, old, rv)
		refuses(r, v, old, target, "it is tainted")
		old.delete()
		bound(r, old, rv)
		refuses(r, v, old, target, "and gone")
	})
}

// What is written into a node's record as a storage fence, in force or withdrawn, has no other
// machine's access given back whose own fence stands, however its address is written there.
func TestWhoeverWritesRecordsOpensNoAddressThatAnotherNodesFenceNames(t *testing.T) {
	// While any record cannot be read, as other tests have it on the shared API server, what a
	// withdrawn fence cut stays cut.
	own := &server{}
	t.Cleanup(func() { must(t, own.stop()) })
	r := newRigOn(t, own, "opened", bed.StageOptions{Array: func(s *array.Switches) { s.NetworkFence = true },
		Config: "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: array, timeout: 5s, csiAddons: {}}]}]}"})
	addresses := map[string]string{"victim": "192.0.2.81", "withdrawn": "192.0.2.83", "in-force": "192.0.2.85"}
	nodes := map[string]*node{}
	for name, address := range addresses {
		n := r.node(name)
		r.must(r.Array.SetAddresses(n.id, address))
		n.status(func(s *corev1.NodeStatus) {
			s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		})
		n.renew()
		nodes[name] = n
	}
	victim := nodes["victim"]
	put := func(n *node, blocks string, withdrawn bool) {
		t.Helper()
		_, err := r.records().Update(r.ctx(), n.name, func(rec *record.Record) (bool, error) {
			rec.PutFence(record.Fence{ID: "f", Kind: fence.StorageFence, Driver: r.Driver, Phase: record.Fenced, Actor: "x", Agents: []string{"array"},
				Machine: record.FencedMachine{NodeUID: n.uid, BootID: n.boot, LeaseRV: n.leaseRV()},
				Steps:   []record.FenceStep{{Agent: "array", Action: "off", Detail: "fence " + blocks + " at driver " + r.Driver}}}, "Fenced")
			if withdrawn {
				rec.WithdrawFence("f", "x", "x")
			}
			return true, nil
		})
		r.must(err)
	}
	const nobodys = "192.0.2.99/32"
	r.must(r.addons().Fence(r.ctx(), addons.Credentials{}, []netip.Prefix{netip.MustParsePrefix("192.0.2.81/32"), netip.MustParsePrefix(nobodys)}))
	put(victim, "192.0.2.81/32", false)
	const blocks = "192.0.2.81/32, ::ffff:192.0.2.81/128, 192.0.2.80/31, " + nobodys
	for _, name := range []string{"withdrawn", "in-force"} {
		put(nodes[name], blocks, name == "withdrawn")
		r.must(os.WriteFile(r.Socket("config.yaml"), []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"+r.Options.Config+"\n"), 0o644))
		got := execute(t, r.Bed.Fencepost, "fence", "on", nodes[name].name, "--reason=repaired", "--yes", "--config="+r.Socket("config.yaml"),
			"--csi-address="+r.Socket("csi.sock"), "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())
		if !r.Array.CutOff(victim.id) {
			t.Errorf("%s: the victim has its access back: %+v", name, got)
		}
		if fences := r.Array.Fences(); slices.Contains(fences, nobodys) {
			t.Errorf("%s: what it may open is not opened, so that nothing is shown: %v, %+v", name, fences, got)
		}
		r.must(r.addons().Fence(r.ctx(), addons.Credentials{}, []netip.Prefix{netip.MustParsePrefix(nobodys)}))
	}
}
