package kubeapi

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// claims is a sidecar that may fence, with the policies in force, and machines whose power
// switches are named by what their kubelets say of them.
type claims struct {
	*rig
	plugs bed.Plugs
	by    string   // which parameter the sidecar's agent finds machines
	names []string // of the plugs
	guard *controlplane.Process
}

func newClaims(t *testing.T, name string, plugs ...string) *claims {
	t.Helper()
	return newClaimsBy(t, name, byUUID, plugs...)
}

// newClaimsBy is newClaims with another parameter by which the agent finds machines.
func newClaimsBy(t *testing.T, name, parameter string, plugs ...string) *claims {
	t.Helper()
	// It writes no record of the nodes that the tests beside it taint.
	r := newRigThatAnswers(t, name, bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}\n" +
		"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, " + parameter + "}}]}]}"})
	r.writer("csi-fencepost-writer-of-", "csi-fencepost-fencer-")
	c := &claims{rig: r, plugs: r.Plugs("fence_bmc"), by: parameter, names: plugs}
	c.on()
	c.guard = r.start("fp")
	r.proxy = r.dial("fp")
	return c
}

// on turns all machines on.
func (c *claims) on() {
	c.t.Helper()
	for _, plug := range c.names {
		c.must(c.plugs.Set(plug, true))
	}
}

// off has the node fenced by an agent with that parameter, with all machines on and with the
// rights of the sidecar, and fails unless exactly these machines are off then: one, or none,
// and the command is refused.
func (c *claims) off(n *kubelet, parameter string, machines ...string) answer {
	c.t.Helper()
	c.on()
	config, err := os.ReadFile(c.Socket("config.yaml"))
	c.must(err)
	path := c.Write("off.yaml", strings.Replace(string(config), c.by, parameter, 1), 0o600)
	a := execute(c.t, c.Bed.Fencepost, "fence", "off", n.name, "--reason=silent", "--force", "--yes", "--config="+path, "--agent-dirs="+c.Socket("agents"),
		"--driver="+c.Driver, "--kubeconfig="+c.ServiceAccountKubeconfig())
	if want := 1 - min(1, len(machines)); a.code != want {
		c.t.Errorf("fence off of %s by %s ends with %d, want %d:\n%s%s", n.name, parameter, a.code, want, a.stdout, a.stderr)
	}
	for _, plug := range c.names {
		state, err := os.ReadFile(c.Socket("plugs/" + plug))
		if off := strings.TrimSpace(string(state)) == "OFF"; err != nil || off != slices.Contains(machines, plug) {
			c.t.Errorf("after fence off of %s by %s machine %s is off: %v (%v)", n.name, parameter, plug, off, err)
		}
	}
	return a
}

const (
	byUUID     = "parameters: {plug: $(SYSTEM_UUID)}"
	byInstance = "parameters: {plug: $(INSTANCE_ID)}"
)

// person runs a command of the operators.
func (c *claims) person(args ...string) answer {
	c.t.Helper()
	return execute(c.t, c.Bed.Fencepost, append(args, "--reason=looked", "--yes", "--kubeconfig="+c.Bed.Cluster.AdminKubeconfig())...).ends(c.t, 0)
}

// waitBound waits until that is bound to the node: the value, then " after NODE" of one that had it
// first, or " as NODE" of one that has it too.
func (c *claims) waitBound(n *kubelet, kind, want string) {
	c.t.Helper()
	c.WaitFor(40*time.Second, "of "+n.name+" is bound: "+want, func() bool { return n.bound(kind) == want })
}

