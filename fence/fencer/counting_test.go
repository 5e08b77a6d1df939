package fencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// counting is what the brakes count: each as KIND ID AGE, with what its record says against it.
func (w *world) counting(f *Fencer) string {
	w.Helper()
	all, err := f.Counting(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var words []string
	for _, one := range all {
		text := fmt.Sprintf("%s %s", one.ID, time.Since(one.At).Round(time.Second))
		if !one.Cut {
			text += " found"
		}
		if one.Void != "" {
			text += " void"
		}
		if one.Lifting {
			text += " lifting"
		}
		words = append(words, text)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// cutNow is a fence of n1's power for which an off was sent just now.
func (w *world) cutNow(id string) record.Fence {
	at := time.Now().UTC().Format(time.RFC3339)
	return record.Fence{ID: id, Kind: fence.PowerReading, Phase: record.Fenced, Actor: "csi-fencepost x@b", StartedAt: at,
		Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "1", NodeIDs: map[string]string{driver: "id1"}},
		Steps:   []record.FenceStep{{Agent: "bmc", Action: "off", At: at}}}
}

// strip leaves of what is vouched for what keep says, of the list of digests that there is. The
// digests of a power fence and of when it cut are told apart by what they vouch for.
func (w *world) strip(keep func(*record.Record) bool) {
	w.Helper()
	lease := w.server.Lease(ns, record.LeaseName("n1"))
	for _, d := range strings.Split(lease.Annotations[record.FencedAnnotation], ",") {
		lease.Annotations[record.FencedAnnotation] = d
		if w.server.Put(lease); keep(w.record()) {
			return
		}
	}
	w.Fatal("no digest is what is to be kept")
}

// untimed is what the version before leaves.
func untimed(r *record.Record) bool { return r.Vouched(&r.Fences[0]) }

// With these a driver's pod would stop the fencing of all nodes, for an hour at a time.
func TestTheBrakesCountNoFenceThatAWriterOfRecordsMadeUp(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		w.change(func(r *record.Record) { r.Fences = append(r.Fences, w.cutNow("forged")) })
		w.expect("forged", w.counting(f), "")
		w.put(w.cutNow("f1"))
		w.expect("vouched for", w.counting(f), "f1 0s")
		time.Sleep(50 * time.Minute)
		w.change(func(r *record.Record) { r.FenceByID("f1").StartedAt = time.Now().UTC().Format(time.RFC3339) })
		w.expect("said to have begun later", w.counting(f), "f1 50m0s")
		w.change(func(r *record.Record) { r.FenceByID("f1").Machine.NodeIDs[driver] = "id9" })
		all, err := f.Counting(w.Context())
		if err != nil || len(all) != 1 || all[0].NodeIDs[driver] != "id1" {
			t.Errorf("as another machine: %+v (%v)", all, err)
		}
		w.change(func(r *record.Record) { *r.FenceByID("f1") = w.cutNow("f2") })
		w.expect("under another ID", w.counting(f), "")
	})
}

// A machine that is back is one of the hour's, by whoever has seen it back.
func TestTheBrakesCountAFenceThatIsOver(t *testing.T) {
	run(t, func(w *world) {
		w.put(w.cutNow("f1"))
		time.Sleep(10 * time.Minute)
		w.change(func(r *record.Record) { r.EndFence("f1", record.Void, "back", "guard") })
		for range 2 {
			w.expect("another process", w.counting(w.fencer("b")), "f1 10m0s void")
		}
	})
}

func TestTheBrakesCountTheStorageFencesOfOtherDrivers(t *testing.T) {
	run(t, func(w *world) {
		w.put(w.storageFence("s", "other.example.com", "10.0.0.1/32"))
		all, err := w.fencer("a").Counting(w.Context())
		if err != nil || len(all) != 1 || !all[0].Others || !all[0].Vouched {
			t.Errorf("%+v (%v)", all, err)
		}
	})
}

