package fencer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storage "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	uuid1 = "11111111-2222-4333-8444-555555555501"
	uuid2 = "11111111-2222-4333-8444-555555555502"
	uuid3 = "11111111-2222-4333-8444-555555555503"
)

// seeker is an agent that finds machines by all that their nodes say of them, and keeps what
// it was told.
type seeker struct {
	*device
	plain            bool            // it does not
	without          map[string]bool // nodes for which it does not
	kinds            []string        // by which it does; nil: all
	said, sent, gave []agent.Machine
	meanwhile        func() // while it is asked; nil: nothing
}

func (s *seeker) Seeks(node string) []string {
	if s.plain || s.without[node] {
		return nil
	}
	if s.kinds != nil {
		return s.kinds
	}
	return []string{agent.VarInstanceID, agent.VarNodeID, agent.VarProviderID, agent.VarSystemUUID}
}

func (s *seeker) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	s.said = append(s.said, m)
	if s.meanwhile != nil {
		s.meanwhile()
	}
	return s.device.Status(ctx, m)
}

func (s *seeker) Off(ctx context.Context, m agent.Machine) (string, error) {
	s.sent = append(s.sent, m)
	return s.device.Off(ctx, m)
}

func (s *seeker) On(ctx context.Context, m agent.Machine) (string, error) {
	s.gave = append(s.gave, m)
	return s.device.On(ctx, m)
}

// reasons of doubts, in the order of the variables.
func reasons(m agent.Machine) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.Doubts)) {
		all = append(all, name+": "+m.Doubts[name].Why)
	}
	return strings.Join(all, "\n")
}

// registry is what the Nodes and CSINodes say.
type registry struct {
	*world
	*seeker
	lock   sync.Mutex               // of what Bind reads meanwhile
	all    map[string]fence.Machine // as it is watched
	ids    map[string]string        // as the CSINodes say, live
	owners map[string]string        // UIDs of earlier Nodes that CSINodes are left of
	broken string                   // the node whose CSINode cannot be read
	f      *Fencer
}

// CSINodes is the API's.
func (r *registry) CSINodes() storage.CSINodeInterface { return csiNodes{r: r} }

type csiNodes struct {
	storage.CSINodeInterface
	r *registry
}

func (c csiNodes) Get(_ context.Context, name string, _ metav1.GetOptions) (*storagev1.CSINode, error) {
	c.r.lock.Lock()
	defer c.r.lock.Unlock()
	id, ok := c.r.ids[name]
	if c.r.broken == name {
		return nil, errors.New("no answer")
	}
	if !ok {
		return nil, apierrors.NewNotFound(storagev1.Resource("csinodes"), name)
	}
	n := &storagev1.CSINode{}
	if uid, left := c.r.owners[name]; left {
		n.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: name, UID: types.UID(uid)}}
	}
	n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "another.example.com", NodeID: "not mine"}, {Name: driver, NodeID: id}}
	return n, nil
}

// says has a kubelet write of its node, as it likes.
func (r *registry) says(name, uid, system, provider, id string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID, n.Spec.ProviderID = "b-"+uid, system, provider
	r.server.PutNode(n)
	m := fence.MachineOf(n)
	m.NodeID, m.SystemUUID = id, fence.SystemKey(system)
	r.lock.Lock()
	r.all[name], r.ids[name] = m, id
	r.lock.Unlock()
	r.renew(name)
}

// leaves has the Node deleted.
func (r *registry) leaves(name string) {
	r.unseen(name)
	r.lock.Lock()
	delete(r.ids, name)
	r.lock.Unlock()
	r.server.DeleteNode(name)
}

// unseen has the watch not see the Node.
func (r *registry) unseen(name string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.all, name)
}

func (r *registry) binds() {
	r.Helper()
	if err := r.f.bindAll(r.Context()); err != nil {
		r.Error(err)
	}
}

// give has another process bind it to a node.
func (r *registry) give(node string, one record.Identifier) {
	r.Helper()
	if _, err := r.store.Update(r.Context(), node, func(rec *record.Record) (bool, error) {
		return rec.Bind("u-"+node, []record.Identifier{one}, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} }), nil
	}); err != nil {
		r.Fatal(err)
	}
}

// bound is what is bound to the node, and what is refused.
func (r *registry) bound(node string) string {
	rec, err := r.store.Get(r.Context(), node)
	if err != nil || len(rec.Known().Bound) == 0 {
		return fmt.Sprint("nothing ", err)
	}
	var words []string
	for _, kind := range []string{record.SystemUUID, record.ProviderID, record.NodeID(driver)} {
		words = append(words, strings.TrimPrefix(rec.Known().Of(kind).Value, "11111111-2222-4333-8444-5555555555"))
	}
	text := fmt.Sprint(words)
	for _, b := range rec.Known().Bound {
		if b.Other != "" {
			text += "; " + b.Kind + " is " + b.Other + "'s"
		}
	}
	return text
}

