package fencer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// R1: a machine that was replaced under its Node, or whose driver names it otherwise since, may
// be alive under what its Node says. That it reads on still contradicts who says that it is
// off; that it reads off proves nothing.
func TestAPowerThatIsOnCountsThoughTheMachineIsNotTheOneThatIsBound(t *testing.T) {
	for _, c := range []struct{ what, system, provider, id string }{
		{"another board", uuid3, "aws:///z/i-1", "id1"},
		{"another instance", uuid3, "aws:///z/i-3", "id3"},
		{"a driver that renames its node IDs", uuid1, "aws:///z/i-1", "id1-anew"},
	} {
		registered(t, func(r *registry) {
			r.binds()
			r.says("n1", "u1", c.system, c.provider, c.id)
			for _, pass := range []string{"before the next pass", "after it"} {
				r.set(false) // it is on
				r.f.forget("n1")
				if a := r.ask(r.f, r.targetOf("n1")); len(a.On) != 1 {
					r.Errorf("%s, %s: on is not heard: %v", c.what, pass, a)
				}
				r.set(true)
				if got := r.reads("n1"); !strings.HasPrefix(got, "unclear") {
					r.Errorf("%s, %s: off counts: %s", c.what, pass, got)
				}
				r.binds()
			}
			if got := r.off("n1"); got == "cut off" {
				r.Errorf("%s: it was cut off", c.what)
			}
		})
	}
}

// R6: what was bound to a name whose Node is gone is in nobody's way, however many names the
// machine had.
func TestAMachineOfManyNamesCanBeCutOff(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		for _, name := range []string{"n3", "n4", "n5"} {
			r.leaves("n1")
			r.leaves("n3")
			r.leaves("n4")
			r.binds()
			r.says(name, "u-"+name, uuid1, "aws:///z/i-1", "id1")
			r.binds()
			r.expect(name, r.off(name), "cut off")
		}
		r.leaves("n5")
		r.says("n1", "u1b", uuid1, "aws:///z/i-1", "id1")
		r.binds()
		r.expect("the first name, again", r.off("n1"), "cut off")
	})
}

// Whoever has the name that a machine had once does not get the machine, nor does a Node of
// that name that says nothing take it from anybody.
func TestANameThatAMachineHadOnceIsNoClaim(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.leaves("n1")
		r.says("n3", "u3", uuid1, "aws:///z/i-1", "id1") // the machine, under another name
		r.binds()
		r.says("n1", "restored", "", "", "") // by a backup, without its status
		r.binds()
		r.expect("n3", r.off("n3"), "cut off")

		r.says("n1", "restored", uuid1, "aws:///z/i-1", "id1")
		for range 2 {
			if got := r.off("n1"); !strings.Contains(got, "node n3 is known by "+uuid1+" as well") {
				r.Errorf("n1: %s", got)
			}
			if got := r.off("n3"); !strings.Contains(got, "node n1 is known by "+uuid1+" as well") {
				r.Errorf("n3: %s", got)
			}
			r.expect("both are asked", strings.HasPrefix(r.reads("n1"), "on") && strings.HasPrefix(r.reads("n3"), "on"), true)
			r.binds()
		}
		r.leaves("n1")
		r.binds()
		r.expect("n3, once the other is gone", r.off("n3"), "cut off")
	})
}

// A CSINode that is left of the Node before says nothing of this one.
func TestTheCSINodeOfAnEarlierNodeIsNotBound(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.leaves("n1")
		r.says("n1", "u1b", uuid1, "aws:///z/i-1", "id1-of-before")
		r.owners["n1"] = "u1"
		r.binds()
		r.says("n1", "u1b", uuid1, "aws:///z/i-1", "id1-anew")
		delete(r.owners, "n1")
		r.binds()
		r.says("n3", "u3", "", "", "id3-of-before") // and nothing else yet
		r.owners["n3"] = "earlier"
		r.binds()
		r.expect("n3", r.bound("n3"), "nothing <nil>")
		r.expect("n1", r.bound("n1"), "[01 aws:///z/i-1 id1-anew]")
		r.expect("n1", r.off("n1"), "cut off")
	})
}

