package fencer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// late reads the wall, and answers once then has come about, the first time.
type late struct {
	*firewall
	then func()
}

func (l *late) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	r, err := l.firewall.Status(ctx, m)
	if then := l.then; then != nil {
		l.then = nil
		then()
	}
	return r, err
}

// lateFencer is "c", which is told of the wall late.
func (w *world) lateFencer(wall *firewall, then func()) *Fencer {
	w.Helper()
	before := w.levels
	w.levels = agent.Levels{{{Agent: &late{wall, then}, Timeout: 5 * time.Minute}}}
	f := w.fencer("c")
	w.levels = before
	return f
}

// withdraw is a person's.
func (w *world) withdraw() {
	w.Helper()
	w.change(func(r *record.Record) {
		if s := r.Fence(fence.StorageFence, driver); s != nil {
			r.WithdrawFence(s.ID, "wrong", "ann")
		}
	})
}

func (w *world) cut(target Target) {
	w.Helper()
	if a, err := w.fencer("a").Off(w.Context(), target, "dead", false); err != nil || a.State != agent.Off {
		w.Fatal(a, err)
	}
}

func TestAReadingThatOutlivesAccessGivenBackIsNoProof(t *testing.T) {
	on := func(w *world, target Target) {
		if _, err := w.fencer("b").On(w.Context(), target, "booted"); err != nil {
			w.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		before, then func(w *world, wall *firewall, target Target)
		off          bool
	}{
		"nothing happens": {nil, func(*world, *firewall, Target) {}, true},
		"a whole lift":    {nil, func(w *world, _ *firewall, target Target) { w.succeeds(w.lift(target)) }, false},
		"a lift, and another fence that counts": {nil, func(w *world, _ *firewall, target Target) {
			w.succeeds(w.lift(target))
			w.cut(target)
		}, false},
		"half a lift": {nil, func(w *world, wall *firewall, target Target) {
			wall.refuses = errors.New("no")
			w.fails(w.lift(target), "is not lifted")
		}, false},
		"another has read it as open": {nil, func(w *world, wall *firewall, target Target) {
			wall.list = nil
			w.expect("by another", w.ask(w.fencer("b"), target).State, agent.On)
		}, false},
		"a person takes its word back": {nil, func(w *world, _ *firewall, _ Target) { w.withdraw() }, false},
		"the record is taken away": {nil, func(w *world, _ *firewall, _ Target) {
			lease := w.server.Lease(ns, record.LeaseName("n1"))
			delete(lease.Annotations, record.Annotation)
			w.server.Put(lease)
		}, false},
		"a fence and its lift": {
			func(w *world, _ *firewall, _ Target) {
				w.put(record.Fence{ID: "x", Kind: fence.PowerReading, Phase: record.Failed, Actor: "a", Machine: record.FencedMachine{NodeUID: "u1"}})
			},
			func(w *world, wall *firewall, target Target) {
				w.cut(target)
				w.succeeds(w.lift(target))
			}, false},
		"access that no fence names": {
			func(w *world, wall *firewall, target Target) {
				w.succeeds(w.lift(target))
				wall.list = []string{"192.0.2.1/32", "192.0.2.2/32"} // by hand
			}, func(w *world, _ *firewall, target Target) { on(w, target) }, false},
		"the same once more, whoever begun it is silent": {
			func(w *world, wall *firewall, target Target) {
				w.succeeds(w.lift(target))
				wall.list = []string{"192.0.2.1/32", "192.0.2.2/32"}
				wall.refuses = errors.New("no")
				if _, err := w.fencer("b").Lift(w.Context(), target, driver, "booted"); err == nil {
					w.Error("it was opened")
				}
				lock, err := w.store.Lock(w.Context(), "n1", "b", 30*time.Second)
				if err != nil {
					w.Fatal(err)
				}
				lock.Abandon()
			}, func(*world, *firewall, Target) {}, false},
		"an earlier fence's end is no news": {
			func(w *world, wall *firewall, target Target) {
				w.succeeds(w.lift(target))
				w.cut(target)
			}, func(*world, *firewall, Target) {}, true},
		"a fence that counts is no reason to doubt": {
			func(w *world, wall *firewall, target Target) {
				w.succeeds(w.lift(target))
				wall.list = []string{"192.0.2.1/32", "192.0.2.2/32"}
			}, func(w *world, _ *firewall, target Target) { w.cut(target) }, true},
		"nor that another has read the same": {
			func(w *world, wall *firewall, target Target) {
				w.succeeds(w.lift(target))
				wall.list = []string{"192.0.2.1/32", "192.0.2.2/32"}
			}, func(w *world, _ *firewall, target Target) { w.ask(w.fencer("b"), target) }, true},
		"nor that another driver's fence is lifted": {
			func(w *world, _ *firewall, _ Target) {
				w.put(record.Fence{ID: "x", Kind: fence.StorageFence, Driver: "other", Phase: record.Fenced, Actor: "a", Machine: record.FencedMachine{NodeUID: "u1"}})
			},
			func(w *world, _ *firewall, _ Target) {
				w.change(func(r *record.Record) { r.EndFence("x", record.Lifted, "booted", "b") })
			}, true},
		"withdrawn, and then given back": {
			func(w *world, _ *firewall, _ Target) { w.withdraw() },
			func(w *world, _ *firewall, target Target) { on(w, target) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				if tt.before != nil {
					tt.before(w, wall, target)
				}
				f := w.lateFencer(wall, func() { tt.then(w, wall, target) })
				a := w.ask(f, target)
				if (a.State == agent.Off) != tt.off || !tt.off && (a.Kind != "" || a.Storage != agent.Unclear || a.Fence != "" || a.Why == "") {
					t.Errorf("%+v; %s", a, w.fences())
				}
				if strings.HasPrefix(name, "half") && !strings.Contains(a.Why, fence.VoidLifting) {
					t.Errorf("it says %q", a.Why)
				}
				if s := w.record().Fence(fence.StorageFence, driver); !tt.off && s != nil && s.Actor == "c" {
					t.Errorf("a fence of open access: %+v", s)
				}
				if f.mu.Lock(); !tt.off && len(f.answers) != 0 {
					t.Error("it is remembered")
				}
				f.mu.Unlock()
			})
		})
	}
}

