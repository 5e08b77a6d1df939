package kubeapi

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// addressed is a driver that cuts nodes off from its storage by their addresses.
type addressed struct {
	*rig
	config string // what the operators' commands read
}

func newAddressed(t *testing.T, server *server, name string, change func(*array.Switches)) *addressed {
	t.Helper()
	return newAddressedBy(t, server, name, "", change)
}

// newAddressedBy has that configured of csiAddons.
func newAddressedBy(t *testing.T, server *server, name, csiAddons string, change func(*array.Switches)) *addressed {
	t.Helper()
	r := newRigOn(t, server, name, bed.StageOptions{
		Array: func(s *array.Switches) {
			s.NetworkFence = true
			if change != nil {
				change(s)
			}
		},
		Config: withArray(csiAddons)})
	a := (&addressed{rig: r}).configured("operators.yaml", r.Options.Config)
	r.start("fp")
	r.proxy = r.dial("fp")
	return a
}

// withArray has a fence agent that asks the driver, with that configured of csiAddons.
func withArray(csiAddons string) string {
	return "fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: array, timeout: 5s, csiAddons: {" + csiAddons + "}}]}]}"
}

// configured is the same with another configuration of the operators.
func (r *addressed) configured(file, config string) *addressed {
	r.t.Helper()
	return &addressed{r.rig, r.Write(file, "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"+config+"\n", 0o600)}
}

// at boots a machine that the storage sees at that address, and whose kubelet says so.
func (r *addressed) at(name, address string) *node {
	r.t.Helper()
	n := r.node(name)
	r.must(r.Array.SetAddresses(n.id, address))
	r.must(n.says(address))
	return n
}

// says writes the addresses of the Node with the credential of its kubelet.
func (n *node) says(addresses ...string) error {
	n.r.t.Helper()
	nodes := n.as().CoreV1().Nodes()
	node, err := nodes.Get(n.r.ctx(), n.name, metav1.GetOptions{})
	n.r.must(err)
	node.Status.Addresses = nil
	for _, address := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	_, err = nodes.UpdateStatus(n.r.ctx(), node, metav1.UpdateOptions{})
	return err
}

