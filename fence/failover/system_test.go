package failover

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// isAnotherMachine has the worker's Node report another machine's system.
func isAnotherMachine(t *testing.T, w *worker) *corev1.Node {
	t.Helper()
	n, err := w.node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.Status.NodeInfo.SystemUUID = "bbbb"
	if _, err := w.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return n
}

// tookOver is the worker of a machine that took the Node of another over, which that
// fence is of.
func tookOver(t *testing.T, f fencer.Fence) (*worker, *scripted) {
	t.Helper()
	f.NodeUID, f.BootID, f.SystemUUID = "uid-1", "boot-1", "aaaa"
	w, known, _ := registeredAnew(t, f)
	n := isAnotherMachine(t, w)
	f = known.records["n1"]
	f.NodeUID = string(n.UID)
	known.records["n1"] = f
	return w, known
}

func look(t *testing.T, w *worker) *state {
	t.Helper()
	s, err := w.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAWordAboutAnEarlierMachineOfTheNodeIsNotMadeVoid(t *testing.T) {
	w, _ := tookOver(t, fencer.Fence{Kind: fence.PowerReading})
	must(t, w.Client.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "records"}})
	w.Records = record.NewStore(w.Client.CoordinationV1(), "records")
	w.Sources = []evidence.Source{evidence.Confirmations(evidence.Records{Store: w.Records, Actor: "test"})}
	s := look(t, w)
	c := record.Confirmation{By: "ann", Reason: "unplugged", Machines: []record.Machine{
		{NodeID: w.judged(s, nil)[0].NodeID, NodeUID: string(s.Node.UID), BootID: "boot-1", SystemUUID: "aaaa"}}}
	if _, err := w.Records.Confirm(t.Context(), "n1", c); err != nil {
		t.Fatal(err)
	}
	look(t, w)
	r, err := w.Records.Get(t.Context(), "n1")
	if err != nil || len(r.Confirmations) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := r.Confirmations[0]; got.Void != "" || got.Machines[0].Void != "" {
		t.Errorf("the confirmation is void: %+v", got)
	}
}

func TestAStorageFenceOfAnotherMachineProvesNothingOfTheOneThatHasItsName(t *testing.T) {
	for _, covered := range []bool{true, false} {
		w, known := tookOver(t, fencer.Fence{Kind: fence.StorageFence})
		known.covers = covered
		s := look(t, w)
		s.Life = fence.Stale
		if err := w.prove(t.Context(), s, nil); err != nil || s.Proof != "" {
			t.Errorf("covered: %v: proof %q, %v", covered, s.Proof, err)
		}
		s.Holds, s.Age, s.FenceAfter, s.Answer = true, time.Minute, 50*time.Second, &fencer.Answer{State: agent.Off, Kind: fence.StorageFence, Why: "agent array reads off"}
		w.FenceAfter = s.FenceAfter
		if !covered {
			continue
		}
		if _, text := w.awaited(s); !strings.Contains(text, "proves nothing") || !strings.Contains(text, "boot ID boot-1") || !strings.Contains(text, "fence on n1") {
			t.Errorf("awaited: %s", text)
		}
	}
}

// It waits for its agents, and not for the time when any other node is fenced.
func TestWhoWaitsForASilentNodeUnderAStorageFenceIsToldThatItsAgentsDoNotConfirmIt(t *testing.T) {
	w, known := tookOver(t, fencer.Fence{Kind: fence.StorageFence})
	known.covers = true
	s := look(t, w)
	s.Life, s.Holds, s.Age, w.FenceAfter = fence.Stale, true, time.Minute, 50*time.Second
	s.Fence.NodeUID, s.Fence.BootID, s.Fence.SystemUUID = string(s.Node.UID), s.Node.Status.NodeInfo.BootID, s.Node.Status.NodeInfo.SystemUUID
	for uncut, want := range map[bool]string{false: "it is under a storage fence, and whether that is in place its agents do not tell: no route", true: "no route; it is fenced when"} {
		s.Answer = &fencer.Answer{Why: "no route", Uncut: uncut}
		_, text := w.awaited(s)
		helps := strings.Contains(text, "csi-fencepost fence off n1 --reason") && strings.Contains(text, "csi-fencepost fence withdraw n1 --reason")
		if !strings.Contains(text, want) || helps == uncut {
			t.Errorf("awaited: %s", text)
		}
	}
}

// A person's word about a node that is gone is bound to the driver's node ID.
func TestAMachineWhoseNodeIsGoneIsTheOneThatTheLedgersName(t *testing.T) {
	w, _ := tookOver(t, fencer.Fence{Kind: fence.PowerReading})
	w.name = "gone"
	s := &state{Life: fence.Unknown, LeaseRV: "7"}
	d := w.Drivers[0]
	entry := func(id, uid string, in fence.State) held {
		return held{d, observe.Held{Entry: &ledger.Entry{NodeID: id, NodeName: "gone", NodeUID: uid, BootID: "boot-0", State: in}}}
	}
	volumes := []held{{Driver: d}, entry("id-0", "uid-0", fence.TakenOver), entry("id-7", "uid-7", fence.Publishing), entry("id-8", "uid-8", fence.Held)}
	all := w.judged(s, append(volumes, volumes[2]))
	if len(all) != 2 || all[1].NodeID != "id-8" || all[1].NodeUID != "uid-8" {
		t.Fatalf("the machines of two entries: %+v", all)
	}
	if h := all[0]; h.NodeID != "id-7" || h.NodeUID != "uid-7" || h.BootID != "boot-0" || h.NodeName != "gone" || h.Node != nil || h.Liveness != fence.Unknown || h.LeaseRV != "7" {
		t.Errorf("%+v", h)
	}
	if all := w.judged(s, nil); len(all) != 1 || all[0].NodeID != "gone" || all[0].NodeUID != "" {
		t.Errorf("of no ledger: %+v", all)
	}
}
