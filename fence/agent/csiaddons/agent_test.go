package csiaddons

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	fencepb "github.com/csi-addons/spec/lib/go/fence"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

const secret = "s3cr3t-of-the-array"

// cluster is what the API server would list.
type cluster struct {
	nodes []corev1.Node
	err   error
	lists int
}

func (c *cluster) List(context.Context, metav1.ListOptions) (*corev1.NodeList, error) {
	c.lists++
	return &corev1.NodeList{Items: c.nodes}, c.err
}

// registered are the CSINodes that the API server would list.
type registered struct {
	nodes []storagev1.CSINode
	err   error
}

func (c *registered) List(context.Context, metav1.ListOptions) (*storagev1.CSINodeList, error) {
	return &storagev1.CSINodeList{Items: c.nodes}, c.err
}

// add registers a driver by a node ID.
func (c *registered) add(node, driver, id string) {
	c.nodes = append(c.nodes, storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: id}}}})
}

func node(name, uid string, ready corev1.ConditionStatus, addresses ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

// rig is the reference array behind its socket, with machine id1 of node n1.
type rig struct {
	*array.Array
	t       *testing.T
	cluster *cluster
	csi     *registered
	agent   *Agent
	options Options
	m       agent.Machine
}

func newRig(t *testing.T, set func(*array.Switches)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "fence") // t.TempDir is too long for a socket
	must(t, err)
	a := array.New(array.Options{RequireSecrets: map[string]string{"token": secret}})
	t.Cleanup(func() { a.Close(); os.RemoveAll(dir) })
	a.Set(func(s *array.Switches) {
		s.NetworkFence = true
		if set != nil {
			set(s)
		}
	})
	must(t, a.AddMachine("id1"))
	must(t, a.SetAddresses("id1", "192.0.2.1", "2001:db8::1"))
	socket := filepath.Join(dir, "csi.sock")
	must(t, a.Serve(t.Context(), socket))
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	r := &rig{Array: a, t: t, csi: &registered{}, cluster: &cluster{nodes: []corev1.Node{
		node("n1", "u1", corev1.ConditionUnknown, "192.0.2.1", "2001:db8::1"), node("n2", "u2", corev1.ConditionTrue, "192.0.2.2"),
	}}}
	r.options = Options{
		Name: "array", Conn: conn, Driver: a.DriverName(), Nodes: r.cluster, CSINodes: r.csi, Parameters: map[string]string{"clusterID": "one"},
		Secrets: func(_ context.Context, node string) (map[string]string, error) {
			return map[string]string{"token": secret, "node": node}, nil
		},
	}
	r.agent = r.newAgent()
	r.m = agent.Machine{Node: "n1", UID: "u1", BootID: "b1", NodeID: "id1", Addresses: []string{"192.0.2.1", "2001:db8::1"}}
	return r
}

func (r *rig) newAgent() *Agent {
	r.t.Helper()
	a, err := New(r.options)
	must(r.t, err)
	return a
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) off() string {
	r.t.Helper()
	detail, err := r.agent.Off(r.ctx(), r.m)
	must(r.t, err)
	return detail
}

func (r *rig) reads(want agent.State, detail string) {
	r.t.Helper()
	got, err := r.agent.Status(r.ctx(), r.m)
	must(r.t, err)
	if got.State != want || !strings.Contains(got.Detail, detail) {
		r.t.Fatalf("reads %v (%s), want %v (%s)", got.State, got.Detail, want, detail)
	}
}