func (r *registry) targetOf(name string) Target {
	m := r.all[name]
	return Target{Node: name, UID: m.NodeUID, BootID: m.BootID, NodeID: m.NodeID, LeaseRV: r.leaseRV(name)}
}

// off is what becomes of an attempt to cut the node off.
func (r *registry) off(node string) string {
	r.Helper()
	r.set(false)
	r.sent = nil
	_, before := r.counts()
	a, err := r.f.Off(r.Context(), r.targetOf(node), "silent", false)
	if _, after := r.counts(); after > before {
		if err != nil || a.State != agent.Off {
			r.Errorf("node %s was cut off, and: %v %v", node, a, err)
		}
		return "cut off"
	}
	if a.State == agent.Off {
		r.Errorf("node %s was not cut off, and: %v", node, a)
	}
	if len(r.sent) > 0 {
		r.Errorf("an agent was told to cut node %s off: %v", node, r.sent)
	}
	now, lookErr := r.f.look(r.Context(), node)
	m := now.machine(r.targetOf(node))
	r.f.doubt(r.Context(), &m, now.node)
	if words := reasons(m); words != "" && lookErr == nil && err != nil {
		return words
	}
	return fmt.Sprint("not tried: ", err)
}

// reads is what a question comes to.
func (r *registry) reads(node string) string {
	r.Helper()
	r.f.forget(node)
	r.said = nil
	a := r.ask(r.f, r.targetOf(node))
	if words := reasons(r.said[0]); words != "" {
		return a.State.String() + "; " + words
	}
	return a.State.String()
}

func registered(t *testing.T, test func(r *registry)) {
	run(t, func(w *world) {
		r := &registry{world: w, seeker: &seeker{device: w.bmc, without: map[string]bool{}}, all: map[string]fence.Machine{}, ids: map[string]string{}, owners: map[string]string{}}
		r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1")
		r.says("n2", "u2", uuid2, "aws:///z/i-2", "id2")
		w.levels = agent.Levels{{{Agent: r.seeker, Timeout: 10 * time.Second}}}
		r.f = w.fencer("a")
		r.f.CSINodes = r
		r.f.Machines = func() []fence.Machine {
			r.lock.Lock()
			defer r.lock.Unlock()
			return slices.SortedFunc(maps.Values(r.all), func(a, b fence.Machine) int { return strings.Compare(a.NodeName, b.NodeName) })
		}
		test(r)
	})
}

// The hole: a kubelet claims a healthy node's machine and falls silent. Neither machine is
// acted on by what it claims, and the other one can be cut off as before.
func TestNoKubeletHasAnotherMachineSwitchedOff(t *testing.T) {
	const since = ": the node says " + uuid2 + " since, and was known by " + uuid1 + " first, so that it may be another machine"
	const all = "INSTANCE_ID" + since + "\nNODE_ID" + since + "\nPROVIDER_ID" + since + "\nSYSTEM_UUID" + since
	for _, c := range []struct{ what, system, provider, id, want string }{
		{"all", uuid2, "aws:///z/i-2", "id2", all},
		{"the UUID alone", uuid2, "aws:///z/i-1", "id1", all},
		{"the provider ID", uuid1, "aws:///z/i-2", "id1", "INSTANCE_ID: the node says i-2 since, and was known by i-1 first\n" +
			"PROVIDER_ID: the node says aws:///z/i-2 since, and was known by aws:///z/i-1 first"},
		{"the instance ID, by another provider ID", uuid1, "x/I-2", "id1", "INSTANCE_ID: the node says I-2 since, and was known by i-1 first\n" +
			"PROVIDER_ID: the node says x/I-2 since, and was known by aws:///z/i-1 first"},
		{"the node ID", uuid1, "aws:///z/i-1", "ID2", "NODE_ID: the node says ID2 since, and was known by id1 first"},
	} {
		registered(t, func(r *registry) {
			r.binds()
			r.says("n1", "u1", c.system, c.provider, c.id)
			r.expect("before the next pass, "+c.what, r.off("n1"), c.want)
			r.expect("a question then", r.reads("n1"), "on; "+c.want)
			r.binds()
			if got := r.off("n1"); got == "cut off" {
				r.Errorf("%s: it was cut off", c.what)
			}
			r.expect("a question", r.reads("n1"), "on; "+c.want)
			r.gave = nil
			r.set(true)
			if a, err := r.f.On(r.Context(), r.targetOf("n1"), "back"); err != nil || a.State != agent.Unclear || len(r.gave) > 0 {
				r.Errorf("%s: power was given back: %v %v", c.what, a, err)
			}
			r.expect("the machine's own node", r.off("n2"), "cut off")
		})
	}
}