// holdsUntilBound: what the node holds waits once it is silent, though the machine whose value it
// says reads off: nobody knows whose that is. A person says it.
func (c *claims) holdsUntilBound(v *bed.Volume, n *kubelet, machine string, target *node) {
	c.t.Helper()
	c.must(c.plugs.Set(machine, false))
	n.fallSilent()
	n.lists(v, true, false)
	c.deleting(v, n.node)
	c.attachment(v, target)
	c.WaitFor(40*time.Second, n.name+" is silent", func() bool {
		err := c.publish(v.Handle, target)
		if err == nil {
			c.t.Fatalf("%s is published elsewhere, while nobody knows whose machine is off", v.Name)
		}
		return strings.Contains(status.Convert(err).Message(), "["+string(fence.HolderStale)+"]")
	})
	c.Never(5*time.Second, v.Name+" is published elsewhere", func() bool { return c.publish(v.Handle, target) == nil })
	c.wantCalls(v.Handle, "publish "+n.id)
	c.person("fence", "bind", n.name)
	c.WaitFor(40*time.Second, v.Name+" is published elsewhere", func() bool { return c.publish(v.Handle, target) == nil })
}

// kubelet is a machine of which Kubernetes knows nothing yet, with the credential by which its
// kubelet registers. That writes all that is said of the machine.
type kubelet struct {
	*node
	api kubernetes.Interface
}

func (c *claims) kubelet(name string) *kubelet {
	c.t.Helper()
	n := c.strangerNode(name)
	return &kubelet{n, n.as()}
}

// registers makes Node and CSINode.
func (k *kubelet) registers(systemUUID string) {
	k.r.t.Helper()
	k.boot = "boot-1-of-" + k.id
	made, err := k.api.CoreV1().Nodes().Create(k.r.ctx(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: map[string]string{corev1.LabelHostname: k.name}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: k.boot, SystemUUID: systemUUID},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastTransitionTime: metav1.NewTime(k.since), LastHeartbeatTime: metav1.Now()}}},
	}, metav1.CreateOptions{})
	k.r.must(err)
	k.uid = string(made.UID)
	_, err = k.api.StorageV1().CSINodes().Create(k.r.ctx(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.name, UID: made.UID}}},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: k.r.Driver, NodeID: k.id}}},
	}, metav1.CreateOptions{})
	k.r.must(err)
}

func (k *kubelet) saysProvider(id string) {
	k.r.t.Helper()
	_, err := k.api.CoreV1().Nodes().Patch(k.r.ctx(), k.name, types.MergePatchType, []byte(`{"spec":{"providerID":`+quote(id)+`}}`), metav1.PatchOptions{})
	k.r.must(err)
}

func (k *kubelet) saysUUID(uuid string) {
	k.r.t.Helper()
	_, err := k.api.CoreV1().Nodes().Patch(k.r.ctx(), k.name, types.MergePatchType, []byte(`{"status":{"nodeInfo":{"systemUUID":`+quote(uuid)+`}}}`), metav1.PatchOptions{}, "status")
	k.r.must(err)
}

// bound is what is bound to the node of that kind.
func (k *kubelet) bound(kind string) string {
	k.r.t.Helper()
	rec, err := k.r.records().Get(k.r.ctx(), k.name)
	k.r.must(err)
	b := rec.Known().Of(kind)
	switch {
	case b.Late:
		return b.Value + " after " + b.Other
	case b.Other != "":
		return b.Value + " as " + b.Other
	}
	return b.Value
}

// claimedUUID is the system UUID of a machine.
func claimedUUID(n string) string { return "11111111-2222-4333-8444-5555555556" + n }

// A kubelet's credential claims what no other node has bound: a machine that no node has yet, or
// whose Node is gone, a value of a kind that its node has not said, or one that is not bound yet.
// What comes of it is what SECURITY.md says, and no more: who claimed it alone is cut off by it, or
// nobody is; no reading of it proves another node off; and a person decides whose it is.
func TestAKubeletClaimsAtMostWhatNoNodeHas(t *testing.T) {
	spare, left, own, late, next := claimedUUID("01"), claimedUUID("02"), claimedUUID("03"), claimedUUID("04"), claimedUUID("05")
	both, again, moved := claimedUUID("11"), claimedUUID("12"), claimedUUID("13")
	c := newClaims(t, "claimed", spare, left, own, late, next, "i-late", both, again, moved)
	part := func(name string, play func(c *claims)) {
		t.Run(name, func(t *testing.T) {
			in := *c
			in.rig = c.in(t)
			play(&in)
		})
	}
	part("a machine that no node has", func(c *claims) { c.claimedFirst(spare, left, own, late, next) })
	part("a value that another says, too", func(c *claims) { c.claimedByTwo(both, again, moved) })
}