// A node that is due is bound at once, however many others wait for that.
func TestANodeThatIsCutOffIsBoundFirst(t *testing.T) {
	registered(t, func(r *registry) {
		r.expect("n1", r.off("n1"), "cut off")
		r.expect("n1", r.bound("n1"), "[01 aws:///z/i-1 id1]")
		r.expect("n2", r.bound("n2"), "nothing <nil>")
	})
}

// Agents that are told nothing of it go on where nothing can be said of a machine.
func TestAgentsThatDoNotSeekGoOnWhereAMachineIsInDoubt(t *testing.T) {
	for what, change := range map[string]func(r *registry){
		"its CSINode cannot be read": func(r *registry) { r.broken = "n1" },
		"it says another node ID":    func(r *registry) { r.ids["n1"] = "id2" },
	} {
		registered(t, func(r *registry) {
			r.binds()
			plain := &seeker{device: &device{name: "outlet", kind: fence.PowerReading}, plain: true}
			r.f.Levels = append(r.f.Levels, agent.Level{{Agent: plain, Timeout: 10 * time.Second}})
			r.f.proves["outlet"] = fence.PowerReading
			change(r)
			// The machine has power at the first level's device until the second cuts it.
			plain.onOff = func(context.Context) { r.set(true) }
			_, err := r.f.Off(r.Context(), r.targetOf("n1"), "silent", true)
			if _, offs := r.counts(); len(plain.sent) == 0 || offs > 0 {
				r.Errorf("%s: the second was sent %d, the first %d: %v", what, len(plain.sent), offs, err)
			}
		})
	}
}

// Nothing is written of a fence that nobody could make, and it is said why.
func TestAMachineInDoubtIsNotTriedToBeCutOff(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		why, err := r.f.Withheld(r.Context(), r.targetOf("n1"))
		r.expect("without a doubt", fmt.Sprint(why, err), "<nil>")
		r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1-anew")
		r.expect("n1", strings.HasPrefix(r.off("n1"), "NODE_ID: the node says id1-anew since"), true)
		rec, err := r.store.Get(r.Context(), "n1")
		if err != nil || len(rec.Fences) > 0 {
			r.Error(rec.Fences, err)
		}
		why, err = r.f.Withheld(r.Context(), r.targetOf("n1"))
		if want := "agent bmc cannot tell which machine it is: $(NODE_ID) of node n1 may be another machine's: the node says id1-anew since, and was known by id1 first; "; err != nil || !strings.HasPrefix(why, want) {
			r.Error(why, err)
		}
		r.f.Levels = append(r.f.Levels, agent.Level{{Agent: &seeker{device: r.device, plain: true}}})
		why, err = r.f.Withheld(r.Context(), r.targetOf("n1"))
		r.expect("with another level", fmt.Sprint(why, err), "<nil>")
	})
}

// R6: its volumes stay free to move, for nothing could be sent.
func TestAStorageFenceIsNotBegunToBeLiftedByAnAgentThatIsNotToldWhichMachine(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.device.kind = fence.StorageFence
		f, err := New(r.f.Options)
		if err != nil {
			r.Fatal(err)
		}
		r.f = f
		r.expect("n1", r.off("n1"), "cut off")
		r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1-anew")
		_, err = r.f.Lift(r.Context(), r.targetOf("n1"), driver, "booted")
		r.fails(err, "lift of node n1 is refused: agent bmc cannot tell which machine it is: $(NODE_ID) of node n1")
		rec, err := r.store.Get(r.Context(), "n1")
		r.succeeds(err)
		s := rec.Fence(fence.StorageFence, driver)
		r.expect("phase", s.Phase, record.Fenced)
		r.expect("vouched for", rec.Vouched(s), true)
		r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1")
		_, err = r.f.Lift(r.Context(), r.targetOf("n1"), driver, "booted")
		r.succeeds(err)
	})
}

