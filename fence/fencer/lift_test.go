package fencer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// firewall cuts addresses off, as a driver with a list of them does.
type firewall struct {
	list     []string
	refuses  error    // On's
	unread   error    // Status's
	deaf     error    // Off's; what it was told it has written down all the same
	denies   error    // Off's, before it sends anything
	strict   bool     // Off is of the addresses of now alone
	declared []string // the addresses of each node, instead of its own
	ownWord  bool     // whose the addresses are the Node alone says
	atOn     func()
	atOff    func()
	atRead   func()
	ons      int
	offs     int
	asked    atomic.Int32
}

func (*firewall) Name() string       { return "array" }
func (*firewall) Proves() fence.Kind { return fence.StorageFence }
func (*firewall) Covers(string) bool { return true }

func of(m agent.Machine) []string {
	all := slices.Clone(m.Fenced)
	for _, a := range m.Addresses {
		all = append(all, a+"/32")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (f *firewall) Status(_ context.Context, m agent.Machine) (agent.Reading, error) {
	f.asked.Add(1)
	if f.atRead != nil {
		f.atRead()
	}
	if f.unread != nil {
		return agent.Reading{}, f.unread
	}
	if f.declared != nil {
		m.Addresses = f.declared
	}
	var in, out []string
	for _, b := range of(m) {
		if slices.Contains(f.list, b) {
			in = append(in, b)
		} else {
			out = append(out, b)
		}
	}
	named := of(agent.Machine{Addresses: m.Addresses})
	if !f.strict {
		named = of(m)
	}
	own := f.ownWord || len(named) == 0
	switch {
	case len(in)+len(out) == 0:
		return agent.Reading{}, errors.New("no known address")
	case len(out) == 0:
		return agent.Reading{State: agent.Off, OwnWord: own, Named: named, Cut: in, Detail: "driver x lists " + strings.Join(in, ", ") + " as fenced"}, nil
	case len(in) == 0:
		return agent.Reading{State: agent.On, OwnWord: own, Named: named, Detail: "driver x does not list " + strings.Join(out, ", ") + " as fenced"}, nil
	}
	return agent.Reading{OwnWord: own, Named: named, Cut: in, Detail: "driver x lists " + strings.Join(in, ", ") + " as fenced, and not " + strings.Join(out, ", ")}, nil
}

func (f *firewall) Off(_ context.Context, m agent.Machine) (string, error) {
	f.offs++
	if f.atOff != nil {
		f.atOff()
	}
	if f.denies != nil {
		return "", f.denies
	}
	if f.declared != nil {
		m.Addresses = f.declared
	}
	if f.strict {
		m.Fenced = nil
	}
	own := of(m)
	if m.Own != nil {
		own = slices.DeleteFunc(own, func(b string) bool { return !slices.Contains(m.Own, b) })
	}
	detail := "fence " + strings.Join(own, ", ") + " at driver x"
	if f.deaf != nil {
		return detail, f.deaf
	}
	f.list = append(f.list, of(m)...)
	return detail, nil
}

func (f *firewall) On(_ context.Context, m agent.Machine) (string, error) {
	f.ons++
	if f.atOn != nil {
		f.atOn()
	}
	if f.declared != nil {
		m.Addresses = f.declared
	}
	if m.Only != nil {
		m.Fenced, m.Addresses = m.Only, nil
	}
	if len(of(m)) == 0 {
		return "", errors.New("nothing to open")
	}
	detail := "unfence " + strings.Join(of(m), ", ") + " at driver x"
	if f.refuses != nil {
		return detail, f.refuses
	}
	f.list = slices.DeleteFunc(f.list, func(b string) bool { return slices.Contains(of(m), b) })
	return detail, nil
}

// registered is n1 as its kubelet has registered it.
func (w *world) registered(uid, boot, system string, addresses ...string) Target {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID(uid)}}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = boot, system
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	w.server.PutNode(n)
	return Target{Node: "n1", UID: uid, BootID: boot, NodeID: "id1", LeaseRV: w.leaseRV("n1")}
}

