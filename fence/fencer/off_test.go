package fencer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// unsent: no off has reached the device.
func (w *world) unsent() {
	w.Helper()
	if _, offs := w.bmc.counts(); offs != 0 {
		w.Errorf("%d offs were sent", offs)
	}
}

// takeLock makes the lock another one's.
func (w *world) takeLock() {
	lease := w.server.Lease(ns, record.LeaseName("n1"))
	lease.Spec.HolderIdentity = ptr.To("thief")
	w.server.Put(lease)
}

func TestANodeIsCutOffAndTheWholeStoryIsWrittenDown(t *testing.T) {
	run(t, func(w *world) {
		var during, stored string
		w.bmc.onOff = func(context.Context) {
			during, stored = w.fences(), w.server.Lease(ns, record.LeaseName("n1")).Annotations[record.Annotation]
		}
		a, err := w.fencer("a").Off(w.Context(), w.target(), "lease unchanged for 60s", false)
		if err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		w.expect("while the off is under way", during, "Fencing by a")
		f := w.record().Fence(fence.PowerReading, driver)
		if f == nil || f.Phase != record.Fenced || f.ID != a.Fence || f.Machine.LeaseRV != w.leaseRV("n1") || f.Reason != "lease unchanged for 60s" {
			t.Fatalf("fence %+v", f)
		}
		var steps []string
		for _, s := range f.Steps {
			steps = append(steps, s.Action+":"+s.State)
		}
		w.expect("steps", strings.Join(steps, " "), "status:on off:unclear status:off")
		w.expect("what", f.What, "bmc: power:0")
		w.expect("agents", strings.Join(f.Agents, " "), "bmc")
		w.expect("forced", f.Forced, false)
		w.unlocked()
		w.expect("the operation on record, while it is under way", strings.Contains(stored, `"operation":{"id":"`+f.ID+`","kind":"Cut","actor":"a"`), true)
	})
}

func TestAMachineThatIsOffIsSentNothing(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State != agent.Off || w.fences() != "Fenced by a" {
			t.Fatal(a, err, w.fences())
		}
		w.unsent()
		w.unlocked()
	})
}

func TestTwoFencersOneOff(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onOff = func(context.Context) { time.Sleep(2 * time.Second) }
		target := w.target()
		var wg sync.WaitGroup
		for _, actor := range []string{"a", "b", "c"} {
			f := w.fencer(actor)
			wg.Go(func() {
				if a, err := f.Off(w.Context(), target, "x", false); err != nil || a.State != agent.Off {
					t.Error(actor, a, err)
				}
			})
		}
		wg.Wait()
		_, offs := w.bmc.counts()
		w.expect("offs", offs, 1)
		w.expect("fences", strings.Count(w.fences(), "Fenced"), 1)
		w.unlocked()
	})
}

// diesInOff begins to fence and dies: nothing of it goes on, its lock is neither
// renewed nor let go.
func (w *world) diesInOff(cutOff bool) {
	w.Helper()
	lock, err := w.store.Lock(w.Context(), "n1", "dead", 30*time.Second)
	if err != nil {
		w.Fatal(err)
	}
	c := &cut{Fencer: w.fencer("dead"), t: w.target(), lock: lock, reason: "x", id: "dead-fence"}
	if err := c.before(w.Context(), w.bmc); err != nil {
		w.Fatal(err)
	}
	lock.Abandon()
	w.bmc.set(cutOff)
	w.expect("fences", w.fences(), "Fencing by dead")
}

func TestWhoDiedInTheMiddleIsSucceeded(t *testing.T) {
	for _, cutOff := range []bool{true, false} {
		run(t, func(w *world) {
			w.diesInOff(cutOff)
			begun := time.Now()
			a, err := w.fencer("b").Off(w.Context(), w.target(), "x", false)
			if err != nil || a.State != agent.Off {
				t.Fatal(a, err)
			}
			if waited := time.Since(begun); waited < 30*time.Second {
				t.Errorf("the dead one's lock was taken after %s", waited)
			}
			_, offs := w.bmc.counts()
			if cutOff {
				w.expect("offs", offs, 0)
			} else {
				w.expect("offs", offs, 1)
			}
			w.expect("fences", w.fences(), "Failed by dead, Fenced by b")
			w.unlocked()
		})
	}
}

