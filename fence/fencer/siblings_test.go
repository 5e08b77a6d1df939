package fencer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	another = "another.example.com"
	waits   = "of driver " + another + " keeps 192.0.2.1/32, " + shared + " cut off too"
)

// sibling is the sidecar of another driver on the same storage.
func (w *world) sibling() *Fencer {
	f := w.fencer("c")
	f.Driver = another
	return f
}

func (w *world) siblingLifts(target Target) error {
	w.Helper()
	_, err := w.sibling().Lift(w.Context(), target, another, "unmounted")
	return err
}

// R1: two drivers may serve one storage, and volumes of the other may move because of its
// fence, in the same moment.
func TestALiftWaitsForAnotherDriversFenceOfTheMachineThatProves(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world, f *record.Fence)
		waits  bool
	}{
		"it stands":                            {func(*world, *record.Fence) {}, true},
		"under a wider block":                  {func(_ *world, f *record.Fence) { f.Steps[0].Detail = "fence 192.0.2.0/28 at driver x" }, true},
		"of an unknown boot":                   {func(_ *world, f *record.Fence) { f.Machine.BootID = "" }, true},
		"it was only read":                     {func(_ *world, f *record.Fence) { f.Steps, f.What = nil, "array: driver x lists "+shared+" as fenced" }, true},
		"of an earlier boot":                   {func(_ *world, f *record.Fence) { f.Machine.BootID = "b0" }, true},
		"of another machine":                   {func(_ *world, f *record.Fence) { f.Machine.BootID, f.Machine.SystemUUID = "b0", otherSystem }, false},
		"of another address":                   {func(_ *world, f *record.Fence) { f.Steps[0].Detail = "fence 192.0.2.77/32 at driver x" }, false},
		"it is being lifted":                   {func(_ *world, f *record.Fence) { f.Phase = record.Lifting }, false},
		"it has not come to":                   {func(_ *world, f *record.Fence) { f.Phase = record.Fencing }, false},
		"it is being made anew":                {func(_ *world, f *record.Fence) { f.Phase = record.Refencing }, false},
		"it has failed":                        {func(_ *world, f *record.Fence) { f.Phase = record.Failed }, false},
		"it is lifted":                         {func(_ *world, f *record.Fence) { f.Phase = record.Lifted }, false},
		"it was withdrawn":                     {func(_ *world, f *record.Fence) { f.Phase, f.Ending = record.Void, record.Withdrawn }, false},
		"it names no blocks, of another agent": {func(_ *world, f *record.Fence) { f.Steps, f.Agents = nil, []string{"elsewhere"} }, false},
		"nobody vouches for it":                {func(*world, *record.Fence) {}, true},
		"of the power":                         {func(w *world, f *record.Fence) { *f = w.powerFence(record.Fenced) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				f := w.storageFence("theirs", another, "192.0.2.1/32, "+shared)
				tt.change(w, &f)
				w.put(f)
				if name == "nobody vouches for it" {
					w.unvouch()
				}
				err := w.lift(target)
				if !tt.waits {
					w.succeeds(err)
					w.expect("still cut", strings.Join(wall.list, " "), "")
					return
				}
				w.fails(err, "fence theirs of driver "+another+" keeps ")
				w.fails(err, "csi-fencepost fence on n1")
				w.expect("requests", wall.ons, 0)
				w.expect("operation", w.record().Operation.Kind, record.Cut)
				// It proves nothing meanwhile, so that the other does not wait for it.
				w.expect("phase", w.fence().Phase, record.Lifting)
				// After a boot it waits for one of which it is not known that it is of another.
				if name == "of an unknown boot" {
					w.fails(w.lift(w.rebooted()), "fence theirs")
					w.expect("requests", wall.ons, 0)
					_ = w.siblingLifts(w.rebooted())
				}
				w.succeeds(w.lift(w.rebooted()))
				w.expect("still cut after a boot", strings.Join(wall.list, " "), "")
				w.expect("the other proves", w.record().FenceByID("theirs").Phase == record.Fenced, false)
			})
		})
	}
}