// A node that cannot be bound does not keep others waiting.
func TestANodeThatCannotBeBoundKeepsNobodyWaiting(t *testing.T) {
	registered(t, func(r *registry) {
		r.broken = "n1"
		if err := r.f.bindAll(r.Context()); err == nil {
			r.Error("no error")
		}
		r.expect("n1", r.bound("n1"), "nothing <nil>")
		r.expect("n2", r.bound("n2"), "[02 aws:///z/i-2 id2]")
	})
}

// Off of a machine of which nothing is bound proves nothing where that is yet to be bound; it
// does in Observe, which binds nothing, and of a Node that was gone before anything was bound.
func TestWhatIsNotBoundYetIsNotTakenForOff(t *testing.T) {
	for what, c := range map[string]struct {
		change func(r *registry)
		want   agent.State
	}{
		"not to be bound":  {func(r *registry) { r.server.Forbid("create") }, agent.Unclear},
		"not bound before": {func(r *registry) {}, agent.Off},
		"bound, but for what a driver says since": {func(r *registry) {
			r.says("n1", "u1", uuid1, "aws:///z/i-1", "")
			r.binds()
			r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1")
		}, agent.Off},
		"forgotten while it was in doubt, as a machine that was restored under its Node": {func(r *registry) {
			r.binds()
			r.says("n1", "u1", uuid3, "aws:///z/i-1", "id1")
			r.unvouched("n1")
		}, agent.Unclear},
		"Observe": {func(r *registry) { r.f.ReadOnly = true }, agent.Off},
		"gone":    {func(r *registry) { r.server.DeleteNode("n1") }, agent.Off},
		"bound":   {func(r *registry) { r.binds() }, agent.Off},
		"bound, and a build from before took the vouch away": {func(r *registry) { r.binds(); r.unvouched("n1") }, agent.Off},
		"forged": {func(r *registry) {
			r.binds()
			r.says("n1", "u1", uuid2, "aws:///z/i-1", "id1")
			r.changeOf("n1", func(rec *record.Record) { rec.Identity = &record.Identity{Bound: victims("u1")} })
		}, agent.Unclear},
	} {
		registered(t, func(r *registry) {
			target := r.targetOf("n1")
			target.SystemUUID, target.ProviderID = uuid1, "aws:///z/i-1"
			r.set(true)
			c.change(r)
			r.expect(what, r.ask(r.f, target).State, c.want)
		})
	}
}

// R1: what a doubt rests on is not forgotten with the vouch, also where the Node is gone, so that
// nobody binds anything any more: a machine that was restored under its Node is not off because
// the one before is.
func TestADoubtOutlivesItsVouchAndItsNode(t *testing.T) {
	for what, doubt := range map[string]func(r *registry){
		"it says another UUID since": func(r *registry) { r.says("n1", "u1", uuid3, "aws:///z/i-1", "id1") },
		"a person bound the rest": func(r *registry) {
			r.says("n1", "u1", uuid3, "aws:///z/i-1", "id1")
			r.changeOf("n1", func(rec *record.Record) {
				rec.BindAs("u1", record.IdentifiersOf(r.all["n1"], driver), map[string]string{record.ProviderID: record.EarlierMachine, record.InstanceID: record.EarlierMachine}, "restored", "ada")
			})
		},
	} {
		for _, gone := range []bool{false, true} {
			registered(t, func(r *registry) {
				r.binds()
				doubt(r)
				target := r.targetOf("n1")
				target.SystemUUID, target.ProviderID = uuid3, "aws:///z/i-1"
				r.unvouched("n1")
				if gone {
					r.leaves("n1")
				}
				r.set(true)
				for range 2 {
					r.f.forget("n1")
					r.expect(fmt.Sprint(what, ", gone ", gone), r.ask(r.f, target).State, agent.Unclear)
					why, err := r.f.Withheld(r.Context(), target)
					if err != nil || !strings.Contains(why, "may be another machine") || strings.Contains(why, "not bound to the node yet") {
						r.Errorf("%s, gone %t: %q %v", what, gone, why, err)
					}
					r.binds()
				}
			})
		}
	}
}

