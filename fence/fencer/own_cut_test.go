package fencer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	shared = "192.0.2.2/32" // the second address of cutOff's node
	nobody = "no fence of driver " + driver + " was to cut it"
)

func (w *world) rebooted() Target {
	return w.registered("u1", "b2", oneSystem, "192.0.2.1", "192.0.2.2")
}

// startAnew ends the machine's fence, and opens what it cut.
func (w *world) startAnew(wall *firewall) {
	w.change(func(r *record.Record) {
		r.EndFence(r.Fence(fence.StorageFence, driver).ID, record.Void, "start anew", "ann")
	})
	wall.list = nil
}

// failedTry has the node cut off by a driver that says so too late.
func (w *world) failedTry(wall *firewall, target Target) {
	w.startAnew(wall)
	w.failedTryAt(wall, target)
	w.expect("fences", w.fences(), "Void by a, Failed by a")
	wall.list = []string{"192.0.2.1/32", shared}
}

func (w *world) failedTryAt(wall *firewall, target Target) {
	wall.deaf = errors.New("deadline exceeded")
	_, _ = w.fencer("a").Off(w.Context(), target, "dead", false)
	wall.deaf = nil
}

// diesWhileItCuts has a sidecar die that has cut the node off and not said so.
func (w *world) diesWhileItCuts(wall *firewall, target Target) {
	w.startAnew(wall)
	w.dies(wall, target)
	w.expect("phase", w.fence().Phase, record.Fencing)
}

// dies has a sidecar die in the middle of its request.
func (w *world) dies(wall *firewall, target Target) {
	wall.atOff = func() { w.server.SetDown(true) }
	_, _ = w.fencer("a").Off(w.Context(), target, "dead", false)
	w.server.SetDown(false)
	wall.atOff = nil
}