func TestAReadingOfThePowerOutlivesAccessGivenBack(t *testing.T) {
	run(t, func(w *world) {
		w.levels = append(w.levels, agent.Level{{Agent: &device{name: "array", kind: fence.StorageFence}}})
		w.bmc.set(true)
		w.bmc.onStatus = func() { w.succeeds(w.lift(w.target())) }
		a := w.ask(w.fencer("c"), w.target())
		if a.State != agent.Off || a.Kind != fence.PowerReading || a.Fence == "" {
			t.Errorf("answer %+v", a)
		}
		w.expect("fences", w.fences(), "Fenced by c")
	})
}

// All that the record has is that somebody has begun.
func TestAReadingWhileAccessThatNobodyFencedIsGivenBackIsNoProof(t *testing.T) {
	behind(t, []string{"192.0.2.1/32", "192.0.2.2/32"}, func(w *world, wall *firewall, target Target) {
		wall.atOn = func() {
			w.expect("audit entries", len(w.record().Audit), 1)
			a := w.ask(w.fencer("c"), target)
			if a.State != agent.Unclear || a.Kind != "" || !strings.Contains(a.Why, "who may be giving access back") {
				t.Errorf("answer %+v", a)
			}
		}
		w.succeeds(w.on(target))
		w.expect("requests", wall.ons, 1)
		w.expect("fences", w.fences(), "")
	})
}

// A lift by another process is not known to this one.
func TestAnAnswerIsRememberedNoLongerThanItsFenceCounts(t *testing.T) {
	for name, end := range map[string]func(w *world, wall *firewall, target Target){
		"lifted": func(w *world, _ *firewall, target Target) { w.succeeds(w.lift(target)) },
		"being lifted": func(w *world, wall *firewall, target Target) {
			wall.refuses = errors.New("no")
			w.fails(w.lift(target), "is not lifted")
		},
		"": nil,
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				f := w.fencer("c")
				w.expect("before", w.ask(f, target).State, agent.Off)
				if end != nil {
					end(w, wall, target)
				}
				asked := wall.asked.Load()
				w.expect("after", w.ask(f, target).State == agent.Off, end == nil)
				w.expect("the agents were asked again", wall.asked.Load() > asked, end != nil)
				w.server.SetDown(true)
				if _, err := f.Ask(w.Context(), target); name == "" && err == nil {
					t.Error("an answer of which nobody can tell whether it holds")
				}
			})
		})
	}
}

