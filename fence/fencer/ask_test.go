package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func TestOffIsWrittenDownBoundToTheMachine(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		a := w.ask(w.fencer("a"), w.target())
		f := w.record().Fence(fence.PowerReading, driver)
		if a.State != agent.Off || a.Kind != fence.PowerReading || f == nil || f.ID != a.Fence {
			t.Fatalf("answer %+v, fence %+v", a, f)
		}
		m := f.Machine
		w.expect("machine", fmt.Sprint(m.NodeUID, m.BootID, m.LeaseRV == w.leaseRV("n1"), m.SystemUUID, m.NodeIDs[driver]), "u1b1trueuuid-n1id1")
		w.expect("phase", f.Phase, record.Fenced)
		if len(f.Steps) != 1 || f.Steps[0].Detail != "power:0" || f.What != "bmc: power:0" {
			t.Errorf("steps %+v, what %q", f.Steps, f.What)
		}
	})
}

// The sidecars of the other drivers, which have no agents, wait for that.
func TestAFenceThatNobodyVouchesForIsVouchedForOnceItIsReadAsOff(t *testing.T) {
	run(t, func(w *world) {
		old := w.powerFence(record.Fenced)
		old.Steps, old.StartedAt, old.Reason = []record.FenceStep{{Agent: "bmc", Action: "off", Detail: "sent"}}, "2026-01-02T03:04:05Z", "silent"
		w.put(old)
		w.unvouch()
		w.bmc.set(true)
		if r := w.record(); r.Vouched(&r.Fences[0]) {
			t.Fatal("it is vouched for before anybody has read anything")
		}
		w.expect("state", w.ask(w.fencer("a"), w.target()).State, agent.Off)
		r := w.record()
		f := r.Fence(fence.PowerReading, "")
		if len(r.Fences) != 1 || !r.Vouched(f) {
			t.Fatalf("fences %+v", r.Fences)
		}
		if f.Actor != old.Actor || f.StartedAt != old.StartedAt || f.Reason != old.Reason {
			t.Errorf("it became another fence: %+v", f)
		}
		if len(offSteps(f)) > 0 {
			t.Errorf("that it was switched off is taken from somebody whom nobody vouches for, and it would be switched on: %+v", f.Steps)
		}
		writes := w.server.Writes()
		time.Sleep(freshFor)
		w.expect("state", w.ask(w.fencer("b"), w.target()).State, agent.Off)
		w.expect("writes of the same once more", w.server.Writes()-writes, 0)
	})
}

// Every driver's pod may write that somebody is about to switch a machine off.
func TestAFenceUnderWayThatNobodyVouchesForIsNoneThatWasSent(t *testing.T) {
	run(t, func(w *world) {
		old := w.powerFence(record.Fencing)
		old.Steps = []record.FenceStep{{Agent: "bmc", Action: "off", Detail: "sent"}}
		w.put(old)
		w.unvouch()
		w.bmc.set(true)
		w.expect("state", w.ask(w.fencer("a"), w.target()).State, agent.Off)
		if f := w.record().Fence(fence.PowerReading, ""); f == nil || f.Phase != record.Fenced || len(offSteps(f)) > 0 {
			t.Errorf("fence %+v", f)
		}
	})
}

func TestAMachineReadAsOnIsNotFenced(t *testing.T) {
	run(t, func(w *world) {
		a := w.ask(w.fencer("a"), w.target())
		if a.State != agent.On || len(a.On) != 1 || w.fences() != "" {
			t.Fatalf("answer %+v, fences %s", a, w.fences())
		}
	})
}

func TestARenewalDuringTheReadingVoidsIt(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		target := w.target()
		w.bmc.onStatus = func() { w.renew("n1") }
		a := w.ask(w.fencer("a"), target)
		if a.State != agent.Unclear || a.Why != fence.VoidLeaseChanged || w.fences() != "" {
			t.Fatalf("answer %+v, fences %s", a, w.fences())
		}
	})
}

func TestAnotherMachineIsNotAskedFor(t *testing.T) {
	for name, change := range map[string]func(*world){
		"another UID":  func(w *world) { w.node("n1", "u2", "b1", nil) },
		"another boot": func(w *world) { w.node("n1", "u1", "b2", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, during := range []bool{false, true} {
				run(t, func(w *world) {
					w.bmc.set(true)
					if during {
						w.bmc.onStatus = func() { change(w) }
					} else {
						change(w)
					}
					if a := w.ask(w.fencer("a"), w.target()); a.State != agent.Unclear || a.Why == "" || w.fences() != "" {
						t.Fatalf("during: %v, answer %+v", during, a)
					}
					if asked, _ := w.bmc.counts(); (asked > 0) != during {
						t.Errorf("during: %v, asked %d times", during, asked)
					}
				})
			}
		})
	}
}