// R1: somebody made a NetworkFence, or cut it off by hand, and volumes of another driver on
// the same storage have moved on his word. Nothing of that is on record.
func TestASidecarOpensBeforeABootOnlyWhatItsOwnFencesCut(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world, wall *firewall, target Target)
		keeps  bool
	}{
		"it was found so": {func(*world, *firewall, Target) {}, true},
		"so, after it was to be cut": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			wall.list = []string{"192.0.2.1/32", shared}
			w.cut(target)
		}, true},
		"so, and it was cut again after a lift": {func(w *world, wall *firewall, target Target) {
			w.fails(w.lift(target), nobody)
			w.expect("phase", w.fence().Phase, record.Lifting)
			w.cut(target)
			w.expect("requests", wall.offs, 1)
		}, true},
		"by a sidecar that died while it cut, and the node was heard since": {func(w *world, wall *firewall, target Target) {
			w.diesWhileItCuts(wall, target)
			target.LeaseRV = w.renew("n1")
			w.ask(w.fencer("c"), target)
		}, false},
		"a sidecar died before it cut what another had cut": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			wall.list = []string{shared}
			wall.deaf = errors.New("deadline exceeded")
			wall.atOff = func() { w.server.SetDown(true) }
			_, _ = w.fencer("a").Off(w.Context(), target, "dead", false)
			w.server.SetDown(false)
			wall.list, wall.deaf, wall.atOff = []string{"192.0.2.1/32", shared}, nil, nil
			w.change(func(r *record.Record) {
				w.expect("meant", strings.Join(cutBlocks(r.Fence(fence.StorageFence, driver)), " "), "192.0.2.1/32")
				r.EndFence(r.Fence(fence.StorageFence, driver).ID, record.Void, "start anew", "ann")
			})
			w.ask(w.fencer("c"), target)
		}, true},
		"by a sidecar that died while it cut": {func(w *world, wall *firewall, target Target) {
			w.diesWhileItCuts(wall, target)
			w.ask(w.fencer("c"), target)
		}, false},
		"by one that died, before another cuts it": {func(w *world, wall *firewall, target Target) {
			w.diesWhileItCuts(wall, target)
			w.cut(target)
			w.expect("requests", wall.offs, 1)
			w.expect("fences", w.fences(), "Void by a, Failed by a, Fenced by a")
		}, false},
		"by one that died, and its cut did not come through before another's": {func(w *world, wall *firewall, target Target) {
			w.diesWhileItCuts(wall, target)
			wall.list = nil
			w.cut(target)
			w.expect("requests", wall.offs, 2)
			w.expect("fences", w.fences(), "Void by a, Failed by a, Fenced by a")
		}, false},
		"by an agent that did not return in time": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			wall.atOff = func() { time.Sleep(time.Hour) }
			a, _ := w.fencer("a").Off(w.Context(), target, "dead", false)
			<-a.Outstanding
			wall.atOff = nil
			synctest.Wait() // the lock is let go
			w.expect("fences", w.fences(), "Void by a, Failed by a")
			w.ask(w.fencer("c"), target)
		}, false},
		"by one that lost the lock while it cut": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			wall.atOff = w.takeLock
			_, _ = w.fencer("a").Off(w.Context(), target, "dead", false)
			wall.atOff = nil
			w.ask(w.fencer("c"), target)
		}, false},
		"so, after its agent refused to cut it": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			wall.denies = errors.New("outside the allowed subnets")
			_, _ = w.fencer("a").Off(w.Context(), target, "dead", false)
			wall.denies, wall.list = nil, []string{"192.0.2.1/32", shared}
			w.expect("fences", w.fences(), "Void by a, Failed by a")
			w.ask(w.fencer("c"), target)
		}, true},
		"so, after its agent refused to cut it anew": {func(w *world, wall *firewall, target Target) {
			wall.refuses, wall.denies = errors.New("no"), errors.New("another Node has it too")
			_ = w.lift(target)
			wall.list = nil
			_, _ = w.fencer("a").Off(w.Context(), target, "dead", false)
			wall.refuses, wall.denies, wall.list = nil, nil, []string{"192.0.2.1/32", shared}
			w.expect("phase", w.fence().Phase, record.Lifting)
			w.expect("to be opened", len(cutBlocks(w.fence())), 0)
			w.change(func(r *record.Record) { r.EndFence(w.fence().ID, record.Void, "start anew", "ann") })
			w.ask(w.fencer("c"), target)
		}, true},
		"so, after a fence of before was lifted": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			w.cut(target)
			w.succeeds(w.lift(target))
			wall.list = []string{"192.0.2.1/32", shared}
			w.ask(w.fencer("a"), target)
		}, true},
		"by a try that failed, and the node was heard since": {func(w *world, wall *firewall, target Target) {
			w.failedTry(wall, target)
			target.LeaseRV = w.renew("n1")
			w.ask(w.fencer("a"), target)
		}, false},
		"so, after a try that failed, of the boot before": {func(w *world, wall *firewall, target Target) {
			w.failedTry(wall, target)
			w.change(func(r *record.Record) { r.Fences[len(r.Fences)-1].Machine.BootID = "b0" })
			w.ask(w.fencer("a"), target)
		}, true},
		"so, after a try that failed and was lifted": {func(w *world, wall *firewall, target Target) {
			w.failedTry(wall, target)
			target.LeaseRV = w.renew("n1")
			w.ask(w.fencer("a"), target)
			w.succeeds(w.lift(target))
			wall.list = []string{"192.0.2.1/32", shared}
			w.ask(w.fencer("d"), target)
		}, true},
		"so, after a try that failed, and a person opened it": {func(w *world, wall *firewall, target Target) {
			w.failedTry(wall, target)
			target.LeaseRV = w.renew("n1")
			w.succeeds(w.on(target))
			wall.list = []string{"192.0.2.1/32", shared}
			w.ask(w.fencer("d"), target)
		}, true},
		"so, after a try that failed and was open": {func(w *world, wall *firewall, target Target) {
			w.failedTry(wall, target)
			target.LeaseRV = w.renew("n1")
			wall.list = nil
			w.expect("state", w.ask(w.fencer("a"), target).State, agent.On)
			wall.list = []string{"192.0.2.1/32", shared}
			w.ask(w.fencer("d"), target)
		}, true},
		"by a try to cut it that failed": {func(w *world, wall *firewall, target Target) {
			w.failedTry(wall, target)
			w.ask(w.fencer("a"), target)
		}, false},
		"by a try that failed, before it is tried again": {func(w *world, wall *firewall, target Target) {
			w.failedTry(wall, target)
			w.cut(target)
		}, false},
		"by this driver, and read so before that was written": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			wall.atRead = func() {
				if len(wall.list) > 0 {
					wall.atRead = nil
					w.ask(w.fencer("c"), target)
					w.expect("phase", w.fence().Phase, record.Fenced)
				}
			}
			w.cut(target)
		}, false},
		"so, and a withdrawn fence was open in between": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			w.cut(target)
			w.withdraw()
			wall.list = nil // by hand
			w.expect("state", w.ask(w.fencer("c"), target).State, agent.On)
			wall.list = []string{"192.0.2.1/32", shared}
			w.ask(w.fencer("d"), target)
		}, true},
		"and a part of what a withdrawn fence cut was open in between": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			w.cut(target)
			w.withdraw()
			wall.list = nil
			w.expect("state", w.ask(w.fencer("c"), w.registered("u1", "b1", oneSystem, "192.0.2.1")).State, agent.On)
			w.registered("u1", "b1", oneSystem, "192.0.2.1", "192.0.2.2")
			wall.list = []string{"192.0.2.1/32", shared}
			w.ask(w.fencer("d"), target)
		}, false},
		"what a withdrawn fence cut": {func(w *world, wall *firewall, target Target) {
			w.startAnew(wall)
			w.cut(target)
			w.withdraw()
			w.ask(w.fencer("c"), target)
		}, false},
	} {
		for by, open := range map[string]func(w *world, target Target) error{
			"by a person":  (*world).on,
			"after a boot": func(w *world, _ Target) error { return w.lift(w.rebooted()) },
		} {
			t.Run(name+", and opened "+by, func(t *testing.T) {
				behind(t, []string{"192.0.2.1/32", shared}, func(w *world, wall *firewall, target Target) {
					w.ask(w.fencer("a"), target)
					tt.change(w, wall, target)
					w.expect("phase", w.fence().Phase, record.Fenced)
					id := w.fence().ID
					target.LeaseRV = w.renew("n1") // it is back
					if tt.keeps {
						for range 2 {
							w.fails(w.lift(target), nobody)
							w.expect("still cut", slices.Contains(wall.list, "192.0.2.1/32") && slices.Contains(wall.list, shared), true)
						}
						w.succeeds(open(w, target))
					} else {
						w.succeeds(w.lift(target))
					}
					w.expect("still cut", strings.Join(wall.list, " "), "")
					w.expect("fence", w.record().FenceByID(id).Phase, record.Lifted)
				})
			})
		}
	}
}