// The same with what the node has not said before.
func TestALaterClaimantIsNotCutOffByWhatItClaims(t *testing.T) {
	for _, c := range []struct{ what, system, provider, id, want string }{
		{"all", uuid2, "aws:///z/i-2", "id2", "INSTANCE_ID: node n2 was known by i-2 first\nNODE_ID: node n2 was known by id2 first\n" +
			"PROVIDER_ID: node n2 was known by aws:///z/i-2 first\nSYSTEM_UUID: node n2 was known by " + uuid2 + " first"},
		{"the instance ID, by another provider ID", uuid3, "x/I-2", "", "INSTANCE_ID: node n2 was known by I-2 first"},
		{"the instance ID, as a node ID", uuid3, "", "i-2", "NODE_ID: node n2 was known by i-2 first"},
		{"the UUID in other letters", strings.ToUpper(uuid2), "", "", "SYSTEM_UUID: node n2 was known by " + strings.ToUpper(uuid2) + " first"},
		{"the UUID without its form", strings.ReplaceAll(uuid2, "-", ""), "", "", "SYSTEM_UUID: it does not tell machines apart"},
	} {
		registered(t, func(r *registry) {
			r.binds()
			r.says("n3", "u3", c.system, c.provider, c.id)
			r.binds()
			r.expect(c.what, r.off("n3"), c.want)
			r.expect("the machine's own node", r.off("n2"), "cut off")
			// Also while the other says something else, and once its Node is gone.
			r.says("n2", "u2", "", "", "")
			r.binds()
			r.expect(c.what+", which n2 does not say", r.off("n3"), c.want)
			r.leaves("n2")
			r.binds()
			r.expect(c.what+", of a Node that is gone", r.off("n3"), c.want)
			r.says("n2", "u2b", uuid2, "aws:///z/i-2", "id2")
			r.binds()
			r.expect("the machine's own node, registered again", r.off("n2"), "cut off")
		})
	}
}

// What a kubelet says since, of whatever kind, does not keep a newcomer from being bound.
func TestAClaimThatIsNeverBoundIsInNobodysWay(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.says("n1", "u1", uuid3, "aws:///z/i-3", "id3")
		r.says("n3", "u3", uuid3, "aws:///z/i-3", "id3")
		r.binds()
		r.expect("n3", r.bound("n3"), "[03 aws:///z/i-3 id3]")
		r.expect("n3", r.off("n3"), "cut off")
	})
}

// Of two that said it before either was bound nobody is cut off by it, until one alone says it.
func TestNobodyIsCutOffByWhatTwoSaidAtOnce(t *testing.T) {
	registered(t, func(r *registry) {
		r.without["n4"] = true
		r.says("n1", "u1", uuid2, "aws:///z/i-1", "id1")
		r.says("n4", "u4", uuid3, "", "id2")
		r.binds()
		const unbound = ": it is not bound to the node yet: the process that leads and may fence does so, once no other node says it too"
		r.expect("n1", r.bound("n1"), "[ aws:///z/i-1 id1]")
		r.expect("n1", r.off("n1"), "SYSTEM_UUID"+unbound+" (as node n2 does now)")
		r.expect("n2", r.off("n2"), "NODE_ID"+unbound+" (as node n4 does now)\nSYSTEM_UUID"+unbound+" (as node n1 does now)")
		r.expect("a question", r.reads("n1"), "on; SYSTEM_UUID"+unbound)
		r.set(true)
		r.f.forget("n1")
		r.expect("off", r.ask(r.f, r.targetOf("n1")).State, agent.Unclear)
		r.expect("for which nobody seeks", r.bound("n4"), "nothing <nil>")
		r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1")
		r.leaves("n4")
		r.binds()
		r.binds()
		r.expect("n1", r.off("n1"), "cut off")
		r.expect("n2", r.off("n2"), "cut off")
	})
}

// A command does not rest on what a watch has shown: another process may have bound it too,
// and to another kind, as one driver's node ID.
func TestNobodyIsCutOffByWhatIsBoundToTwo(t *testing.T) {
	for _, kind := range []string{record.InstanceID, record.NodeID("another.example.com")} {
		registered(t, func(r *registry) {
			r.binds()
			r.give("n3", record.Identifier{Kind: kind, Value: "I-2"})
			r.expect("n2, while there is no n3", r.off("n2"), "cut off")
			r.says("n3", "u-n3", "", "", "")
			r.expect("n2", r.off("n2"), "INSTANCE_ID: node n3 is known by i-2 as well")
		})
	}
}

// F7: the watch of the CSINodes may be late.
func TestTheNodeIDIsReadLiveBeforeACommand(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.ids["n1"] = "id2"
		r.expect("n1", r.off("n1"), "NODE_ID: the node says id2 since, and was known by id1 first")
		delete(r.ids, "n1") // its driver is just being registered again
		r.expect("n1", r.off("n1"), "cut off")
	})
}