const (
	oneSystem   = "11111111-2222-3333-4444-555555555555"
	otherSystem = "99999999-2222-3333-4444-555555555555"
)

// cutOff is n1, with two addresses, under a storage fence of "a".
func cutOff(t *testing.T, test func(w *world, wall *firewall, target Target)) {
	t.Helper()
	behind(t, nil, func(w *world, wall *firewall, target Target) {
		if a, err := w.fencer("a").Off(w.Context(), target, "dead", false); err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		test(w, wall, target)
	})
}

func (w *world) fence() *record.Fence {
	w.Helper()
	s := w.record().Fence(fence.StorageFence, driver)
	if s == nil {
		w.Fatal("no storage fence: " + w.fences())
	}
	return s
}

func (w *world) lift(target Target) error {
	w.Helper()
	_, err := w.fencer("b").Lift(w.Context(), target, driver, "booted")
	return err
}

// on is a person's fence on.
func (w *world) on(target Target) error {
	w.Helper()
	_, err := w.fencer("b").On(w.Context(), target, "repaired")
	return err
}

func (w *world) succeeds(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

func (w *world) fails(err error, says string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		w.Errorf("error %v, want one that says %q", err, says)
	}
}

func TestAStorageFenceProvesNothingFromBeforeAccessIsGivenBack(t *testing.T) {
	for name, back := range map[string]func(*Fencer, Target) (Answer, error){
		"lift": func(f *Fencer, target Target) (Answer, error) {
			return f.Lift(context.Background(), target, driver, "booted")
		},
		"on": func(f *Fencer, target Target) (Answer, error) { return f.On(context.Background(), target, "booted") },
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				var before record.Fence
				wall.atOn = func() {
					before = *w.fence()
					w.server.SetDown(true) // what became of it is never written
				}
				if _, err := back(w.fencer("a"), target); err == nil {
					t.Error("what became of it was written")
				}
				w.server.SetDown(false)
				if before.LiftReason != "booted" || before.Phase != record.Lifting {
					t.Errorf("before access was given back the record said %+v", before)
				}
				w.expect("still to be lifted", w.fence().LiftReason, "booted")

				wall.atOn = nil
				w.succeeds(w.lift(target))
				w.expect("fences", w.fences(), "Lifted by a")
				w.expect("lifting", w.record().Fences[0].LiftReason, "")
			})
		})
	}
}

func TestAReadingOfAccessThatIsBeingGivenBackIsUnclear(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		wall.refuses = errors.New("no")
		w.fails(w.lift(target), "is not lifted")
		f := w.fencer("c")
		a := w.ask(f, target)
		if a.State != agent.Unclear || a.Kind != "" || a.Storage != agent.Unclear || a.Agents != nil || !strings.Contains(a.Why, fence.VoidLifting) {
			t.Errorf("answer %+v", a)
		}
		w.expect("still to be lifted", w.fence().LiftReason, "booted")

		wall.refuses, wall.list = nil, nil // by whoever
		f.forget("n1")
		w.expect("open", w.ask(f, target).State, agent.On)
		w.expect("fences", w.fences(), "Void by a")
	})
}

func TestANewFenceTakesThePlaceOfOneThatIsBeingLifted(t *testing.T) {
	for name, list := range map[string][]string{"cut still": {"192.0.2.1/32", "192.0.2.2/32"}, "half lifted": {"192.0.2.1/32"}, "open": nil} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				old := w.fence().ID
				wall.refuses = errors.New("no")
				w.fails(w.lift(target), "is not lifted")
				wall.list, wall.refuses, wall.offs = list, nil, 0
				a, err := w.fencer("b").Off(w.Context(), target, "dead", false)
				if err != nil || a.State != agent.Off {
					t.Fatal(a, err)
				}
				w.expect("requests, whatever it reads", wall.offs, 1)
				s := w.fence()
				if s.Phase != record.Fenced || s.LiftReason != "" || s.ID == old || a.Fence != s.ID {
					t.Errorf("%s: fence %+v", w.fences(), s)
				}
				for _, f := range w.record().Fences {
					w.expect("lifting", f.LiftReason, "")
				}
				w.expect("what it cut", strings.Join(cutBlocks(s), " "), "192.0.2.1/32 192.0.2.2/32")
				w.expect("answer", w.ask(w.fencer("c"), target).State, agent.Off)
			})
		})
	}
}