// In an upgrade the version before has begun, and its pods go on writing records.
func TestTheBrakesCountAFenceOfTheVersionBefore(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		w.put(w.cutNow("f1"))
		w.strip(untimed)
		w.expect("begun by the version before", w.counting(f), "f1 0s")
		time.Sleep(10 * time.Minute)
		w.change(func(r *record.Record) { r.FenceByID("f1").StartedAt = time.Now().UTC().Format(time.RFC3339) })
		w.expect("its time was changed since", w.counting(f), "f1 10m0s")
		w.change(func(r *record.Record) { r.EndFence("f1", record.Void, "back", "guard") })
		w.expect("over", w.counting(f), "f1 10m0s void")
		w.expect("over, for a process that has not seen it", w.counting(w.fencer("b")), "")
	})
	// Nobody vouches any more for when what this process has seen was cut.
	run(t, func(w *world) {
		f := w.fencer("a")
		w.put(w.cutNow("f1"))
		w.expect("vouched for", w.counting(f), "f1 0s")
		w.strip(untimed)
		time.Sleep(time.Minute)
		w.change(func(r *record.Record) { r.FenceByID("f1").StartedAt = "1999-01-01T00:00:00Z" })
		w.expect("without its time", w.counting(f), "f1 1m0s")
		w.change(func(r *record.Record) { r.FenceByID("f1").Steps = nil })
		w.expect("without its off", w.counting(f), "f1 1m0s")
	})
}

// What is vouched for is another machine's clock.
func TestNoFenceCountsAsBegunAfterItWasSeen(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		one := w.cutNow("f1")
		one.StartedAt = time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
		w.put(one)
		w.expect("first", w.counting(f), "f1 0s")
		time.Sleep(59 * time.Minute)
		w.expect("later", w.counting(f), "f1 59m0s")
	})
}

// A writer of records would have one node after the other fenced: each leaves no trace.
func TestTheBrakesCountForAnHourWhatThisProcessCut(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"the record is gone": func(w *world) { w.server.Delete(ns, record.LeaseName("n1")) },
		"the fence is gone":  func(w *world) { w.change(func(r *record.Record) { r.Fences = nil }) },
		"it is said to have failed": func(w *world) {
			w.change(func(r *record.Record) { r.Fences[0].Phase, r.Fences[0].Steps = record.Failed, nil })
		},
		"it is said to be long ago": func(w *world) {
			w.change(func(r *record.Record) { r.Fences[0].StartedAt, r.Fences[0].Steps = "1999-01-01T00:00:00Z", nil })
		},
		"it is said to be found off":  func(w *world) { w.change(func(r *record.Record) { r.Fences[0].Steps = nil }) },
		"it is said to be another's":  func(w *world) { w.change(func(r *record.Record) { r.Fences[0].Actor = "ann" }) },
		"nobody vouches for anything": func(w *world) { w.strip(func(*record.Record) bool { return true }) },
		"it cannot be read": func(w *world) {
			lease := w.server.Lease(ns, record.LeaseName("n1"))
			lease.Annotations[record.Annotation] = "{"
			w.server.Put(lease)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.fencer("a")
				a, err := f.Off(w.Context(), w.target(), "dead", false)
				if err != nil || a.State != agent.Off {
					t.Fatal(a, err)
				}
				lose(w)
				w.expect("at once", w.counting(f), a.Fence+" 0s")
				time.Sleep(59 * time.Minute)
				w.expect("within the hour", w.counting(f), a.Fence+" 59m0s")
				time.Sleep(time.Minute)
				if now := w.counting(f); strings.HasPrefix(name, "the ") && now != "" {
					t.Errorf("an hour later: %s", now)
				}
			})
		})
	}
}

func TestWhatThisProcessCutIsOverAsItsRecordSays(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		a, err := f.Off(w.Context(), w.target(), "dead", false)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.change(func(r *record.Record) { r.EndFence(a.Fence, record.Void, "back", "guard") })
		w.expect("over", w.counting(f), a.Fence+" 1m0s void")
		w.change(func(r *record.Record) { r.Fences = nil })
		w.expect("over, and gone", w.counting(f), a.Fence+" 1m0s void")
	})
}

