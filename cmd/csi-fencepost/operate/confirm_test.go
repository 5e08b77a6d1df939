package operate

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// leaseAt is a kubelet's lease with that resourceVersion.
func leaseAt(version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: corev1.NamespaceNodeLease, ResourceVersion: version}}
}

func csiNodeOf(nodeID string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: clitest.Driver, NodeID: nodeID}}}}
}

func held(pv, nodeID, uid, boot string) cluster.Holding {
	return cluster.Holding{Machine: fence.Machine{NodeID: nodeID, NodeUID: uid, BootID: boot}, PV: pv, Driver: clitest.Driver}
}

func TestConfirmBindsTheLiveNodeAndEveryMachineThatHoldsVolumes(t *testing.T) {
	live := &cluster.Node{Name: "n1", Node: clitest.Node("n1", "uid-2", "boot-2"), Lease: leaseAt("7"), CSINode: csiNodeOf("i-2")}
	gone := &cluster.Node{Name: "n1"}
	goneWithLease := &cluster.Node{Name: "n1", Lease: leaseAt("9")}
	liveMachine := record.Machine{NodeUID: "uid-2", BootID: "boot-2", LeaseRV: "7"}
	old := record.Machine{NodeID: "i-1", NodeUID: "uid-1", BootID: "boot-1"}
	oldAtLease := old
	oldAtLease.LeaseRV = "9"
	mine, older := held("pv-2", "i-2", "uid-2", "boot-2"), held("pv-1", "i-1", "uid-1", "boot-1")

	for name, c := range map[string]struct {
		now      *cluster.Node
		held     []cluster.Holding
		nodeID   string
		machines []record.Machine
		covered  []string
		again    []string
		watch    bool
	}{
		"a live Node without volumes": {now: live, machines: []record.Machine{liveMachine}, watch: true},
		"a live Node and an older machine of its name": {now: live, held: []cluster.Holding{mine, older},
			machines: []record.Machine{liveMachine, old}, covered: []string{"pv-2", "pv-1"}, watch: true},
		"only the older machine: the new one's lease says nothing of it": {now: live, held: []cluster.Holding{mine, older}, nodeID: "i-1",
			machines: []record.Machine{old}, covered: []string{"pv-1"}},
		"a machine whose Node the live one took over, by its node ID": {now: live, held: []cluster.Holding{held("pv-1", "i-1", "uid-2", "boot-1")}, nodeID: "i-1",
			machines: []record.Machine{{NodeID: "i-1", NodeUID: "uid-2", BootID: "boot-1"}}, covered: []string{"pv-1"}},
		"only the older machine, where the live one has its node ID and a volume, too": {now: live, held: []cluster.Holding{held("pv-1", "i-2", "uid-1", "boot-1"), mine}, nodeID: "i-2",
			machines: []record.Machine{{NodeID: "i-2", NodeUID: "uid-1", BootID: "boot-1"}}, covered: []string{"pv-1"}},
		"only the live machine, by its node ID": {now: live, held: []cluster.Holding{mine, older}, nodeID: "i-2",
			machines: []record.Machine{{NodeID: "i-2", NodeUID: "uid-2", BootID: "boot-2", LeaseRV: "7"}}, covered: []string{"pv-2"}, watch: true},
		"the node ID of the live machine, which holds nothing": {now: live, nodeID: "i-2",
			machines: []record.Machine{{NodeID: "i-2", NodeUID: "uid-2", BootID: "boot-2", LeaseRV: "7"}}, watch: true},
		"one machine with several volumes is bound once": {now: gone, held: []cluster.Holding{older, held("pv-3", "i-1", "uid-1", "boot-1")},
			machines: []record.Machine{old}, covered: []string{"pv-1", "pv-3"}},
		"a Node that is gone and whose lease is not yet": {now: goneWithLease, held: []cluster.Holding{older},
			machines: []record.Machine{old, oldAtLease}, covered: []string{"pv-1"}, watch: true},
		"a machine that has registered again without a reboot": {now: live, held: []cluster.Holding{held("pv-1", "i-1", "uid-1", "boot-2")},
			machines: []record.Machine{liveMachine}, again: []string{"pv-1"}, watch: true},
		"the same, by its node ID: the live lease speaks of it": {now: live, held: []cluster.Holding{held("pv-1", "i-1", "uid-1", "boot-2")}, nodeID: "i-1",
			machines: []record.Machine{{NodeID: "i-1", NodeUID: "uid-2", BootID: "boot-2", LeaseRV: "7"}}, again: []string{"pv-1"}, watch: true},
		"a machine of which nothing is known may be the live one": {now: live, held: []cluster.Holding{held("pv-1", "i-1", "", "")}, nodeID: "i-1",
			machines: []record.Machine{{NodeID: "i-1", NodeUID: "uid-2", BootID: "boot-2", LeaseRV: "7"}, {NodeID: "i-1"}}, covered: []string{"pv-1"}, watch: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := bind(c.now, &cluster.Holdings{All: c.held}, c.nodeID)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(b.machines, c.machines) {
				t.Errorf("machines %+v, want %+v", b.machines, c.machines)
			}
			if got := names(b.covered); !reflect.DeepEqual(got, c.covered) {
				t.Errorf("covers %v, want %v", got, c.covered)
			}
			if got := names(b.registeredAgain); !reflect.DeepEqual(got, c.again) {
				t.Errorf("registered again %v, want %v", got, c.again)
			}
			if b.watch != c.watch {
				t.Errorf("watch %v, want %v", b.watch, c.watch)
			}
		})
	}
}