// person runs a command of the operators about the node.
func (r *addressed) person(command string, n *node, more ...string) answer {
	r.t.Helper()
	args := append([]string{"fence", command, n.name, "--reason=looked", "--yes", "--config=" + r.config, "--csi-address=" + r.Socket("csi.sock")}, more...)
	return execute(r.t, r.Bed.Fencepost, append(args, "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())...)
}

// cut fails unless the storage has cut off exactly these addresses.
func (r *addressed) cut(when string, want ...string) {
	r.t.Helper()
	var all []string
	for _, address := range want {
		all = append(all, address+"/32")
	}
	if got := r.Array.Fences(); strings.Join(got, " ") != strings.Join(all, " ") {
		r.t.Errorf("%s: the storage has cut off %q, want %q", when, got, all)
	}
}

// dies has the node fall silent with the volume, which another node is to have.
func (r *addressed) dies(n *node, v *bed.Volume, target *node) {
	r.t.Helper()
	r.attach(v, n)
	n.renew()
	n.fallSilent()
	n.lists(v, true, false)
	r.deleting(v, n)
	r.attachment(v, target)
	r.WaitFor(40*time.Second, n.name+" is silent", func() bool {
		err := r.publish(v.Handle, target)
		if err == nil {
			r.t.Fatalf("%s is published elsewhere without a proof", v.Name)
		}
		return strings.Contains(status.Convert(err).Message(), "["+string(fence.HolderStale)+"]")
	})
}

// A kubelet that claims the address of a node that is to be cut off at the storage, before it is, keeps
// it from that, Ready or not, and so its volumes waiting. It is named, and a person's word about the
// node frees them all the same.
func TestAKubeletThatClaimsAnAddressBeforeTheCutKeepsVolumesWaitingUntilAPersonSpeaks(t *testing.T) {
	const victims, claimants = "192.0.2.121", "192.0.2.122"
	r := newAddressed(t, common, "preclaim", nil)
	victim, hostile, target := r.at("victim", victims), r.at("hostile", claimants), r.at("target", "192.0.2.123")
	r.must(hostile.says(claimants, victims)) // Kubernetes lets it
	v := r.volume("v")
	r.dies(victim, v, target)
	waits := func(when, hostiles string) {
		t.Helper()
		r.person("off", victim, "--force").ends(t, 1).says(t, "a fence would also cut off node "+hostile.name+", which is "+hostiles, victims,
			"csi-fencepost fence confirm "+victim.name)
		r.cut(when)
		r.settle()
		r.wantRefused(r.publish(v.Handle, target), fence.HolderStale, victim.name)
		r.wantCalls(v.Handle, "publish "+victim.id)
	}
	waits("the claimant is Ready", "Ready")
	hostile.ready(corev1.ConditionFalse)
	waits("the claimant is not Ready", "not Ready")
	hostile.ready(corev1.ConditionTrue)

	r.person("confirm", victim).ends(t, 0)
	r.WaitFor(20*time.Second, "a person's word frees it", func() bool { return r.publish(v.Handle, target) == nil })
	r.wantCalls(v.Handle, "publish "+victim.id, "unpublish "+victim.id, "publish "+target.id)
	r.cut("a person has spoken")

	// It was the claim that kept it from being cut off.
	r.must(hostile.says(claimants))
	r.person("off", victim, "--force").ends(t, 0)
	r.cut("the claim is withdrawn", victims)
}

// A node has at the storage the client of the node ID that its kubelet registers. Where that is another
// node's nobody is cut off, also where no Node shows the address that the storage knows: neither the other,
// nor, as long as it claims that, the node itself. Of a client that no node is the fence is its own; that is
// all: no volume moves by it, and the lift of that fence opens that client again.
func TestAKubeletThatRegistersAnothersNodeIDHasNoNodeCutOffAndMovesNoVolume(t *testing.T) {
	const hidden, shown, known, own, foreign = "192.0.2.131", "192.0.2.132", "192.0.2.133", "192.0.2.134", "192.0.2.136"
	server := &server{} // a record of another test that cannot be read would keep all addresses cut
	t.Cleanup(func() { must(t, server.stop()) })
	r := newAddressed(t, server, "borrowed", func(s *array.Switches) { s.FenceClients = true })
	victim, open, hostile, target := r.at("victim", shown), r.at("open", known), r.at("hostile", own), r.at("target", "192.0.2.135")
	r.must(r.Array.SetAddresses(victim.id, hidden))
	r.must(r.Array.AddMachine("of-nobody"))
	r.must(r.Array.SetAddresses("of-nobody", foreign))
	registers := func(id string) {
		t.Helper()
		csiNodes := hostile.as().StorageV1().CSINodes()
		r.must(csiNodes.Delete(r.ctx(), hostile.name, metav1.DeleteOptions{}))
		_, err := csiNodes.Create(r.ctx(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: hostile.name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: r.Driver, NodeID: id}}}}, metav1.CreateOptions{})
		r.must(err)
	}
	theirs, its := r.volume("theirs"), r.volume("its")
	r.attach(theirs, victim)
	r.attachment(theirs, target)
	r.dies(hostile, its, target)

	registers(open.id)
	r.person("off", hostile, "--force").ends(t, 1).says(t, "a fence would also cut off node "+open.name, known)
	r.cut("the other's Node shows the address")

	registers(victim.id)
	r.person("off", hostile, "--force").ends(t, 1).says(t, "a fence would also cut off node "+victim.name+", whose CSINode has the node ID", victim.id)
	r.cut("no Node shows the other's address")
	registers("of-nobody")
	r.person("off", hostile, "--force").ends(t, 0).says(t, foreign)
	r.cut("a client that no node is", foreign)
	if r.Array.CutOff(victim.id) || r.Array.CutOff(hostile.id) {
		t.Errorf("the other is cut off: %v, and the node itself: %v", r.Array.CutOff(victim.id), r.Array.CutOff(hostile.id))
	}
	r.Never(5*time.Second, "a volume moves", func() bool {
		return r.publish(theirs.Handle, target) == nil || r.publish(its.Handle, target) == nil
	})
	r.wantRefused(r.publish(theirs.Handle, target), fence.HolderAlive, victim.name)
	r.wantCalls(theirs.Handle, "publish "+victim.id)
	r.wantRefused(r.publish(its.Handle, target), fence.EvidenceVoid, hostile.name)
	r.wantCalls(its.Handle, "publish "+hostile.id)

	r.person("on", hostile, "--force").ends(t, 0)
	r.cut("that fence is lifted")
}