// Everyday sequences, each of which ends without a person.
func TestEverydayNodesCanBeCutOffWithoutAPerson(t *testing.T) {
	for what, sequence := range map[string]func(r *registry){
		"the first start on a cluster": func(r *registry) {},
		"registered again": func(r *registry) {
			r.leaves("n1")
			r.binds()
			r.says("n1", "u1b", uuid1, "aws:///z/i-1", "id1")
		},
		"registered again, which the binder has not seen": func(r *registry) { r.says("n1", "u1b", uuid1, "aws:///z/i-1", "id1") },
		"another machine of the same name": func(r *registry) {
			r.leaves("n1")
			r.says("n1", "u1b", uuid3, "aws:///z/i-3", "id3")
		},
		"reimaged, with other node IDs": func(r *registry) {
			r.leaves("n1")
			r.says("n1", "u1b", uuid1, "aws:///z/i-1", "id1-anew")
		},
		"two machines change their names": func(r *registry) {
			r.leaves("n1")
			r.leaves("n2")
			r.binds()
			r.says("n1", "u1b", uuid2, "aws:///z/i-2", "id2")
			r.binds()
			r.says("n2", "u2b", uuid1, "aws:///z/i-1", "id1")
			r.binds()
			r.expect("n2", r.off("n2"), "cut off")
		},
		"installed anew under another name": func(r *registry) {
			r.leaves("n2")
			r.says("n1", "u1b", uuid2, "aws:///z/i-2", "id2")
		},
		"the first sight is of a Node without IDs": func(r *registry) {
			r.says("n3", "u3", uuid3, "", "")
			r.binds()
			r.says("n3", "u3", uuid3, "aws:///z/i-3", "")
			r.binds()
			r.says("n3", "u3", uuid3, "aws:///z/i-3", "id3")
			r.binds()
			r.expect("n3", r.off("n3"), "cut off")
			r.expect("n3", r.bound("n3"), "[03 aws:///z/i-3 id3]")
		},
		"Windows, whose UUID is in capitals and whose boots are counted": func(r *registry) {
			r.says("n3", "u3", strings.ToUpper(uuid3), "azure:///subscriptions/1/x/n3", "n3")
			r.binds()
			r.expect("n3", r.off("n3"), "cut off")
		},
		"a firmware that spells the UUID otherwise since": func(r *registry) {
			r.says("n3", "u3", "12345678-2222-4333-8444-555555555503", "", "")
			r.binds()
			r.says("n3", "u3", "78563412-2222-3343-8444-555555555503", "", "")
			r.binds()
			r.expect("n3", r.off("n3"), "cut off")
		},
		"its record is removed": func(r *registry) {
			r.server.Delete(ns, record.LeaseName("n1"))
			r.expect("at once", r.off("n1"), "cut off")
		},
		"the scale sets' instance IDs are numbers, which drivers' node IDs are, too": func(r *registry) {
			r.says("n3", "u3", uuid3, "azure:///s/vmss/a/virtualMachines/7", "6")
			r.says("n4", "u4", "", "azure:///s/vmss/b/virtualMachines/8", "7")
			r.binds()
			r.expect("n4", r.off("n4"), "cut off")
			r.expect("n3", r.off("n3"), "cut off")
		},
	} {
		registered(t, func(r *registry) {
			r.binds()
			sequence(r)
			r.binds()
			if got := r.off("n1"); got != "cut off" {
				r.Errorf("%s: %s", what, got)
			}
		})
	}
}

// Everyday sequences that nothing tells from a claim: a person ends them, by deleting the
// Node or with fence bind, and what is said names the way.
func TestEverydayNodesThatWaitForAPerson(t *testing.T) {
	for what, sequence := range map[string]func(r *registry){
		"another machine that keeps the Node": func(r *registry) { r.says("n1", "u1", uuid3, "aws:///z/i-1", "id1") },
		"a driver that renames its node IDs":  func(r *registry) { r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1-anew") },
	} {
		for _, anew := range []bool{true, false} {
			registered(t, func(r *registry) {
				r.binds()
				sequence(r)
				r.binds()
				if got := r.off("n1"); got == "cut off" {
					r.Errorf("%s: it was cut off", what)
				}
				if why, _ := r.f.Withheld(r.Context(), r.targetOf("n1")); !strings.Contains(why, "csi-fencepost fence bind n1 --reason TEXT") {
					r.Errorf("%s: no way out in %q", what, why)
				}
				m := r.all["n1"]
				if anew {
					r.leaves("n1")
					r.says("n1", "u1b", m.SystemUUID, m.ProviderID, m.NodeID)
					r.binds()
				} else if _, err := r.store.Update(r.Context(), "n1", func(rec *record.Record) (bool, error) {
					rec.BindAs(m.NodeUID, record.IdentifiersOf(m, driver), nil, "it is", "alice")
					return true, nil
				}); err != nil {
					r.Fatal(err)
				}
				r.expect(what, r.off("n1"), "cut off")
			})
		}
	}
}

// A machine that was registered under another name while its first Node was gone, and is back
// under that: nothing tells that from a claim, so it is nobody's until one Node is gone, or a
// person says whose it is.
func TestWhatTwoNodesHaveIsNeithersUntilOneIsGone(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.leaves("n2")
		r.says("n3", "u3", uuid2, "", "")
		r.binds()
		r.expect("n3", r.off("n3"), "cut off")
		r.says("n2", "u2b", uuid2, "aws:///z/i-2", "id2")
		for range 2 {
			r.expect("n3", r.off("n3"), "SYSTEM_UUID: node n2 is known by "+uuid2+" as well")
			r.expect("n2", r.off("n2"), "SYSTEM_UUID: node n3 is known by "+uuid2+" as well")
			r.binds()
		}
		r.expect("n3", r.bound("n3"), "[02  ]; systemUUID is n2's")
		r.set(true)
		r.f.forget("n3")
		r.expect("off, of a value that two have", r.ask(r.f, r.targetOf("n3")).State, agent.Unclear)
		r.leaves("n3")
		r.binds()
		r.expect("n2", r.bound("n2"), "[02 aws:///z/i-2 id2]")
		r.expect("n2", r.off("n2"), "cut off")
	})
}

