package kubeapi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/agent/csiaddons"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

func sidecarClient() rest.Interface { return sidecarOfEvidence.CoreV1().RESTClient() }

// storage is the reference array behind its socket, with an agent on it that reads nodes as the
// sidecar of the evidence may.
func storage(t *testing.T, machine string, addresses ...string) (*array.Array, *csiaddons.Agent) {
	t.Helper()
	return storageOf(t, sidecarOfEvidence, machine, addresses...)
}

func storageOf(t *testing.T, by kubernetes.Interface, machine string, addresses ...string) (*array.Array, *csiaddons.Agent) {
	t.Helper()
	dir, err := os.MkdirTemp("", "evidence") // t.TempDir is too long for a socket
	must(t, err)
	a := array.New(array.Options{})
	t.Cleanup(func() { a.Close(); os.RemoveAll(dir) })
	a.Set(func(s *array.Switches) { s.NetworkFence = true })
	must(t, a.AddMachine(machine))
	must(t, a.SetAddresses(machine, addresses...))
	must(t, a.Serve(t.Context(), filepath.Join(dir, "csi.sock")))
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	agent, err := csiaddons.New(csiaddons.Options{Name: "array", Conn: conn, Driver: a.DriverName(), Nodes: by.CoreV1().Nodes(), CSINodes: by.StorageV1().CSINodes()})
	must(t, err)
	return a, agent
}

func TestWithoutTheDefinitionsAllSourcesAreSilent(t *testing.T) {
	single.take(t)
	whole.use(t)
	n := addBareNode(t, "silent", "192.0.2.1")
	a, driver := storage(t, "id-silent", "192.0.2.1")
	for _, s := range []evidence.Source{
		evidence.NetworkFences(a.DriverName(), sidecarClient(), driver),
		evidence.FenceAgentsRemediations(sidecarClient(), sidecarRecords()), evidence.SelfNodeRemediations(sidecarClient(), sidecarRecords()),
	} {
		if found := askSource(t, s, questionAbout(t, n, a.DriverName())); found != nil {
			t.Errorf("%s: %+v", s.Name(), found)
		}
	}
	if calls := a.Calls(); len(calls) > 0 {
		t.Errorf("the driver was asked: %+v", calls)
	}
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), logger), 3*time.Second)
	defer cancel()
	prompts := evidence.Prompts{Client: sidecarClient(), Call: func(context.Context, evidence.Prompt) { t.Error("called") }}
	prompts.Run(ctx)
	if log.Len() > 0 {
		t.Errorf("logged:\n%s", log.String())
	}
}

func TestANetworkFenceCountsExactlyWhileTheArrayListsIt(t *testing.T) {
	single.take(t)
	whole.use(t)
	networkFence.install(t)
	fenceClass.install(t)
	n := addBareNode(t, "fenced", "192.0.2.1", "192.0.2.2")
	a, driver := storage(t, "id-fenced", "192.0.2.1", "192.0.2.2")
	s := evidence.NetworkFences(a.DriverName(), sidecarClient(), driver)
	expect := func(what, void string) {
		t.Helper()
		found := askSource(t, s, questionAbout(t, n, a.DriverName()))
		if len(found) != 1 || found[0].Kind != fence.StorageFence || found[0].NodeUID != string(n.UID) || !strings.Contains(found[0].Void, void) || (found[0].Void == "") != (void == "") {
			t.Fatalf("%s: evidence %+v, want void %q", what, found, void)
		}
	}
	spec := func(state string) fields {
		return fields{"networkFenceClassName": "gold", "fenceState": state, "cidrs": []string{"192.0.2.1/32", "192.0.2.2/32"}}
	}
	fenced := fields{"result": "Succeeded", "message": "fencing operation successful"}
	fenceClass.put(t, "gold", fields{"provisioner": a.DriverName()}, fields{})
	networkFence.put(t, "nf", spec("Fenced"), fields{})
	expect("not done yet", "is not in force")
	networkFence.put(t, "nf", spec("Fenced"), fenced)
	expect("the operator says so and the array does not", "does not confirm it")
	m := agent.Machine{Node: "fenced", UID: string(n.UID), NodeID: "id-fenced", Addresses: csiaddons.IPs(n)}
	if _, err := driver.Off(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	expect("both say so", "")
	a.Set(func(s *array.Switches) { s.FenceUnlisted = true })
	expect("the array stops listing it", "does not confirm it")
	a.Set(func(s *array.Switches) { s.FenceUnlisted = false })
	// Lifted: the object says so before the array has done it.
	networkFence.put(t, "nf", spec("Unfenced"), fenced)
	expect("about to be lifted", "is being lifted")
	networkFence.remove(t, "nf")
	if found := askSource(t, s, questionAbout(t, n, a.DriverName())); found != nil {
		t.Fatalf("evidence without an object: %+v", found)
	}
}

func TestAFenceNeverCutsOffAnotherReadyNodeOfTheCluster(t *testing.T) {
	single.take(t)
	whole.use(t)
	n := addBareNode(t, "dead", "192.0.2.1")
	a, driver := storage(t, "id-dead", "192.0.2.1")
	other := addBareNode(t, "living", "192.0.2.1")
	m := agent.Machine{Node: "dead", UID: string(n.UID), NodeID: "id-dead", Addresses: csiaddons.IPs(n)}
	setReady(t, other)
	if _, err := driver.Off(t.Context(), m); err == nil || !strings.Contains(err.Error(), "living") || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Fatalf("error %v", err)
	}
	if len(a.Fences()) > 0 {
		t.Fatalf("fenced: %v", a.Fences())
	}
}