// The node booted while the agents were asked, and renews no lease yet: that it was
// read as on is all that speaks against a claim that it is off.
func TestABootDuringTheReadingDoesNotHideThatItIsOn(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.onStatus = func() { w.node("n1", "u1", "b2", nil) }
		target := w.target()
		a := w.ask(w.fencer("a"), target)
		if a.State != agent.Unclear || a.Why != fence.VoidBootChanged || !slices.Equal(a.On, []string{"bmc"}) || a.Machine.BootID != target.BootID {
			t.Errorf("answer %+v", a)
		}
	})
}

// A record that named no machine could not be read again.
func TestAMachineThatNobodyKnowsIsNeitherAskedForNorFenced(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		target := w.target()
		target.UID = ""
		w.server.DeleteNode("n1")
		f := w.fencer("a")
		if a := w.ask(f, target); a.State != agent.Unclear || a.Why != unknownMachine {
			t.Errorf("answer %+v", a)
		}
		_, err := f.Off(w.Context(), target, "a test", true)
		w.refused(err, "its Node's name and UID are needed")
		w.expect("fences", w.fences(), "")
	})
}

func TestFiftyVolumesOfOneNodeAskOnce(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.bmc.takes = time.Second
		f := w.fencer("a")
		target := w.target()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { w.ask(f, target) })
		}
		wg.Wait()
		time.Sleep(freshFor - 2*time.Second)
		w.ask(f, target)
		asked, _ := w.bmc.counts()
		w.expect("asked", asked, 1)
		w.node("n2", "u2", "b2", nil)
		w.ask(f, Target{Node: "n2", UID: "u2", BootID: "b2"})
		w.ask(f, target)
		asked, _ = w.bmc.counts()
		w.expect("asked, with another node", asked, 2)

		time.Sleep(2 * time.Second)
		w.ask(f, target) // older than 10 s by now
		asked, _ = w.bmc.counts()
		w.expect("asked after 10 s", asked, 3)
		w.expect("fences", w.fences(), "Fenced by a")
		w.expect("audit entries", len(w.record().Audit), 1)
	})
}

// Power may be cut at any moment, and a device that is slow is not to be asked all
// the time.
func TestAMachineThatIsOnIsAskedAgainSooner(t *testing.T) {
	for _, tt := range []struct{ takes, fresh time.Duration }{
		{50 * time.Millisecond, 2 * time.Second},
		{400 * time.Millisecond, 4 * time.Second},
		{3 * time.Second, 10 * time.Second},
	} {
		run(t, func(w *world) {
			w.bmc.takes = tt.takes
			f := w.fencer("a")
			w.expect("state", w.ask(f, w.target()).State, agent.On)
			time.Sleep(tt.fresh - time.Millisecond)
			w.ask(f, w.target())
			asked, _ := w.bmc.counts()
			w.expect("asked while the answer is fresh", asked, 1)
			w.bmc.set(true)
			time.Sleep(time.Millisecond)
			w.expect("state, once the power is cut", w.ask(f, w.target()).State, agent.Off)
		})
	}
}

// Many that wait for a turn have each machine asked less often.
// Somebody may say meanwhile that the machine is off, which whoever reads on vetoes.
func TestAnAgentThatDidNotTellIsAskedAgainSooner(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.takes, w.bmc.broken = 50*time.Millisecond, true
		f := w.fencer("a")
		w.expect("state", w.ask(f, w.target()).State, agent.Unclear)
		w.bmc.broken = false
		time.Sleep(2*time.Second - time.Millisecond)
		w.expect("state while the answer is fresh", w.ask(f, w.target()).State, agent.Unclear)
		time.Sleep(time.Millisecond)
		w.expect("state, once it tells", w.ask(f, w.target()).State, agent.On)
	})
}