// A new Node of an old name is a newcomer as others are.
func TestWhatANewNodeAndANewcomerSayAtOnceIsNeithers(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.leaves("n1")
		r.says("n1", "u1b", uuid3, "", "")
		r.says("n3", "u3", uuid3, "", "")
		r.binds()
		r.expect("n1", r.bound("n1"), "[01 aws:///z/i-1 id1]")
		r.expect("n3", r.bound("n3"), "nothing <nil>")
		r.leaves("n1")
		r.binds()
		r.expect("n3, alone", r.off("n3"), "cut off")
	})
}

// Of several that say it later none gets it, in whatever order they are looked at.
func TestOfSeveralLaterClaimantsNoneGetsIt(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.says("a1", "a1", uuid2, "", "")
		r.says("n3", "u3", uuid2, "", "")
		r.binds()
		r.leaves("a1")
		r.leaves("n2")
		r.binds()
		r.expect("n3", r.off("n3"), "SYSTEM_UUID: node n2 was known by "+uuid2+" first")
	})
}

// Who waits for what was refused to it is in no newcomer's way either.
func TestAWaitingClaimantIsInNobodysWay(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		r.says("n3", "u3", uuid2, "", "id2")
		r.binds()
		r.leaves("n2")
		r.says("n4", "u4", uuid2, "aws:///z/i-2", "id2") // the machine, under another name
		r.binds()
		r.expect("n4", r.off("n4"), "cut off")
		r.expect("n3", strings.HasPrefix(r.off("n3"), "NODE_ID: node n2 was known by id2 first\nSYSTEM_UUID: "), true)
	})
}

// Of a Node that is gone and was never bound the ledger's word goes, as a person has to force
// it; not where another node has the value.
func TestANodeThatIsGoneAndWasNeverBound(t *testing.T) {
	for system, want := range map[string]string{uuid3: "cut off", uuid2: "not"} {
		registered(t, func(r *registry) {
			r.binds()
			gone := Target{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: system}
			a, err := r.f.Off(r.Context(), gone, "silent", true)
			got := "not"
			if _, offs := r.counts(); offs == 1 && err == nil && a.State == agent.Off {
				got = "cut off"
			}
			r.expect(system, got, want)
		})
	}
	// Nor is it read by what another node has, or says, by somebody's question about it: what reads as
	// off there would be taken for this machine, which may run.
	for says, is := range map[*Target]bool{
		{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: uuid3}:                             true,
		{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: uuid2}:                             false,
		{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: uuid3, ProviderID: "aws:///z/i-3"}: true,
		{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: uuid3, ProviderID: "aws:///z/i-2"}: false,
		{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: uuid3, ProviderID: "aws:////i-2"}:  false, // as some agents take it, too
		{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: uuid3, NodeID: "id2"}:              false,
	} {
		for what, is := range map[string]bool{"bound": is, "said": is, "nobody's, as far as is seen yet": false} {
			for _, kinds := range [][]string{nil, {agent.VarSystemUUID}, {agent.VarProviderID}, {agent.VarNodeID}} {
				registered(t, func(r *registry) {
					if what == "bound" {
						r.binds()
					}
					if r.kinds = kinds; strings.HasPrefix(what, "nobody's") {
						r.unseen("n1")
						r.unseen("n2")
					}
					named := map[string]string{agent.VarSystemUUID: says.SystemUUID, agent.VarProviderID: says.ProviderID, agent.VarNodeID: says.NodeID}
					if len(kinds) == 1 && (named[kinds[0]] == "" || kinds[0] == agent.VarSystemUUID && says.SystemUUID == uuid3 && !is) {
						return // that agent has nothing to go by, or what is right
					}
					r.set(true)
					a := r.ask(r.f, *says)
					r.expect(fmt.Sprintf("%+v by %s, the others' %s", *says, kinds, what), a.State == agent.Off, is)
					r.set(false)
					r.f.forget("n3")
					r.expect("on is heard", r.ask(r.f, *says).State, agent.On)
				})
			}
		}
	}
	// Of scale sets and Proxmox's hosts the instance IDs count alike: what is bound is enough.
	registered(t, func(r *registry) {
		r.says("n1", "u1", uuid1, "azure:///one/0", "id1")
		r.says("n2", "u2", uuid2, "azure:///two/0", "id2")
		r.binds()
		r.kinds = []string{agent.VarProviderID}
		gone := r.targetOf("n1")
		gone.SystemUUID, gone.ProviderID = uuid1, "azure:///one/0"
		r.leaves("n1")
		if a, err := r.f.Off(r.Context(), gone, "silent", true); a.State != agent.Off || err != nil {
			r.Error(a, err)
		}
	})
	// What was bound of it is not given up with its Node.
	registered(t, func(r *registry) {
		r.binds()
		gone := r.targetOf("n1")
		gone.SystemUUID = uuid3
		r.leaves("n1")
		if a, err := r.f.Off(r.Context(), gone, "silent", true); a.State == agent.Off || !strings.Contains(fmt.Sprint(err), "was known by "+uuid1) {
			r.Error(a, err)
		}
	})
}