func names(held []cluster.Holding) (names []string) {
	for _, h := range held {
		names = append(names, h.PV)
	}
	return names
}

// watched is what watching says of a node to which life happens.
func watched(t *testing.T, lease *coordinationv1.Lease, node *corev1.Node, after time.Duration, life func(*fake.Clientset)) (time.Duration, error) {
	t.Helper()
	client := fake.NewClientset()
	if node != nil {
		if err := client.Tracker().Add(node); err != nil {
			t.Fatal(err)
		}
	}
	if lease != nil {
		if err := client.Tracker().Add(lease); err != nil {
			t.Fatal(err)
		}
	}
	now, err := cluster.ReadNode(t.Context(), client, "n1")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if life != nil {
		defer time.AfterFunc(after, func() { life(client) }).Stop()
	}
	err = watchSilence(t.Context(), client, now, &strings.Builder{})
	return time.Since(began), err
}

func renew(c *fake.Clientset) {
	if _, err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(context.Background(), leaseAt("8"), metav1.UpdateOptions{}); err != nil {
		panic(err)
	}
}

func TestConfirmIsRefusedWhenTheLeaseIsSeenToChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, err := watched(t, leaseAt("7"), clitest.Node("n1", "uid-1", "boot-1"), 9500*time.Millisecond, renew)
		if err == nil || took > 11*time.Second {
			t.Fatalf("after %s: %v, want that it is alive, at once", took, err)
		}
		clitest.Says(t, err.Error(), "node n1 is alive", "renewed its lease", "Nothing was written")
	})
}

func TestConfirmWatchesLongerThanAKubeletTakesToRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, err := watched(t, leaseAt("7"), clitest.Node("n1", "uid-1", "boot-1"), 0, nil)
		if err != nil || took < confirmWatch {
			t.Errorf("after %s: %v, want silence for %s", took, err, confirmWatch)
		}
	})
	seconds := int32(120)
	slow := leaseAt("7")
	slow.Spec.LeaseDurationSeconds = &seconds
	if got, want := watchPeriod(slow), 32*time.Second; got != want {
		t.Errorf("a lease of 120 s is renewed every 30 s; it is watched for %s, want %s", got, want)
	}
	usual := int32(40)
	slow.Spec.LeaseDurationSeconds = &usual
	if got := watchPeriod(slow); got != confirmWatch {
		t.Errorf("a usual lease is watched for %s, want %s", got, confirmWatch)
	}
}

