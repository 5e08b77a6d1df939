package kubeapi

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// With the policies in force, a sidecar that may fence for its own driver's storage alone opens once
// the node has booted, also what was only read as cut; not before, and never what a fence of another
// node names. Who lifts with its rights after a boot ends another driver's fence of the same address:
// nobody vouches for that any more.
func TestALiftAfterABootOpensWhatOthersCutAndEndsTheFenceOfAnotherDriver(t *testing.T) {
	const own, found, others, both = "192.0.2.91", "192.0.2.92", "192.0.2.93", "192.0.2.94"
	r := newRigOn(t, policed, "lifted", bed.StageOptions{Failover: true, Array: func(s *array.Switches) { s.NetworkFence = true },
		Config: "evidence: {outOfServiceTaint: false}\nfailover: {enabled: true}\n" +
			"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: array, timeout: 5s, csiAddons: {}}]}]}"})
	names := strings.NewReplacer("${NAMESPACE}", r.Name, "${SERVICE_ACCOUNT}", account, "${DRIVER}", r.Driver)
	must(t, applySome(t.Context(), policyFolder+"writers.yaml", names, "csi-fencepost-writer-of-"+r.Driver, "csi-fencepost-fencer-of-"+r.Driver))
	at := func(name string, addresses ...string) *node {
		t.Helper()
		n := r.node(name)
		r.must(r.Array.SetAddresses(n.id, addresses...))
		n.status(func(s *corev1.NodeStatus) {
			for _, a := range addresses {
				s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
			}
		})
		n.renew()
		return n
	}
	n, m, other := at("n", own, found, others), at("m", both), at("other")
	cut := func(want ...string) bool {
		got := r.Array.Fences()
		slices.Sort(got)
		return strings.Join(got, " ") == strings.Join(want, "/32 ")+"/32"
	}
	r.must(os.WriteFile(r.Socket("config.yaml"), []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"+r.Options.Config+"\n"), 0o644))
	fences := func(action string, n *node) { // with the rights of the driver's own account
		t.Helper()
		args := []string{"fence", action, n.name, "--reason=x", "--yes", "--config=" + r.Socket("config.yaml"), "--csi-address=" + r.Socket("csi.sock"), "--kubeconfig=" + r.ServiceAccountKubeconfig()}
		if action == "off" {
			args = append(args, "--force")
		}
		execute(t, r.Bed.Fencepost, args...).ends(t, 0)
	}
	records := record.NewStore(sidecar.CoordinationV1(), namespace)
	put := func(n *node, block string) {
		t.Helper()
		_, err := records.Update(r.ctx(), n.name, func(rec *record.Record) (bool, error) {
			rec.PutFence(record.Fence{ID: "others", Kind: fence.StorageFence, Driver: "array.example.com", Phase: record.Fenced, Actor: "x", Agents: []string{"array"},
				Machine: record.FencedMachine{NodeUID: n.uid, BootID: n.boot, LeaseRV: n.leaseRV()},
				Steps:   []record.FenceStep{{Agent: "array", Action: "off", Detail: "fence " + block + "/32 at driver array.example.com"}}}, "Fenced")
			return true, nil
		})
		r.must(err)
	}
	vouched := func(n *node) bool {
		rec, err := records.Get(r.ctx(), n.name)
		r.must(err)
		f := rec.FenceByID("others")
		return f.Phase == record.Fenced && rec.Vouched(f)
	}

	fences("off", m)
	put(m, both)
	m.bootAgain()
	m.renew()
	if !cut(both) || !vouched(m) {
		t.Fatalf("before the lift: %v", r.Array.Fences())
	}
	fences("on", m)
	if len(r.Array.Fences()) > 0 || vouched(m) {
		t.Errorf("after the lift the storage has fenced %v, and another driver's fence of the address is vouched for: %v", r.Array.Fences(), vouched(m))
	}

	r.must(r.addons().Fence(r.ctx(), addons.Credentials{}, []netip.Prefix{netip.MustParsePrefix(found + "/32"), netip.MustParsePrefix(others + "/32")}))
	put(other, others)
	fences("off", n)
	if !cut(own, found, others) {
		t.Fatalf("the storage has fenced %v", r.Array.Fences())
	}
	r.start("fp")
	n.renew()
	r.WaitEvent("Node", n.name, 30*time.Second, "FencepostFencingBlocked", "Reboot it")
	r.Never(2*time.Second, "before a boot it opens something", func() bool { return !cut(own, found, others) })
	n.bootAgain()
	r.WaitFor(40*time.Second, "after a boot it opens what it cut, and what it only reads as cut", func() bool { n.renew(); return cut(others) })
	r.Never(3*time.Second, "it opens what a fence of another node names", func() bool { return !cut(others) })
	if !vouched(other) {
		t.Error("the fence of another node has ended")
	}
}

// Of an agent that knows a machine by another name than an address nobody can tell who cut it: a lift
// opens the switch's port that a program beside us had closed, of a machine that has booted, and of no other one.
func TestALiftOpensAPortWhoeverClosedIt(t *testing.T) {
	own := &server{} // failover looks after all nodes of a cluster
	t.Cleanup(func() { must(t, own.stop()) })
	r := newRigOn(t, own, "port", bed.StageOptions{Failover: true, Config: "failover: {enabled: true}\n" +
		"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: switch, timeout: 5s, exec: {agent: fence_brocade, parameters: {plug: $(NODE)}}}]}]}"})
	ports := r.Plugs("fence_brocade")
	n, other := r.node("n"), r.node("other")
	for _, m := range []*node{n, other} {
		r.must(ports.Set(m.name, true))
		m.renew()
	}
	r.must(os.WriteFile(r.Socket("config.yaml"), []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"+r.Options.Config+"\n"), 0o644))
	execute(t, r.Bed.Fencepost, "fence", "off", n.name, "--reason=x", "--yes", "--force", "--config="+r.Socket("config.yaml"),
		"--csi-address="+r.Socket("csi.sock"), "--agent-dirs="+r.Socket("agents"), "--kubeconfig="+r.ServiceAccountKubeconfig()).ends(t, 0)
	r.must(ports.Set(other.name, false)) // who beside us closes ports says so to nobody
	r.must(ports.Set(n.name, true))
	r.must(ports.Set(n.name, false)) // and has opened and closed that of n since
	r.start("fp")
	n.bootAgain()
	open := func(m *node) bool { on, err := ports.On(m.name); r.must(err); return on }
	r.WaitFor(40*time.Second, "after a boot the port is open", func() bool { n.renew(); other.renew(); return open(n) })
	r.Never(3*time.Second, "a port that we never closed is opened", func() bool { return open(other) })
}