// Off is read; then the process stands still for longer than its lock, and another one
// gives access back.
func TestAnOffThatHasLostItsLockIsNotWrittenDown(t *testing.T) {
	fresh := func(t *testing.T, test func(w *world, wall *firewall, target Target)) {
		run(t, func(w *world) {
			wall := &firewall{}
			w.levels = agent.Levels{{{Agent: wall, Timeout: 2 * time.Second}}}
			test(w, wall, w.registered("u1", "b1", oneSystem, "192.0.2.1", "192.0.2.2"))
		})
	}
	anew := func(t *testing.T, test func(w *world, wall *firewall, target Target)) {
		halfLifted(t, "192.0.2.1", test)
	}
	for name, prepare := range map[string]func(*testing.T, func(*world, *firewall, Target)){"a new one": fresh, "over one that is being lifted": anew} {
		for _, fails := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				prepare(t, func(w *world, wall *firewall, target Target) {
					lock, err := w.store.Lock(w.Context(), "n1", "a", 30*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					c := &cut{Fencer: w.fencer("a"), t: target, lock: lock, reason: "dead", id: "mine", other: "other"}
					now, err := c.permitted(w.Context())
					if err != nil {
						t.Fatal(err)
					}
					a, err := c.off(w.Context(), now)
					if err != nil || a.State != agent.Off {
						t.Fatal(a, err)
					}
					lock.Abandon()
					asked := false
					back := w.registered("u1", "b2", oneSystem, "192.0.2.1", "192.0.2.2")
					wall.atOn = func() {
						asked = true
						w.succeeds(c.settle(w.Context(), &a))
						if got := w.ask(w.fencer("c"), back); got.State == agent.Off {
							t.Errorf("it proves %s while access is being given back", got.Kind)
						}
					}
					if fails {
						wall.refuses = errors.New("half of it only")
					}
					if err := w.lift(back); (err != nil) != fails || !asked {
						t.Error(err)
					}
					if a.State != agent.Unclear || a.Kind != "" || a.Fence != "" || len(a.Steps) == 0 || !strings.Contains(a.Why, "the lock was lost before") {
						t.Errorf("%+v", a)
					}
					s := w.record().Fence(fence.StorageFence, driver)
					if (s != nil) != fails || s != nil && (!s.BeingLifted() || s.ID != "mine") {
						t.Errorf("%s: %+v", w.fences(), s)
					}
				})
			})
		}
	}
}

func TestWhatWasReadIsNotSaidToBeOffWhereTheLockIsLost(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.set(true)
		w.bmc.onStatus = w.takeLock
		a, err := w.fencer("a").Off(w.Context(), w.target(), "x", false)
		w.refused(err, "the lock was lost before")
		w.expect("state", a.State, agent.Unclear)
		w.expect("fences", w.fences(), "")
		w.unsent()
	})
}

// The brakes count nodes by when their fence began.
func TestAFenceThatIsTriedAgainOverOneThatIsBeingLiftedBeganWhenThatDid(t *testing.T) {
	halfLifted(t, "192.0.2.1", func(w *world, wall *firewall, target Target) {
		begun := w.fence().StartedAt
		wall.deaf = errors.New("busy")
		for range 3 {
			time.Sleep(30 * time.Minute)
			if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
				t.Fatal(a, err)
			}
			w.expect("begun", w.fence().StartedAt, begun)
		}
		wall.deaf = nil
		w.cut(target)
		for _, f := range w.record().Fences {
			w.expect("begun", f.StartedAt, begun)
		}
	})
}

