package fencer

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

func TestAFenceKeepsWhatTellsItsMachine(t *testing.T) {
	f := fenceOf(record.New("n1"), &record.Fence{Phase: record.Fenced, Machine: record.FencedMachine{NodeUID: "u", BootID: "b", LeaseRV: "5", SystemUUID: "s"}})
	if f.NodeUID != "u" || f.BootID != "b" || f.LeaseRV != "5" || f.SystemUUID != "s" {
		t.Errorf("got %+v", f)
	}
}

func TestOnlyAFenceThatWasSentCountsAsCut(t *testing.T) {
	found := record.Fence{Phase: record.Fenced, StartedAt: "2026-01-02T03:04:05Z", Steps: []record.FenceStep{{Action: "status", State: "off"}}}
	sent := record.Fence{Phase: record.Fenced, Steps: []record.FenceStep{{Action: "status"}, {Action: "off"}, {Action: "status"}}}
	if f := fenceOf(record.New("n1"), &found); f.Cut || f.At.Year() != 2026 {
		t.Errorf("found off: %+v", f)
	}
	if !fenceOf(record.New("n1"), &sent).Cut || !fenceOf(record.New("n1"), &record.Fence{Phase: record.Fencing}).Cut {
		t.Error("a fence that was sent, or is under way, is not counted")
	}
}

// The machine may well be off: it is one of the hour's, though nothing is proven.
func TestAnOffThatWasTakenCountsAlthoughNobodyReadsTheMachineAsOff(t *testing.T) {
	server := apiserver.New(apiserver.Options{})
	apiserver.Put(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "records"}})
	client := kubernetes.NewForConfigOrDie(server.Config("test", nil))
	store := record.NewStore(client.CoordinationV1(), "records")
	f, err := New(Options{Records: store, Nodes: client.CoreV1(), Leases: client.CoordinationV1(), Driver: "d", Actor: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for node, step := range map[string]record.FenceStep{"taken": {Action: "off"}, "refused": {Action: "off", Err: "no route"}, "unsent": {Action: "status"}} {
		step.Agent = "bmc"
		failed := record.Fence{ID: "f", Kind: fence.PowerReading, Phase: record.Failed, Actor: "a", Reason: "dead", Why: "unclear", StartedAt: "2026-01-02T03:04:05Z",
			Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", NodeIDs: map[string]string{"d": "id1"}}, Steps: []record.FenceStep{step}}
		if _, err := store.Update(t.Context(), node, func(r *record.Record) (bool, error) { r.Fences = append(r.Fences, failed); return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.Fences(t.Context())
	if err != nil || len(all) != 1 || all[0].Node != "taken" || !all[0].Cut || all[0].Void == "" || all[0].NodeIDs["d"] != "id1" {
		t.Errorf("%+v (%v)", all, err)
	}
}

func TestTheBrakesCountANodeThatWasCutAnewByItsLastCut(t *testing.T) {
	f := record.Fence{Phase: record.Fenced, StartedAt: "2026-01-02T03:04:05Z", Steps: []record.FenceStep{
		{Action: "off", At: "2026-01-02T03:04:06Z"}, {Action: "off", At: "2026-01-02T09:00:00Z"}, {Action: "status", At: "2026-01-02T09:00:01Z"}}}
	if at := fenceOf(record.New("n1"), &f).At; at.Hour() != 9 || at.Second() != 0 {
		t.Errorf("cut anew: at %s", at)
	}
	f.Lift("booted") // the last try failed: no further node was fenced
	if at := fenceOf(record.New("n1"), &f).At; at.Hour() != 3 {
		t.Errorf("not cut anew: at %s", at)
	}
	for phase, want := range map[record.Phase]bool{record.Fencing: true, record.Refencing: true, record.Fenced: false, record.Lifting: false} {
		if cut := fenceOf(record.New("n1"), &record.Fence{Phase: phase}).Cut; cut != want {
			t.Errorf("%s without a step is cut: %v", phase, cut)
		}
	}
}

func TestAWitnessIsKeptInTheRecordUntilTheNodeIsCutOffAnew(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		old := w.fence()
		seen := record.Witness{NodeUID: "u1", BootID: "b1", ReadySince: "r", LeaseRV: old.Machine.LeaseRV}
		w.succeeds(w.fencer("a").Witness(w.Context(), "n1", "of another fence", seen))
		w.expect("a witness of another fence", w.fence().Witness == nil, true)
		w.succeeds(w.fencer("a").Witness(w.Context(), "n1", old.ID, seen))
		fences, err := w.fencer("b").FencesOf(w.Context(), "n1")
		if err != nil || len(fences) != 1 || !fences[0].Witness.Same(&seen) || fences[0].Witness.Actor != "a" {
			t.Fatalf("%v: %+v", err, fences)
		}
		// Read again, or lifted in part, it is the same fence.
		w.expect("answer", w.ask(w.fencer("c"), target).State, agent.Off)
		wall.refuses = errors.New("no")
		w.fails(w.lift(target), "is not lifted")
		w.expect("kept", w.fence().Witness.Same(&seen), true)
		wall.list, wall.deaf = nil, errors.New("no")
		if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err == nil && a.State == agent.Off {
			t.Fatal("the storage refuses, and the node is cut off anew")
		}
		w.expect("kept by the fence that was not made anew", w.fence().BeingLifted() && w.fence().Witness.Same(&seen), true)
		wall.refuses, wall.deaf = nil, nil
		wall.atOff = func() { w.expect("kept while it is being made anew", w.fence().Witness.Same(&seen), true) }
		if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		w.expect("of the fence that was made anew", w.fence().Witness == nil, true)
	})
}

func TestAProgramThatOnlyReadsWritesNoWitness(t *testing.T) {
	cutOff(t, func(w *world, _ *firewall, _ Target) {
		f := w.fencer("a")
		f.ReadOnly = true
		w.fails(f.Witness(w.Context(), "n1", w.fence().ID, record.Witness{}), "nothing is changed here")
		w.expect("a witness", w.fence().Witness == nil, true)
	})
}