func TestConfirmIsRefusedOfAReadyNodeThatHasNoLeaseYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := clitest.Node("n1", "uid-1", "boot-1")
		node.Status.Conditions[0].Status = corev1.ConditionTrue
		_, err := watched(t, nil, node, 0, nil)
		if err == nil {
			t.Fatal("a Ready node was taken for silent")
		}
		clitest.Says(t, err.Error(), "node n1 is alive", "Ready")
	})
}

func TestConfirmIsRefusedWhenTheNodeIsDeletedOrReplacedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := watched(t, leaseAt("7"), clitest.Node("n1", "uid-1", "boot-1"), 3*time.Second, func(c *fake.Clientset) {
			if err := c.CoreV1().Nodes().Delete(context.Background(), "n1", metav1.DeleteOptions{}); err != nil {
				panic(err)
			}
		})
		if err == nil {
			t.Fatal("a Node that was deleted meanwhile was bound")
		}
		clitest.Says(t, err.Error(), "has changed while it was looked at", "try again")
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := watched(t, nil, clitest.Node("n1", "uid-1", "boot-1"), 3*time.Second, func(c *fake.Clientset) {
			if err := c.Tracker().Add(leaseAt("8")); err != nil {
				panic(err)
			}
		})
		if err == nil {
			t.Fatal("a lease that appeared was no sign of life")
		}
		clitest.Says(t, err.Error(), "is alive")
	})
}

// silentCluster is a fake cluster with a volume on a node that shows no life.
func silentCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	node := clitest.Node("n1", "uid-1", "boot-1")
	clitest.InUse(node)
	attached := "pv-2"
	return &cluster.Cluster{Config: config.Default(), Client: fake.NewClientset(node, leaseAt("7"), csiNodeOf("i-1"),
		clitest.PV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing)),
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-2"},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: clitest.Driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &attached}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: clitest.Cluster}})}
}

func confirmN1() *confirmFlags {
	f := &confirmFlags{claimFlags: newClaimFlags("fence confirm", ""), node: "n1", yes: true}
	f.reason = "powered off by hand"
	return f
}

func TestConfirmOfASilentNodeUnblocksItsVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, out := silentCluster(t), &strings.Builder{}
		if err := confirmN1().confirm(t.Context(), c, out, &strings.Builder{}); err != nil {
			t.Fatal(err)
		}
		clitest.Says(t, out.String(), "the live Node, node UID uid-1, boot ID boot-1, lease 7", "pv-1 (driver disk.example.com, node ID i-1)", "pv-2 (driver disk.example.com, node ID i-1)")
		r, err := c.Records().Get(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		want := []record.Machine{{NodeUID: "uid-1", BootID: "boot-1", LeaseRV: "7"}}
		if got := r.Confirmations[0].Machines; !reflect.DeepEqual(got, want) {
			t.Errorf("bound to %+v, want %+v", got, want)
		}
		l, err := explain.LookAt(t.Context(), c, "pv-1", 20*time.Second, &strings.Builder{})
		if err != nil {
			t.Fatal(err)
		}
		if d := explain.Explain(l).Decision; d.Action != "allow" || d.Reason != fence.HolderFenced {
			t.Errorf("after it, a publish elsewhere: %+v, want that it is allowed", d)
		}
	})
}

// replacedCluster is a node whose machine i-1 was replaced, by one that has its
// name, its Node and its node ID, and lives.
func replacedCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	node := clitest.Node("n1", "uid-1", "boot-2")
	node.Status.NodeInfo.SystemUUID = "system-2"
	old := clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing)
	old.SystemUUID = "system-1"
	return &cluster.Cluster{Config: config.Default(), Client: fake.NewClientset(node, leaseAt("7"), csiNodeOf("i-1"), clitest.PV("pv-1", old),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: clitest.Cluster}})}
}