// R1: what a person took back and opened by hand long ago is not this driver's cut.
func TestWhatAWithdrawnFenceOfAnEarlierBootCutIsNotThisDriversToOpen(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		w.withdraw()
		target := w.rebooted()
		w.ask(w.fencer("c"), target)
		w.expect("phase", w.fence().Phase, record.Fenced)
		w.fails(w.lift(target), nobody)
		w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.1/32 "+shared)
	})
}

// R1: the machine has another address by now, and somebody else has cut that off.
func TestALiftOpensNoAddressOfNowThatItsFenceDoesNotName(t *testing.T) {
	const anew = "192.0.2.9/32"
	for name, boot := range map[string]string{"in that boot": "b1", "in a later one": "b2"} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, _ Target) {
				target := w.registered("u1", boot, oneSystem, "192.0.2.9")
				wall.list = append(wall.list, anew)
				w.fails(w.lift(target), "where "+anew+" is cut off, "+nobody)
				w.expect("still cut", strings.Join(wall.list, " "), anew)
				w.succeeds(w.on(target))
				w.expect("still cut", strings.Join(wall.list, " "), "")
				w.expect("fences", w.fences(), "Lifted by a")
			})
		})
	}
}

func (w *world) n2(address string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "u2"}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	w.server.PutNode(n)
}