func TestAReadingEndsWhatADeadOneBegan(t *testing.T) {
	run(t, func(w *world) {
		w.diesInOff(true)
		a := w.ask(w.fencer("b"), w.target()) // needs no lock
		w.expect("fences", w.fences(), "Fenced by b")
		w.expect("fence", a.Fence, "dead-fence")
		f := w.record().FenceByID("dead-fence")
		w.expect("begun for", f.Reason, "x")
		w.expect("steps", len(f.Steps), 1)
	})
}

func TestALeaseThatWasRenewedStopsTheOff(t *testing.T) {
	t.Run("since the evidence", func(t *testing.T) {
		run(t, func(w *world) {
			target := w.target()
			w.renew("n1")
			_, err := w.fencer("a").Off(w.Context(), target, "x", false)
			w.refused(err, fence.VoidLeaseChanged)
			w.unsent()
			asked, _ := w.bmc.counts()
			w.expect("asked", asked, 0)
			w.expect("fences", w.fences(), "")
			w.unlocked()
		})
	})
	t.Run("between status and off", func(t *testing.T) {
		run(t, func(w *world) {
			w.bmc.onStatus = func() { w.renew("n1") }
			_, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
			w.refused(err, fence.VoidLeaseChanged)
			w.unsent()
			w.expect("fences", w.fences(), "Failed by a")
			w.unlocked()
		})
	})
	t.Run("before the second attempt", func(t *testing.T) {
		run(t, func(w *world) {
			w.levels[0][0].Attempts = 3
			w.bmc.deaf = true
			w.bmc.onOff = func(context.Context) { w.renew("n1") }
			a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
			if err != nil || a.State == agent.Off {
				t.Fatal(a, err)
			}
			_, offs := w.bmc.counts()
			w.expect("offs", offs, 1)
		})
	})
}

func TestALockLostRightBeforeTheOffStopsIt(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onStatus = w.takeLock
		_, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		w.refused(err, record.ErrLockLost.Error())
		w.unsent()
		w.expect("fences", w.fences(), "")
	})
}

// The lock is lost after "Fencing" was written in the same moment.
func TestALockLostAfterTheIntentStopsTheOff(t *testing.T) {
	run(t, func(w *world) {
		lock, err := w.store.Lock(w.Context(), "n1", "a", 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c := &cut{Fencer: w.fencer("a"), t: w.target(), lock: lock, reason: "x", id: "f"}
		if err := c.intend(w.Context(), w.bmc); err != nil {
			t.Fatal(err)
		}
		w.server.BeforeNextWrite(w.takeLock) // the renewal's
		if err := c.before(w.Context(), w.bmc); err == nil {
			t.Fatal("an off would be sent")
		}
		lock.Abandon()
	})
}

func TestAFenceThatSomebodyVoidedIsNotGoneOnWith(t *testing.T) {
	run(t, func(w *world) {
		w.levels[0][0].Attempts = 3
		w.bmc.deaf = true
		w.bmc.onOff = func(context.Context) {
			f := w.record().Fence(fence.PowerReading, "")
			if f == nil {
				return
			}
			if _, err := w.store.VoidFence(w.Context(), "n1", *f, "the node is back", "b"); err != nil {
				t.Error(err)
			}
		}
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		_, offs := w.bmc.counts()
		w.expect("offs", offs, 1)
		w.expect("fences", w.fences(), "Void by a")
	})
}

func TestAnOffWhoseFenceSomebodyVoidedMeanwhileProvesNothing(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onOff = func(context.Context) {
			if _, err := w.store.VoidFence(w.Context(), "n1", *w.record().Fence(fence.PowerReading, ""), "the node is back", "b"); err != nil {
				t.Error(err)
			}
		}
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State != agent.Unclear || a.Kind != "" || a.Fence != "" || !strings.Contains(a.Why, "was voided meanwhile: the node is back") {
			t.Errorf("%+v, %v", a, err)
		}
		w.expect("fences", w.fences(), "Void by a")
	})
}