// Two drivers on one array that knows machines by their node's names.
func TestALiftWaitsForAnotherDriversFenceThatNamesNothingOfAnAgentOfOneName(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		f := w.storageFence("theirs", another, "")
		f.Steps, f.Agents = nil, []string{"array"}
		w.put(f)
		w.fails(w.lift(target), "fence theirs of driver "+another+" keeps it cut off too")
		w.expect("requests", wall.ons, 0)
	})
}

// One of two drivers cuts a node off, and the other finds it so, or cuts it off too.
func TestTwoDriversOnOneStorageLiftTheirFencesInAnyOrder(t *testing.T) {
	for name, theirs := range map[string]func(w *world, target Target){
		"found": func(w *world, target Target) { w.ask(w.sibling(), target) },
		"cut": func(w *world, _ Target) {
			f := w.storageFence("theirs", another, "192.0.2.1/32, "+shared)
			f.Actor = "c"
			w.put(f)
		},
	} {
		for _, siblingFirst := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				cutOff(t, func(w *world, wall *firewall, target Target) {
					theirs(w, target)
					w.expect("fences", w.fences(), "Fenced by a, Fenced by c")
					if siblingFirst {
						w.fails(w.siblingLifts(target), "of driver "+driver+" keeps ")
						w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.1/32 "+shared)
						w.succeeds(w.lift(target))
						w.succeeds(w.siblingLifts(target))
					} else {
						w.fails(w.lift(target), waits)
						w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.1/32 "+shared)
						if err := w.siblingLifts(target); err != nil {
							w.succeeds(w.lift(target))
							w.succeeds(w.siblingLifts(target))
						} else {
							w.succeeds(w.lift(target))
						}
					}
					w.expect("still cut", strings.Join(wall.list, " "), "")
					w.expect("fences", w.fences(), "Lifted by a, Lifted by c")
				})
			})
		}
	}
}

// Somebody else has cut it off.
func TestTwoDriversThatOnlyReadWhatIsCutWaitForABootOrAPersonAndNotForEachOther(t *testing.T) {
	for _, both := range []bool{true, false} { // have read it
		for name, open := range map[string]func(w *world, target Target){
			"booted": func(w *world, _ Target) { w.succeeds(w.siblingLifts(w.rebooted())) },
			"given back by a person": func(w *world, target Target) {
				_, err := w.sibling().On(w.Context(), target, "repaired")
				w.succeeds(err)
			},
		} {
			t.Run(name, func(t *testing.T) {
				behind(t, []string{"192.0.2.1/32", shared}, func(w *world, wall *firewall, target Target) {
					w.ask(w.sibling(), target)
					if both {
						w.ask(w.fencer("a"), target)
						w.fails(w.lift(target), waits)
					}
					w.fails(w.siblingLifts(target), "is cut off, no fence of driver "+another+" was to cut it")
					w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.1/32 "+shared)
					open(w, target)
					w.expect("still cut", strings.Join(wall.list, " "), "")
					if both {
						w.succeeds(w.lift(w.rebooted()))
						w.expect("fences", w.fences(), "Lifted by c, Lifted by a")
					}
				})
			})
		}
	}
}

// A fence that does not say what it cut is opened by a boot at the addresses of now, and one
// that says it is opened there also where the machine has left them.
func TestALiftWaitsForAnotherDriversFenceOfWhatTheNodeOrItsOwnFenceNames(t *testing.T) {
	for _, names := range []bool{true, false} {
		cutOff(t, func(w *world, wall *firewall, _ Target) {
			f := *w.fence()
			target := w.registered("u1", "b2", oneSystem, "192.0.2.9")
			if !names {
				f.Steps, f.What = nil, ""
				target = w.rebooted()
			}
			w.put(f)
			f = w.storageFence("theirs", another, shared)
			f.Machine.BootID = "b2"
			w.put(f)
			w.fails(w.lift(target), "fence theirs of driver "+another)
			w.expect("requests", wall.ons, 0)
		})
	}
}

