package kubeapi

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// as is a client with the credential of the node's kubelet.
func (n *node) as() kubernetes.Interface {
	n.r.t.Helper()
	path, err := n.r.Bed.Cluster.Kubeconfig("system:node:"+n.name, "system:nodes")
	n.r.must(err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	n.r.must(err)
	client, err := kubernetes.NewForConfig(config)
	n.r.must(err)
	return client
}

// knownBy is the system UUID that is bound to the node.
func (n *node) knownBy() string {
	n.r.t.Helper()
	rec, err := n.r.records().Get(n.r.ctx(), n.name)
	n.r.must(err)
	return rec.Known().Of(record.SystemUUID).Value
}

// With all that Kubernetes lets a kubelet's credential write, nobody has the machine of
// another node switched off, where agents find machines by what their nodes say.
func TestNoKubeletHasAnotherMachineSwitchedOff(t *testing.T) {
	r := newRigWithout(t, "claims", bed.StageOptions{})
	plugs := r.Plugs("fence_bmc")
	r.Options.Config = "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, parameters: {plug: $(SYSTEM_UUID)}}}]}]}"
	victim, hostile, provided, borrower := r.node("victim"), r.node("hostile"), r.node("provided"), r.node("borrower")
	uuids := map[*node]string{victim: "11111111-2222-4333-8444-555555555501", hostile: "11111111-2222-4333-8444-555555555502",
		provided: "11111111-2222-4333-8444-555555555504", borrower: "11111111-2222-4333-8444-555555555505"}
	for n, uuid := range uuids {
		n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
	}
	victim.spec(func(s *corev1.NodeSpec) { s.ProviderID = "x:victim" })
	p := r.start("fp")
	r.WaitFor(30*time.Second, "all machines are bound", func() bool {
		for n, uuid := range uuids {
			if n.knownBy() != uuid {
				return false
			}
		}
		return true
	})

	kubelet := hostile.as()
	claim := []byte(fmt.Sprintf(`{"status":{"nodeInfo":{"systemUUID":%q}}}`, uuids[victim]))
	_, err := kubelet.CoreV1().Nodes().Patch(r.ctx(), hostile.name, types.StrategicMergePatchType, claim, metav1.PatchOptions{}, "status")
	r.must(err) // Kubernetes lets it
	for what, try := range map[string]func() error{
		"the victim's Node": func() error {
			_, err := kubelet.CoreV1().Nodes().Patch(r.ctx(), victim.name, types.StrategicMergePatchType, claim, metav1.PatchOptions{}, "status")
			return err
		},
		"its Node, by deleting it": func() error { return kubelet.CoreV1().Nodes().Delete(r.ctx(), hostile.name, metav1.DeleteOptions{}) },
		"another Node": func() error {
			_, err := kubelet.CoreV1().Nodes().Create(r.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Name + "-third"}}, metav1.CreateOptions{})
			return err
		},
		"the records": func() error {
			_, err := record.NewStore(kubelet.CoordinationV1(), "csi-fencepost").Update(r.ctx(), hostile.name, func(r *record.Record) (bool, error) {
				r.Identity = nil
				return true, nil
			})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet may write %s: %v", what, err)
		}
	}
	// Two others claim what else a program may be told of a machine: a provider ID, while theirs is not
	// set, and a node ID.
	_, err = provided.as().CoreV1().Nodes().Patch(r.ctx(), provided.name, types.MergePatchType, []byte(`{"spec":{"providerID":"x:victim"}}`), metav1.PatchOptions{})
	r.must(err)
	csiNodes := borrower.as().StorageV1().CSINodes()
	r.must(csiNodes.Delete(r.ctx(), borrower.name, metav1.DeleteOptions{}))
	_, err = csiNodes.Create(r.ctx(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: borrower.name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: r.Driver, NodeID: victim.id}}}}, metav1.CreateOptions{})
	r.must(err)
	// The sidecar is gone: whoever has nodes switched off goes by the record.
	p.Stop(5 * time.Second)
	config, err := os.ReadFile(r.Socket("config.yaml"))
	r.must(err)
	for variable, claim := range map[string]struct {
		by          *node
		own, others string // the machines' switches, by what was bound to the two nodes first
	}{
		"SYSTEM_UUID": {hostile, uuids[hostile], uuids[victim]}, "PROVIDER_ID": {provided, "", "x:victim"}, "INSTANCE_ID": {provided, "", "x:victim"},
		"NODE_ID": {borrower, borrower.id, victim.id},
	} {
		path := r.Write(variable+".yaml", strings.Replace(string(config), "SYSTEM_UUID", variable, 1), 0o600)
		off := func(n *node) answer {
			return execute(t, r.Bed.Fencepost, "fence", "off", n.name, "--reason=silent", "--force", "--yes", "--config="+path, "--agent-dirs="+r.Socket("agents"),
				"--driver="+r.Driver, "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())
		}
		power := func(when string, own, others bool) {
			t.Helper()
			for plug, want := range map[string]bool{claim.own: own, claim.others: others} {
				if on, err := plugs.On(plug); plug != "" && (err != nil || on != want) {
					t.Errorf("by %s, %s: machine %s is on: %v, %v", variable, when, plug, on, err)
				}
			}
		}
		for _, plug := range []string{claim.own, claim.others} {
			if plug != "" {
				r.must(plugs.Set(plug, true))
			}
		}
		off(claim.by).ends(t, 1).says(t, "$("+variable+") of node "+claim.by.name+" may be another machine's")
		power("who claims it is to be off", true, true)
		// Nor is the victim kept from being switched off.
		off(victim).ends(t, 0)
		power("the victim is off", true, false)
	}
}