// A person binds what a machine whose firmware says nothing says, so that another UUID since is
// a doubt: no program is told it, and nobody else has it.
func TestAUUIDThatTellsNothingIsToldToNobodyThoughItIsBound(t *testing.T) {
	const unset = "03000200-0400-0500-0006-000700080009"
	registered(t, func(r *registry) {
		for _, node := range []string{"n1", "n2"} {
			r.says(node, "u"+node[1:], unset, "aws:///z/i-"+node[1:], "id"+node[1:])
			r.changeOf(node, func(rec *record.Record) {
				m := r.all[node]
				rec.BindAs(m.NodeUID, append([]record.Identifier{{Kind: record.SystemUUID, Value: unset}}, record.IdentifiersOf(m, driver)...), nil, "a new board", "ada")
			})
		}
		r.binds()
		r.expect("n1", r.off("n1"), "SYSTEM_UUID: it does not tell machines apart")
		r.kinds = []string{agent.VarInstanceID, agent.VarNodeID, agent.VarProviderID}
		r.expect("n1, by what else it says", r.off("n1"), "cut off")
		r.says("n1", "u1", uuid3, "aws:///z/i-1", "id1")
		r.binds()
		r.expect("n1, which says a UUID", strings.Contains(r.off("n1"), "so that it may be another machine"), true)
	})
}

// A question binds what is not bound yet; what cannot be bound costs the API server nothing at
// each of them, nor what no agent is told. A command tries it each time.
func TestWhatCannotBeBoundIsNotTriedAtEveryQuestion(t *testing.T) {
	for what, c := range map[string]struct {
		change func(r *registry)
		pause  time.Duration
	}{
		"a UUID that two have":       {func(r *registry) { r.says("n2", "u2", uuid1, "aws:///z/i-2", "id2") }, bindEvery},
		"an account that may not":    {func(r *registry) { r.server.Forbid("create") }, bindAtLeast},
		"a CSINode that is not read": {func(r *registry) { r.broken = "n1" }, bindEvery},
		"a UUID that two have, and no agent is told": {func(r *registry) {
			r.says("n2", "u2", uuid1, "aws:///z/i-2", "id2")
			r.kinds = []string{agent.VarProviderID}
			r.binds()
		}, 0},
	} {
		registered(t, func(r *registry) {
			c.change(r)
			cost := func(node string) int {
				t.Helper()
				r.f.forget(node)
				before := r.server.Requests()
				r.ask(r.f, r.targetOf(node))
				return r.server.Requests() - before
			}
			first := cost("n1")
			cost("n1") // what the first one left
			usual := cost("n1")
			if (first > usual) != (c.pause > 0) {
				t.Errorf("%s: %d requests, then %d", what, first, usual)
			}
			if other := cost("n2"); what == "a UUID that two have" && other <= usual {
				t.Errorf("%s: %d requests for the other node, which is one of its own", what, other)
			}
			time.Sleep(c.pause - time.Second)
			if n := cost("n1"); n != usual {
				t.Errorf("%s: %d requests within the pause, want %d", what, n, usual)
			}
			time.Sleep(2 * time.Second)
			if n := cost("n1"); (n > usual) != (c.pause > 0) {
				t.Errorf("%s: %d requests after the pause", what, n)
			}
		})
	}
}

// unvouched is what a build from before leaves of a record that it writes.
func (r *registry) unvouched(node string) {
	lease := r.server.Lease(ns, record.LeaseName(node))
	delete(lease.Annotations, record.FencedAnnotation)
	r.server.Put(lease)
}

// Other drivers' sidecars bind their node IDs: only they see all that say one.
func TestADriverBindsItsOwnNodeID(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		rec, err := r.store.Get(r.Context(), "n1")
		if err != nil || len(rec.Identity.Bound) != 4 {
			r.Error(rec.Identity, err)
		}
	})
}