// halfLifted is n1 under a fence of which a lift has opened one address, with that
// address of now.
func halfLifted(t *testing.T, address string, test func(w *world, wall *firewall, target Target)) {
	t.Helper()
	cutOff(t, func(w *world, wall *firewall, target Target) {
		wall.refuses = errors.New("no")
		w.fails(w.lift(target), "is not lifted")
		wall.list, wall.refuses = []string{"192.0.2.1/32"}, nil
		test(w, wall, w.registered("u1", "b2", oneSystem, address))
	})
}

// stillToBeLifted: the record knows what is cut, that it proves nothing, and of whom.
func (w *world) stillToBeLifted() {
	w.Helper()
	s := w.fence()
	if !w.record().StorageFenced(driver) || s.LiftReason != "booted" || s.Machine.BootID != "b1" {
		w.Errorf("%s: %+v", w.fences(), s)
	}
	if got := strings.Join(blocks(s), " "); !strings.HasPrefix(got, "192.0.2.1/32 192.0.2.2/32") {
		w.Errorf("it cut %s", got)
	}
	if !w.record().Vouched(s) {
		w.Errorf("whoever goes on with the lift finds that nobody vouches for the fence: %+v", s)
	}
}

func TestAFenceThatFailsOverOneThatIsBeingLiftedLosesNothing(t *testing.T) {
	halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, target Target) {
		wall.deaf, wall.strict = errors.New("busy"), true
		told := *w.fence()
		told.What = "" // so that only the requests tell what was cut
		w.put(told)
		for range 40 { // the record keeps so many steps
			if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
				t.Fatal(a, err)
			}
			w.stillToBeLifted()
		}
		w.expect("phase", w.fence().Phase, record.Lifting)
		w.expect("answer", w.ask(w.fencer("c"), target).State, agent.Unclear)
		// What it was told to cut meanwhile may have been cut after all.
		wall.list = append(wall.list, "192.0.2.9/32")
		w.succeeds(w.lift(w.registered("u1", "b2", oneSystem, "192.0.2.7")))
		w.expect("still cut", strings.Join(wall.list, " "), "")
	})
	t.Run("it dies in the middle", func(t *testing.T) {
		halfLifted(t, "192.0.2.1", func(w *world, wall *firewall, target Target) {
			wall.atOff = func() { w.server.SetDown(true) }
			if _, err := w.fencer("b").Off(w.Context(), target, "dead", false); err == nil {
				t.Fatal("what became of it was written")
			}
			w.server.SetDown(false)
			w.expect("phase", w.fence().Phase, record.Refencing)
			w.stillToBeLifted()
			w.expect("answer", w.ask(w.fencer("c"), target).State, agent.Unclear)
			w.stillToBeLifted()
			w.succeeds(w.lift(target))
			w.expect("still cut", strings.Join(wall.list, " "), "")
			w.expect("cut off", w.record().StorageFenced(driver), false)
		})
	})
	for name, works := range map[string]bool{"then the power is cut": true, "then the power stays on": false} {
		t.Run(name, func(t *testing.T) {
			halfLifted(t, "192.0.2.1", func(w *world, wall *firewall, target Target) {
				w.levels = append(w.levels, agent.Level{{Agent: w.bmc, Timeout: 2 * time.Second, Attempts: 2}})
				wall.deaf, w.bmc.deaf = errors.New("busy"), !works
				a, err := w.fencer("b").Off(w.Context(), target, "dead", false)
				if err != nil || (a.State == agent.Off) != works {
					t.Fatal(a, err)
				}
				p := w.record().Fence(fence.PowerReading, driver)
				w.expect("a power fence", p != nil && p.Phase == record.Fenced, works)
				w.expect("phase", w.fence().Phase, record.Lifting)
				w.stillToBeLifted()
			})
		})
	}
}