func TestTheWaitForATurnCountsAsTimeTheAnswerTook(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		for range defaultAsks {
			f.slots <- struct{}{}
		}
		var wg sync.WaitGroup
		wg.Go(func() { w.ask(f, w.target()) })
		time.Sleep(500 * time.Millisecond)
		for range defaultAsks {
			<-f.slots
		}
		wg.Wait()
		time.Sleep(5*time.Second - time.Millisecond)
		w.ask(f, w.target())
		asked, _ := w.bmc.counts()
		w.expect("asked within 5 s", asked, 1)
		time.Sleep(time.Millisecond)
		w.ask(f, w.target())
		asked, _ = w.bmc.counts()
		w.expect("asked after 5 s", asked, 2)
	})
}

// Who waits for the power to be cut is looked at again for each answer that is told,
// with all others that wait for that node.
func TestAMachineThatIsStillOnIsToldOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		between func(w *world, f *Fencer)
		told    int
	}{
		"still on":        {func(*world, *Fencer) {}, 1},
		"off":             {func(w *world, _ *Fencer) { w.bmc.set(true) }, 2},
		"another lease":   {func(w *world, _ *Fencer) { w.renew("n1") }, 2},
		"given up on":     {func(w *world, f *Fencer) { w.bmc.takes = 6 * time.Second; w.giveUp(f) }, 2},
		"unclear between": {func(w *world, f *Fencer) { w.bmc.broken = true; w.ask(f, w.target()); w.bmc.broken = false }, 2},
		"torn between": {func(w *world, f *Fencer) {
			w.bmc.onStatus = func() { w.renew("n1"); w.bmc.onStatus = nil }
			w.ask(f, w.target())
		}, 2},
		"an error between": {func(w *world, f *Fencer) {
			w.server.SetDown(true)
			if _, err := f.Ask(w.Context(), w.target()); err == nil {
				w.Error("the API server is down, and it answered")
			}
			w.server.SetDown(false)
		}, 2},
		"forgotten": {func(_ *world, f *Fencer) { f.forget("n1") }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.fencer("a")
				var told atomic.Int32
				f.Answered = func(string, Answer) { told.Add(1) }
				w.expect("state", w.ask(f, w.target()).State, agent.On)
				time.Sleep(freshFor)
				tt.between(w, f)
				time.Sleep(freshFor)
				w.ask(f, w.target())
				synctest.Wait()
				w.expect("told", told.Load(), int32(tt.told))
			})
		})
	}
}

// giveUp asks, and goes without the answer.
func (w *world) giveUp(f *Fencer) {
	ctx, cancel := context.WithTimeout(w.Context(), 4*time.Second)
	defer cancel()
	if _, err := f.Ask(ctx, w.target()); !errors.Is(err, context.DeadlineExceeded) {
		w.Fatalf("error %v", err)
	}
}

func TestAnAnswerIsNotSharedOverAChangeOfTheLease(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		f := w.fencer("a")
		first := w.target()
		w.ask(f, first)
		w.renew("n1")
		a := w.ask(f, w.target())
		if a.Machine.LeaseRV == first.LeaseRV || a.Machine.LeaseRV != w.leaseRV("n1") {
			t.Errorf("bound to lease %s", a.Machine.LeaseRV)
		}
		w.expect("fences", w.fences(), "Void by a, Fenced by a")
	})
}

func TestAQuestionUnderWayAboutAnOlderLeaseIsAskedAgain(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.bmc.takes = time.Second
		f := w.fencer("a")
		old := w.target()
		go f.Ask(w.Context(), old)
		time.Sleep(500 * time.Millisecond)
		w.renew("n1")
		if a := w.ask(f, w.target()); a.State != agent.Off || a.Machine.LeaseRV != w.leaseRV("n1") {
			t.Errorf("answer %+v", a)
		}
	})
}

func TestAnAnswerAboutAnOlderLeaseIsNotSharedWhileItIsWrittenDown(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		f := w.fencer("a")
		var later Answer
		w.server.BeforeNextWrite(func() {
			time.Sleep(time.Second)
			w.renew("n1")
			go func() { later = w.ask(f, w.target()) }()
			time.Sleep(time.Second)
		})
		w.expect("state", w.ask(f, w.target()).State, agent.Off)
		synctest.Wait()
		if later.State != agent.Off || later.Machine.LeaseRV != w.leaseRV("n1") {
			t.Errorf("answer %+v", later)
		}
	})
}

func TestOnlyAClearAnswerIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		when func(*world)
		told int
	}{
		"off":           {func(w *world) { w.bmc.set(true) }, 1},
		"on":            {func(*world) {}, 1},
		"unclear":       {func(w *world) { w.bmc.broken = true }, 0},
		"no API server": {func(w *world) { w.bmc.onStatus = func() { w.server.SetDown(true) } }, 0},
		"not written":   {func(w *world) { w.bmc.set(true); w.server.Forbid("create") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.fencer("a")
				told := 0
				f.Answered = func(string, Answer) { told++ }
				tt.when(w)
				_, err := f.Ask(w.Context(), w.target())
				synctest.Wait()
				if told != tt.told {
					t.Errorf("told %d times, error %v", told, err)
				}
			})
		})
	}
}

func TestAnAnswerThatComesLateIsThereForTheNextCall(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.bmc.takes = 6 * time.Second
		f := w.fencer("a")
		var told atomic.Int32
		f.Answered = func(node string, a Answer) {
			if node == "n1" && a.State == agent.Off {
				told.Add(1)
			}
		}
		w.giveUp(f)
		time.Sleep(3 * time.Second)
		w.expect("told", told.Load(), int32(1))
		w.expect("fences", w.fences(), "Fenced by a")
		begun := time.Now()
		w.ask(f, w.target())
		w.expect("waited", time.Since(begun), time.Duration(0))
	})
}

func TestFewQuestionsAreUnderWayAtOnce(t *testing.T) {
	run(t, func(w *world) {
		var now, most atomic.Int32
		w.levels = agent.Levels{{{Agent: &counting{device: w.bmc, now: &now, most: &most}}}}
		f := w.fencer("a")
		var wg sync.WaitGroup
		for i := range 12 {
			name := fmt.Sprint("n", i)
			w.node(name, "u", "b", nil)
			wg.Go(func() { w.ask(f, Target{Node: name, UID: "u", BootID: "b"}) })
		}
		wg.Wait()
		w.expect("at once", most.Load(), int32(defaultAsks))
	})
}

type counting struct {
	*device
	now, most *atomic.Int32
}

func (c *counting) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	defer c.now.Add(-1)
	time.Sleep(time.Second)
	return c.device.Status(ctx, m)
}

func TestAReadingOfOnVoidsWhatTheRecordSays(t *testing.T) {
	for _, overridden := range []bool{false, true} {
		t.Run(fmt.Sprint("overridden: ", overridden), func(t *testing.T) {
			run(t, func(w *world) {
				w.bmc.set(true)
				w.ask(w.fencer("a"), w.target())
				w.bmc.set(false) // powered on by hand, or broken
				want := "Void by a"
				if overridden {
					want = "Fenced by a"
					o := record.Override{Agent: "bmc", By: "ann", Reason: "its board is broken", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: w.leaseRV("n1")}}
					if _, err := w.store.OverrideAgent(w.Context(), "n1", o); err != nil {
						t.Fatal(err)
					}
				}
				w.ask(w.fencer("b"), w.target())
				w.expect("fences", w.fences(), want)
				if why := w.record().Fences[0].Why; !overridden && why != "read as on again by bmc" {
					t.Errorf("why: %q", why)
				}
			})
		})
	}
}

func TestAReadingOfOnVoidsOnlyWhatItContradicts(t *testing.T) {
	storage := func(f *record.Fence) { f.Kind, f.Driver = fence.StorageFence, driver }
	for name, tt := range map[string]struct {
		fence         func(*record.Fence)
		bmc, array    bool // off
		broken        bool // the array
		after, reason string
	}{
		"the power":                   {func(*record.Fence) {}, false, false, false, "Void by b", "read as on again by bmc"},
		"another Node's":              {func(f *record.Fence) { f.Machine.NodeUID = "u0" }, false, false, false, "Fenced by b", ""},
		"one under way":               {func(f *record.Fence) { f.Phase = record.Fencing }, false, false, false, "Fencing by b", ""},
		"the access":                  {storage, false, false, false, "Void by b", "read as open again by array"},
		"the access, power off":       {storage, true, false, false, "Fenced by b, Fenced by a", ""},
		"the access, nobody reads it": {storage, false, false, true, "Fenced by b", ""},
		"the access that is cut":      {storage, false, true, false, "Fenced by b", ""},
		"another driver's":            {func(f *record.Fence) { f.Kind, f.Driver = fence.StorageFence, "other" }, false, false, false, "Fenced by b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.bmc.set(tt.bmc)
				w.levels = append(w.levels, agent.Level{{Agent: &device{name: "array", kind: fence.StorageFence, off: tt.array, broken: tt.broken}}})
				f := w.powerFence(record.Fenced)
				tt.fence(&f)
				w.put(f)
				w.ask(w.fencer("a"), w.target())
				w.expect("fences", w.fences(), tt.after)
				w.expect("why", w.record().Fences[0].Why, tt.reason)
			})
		})
	}
}