// Whatever a kubelet writes as its addresses, a fence of its node names single addresses only, none outside
// csiAddons.allowedSubnets, and where the addresses are declared, or the driver alone may say them, none of
// what the kubelet says.
func TestAFenceCutsOffNoNetworkAndOnlyWhatTheConfigurationAllows(t *testing.T) {
	const own, declared, known, outside, claimed = "192.0.2.141", "192.0.2.142", "192.0.2.143", "198.51.100.141", "192.0.2.149"
	r := newAddressed(t, common, "allowed", nil)
	r.at("other", "192.0.2.144") // in all the networks
	nodes := map[string]*node{}
	for _, name := range []string{"network", "subnet", "declared", "undeclared", "client"} {
		nodes[name] = r.node(name)
		nodes[name].fallSilent()
	}
	with := func(csiAddons string) *addressed {
		r.t.Helper()
		return r.configured("with.yaml", withArray(csiAddons))
	}
	refused := func(by *addressed, n *node, why string, addresses ...string) {
		t.Helper()
		r.must(n.says(addresses...)) // the API server takes what is no address, too
		by.person("off", n, "--force").ends(t, 1).says(t, why)
		r.cut(strings.Join(addresses, ", "))
	}
	cuts := func(by *addressed, n *node, says, want string) {
		t.Helper()
		r.must(n.says(says))
		by.person("off", n, "--force").ends(t, 0)
		r.cut(n.name+" says "+says, want)
		r.must(r.addons().Unfence(r.ctx(), addons.Credentials{}, []netip.Prefix{netip.MustParsePrefix(want + "/32")}))
	}

	refused(r, nodes["network"], "is a network: single addresses only", "192.0.0.0/3")
	refused(r, nodes["network"], "is a network: single addresses only", own, "203.0.113.0/24") // no other Node's
	r.must(nodes["network"].says())                                                            // it keeps nobody from the address any more

	subnets := with("allowedSubnets: [192.0.2.0/24]")
	refused(subnets, nodes["subnet"], "is outside csiAddons.allowedSubnets", own, outside)
	cuts(subnets, nodes["subnet"], own, own)

	nodesDeclared := with("nodes: {" + nodes["declared"].name + ": [" + declared + "]}")
	refused(nodesDeclared, nodes["undeclared"], "no level of fence agents covers node "+nodes["undeclared"].name, claimed)
	cuts(nodesDeclared, nodes["declared"], claimed, declared)

	driverOnly := with("addresses: DriverOnly")
	refused(driverOnly, nodes["client"], "only driver "+r.Driver+" may name it", claimed)
	r.Array.Set(func(s *array.Switches) { s.FenceClients = true })
	r.must(r.Array.SetAddresses(nodes["client"].id, known))
	cuts(driverOnly, nodes["client"], claimed, known)
}