func (w *world) garble(node string) {
	w.server.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: record.LeaseName(node), Annotations: map[string]string{record.NodeAnnotation: node, record.Annotation: "{"}}})
}

// R1: a kubelet that registered the node ID of another machine has the fence of that one read
// as its own, and says that it has booted. Or the other node has the address by now.
func TestALiftOpensNothingThatAnotherNodesFenceNames(t *testing.T) {
	const names = shared + " is opened once "
	for name, tt := range map[string]struct {
		change func(w *world, f *record.Fence)
		keeps  bool
		says   string
	}{
		"it stands":               {func(*world, *record.Fence) {}, true, names},
		"it is of another driver": {func(_ *world, f *record.Fence) { f.Driver = another }, true, names},
		"it is being cut":         {func(_ *world, f *record.Fence) { f.Phase = record.Fencing }, true, names},
		"it is being cut, and it does not say what": {func(_ *world, f *record.Fence) { f.Phase, f.Steps = record.Fencing, nil }, true,
			"is left as it is: the record of node n2 does not say what is being cut off, and its agents do not tell"},
		"so, and its Node has the address": {func(w *world, f *record.Fence) {
			f.Phase, f.Steps = record.Fencing, nil
			w.n2("192.0.2.2")
		}, true, names},
		"somebody died who was to cut another off": {func(w *world, f *record.Fence) {
			f.Phase, f.Steps = record.Fencing, nil
			w.n2("192.0.2.77")
		}, false, ""},
		"its record cannot be read": {func(w *world, f *record.Fence) {
			w.garble("n2")
			w.n2("192.0.2.2")
		}, true, names},
		"its record cannot be read, and its Node has another address": {func(w *world, f *record.Fence) {
			w.garble("n2")
			w.n2("192.0.2.77")
		}, false, ""},
		"a record of no Node cannot be read": {func(w *world, f *record.Fence) { w.garble("n2") }, true, "is left as it is: the record of node n2"},
		"it is being lifted":                 {func(_ *world, f *record.Fence) { f.Phase = record.Lifting }, false, ""},
		"it is being made anew":              {func(_ *world, f *record.Fence) { f.Phase = record.Refencing }, true, names},
		"under a wider block":                {func(_ *world, f *record.Fence) { f.Steps[0].Detail = "fence 192.0.2.2/31 at driver x" }, true, "fence n2 of node n2, which names it too"},
		"it is lifted":                       {func(_ *world, f *record.Fence) { f.Phase = record.Lifted }, false, ""},
		"of another address":                 {func(_ *world, f *record.Fence) { f.Steps[0].Detail = "fence 192.0.2.77/32 at driver x" }, false, ""},
		"this driver cut it, and only read the rest": {func(w *world, _ *record.Fence) {
			own := *w.fence()
			own.Steps = w.storageFence("", driver, shared).Steps
			w.put(own)
		}, true, names},
		"this driver cut it, and a record of no Node cannot be read": {func(w *world, _ *record.Fence) {
			own := *w.fence()
			own.Steps = w.storageFence("", driver, "192.0.2.1/32, "+shared).Steps
			w.put(own)
			w.garble("n2")
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			behind(t, []string{"192.0.2.1/32", shared}, func(w *world, wall *firewall, target Target) {
				w.ask(w.fencer("a"), target)
				f := w.storageFence("n2", driver, shared)
				f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
				tt.change(w, &f)
				if w.server.Lease(ns, record.LeaseName("n2")) == nil {
					w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
				}
				err := w.lift(w.rebooted())
				if tt.keeps {
					w.fails(err, tt.says)
					w.expect("cut", slices.Contains(wall.list, shared), true)
					return
				}
				w.succeeds(err)
				w.expect("still cut", strings.Join(wall.list, " "), "")
			})
		})
	}
}

