package record

import (
	"fmt"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Nothing else names what they cut.
func TestTheLastStorageFenceThatWasWithdrawnIsKept(t *testing.T) {
	r := New("n1")
	put := func(id string, kind fence.Kind, driver string) {
		r.PutFence(Fence{ID: id, Kind: kind, Driver: driver, Phase: Fenced, Actor: "a", Machine: FencedMachine{NodeUID: "u1"}}, "Fenced")
	}
	for _, driver := range []string{"x", "y"} {
		for i := range 3 {
			id := fmt.Sprint(driver, i)
			put(id, fence.StorageFence, driver)
			if !r.WithdrawFence(id, "wrong", "ann") || !r.FenceByID(id).Withdrawn() {
				t.Fatalf("%+v", r.FenceByID(id))
			}
		}
	}
	for i := range 2 * maxSettled {
		put(fmt.Sprint("p", i), fence.PowerReading, "")
		r.WithdrawFence(fmt.Sprint("p", i), "wrong", "ann")
	}
	r.bound()
	if len(r.Fences) != 2+maxSettled || r.FenceByID("x2") == nil || r.FenceByID("y2") == nil || r.FenceByID("p7") == nil {
		t.Errorf("kept: %+v", r.Fences)
	}
	if !r.LiftEnded("x2", "open", "a") || r.LiftEnded("x2", "open", "a") || r.FenceByID("x2").Phase != Lifted {
		t.Errorf("%+v", r.FenceByID("x2"))
	}
	if r.bound(); r.FenceByID("x2") != nil {
		t.Error("one that is open is kept")
	}
}
