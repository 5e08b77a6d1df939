package fencer

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// put writes a fence into the record.
func (w *world) put(f record.Fence) {
	w.Helper()
	w.change(func(r *record.Record) { r.PutFence(f, "Fence") })
}

// unvouch leaves the record as a version before wrote it, or somebody who may not fence.
func (w *world) unvouch() {
	w.Helper()
	lease := w.server.Lease(ns, record.LeaseName("n1"))
	delete(lease.Annotations, record.FencedAnnotation)
	w.server.Put(lease)
}

// change writes n1's record as a person or another process would; changeOf that of
// another node.
func (w *world) change(f func(r *record.Record)) {
	w.Helper()
	w.changeOf("n1", f)
}

func (w *world) changeOf(node string, f func(r *record.Record)) {
	w.Helper()
	if _, err := w.store.Update(w.Context(), node, func(r *record.Record) (bool, error) { f(r); return true, nil }); err != nil {
		w.Fatal(err)
	}
}

// powerFence is one of n1 as it is now.
func (w *world) powerFence(phase record.Phase) record.Fence {
	return record.Fence{ID: "f", Kind: fence.PowerReading, Phase: phase, Actor: "b", Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: w.leaseRV("n1")}}
}

// trail is the audit trail, an entry a line.
func (w *world) trail() string {
	w.Helper()
	text := ""
	for _, a := range w.record().Audit {
		text += a.Actor + " " + a.Action + " " + a.Detail + "\n"
	}
	return text
}

func TestWhatWasGivenBackAndWhyIsWrittenDown(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		if a, err := w.fencer("a").On(w.Context(), w.target(), "moved"); err != nil || a.State != agent.On {
			t.Fatal(a, err)
		}
		got := w.trail()
		for _, want := range []string{
			"a Begin:on ", ": node UID u1: moved\n", "a End:on ",
			": on: agent bmc of level 1 reads on; bmc status: off (power:0); bmc on: unclear (done); bmc status: on (power:1)\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("the audit trail does not say %q:\n%s", want, got)
			}
		}
		w.bmc.broken = true
		if a, err := w.fencer("a").On(w.Context(), w.target(), "moved"); err != nil || a.State != agent.Unclear {
			t.Fatal(a, err)
		}
		if got := w.trail(); !strings.HasSuffix(got, "; bmc status: unclear (no answer)\n") {
			t.Errorf("the audit trail does not say what went wrong:\n%s", got)
		}
	})
}

func TestWhatWasGivenBackAndCannotBeWrittenDownIsAnError(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.put(w.powerFence(record.Fenced))
		target := w.target()
		w.bmc.onStatus = func() { w.server.SetDown(true) }
		a, err := w.fencer("a").On(w.Context(), target, "moved")
		if err == nil || a.State != agent.On || !strings.Contains(err.Error(), "the agents' answer (on: agent bmc of level 1 reads on) could not be written down") {
			t.Errorf("%+v, %v", a, err)
		}
		w.server.SetDown(false)
		w.expect("fences", w.fences(), "Void by b")
	})
}

func TestPowerIsNotGivenToAnotherMachine(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		target, f := w.target(), w.fencer("a")
		w.put(w.powerFence(record.Fenced))
		w.node("n1", "u2", "b1", nil)
		_, err := f.On(w.Context(), target, "moved")
		w.refused(err, fence.VoidOtherMachine)
		w.expect("fences", w.fences(), "Fenced by b")
		w.unlocked()

		w.server.DeleteNode("n1") // the machine is still there
		if a, err := f.On(w.Context(), target, "moved"); err != nil || a.State != agent.On {
			t.Fatal(a, err)
		}
		w.expect("fences", w.fences(), "Void by b")
	})
}