// R1: the other node has it by now, and has not booted.
func TestALiftOfWhatThisDriverCutOpensNothingThatAnotherNodesFenceNames(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, target Target) {
		f := w.storageFence("n2", driver, shared)
		f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
		w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
		w.garble("n3")
		err := w.lift(target)
		w.fails(err, shared+" is opened once fence n2 of node n2, which names it too, is lifted or withdrawn")
		w.expect("it is this driver's", strings.Contains(err.Error(), nobody), false)
		w.expect("still cut", strings.Join(wall.list, " "), shared)
		w.changeOf("n2", func(r *record.Record) { r.EndFence("n2", record.Lifted, "booted", "ann") })
		w.succeeds(w.lift(target))
		w.expect("still cut", strings.Join(wall.list, " "), "")
	})
}

// R1: nor does a person who says that a machine is repaired: not what its fence cut, and not
// what somebody wrote into its record as one, for which nobody vouches.
func TestNobodyOpensWhatAnotherNodesFenceNames(t *testing.T) {
	for written, whole := range map[string]bool{shared: true, "::ffff:192.0.2.2/128": true, "192.0.2.2/31": false} {
		cutOff(t, func(w *world, wall *firewall, _ Target) {
			target := w.registered("u1", "b1", oneSystem, "192.0.2.1")
			w.put(w.storageFence("forged", driver, "192.0.2.1/32, "+written))
			w.unvouch()
			f := w.storageFence("n2", driver, shared)
			f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
			w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
			wall.list = append(wall.list, written)
			w.fails(w.on(target), "is opened once fence n2 of node n2, which names it too, is lifted or withdrawn")
			w.expect("still cut", slices.Contains(wall.list, shared) && slices.Contains(wall.list, written), true)
			w.expect("its own", slices.Contains(wall.list, "192.0.2.1/32"), false)
			w.expect("its fence", w.record().StorageFenced(driver), true)
			w.changeOf("n2", func(r *record.Record) { r.EndFence("n2", record.Lifted, "booted", "ann") })
			w.succeeds(w.on(target))
			w.expect("cut after that", slices.Contains(wall.list, shared), !whole)
		})
	}
}

// R6: nobody lifts the fence of a Node that is gone, and its address is given out again.
func TestWhatThisDriverCutIsOpenedWhereAFenceOfANodeThatIsLongGoneNamesIt(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world, f *record.Fence)
		opens  bool
	}{
		"its Node is gone":            {func(*world, *record.Fence) {}, true},
		"its Node is there":           {func(w *world, _ *record.Fence) { w.n2("192.0.2.77") }, false},
		"it was made a moment before": {func(_ *world, f *record.Fence) { f.StartedAt = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339) }, false},
		"it was made after": {func(_ *world, f *record.Fence) {
			f.StartedAt = time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339)
		}, false},
		"it does not say when": {func(_ *world, f *record.Fence) { f.StartedAt = "" }, false},
		"this driver did not cut it": {func(w *world, _ *record.Fence) {
			own := *w.fence()
			own.Steps = w.storageFence("", driver, "192.0.2.1/32").Steps
			w.put(own)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, _ Target) {
				f := w.storageFence("n2", driver, shared)
				f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
				f.StartedAt = time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
				tt.change(w, &f)
				w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
				err := w.lift(w.rebooted())
				if !tt.opens {
					w.fails(err, shared+" is opened once fence n2 of node n2, which names it too, is lifted or withdrawn")
					w.expect("still cut", strings.Join(wall.list, " "), shared)
					return
				}
				w.succeeds(err)
				w.expect("still cut", strings.Join(wall.list, " "), "")
			})
		})
	}
}