func (c *claims) claimedFirst(spare, left, own, late, next string) {
	early, kind, lateNode, leaver, heir := c.kubelet("early"), c.kubelet("kind"), c.kubelet("late"), c.kubelet("leaver"), c.kubelet("heir")
	owner, later, newcomer := c.kubelet("owner"), c.kubelet("later"), c.kubelet("newcomer")
	early.registers(spare) // no other node has said it
	kind.registers(own)
	lateNode.registers(late)
	leaver.registers(left)
	v := c.volume("v")
	c.attach(v, leaver.node)
	c.waitBound(early, record.SystemUUID, spare)
	c.waitBound(kind, record.SystemUUID, own)
	c.waitBound(lateNode, record.SystemUUID, late)
	c.waitBound(leaver, record.SystemUUID, left)
	kind.saysProvider("x://z/i-late") // before the machine's own Node has a provider ID
	leaver.delete()
	c.settle()
	heir.registers(left)
	later.registers(late)
	c.waitBound(later, record.SystemUUID, late+" after "+lateNode.name)
	c.waitBound(kind, record.InstanceID, "i-late")
	c.waitBound(heir, record.SystemUUID, left)

	// The machines' own nodes say it, late.
	owner.registers(spare)
	owner.renew()
	held := c.volume("held")
	c.attach(held, owner.node)
	lateNode.saysProvider("x://z/i-late")
	c.waitBound(owner, record.SystemUUID, spare+" after "+early.name)
	c.waitBound(lateNode, record.InstanceID, "i-late after "+kind.name)

	// They are not switched off; their machines are, where the claimants are to be.
	c.off(owner, byUUID).says(c.t, "node "+early.name+" was known by "+spare+" first", "csi-fencepost fence bind "+owner.name)
	c.off(lateNode, byInstance).says(c.t, "node "+kind.name+" was known by i-late first", "csi-fencepost fence bind "+lateNode.name)
	c.off(lateNode, byUUID, late)
	c.off(kind, byInstance, "i-late")
	c.off(early, byUUID, spare)
	c.off(heir, byUUID, left)

	// That proves nothing of the node that had it before: a person says that it is off.
	c.deleting(v, leaver.node)
	c.attachment(v, lateNode.node)
	c.settle()
	c.wantRefused(c.publish(v.Handle, lateNode.node), fence.EvidenceVoid, leaver.name, "another node reports its system UUID", "csi-fencepost fence confirm")
	c.wantAttached(v.Handle, leaver.node)
	c.person("fence", "confirm", leaver.name, "--config="+c.Socket("config.yaml"), "--agent-dirs="+c.Socket("agents"))
	c.settle()
	c.must(c.publish(v.Handle, lateNode.node))

	// A person says whose the machine is: it is the claimant's no more.
	kind.saysUUID(next)
	c.settle()
	newcomer.registers(next)
	c.waitBound(newcomer, record.SystemUUID, next)
	c.holdsUntilBound(held, owner, spare, newcomer.node)
	c.off(owner, byUUID, spare)
	c.off(early, byUUID).says(c.t, "node "+owner.name+" was known by "+spare+" first")

	// Who has a machine has claimed no other one.
	c.off(kind, byUUID).says(c.t, "the node says "+next+" since, and was known by "+own+" first")
	c.off(kind, byInstance)
	c.off(newcomer, byUUID, next)

	// Nor does who says it later than its node get it once that is gone.
	lateNode.delete()
	c.settle()
	c.off(later, byUUID).says(c.t, "node "+lateNode.name+" was known by "+late+" first")
}