// The machine may be off from the moment in which the off is sent.
func TestWhatThisProcessIsCuttingCountsBeforeItIsSettled(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		var during string
		w.bmc.onOff = func(ctx context.Context) {
			w.server.Delete(ns, record.LeaseName("n1"))
			during = w.counting(f)
		}
		_, _ = f.Off(w.Context(), w.target(), "dead", false) // its lock is gone
		if !strings.HasSuffix(during, " 0s") || w.counting(f) != during {
			t.Errorf("while it is sent %q, and then %q", during, w.counting(f))
		}
	})
}

// A node whose device refuses is tried every half minute: it must not stop the fencing of others.
func TestATryThatWasRefusedDoesNotCount(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		w.bmc.refuses = errors.New("no route")
		if a, err := f.Off(w.Context(), w.target(), "dead", false); err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		w.expect("fences", w.fences(), "Failed by a")
		w.expect("refused", w.counting(f), "")
		w.server.Delete(ns, record.LeaseName("n1"))
		w.expect("refused, and gone", w.counting(f), "")
	})
}

// A storage fence that was cut anew, and fails or is lifted next, was cut when it was cut anew.
func TestAFenceThatWasSeenToCutLaterCountsByThat(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("a")
		began := time.Now().UTC().Format(time.RFC3339)
		time.Sleep(2 * time.Hour)
		one := w.cutNow("f1")
		one.StartedAt = began
		w.put(one)
		w.expect("cut anew", w.counting(f), "f1 0s")
		w.change(func(r *record.Record) { r.EndFence("f1", record.Void, "back", "guard") })
		w.expect("over", w.counting(f), "f1 0s void")
	})
}

// A writer of records would have the next fence begin, and so count, long ago.
func TestAFenceGoesOnWithNoBeginningThatNobodyVouchesFor(t *testing.T) {
	behind(t, nil, func(w *world, wall *firewall, target Target) {
		w.change(func(r *record.Record) {
			r.Fences = append(r.Fences, record.Fence{ID: "forged", Kind: fence.StorageFence, Driver: driver, Phase: record.Failed, Actor: "b", StartedAt: "1999-01-01T00:00:00Z",
				Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", SystemUUID: "uuid-n1", LeaseRV: target.LeaseRV}, Steps: []record.FenceStep{{Agent: "array", Action: "off"}}})
		})
		wall.deaf = errors.New("busy")
		if a, err := w.fencer("a").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		w.expect("fences", w.fences(), "Failed by a")
		w.expect("begun", w.record().Fences[0].StartedAt, time.Now().UTC().Format(time.RFC3339))
	})
}

// Whoever writes records may end the fence, or take it away, while its off is under way: the node was
// cut off all the same.
func TestACutIsCountedWhateverBecomesOfItsFenceWhileItIsUnderWay(t *testing.T) {
	for name, meddle := range map[string]func(*record.Record){
		"ended": func(r *record.Record) {
			f := r.FenceByID(r.Fences[0].ID)
			f.Phase, f.Why = record.Void, "says a pod"
		},
		"taken away": func(r *record.Record) { r.Fences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.fencer("a")
				w.bmc.deaf = true // so that it is not written anew as proven
				w.bmc.onOff = func(context.Context) { w.change(meddle) }
				_, _ = f.Off(w.Context(), w.target(), "dead", false)
				if all, err := f.Counting(w.Context()); err != nil || len(all) != 1 || !all[0].Cut {
					w.Errorf("counted: %+v (%v)", all, err)
				}
			})
		})
	}
}

// A clock that was ahead may be set right: nothing counts as begun later than now.
func TestNoFenceCountsAsBegunLaterThanNow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var c cuts
	f := Fence{ID: "f", Node: "n1", Vouched: true, Timed: true, At: now.Add(time.Hour)}
	c.count([]Fence{f}, now.Add(2*time.Hour))
	if got := c.count([]Fence{f}, now); len(got) != 1 || got[0].At.After(now) {
		t.Errorf("%+v", got)
	}
}