// Half of what it cut is open: that the machine has another address by now does not
// make it cut.
func TestAFenceThatIsBeingLiftedIsMadeAnewOnlyIfAllThatItCutReadsSo(t *testing.T) {
	halfLifted(t, "192.0.2.9", func(w *world, wall *firewall, target Target) {
		wall.strict = true
		if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		w.stillToBeLifted()
		wall.list = append(wall.list, "192.0.2.2/32")
		a, err := w.fencer("b").Off(w.Context(), target, "dead", false)
		if err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		s := w.fence()
		if s.LiftReason != "" || s.Machine.BootID != "b2" || strings.Join(blocks(s), " ") != "192.0.2.1/32 192.0.2.2/32 192.0.2.9/32" {
			t.Errorf("fence %+v", s)
		}
	})
}

// What another machine's fence cut is not this machine's to be opened.
func TestAFenceOverAnotherMachinesThatIsBeingLiftedIsOfItsOwnBlocks(t *testing.T) {
	halfLifted(t, "192.0.2.1", func(w *world, wall *firewall, _ Target) {
		target := w.registered("u1", "b3", otherSystem, "192.0.2.8")
		wall.deaf = errors.New("busy")
		if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State == agent.Off {
			t.Fatal(a, err)
		}
		w.stillToBeLifted()
		wall.deaf = nil
		if a, err := w.fencer("b").Off(w.Context(), target, "dead", false); err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		s := w.fence()
		if s.LiftReason != "" || s.Machine.SystemUUID != otherSystem || strings.Join(blocks(s), " ") != "192.0.2.8/32" {
			t.Errorf("fence %+v", s)
		}
	})
}

// One storage fence is on record at a time: a cut that would be on none is not made.
func TestAMachineUnderAnotherMachinesFenceIsNotCutOff(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		before := strings.Join(wall.list, " ")
		target := w.registered("u1", "b3", otherSystem, "192.0.2.8")
		_, err := w.fencer("b").Off(w.Context(), target, "dead", false)
		w.fails(err, "is of another machine that had its name")
		w.expect("cut", strings.Join(wall.list, " "), before)
		w.expect("fences", w.fences(), "Fenced by a")
	})
}

// A fence that was found in place names what is cut in what was read of it.
func TestAFenceThatWasFoundInPlaceIsReadAsAWhole(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		s := *w.fence()
		s.Steps = nil
		w.put(s)
		target := w.registered("u1", "b2", oneSystem, "192.0.2.9")
		w.expect("answer", w.ask(w.fencer("c"), target).State, agent.Unclear)
		w.expect("fences", w.fences(), "Fenced by a")
		w.succeeds(w.lift(target))
		w.expect("still cut", strings.Join(wall.list, " "), "")
	})
}

func TestALiftThatIsCalledOffBeforeItSendsAnythingLeavesTheFenceAsItWas(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		ctx, cancel := context.WithCancel(w.Context())
		w.server.BeforeNextWrite(func() { w.server.BeforeNextWrite(cancel) }) // that it begins
		_, err := w.fencer("b").Lift(ctx, target, driver, "booted")
		w.fails(err, "canceled")
		w.expect("requests", wall.ons, 0)
		w.expect("lifting", w.fence().LiftReason, "")
		w.expect("fences", w.fences(), "Fenced by a")
		if !strings.Contains(w.trail(), "Begin:lift") {
			t.Error("it was not begun")
		}
	})
}

// behindABrokenArray has the node under a storage fence whose agent answers nothing.
func (w *world) behindABrokenArray() *device {
	array := &device{name: "array", kind: fence.StorageFence, broken: true}
	w.levels = agent.Levels{{{Agent: array}}}
	f := w.powerFence(record.Fenced)
	f.Kind, f.Driver = fence.StorageFence, driver
	w.put(f)
	return array
}

// Whoever has had the lock since may have given access back.
func TestALiftThatLostTheLockDoesNotSayThatNothingWasSent(t *testing.T) {
	for name, lost := range map[string]bool{"lost": true, "kept": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				array := w.behindABrokenArray()
				if lost {
					array.onStatus = w.takeLock
				}
				w.fails(w.lift(w.target()), "is not lifted")
				w.expect("still to be lifted", w.fence().LiftReason != "", lost)
			})
		})
	}
}