func TestConfirmSpeaksOfAMachineThatAnotherReplacedUnderItsNodeAndNodeID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := replacedCluster(t)
		defer time.AfterFunc(time.Second, func() { renew(c.Client.(*fake.Clientset)) }).Stop()
		err := confirmN1().confirm(t.Context(), c, &strings.Builder{}, &strings.Builder{})
		if err == nil {
			t.Fatal("a living node was confirmed to be off")
		}
		clitest.Says(t, err.Error(), "node n1 is alive", "of the older machine of its name with node ID i-1", "csi-fencepost fence confirm n1 --node-id i-1 --reason TEXT")

		f := confirmN1()
		f.nodeID = "i-1"
		if err := f.confirm(t.Context(), c, &strings.Builder{}, &strings.Builder{}); err != nil {
			t.Fatal(err)
		}
		r, err := c.Records().Get(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		want := []record.Machine{{NodeID: "i-1", NodeUID: "uid-1", BootID: "boot-1", SystemUUID: "system-1"}}
		if got := r.Confirmations[0].Machines; !reflect.DeepEqual(got, want) {
			t.Errorf("bound to %+v, want %+v", got, want)
		}
		l, err := explain.LookAt(t.Context(), c, "pv-1", 20*time.Second, &strings.Builder{})
		if err != nil {
			t.Fatal(err)
		}
		if d := explain.Explain(l).Decision; d.Action != "allow" || d.Reason != fence.HolderFenced {
			t.Errorf("after it, a publish elsewhere: %+v, want that it is allowed", d)
		}
	})
}

func TestConfirmBindsTheLiveMachineByItsUUID(t *testing.T) {
	node := clitest.Node("n1", "uid-1", "boot-2")
	node.Status.NodeInfo.SystemUUID = "system-2"
	b, err := bind(&cluster.Node{Name: "n1", Node: node, Lease: leaseAt("7"), CSINode: csiNodeOf("i-1")}, &cluster.Holdings{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []record.Machine{{NodeUID: "uid-1", BootID: "boot-2", SystemUUID: "system-2", LeaseRV: "7"}}; !reflect.DeepEqual(b.machines, want) {
		t.Errorf("bound to %+v, want %+v", b.machines, want)
	}
}

func TestConfirmTellsARebootFromAnotherMachineByItsUUID(t *testing.T) {
	now := &cluster.Node{Name: "n1", Node: clitest.Node("n1", "uid-1", "boot-2"), Lease: leaseAt("7"), CSINode: csiNodeOf("i-1")}
	for uuid, older := range map[string]bool{"": false, "system-1": false, "system-2": true} {
		now.Node.Status.NodeInfo.SystemUUID = uuid
		h := held("pv-1", "i-1", "uid-1", "boot-1")
		h.SystemUUID = "system-1"
		if got := now.IsOlder(h); got != older {
			t.Errorf("the live machine's UUID is %q: another machine: %v, want %v", uuid, got, older)
		}
	}
}

func TestConfirmWritesNothingOfANodeThatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := silentCluster(t)
		defer time.AfterFunc(5*time.Second, func() { renew(c.Client.(*fake.Clientset)) }).Stop()
		err := confirmN1().confirm(t.Context(), c, &strings.Builder{}, &strings.Builder{})
		if err == nil {
			t.Fatal("a living node was confirmed to be off")
		}
		clitest.Says(t, err.Error(), "node n1 is alive")
		if r, err := c.Records().Get(t.Context(), "n1"); r != nil || err != nil {
			t.Errorf("record %+v (%v), want none", r, err)
		}
	})
}

func TestConfirmSaysWhichVolumesHaveToBeDetachedFirst(t *testing.T) {
	node := clitest.Node("n1", "uid-1", "boot-1")
	clitest.ListedAttached(node)
	h := held("pv-1", "i-1", "uid-1", "boot-1")
	h.Handle = clitest.Handle
	var out strings.Builder
	printBinding(&out, &cluster.Node{Name: "n1", Node: node}, &binding{machines: []record.Machine{{NodeUID: "uid-1"}}, covered: []cluster.Holding{h},
		registeredAgain: []cluster.Holding{held("pv-9", "i-0", "uid-0", "boot-1")}})
	clitest.Says(t, strings.Join(strings.Fields(out.String()), " "), "pv-1 (driver disk.example.com, node ID i-1): once Kubernetes has taken it off the node's volumesAttached",
		"Not pv-9: its machine has registered again", "csi-fencepost release pv pv-9 --node n1 --node-id i-0 --reason TEXT")
}