func TestWhereThePowerStaysOnTheStorageIsCut(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.refuses = errors.New("no")
		array := &device{name: "array", kind: fence.StorageFence}
		w.bmc.takes, array.takes = time.Second, time.Second
		var begun string
		var during record.Fence
		w.bmc.onOff = func(context.Context) { begun = w.record().Fences[0].StartedAt }
		array.onOff = func(context.Context) { during = w.record().Fences[0] }
		w.levels = append(w.levels, agent.Level{{Agent: array}})
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State != agent.Off || a.Kind != fence.StorageFence || a.Storage != agent.Off || strings.Join(a.On, " ") != "bmc" || strings.Join(a.Agents, " ") != "array" {
			t.Fatalf("%+v, %v", a, err)
		}
		w.expect("why", a.Why, "every agent of level 2 reads off")
		if during.Phase != record.Fencing || during.Kind != fence.StorageFence || during.Driver != driver {
			t.Errorf("while the storage is being cut: %+v", during)
		}
		f := w.record().Fence(fence.StorageFence, driver)
		if f == nil || f.Phase != record.Fenced || f.ID != a.Fence || f.ID != during.ID || f.StartedAt != begun || during.StartedAt != begun || f.EndedAt == begun || len(w.record().Fences) != 1 {
			t.Errorf("fences %+v", w.record().Fences)
		}
	})
}

// Access was given back past csi-fencepost. What is cut now is cut in this boot: by the old
// fence it would be opened as soon as the node is back.
func TestAStorageFenceThatIsNotInPlaceIsMadeAnewInThisBoot(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.deaf = true
		array := &device{name: "array", kind: fence.StorageFence}
		w.levels = append(w.levels, agent.Level{{Agent: array}})
		old := record.Fence{ID: "s", Kind: fence.StorageFence, Driver: driver, Phase: record.Fenced, Actor: "b", Machine: record.FencedMachine{NodeUID: "u1", BootID: "b0"}}
		w.put(old)
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State != agent.Off {
			t.Fatalf("%+v, %v", a, err)
		}
		w.expect("fences", w.fences(), "Void by b, Fenced by a")
		w.expect("its boot ID", w.record().FenceByID(a.Fence).Machine.BootID, "b1")
	})
}

func TestWhoFindsItFencedVouchesForThat(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onStatus = func() {
			w.bmc.onStatus = nil // another one fences it, and nobody vouches for that
			w.put(w.powerFence(record.Fenced))
			w.unvouch()
			w.bmc.set(true)
		}
		if a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false); err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		if r := w.record(); !r.Vouched(r.Fence(fence.PowerReading, "")) {
			t.Errorf("nobody vouches for %+v", r.Fences)
		}
	})
}

func TestOnlyAnothersWordAboutThisMachineAsItIsStopsAnOff(t *testing.T) {
	const unvouched = "nobody vouches for it"
	for name, tt := range map[string]struct {
		change func(*record.Fence)
		stops  bool
	}{
		unvouched:              {func(*record.Fence) {}, false},
		"its word":             {func(*record.Fence) {}, true},
		"our own":              {func(f *record.Fence) { f.Actor = "a" }, false},
		"it has not come to":   {func(f *record.Fence) { f.Phase = record.Fencing }, false},
		"of an earlier lease":  {func(f *record.Fence) { f.Machine.LeaseRV = "1" }, false},
		"of an earlier boot":   {func(f *record.Fence) { f.Machine.BootID = "b0" }, false},
		"of an earlier Node":   {func(f *record.Fence) { f.Machine.NodeUID = "u0" }, false},
		"of the storage":       {func(f *record.Fence) { f.Kind, f.Driver = fence.StorageFence, driver }, false},
		"it counts no more":    {func(f *record.Fence) { f.Phase = record.Void }, false},
		"of another's storage": {func(f *record.Fence) { f.Kind, f.Driver = fence.StorageFence, "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.powerFence(record.Fenced)
				tt.change(&f)
				w.put(f)
				if name == unvouched {
					w.unvouch()
				}
				a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
				if tt.stops {
					w.refused(err, "it is fenced already, by b (fence f), although our own agents do not read it as off: every agent of level 1 reads on")
					w.unsent()
				} else if err != nil || a.State != agent.Off {
					t.Errorf("%+v, %v", a, err)
				}
				w.unlocked()
			})
		})
	}
}

func TestAnOffThatLandsWhenTheNodeIsBackProvesNothing(t *testing.T) {
	run(t, func(w *world) {
		hangs := make(chan struct{})
		w.bmc.onOff = func(context.Context) { <-hangs }
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State == agent.Off || a.Outstanding == nil {
			t.Fatal(a, err)
		}
		w.expect("fences", w.fences(), "Failed by a")
		w.node("n1", "u1", "b2", nil) // back
		w.renew("n1")
		time.Sleep(10 * time.Minute)
		// Nobody else touches its power, for as long as that off may land.
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		back := w.target()
		back.BootID = "b2"
		if _, err := w.fencer("b").On(ctx, back, "x"); err == nil || !strings.Contains(err.Error(), "locked by a_") {
			t.Errorf("error %v", err)
		}
		close(hangs)
		synctest.Wait()
		w.unlocked()
		// It was cut off by that: but no evidence speaks of the old machine.
		if a := w.ask(w.fencer("a"), w.target()); a.State != agent.Unclear {
			t.Errorf("answer %+v", a)
		}
	})
}