// R1: nor by what another node says late, or since: that is no claim of that node, and may be its machine
// all the same.
func TestANodeThatIsGoneIsNotReadByWhatAnotherOnlySays(t *testing.T) {
	for what, c := range map[string]struct {
		change func(r *registry)
		asks   Target
	}{
		"late, as its own Node of before was there": {func(r *registry) {
			r.says("n3", "u3", uuid3, "aws:///z/i-2", "x")
			r.binds()
			r.leaves("n2")
		}, Target{ProviderID: "aws:///z/i-2"}},
		"late, and the question spells it otherwise": {func(r *registry) {
			r.says("n3", "u3", uuid3, "aws:///z/i-2", "x")
			r.binds()
			r.leaves("n2")
		}, Target{ProviderID: "aws:////i-2"}},
		"late, and who had it first has just gone": {func(r *registry) {
			r.says("n3", "u3", uuid3, "aws:///z/i-2", "x")
			r.binds()
			r.server.DeleteNode("n2")
		}, Target{ProviderID: "aws:///z/i-2"}},
		"an earlier machine's, as a person said": {func(r *registry) {
			r.changeOf("n2", func(rec *record.Record) {
				rec.BindAs("u2", record.IdentifiersOf(r.all["n2"], driver), map[string]string{record.ProviderID: record.EarlierMachine, record.InstanceID: record.EarlierMachine}, "restored", "ada")
			})
		}, Target{ProviderID: "aws:///z/i-2"}},
		"since, by its driver": {func(r *registry) { r.says("n2", "u2", uuid2, "aws:///z/i-2", "id2-anew") }, Target{NodeID: "id2-anew"}},
		"since, by its board":  {func(r *registry) { r.says("n2", "u2", uuid3, "aws:///z/i-2", "id2") }, Target{SystemUUID: uuid3}},
	} {
		registered(t, func(r *registry) {
			r.binds()
			c.change(r)
			r.binds()
			says := c.asks
			says.Node, says.UID, says.BootID = "n9", "u9", "b9"
			r.set(true)
			r.expect(what, r.ask(r.f, says).State, agent.Unclear)
			r.set(false)
			r.f.forget("n9")
			r.expect(what+", on is heard", r.ask(r.f, says).State, agent.On)
		})
	}
}