func (c *claims) claimedByTwo(both, again, moved string) {
	victim, liar := c.kubelet("victim"), c.kubelet("liar")
	returning, between := c.kubelet("returning"), c.kubelet("between")
	former, renamed := c.kubelet("former"), c.kubelet("renamed")
	returning.registers(again)
	former.registers(moved)
	c.waitBound(returning, record.SystemUUID, again)
	c.waitBound(former, record.SystemUUID, moved)
	returning.delete()
	former.delete()
	c.settle()
	between.registers(again) // while the Node of that machine is gone
	renamed.registers(moved) // the machine itself
	c.waitBound(between, record.SystemUUID, again)
	c.waitBound(renamed, record.SystemUUID, moved)

	c.guard.Stop(5 * time.Second)
	victim.registers(both)
	victim.renew()
	liar.registers(both)
	returning.registers(again)
	former.registers(moved) // with the credential of the name that the machine had before
	c.start("fp")
	c.waitBound(returning, record.SystemUUID, again+" as "+between.name)
	c.waitBound(former, record.SystemUUID, moved+" as "+renamed.name)
	v, target := c.volume("w"), c.node("target")
	c.attach(v, victim.node)
	for _, n := range []*kubelet{victim, liar} {
		if got := n.bound(record.SystemUUID); got != "" {
			c.t.Errorf("two nodes say it, and it is bound to %s: %s", n.name, got)
		}
	}

	// Nobody is switched off by it, but by what a person names.
	for n, why := range map[*kubelet]string{
		victim: "(as node " + liar.name + " does now)", liar: "(as node " + victim.name + " does now)",
		returning: "node " + between.name + " is known by", between: "node " + returning.name + " is known by",
		former: "node " + renamed.name + " is known by", renamed: "node " + former.name + " is known by",
	} {
		c.off(n, byUUID).says(c.t, why, "csi-fencepost fence bind "+n.name)
	}
	c.off(returning, "nodeParameters: {plug: {"+returning.name+": "+again+"}}", again)

	c.holdsUntilBound(v, victim, both, target)
	c.person("fence", "bind", returning.name)
	c.person("fence", "bind", renamed.name)
	for machine, n := range map[string][2]*kubelet{both: {victim, liar}, again: {returning, between}, moved: {renamed, former}} {
		c.off(n[0], byUUID, machine)
		c.off(n[1], byUUID).says(c.t, "node "+n[0].name)
	}
}

// Where kubelets set their provider IDs themselves, a machine that was restored from a backup says the
// earlier one's. Under a Node that stays this is in doubt: it is not taken for off because the earlier
// one is, and is not switched off by it, also once a person has bound what is its own. Under a new
// Node it is the Node's own, and the machine is taken for off: SECURITY.md says not to delete that.
func TestARestoredMachineIsTakenForTheEarlierOneUnderANewNodeOnly(t *testing.T) {
	c := newClaimsBy(t, "restored", byInstance, "i-stays", "i-anew", "device")
	stays, anew, target := c.kubelet("stays"), c.kubelet("anew"), c.node("target")
	uuids := map[*kubelet][2]string{stays: {claimedUUID("41"), claimedUUID("42")}, anew: {claimedUUID("43"), claimedUUID("44")}}
	says := map[*kubelet]string{stays: "i-stays", anew: "i-anew"}
	for n, uuid := range uuids {
		n.registers(uuid[0])
		n.saysProvider("x://z/" + says[n])
	}
	for n := range uuids {
		c.waitBound(n, record.InstanceID, says[n])
	}
	// Both are restored, each as a new machine with the disk of the earlier one, which is off.
	stays.status(func(s *corev1.NodeStatus) {
		s.NodeInfo.SystemUUID, s.NodeInfo.BootID = uuids[stays][1], "boot-of-the-restored"
	})
	stays.boot = "boot-of-the-restored"
	anew.delete()
	c.settle()
	anew.registers(uuids[anew][1])
	anew.saysProvider("x://z/i-anew")
	c.waitBound(anew, record.SystemUUID, uuids[anew][1])
	c.must(c.plugs.Set("i-stays", false))
	c.must(c.plugs.Set("i-anew", false))
	volumes := map[*kubelet]*bed.Volume{stays: c.volume("of-stays"), anew: c.volume("of-anew")}
	for n, v := range volumes {
		c.attach(v, n.node)
		n.fallSilent()
		n.lists(v, true, false)
		c.deleting(v, n.node)
		c.attachment(v, target)
	}
	c.WaitFor(30*time.Second, "the restored machine is taken for off under a new Node", func() bool { return c.publish(volumes[anew].Handle, target) == nil })
	keeps := func(when string) {
		c.t.Helper()
		c.must(c.plugs.Set("i-stays", false))
		c.Never(3*time.Second, when+" it is taken for off under the Node that stays", func() bool { return c.publish(volumes[stays].Handle, target) == nil })
		c.off(stays, byInstance)
	}
	keeps("before a person says anything")
	c.person("fence", "bind", stays.name, "--same-machine=false")
	keeps("once a person has bound it")
	c.off(stays, "nodeParameters: {plug: {"+stays.name+": device}}", "device")
	c.wantCalls(volumes[stays].Handle, "publish "+stays.id)
}