func TestWithoutTheAPIServerNothingIsSent(t *testing.T) {
	for name, when := range map[string]func(w *world){
		"from the start":    func(w *world) { w.server.SetDown(true) },
		"after the reading": func(w *world) { w.bmc.onStatus = func() { w.server.SetDown(true) } },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				target, f := w.target(), w.fencer("a")
				when(w)
				a, err := f.Off(w.Context(), target, "x", false)
				if err == nil || a.State == agent.Off {
					t.Fatal(a, err)
				}
				w.unsent()
			})
		})
	}
	t.Run("after the intent", func(t *testing.T) {
		run(t, func(w *world) {
			lock, err := w.store.Lock(w.Context(), "n1", "a", 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			c := &cut{Fencer: w.fencer("a"), t: w.target(), lock: lock, reason: "x", id: "f"}
			if err := c.intend(w.Context(), w.bmc); err != nil {
				t.Fatal(err)
			}
			w.server.SetDown(true)
			if err := c.before(w.Context(), w.bmc); err == nil {
				t.Fatal("an off would be sent")
			}
			lock.Abandon()
		})
	})
}

// Force leaves out what asks whether the node lives, not which machine it is.
func TestForceSendsNothingToANodeThatCannotBeRead(t *testing.T) {
	run(t, func(w *world) {
		lock, err := w.store.Lock(w.Context(), "n1", "a", 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c := &cut{Fencer: w.fencer("a"), t: w.target(), lock: lock, reason: "x", force: true, id: "f"}
		if err := c.intend(w.Context(), w.bmc); err != nil {
			t.Fatal(err)
		}
		w.server.BeforeNextWrite(func() { w.server.SetDown(true) }) // the lock's renewal succeeds
		if err := c.before(w.Context(), w.bmc); err == nil || !strings.Contains(err.Error(), "cannot read Node n1") {
			t.Errorf("error %v", err)
		}
		lock.Abandon()
	})
}

func TestTheAPIServerGoneAfterTheOffIsAnErrorAndNoProof(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onOff = func(context.Context) { w.server.SetDown(true) }
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err == nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		if !strings.Contains(err.Error(), "cannot read Node n1") || !strings.Contains(err.Error(), "could not be written down") || len(a.Steps) == 0 {
			t.Errorf("answer %+v, error %v", a, err)
		}
		w.server.SetDown(false)
		w.expect("fences", w.fences(), "Fencing by a")
		// Who comes next asks first.
		if a, err = w.fencer("b").Off(w.Context(), w.target(), "x", false); err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		_, offs := w.bmc.counts()
		w.expect("offs", offs, 1)
	})
}

func TestWhyAnAgentDidNotCutOffIsSaidOnceAndWrittenDown(t *testing.T) {
	run(t, func(w *world) {
		w.levels[0][0].Attempts = 3
		w.bmc.refuses = errors.New("a fence would also cut off node n2")
		w.levels = append(w.levels, agent.Level{{Agent: &device{name: "array", kind: fence.StorageFence, refuses: errors.New("busy")}}})
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		const words = "agent bmc did not cut it off: a fence would also cut off node n2; agent array did not cut it off: busy; "
		if !strings.HasPrefix(a.Why, words) || strings.Count(a.Why, words) != 1 {
			t.Errorf("the answer says %q", a.Why)
		}
		f := w.record().Fences
		if len(f) != 1 || f[0].Phase != record.Failed || f[0].Why != a.Why {
			t.Errorf("the record says %+v", f)
		}
	})
}

func TestADeviceThatStaysOnIsNoProof(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.deaf = true
		w.levels[0][0].Attempts = 3
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State != agent.On {
			t.Fatal(a, err)
		}
		_, offs := w.bmc.counts()
		w.expect("offs", offs, 3)
		w.expect("written down as begun", strings.Count(w.trail(), "a Fence "), 1)
		w.expect("why", a.Why, "agent bmc of level 1 reads on")
		w.expect("fences", w.fences(), "Failed by a")
		w.unlocked()
	})
}

