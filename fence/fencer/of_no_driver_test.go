package fencer

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// ofNoDriver is a Fencer for the nodes of all drivers.
func (w *world) ofNoDriver() (*Fencer, error) {
	c := w.server.Client()
	return New(Options{Levels: w.levels, Records: w.store, Nodes: c.CoreV1(), Leases: c.CoordinationV1(), Actor: "csi-fencepost failover@h"})
}

func TestAFencerOfNoDriverTakesNoAgentThatNeedsOne(t *testing.T) {
	run(t, func(w *world) {
		bmc := w.levels
		for says, one := range map[string]agent.Agent{
			"agent array does, of one driver": &device{name: "array", kind: fence.StorageFence},
			"$(NODE_ID)":                      &seeker{device: w.bmc},
		} {
			w.levels = agent.Levels{bmc[0], {{Agent: one}}}
			if _, err := w.ofNoDriver(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("error %v, want one that says %q", err, says)
			}
		}
	})
}

// Sidecars make and lift storage fences: what failover does to a node's power is nothing to them.
func TestAFencerOfNoDriverLeavesStorageFencesAlone(t *testing.T) {
	run(t, func(w *world) {
		w.put(w.storageFence("s", driver, "10.0.0.1/32"))
		f, err := w.ofNoDriver()
		if err != nil {
			t.Fatal(err)
		}
		target := w.target()
		a, err := f.Off(w.Context(), target, "dead", false)
		if err != nil || a.State != agent.Off || a.Kind != fence.PowerReading || len(a.Machine.NodeIDs) > 0 {
			t.Fatalf("off: %+v (%v)", a, err)
		}
		fences, err := f.FencesOf(w.Context(), "n1")
		if err != nil || len(fences) != 1 || fences[0].Kind != fence.PowerReading {
			t.Errorf("its fences: %+v (%v)", fences, err)
		}
		all, err := f.Fences(w.Context())
		if err != nil || len(all) != 2 {
			t.Fatalf("all fences: %+v (%v)", all, err)
		}
		for _, one := range all {
			w.expect("of others: "+string(one.Kind), one.Others, one.Kind == fence.StorageFence)
		}
		if _, err := f.On(w.Context(), target, "moved"); err != nil {
			t.Fatal(err)
		}
		s := w.record().FenceByID("s")
		if s == nil || s.Phase != record.Fenced || !w.record().Vouched(s) {
			t.Errorf("the storage fence after power was given back: %+v", s)
		}
		if _, err := f.Lift(w.Context(), target, driver, "booted"); err == nil {
			t.Error("a storage fence was lifted")
		}
	})
}

// One driver's name for a machine may be what the cloud calls it: a node of which its driver alone
// tells that is not cut off under another's provider ID.
func TestAFencerOfNoDriverKnowsMachinesByWhatDriversCallThem(t *testing.T) {
	for _, known := range []bool{true, false} {
		registered(t, func(r *registry) {
			r.says("n1", "u1", uuid1, "aws:///z/i-2", "")
			r.says("n2", "u2", uuid2, "", "")
			r.seeker.kinds = []string{agent.VarInstanceID}
			r.f.Driver, r.f.NodeIDs = "", func(node string) []record.Identifier {
				if node == "n2" {
					return []record.Identifier{{Kind: record.NodeID(driver), Value: "i-2"}}
				}
				return nil
			}
			r.ids["n2"] = "i-2"
			if !known {
				r.f.NodeIDs = nil
			}
			r.binds()
			said := r.off("n1")
			if refused := strings.Contains(said, "INSTANCE_ID"); refused != known {
				t.Errorf("with what drivers say known: %v, n1 is cut off as i-2: %q", known, said)
			}
		})
	}
}

// What a driver calls a machine is nothing to it: who asks for one driver and who asks for another,
// or for none, have one answer.
func TestAFencerOfNoDriverAsksOnceForAllDrivers(t *testing.T) {
	run(t, func(w *world) {
		f, err := w.ofNoDriver()
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"id1", "i-1", ""} {
			target := w.target()
			target.NodeID = id
			w.ask(f, target)
		}
		asked, _ := w.bmc.counts()
		w.expect("asked", asked, 1)
	})
}