func TestAFenceStandsIfNothingWasSentToLiftIt(t *testing.T) {
	run(t, func(w *world) {
		w.behindABrokenArray()
		w.fails(w.lift(w.target()), "storage fence of node n1 (f) is not lifted: agent array of level 1 reads unclear")
		w.expect("lifting", w.fence().LiftReason, "")
	})
}

func TestAFenceIsLiftedWhateverAddressesTheNodeHasByNow(t *testing.T) {
	for name, addresses := range map[string][]string{
		"the same": {"192.0.2.1", "192.0.2.2"}, "one more": {"192.0.2.1", "192.0.2.2", "192.0.2.3"}, "others": {"192.0.2.9"}, "one": {"192.0.2.2"},
	} {
		for _, half := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				cutOff(t, func(w *world, wall *firewall, _ Target) {
					if half {
						wall.list = wall.list[:1]
					}
					w.succeeds(w.lift(w.registered("u1", "b2", oneSystem, addresses...)))
					w.expect("fences", w.fences(), "Lifted by a")
					w.expect("still cut", strings.Join(wall.list, " "), "")
				})
			})
		}
	}
}

func TestALiftThatFailsAgainAndAgainDoesNotPushOutTheTrail(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		first := w.record().Audit[0]
		wall.refuses = errors.New("no")
		for range 40 {
			w.fails(w.lift(target), "is not lifted")
		}
		w.expect("requests", wall.ons, 40)
		w.expect("the trail's oldest entry", w.record().Audit[0], first)
		w.expect("attempts on record", strings.Count(w.trail(), "Begin:lift"), 1)
		w.expect("what they came to", strings.Count(w.trail(), "End:lift"), 1)

		wall.refuses = errors.New("not now")
		w.fails(w.lift(target), "is not lifted")
		w.expect("attempts on record", strings.Count(w.trail(), "Begin:lift"), 1)
		w.expect("what they came to", strings.Count(w.trail(), "End:lift"), 2)

		wall.refuses = nil
		w.succeeds(w.lift(target))
		if a, err := w.fencer("a").Off(w.Context(), target, "dead", false); err != nil || a.State != agent.Off {
			t.Fatal(a, err)
		}
		w.succeeds(w.lift(target)) // of another fence
		w.expect("attempts on record", strings.Count(w.trail(), "Begin:lift"), 2)
		w.expect("what they came to", strings.Count(w.trail(), "End:lift"), 4)
	})
}

// The machine that the Node is by now is given its own access, not another's.
func TestAFenceIsLiftedOnlyIfWhatItCutIsOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		uid, boot, system string
		address           string
		lifted            bool
	}{
		"rebooted, its Node made anew":      {"u2", "b2", oneSystem, "192.0.2.9", true},
		"registered again without a boot":   {"u2", "b1", "", "192.0.2.9", true},
		"another machine":                   {"u2", "b2", otherSystem, "192.0.2.9", false},
		"another, of which is known less":   {"u2", "b2", "", "192.0.2.9", false},
		"another with one of the addresses": {"u2", "b2", otherSystem, "192.0.2.1", false},
		"another under the same Node":       {"u1", "b2", otherSystem, "192.0.2.9", false},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, _ Target) {
				target := w.registered(tt.uid, tt.boot, tt.system, tt.address)
				give := w.lift
				if tt.address == "192.0.2.1" {
					give = w.on // no sidecar gives another machine its access under this fence
				}
				err := give(target)
				if tt.lifted {
					w.succeeds(err)
					w.expect("fences", w.fences(), "Lifted by a")
					w.expect("still cut", strings.Join(wall.list, " "), "")
					return
				}
				w.fails(err, "is of another machine that had its name (node UID u1, boot ID b1)")
				begun := map[bool]string{true: "Lifting by a", false: "Fenced by a"}[tt.address == "192.0.2.1"]
				w.expect("fences", w.fences(), begun)
				if !slices.Contains(wall.list, "192.0.2.2/32") {
					t.Errorf("cut by now: %v", wall.list)
				}
				w.expect("its own access", w.ask(w.fencer("c"), target).State, agent.On)
				w.expect("fences", w.fences(), begun)
				wall.list = nil // by hand
				w.succeeds(give(target))
				w.expect("fences", w.fences(), "Lifted by a")
			})
		})
	}
	t.Run("another with all the addresses", func(t *testing.T) {
		cutOff(t, func(w *world, wall *firewall, _ Target) {
			w.succeeds(w.on(w.registered("u2", "b2", otherSystem, "192.0.2.1", "192.0.2.2")))
			w.expect("fences", w.fences(), "Lifted by a")
			w.expect("still cut", strings.Join(wall.list, " "), "")
		})
	})
}