// Builds from before wrote down less.
func TestAFenceThatDoesNotSayWhatItCutIsOpenedByABootOrAPerson(t *testing.T) {
	for name, change := range map[string]func(f *record.Fence){
		"only read": func(f *record.Fence) {
			f.Steps = []record.FenceStep{{Agent: "array", Action: "status", State: "off", Detail: f.What}}
		},
		"no steps":     func(f *record.Fence) { f.Steps = nil },
		"no addresses": func(f *record.Fence) { f.Steps, f.What = nil, "" },
	} {
		for by, open := range map[string]func(w *world, target Target) error{
			"a person": (*world).on,
			"a boot":   func(w *world, _ Target) error { return w.lift(w.rebooted()) },
		} {
			t.Run(name+", "+by, func(t *testing.T) {
				cutOff(t, func(w *world, wall *firewall, target Target) {
					f := *w.fence()
					change(&f)
					w.put(f)
					w.fails(w.lift(target), "is not lifted")
					w.expect("still cut", strings.Join(wall.list, " "), "192.0.2.1/32 "+shared)
					w.succeeds(open(w, target))
					w.expect("still cut", strings.Join(wall.list, " "), "")
					w.expect("fences", w.fences(), "Lifted by a")
				})
			})
		}
	}
}

// R1: a cut changes nothing about what somebody else has cut off before.
func TestACutMakesItsOwnOnlyWhatNobodyHadCutBefore(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world, wall *firewall, target Target)
		opens  string
	}{
		"nothing was cut": {func(*world, *firewall, Target) {}, "192.0.2.1/32 " + shared},
		"a part was cut":  {func(_ *world, wall *firewall, _ Target) { wall.list = []string{shared} }, "192.0.2.1/32"},
		"it could not be read": {func(_ *world, wall *firewall, _ Target) {
			wall.unread = errors.New("no route")
			wall.atOff = func() { wall.unread = nil }
		}, ""},
		"it could not be read, and is cut off at other addresses than its Node's": {func(_ *world, wall *firewall, _ Target) {
			wall.declared = []string{"198.51.100.1"}
			wall.unread = errors.New("no route")
			wall.atOff = func() { wall.unread = nil }
		}, ""},
		"another agent could not be read": {func(w *world, wall *firewall, _ Target) {
			second := &named{&firewall{unread: errors.New("no route")}, "second"}
			second.atOff = func() { second.unread = nil }
			w.levels[0] = append(w.levels[0], agent.Bounded{Agent: second, Timeout: w.levels[0][0].Timeout})
			wall.atOff = func() { w.expect("meant", strings.Join(cutBlocks(w.fence()), " "), "") }
		}, ""},
		"a part was cut by a fence of this driver that was withdrawn": {func(w *world, wall *firewall, target Target) {
			w.cut(target)
			w.withdraw()
			wall.list = []string{shared}
		}, "192.0.2.1/32 " + shared},
		"a part was cut by a fence of another machine of that name": {func(w *world, wall *firewall, _ Target) {
			f := w.storageFence("old", driver, shared)
			f.Machine.BootID, f.Machine.SystemUUID = "b0", otherSystem
			w.put(f)
			w.withdraw()
			wall.list = []string{shared}
		}, "192.0.2.1/32"},
		"a part was cut by a try that failed": {func(w *world, wall *firewall, target Target) {
			w.failedTryAt(wall, target)
			wall.list = []string{shared}
		}, "192.0.2.1/32 " + shared},
		"a part was cut, and it is cut anew at another address": {func(w *world, wall *firewall, target Target) {
			wall.list = []string{shared}
			w.cut(target)
			wall.list = []string{"192.0.2.1/32", shared}
			w.registered("u1", "b1", oneSystem, "192.0.2.1", "192.0.2.2", "192.0.2.9")
		}, "192.0.2.1/32 192.0.2.9/32"},
	} {
		t.Run(name, func(t *testing.T) {
			behind(t, nil, func(w *world, wall *firewall, target Target) {
				tt.change(w, wall, target)
				w.cut(target)
				w.expect("to be opened", strings.Join(cutBlocks(w.fence()), " "), tt.opens)
			})
		})
	}
}