func TestWhatAWithdrawnFenceCutIsStillGivenBack(t *testing.T) {
	lift := func(f *Fencer, target Target) (Answer, error) {
		return f.Lift(context.Background(), target, driver, "repaired")
	}
	on := func(f *Fencer, target Target) (Answer, error) {
		return f.On(context.Background(), target, "repaired")
	}
	for name, back := range map[string]func(*Fencer, Target) (Answer, error){"lift": lift, "on": on} {
		t.Run(name, func(t *testing.T) {
			halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, target Target) {
				w.withdraw()
				if name == "lift" { // of an earlier boot it would be somebody else's by now
					target = w.registered("u1", "b1", oneSystem, "192.0.2.9")
				}
				_, err := back(w.fencer("c"), target)
				w.succeeds(err)
				w.expect("still cut", strings.Join(wall.list, " "), "")
				w.expect("fences", w.fences(), "Lifted by a")
				// That is over: by now it may be another's address.
				wall.list = []string{"192.0.2.1/32"}
				_, err = back(w.fencer("c"), target)
				w.succeeds(err)
				w.expect("another's", strings.Join(wall.list, " "), "192.0.2.1/32")
			})
		})
	}
	t.Run("it stays known until it is open", func(t *testing.T) {
		halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, _ Target) {
			w.withdraw()
			target := w.registered("u1", "b1", oneSystem, "192.0.2.9")
			wall.refuses = errors.New("no")
			w.fails(w.lift(target), "does not read open")
			w.expect("fences", w.fences(), "Void by a")
			wall.refuses = nil
			w.succeeds(w.lift(target))
			w.expect("still cut", strings.Join(wall.list, " "), "")
		})
	})
	t.Run("read as cut again meanwhile", func(t *testing.T) {
		cutOff(t, func(w *world, wall *firewall, _ Target) {
			w.withdraw()
			wall.list = append(wall.list, "192.0.2.9/32")
			target := w.registered("u1", "b2", oneSystem, "192.0.2.9")
			w.expect("today's address", w.ask(w.fencer("c"), target).State, agent.Off)
			_, err := on(w.fencer("c"), target)
			w.succeeds(err)
			w.expect("still cut", strings.Join(wall.list, " "), "")
			w.expect("fences", w.fences(), "Lifted by a, Lifted by c")
		})
	})
	t.Run("another machine's", func(t *testing.T) {
		halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, _ Target) {
			w.withdraw()
			w.succeeds(w.lift(w.registered("u1", "b3", otherSystem, "192.0.2.8")))
			w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.1/32")
			w.expect("fences", w.fences(), "Void by a")
		})
	})
	for name, change := range map[string]func(*record.Fence){
		"another node's by now": func(*record.Fence) {},
		"another node's, in a wider block": func(f *record.Fence) {
			f.Steps[0].Detail = "fence 192.0.2.0/31 at driver x"
		},
		"it may be another node's": func(f *record.Fence) {
			f.Phase, f.Steps = record.Fencing, nil
		},
		"it may be another node's, which is cut off anew": func(f *record.Fence) {
			f.Phase, f.Steps = record.Refencing, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, target Target) {
				w.withdraw()
				f := record.Fence{ID: "n2", Kind: fence.StorageFence, Driver: driver, Phase: record.Fenced, Actor: "x", Machine: record.FencedMachine{NodeUID: "u2"},
					Steps: []record.FenceStep{{Agent: "array", Action: "off", Detail: "fence 192.0.2.1/32 at driver x"}}}
				change(&f)
				w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
				a, err := on(w.fencer("c"), target)
				w.succeeds(err)
				w.expect("cut", slices.Contains(wall.list, "192.0.2.1/32"), true)
				w.expect("it is said", strings.Contains(a.Why, "is left as it is: the record of node n2 does not say what is being cut off"), f.UnderWay())
			})
		})
	}
}

// The fence is another machine's: nobody has to lift it to open what this one has.
func TestAReadingThatOutlivesAccessGivenBackUnderAnotherMachinesFenceIsNoProof(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		target := w.registered("u1", "b3", otherSystem, "192.0.2.8")
		wall.list = append(wall.list, "192.0.2.8/32")
		f := w.lateFencer(wall, func() {
			_, _ = w.fencer("b").On(w.Context(), target, "booted") // which says that the other's fence stands
			w.expect("cut", slices.Contains(wall.list, "192.0.2.8/32"), false)
		})
		w.expect("answer", w.ask(f, target).State, agent.Unclear)
		w.expect("fences", w.fences(), "Fenced by a")
		w.expect("lifting", w.fence().LiftReason, "")
	})
}

func TestWhatAWithdrawnFenceCutIsNotOpenedUnderAnotherFence(t *testing.T) {
	t.Run("a lift is of its own fence", func(t *testing.T) {
		halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, target Target) {
			w.withdraw()
			w.cut(target)
			w.succeeds(w.lift(target))
			w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.1/32")
			w.expect("fences", w.fences(), "Void by a, Lifted by a")
		})
	})
	t.Run("another machine has the address and the name by now", func(t *testing.T) {
		halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, target Target) {
			w.withdraw()
			w.cut(w.registered("u1", "b3", otherSystem, "192.0.2.1"))
			_, _ = w.fencer("b").On(w.Context(), w.registered("u1", "b4", oneSystem, "192.0.2.9"), "repaired")
			w.expect("still cut", slices.Contains(wall.list, "192.0.2.1/32"), true)
			w.expect("fences", w.fences(), "Void by a, Fenced by a")
		})
	})
}