func TestALastSignOfLifeAfterTheOffIsReadAgain(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onOff = func(context.Context) { w.renew("n1") } // was under way
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State != agent.Off || a.Machine.LeaseRV != w.leaseRV("n1") {
			t.Fatalf("%+v, %v", a, err)
		}
		asked, _ := w.bmc.counts()
		w.expect("readings: before, after, and once more", asked, 3)
		w.expect("fences", w.fences(), "Fenced by a")
	})
}

func TestALastSignOfLifeThatCannotBeReadAgainProvesNothing(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onOff = func(context.Context) {
			w.renew("n1")
			w.bmc.mu.Lock()
			defer w.bmc.mu.Unlock()
			w.bmc.onStatus = func() { // the reading after the off
				w.bmc.mu.Lock()
				defer w.bmc.mu.Unlock()
				w.bmc.onStatus = func() { w.server.SetDown(true) } // and the one after the renewal
			}
		}
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err == nil || a.State != agent.Unclear || a.Kind != "" || a.Why == "" || len(a.Steps) == 0 {
			t.Errorf("%+v, %v", a, err)
		}
		w.server.SetDown(false)
		w.expect("fences", w.fences(), "Fencing by a")
	})
}

func TestAFenceWhoseRecordIsGoneIsNotGoneOnWith(t *testing.T) {
	run(t, func(w *world) {
		w.levels[0][0].Attempts = 3
		w.bmc.deaf = true
		w.bmc.onOff = func(context.Context) { // somebody removed it to mend it
			lease := w.server.Lease(ns, record.LeaseName("n1"))
			delete(lease.Annotations, record.Annotation)
			w.server.Put(lease)
		}
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		if err != nil || a.State != agent.Unclear || !strings.Contains(a.Why, "is not in the record any more") {
			t.Errorf("%+v, %v", a, err)
		}
		_, offs := w.bmc.counts()
		w.expect("offs", offs, 1)
		w.expect("fences", w.fences(), "")
	})
}

func TestWhoIsNotToBeFencedIsNotButByForce(t *testing.T) {
	tests := map[string]func(w *world, target *Target){
		"opted out":           func(w *world, _ *Target) { w.node("n1", "u1", "b1", map[string]string{OptOutAnnotation: "false"}) },
		"alive":               func(w *world, _ *Target) { w.renew("n1") },
		"its Node is deleted": func(w *world, _ *Target) { w.server.DeleteNode("n1") },
		"fenced by another's word": func(w *world, target *Target) {
			w.put(record.Fence{ID: "f", Kind: fence.PowerReading, Phase: record.Fenced, Actor: "b",
				Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: target.LeaseRV}})
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				target, f := w.target(), w.fencer("a")
				prepare(w, &target)
				_, err := f.Off(w.Context(), target, "x", false)
				w.refused(err, "off of node n1 is refused")
				w.unsent()
				a, err := f.Off(w.Context(), target, "x", true)
				if err != nil || a.State != agent.Off {
					t.Errorf("by force: %+v, %v", a, err)
				}
				w.expect("forced", w.record().FenceByID(a.Fence).Forced, true)
			})
		})
	}
}

func TestForceDoesNotReachAnotherMachine(t *testing.T) {
	run(t, func(w *world) {
		target, f := w.target(), w.fencer("a")
		w.node("n1", "u2", "b2", nil)
		_, err := f.Off(w.Context(), target, "x", true)
		w.refused(err, fence.VoidOtherMachine)
		w.renew("n1") // which is not what matters then
		_, err = f.Off(w.Context(), target, "x", false)
		w.refused(err, fence.VoidOtherMachine)
		w.node("n1", "u1", "b2", nil)
		_, err = f.Off(w.Context(), target, "x", true)
		w.refused(err, fence.VoidBootChanged)
		w.unsent()
		target.Node = "other"
		_, err = f.Off(w.Context(), target, "x", true)
		w.refused(err, "no level of fence agents")
	})
}

func TestPowerIsGivenBackOnlyAfterTheFenceIsVoid(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		if _, err := f.Off(w.Context(), w.target(), "x", false); err != nil {
			t.Fatal(err)
		}
		w.expect("state", w.ask(f, w.target()).State, agent.Off)
		var before string
		w.bmc.onStatus = func() { before = w.fences() }
		a, err := f.On(w.Context(), w.target(), "moved")
		if err != nil || a.State != agent.On {
			t.Fatal(a, err)
		}
		w.expect("before", before, "Void by a")
		w.expect("state", w.ask(f, w.target()).State, agent.On)
		w.unlocked()
	})
}