// The sidecars of all drivers write the records, also those that may not fence.
func TestAForgedIdentityHasNobodySwitchedOff(t *testing.T) {
	for what, forge := range map[string]func(*record.Record){
		"the victim's values":      func(r *record.Record) { r.Identity = &record.Identity{Bound: victims("u1")} },
		"what was bound is forgot": func(r *record.Record) { r.Identity = nil },
	} {
		registered(t, func(r *registry) {
			r.binds()
			r.says("n1", "u1", uuid2, "aws:///z/i-2", "id2")
			r.changeOf("n1", forge)
			r.expect(what, strings.Contains(r.off("n1"), "SYSTEM_UUID: node n2 was known by "+uuid2+" first"), true)
			r.expect(what+", the victim's own node", r.off("n2"), "cut off")
		})
	}
	// Also where what is bound to the victim is forgotten too.
	registered(t, func(r *registry) {
		r.binds()
		r.says("n1", "u1", uuid2, "aws:///z/i-2", "id2")
		r.changeOf("n1", func(rec *record.Record) { rec.Identity = &record.Identity{Bound: victims("u1")} })
		r.changeOf("n2", func(rec *record.Record) { rec.Identity = nil })
		r.binds()
		r.expect("n1", strings.Contains(r.off("n1"), "SYSTEM_UUID: it is not bound to the node yet"), true)
		r.expect("n1", r.bound("n1"), "nothing <nil>")
		r.leaves("n1")
		r.expect("n2, once n1 is gone", r.off("n2"), "cut off")
	})
}

// victims is what n2 is known by, as if it were that Node's.
func victims(uid string) (all []record.Binding) {
	for _, one := range record.IdentifiersOf(fence.Machine{SystemUUID: uuid2, ProviderID: "aws:///z/i-2", NodeID: "id2"}, driver) {
		all = append(all, record.Binding{Identifier: one, NodeUID: uid})
	}
	return all
}

// A sidecar without the right to fence goes by what others have bound, and does not try again
// and again what it may not.
func TestWhoMayNotBindGoesByWhatIsBound(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.says("n3", "u3", uuid3, "", "")
		r.says("n4", "u4", "", "x/4", "")
		r.server.Forbid("create") // as a policy does where the annotation that vouches grows
		m := agent.Machine{Node: "n3", UID: "u3", SystemUUID: uuid3}
		for range 2 {
			node := r.f.Nodes.Nodes()
			n3, err := node.Get(r.Context(), "n3", metav1.GetOptions{})
			if err != nil {
				r.Fatal(err)
			}
			r.f.doubt(r.Context(), &m, n3)
			r.expect("n3", reasons(m), "SYSTEM_UUID: it is not bound to the node yet: the process that leads and may fence does so, once no other node says it too")
		}
		r.expect("n1", r.off("n1"), "cut off")

		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		before := r.server.Requests()
		go func() { _ = r.f.Bind(ctx) }()
		time.Sleep(time.Hour - time.Second)
		// The list, a Node, its record and the attempt to write it, every five minutes.
		if n := r.server.Requests() - before; n > 12*4 {
			r.Errorf("%d requests in an hour", n)
		}
		r.server.Forbid("")
		time.Sleep(bindAtLeast)
		r.expect("n3, once it may", r.bound("n3"), "[03  ]")
	})
}

// A pass over many nodes takes minutes: what one says since the pass began may be another's,
// which said it meanwhile too.
func TestWhatANodeSaysSinceTheSightIsNotBoundByIt(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.says("n3", "u3", uuid3, "", "")
		r.says("n4", "u4", "", "", "id4")
		now, err := r.f.sight(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		r.says("n4", "u4", "", "aws:///z/i-4", "id4") // by the cloud's controller
		r.says("n3", "u3", uuid3, "aws:///z/i-4", "")
		_, err = r.f.bindNode(r.Context(), "n3", now)
		r.expect("n3", fmt.Sprint(r.bound("n3"), err), "[03  ]<nil>")
		r.binds()
		r.expect("n3", r.bound("n3"), "[03  ]")
		r.expect("n4", r.bound("n4"), "[  id4]")
	})
}