func TestWithoutTheAPIServerThereIsNoAnswer(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		target, f := w.target(), w.fencer("a")
		w.server.SetDown(true)
		if a, err := f.Ask(w.Context(), target); err == nil || !strings.Contains(err.Error(), "cannot read Node n1") {
			t.Fatalf("answer %+v, error %v", a, err)
		}
		w.server.SetDown(false)
		w.server.Forbid("get")
		if a, err := f.Ask(w.Context(), target); err == nil || !strings.Contains(err.Error(), "cannot read the lease of node n1") {
			t.Fatalf("answer %+v, error %v", a, err)
		}
		asked, _ := w.bmc.counts()
		w.expect("asked", asked, 0)
		w.server.Forbid("create") // the record
		if a, err := f.Ask(w.Context(), target); err == nil || !strings.Contains(err.Error(), "cannot write the record of node n1") {
			t.Fatalf("answer %+v, error %v", a, err)
		}
		w.server.Forbid("")
		w.bmc.onStatus = func() { w.server.SetDown(true) }
		if a, err := f.Ask(w.Context(), target); err == nil {
			t.Fatalf("answer %+v", a)
		}
		// It is no answer to be remembered.
		w.server.SetDown(false)
		w.expect("state", w.ask(f, target).State, agent.Off)
	})
}

func TestAReaderWritesNothing(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		f := w.fencer("a")
		f.ReadOnly = true
		w.expect("state", w.ask(f, w.target()).State, agent.Off)
		for what, do := range map[string]func() (Answer, error){
			"off":  func() (Answer, error) { return f.Off(w.Context(), w.target(), "x", true) },
			"on":   func() (Answer, error) { return f.On(w.Context(), w.target(), "x") },
			"lift": func() (Answer, error) { return f.Lift(w.Context(), w.target(), driver, "x") },
		} {
			_, err := do()
			w.refused(err, what)
		}
		if w.record() != nil {
			t.Error("there is a record")
		}
	})
}

func TestANodeWithoutNodeObjectIsAskedFor(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.server.DeleteNode("n1")
		w.server.Delete("kube-node-lease", "n1")
		a := w.ask(w.fencer("a"), Target{Node: "n1", UID: "u1", BootID: "b1"})
		if a.State != agent.Off || a.Machine.LeaseRV != "" || a.Machine.NodeUID != "u1" {
			t.Errorf("answer %+v", a)
		}
	})
}

func TestNoAgentIsAskedMoreThanItTakes(t *testing.T) {
	for name, tt := range map[string]struct {
		bmc, array string
		state      agent.State
		kind       fence.Kind
		asked      string
	}{
		"both off":           {"off", "off", agent.Off, fence.PowerReading, "1 0"},
		"power on":           {"on", "on", agent.On, fence.PowerReading, "1 1"},
		"cut off, power on":  {"on", "off", agent.Off, fence.StorageFence, "1 1"},
		"power unclear":      {"unclear", "on", agent.On, fence.StorageFence, "1 1"},
		"cut off, unclear":   {"unclear", "off", agent.Off, fence.StorageFence, "1 1"},
		"both unclear":       {"unclear", "unclear", agent.Unclear, "", "1 1"},
		"power on, unclear":  {"on", "unclear", agent.On, fence.PowerReading, "1 1"},
		"power off, unclear": {"off", "unclear", agent.Off, fence.PowerReading, "1 0"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.bmc.off, w.bmc.broken = tt.bmc == "off", tt.bmc == "unclear"
				array := &device{name: "array", kind: fence.StorageFence, off: tt.array == "off", broken: tt.array == "unclear"}
				w.levels = append(w.levels, agent.Level{{Agent: array}})
				a := w.ask(w.fencer("a"), w.target())
				if a.State != tt.state || a.Kind != tt.kind {
					t.Errorf("answer %+v", a)
				}
				w.expect("asked", fmt.Sprint(w.bmc.asked, array.asked), tt.asked)
				w.expect("steps", len(a.Steps), w.bmc.asked+array.asked)
			})
		})
	}
}