// R1: a person was asked for the volumes of all drivers. What the other driver's fence cut
// is open from here on, and nothing may move on its word any more.
func TestAnotherDriversFenceOfWhatAPersonOpensProvesNothingFromBefore(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		w.put(w.storageFence("theirs", another, "192.0.2.1/32, "+shared))
		w.put(w.storageFence("elsewhere", "third.example.com", "192.0.2.77/32"))
		phase := func(id string) record.Phase { return w.record().FenceByID(id).Phase }
		wall.atOn = func() {
			w.expect("at the request", phase("theirs"), record.Lifting)
			w.expect("vouched for", w.record().Vouched(w.record().FenceByID("theirs")), false)
		}
		a, err := w.fencer("b").On(w.Context(), target, "repaired")
		w.succeeds(err)
		w.expect("it is said", strings.Contains(a.Why, "fence theirs of driver "+another+", which names the same, proves nothing any more"), true)
		w.expect("still cut", strings.Join(wall.list, " "), "")
		w.expect("its own", w.record().Fences[0].Phase, record.Lifted)
		w.expect("the other's", phase("theirs"), record.Lifting)
		w.expect("of another storage", phase("elsewhere"), record.Fenced)
		w.succeeds(w.siblingLifts(target))
		w.expect("the other's", phase("theirs"), record.Lifted)
	})
}

// R1: the machine uses in a later boot what is opened then. If it is cut off there once more,
// and nobody writes that down, a fence of before would say that it has booted since.
func TestAnotherDriversFenceOfAnEarlierBootProvesNothingFromBeforeAPersonOpensWhatItNames(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		target, c := w.rebooted(), w.sibling()
		w.put(w.storageFence("theirs", another, "192.0.2.1/32, "+shared))
		phase := func() record.Phase { return w.record().FenceByID("theirs").Phase }
		w.expect("the other's answer before", w.ask(c, target).State, agent.Off)
		wall.atOn = func() {
			w.expect("at the request", phase(), record.Lifting)
			w.expect("vouched for", w.record().Vouched(w.record().FenceByID("theirs")), false)
		}
		w.succeeds(w.on(target))
		w.expect("still cut", strings.Join(wall.list, " "), "")
		wall.list = []string{"192.0.2.1/32", shared}
		w.expect("the other's answer where it is cut off by nobody on record", w.ask(c, target).State, agent.Unclear)
	})
}

// What a fence of the machine does not name its Node may.
func TestAnotherDriversFenceOfWhatTheNodeNamesProvesNothingFromBeforeAPersonOpensIt(t *testing.T) {
	behind(t, []string{"192.0.2.1/32", shared}, func(w *world, wall *firewall, target Target) {
		w.put(w.storageFence("theirs", another, shared))
		w.succeeds(w.on(target))
		w.expect("still cut", strings.Join(wall.list, " "), "")
		w.expect("the other's", w.record().FenceByID("theirs").Phase, record.Lifting)
	})
}

// R1: the storage knows the machine by other addresses than its Node, and no fence of the
// driver names them.
func TestAnotherDriversFenceIsMetAtTheAddressesThatTheAgentsName(t *testing.T) {
	const storage = "198.51.100.1/32"
	for name, tt := range map[string]struct {
		change func(wall *firewall)
		block  string
		ends   bool
	}{
		"it names them":                 {func(*firewall) {}, storage, true},
		"it names what the Node has":    {func(*firewall) {}, shared, false},
		"what they name cannot be told": {func(wall *firewall) { wall.unread = errors.New("no route") }, "203.0.113.5/32", true},
	} {
		t.Run(name, func(t *testing.T) {
			behind(t, []string{storage}, func(w *world, wall *firewall, target Target) {
				wall.declared = []string{"198.51.100.1"}
				tt.change(wall)
				wall.atRead = func() {
					if wall.asked.Load() > 1 {
						wall.unread = nil
					}
				}
				w.put(w.storageFence("theirs", another, tt.block))
				wall.atOn = func() {
					w.expect("at the request", w.record().FenceByID("theirs").Phase == record.Lifting, tt.ends)
				}
				w.succeeds(w.on(target))
				w.expect("requests", wall.ons, 1)
				w.expect("still cut", strings.Join(wall.list, " "), "")
			})
		})
	}
}