// R1: nor by what an earlier machine of its name is known by, which may be off, unless its system UUID says
// that it is that one. R6: under a Node of its own, and registered again, it is read as before.
func TestANodeThatIsGoneIsNotReadByWhatAnEarlierMachineOfItsNameHad(t *testing.T) {
	for what, c := range map[string]struct {
		change func(r *registry)
		asks   Target
		want   agent.State
	}{
		"another machine of the name, which nobody bound": {nil, Target{UID: "u1b", ProviderID: "aws:///z/i-1"}, agent.Unclear},
		"the same, by its driver's name":                  {nil, Target{UID: "u1b", NodeID: "id1"}, agent.Unclear},
		"one of which only the system UUID was bound": {func(r *registry) {
			r.leaves("n1")
			r.says("n1", "u1b", uuid3, "", "")
			r.binds()
		}, Target{UID: "u1b", SystemUUID: uuid3, ProviderID: "aws:///z/i-1"}, agent.Unclear},
		"one whose system UUID another node has, too": {func(r *registry) {
			r.leaves("n1")
			r.says("n3", "u3", uuid1, "", "")
			r.binds()
			r.says("n1", "u1", uuid1, "aws:///z/i-1", "id1")
			r.binds()
			r.leaves("n3")
		}, Target{UID: "u1b", SystemUUID: uuid1, ProviderID: "aws:///z/i-1"}, agent.Unclear},
		"one whose board says no UUID of its own": {func(r *registry) {
			r.changeOf("n1", func(rec *record.Record) {
				m := r.all["n1"]
				m.SystemUUID = ""
				rec.BindAs("u1", append([]record.Identifier{{Kind: record.SystemUUID, Value: "03000200-0400-0500-0006-000700080009"}}, record.IdentifiersOf(m, driver)...), nil, "a new board", "ada")
			})
		}, Target{UID: "u1b", SystemUUID: "03000200-0400-0500-0006-000700080009", ProviderID: "aws:///z/i-1"}, agent.Unclear},
		"the Node to which it was bound":          {nil, Target{UID: "u1", ProviderID: "aws:///z/i-1", NodeID: "id1"}, agent.Off},
		"the same, by all":                        {nil, Target{UID: "u1", SystemUUID: uuid1, ProviderID: "aws:///z/i-1", NodeID: "id1"}, agent.Off},
		"the machine, before it registered again": {again, Target{UID: "u1", SystemUUID: uuid1, ProviderID: "aws:///z/i-1", NodeID: "id1"}, agent.Off},
		"the machine, since it registered again":  {again, Target{UID: "u1b", SystemUUID: strings.ToUpper(uuid1), ProviderID: "aws:///z/i-1", NodeID: "id1"}, agent.Off},
		"the machine, again and not yet bound":    {nil, Target{UID: "u1b", SystemUUID: uuid1, ProviderID: "aws:///z/i-1", NodeID: "id1"}, agent.Off},
	} {
		registered(t, func(r *registry) {
			r.binds()
			if c.change != nil {
				c.change(r)
			}
			r.leaves("n1")
			r.kinds = slices.Sorted(maps.Keys(says(agent.Machine{SystemUUID: c.asks.SystemUUID, ProviderID: c.asks.ProviderID, NodeID: c.asks.NodeID}, driver)))
			if c.asks.ProviderID != "" && c.asks.NodeID == "" {
				r.kinds = []string{agent.VarProviderID}
			}
			c.asks.Node, c.asks.BootID = "n1", "b1"
			r.set(true)
			r.expect(what, r.ask(r.f, c.asks).State, c.want)
		})
	}
}

// R6: while its Node is there what that says now counts, though it is bound of the one before.
func TestANodeThatRegisteredAgainIsReadBeforeThatIsBound(t *testing.T) {
	registered(t, func(r *registry) {
		r.says("n3", "u3", "", "aws:///z/i-3", "id3")
		r.binds()
		r.leaves("n3")
		r.says("n3", "u3b", "", "aws:///z/i-3", "id3")
		r.set(true)
		r.expect("n3", r.ask(r.f, r.targetOf("n3")).State, agent.Off)
	})
}

// again has n1 register again.
func again(r *registry) {
	r.leaves("n1")
	r.says("n1", "u1b", uuid1, "aws:///z/i-1", "id1")
	r.binds()
}

// R1: nor by what tells no machines apart.
func TestANodeThatIsGoneIsNotReadByWhatTellsNoMachinesApart(t *testing.T) {
	for _, system := range []string{strings.ReplaceAll(uuid2, "-", ""), "03000200-0400-0500-0006-000700080009"} {
		registered(t, func(r *registry) {
			r.binds()
			r.set(true)
			r.kinds = []string{agent.VarSystemUUID}
			gone := Target{Node: "n3", UID: "u3", BootID: "b3", SystemUUID: system}
			r.expect(system, r.ask(r.f, gone).State, agent.Unclear)
			r.set(false)
			if a, err := r.f.Off(r.Context(), gone, "silent", true); len(r.sent) > 0 || !strings.Contains(fmt.Sprint(err), "it does not tell machines apart") {
				r.Errorf("%s: %v, %v", system, a, err)
			}
		})
	}
}

// Where no agent seeks nothing is bound, read or withheld.
func TestWhereNoAgentSeeksNothingIsWithheld(t *testing.T) {
	registered(t, func(r *registry) {
		r.plain = true
		r.binds()
		r.expect("n1", r.bound("n1"), "nothing <nil>")
		r.says("n1", "u1", uuid2, "", "id2")
		r.expect("n1", r.off("n1"), "cut off")
	})
}

// A record that cannot be understood binds nothing, keeps nobody from reading the power, and
// keeps no other node waiting.
func TestOfAGarbledRecordNothingIsBound(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		lease := r.server.Lease(ns, record.LeaseName("n1"))
		lease.Annotations[record.Annotation] = "{"
		r.server.Put(lease)
		var garbled *record.GarbledError
		if a, err := r.f.Ask(r.Context(), r.targetOf("n1")); !errors.As(err, &garbled) || a.State != agent.On {
			r.Error(a, err)
		}
		if a, err := r.f.Off(r.Context(), r.targetOf("n1"), "silent", true); !errors.As(err, &garbled) || len(r.sent) > 0 {
			r.Error(a, err)
		}
		r.says("n3", "u3", uuid3, "", "")
		r.binds()
		r.expect("another node", r.off("n3"), "cut off")
	})
}