func TestFenceStatusShowsWhatIsVoidAndWhatIsGarbled(t *testing.T) {
	r := record.New("n1")
	r.Taints = map[string]record.TaintBinding{"node.kubernetes.io/out-of-service": {NodeUID: "uid-1", Value: "nodeshutdown", Writer: "kubectl\x1b[31m", BoundAt: "2026-11-21T11:00:00Z", Void: "the node has booted since"}}
	r.AddConfirmation(record.Confirmation{ID: "c1", By: "eve\x1b[31m\n", Reason: "r", At: "2026-11-21T11:00:01Z", Machines: []record.Machine{{NodeUID: "uid-1"}}})
	r.AddConfirmation(record.Confirmation{ID: "c2", By: "bob", Reason: "r", At: "2026-11-21T11:00:02Z", Void: "gone stale", Machines: []record.Machine{{NodeID: "i-1"}}})
	r.Confirmations = append(r.Confirmations, record.Confirmation{ID: "c3", By: "mallory", Reason: "r", Machines: []record.Machine{{NodeUID: "uid-1"}}})
	r.Overrides = append(r.Overrides, record.Override{ID: "o1", Agent: "bmc", By: "mallory"})
	r.Releases = append(r.Releases, record.Release{ID: "r1", Volume: "v1", By: "mallory", Life: record.Gone})
	r.Audit = []record.Audit{{At: "2026-11-21T11:00:02Z", Actor: "bob", Action: "Confirm", Detail: "c2"}, {At: "2026-11-21T11:00:01Z", Actor: "eve", Action: "Confirm", Detail: "c1"}}
	status := &fenceStatus{Records: []*record.Record{r}, Garbled: []string{"the record of node n2 cannot be read"}}
	var out strings.Builder
	printStatus(&out, status)
	clitest.Says(t, out.String(), `node.kubernetes.io/out-of-service on node UID uid-1, the taints were last written by "kubectl\x1b[31m"`, "no: the node has booted since", "no: gone stale", "yes, unless the node shows life", "! the record of node n2 cannot be read")
	if n := strings.Count(out.String(), "no: "+fence.VoidUnclaimed); n != 3 {
		t.Errorf("%d of the three that nobody vouches for are said to prove nothing:\n%s", n, out.String())
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("what a person wrote reaches the terminal as a control sequence")
	}
	if first, second := strings.Index(out.String(), "c1\n"), strings.LastIndex(out.String(), "c2\n"); first < 0 || second < first {
		t.Errorf("the audit trail is not in the order of time:\n%s", out.String())
	}
}

func TestFenceStatusAsJSON(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	commandLine(t, cli.ExitOK, "fence", "confirm", "n1", "--reason=x", "--yes", kubeconfig)
	stdout, _ := commandLine(t, cli.ExitOK, "fence", "status", "-o", "json", kubeconfig)
	var status fenceStatus
	if err := json.Unmarshal([]byte(stdout), &status); err != nil {
		t.Fatal(err)
	}
	if status.Kind != "FenceStatus" || len(status.Records) != 1 || status.Records[0].Node != "n1" {
		t.Errorf("not what is there: %s", stdout)
	}
}