// Who may write the status of all Nodes, and nothing else, names another address of a silent node: a fence
// that goes by Nodes' addresses cuts off nobody, says which address it names, and counts, so that the volume
// moves while the node can write. Where the configuration declares the addresses, or the driver knows its
// clients, the fence cuts off the node itself; where the driver alone may say them and knows none, there is
// none. Of a node that lives he says nothing by that.
func TestWhoeverWritesTheStatusOfAllNodesNamesTheAddressThatAFenceByNodesAddressesCutsOff(t *testing.T) {
	const own, named, living, cut = "192.0.NET.151", "192.0.NET.152", "192.0.NET.153", "192.0.NET.154"
	const byNode, byClient = "addresses of Node ", "the driver's client "
	knows := func(s *array.Switches) { s.FenceClients = true }
	for name, c := range map[string]struct {
		net       int // of the addresses: the cases share a cluster
		csiAddons string
		change    func(*array.Switches)
		cuts      string // empty: nothing
		says      string
	}{
		"status-node":     {3, "", nil, named, byNode},
		"status-client":   {4, "", knows, own, byClient},
		"status-only":     {5, "addresses: DriverOnly", knows, own, byClient},
		"status-unknown":  {6, "addresses: DriverOnly", nil, "", "with csiAddons.addresses: DriverOnly only driver"},
		"status-declared": {7, "nodes: {status-declared-silent: [" + own + "], status-declared-lives: [" + living + "]}", nil, own, "declared for node "},
	} {
		t.Run(name, func(t *testing.T) {
			in := strings.NewReplacer("NET", strconv.Itoa(c.net)).Replace
			own, named, living, cut, cuts := in(own), in(named), in(living), in(cut), in(c.cuts)
			r := newAddressedBy(t, common, name, in(c.csiAddons), c.change)
			actor, target := r.statusWriter(), r.node("target")
			silent, lives := r.at("silent", own), r.at("lives", living)
			v, kept := r.usedOn(silent, "v", target), r.usedOn(lives, "kept", target)
			silent.fallSilent()
			r.must(r.addons().Fence(r.ctx(), addons.Credentials{}, []netip.Prefix{netip.MustParsePrefix(cut + "/32")})) // of whoever had that address
			names := func(n *node, address string) {
				t.Helper()
				r.WaitFor(10*time.Second, "it may be written", func() bool {
					return statusAs(r.ctx(), actor, n.name, `{"addresses":[{"type":"InternalIP","address":"`+address+`"}]}`) == nil
				})
			}
			names(silent, named)
			names(lives, cut)
			r.settle()
			r.wantKept("it lives, and the storage lists the address that is named of it", kept)
			if err := r.publish(v.Handle, target); err == nil {
				t.Fatal("it is published elsewhere without a fence")
			}

			off := r.person("off", silent, "--force")
			if cuts == "" {
				off.ends(t, 1).says(t, c.says)
				r.cut("the fence is refused", cut)
				r.settle()
				r.wantKept("nothing was cut off", v)
				return
			}
			off.ends(t, 0).says(t, cuts, c.says)
			r.cut("it is fenced", slices.Sorted(slices.Values([]string{cuts, cut}))...)
			if r.Array.CutOff(silent.id) != (cuts == own) {
				t.Errorf("the silent node is cut off: %v", r.Array.CutOff(silent.id))
			}
			r.WaitFor(20*time.Second, "the fence counts", func() bool { return r.publish(v.Handle, target) == nil })
			r.wantAttached(v.Handle, target)
			r.wantKept("another node was fenced", kept)
		})
	}
}

// statusWriter may write the status of all Nodes, as node-problem-detector and many CNI plugins may, and
// nothing else.
func (r *rig) statusWriter() kubernetes.Interface {
	r.t.Helper()
	name := "status-writer-of-" + r.Name
	roles := r.Client.RbacV1()
	_, err := roles.ClusterRoles().Create(r.ctx(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch", "update"}}}}, metav1.CreateOptions{})
	r.must(err)
	_, err = roles.ClusterRoleBindings().Create(r.ctx(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}, metav1.CreateOptions{})
	r.must(err)
	path, err := r.Bed.Cluster.Kubeconfig(name)
	r.must(err)
	return clientOf(r.t, path)
}