func TestALiftOfAFenceThatNamesNothingMeetsAnotherDriversAtTheAddressesThatTheAgentsName(t *testing.T) {
	for name, tt := range map[string]struct {
		unread bool
		block  string
		waits  bool
	}{
		"it names them": {false, "198.51.100.1/32", true}, "it names what the Node has": {false, shared, false},
		"what they name cannot be told": {true, "203.0.113.5/32", true},
	} {
		for _, names := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				cutOff(t, func(w *world, wall *firewall, _ Target) {
					wall.declared = []string{"198.51.100.1"}
					f := *w.fence()
					f.Steps, f.What = nil, ""
					if names {
						f.What = "array: driver x lists 198.51.100.7/32 as fenced"
					}
					w.put(f)
					target := w.rebooted()
					theirs := w.storageFence("theirs", another, tt.block)
					theirs.Machine.BootID = "b2"
					w.put(theirs)
					if tt.unread {
						wall.unread = errors.New("no route")
					}
					err := w.lift(target)
					held := err != nil && strings.Contains(err.Error(), "fence theirs of driver "+another+" keeps ")
					w.expect("waits", held, tt.waits && (!names || !tt.unread))
				})
			})
		}
	}
}

// R1: nothing waits for another driver's sidecar after a boot, and what its fence of before
// named is used in this boot, from here on.
func TestAnotherDriversFenceOfAnEarlierBootProvesNothingFromBeforeALiftOpensWhatItNames(t *testing.T) {
	for name, change := range map[string]func(w *world, f *record.Fence) Target{
		"of that boot":          func(w *world, f *record.Fence) Target { return w.rebooted() },
		"of a boot before that": func(w *world, f *record.Fence) Target { f.Machine.BootID = "b0"; return w.rebooted() },
		"whether it is of this machine cannot be told": func(w *world, f *record.Fence) Target {
			f.Machine = record.FencedMachine{NodeUID: "u0", BootID: "b0"}
			return w.rebooted()
		},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, _ Target) {
				f := w.storageFence("theirs", another, "192.0.2.1/32, "+shared)
				target := change(w, &f)
				w.put(f)
				theirs := func() *record.Fence { return w.record().FenceByID("theirs") }
				wall.atOn = func() {
					w.expect("at the request", theirs().Phase, record.Lifting)
					w.expect("vouched for", w.record().Vouched(theirs()), false)
				}
				w.succeeds(w.lift(target))
				w.expect("still cut", strings.Join(wall.list, " "), "")
				w.expect("its own", w.record().Fences[0].Phase, record.Lifted)
				w.expect("the other's", theirs().Phase, record.Lifting)
				w.expect("the other's answer", w.ask(w.sibling(), target).State, agent.On)
				if f.Machine.NodeUID == "u1" {
					w.expect("the other's", theirs().Phase, record.Void)
				}
			})
		})
	}
}

func TestAnotherDriversFenceOfAnEarlierBootIsEndedAlsoWhereAThirdOneIsWaitedFor(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		target := w.rebooted()
		third := w.storageFence("third", "third.example.com", shared)
		third.Machine.BootID = "b2"
		w.put(third)
		w.fails(w.lift(target), "fence third")
		w.put(w.storageFence("theirs", another, shared))
		w.fails(w.lift(target), "fence third")
		w.expect("requests", wall.ons, 0)
		w.expect("the other's", w.record().FenceByID("theirs").Phase, record.Lifting)
	})
}