// A kubelet writes its Node's addresses. By that its node gets no fence of another machine's, opens
// none, and has single addresses cut off that no other Node and no other client of the storage has.
func TestAKubeletThatClaimsAnAddressGetsNoFenceOfAnotherMachines(t *testing.T) {
	single.take(t)
	whole.use(t)
	dead, hostile := addBareNode(t, "cut-off", "192.0.2.1"), addBareNode(t, "claimant", "192.0.2.9")
	a, driver := storage(t, "id-dead", "192.0.2.1")
	a.Set(func(s *array.Switches) { s.FenceClients = true })
	must(t, a.AddMachine("id-client"))
	must(t, a.SetAddresses("id-client", "192.0.2.50"))
	kubeconfig, err := whole.bed.Cluster.Kubeconfig("system:node:"+hostile.Name, "system:nodes")
	must(t, err)
	kubelet := clientOf(t, kubeconfig).CoreV1().Nodes()
	claims := func(address string) agent.Machine {
		t.Helper()
		n, err := kubelet.Get(t.Context(), hostile.Name, metav1.GetOptions{})
		must(t, err)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		n, err = kubelet.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		must(t, err)
		return agent.Machine{Node: n.Name, UID: string(n.UID), NodeID: "id-hostile", Addresses: csiaddons.IPs(n)}
	}
	fenced := func(want ...string) {
		t.Helper()
		if got := fmt.Sprint(a.Fences()); got != fmt.Sprint(want) {
			t.Errorf("the storage has fenced %s, want %s", got, want)
		}
	}
	m := agent.Machine{Node: dead.Name, UID: string(dead.UID), NodeID: "id-dead", Addresses: csiaddons.IPs(dead)}
	_, err = driver.Off(t.Context(), m)
	must(t, err)

	claimant := claims("192.0.2.1")
	reading, err := driver.Status(t.Context(), claimant)
	must(t, err)
	if reading.State != agent.Unclear || !strings.Contains(reading.Detail, "which may be the fence of node "+dead.Name) {
		t.Errorf("the claimant reads %+v", reading)
	}
	if _, err := driver.Off(t.Context(), claimant); err == nil || !strings.Contains(err.Error(), dead.Name) {
		t.Errorf("it is given a fence: %v", err)
	}
	if _, err := driver.On(t.Context(), claimant); err == nil || !strings.Contains(err.Error(), dead.Name) {
		t.Errorf("it opens the other's: %v", err)
	}
	fenced("192.0.2.1/32")
	m.Fenced = []string{"192.0.2.1/32"}
	if reading, err := driver.Status(t.Context(), m); err != nil || reading.State != agent.Off {
		t.Errorf("the node that is cut off reads %+v, %v", reading, err)
	}

	if _, err := driver.Off(t.Context(), claims("192.0.2.50")); err == nil || !strings.Contains(err.Error(), "id-client") {
		t.Errorf("another client of the storage is cut off: %v", err)
	}
	fenced("192.0.2.1/32")
	_, err = driver.Off(t.Context(), claims("192.0.2.77"))
	must(t, err)
	fenced("192.0.2.1/32", "192.0.2.77/32")
}