// Levels stop at the power before they ask about the storage, and an off may come to cut that all the same.
func TestWhereNobodySaidAnythingOfTheStorageAllThatIsCutIsTheDriversOwn(t *testing.T) {
	status := func(agentName string, named, cut []string) agent.Step {
		return agent.Step{Agent: agentName, Action: "status", Named: named, Cut: cut}
	}
	for name, tt := range map[string]struct {
		asked []agent.Step
		want  []string // nil: all
	}{
		"no storage agent was asked":     {[]agent.Step{status("bmc", nil, nil)}, nil},
		"it named nothing":               {[]agent.Step{status("array", nil, nil)}, nil},
		"it named nothing, and some cut": {[]agent.Step{status("array", nil, []string{"192.0.2.1/32"})}, []string{}},
		"it named some, and they are":    {[]agent.Step{status("array", []string{"192.0.2.1/32"}, []string{"192.0.2.1/32"})}, []string{}},
		"it did not answer":              {[]agent.Step{{Agent: "array", Action: "status", Err: "no route"}}, []string{}},
	} {
		c := &cut{Fencer: &Fencer{proves: map[string]fence.Kind{"bmc": fence.PowerReading, "array": fence.StorageFence}}, asked: tt.asked}
		if got := c.ownBlocks(nil); (got == nil) != (tt.want == nil) || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %#v, want %#v", name, got, tt.want)
		}
	}
}

// What was not sent cut nothing.
func TestAnOffThatIsNotSentLeavesNothingThatWouldBeOpened(t *testing.T) {
	behind(t, nil, func(w *world, wall *firewall, target Target) {
		w.server.BeforeNextWrite(func() { w.server.BeforeNextWrite(func() { w.renew("n1") }) }) // the lock, "Fencing"
		_, err := w.fencer("a").Off(w.Context(), target, "dead", false)
		w.fails(err, fence.VoidLeaseChanged)
		w.expect("requests", wall.offs, 0)
		w.expect("fences", w.fences(), "Failed by a")
		for _, st := range w.record().Fences[0].Steps {
			w.expect("step", st.Action, "status")
		}
	})
}

func TestEachAgentsCutIsWrittenDownBeforeItIsSent(t *testing.T) {
	behind(t, nil, func(w *world, wall *firewall, target Target) {
		second := &named{&firewall{}, "second"}
		w.levels[0] = append(w.levels[0], agent.Bounded{Agent: second, Timeout: w.levels[0][0].Timeout})
		said := func(name string) func() {
			return func() {
				r := w.record()
				w.expect("vouched for", r.Vouched(r.Fence(fence.StorageFence, driver)), true)
				w.expect("said by "+name, slices.ContainsFunc(w.fence().Steps, func(st record.FenceStep) bool {
					return st.Agent == name && strings.Join(agent.Blocks(st.Detail), " ") == "192.0.2.1/32 "+shared
				}), true)
			}
		}
		wall.atOff, second.atOff = said("array"), said("second")
		w.cut(target)
		offs := 0
		for _, st := range w.fence().Steps {
			if st.Action == "off" {
				offs++
			}
		}
		w.expect("steps", offs, 2)
	})
}

// named is a second firewall.
type named struct {
	*firewall
	name string
}

func (n *named) Name() string { return n.name }