func TestAStorageFenceIsReadOfANodeWithPower(t *testing.T) {
	run(t, func(w *world) {
		array := &device{name: "array", kind: fence.StorageFence, off: true}
		w.levels = append(w.levels, agent.Level{{Agent: array}})
		array.onStatus = func() { w.renew("n1") } // it lives
		target := w.target()
		target.StorageOnly = true
		a := w.ask(w.fencer("a"), target)
		if a.State != agent.Off || a.Kind != fence.StorageFence || !w.record().StorageFenced(driver) || w.record().StorageFenced("other") {
			t.Fatalf("answer %+v", a)
		}
		asked, _ := w.bmc.counts()
		w.expect("the power's agent was asked", asked, 0)
		// The BMC's "on" does not hide it.
		a = w.ask(w.fencer("a"), w.target())
		if a.State != agent.Off || a.Kind != fence.StorageFence || strings.Join(a.On, "") != "bmc" {
			t.Fatalf("answer %+v", a)
		}
		if !strings.HasPrefix(a.Why, "every agent of level ") || !strings.HasSuffix(a.Why, " reads off, the machine has power") {
			t.Errorf("why: %s", a.Why)
		}
		array.set(false)
		a = w.ask(w.fencer("a"), w.target())
		if a.State != agent.On || a.Storage != agent.On || w.record().StorageFenced(driver) {
			t.Fatalf("answer %+v, fences %s", a, w.fences())
		}
		synctest.Wait()
	})
}

// addressed is a BMC that knows whose it is, as package ipmi's does.
type addressed struct {
	*device
	system string
}

func (a *addressed) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	if m.SystemUUID != "" && m.SystemUUID != a.system {
		return agent.Reading{}, errors.New("it belongs to another machine: " + a.system)
	}
	return a.device.Status(ctx, m)
}

// An address outlives its machine: other hardware may answer there, and be off.
func TestAMachineWhoseNodeIsGoneIsHeldAgainstWhatTheLedgerKnowsOfIt(t *testing.T) {
	for _, tt := range []struct {
		system string
		want   agent.State
	}{{"uuid-n1", agent.Off}, {"uuid-other", agent.Unclear}} {
		run(t, func(w *world) {
			w.bmc.set(true)
			w.levels = agent.Levels{{{Agent: &addressed{w.bmc, tt.system}, Timeout: 10 * time.Second}}}
			w.server.DeleteNode("n1")
			target := w.target()
			target.SystemUUID = "uuid-n1"
			a := w.ask(w.fencer("a"), target)
			if a.State != tt.want || a.Machine.SystemUUID != "uuid-n1" {
				t.Errorf("the BMC of %s: %+v", tt.system, a)
			}
		})
	}
}

// A ledger of before the system UUID was written down knows less of the machine: what is
// read for its sake is not held against that.
func TestAnAnswerIsNotSharedWithWhoKnowsMoreOfTheMachine(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.levels = agent.Levels{{{Agent: &addressed{w.bmc, "uuid-other"}, Timeout: 10 * time.Second}}}
		w.server.DeleteNode("n1")
		f, target := w.fencer("a"), w.target()
		w.expect("state, where nobody knows the system UUID", w.ask(f, target).State, agent.Off)
		target.SystemUUID = "uuid-n1"
		w.expect("state of the machine with another system UUID", w.ask(f, target).State, agent.Unclear)
	})
}

// A storage may know the node by its node ID, which its kubelet registers: so that of the nodes that are
// fenced there failover goes by one node ID within an hour, too. One that knows it otherwise does not.
func TestAFenceAtAStorageThatKnowsNodeIDsGoesByWhatTheNodeSays(t *testing.T) {
	run(t, func(w *world) {
		array := &device{name: "array", kind: fence.StorageFence}
		w.levels = append(w.levels, agent.Level{{Agent: array}})
		if w.fencer("a").Seeks("n1") {
			t.Error("a device that a person named goes by what the node says")
		}
		w.levels[len(w.levels)-1] = agent.Level{{Agent: wrapped{knowing{array}}}}
		if !w.fencer("b").Seeks("n1") {
			t.Error("the storage knows the node by nothing that it says")
		}
	})
}

// knowing is a storage that knows its clients by their node IDs.
type knowing struct{ *device }

func (knowing) KnowsByID(string) bool { return true }

// wrapped is an agent that is looked at, as those of the sidecar are.
type wrapped struct{ agent.Agent }

func (w wrapped) Unwrap() agent.Agent { return w.Agent }