func setReady(t *testing.T, n *corev1.Node) {
	t.Helper()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	must(t, whole.sendJSON(t, "PUT", "/api/v1/nodes/"+n.Name+"/status", fields{
		"apiVersion": "v1", "kind": "Node", "metadata": n.ObjectMeta, "status": n.Status}, nil))
}

func TestARemediationIsBoundCountsAndIsForgotten(t *testing.T) {
	single.take(t)
	whole.use(t)
	for _, o := range []struct {
		kind             customKind
		source           *evidence.Remediation
		request, claimed fields
	}{
		{remediation, evidence.FenceAgentsRemediations(sidecarClient(), sidecarRecords()),
			fields{"conditions": []any{fields{"type": "Processing", "status": "True", "reason": "RemediationStarted"}}},
			fields{"conditions": []any{fields{"type": "FenceAgentActionSucceeded", "status": "True", "reason": "FenceAgentSucceeded", "message": "done"}}}},
		{selfRemediation, evidence.SelfNodeRemediations(sidecarClient(), sidecarRecords()), fields{"phase": "Pre-Reboot-Completed"}, fields{"phase": "Reboot-Completed"}},
	} {
		t.Run(o.kind.name, func(t *testing.T) {
			o.kind.install(t)
			name := "node-" + strings.ToLower(o.kind.name)
			n := addBareNode(t, name)
			o.kind.put(t, name, fields{}, o.request)
			o.kind.put(t, "another-node", fields{}, o.claimed)
			must(t, o.source.Sight(t.Context(), questionAbout(t, n, "d").Node, "70"))
			if found := askSource(t, o.source, questionAbout(t, n, "d")); found != nil {
				t.Fatalf("a request is evidence: %+v", found)
			}
			o.kind.put(t, name, fields{}, o.claimed)
			askSource(t, o.source, questionAbout(t, n, "d")) // binds
			found := askSource(t, o.source, questionAbout(t, n, "d"))
			if len(found) != 1 || found[0].Void != "" || found[0].NodeUID != string(n.UID) || found[0].LeaseRV != "70" || string(found[0].Kind) != o.kind.name {
				t.Fatalf("evidence %+v", found)
			}
			q := questionAbout(t, n, "d")
			q.LeaseRV = "71"
			if found = askSource(t, o.source, q); len(found) != 1 || found[0].Void != fence.VoidLeaseChanged {
				t.Fatalf("evidence after a renewed lease: %+v", found)
			}
			o.kind.remove(t, name)
			if found = askSource(t, o.source, questionAbout(t, n, "d")); found != nil {
				t.Fatalf("evidence without an object: %+v", found)
			}
			if r := questionAbout(t, n, "d").Record; len(r.Taints) > 0 || len(r.Audit) == 0 {
				t.Fatalf("record %+v", r)
			}
		})
	}
}

func TestObjectsPromptWhenTheyAreThereAppearAndChange(t *testing.T) {
	single.take(t)
	whole.use(t)
	networkFence.install(t)
	remediation.install(t)
	selfRemediation.install(t)
	remediation.put(t, "before", fields{}, fields{})
	var mu sync.Mutex
	seen := map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	prompts := evidence.Prompts{Client: sidecarClient(), Call: func(_ context.Context, p evidence.Prompt) {
		mu.Lock()
		defer mu.Unlock()
		seen[strings.Join(append([]string{p.Kind, p.Name, p.Node, p.Driver}, p.CIDRs...), "|")]++
	}}
	done := make(chan struct{})
	go func() { defer close(done); prompts.Run(ctx) }()
	prompted := func(want string, atLeast int) {
		t.Helper()
		eventually(t, "a prompt "+want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen[want] >= atLeast
		})
	}
	prompted("FenceAgentsRemediation|before|before|", 1)
	selfRemediation.put(t, "n1", fields{}, fields{"phase": "Fencing-Started"}) // two writes
	prompted("SelfNodeRemediation|n1|n1|", 2)
	networkFence.put(t, "nf", fields{"driver": "d", "fenceState": "Fenced", "cidrs": []string{"192.0.2.1/32"}}, fields{})
	prompted("NetworkFence|nf||d|192.0.2.1/32", 2)
	remediation.put(t, "before", fields{}, fields{"conditions": []any{fields{"type": "Processing", "status": "True", "reason": "x"}}})
	prompted("FenceAgentsRemediation|before|before|", 2)
	cancel()
	<-done
}