// Failover fences a Node as one machine within an hour, also where all that says which machine it was
// is gone but the fence itself: what a kubelet has its Node name next is not switched off.
func TestANodeIsFencedAsOneMachineWithinAnHour(t *testing.T) {
	own := &server{} // failover looks after all nodes of a cluster
	t.Cleanup(func() { must(t, own.stop()) })
	r := newRigOn(t, own, "hour", bed.StageOptions{Failover: true})
	plugs := r.Plugs("fence_bmc")
	r.Options.Config = "failover: {enabled: true}\nfencing: {maxUnhealthy: 100%, suspectAfter: 12s, fenceAfter: 50s, maxConcurrent: 5, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, " + byUUID + "}}]}]}"
	earlier, next, only := claimedUUID("51"), claimedUUID("52"), claimedUUID("53")
	target, liar, plain := r.node("target"), r.node("liar"), r.node("plain")
	for n, uuid := range map[*node]string{liar: next, plain: only} {
		r.must(plugs.Set(uuid, true))
		n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
		n.renew()
	}
	_, err := r.records().Update(r.ctx(), liar.name, func(rec *record.Record) (bool, error) {
		at := time.Now().Add(-50 * time.Minute).UTC().Format(time.RFC3339)
		rec.PutFence(record.Fence{ID: "f", Kind: fence.PowerReading, Phase: record.Fenced, Actor: "x", Agents: []string{"bmc"}, StartedAt: at,
			Machine: record.FencedMachine{NodeUID: liar.uid, BootID: "boot-0", SystemUUID: earlier}, Steps: []record.FenceStep{{Agent: "bmc", Action: "off", At: at}}}, "Fenced")
		return true, nil
	})
	r.must(err)
	r.start("fp")
	r.proxy = r.dial("fp")
	for _, n := range []*node{liar, plain} {
		v := r.volume("of-" + n.name)
		r.attach(v, n)
		n.fallSilent()
		n.lists(v, true, false)
		r.deleting(v, n)
		r.attachment(v, target)
		r.waitingPod(v, target)
	}
	off := func(uuid string) bool {
		state, err := os.ReadFile(r.Socket("plugs/" + uuid))
		r.must(err)
		return strings.TrimSpace(string(state)) == "OFF"
	}
	r.WaitFor(90*time.Second, "a node that was fenced as no other machine is switched off", func() bool { return off(only) })
	r.Never(5*time.Second, "what its Node names next is switched off", func() bool { return off(next) })
	r.WaitEvent("Node", liar.name, 30*time.Second, "FencepostFencingBlocked", "within the hour its Node was fenced as another machine")
}