func (r *rig) fenced(want ...string) {
	r.t.Helper()
	if got := r.Fences(); !slices.Equal(got, want) {
		r.t.Fatalf("fenced at the array: %q, want %q", got, want)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("error %q lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Fatalf("a secret is in the error %q", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFenceIsConfirmedByTheDriversListAndLifted(t *testing.T) {
	r := newRig(t, nil)
	if r.agent.Proves() != fence.StorageFence || !r.agent.Covers("n1") || r.agent.Name() != "array" {
		t.Error("it says something else of itself")
	}
	r.reads(agent.On, "does not list 192.0.2.1/32, 2001:db8::1/128")
	detail := r.off()
	r.fenced("192.0.2.1/32", "2001:db8::1/128")
	if got := agent.Blocks(detail); !slices.Equal(got, r.Fences()) {
		t.Errorf("blocks %q in the detail %q", got, detail)
	}
	if !r.CutOff("id1") {
		t.Error("the machine has access")
	}
	r.reads(agent.Off, "lists 192.0.2.1/32, 2001:db8::1/128 as fenced")
	r.off() // twice does no harm
	r.reads(agent.Off, "")
	_, err := r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced()
	r.reads(agent.On, "")
}

func TestAFencedMachineWritesNoMore(t *testing.T) {
	r := newRig(t, func(s *array.Switches) { s.ClientHoldsOn = true })
	write := r.use("vol-1")
	must(t, r.WaitWrites(r.ctx(), "vol-1", "id1", 3))
	r.off()
	before := write()
	time.Sleep(50 * time.Millisecond)
	if got := write(); got != before {
		t.Fatalf("%d writes before the fence, %d after it", before, got)
	}
	// The detach that follows takes nothing that is in use.
	must(t, r.unpublish("vol-1"))
	if found := r.Violations(); len(found) > 0 {
		t.Fatalf("violations: %v", found)
	}
	_, err := r.agent.On(r.ctx(), r.m)
	must(t, err)
	time.Sleep(50 * time.Millisecond)
	if got := write(); got != before {
		t.Fatal("the dropped session writes again")
	}
}

// use publishes the volume to id1 and mounts it; the func counts its writes.
func (r *rig) use(volume string) func() int {
	r.t.Helper()
	must(r.t, r.CreateVolume(volume, array.VolumeOptions{}))
	dir, err := os.MkdirTemp("", "node")
	must(r.t, err)
	r.t.Cleanup(func() { os.RemoveAll(dir) })
	n, err := r.ServeNode(r.t.Context(), array.NodeOptions{NodeID: "id1", PluginDir: filepath.Join(dir, "p")})
	must(r.t, err)
	conn, err := grpc.NewClient("unix:"+n.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	capability := &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	}
	_, err = spec.NewControllerClient(r.options.Conn).ControllerPublishVolume(r.ctx(), &spec.ControllerPublishVolumeRequest{
		VolumeId: volume, NodeId: "id1", VolumeCapability: capability, Secrets: map[string]string{"token": secret}})
	must(r.t, err)
	staging := filepath.Join(dir, "staging")
	_, err = spec.NewNodeClient(conn).NodeStageVolume(r.ctx(), &spec.NodeStageVolumeRequest{VolumeId: volume, StagingTargetPath: staging, VolumeCapability: capability})
	must(r.t, err)
	_, err = spec.NewNodeClient(conn).NodePublishVolume(r.ctx(), &spec.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: staging, TargetPath: filepath.Join(dir, "target"), VolumeCapability: capability})
	must(r.t, err)
	return func() int {
		for _, w := range r.Writes(volume) {
			return w.Accepted
		}
		return 0
	}
}

func (r *rig) unpublish(volume string) error {
	_, err := spec.NewControllerClient(r.options.Conn).ControllerUnpublishVolume(r.ctx(), &spec.ControllerUnpublishVolumeRequest{
		VolumeId: volume, NodeId: "id1", Secrets: map[string]string{"token": secret}})
	return err
}

func TestOnlyAllAddressesInTheListAreOff(t *testing.T) {
	r := newRig(t, nil)
	all := r.m.Addresses
	r.m.Addresses = all[:1]
	r.off()
	r.reads(agent.Off, "")
	r.m.Addresses = all
	r.reads(agent.Unclear, "lists 192.0.2.1/32 as fenced, and not 2001:db8::1/128")
	r.m.Addresses = all[1:]
	r.reads(agent.On, "")
}

func TestAWiderBlockInTheListCoversTheMachine(t *testing.T) {
	r := newRig(t, nil)
	r.m.Addresses = []string{"192.0.2.1"}
	half, err := parse([]string{"192.0.2.0/25"}, addons.ParseBlock)
	must(t, err)
	must(t, r.agent.client.Fence(r.ctx(), addons.Credentials{Secrets: map[string]string{"token": secret}}, half))
	r.reads(agent.Off, "")
	r.m.Fenced = []string{"192.0.2.0/24"}
	r.reads(agent.Unclear, "and not 192.0.2.0/24")
	r.m.Addresses, r.m.Fenced = []string{"192.0.2.200"}, nil
	r.reads(agent.On, "")
}

func TestWhatFencesButDoesNotListIsNotOff(t *testing.T) {
	r := newRig(t, func(s *array.Switches) { s.FenceUnlisted = true })
	r.off()
	if !r.CutOff("id1") {
		t.Fatal("the array did not fence")
	}
	r.reads(agent.On, "")
}

func TestWhatAnswersOKAndDoesNothingIsNotOff(t *testing.T) {
	r := newRig(t, nil)
	r.Inject(array.Fault{Method: array.Fence, Do: array.Lie})
	r.off()
	r.reads(agent.On, "")
}

// A non-guarantee: the list is believed. The oracle is not fooled.
func TestADriverThatListsAndDoesNotCutIsBelievedAndTheOracleSeesIt(t *testing.T) {
	r := newRig(t, func(s *array.Switches) { s.FenceOnlyListed = true })
	write := r.use("vol-1")
	r.off()
	r.reads(agent.Off, "")
	before := write()
	must(t, r.WaitWrites(r.ctx(), "vol-1", "id1", 3))
	must(t, r.unpublish("vol-1"))
	if found := r.Violations(); write() <= before || len(found) != 1 || found[0].Kind != array.TakenInUse {
		t.Fatalf("violations: %v", found)
	}
}

func TestErrorsOfTheDriverProveNothingAndShowNoSecret(t *testing.T) {
	r := newRig(t, nil)
	r.off()
	for _, method := range []string{"GetIdentity", "GetCapabilities", array.ListFences} {
		fault := r.Inject(array.Fault{Method: method, Do: array.Fail, Code: codes.Internal, Message: "broken with " + secret})
		reading, err := r.agent.Status(r.ctx(), r.m)
		if method == array.ListFences {
			wantError(t, err, r.DriverName(), method, "broken")
			if strings.Contains(reading.Detail, secret) {
				t.Errorf("a secret is in the detail %q", reading.Detail)
			}
		} else if status.Code(errors.Unwrap(err)) != codes.Internal {
			t.Errorf("%s: %v", method, err)
		}
		if reading.State != agent.Unclear {
			t.Errorf("%s: reads %v", method, reading.State)
		}
		fault.Clear()
	}
	r.Inject(array.Fault{Method: array.Fence, Do: array.DoThenFail, Message: "lost " + secret})
	detail, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "FenceClusterNetwork", "lost")
	if len(agent.Blocks(detail)) != 2 {
		t.Errorf("what may be fenced all the same is not in the detail %q", detail)
	}
	r.Inject(array.Fault{Method: array.Unfence, Do: array.Fail, Message: "no " + secret})
	_, err = r.agent.On(r.ctx(), r.m)
	wantError(t, err, "UnfenceClusterNetwork", "no")
}