func TestConfirmWorksWhenTheNodeIsGone(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing), clitest.Entry("i-7", "n7", "uid-7", "boot-7", fence.Held))
	api.AddPV("pv-2", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.TakenOver))
	restored := clitest.PV("pv-3", clitest.Entry("i-5", "n1", "uid-5", "boot-5", fence.Held))
	restored.UID = "created again"
	api.Put("/api/v1/persistentvolumes/pv-3", restored)
	broken := clitest.PV("pv-4")
	broken.Annotations = map[string]string{ledger.Annotation: "{"}
	api.Put("/api/v1/persistentvolumes/pv-4", broken)
	pv := "pv-5"
	api.Put("/apis/storage.k8s.io/v1/volumeattachments/va-5", &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-5", Annotations: map[string]string{csi.NodeIDAnnotation: "i-9"}},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: clitest.Driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}})

	stdout, _ := commandLine(t, cli.ExitOK, "fence", "confirm", "n1", "--reason", "the rack burnt down", "--yes", kubeconfig)
	clitest.Says(t, stdout, "pv-1 (driver disk.example.com, node ID i-1)", "pv-5 (driver disk.example.com, node ID i-9)", "ledger of PersistentVolume pv-4 cannot be read", "Confirmed: node n1 is off")
	r := api.Record("n1")
	if r == nil || len(r.Confirmations) != 1 {
		t.Fatalf("record %+v, want one confirmation", r)
	}
	c := r.Confirmations[0]
	want := []record.Machine{{NodeID: "i-1", NodeUID: "uid-1", BootID: "boot-1"}, {NodeID: "i-9"}}
	if !reflect.DeepEqual(c.Machines, want) {
		t.Errorf("bound to %+v, want %+v", c.Machines, want)
	}
	if c.By != "alice" || c.Reason != "the rack burnt down" {
		t.Errorf("by %q because %q, want the user as the API server knows them, and the reason", c.By, c.Reason)
	}

	stdout, _ = commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "Node n1 (ID i-1) is fenced (OperatorConfirmation (alice))")

	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "node is off", "alice", "node ID i-1, node UID uid-1: the rack burnt down", c.ID, "AUDIT")
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", "n2", kubeconfig)
	clitest.Says(t, stdout, "Nothing is claimed of any node.")

	_, stderr := commandLine(t, cli.ExitFailure, "fence", "withdraw", "n1", "--id=other", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, `node n1 has no confirmation "other"`)
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "withdraw", "n1", "--id="+c.ID, "--reason=wrong rack", kubeconfig)
	clitest.Says(t, stdout, "Withdrawn")
	if got := api.Record("n1"); len(got.Confirmations) != 0 || len(got.Audit) != 2 {
		t.Errorf("after the withdrawal: %+v, want no confirmation and both in the audit trail", got)
	}
	_, stderr = commandLine(t, cli.ExitFailure, "fence", "withdraw", "n1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "there is no confirmation of node n1")
}

func TestConfirmRefusesWhatItKnowsNothingOf(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "worker-1", "uid-1", "boot-1", fence.Publishing))
	_, stderr := commandLine(t, cli.ExitFailure, "fence", "confirm", "worker-2", "--reason=x", "--yes", kubeconfig)
	clitest.Says(t, stderr, "nothing is known of a node worker-2", "did you mean worker-1?")
	_, stderr = commandLine(t, cli.ExitFailure, "fence", "confirm", "worker-1", "--node-id=i-2", "--reason=x", "--yes", kubeconfig)
	clitest.Says(t, stderr, "no machine with node ID i-2; it has i-1")
	api.Forbidden["get namespaces"] = true
	_, stderr = commandLine(t, cli.ExitFailure, "fence", "confirm", "worker-1", "--reason=x", "--yes", kubeconfig)
	clitest.Says(t, stderr, "cannot read the identity of the cluster", "forbidden")
	if api.Writes != 0 {
		t.Errorf("%d writes, want none", api.Writes)
	}
}

func TestOperatorIsNamedByThisMachineWhereTheAPIServerDoesNot(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.Forbidden["create selfsubjectreviews"] = true
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	t.Setenv("USER", "bob")
	commandLine(t, cli.ExitOK, "fence", "confirm", "n1", "--reason=x", "--yes", kubeconfig)
	if by := api.Record("n1").Confirmations[0].By; !strings.HasPrefix(by, "bob@") {
		t.Errorf("by %q, want bob@host", by)
	}
}

func TestAskTakesOnlyTheNodesName(t *testing.T) {
	for typed, want := range map[string]bool{"n1\n": true, "n1": true, "y\n": false, "n2\n": false, "": false} {
		if got := ask(t.Context(), strings.NewReader(typed), &strings.Builder{}, "n1", "sure? "); got != want {
			t.Errorf("%q: %v, want %v", typed, got, want)
		}
	}
}

// operateLine runs a command line, explain among them, and asserts its exit code.
func commandLine(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	return clitest.Line(t, append(Commands(), explain.Command()), want, args...)
}