func TestPowerIsNotGivenBackWithoutRecordOrLock(t *testing.T) {
	for name, tt := range map[string]struct {
		when func(*world)
		says string
	}{
		"no API server":    {func(w *world) { w.server.SetDown(true) }, "connection refused"},
		"no right to lock": {func(w *world) { w.server.BeforeNextWrite(func() { w.server.Forbid("create") }) }, "create"},
		"a garbled record": {func(w *world) {
			w.server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1"), Annotations: map[string]string{record.Annotation: "{"}}})
		}, "cannot be read"},
		"lost to another":    {func(w *world) { w.steal(1) }, record.ErrLockLost.Error()},
		"lost after writing": {func(w *world) { w.steal(2) }, record.ErrLockLost.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.bmc.set(true)
				target := w.target()
				tt.when(w)
				a, err := w.fencer("a").On(w.Context(), target, "moved")
				if err == nil || a.State != agent.Unclear || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%+v, %v", a, err)
				}
				if asked, _ := w.bmc.counts(); asked != 0 || !w.bmc.off {
					t.Error("the device was asked")
				}
			})
		})
	}
}

// steal takes the lock right before the write that comes after so many.
func (w *world) steal(after int) {
	w.server.BeforeNextWrite(func() {
		if after > 0 {
			w.steal(after - 1)
			return
		}
		w.takeLock()
	})
}

func TestAccessThatIsOpenLiftsNothingButItsOwnFence(t *testing.T) {
	storage := func(w *world) record.Fence {
		f := w.powerFence(record.Fenced)
		f.ID, f.Kind, f.Driver = "s", fence.StorageFence, driver
		return f
	}
	for name, tt := range map[string]struct {
		do   func(*Fencer, Target) (Answer, error)
		want string
	}{
		"lift": {func(f *Fencer, target Target) (Answer, error) {
			return f.Lift(context.Background(), target, driver, "back")
		}, "Fenced by b, Lifted by b"},
		"on": {func(f *Fencer, target Target) (Answer, error) { return f.On(context.Background(), target, "back") }, "Void by b, Lifted by b"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.levels = append(w.levels, agent.Level{{Agent: &device{name: "array", kind: fence.StorageFence, off: true}}})
				w.put(w.powerFence(record.Fenced))
				w.put(storage(w))
				a, err := tt.do(w.fencer("a"), w.target())
				if err != nil || a.State != agent.On || a.Storage != agent.On || a.Fence != "s" {
					t.Errorf("%+v, %v", a, err)
				}
				w.expect("fences", w.fences(), tt.want)
				lifted := w.record().FenceByID("s")
				if lifted.Why != "back" || len(lifted.Steps) == 0 || lifted.EndedAt == "" {
					t.Errorf("lifted: %+v", lifted)
				}
			})
		})
	}
	t.Run("by one of two", func(t *testing.T) {
		run(t, func(w *world) {
			w.levels = agent.Levels{{{Agent: &device{name: "array", kind: fence.StorageFence, off: true}}}, {{Agent: &device{name: "second", kind: fence.StorageFence, broken: true}}}}
			w.put(storage(w))
			if a, err := w.fencer("a").Lift(w.Context(), w.target(), driver, "back"); err == nil || a.State != agent.Unclear || !strings.Contains(err.Error(), "is not lifted: agent second of level 2 reads unclear") {
				t.Errorf("%+v, %v", a, err)
			}
			w.expect("fences", w.fences(), "Lifting by b")
		})
	})
}

func TestAccessIsOpenIfEveryStorageAgentReadsItSo(t *testing.T) {
	run(t, func(w *world) {
		for _, name := range []string{"array", "second", "third"} {
			w.levels = append(w.levels, agent.Level{{Agent: &device{name: name, kind: fence.StorageFence}}})
		}
		f := w.fencer("a")
		read := func(name string, s agent.State) agent.Step {
			return agent.Step{Agent: name, Action: "status", State: s}
		}
		for name, tt := range map[string]struct {
			steps []agent.Step
			open  bool
		}{
			"nobody":           {nil, false},
			"the power's":      {[]agent.Step{read("bmc", agent.On)}, false},
			"both":             {[]agent.Step{read("array", agent.On), read("second", agent.On), read("bmc", agent.Off)}, true},
			"one cuts it":      {[]agent.Step{read("array", agent.On), read("second", agent.Off)}, false},
			"one is silent":    {[]agent.Step{read("array", agent.On), read("second", agent.Unclear)}, false},
			"one of each":      {[]agent.Step{read("array", agent.On), read("second", agent.Off), read("third", agent.Unclear)}, false},
			"the power silent": {[]agent.Step{read("array", agent.On), read("bmc", agent.Unclear)}, true},
			"none is open":     {[]agent.Step{read("array", agent.Off)}, false},
		} {
			if f.open(tt.steps) != tt.open {
				t.Errorf("%s: open is %v", name, !tt.open)
			}
		}
	})
}