// n2 is cut off under that address, and its Node is gone: whether n1's kubelet claims it now, or was
// given it, nothing opens it while that fence stands, and nobody is told that it was not opened who
// has opened it.
func TestAnAddressOfNowThatAnotherNodesFenceNamesIsNotOpened(t *testing.T) {
	for name, c := range map[string]struct {
		own string // what n1's own fence names; empty: it has none
		on  func(w *world, target Target) error
	}{
		"on, without a fence":          {"", (*world).on},
		"on, of another address":       {"192.0.2.1/32", (*world).on},
		"lift, of a fence of no block": {"", func(w *world, target Target) error { return w.lift(w.rebooted()) }},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff(t, func(w *world, wall *firewall, target Target) {
				w.change(func(r *record.Record) {
					r.EndFence(r.Fence(fence.StorageFence, driver).ID, record.Lifted, "start anew", "ann")
				})
				f := w.storageFence("n2", driver, shared)
				f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
				w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
				if c.own != "" || strings.HasPrefix(name, "lift") {
					w.put(w.storageFence("n1", driver, c.own))
				}
				wall.list = []string{"192.0.2.1/32", shared}
				_ = c.on(w, target)
				w.expect("n2 is still cut off", slices.Contains(wall.list, shared), true)
				w.expect("n1's own address", slices.Contains(wall.list, "192.0.2.1/32"), false)
			})
		})
	}
}

// Who may write records, as every driver's pod may, keeps nobody cut off by what he makes up, and
// opens nothing by keeping a record from being told.
func TestWhatNobodyVouchesForKeepsNoAddressCutOff(t *testing.T) {
	for _, phase := range []record.Phase{record.Fenced, record.Fencing} {
		cutOff(t, func(w *world, wall *firewall, target Target) {
			f := w.storageFence("made up", driver, "0.0.0.0/0")
			f.Phase = phase
			w.changeOf("zzz", func(r *record.Record) { r.PutFence(f, "Fenced") })
			lease := w.server.Lease(ns, record.LeaseName("zzz"))
			delete(lease.Annotations, record.FencedAnnotation)
			w.server.Put(lease)
			w.succeeds(w.on(target))
			w.expect("cut", strings.Join(wall.list, " "), "")
		})
	}
}

func TestARecordThatIsNotReadHidesNoOther(t *testing.T) {
	n2 := func(w *world) {
		f := w.storageFence("n2", driver, shared)
		f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
		w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
	}
	t.Run("none can be listed", func(t *testing.T) {
		cutOff(t, func(w *world, wall *firewall, target Target) {
			n2(w)
			w.server.Forbid("list")
			w.fails(w.on(target), "forbidden")
			w.server.Forbid("")
			w.expect("still cut", slices.Contains(wall.list, shared), true)
			w.expect("its fence", w.record().StorageFenced(driver), true)
		})
	})
	t.Run("one is garbled, another under way", func(t *testing.T) {
		cutOff(t, func(w *world, wall *firewall, target Target) {
			w.changeOf("gone", func(r *record.Record) { r.Note("x", "y", "z") })
			lease := w.server.Lease(ns, record.LeaseName("gone"))
			lease.Annotations[record.Annotation] = "{"
			w.server.Put(lease)
			f := w.storageFence("n2", driver, "")
			f.Phase, f.Steps, f.What = record.Fencing, nil, ""
			f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
			w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fencing") })
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "u2"}}
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}}
			w.server.PutNode(node)
			_ = w.on(target)
			w.expect("still cut", slices.Contains(wall.list, shared), true)
			w.expect("its own", slices.Contains(wall.list, "192.0.2.1/32"), false)
		})
	})
}

// A withdrawn fence of which something stays cut off is not lifted: nothing else names that.
func TestAWithdrawnFenceIsLiftedOnlyWhole(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		w.withdraw()
		f := w.storageFence("n2", driver, shared)
		f.Machine = record.FencedMachine{NodeUID: "u2", BootID: "b21"}
		w.changeOf("n2", func(r *record.Record) { r.PutFence(f, "Fenced") })
		target := w.registered("u1", "b1", oneSystem, "192.0.2.9")
		_ = w.on(target)
		w.expect("still cut", strings.Join(wall.list, " "), shared)
		w.expect("fences", w.fences(), "Void by a")
		w.changeOf("n2", func(r *record.Record) { r.EndFence("n2", record.Lifted, "booted", "ann") })
		w.succeeds(w.on(target))
		w.expect("then", strings.Join(wall.list, " "), "")
		w.expect("fences", w.fences(), "Lifted by a")
	})
}