// Nor is it read as off where it cannot be told from a machine that it claims, however shortly its record
// cannot be understood: what was read then would be kept once it can.
func TestOfARecordThatIsGarbledForAMomentOffCountsForNothing(t *testing.T) {
	registered(t, func(r *registry) {
		r.binds()
		says := r.targetOf("n1")
		says.ProviderID = "aws:///z/i-2"
		r.leaves("n1")
		good := r.server.Lease(ns, record.LeaseName("n1"))
		garbled := good.DeepCopy()
		garbled.Annotations[record.Annotation] = "{"
		r.server.Put(garbled)
		r.set(true)
		r.seeker.meanwhile = func() { r.server.Put(good) }
		if a, err := r.f.Ask(r.Context(), says); a.State == agent.Off {
			r.Errorf("%v, %v", a, err)
		}
		if rec, err := r.store.Get(r.Context(), "n1"); err != nil || rec.Fence(fence.PowerReading, "") != nil {
			r.Errorf("a fence is kept: %+v, %v", rec, err)
		}
	})
}

// What is bound costs nothing while no Node says anything new, and an API server that fails is
// not asked every ten seconds.
func TestTheRecordsAreReadOnlyWhenSomethingIsNew(t *testing.T) {
	registered(t, func(r *registry) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		r.server.SetDown(true)
		tries, machines := atomic.Int32{}, r.f.Machines
		r.f.Machines = func() []fence.Machine { tries.Add(1); return machines() }
		go func() { _ = r.f.Bind(ctx) }()
		time.Sleep(10*bindAgain - time.Second)
		r.expect("tries in ten minutes", tries.Load(), int32(10))
		r.server.SetDown(false)
		time.Sleep(bindAgain)
		r.expect("n1", r.bound("n1"), "[01 aws:///z/i-1 id1]")
		before := r.server.Requests()
		time.Sleep(bindAtLeast - bindAgain)
		r.expect("requests", r.server.Requests(), before)
		r.server.Delete(ns, record.LeaseName("n1"))
		time.Sleep(bindAtLeast)
		r.expect("n1, whose record was removed", r.bound("n1"), "[01 aws:///z/i-1 id1]")
		r.says("n3", "u3", uuid3, "", "")
		time.Sleep(bindEvery + time.Second)
		r.expect("n3", r.bound("n3"), "[03  ]")
	})
}

// What the Node says now is bound, and not what a watch shows late.
func TestWhatIsBoundIsReadLive(t *testing.T) {
	for what, now := range map[string][2]string{"another UUID": {"u3", uuid3}, "another Node": {"u3b", ""}} {
		registered(t, func(r *registry) {
			r.binds()
			r.says("n3", "u3", "", "x/i-3", "")
			late := maps.Clone(r.all)
			r.says("n3", now[0], now[1], "x/i-3", "")
			fresh := r.all
			r.all = late
			r.binds()
			r.all = fresh
			rec, err := r.store.Get(r.Context(), "n3")
			if err != nil || rec.Known().Of(record.SystemUUID).Value != "" || rec.Known().Of(record.ProviderID).NodeUID != now[0] {
				r.Errorf("%s: %+v %v", what, rec.Identity, err)
			}
			r.expect(what, r.off("n3"), "cut off")
		})
	}
}

// seekingWall is an agent that cuts storage and is told what nodes say of themselves.
type seekingWall struct {
	*firewall
	said []agent.Machine
}

func (*seekingWall) Seeks(string) []string { return []string{agent.VarSystemUUID} }

func (s *seekingWall) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	s.said = append(s.said, m)
	return s.firewall.Status(ctx, m)
}

// The machine that had the name before is not found by what the new one is known by.
func TestWhatAnEarlierMachineWasKnownByIsWithheldOnceTheNameIsAnothers(t *testing.T) {
	cutOff(t, func(w *world, wall *firewall, _ Target) {
		target := w.registered("u2", "b2", otherSystem, "192.0.2.9")
		_, err := w.store.Update(w.Context(), "n1", func(r *record.Record) (bool, error) {
			return r.Bind("u2", record.IdentifiersOf(fence.Machine{SystemUUID: otherSystem, NodeID: "id1"}, driver), func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} }), nil
		})
		w.succeeds(err)
		s := &seekingWall{firewall: wall}
		w.levels = agent.Levels{{{Agent: s, Timeout: 10 * time.Second}}}
		w.fails(w.lift(target), "is of another machine that had its name")
		asked := false
		for _, m := range s.said {
			asked = asked || m.SystemUUID == "" && m.UID != "u2"
			if m.SystemUUID == oneSystem {
				t.Error("it was looked for by what it was known by")
			}
		}
		w.expect("asked for the one that was cut off", asked, true)
	})
}