// ended is n1 in its second boot, with another driver's fence of three addresses of its first
// one, of which a lift has opened two.
// R6: its own sidecar lifts it for that boot, and could not any more.
func TestALiftWaitsAMinuteForAnotherDriversAfterABoot(t *testing.T) {
	for name, tt := range map[string]struct {
		ready time.Duration // for how long
		waits bool
	}{
		"it has just come back":                {time.Second, true},
		"a while ago":                          {2 * time.Minute, false},
		"by a clock that is ahead of this one": {-time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, _ Target) {
				w.put(w.storageFence("theirs", another, "192.0.2.1/32, "+shared+", 192.0.2.77/32"))
				wall.list = append(wall.list, "192.0.2.77/32")
				target := w.rebooted()
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
				n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = "b2", oneSystem
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.2"}}
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-tt.ready))}}
				w.server.PutNode(n)
				err := w.lift(target)
				if tt.waits {
					w.fails(err, "fence theirs of driver "+another+" keeps ")
					w.expect("it proves", w.record().FenceByID("theirs").Phase, record.Fenced)
					w.succeeds(w.siblingLifts(target))
					w.succeeds(w.lift(target))
					w.expect("still cut", strings.Join(wall.list, " "), "")
					return
				}
				w.succeeds(err)
				w.expect("it is to be lifted", w.record().FenceByID("theirs").Phase, record.Lifting)
			})
		})
	}
}

// R1: of a machine that is gone, and another one has its name.
func TestAFenceThatAnotherDriverEndedIsNotMadeAnewAsOneOfAnotherMachine(t *testing.T) {
	ended(t, func(w *world, wall *firewall, _ Target, _ func() *record.Fence) {
		target := w.registered("u9", "b9", otherSystem, "192.0.2.9")
		_, _ = w.sibling().Off(w.Context(), target, "dead", false)
		s := w.record().Fence(fence.StorageFence, another)
		w.expect("it is of the machine of now, with what was cut of the one before", s.Machine.BootID == "b9" && slices.Contains(cutBlocks(s), "192.0.2.77/32"), false)
	})
}

func ended(t *testing.T, test func(w *world, wall *firewall, target Target, theirs func() *record.Fence)) {
	t.Helper()
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		f := w.storageFence("theirs", another, "192.0.2.1/32, "+shared+", 192.0.2.77/32")
		f.What = "what it was read to cut"
		w.put(f)
		wall.list = append(wall.list, "192.0.2.77/32")
		target := w.rebooted()
		w.succeeds(w.lift(target))
		w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.77/32")
		test(w, wall, target, func() *record.Fence { return w.record().FenceByID("theirs") })
	})
}

// R1: it was cut off once more in the later boot, in which it used what the lift opened, and
// nobody wrote that down.
func TestAFenceThatAnotherDriverEndedIsOfTheBootInWhichItsSidecarReadsItNext(t *testing.T) {
	for name, list := range map[string][]string{
		"it is open in part":                 {"192.0.2.77/32"},
		"all is cut off by nobody on record": {"192.0.2.1/32", shared, "192.0.2.77/32"},
	} {
		t.Run(name, func(t *testing.T) {
			ended(t, func(w *world, wall *firewall, target Target, theirs func() *record.Fence) {
				w.change(func(r *record.Record) { r.PutWitness("theirs", record.Witness{NodeUID: "u1", BootID: "b2"}) })
				wall.list = list
				w.expect("answer", w.ask(w.sibling(), target).State, agent.Unclear)
				w.expect("phase", theirs().Phase, record.Lifting)
				w.expect("boot", theirs().Machine.BootID, "b2")
				w.expect("witness", theirs().Witness == nil, true)
				w.expect("vouched for", w.record().Vouched(theirs()), true)
				w.expect("what it cut", strings.Join(cutBlocks(theirs()), " "), "192.0.2.1/32 "+shared+" 192.0.2.77/32")
				w.expect("what it was read to cut", theirs().What, "what it was read to cut")
				booted := w.registered("u1", "b3", oneSystem, "192.0.2.1", shared[:9])
				w.succeeds(w.siblingLifts(booted))
				w.expect("still cut", strings.Join(wall.list, " "), "")
				w.expect("phase", theirs().Phase, record.Lifted)
			})
		})
	}
}

// Where the Node is gone, what is known of the boot is that of a publish.
func TestAFenceThatAnotherDriverEndedIsVouchedForByNobodyWhileTheNodeIsGone(t *testing.T) {
	ended(t, func(w *world, wall *firewall, target Target, theirs func() *record.Fence) {
		w.server.DeleteNode("n1")
		target.SystemUUID = oneSystem
		w.ask(w.sibling(), target)
		w.expect("vouched for", w.record().Vouched(theirs()), false)
	})
}