// A machine of which the Node is gone may be back under a name to which nothing is bound yet.
func TestAMachineThatIsBackUnderAnotherNameIsNotCutOffForItsOldOne(t *testing.T) {
	for what, c := range map[string]struct{ bound, before bool }{
		"that was never bound": {},
		"that was bound":       {bound: true},
		"that was bound, and is late under its new one": {bound: true, before: true},
	} {
		registered(t, func(r *registry) {
			r.says("n3", "u3", uuid3, "", "")
			if c.bound {
				r.binds()
			}
			gone := r.targetOf("n3")
			gone.SystemUUID = uuid3
			if c.before {
				r.says("n4", "u4", uuid3, "", "")
				r.binds()
			}
			r.leaves("n3")
			r.says("n4", "u4", uuid3, "", "")
			a, err := r.f.Off(r.Context(), gone, "silent", true)
			if _, offs := r.counts(); offs > 0 || !strings.Contains(fmt.Sprint(err), "node n4 says "+uuid3+" now") {
				r.Errorf("%s: %v %v", what, a, err)
			}
		})
	}
}

// What is claimed of a node, as that it was fenced, is suspended until it is bound: in a first
// start on thousands of nodes it is bound first, and then those that hold volumes.
func TestNodesOfWhichSomethingIsClaimedAreBoundFirst(t *testing.T) {
	registered(t, func(r *registry) {
		for _, name := range []string{"n3", "n4", "n5", "n6", "n7", "n8"} {
			r.says(name, "u-"+name, "", "x://"+name, "")
		}
		r.changeOf("n7", func(rec *record.Record) { rec.PutFence(r.powerFence(record.Fenced), "Fenced") })
		all := r.f.Machines
		r.f.Machines = func() []fence.Machine { // n8 holds volumes
			return slices.SortedStableFunc(slices.Values(all()), func(a, b fence.Machine) int {
				return map[bool]int{true: -1, false: 1}[a.NodeName == "n8"]
			})
		}
		var order []string
		var next func()
		next = func() {
			for _, m := range r.all {
				if rec, err := r.store.Get(r.Context(), m.NodeName); err == nil && len(rec.Known().Bound) > 0 && !slices.Contains(order, m.NodeName) {
					order = append(order, m.NodeName)
				}
			}
			r.server.BeforeNextWrite(next)
		}
		r.server.BeforeNextWrite(next)
		r.binds()
		if len(order) < 2 || order[0] != "n7" || order[1] != "n8" {
			r.Errorf("bound in this order: %v", order)
		}
	})
}

// Two machines of one template: the one that came later gets a UUID of its own, as it should,
// and what else it says has been its own all the time.
func TestAUUIDThatWasAnothersDoesNotPutTheRestInDoubt(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.says("n3", "u3", uuid1, "aws:///z/i-3", "")
		r.binds()
		r.expect("n3", r.off("n3"), "SYSTEM_UUID: node n1 was known by "+uuid1+" first")
		r.says("n3", "u3", uuid3, "aws:///z/i-3", "id3")
		r.binds()
		r.expect("n3", r.off("n3"), "SYSTEM_UUID: the node says "+uuid3+" since, and was known by "+uuid1+" first")
		r.expect("n3", r.bound("n3"), "[01 aws:///z/i-3 id3]; systemUUID is n1's")
	})
}