func TestAStorageFenceIsLiftedOnlyWhenItIsReadAsOpen(t *testing.T) {
	run(t, func(w *world) {
		array := &device{name: "array", kind: fence.StorageFence}
		w.levels = agent.Levels{{{Agent: array, Timeout: 10 * time.Second}}}
		f := w.fencer("a")
		if _, err := f.Off(w.Context(), w.target(), "x", false); err != nil || !w.record().StorageFenced(driver) {
			t.Fatal(err, w.fences())
		}
		_, err := f.Lift(w.Context(), w.target(), "other.example.com", "back")
		w.refused(err, "other.example.com")
		array.broken = true
		if a, err := f.Lift(w.Context(), w.target(), driver, "back"); err == nil || a.State == agent.On || !w.record().StorageFenced(driver) {
			t.Fatalf("%+v, %v, %s", a, err, w.fences())
		}
		array.broken = false
		if a, err := f.Lift(w.Context(), w.target(), driver, "back"); err != nil || a.State != agent.On {
			t.Fatalf("%+v, %v", a, err)
		}
		w.expect("fences", w.fences(), "Lifted by a")
	})
}

func TestAccessIsGivenBackToTheAddressesThatTheFenceNamed(t *testing.T) {
	run(t, func(w *world) {
		array := &device{name: "array", kind: fence.StorageFence, did: "fenced 192.0.2.7/32, 2001:db8::7/128 at driver x"}
		w.levels = agent.Levels{{{Agent: array, Timeout: 10 * time.Second}}}
		f := w.fencer("a")
		if _, err := f.Off(w.Context(), w.target(), "x", false); err != nil {
			t.Fatal(err)
		}
		if a, err := f.Lift(w.Context(), w.target(), driver, "back"); err != nil || a.State != agent.On {
			t.Fatalf("%+v, %v", a, err)
		}
		w.expect("given back to", strings.Join(array.lifted, " "), "192.0.2.7/32 2001:db8::7/128")
	})
}

func TestAReturnedNodesFenceIsVoidAndSaysSo(t *testing.T) {
	changes := map[string]struct {
		change func(w *world)
		want   string
	}{
		"renewed":            {func(w *world) { w.renew("n1") }, "Void by a"},
		"rebooted":           {func(w *world) { w.node("n1", "u1", "b2", nil) }, "Void by a"},
		"registered again":   {func(w *world) { w.node("n1", "u2", "b1", nil) }, "Void by a"},
		"not back":           {func(w *world) {}, "Fenced by a"},
		"another machine":    {func(w *world) { w.node("n1", "u2", "b2", nil) }, "Fenced by a"},
		"its Node is gone":   {func(w *world) { w.server.DeleteNode("n1") }, "Fenced by a"},
		"under storage only": {func(w *world) { w.renew("n1") }, "Void by a, Fenced by a"},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.fencer("a")
				w.bmc.set(true)
				w.ask(f, w.target())
				if strings.HasPrefix(name, "under storage") {
					w.put(record.Fence{ID: "s", Kind: fence.StorageFence, Driver: driver, Phase: record.Fenced, Actor: "a", Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1"}})
				}
				c.change(w)
				voided, err := f.Void(w.Context(), "n1", "its kubelet is back")
				if err != nil || voided != strings.HasPrefix(c.want, "Void") {
					t.Fatal(voided, err)
				}
				w.expect("fences", w.fences(), c.want)
				if trail := w.record().Audit; voided && !strings.Contains(trail[len(trail)-1].Detail, "its kubelet is back") {
					t.Errorf("audit %+v", trail)
				}
			})
		})
	}
}

// No reading of its power could count, so that its power is not cut for nothing.
func TestOfATargetWithoutABootOnlyTheStorageIsCut(t *testing.T) {
	run(t, func(w *world) {
		array := &device{name: "array", kind: fence.StorageFence}
		w.levels = append(w.levels, agent.Level{{Agent: array}})
		w.node("n1", "u1", "", nil)
		target := w.target()
		target.BootID, target.StorageOnly = "", true
		a, err := w.fencer("a").Off(w.Context(), target, "x", false)
		if err != nil || a.State != agent.Off || a.Kind != fence.StorageFence || !w.record().StorageFenced(driver) {
			t.Errorf("%+v, %v", a, err)
		}
		asked, offs := w.bmc.counts()
		w.expect("the power's agent was asked, and used", asked+offs, 0)
	})
}