func TestVoidNeedsAFenceANodeAndTheRightToWrite(t *testing.T) {
	void := func(w *world, f *Fencer) bool {
		w.Helper()
		voided, err := f.Void(w.Context(), "n1", "back")
		if err != nil {
			w.Fatal(err)
		}
		return voided
	}
	run(t, func(w *world) {
		f := w.fencer("a")
		w.expect("without a record", void(w, f), false)
		f.ReadOnly = true
		_, err := f.Void(w.Context(), "n1", "back")
		w.refused(err, "void of node n1 is refused")
	})
	run(t, func(w *world) {
		w.put(w.powerFence(record.Fenced))
		w.renew("n1")
		f := w.fencer("a")
		w.server.SetDown(true)
		if voided, err := f.Void(w.Context(), "n1", "back"); err == nil || voided {
			t.Error("without the API server: ", voided, err)
		}
		w.server.SetDown(false)
		w.expect("renewed", void(w, f), true)
		w.expect("once more", void(w, f), false)
	})
}

func TestAFenceThatEndedMeanwhileIsNotVoided(t *testing.T) {
	for name, end := range map[string]func(*world){
		"failed": func(w *world) {
			w.change(func(r *record.Record) { r.EndFence("f", record.Failed, "no answer", "b") })
		},
		"deleted": func(w *world) { w.server.Delete(ns, record.LeaseName("n1")) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.put(w.powerFence(record.Fencing))
				w.renew("n1")
				w.server.BeforeNextWrite(func() { end(w) })
				if voided, err := w.fencer("a").Void(w.Context(), "n1", "back"); err != nil || voided || strings.Contains(w.fences(), "Void") {
					t.Errorf("voided %v, %v, %s", voided, err, w.fences())
				}
			})
		})
	}
}

// It was begun although the node may live: its signs of life are no news.
func TestAFenceByForceIsVoidOnlyOnceItIsThrough(t *testing.T) {
	for _, tt := range []struct {
		phase  record.Phase
		forced bool
		voided bool
	}{{record.Fencing, true, false}, {record.Fenced, true, true}, {record.Fencing, false, true}} {
		run(t, func(w *world) {
			f := w.powerFence(tt.phase)
			f.Forced = tt.forced
			w.put(f)
			w.renew("n1")
			voided, err := w.fencer("a").Void(w.Context(), "n1", "back")
			if err != nil || voided != tt.voided || (w.record().Fences[0].Phase == record.Void) != tt.voided {
				t.Errorf("%+v: %v, %v, %s", tt, voided, err, w.fences())
			}
		})
	}
}

func TestAnAnswerFromBeforeAChangeOfPowerCountsForNothing(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.bmc.takes = time.Second
		f := w.fencer("a")
		w.node("n2", "u2", "b2", nil)
		var under, others Answer
		go func() { under = w.ask(f, w.target()) }()
		go func() { others = w.ask(f, Target{Node: "n2", UID: "u2", BootID: "b2"}) }()
		time.Sleep(time.Second / 2)
		f.forget("n1")
		time.Sleep(time.Second)
		synctest.Wait()
		w.expect("another node's", others.State, agent.Off)
		if under.State != agent.Unclear || !strings.Contains(under.Why, "was changed while") || len(under.Steps) == 0 {
			t.Errorf("answer %+v", under)
		}
		w.expect("record", w.fences(), "")
		w.expect("state", w.ask(f, w.target()).State, agent.Off)
		f.forget("n2")
		asked, _ := w.bmc.counts()
		w.ask(f, w.target())
		again, _ := w.bmc.counts()
		w.expect("questions for another node's sake", again-asked, 0)
		f.forget("n1")
		w.ask(f, w.target())
		again, _ = w.bmc.counts()
		w.expect("questions after a change", again-asked, 1)
	})
}