// R1: a cut that comes to nothing must not make it a fence of the boot of before again.
func TestAFenceThatAnotherDriverEndedIsMadeAnewInTheBootOfNow(t *testing.T) {
	ended(t, func(w *world, wall *firewall, target Target, _ func() *record.Fence) {
		wall.deaf = errors.New("busy")
		a, err := w.sibling().Off(w.Context(), target, "dead", false)
		w.succeeds(err)
		w.expect("state", a.State, agent.Unclear)
		s := w.record().Fence(fence.StorageFence, another)
		w.expect("phase", s.Phase, record.Lifting)
		w.expect("boot", s.Machine.BootID, "b2")
	})
}

// R1: the lift comes between the reading and what is written of it.
func TestAReadingFromBeforeALiftDoesNotMakeAnotherDriversFenceProofAgain(t *testing.T) {
	for name, read := range map[string]func(w *world, target Target) Answer{
		"asked": func(w *world, target Target) Answer { return w.ask(w.sibling(), target) },
		"asked, and asked again at once": func(w *world, target Target) Answer {
			f := w.sibling()
			w.ask(f, target)
			return w.ask(f, target)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, _ Target) {
				w.put(w.storageFence("theirs", another, "192.0.2.1/32, "+shared))
				target := w.rebooted()
				wall.atRead = func() {
					wall.atRead = nil
					list := slices.Clone(wall.list)
					w.succeeds(w.lift(target))
					wall.list = list // as it was read
				}
				w.expect("answer", read(w, target).State, agent.Unclear)
				w.expect("the other's", w.record().FenceByID("theirs").Phase, record.Lifting)
			})
		})
	}
}

// changesItsMind has what the person was asked for hold no more, once nothing moves any more.
func changesItsMind(w *world, _ *firewall, target *Target) {
	target.Still = func(context.Context, *corev1.Node) error {
		if w.record().FenceByID("theirs").Phase == record.Lifting {
			return errNoMore
		}
		return nil
	}
}

// Its sidecar alone may vouch for it, and cuts it off anew if need be.
func TestAnotherDriversFenceThatEndedIsNotTakenUpAgainByWhoEndedIt(t *testing.T) {
	for name, change := range map[string]func(w *world, wall *firewall, target *Target){
		"it is called off": changesItsMind,
		"it is called off, and the driver has no fence": func(w *world, wall *firewall, target *Target) {
			w.startAnew(wall)
			wall.list = []string{"192.0.2.1/32", shared}
			changesItsMind(w, wall, target)
		},
		"it opens the addresses of now, and not what its own fence names": func(w *world, _ *firewall, target *Target) {
			own := *w.fence()
			own.Machine = record.FencedMachine{NodeUID: "u0", BootID: "b0", SystemUUID: otherSystem}
			own.Steps = []record.FenceStep{{Agent: "array", Action: "off", Detail: "fence 192.0.2.77/32 at driver x"}}
			own.What = ""
			w.put(own)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				w.put(w.storageFence("theirs", another, "192.0.2.1/32, "+shared))
				change(w, wall, &target)
				_ = w.on(target)
				w.expect("the other's", w.record().FenceByID("theirs").Phase, record.Lifting)
				w.expect("vouched for", w.record().Vouched(w.record().FenceByID("theirs")), false)
				a, err := w.sibling().Off(w.Context(), target, "dead", false)
				w.succeeds(err)
				w.expect("cut anew", a.State, agent.Off)
				w.expect("the other's", w.record().Fence(fence.StorageFence, another).Phase, record.Fenced)
			})
		})
	}
}

// Both words were taken back, and a person gives the node its access.
func TestWithdrawnFencesOfTwoDriversKeepANodeFromNothing(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		w.put(w.storageFence("theirs", another, "192.0.2.1/32, "+shared))
		w.change(func(r *record.Record) { r.WithdrawFence("theirs", "wrong", "ann") })
		w.withdraw()
		w.succeeds(w.on(target))
		w.expect("still cut", strings.Join(wall.list, " "), "")
		w.expect("fences", w.fences(), "Lifted by a, Void by b")
	})
}