// Names that come and go leave no records behind, as all are read before each fence.
func TestTheRecordOfANodeThatIsGoneForAnHourIsRemoved(t *testing.T) {
	registered(t, func(r *registry) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		for _, name := range []string{"n3", "n4", "n5"} {
			r.says(name, "u-"+name, "", "x://"+name, "")
		}
		has := func(want string) {
			r.Helper()
			var names []string
			for _, name := range []string{"n1", "n2", "n3", "n4", "n5", "n6"} {
				if r.server.Lease(ns, record.LeaseName(name)) != nil {
					names = append(names, name)
				}
			}
			r.expect("records", strings.Join(names, " "), want)
		}
		go func() { _ = r.f.Bind(ctx) }()
		time.Sleep(time.Minute)
		r.changeOf("n4", func(rec *record.Record) { rec.Note("a", "Test", "x") })
		r.leaves("n3")
		r.leaves("n4")
		r.unseen("n5")
		time.Sleep(30 * time.Minute)
		r.leaves("n2")
		time.Sleep(25 * time.Minute)
		has("n1 n2 n3 n4 n5")
		r.server.Forbid("delete")
		time.Sleep(15 * time.Minute)
		has("n1 n2 n3 n4 n5")
		r.says("n6", "u-n6", "", "x://n6", "")
		time.Sleep(time.Minute)
		has("n1 n2 n3 n4 n5 n6") // the others are bound all the same
		r.server.Forbid("")
		r.says("n2", "u2", "", "", "") // it is back
		time.Sleep(10 * time.Minute)
		has("n1 n2 n4 n5 n6")
		r.leaves("n2")
		time.Sleep(55 * time.Minute)
		has("n1 n2 n4 n5 n6")
	})
}

// What is advised leads out: a person who binds what a kubelet says, since the API server did
// not answer, would bind a liar.
func TestTheWayOutIsNamedByTheCause(t *testing.T) {
	const bind, confirm = "csi-fencepost fence bind n1 --reason TEXT", "turn it off by hand, and say so: csi-fencepost fence confirm n1 --reason TEXT"
	const same = ", with --same-machine if it is the one before with another board"
	for what, c := range map[string]struct {
		change func(r *registry)
		want   string
		no     []string
	}{
		"a doubt": {func(r *registry) { r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1-anew") },
			"; name its device in nodeParameters, or say that it is the machine: " + bind + same, []string{confirm}},
		"two doubts": {func(r *registry) { r.says("n1", "u1", uuid1, "aws:///z/i-9", "id1-anew") },
			"; name its device in nodeParameters, or say that it is the machine: " + bind + same, []string{confirm}},
		"another UUID": {func(r *registry) { r.says("n1", "u1", uuid2, "aws:///z/i-1", "id1") }, bind + same, []string{confirm}},
		"what a person said is an earlier machine's": {func(r *registry) {
			r.changeOf("n1", func(rec *record.Record) {
				rec.BindAs("u1", record.IdentifiersOf(r.all["n1"], driver), map[string]string{record.ProviderID: record.EarlierMachine, record.InstanceID: record.EarlierMachine}, "restored", "ada")
			})
		}, "; name its device in nodeParameters, or delete its Node and restart its kubelet; if it is that machine with another board: csi-fencepost fence bind n1 --same-machine --reason TEXT", []string{confirm, bind}},
		"a value that tells no machine": {func(r *registry) { r.says("n1", "u1", "a name", "aws:///z/i-1", "id1") },
			"it does not tell machines apart; name its device in nodeParameters", []string{bind, confirm}},
		"an instance ID that another provider ID has too": {func(r *registry) {
			r.leaves("n1")
			r.says("n1", "u1b", uuid1, "aws:///y/i-2", "id1")
			r.binds()
		}, "node n2 was known by i-2 first; name its device in nodeParameters", []string{bind, confirm}},
		"the API server does not answer": {func(r *registry) { r.broken = "n1" }, "; it goes on once that can be read", []string{bind, confirm}},
		"its Node is gone":               {func(r *registry) { r.leaves("n1") }, "; " + confirm, []string{bind}},
	} {
		registered(t, func(r *registry) {
			if what != "a value that tells no machine" {
				r.binds()
			}
			target := r.targetOf("n1")
			target.SystemUUID = uuid3 // as a ledger may say
			c.change(r)
			why, err := r.f.Withheld(r.Context(), target)
			if err != nil || !strings.HasSuffix(why, c.want) || slices.ContainsFunc(c.no, func(no string) bool { return strings.Contains(why, no) }) {
				r.Errorf("%s: %q %v, want %q", what, why, err, c.want)
			}
			if n := strings.Count(why, "nodeParameters"); n > 1 {
				r.Errorf("%s: said %d times: %s", what, n, why)
			}
		})
	}
}