// With all that Kubernetes lets a kubelet's credential write, it gives up the volumes of its
// own node, and of no other: not even by saying that the other's machine is its own, while
// that is silent.
func TestAKubeletGivesUpTheVolumesOfItsOwnNodeAlone(t *testing.T) {
	r := newRig(t, "gives-up", bed.StageOptions{})
	victim, hostile := r.node("victim"), r.node("hostile")
	kept, last, own := r.volume("kept"), r.volume("last"), r.volume("own")
	victim.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "11111111-2222-4333-8444-555555555503" })
	r.attach(kept, victim)
	r.attach(last, victim)
	r.attach(own, hostile)
	r.attachment(kept, hostile)
	kubelet := hostile.as()
	nodes, leases := kubelet.CoreV1().Nodes(), kubelet.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	patch := func(node, body string, subresource ...string) error {
		_, err := nodes.Patch(r.ctx(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresource...)
		return err
	}
	const nothing = `{"status":{"volumesInUse":[],"volumesAttached":[]}}`
	outOfService := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoExecute"}]}}`, corev1.TaintNodeOutOfService)
	victim.renew()
	for what, try := range map[string]func() error{
		"another's status":         func() error { return patch(victim.name, nothing, "status") },
		"another's taints":         func() error { return patch(victim.name, outOfService) },
		"its own taints":           func() error { return patch(hostile.name, outOfService) },
		"another's lease":          func() error { return leases.Delete(r.ctx(), victim.name, metav1.DeleteOptions{}) },
		"another's Node":           func() error { return nodes.Delete(r.ctx(), victim.name, metav1.DeleteOptions{}) },
		"the ledger of its volume": func() error { return annotateAs(r.ctx(), kubelet, own.Name, "{}") },
		"the record of its node": func() error {
			_, err := kubelet.CoordinationV1().Leases("csi-fencepost").Create(r.ctx(), policedLease(hostile.name), metav1.CreateOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet may write %s: %v", what, err)
		}
	}
	r.must(r.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(r.ctx(), victim.name, metav1.DeleteOptions{}))

	r.must(patch(hostile.name, nothing, "status"))
	r.deleting(own, hostile)
	r.settle()
	r.must(r.unpublish(own.Handle, hostile))
	r.wantAttached(own.Handle)

	keeps := func(when string) {
		t.Helper()
		r.settle()
		if err := r.unpublish(kept.Handle, victim); err == nil {
			t.Errorf("%s: it is unpublished from the node that uses it", when)
		}
		if err := r.publish(kept.Handle, hostile); err == nil {
			t.Errorf("%s: it is published to the node that claims so", when)
		}
		r.wantCalls(kept.Handle, "publish "+victim.id)
	}
	r.must(patch(hostile.name, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q,"systemUUID":"11111111-2222-4333-8444-555555555503"}}}`, victim.boot), "status"))
	keeps("it says that it is the other's machine")
	csiNodes := kubelet.StorageV1().CSINodes()
	r.must(csiNodes.Delete(r.ctx(), hostile.name, metav1.DeleteOptions{}))
	_, err := csiNodes.Create(r.ctx(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: hostile.name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: r.Driver, NodeID: victim.id}}}}, metav1.CreateOptions{})
	r.must(err)
	keeps("and has its node ID")
	r.deleting(kept, hostile)
	keeps("and its VolumeAttachment is being deleted, by which that ID is called")
	r.must(patch(hostile.name, fmt.Sprintf(`{"status":{"volumesInUse":[],"volumesAttached":[{"name":"kubernetes.io/csi/%s^%s","devicePath":""}]}}`, r.Driver, kept.Handle), "status"))
	keeps("and it lists the volume, and not in use")
	r.deleting(last, victim)
	r.settle()
	r.wantRefused(r.unpublish(last.Handle, victim), fence.HolderAlive, victim.name)
	victim.fallSilent()
	keeps("and the other is silent")
	r.deleting(kept, victim)
	keeps("and the volume is asked back from it")
}

// What a node says that is in doubt is asked all the same. On is heard, against a person's word that
// the machine is off. Off counts for nothing, since it may be another machine's.
func TestOfANodeInDoubtOnIsHeardAndOffCountsForNothing(t *testing.T) {
	r := newRigWithout(t, "in-doubt", bed.StageOptions{})
	plugs := r.Plugs("fence_bmc")
	r.Options.Config = "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, parameters: {plug: $(SYSTEM_UUID)}}}]}]}"
	target, nodes, volumes := r.node("target"), map[bool]*node{}, map[bool]*bed.Volume{}
	for on, name := range map[bool]string{true: "on", false: "off"} {
		uuid := claimedUUID("3" + fmt.Sprint(len(name)))
		r.must(plugs.Set(uuid, on))
		nodes[on], volumes[on] = r.node("reads-"+name), r.volume("reads-"+name)
		for _, n := range []*node{nodes[on], r.node("says-it-too-" + name)} { // so that it is nobody's
			n.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = uuid })
		}
	}
	r.start("fp")
	r.proxy = r.dial("fp")
	for on, n := range nodes {
		r.attach(volumes[on], n)
		n.fallSilent()
		n.lists(volumes[on], true, false)
		r.deleting(volumes[on], n)
		r.attachment(volumes[on], target)
	}
	nodes[true].confirm()
	r.settle()
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		r.wantRefused(r.publish(volumes[true].Handle, target), fence.EvidenceContradicted, nodes[true].name, "on")
		r.wantRefused(r.publish(volumes[false].Handle, target), fence.HolderUnknown, nodes[false].name)
	}
	r.must(plugs.Set(claimedUUID("32"), false)) // as the person said
	nodes[false].confirm()
	for on, n := range nodes {
		r.WaitFor(20*time.Second, n.name+" is off by a person's word", func() bool { return r.publish(volumes[on].Handle, target) == nil })
		r.wantCalls(volumes[on].Handle, "publish "+n.id, "unpublish "+n.id, "publish "+target.id)
	}
}