func TestEachCallEndsWithItsContext(t *testing.T) {
	for method, call := range map[string]func(*rig, context.Context) error{
		array.ListFences: func(r *rig, ctx context.Context) error { _, err := r.agent.Status(ctx, r.m); return err },
		array.Fence:      func(r *rig, ctx context.Context) error { _, err := r.agent.Off(ctx, r.m); return err },
		array.Unfence:    func(r *rig, ctx context.Context) error { _, err := r.agent.On(ctx, r.m); return err },
	} {
		t.Run(method, func(t *testing.T) {
			r := newRig(t, nil)
			r.Inject(array.Fault{Method: method, Do: array.Hang})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := call(r, ctx)
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
			wantError(t, err, method)
			r.fenced()
		})
	}
}

func TestADriverThatCannotFenceIsSaidSo(t *testing.T) {
	tests := map[string]struct {
		set    func(*array.Switches)
		driver string
		want   []string
	}{
		"no csi-addons":     {func(s *array.Switches) { s.NetworkFence = false }, "", []string{"serves no csi-addons", "another fence agent"}},
		"no network fences": {func(s *array.Switches) { s.NetworkFence, s.CSIAddons = false, true }, "", []string{"NETWORK_FENCE"}},
		"another driver":    {nil, "other.example.com", []string{`driver "array.csi-fencepost.io"`, `"other.example.com"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.set)
			if tt.driver != "" {
				r.options.Driver = tt.driver
				r.agent = r.newAgent()
			}
			device, faults := r.agent.Check(r.ctx(), r.m)
			if device != "" || len(faults) != 1 {
				t.Fatalf("device %q, faults %v", device, faults)
			}
			wantError(t, faults[0], tt.want...)
			reading, err := r.agent.Status(r.ctx(), r.m)
			wantError(t, err, tt.want...)
			if reading.State != agent.Unclear {
				t.Errorf("reads %v", reading.State)
			}
			_, err = r.agent.Off(r.ctx(), r.m)
			wantError(t, err, tt.want...)
		})
	}
}

func TestAFenceNeverNamesAnAddressOfAnotherNode(t *testing.T) {
	r := newRig(t, nil)
	nodes := r.cluster.nodes
	refused := func(other corev1.Node, says ...string) {
		t.Helper()
		r.cluster.nodes = append(slices.Clone(nodes), other)
		_, err := r.agent.Off(r.ctx(), r.m)
		wantError(t, err, append(says, "n1", "would also cut off node "+other.Name, "csi-fencepost fence confirm n1")...)
		r.fenced()
		if _, faults := r.agent.Check(r.ctx(), r.m); len(faults) != 1 {
			t.Errorf("faults of the check: %v", faults)
		}
	}
	refused(node("n3", "u3", corev1.ConditionTrue, "2001:db8::1"), "n3, which is Ready and has the address 2001:db8::1")
	// A node that is not Ready may still write to its other volumes.
	for _, silent := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
		refused(node("n3", "u3", silent, "192.0.2.1"), "n3, which is not Ready and has the address 192.0.2.1", "machine is gone for good", "kubectl delete node n3")
	}
	refused(node("n3", "u3", corev1.ConditionUnknown, "::ffff:192.0.2.1"), "the address 192.0.2.1")
	refused(node("n3", "u3", corev1.ConditionUnknown, "2001:db8::1%eth0\x1b[2J"), "the address 2001:db8::1 too")
	// A new machine under the old one's name is another one.
	nodes = nil
	refused(node("n1", "u9", corev1.ConditionTrue, "192.0.2.1"), "node n1, which is Ready")
	// What both kubelets say of themselves does not make them one.
	twin := node("n3", "u3", corev1.ConditionUnknown, "192.0.2.1")
	twin.Status.NodeInfo.BootID, twin.Status.NodeInfo.SystemUUID = "b1", "one"
	r.m.SystemUUID = "one"
	refused(twin, "n3, which is not Ready")

	r.cluster.nodes = nil
	lists := r.cluster.lists
	r.off()
	if r.cluster.lists != lists+1 {
		t.Error("the Nodes were not read live")
	}
}

func TestARefusalIsShortHoweverManyNodesHaveTheAddress(t *testing.T) {
	r := newRig(t, nil)
	for i := range 50 {
		r.cluster.nodes = append(r.cluster.nodes, node(fmt.Sprintf("worker-%02d.cluster-7.example.com", i), fmt.Sprint("w", i), corev1.ConditionUnknown, "192.0.2.1", "2001:db8::1"))
	}
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "worker-00", "and 48 more", "csi-fencepost fence confirm n1")
	if n := len(err.Error()); n > 512 {
		t.Errorf("%d bytes: %v", n, err)
	}
}

// Whoever writes a Node's status could otherwise cut a network off, or keep every
// other node from being cut off.
func TestANodeNamesSingleAddressesOnly(t *testing.T) {
	r := newRig(t, nil)
	for _, network := range []string{"192.0.0.0/3", "10.99.0.0/16", "192.0.2.0/31", "2001:db8::/32", "2001:db8::/127", "::ffff:192.0.2.0/120", "::ffff:0:0/90", "::/0", "0.0.0.0/0", "2001:db8::7%eth0", "2001:db8::7%\x1b[2J"} {
		r.m.Addresses = []string{"192.0.2.1", network}
		_, err := r.agent.Off(r.ctx(), r.m)
		wantError(t, err, "the addresses of Node n1", "single addresses only")
		if strings.Contains(err.Error(), "\x1b") {
			t.Errorf("it reaches a terminal: %q", err)
		}
		if reading, err := r.agent.Status(r.ctx(), r.m); err == nil || reading.State != agent.Unclear {
			t.Errorf("%s: the status reads %v, %v", network, reading, err)
		}
		if blocks, err := r.agent.Addresses(r.ctx(), r.m); err == nil {
			t.Errorf("%s: its addresses are %v", network, blocks)
		}
		r.m.Addresses = []string{"192.0.2.1"}
		r.cluster.nodes[1] = node("n2", "u2", corev1.ConditionTrue, network)
		r.off()
		r.fenced("192.0.2.1/32")
		_, err = r.agent.On(r.ctx(), r.m)
		must(t, err)
	}
	_, err := r.agent.Addresses(r.ctx(), agent.Machine{Node: "n1", Addresses: []string{strings.Repeat("x", 10000)}})
	if wantError(t, err, "xxx"); len(err.Error()) > 300 {
		t.Errorf("%d bytes", len(err.Error()))
	}
	for one, want := range map[string]string{"192.0.2.1/32": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1/128": "192.0.2.1/32", "2001:db8::1/128": "2001:db8::1/128"} {
		r.m.Addresses = []string{one}
		if blocks, err := r.agent.Addresses(r.ctx(), r.m); err != nil || text(blocks) != want {
			t.Errorf("%s: %v, %v", one, blocks, err)
		}
	}
}

// answering is the connection to a driver that answers GetFenceClients as told.
type answering struct {
	grpc.ClientConnInterface
	clients map[string][]string
}

func (c answering) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	answer, ok := reply.(*fencepb.GetFenceClientsResponse)
	if !ok {
		return c.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	}
	for id, addresses := range c.clients {
		one := &fencepb.ClientDetails{Id: id}
		for _, address := range addresses {
			one.Addresses = append(one.Addresses, &fencepb.CIDR{Cidr: address})
		}
		answer.Clients = append(answer.Clients, one)
	}
	return nil
}

// answers makes the driver tell its clients so.
func (r *rig) answers(clients map[string][]string) {
	r.Set(func(s *array.Switches) { s.FenceClients = true })
	if was, ok := r.options.Conn.(answering); ok {
		r.options.Conn = was.ClientConnInterface
	}
	r.options.Conn = answering{r.options.Conn, clients}
	r.agent = r.newAgent()
}

func TestTheDriverMayNameABlockOfOneMachineAndNoWiderOne(t *testing.T) {
	r := newRig(t, nil)
	for block, says := range map[string]string{
		"10.7.0.0/24": "", "2001:db8:7::/64": "", "10.7.0.9/30": "", "10.7.0.9": "",
		"10.7.0.0/23": "wider than /24", "10.0.0.0/8": "wider than /24", "2001:db8::/63": "wider than /64", "::ffff:10.7.0.0/119": "wider than /24",
		"::ffff:0:0/90": "all of IPv4", "::/0": "unspecified", "0.0.0.0/0": "unspecified", "10.7.0.0/33": "is no CIDR block",
	} {
		r.answers(map[string][]string{"id1": {block}})
		_, err := r.agent.Off(r.ctx(), r.m)
		if says == "" {
			must(t, err)
			if len(r.Fences()) != 1 {
				t.Errorf("%s: fenced %q", block, r.Fences())
			}
			_, err = r.agent.On(r.ctx(), r.m)
			must(t, err)
			continue
		}
		wantError(t, err, "GetFenceClients", says)
		r.fenced()
	}
}

// Behind one address translation all of them would be cut off.
func TestAFenceNeverNamesAnAddressOfAnotherClientOfTheStorage(t *testing.T) {
	r := newRig(t, nil)
	r.answers(map[string][]string{"id1": {"203.0.113.1"}, "id2": {"203.0.113.0/28"}})
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, `would also cut off another client of the storage, "id2", which has the address 203.0.113.0/28 too`)
	r.fenced()
	r.m.NodeID = "unknown" // the Node's own address is used
	r.answers(map[string][]string{"of-the-whole-cluster": {"192.0.2.1"}})
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, `"of-the-whole-cluster"`)
	r.m.NodeID = "id1"
	r.answers(map[string][]string{"id1": {"203.0.113.1"}, "id2": {"203.0.113.2"}})
	r.off()
	r.fenced("203.0.113.1/32")
}

func TestAFenceNamesNothingOutsideTheAllowedSubnets(t *testing.T) {
	r := newRig(t, nil)
	r.options.AllowedSubnets = []string{"192.0.2.0/24"}
	r.agent = r.newAgent()
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "node n1: 2001:db8::1/128 (addresses of Node n1) is outside csiAddons.allowedSubnets of agent array", "allow that subnet", "csiAddons.nodes")
	r.fenced()
	if _, faults := r.agent.Check(r.ctx(), r.m); len(faults) != 1 {
		t.Errorf("faults of the check: %v", faults)
	}
	r.reads(agent.On, "does not list 192.0.2.1/32, 2001:db8::1/128") // reading does no harm
	r.answers(map[string][]string{"id1": {"192.0.2.0/24", "192.0.3.0/24"}})
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "192.0.3.0/24 (the driver's client id1) is outside")
	r.answers(map[string][]string{"id1": {"192.0.2.0/24"}})
	r.options.AllowedSubnets = []string{"192.0.2.0/25"}
	r.agent = r.newAgent()
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "192.0.2.0/24 (the driver's client id1) is outside")
	r.Set(func(s *array.Switches) { s.FenceClients = false })
	r.options.AllowedSubnets = []string{"192.0.2.0/28", "2001:db8::/32"}
	r.agent = r.newAgent()
	r.m.Fenced = agent.Blocks(r.off())
	r.fenced("192.0.2.1/32", "2001:db8::1/128")
	// What was fenced before is given back all the same.
	r.options.AllowedSubnets = []string{"198.51.100.0/24"}
	r.agent = r.newAgent()
	_, err = r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced()
}

func TestOnlyTheDriverNamesAddressesWhereThatIsDeclared(t *testing.T) {
	r := newRig(t, nil)
	r.options.DriverOnly = true
	r.agent = r.newAgent()
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "csiAddons.addresses: DriverOnly", "GET_CLIENTS_TO_FENCE", "csiAddons.nodes")
	r.Set(func(s *array.Switches) { s.FenceClients = true })
	must(t, r.SetAddresses("id1", "198.51.100.7"))
	r.m.Fenced = agent.Blocks(r.off())
	r.fenced("198.51.100.7/32")
	// Cut off, the client is not known any more: the record is enough, and the Node's addresses are no part of it.
	r.m.NodeID = "id7"
	r.reads(agent.Off, "lists 198.51.100.7/32 as fenced")
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "no known address", "csiAddons.addresses: DriverOnly", "id7")
	_, err = r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced()
}

func TestWhereAddressesAreDeclaredTheyAloneCount(t *testing.T) {
	r := newRig(t, nil)
	r.options.Declared = map[string][]string{"n1": {"198.51.100.7", "::ffff:198.51.100.8"}, "n2": {"198.51.100.9"}}
	r.answers(map[string][]string{"id1": {"203.0.113.1"}})
	if !r.agent.Covers("n1") || r.agent.Covers("n3") {
		t.Error("it covers others than those that are declared")
	}
	r.m.Addresses = []string{"192.0.0.0/3"} // nobody reads it
	r.off()
	r.fenced("198.51.100.7/32", "198.51.100.8/32")
	r.reads(agent.Off, "")
	_, err := r.agent.On(r.ctx(), r.m)
	must(t, err)
	_, err = r.agent.Addresses(r.ctx(), agent.Machine{Node: "n3", Addresses: []string{"192.0.2.3"}})
	wantError(t, err, "node n3 has no known address", "csiAddons.nodes declares none for it, and since it declares some for other nodes, no others count: declare those of n3 there too")
	// A wrong one hits nobody.
	r.cluster.nodes = append(r.cluster.nodes, node("n4", "u4", corev1.ConditionTrue, "198.51.100.8"))
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "node n4, which is Ready")
	r.cluster.nodes = r.cluster.nodes[:2]
	r.answers(map[string][]string{"id2": {"198.51.100.8"}})
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, `"id2"`)
	r.fenced()
}

// Who writes the status of all Nodes names another address than the machine has: a fence that goes by Nodes'
// addresses then leaves it its access, and reads as off. Where somebody else says the addresses it is cut off.
func TestWhoeverWritesTheNodesAddressDecidesWhatIsCutOffOnlyWhereNobodyElseSaysTheAddresses(t *testing.T) {
	const own, also, named = "192.0.2.1", "2001:db8::1", "192.0.2.9"
	knows := func(r *rig) { r.Set(func(s *array.Switches) { s.FenceClients = true }) }
	for name, c := range map[string]struct {
		with func(*rig)
		cuts []string
	}{
		"the Node alone":                          {func(*rig) {}, []string{named + "/32"}},
		"the configuration":                       {func(r *rig) { r.options.Declared = map[string][]string{"n1": {own, also}} }, []string{own + "/32", also + "/128"}},
		"the driver, of its client":               {knows, []string{own + "/32", also + "/128"}},
		"the driver, of its client, and it alone": {func(r *rig) { knows(r); r.options.DriverOnly = true }, []string{own + "/32", also + "/128"}},
		"the driver alone, which knows none":      {func(r *rig) { r.options.DriverOnly = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c.with(r)
			r.agent = r.newAgent()
			r.cluster.nodes[0] = node("n1", "u1", corev1.ConditionUnknown, named)
			r.m.Addresses = []string{named}
			if c.cuts == nil {
				_, err := r.agent.Off(r.ctx(), r.m)
				wantError(t, err, "no known address")
				_, err = r.agent.Status(r.ctx(), r.m)
				wantError(t, err, "no known address")
				r.fenced()
				r.m.Fenced = []string{own + "/32"}
				must(t, r.agent.client.Fence(r.ctx(), addons.Credentials{Secrets: map[string]string{"token": secret}}, []netip.Prefix{netip.MustParsePrefix(own + "/32")}))
				if reading, err := r.agent.Status(r.ctx(), r.m); err != nil || reading.State != agent.Off || !reading.OwnWord {
					t.Errorf("the record alone names it: %+v, %v", reading, err)
				}
				return
			}
			r.m.Fenced = agent.Blocks(r.off())
			r.reads(agent.Off, "lists "+strings.Join(c.cuts, ", ")+" as fenced")
			if reading, err := r.agent.Status(r.ctx(), r.m); err != nil || reading.OwnWord != (c.cuts[0] == named+"/32") {
				t.Errorf("it is the Node's own word: %v, %v", reading.OwnWord, err)
			}
			r.fenced(c.cuts...)
			if r.CutOff("id1") != (c.cuts[0] == own+"/32") {
				t.Errorf("the machine is cut off: %v", r.CutOff("id1"))
			}
		})
	}
}

// A kubelet that claims the address of a node that is fenced would give it access again.
func TestNoAccessIsGivenBackToAnAddressOfAnotherNode(t *testing.T) {
	r := newRig(t, nil)
	r.cluster.nodes = append(r.cluster.nodes, node("n5", "u5", corev1.ConditionUnknown, "192.0.2.5"))
	other := agent.Machine{Node: "n5", UID: "u5", NodeID: "id5", Addresses: []string{"192.0.2.5"}}
	_, err := r.agent.Off(r.ctx(), other)
	must(t, err)
	r.m.Addresses = []string{"192.0.2.1"}
	cut := agent.Blocks(r.off())
	r.m.Addresses = append(r.m.Addresses, "192.0.2.5")
	_, err = r.agent.On(r.ctx(), r.m)
	wantError(t, err, "node n5", "192.0.2.5")
	r.fenced("192.0.2.1/32", "192.0.2.5/32")
	r.m.Fenced = cut
	_, err = r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced("192.0.2.5/32")
}

// It would be given a fence of the other's address, and keep that cut off.
func TestWhatIsOnlyReadAsCutAtAnAddressOfAnotherNodeIsUnclear(t *testing.T) {
	for name, tt := range map[string]struct {
		set    func(*rig)
		fenced []string // on the claimant's own record
		want   agent.State
	}{
		"claimed":                     {func(*rig) {}, nil, agent.Unclear},
		"claimed, with a fence of n1": {func(*rig) {}, []string{"192.0.2.1/32"}, agent.Unclear},
		"its own fence names it":      {func(*rig) {}, []string{"192.0.2.1/32", "192.0.2.5/32"}, agent.Off},
		"the other Node is gone":      {func(r *rig) { r.cluster.nodes = r.cluster.nodes[:2] }, nil, agent.Off},
		"declared by a person": {func(r *rig) {
			r.options.Declared = map[string][]string{"n1": {"192.0.2.1", "192.0.2.5"}, "n5": {"192.0.2.6"}}
		}, nil, agent.Off},
	} {
		r := newRig(t, nil)
		r.cluster.nodes = append(r.cluster.nodes, node("n5", "u5", corev1.ConditionUnknown, "192.0.2.5"))
		for _, address := range []string{"192.0.2.1", "192.0.2.5"} {
			_, err := r.agent.Off(r.ctx(), agent.Machine{Node: "n" + address[8:], UID: "u" + address[8:], NodeID: "id" + address[8:], Addresses: []string{address}})
			must(t, err)
		}
		tt.set(r)
		r.agent, r.m.Addresses, r.m.Fenced = r.newAgent(), []string{"192.0.2.1", "192.0.2.5"}, tt.fenced
		got, err := r.agent.Status(r.ctx(), r.m)
		must(t, err)
		if got.State != tt.want || strings.Contains(got.Detail, "which may be the fence of node n5") != (tt.want == agent.Unclear) {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
	r := newRig(t, nil)
	r.off()
	r.cluster.err = errors.New("connection refused")
	if got, err := r.agent.Status(r.ctx(), r.m); err == nil || got.State != agent.Unclear {
		t.Errorf("without the Nodes: %+v, %v", got, err)
	}
	r.m.Fenced = r.Fences()
	r.reads(agent.Off, "as fenced")
}

// R1: what else the machine has by now, or was read to be cut, somebody else has cut off.
func TestWhereOnlyWhatItsFencesCutIsGivenBackNothingElseIs(t *testing.T) {
	r := newRig(t, nil)
	was := agent.Blocks(r.off())
	r.m.Addresses = []string{"192.0.2.50"}
	r.off()
	r.m.Fenced, r.m.Only = append(was, "192.0.2.50/32"), []string{}
	_, err := r.agent.On(r.ctx(), r.m)
	wantError(t, err, "node n1: no fence of driver")
	r.m.Only = was
	_, err = r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced("192.0.2.50/32")
	r.m.Only = nil
	_, err = r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced()
}

func TestAnOffNamesWhatSomebodyElseHasCutApartAndCutsItToo(t *testing.T) {
	r := newRig(t, nil)
	r.m.Own = []string{"2001:db8::1/128", "192.0.2.77/32"}
	for range 2 {
		detail := r.off()
		if got := agent.Blocks(detail); !slices.Equal(got, []string{"2001:db8::1/128"}) || !strings.HasSuffix(detail, ", where somebody else has cut off 192.0.2.1/32") {
			t.Errorf("its own are %q: %s", got, detail)
		}
		r.fenced("192.0.2.1/32", "2001:db8::1/128")
	}
	r.m.Own = []string{}
	if detail := r.off(); len(agent.Blocks(detail)) > 0 || !strings.Contains(detail, "fence nothing new at driver") ||
		!strings.HasSuffix(detail, ", where somebody else has cut off 192.0.2.1/32, 2001:db8::1/128") {
		t.Error(detail)
	}
	r.m.Own = nil
	if got := agent.Blocks(r.off()); len(got) != 2 {
		t.Errorf("its own are %q", got)
	}
}

func TestAReadingNamesWhatAnOffWouldAndWhatIsCutOff(t *testing.T) {
	r := newRig(t, nil)
	says := func(named, cut string) {
		t.Helper()
		got, err := r.agent.Status(r.ctx(), r.m)
		must(t, err)
		if n, c := strings.Join(got.Named, " "), strings.Join(got.Cut, " "); n != named || c != cut {
			t.Errorf("names %q, of which %q are cut off, want %q and %q", n, c, named, cut)
		}
	}
	says("192.0.2.1/32 2001:db8::1/128", "")
	r.off()
	says("192.0.2.1/32 2001:db8::1/128", "192.0.2.1/32 2001:db8::1/128")
	r.m.Addresses = []string{"192.0.2.50"}
	says("192.0.2.50/32", "")
	r.m.Fenced = []string{"192.0.2.1/32"}
	says("192.0.2.50/32", "192.0.2.1/32")
	r.m.Addresses = nil
	says("", "192.0.2.1/32")
}

func TestWithoutTheNodesNothingIsFenced(t *testing.T) {
	r := newRig(t, nil)
	r.cluster.err = errors.New("connection refused")
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "cannot list Nodes", "connection refused")
	r.fenced()
}

func TestAFenceNamesNoSpecialAddress(t *testing.T) {
	r := newRig(t, nil)
	for _, address := range []string{"127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "fe80::1", "169.254.1.1", "::ffff:127.0.0.1", "255.255.255.255", "host-1", ""} {
		r.m.Addresses = []string{"192.0.2.1", address}
		_, err := r.agent.Off(r.ctx(), r.m)
		wantError(t, err, "n1")
		if _, err := r.agent.Status(r.ctx(), r.m); err == nil {
			t.Errorf("the status of %q is read", address)
		}
	}
	r.m.Addresses = nil
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "n1", "id1", "no known address")
	r.fenced()
}

func TestTheDriversOwnClientOfTheNodeIDCountsMoreThanTheNode(t *testing.T) {
	r := newRig(t, func(s *array.Switches) { s.FenceClients = true })
	must(t, r.SetAddresses("id1", "192.0.2.77"))
	detail := r.off()
	r.fenced("192.0.2.77/32")
	if !strings.Contains(detail, "the driver's client id1") {
		t.Errorf("detail %q", detail)
	}
	r.m.Addresses = nil // the Node is gone
	r.reads(agent.Off, "192.0.2.77/32")
	r.m.NodeID, r.m.Addresses = "id7", []string{"192.0.2.1"} // a client that it does not know
	r.reads(agent.On, "192.0.2.1/32")
	r.Inject(array.Fault{Method: array.FenceClients, Do: array.Fail, Message: "no " + secret})
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "GetFenceClients")
}

// R2: a kubelet writes its own CSINode. By the node ID of another node, whose addresses at the storage
// stand on no Node, that one would be cut off, and its fence be taken for the own.
func TestAClientWhoseNodeIDAnotherNodeHasIsNobodys(t *testing.T) {
	r := newRig(t, func(s *array.Switches) { s.FenceClients = true })
	must(t, r.SetAddresses("id1", "198.51.100.1"))
	r.csi.add("n1", r.DriverName(), "id1")
	r.csi.add("n2", r.DriverName(), "id2")
	r.csi.add("n3", "another.example.com", "id1")
	r.off()
	r.fenced("198.51.100.1/32")
	r.reads(agent.Off, "198.51.100.1/32")

	r.csi.add("n4", r.DriverName(), "id1")
	r.reads(agent.Unclear, "which may be the fence of node n4, whose CSINode has the node ID \"id1\" too")
	_, err := r.agent.On(r.ctx(), r.m)
	wantError(t, err, "its access is not given back", "node n4")
	r.fenced("198.51.100.1/32")
	r.m.Fenced = r.Fences() // the record says that it is its own
	r.reads(agent.Off, "198.51.100.1/32")
	_, err = r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced()
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "a fence would also cut off node n4, whose CSINode has the node ID", "csi-fencepost fence confirm n1")
	r.fenced()

	r.csi.err = errors.New("connection refused")
	_, err = r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "cannot list CSINodes", "connection refused")
	r.fenced()
	if declared := r.options; agent.Agent(r.agent).(agent.Knower).KnowsByID("n1") {
		declared.Declared = map[string][]string{"n1": {"192.0.2.1"}}
		if a, err := New(declared); err != nil || a.KnowsByID("n1") {
			t.Errorf("whose addresses are declared is known by its node ID: %v", err)
		}
	} else {
		t.Error("no client is known by its node ID")
	}
	// Who does not go by the node ID does not ask.
	r.Set(func(s *array.Switches) { s.FenceClients = false })
	r.m.Fenced = nil
	r.off()
	r.fenced("192.0.2.1/32", "2001:db8::1/128")
}

// Ceph-CSI answers so on its controller socket.
func TestADriverThatNamesItsOwnProcessIsNotCutOff(t *testing.T) {
	r := newRig(t, func(s *array.Switches) { s.FenceClientIsUs = true })
	r.off()
	r.fenced("192.0.2.1/32", "2001:db8::1/128")
}

func TestANodeThatReturnsUnderAnotherAddressIsUnfencedUnderBoth(t *testing.T) {
	r := newRig(t, nil)
	detail := r.off()
	r.m.Addresses, r.m.Fenced = []string{"192.0.2.50"}, agent.Blocks(detail)
	r.reads(agent.Unclear, "and not 192.0.2.50/32")
	got, err := r.agent.On(r.ctx(), r.m)
	must(t, err)
	if want := []string{"192.0.2.1/32", "192.0.2.50/32", "2001:db8::1/128"}; !slices.Equal(agent.Blocks(got), want) {
		t.Errorf("unfenced %q", got)
	}
	r.fenced()
	r.reads(agent.On, "")
}

func TestWhatTheRecordHoldsIsEnoughToUnfence(t *testing.T) {
	r := newRig(t, nil)
	r.m.Fenced = agent.Blocks(r.off())
	r.m.Addresses = nil
	_, err := r.agent.On(r.ctx(), r.m)
	must(t, err)
	r.fenced()
	r.m.Fenced = nil
	_, err = r.agent.On(r.ctx(), r.m)
	wantError(t, err, "no known address")
	r.m.Fenced = []string{"garbage"}
	_, err = r.agent.On(r.ctx(), r.m)
	wantError(t, err, "garbage", "record of node n1")
}

// The Node is gone, and the driver does not say who its clients are.
func TestWhatTheRecordHoldsIsEnoughToReadAMachineWithoutAddress(t *testing.T) {
	r := newRig(t, nil)
	r.m.Fenced = agent.Blocks(r.off())
	r.m.Addresses = nil
	r.reads(agent.Off, "lists 192.0.2.1/32, 2001:db8::1/128 as fenced")
	levels := agent.Levels{{{Agent: r.agent}}}
	if o := levels.On(r.ctx(), r.m); o.State != agent.On {
		t.Errorf("given back: %v: %s", o.State, o.Why)
	}
	r.fenced()
	r.reads(agent.On, "does not list 192.0.2.1/32, 2001:db8::1/128")

	// An address that cannot be told is not one that is not there.
	r.Set(func(s *array.Switches) { s.FenceClients = true })
	r.m.Addresses = []string{"192.0.2.1", "2001:db8::1"}
	r.off()
	r.m.Addresses = nil
	r.Inject(array.Fault{Method: array.FenceClients, Do: array.Fail, Message: "broken"})
	if reading, err := r.agent.Status(r.ctx(), r.m); err == nil || reading.State != agent.Unclear {
		t.Errorf("reads %v, %v", reading, err)
	}
}

func TestAFenceIsLiftedUnderWhateverAddressesTheMachineHasByNow(t *testing.T) {
	for name, now := range map[string][]string{"the same": {"192.0.2.1", "2001:db8::1"}, "others": {"192.0.2.50"}, "one more": {"192.0.2.1", "2001:db8::1", "192.0.2.77"}, "none": nil} {
		r := newRig(t, nil)
		r.m.Fenced = agent.Blocks(r.off())
		r.m.Addresses = now
		levels := agent.Levels{{{Agent: r.agent}}}
		if o := levels.On(r.ctx(), r.m); o.State != agent.On {
			t.Errorf("%s: came to %v: %s", name, o.State, o.Why)
		}
		r.fenced()
	}
}

func TestTheDeviceOfACheckIsTheSameForTwoMachinesOfOneAddress(t *testing.T) {
	r := newRig(t, nil)
	one, faults := r.agent.Check(r.ctx(), r.m)
	if len(faults) > 0 || one != "192.0.2.1/32, 2001:db8::1/128 at driver array.csi-fencepost.io" {
		t.Fatalf("device %q, faults %v", one, faults)
	}
	r.m.Node, r.m.UID, r.m.NodeID = "n9", "u9", "id9"
	if two, _ := r.agent.Check(r.ctx(), r.m); two != one {
		t.Errorf("devices %q and %q", one, two)
	}
	r.fenced()
}

func TestSecretsThatCannotBeReadStopEverything(t *testing.T) {
	r := newRig(t, nil)
	r.options.Secrets = func(context.Context, string) (map[string]string, error) { return nil, errors.New("secret not found") }
	r.agent = r.newAgent()
	_, err := r.agent.Off(r.ctx(), r.m)
	wantError(t, err, "secrets for node n1", "not found")
	r.options.Secrets = nil
	r.agent = r.newAgent()
	_, err = r.agent.Off(r.ctx(), r.m)
	if status.Code(errors.Unwrap(err)) != codes.Unauthenticated {
		t.Errorf("without secrets: %v", err)
	}
	r.fenced()
}

func TestNewNamesTheOptionThatIsMissing(t *testing.T) {
	r := newRig(t, nil)
	for want, drop := range map[string]func(*Options){
		"name": func(o *Options) { o.Name = "" }, "connection": func(o *Options) { o.Conn = nil },
		"driver": func(o *Options) { o.Driver = "" }, "Nodes": func(o *Options) { o.Nodes = nil }, "CSINodes": func(o *Options) { o.CSINodes = nil },
	} {
		o := r.options
		drop(&o)
		_, err := New(o)
		wantError(t, err, want)
	}
	for want, wrong := range map[string]func(*Options){
		`allowed subnets: "10.0.0.0/33"`:          func(o *Options) { o.AllowedSubnets = []string{"10.0.0.0/33"} },
		`declared for node n1: "10.0.0.0/8" is`:   func(o *Options) { o.Declared = map[string][]string{"n1": {"10.0.0.0/8"}} },
		`declared for node n1: 127.0.0.1 is loop`: func(o *Options) { o.Declared = map[string][]string{"n1": {"127.0.0.1"}} },
	} {
		o := r.options
		wrong(&o)
		_, err := New(o)
		wantError(t, err, want)
	}
}