// Before a fence could say that it is being lifted.
func TestAFenceOfAnEarlierVersionMeansTheSame(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		lease := w.server.Lease(ns, record.LeaseName("n1"))
		if strings.Contains(lease.Annotations[record.Annotation], "lifting") {
			t.Error("a fence that nobody lifts has words that an earlier version cannot read")
		}
		w.server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName("n1"), Annotations: map[string]string{record.Annotation: `{"version":1,"node":"n1","fences":[` +
			`{"id":"s","kind":"StorageFence","driver":"` + driver + `","machine":{"nodeUID":"u1","bootID":"b1"},"phase":"Fenced","actor":"old","startedAt":"2026-01-02T03:04:05Z",` +
			`"steps":[{"agent":"array","action":"off","detail":"fence 192.0.2.1/32, 192.0.2.2/32 at driver x","at":"2026-01-02T03:04:05Z","tookMS":1}]}]}`}}})
		w.expect("answer", w.ask(w.fencer("c"), target).State, agent.Off)
		w.expect("fences", w.fences(), "Fenced by old")
		w.succeeds(w.lift(w.registered("u1", "b2", "", "192.0.2.9")))
		w.expect("fences", w.fences(), "Lifted by old")
		w.expect("still cut", strings.Join(wall.list, " "), "")
		if strings.Contains(w.server.Lease(ns, record.LeaseName("n1")).Annotations[record.Annotation], "lifting") {
			t.Error("a fence that is lifted has words that an earlier version cannot read")
		}
	})
}

// What would lift it may be anybody's: the boot in the record, or a witness.
func TestAStorageFenceThatNobodyVouchesForIsOfTheBootInWhichItIsReadAnew(t *testing.T) {
	cutOff(t, func(w *world, _ *firewall, target Target) {
		w.change(func(r *record.Record) {
			r.Fences[0].Machine.BootID, r.Fences[0].Witness = "b0", &record.Witness{NodeUID: "u1", BootID: "b1", Actor: "x"}
		})
		if r := w.record(); r.Vouched(&r.Fences[0]) {
			t.Fatal("the forged one is vouched for")
		}
		was := w.fence()
		w.expect("state", w.ask(w.fencer("a"), target).State, agent.Off)
		r, f := w.record(), w.fence()
		if !r.Vouched(f) || f.ID != was.ID || f.Actor != was.Actor || f.Machine.BootID != "b1" || f.Witness != nil || len(f.Steps) != len(was.Steps) {
			t.Errorf("it became %+v", f)
		}
		if !strings.Contains(w.trail(), "a VouchForFence "+f.ID+": fenced by a") {
			t.Error("who vouches for it is not written down: " + w.trail())
		}
	})
}

func TestNobodyVouchesForTheStorageFenceOfAnotherMachine(t *testing.T) {
	cutOff(t, func(w *world, _ *firewall, target Target) {
		w.change(func(r *record.Record) {
			r.Fences[0].Machine = record.FencedMachine{NodeUID: "u0", BootID: "b0", SystemUUID: "other"}
		})
		w.ask(w.fencer("a"), target)
		if r := w.record(); r.Vouched(&r.Fences[0]) || r.Fences[0].Machine.BootID != "b0" {
			t.Errorf("it became %+v", r.Fences[0])
		}
	})
}
