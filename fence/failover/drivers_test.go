package failover

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

func TestOneFenceMovesThePodsOfAllDrivers(t *testing.T) {
	play(t, func(t *testing.T) {
		w := newWorld(t)
		w.second = "second." + w.driver
		w.volume("a", w.driver, nil)
		w.volume("b", w.second, nil)
		w.volume("c", "third."+w.driver, nil)
		w.pod("first", w.n1, nil, "a")
		w.pod("second", w.n1, nil, "b")
		w.pod("both", w.n1, nil, "a", "b")
		w.pod("third", w.n1, nil, "c")
		w.start()
		w.lives(w.n1, false)
		w.eventually("the pods of both are gone", func() bool { return !w.has("first") && !w.has("second") && !w.has("both") })
		w.never("a pod of a driver that is not ours was deleted before the taint had Kubernetes do it", time.Second, func() bool { return !w.has("third") })
		if got := w.fencer.done(); len(got) != 1 || got[0] != "off "+w.n1 {
			t.Errorf("calls: %v, want one off", got)
		}
	})
}

func TestANodeThatHoldsVolumesOfTheSecondDriverAloneIsFenced(t *testing.T) {
	for name, listed := range map[string]bool{"by their VolumeAttachments": false, "by its status": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T) {
				w := newWorld(t)
				w.second = "second." + w.driver
				w.volume("b", w.second, nil)
				w.pod("b", w.n1, nil, "b")
				if listed {
					driver := w.driver
					w.driver = w.second
					w.detach("b")
					w.driver = driver
					w.change(w.n1, func(n *corev1.Node) {
						n.Status.VolumesInUse = []corev1.UniqueVolumeName{(&csi.Identity{Driver: w.second}).UniqueName("h-b")}
					})
				}
				w.start()
				w.lives(w.n1, false)
				w.eventually("its pod is gone", func() bool { return !w.has("b") })
			})
		})
	}
}

// A person's word about a machine without a Node may be bound to the node ID that one driver
// has for it, or speak of one of two machines that had the name.
func TestAWordAboutTheMachineOfOneDriverMovesNothingOfAnother(t *testing.T) {
	for name, tt := range map[string]struct {
		uids      [2]string
		confirmed []record.Machine
		proof     fence.Kind
		only      bool
	}{
		"of which it has none":    {[2]string{"uid-0", ""}, []record.Machine{{NodeUID: "uid-0", NodeID: "id-0"}}, fence.OperatorConfirmation, false},
		"whose ledger names it":   {[2]string{"uid-0", ""}, []record.Machine{{NodeUID: "uid-0"}}, fence.OperatorConfirmation, true},
		"both":                    {[2]string{"uid-0", "uid-0"}, []record.Machine{{NodeUID: "uid-0", NodeID: "id-0"}, {NodeUID: "uid-0", NodeID: "id-1"}}, fence.OperatorConfirmation, false},
		"for all drivers":         {[2]string{"uid-0", "uid-0"}, []record.Machine{{NodeUID: "uid-0"}}, fence.OperatorConfirmation, false},
		"the first alone":         {[2]string{"uid-0", "uid-0"}, []record.Machine{{NodeUID: "uid-0", NodeID: "id-0"}}, "", false},
		"the second alone":        {[2]string{"uid-0", "uid-0"}, []record.Machine{{NodeUID: "uid-0", NodeID: "id-1"}}, "", false},
		"one of two of that name": {[2]string{"uid-0", "uid-1"}, []record.Machine{{NodeUID: "uid-0"}}, "", false},
		"two of that name":        {[2]string{"uid-0", "uid-1"}, []record.Machine{{NodeUID: "uid-0"}, {NodeUID: "uid-1"}}, fence.OperatorConfirmation, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := ofTwoDrivers(t)
			for i := range w.Drivers {
				if tt.uids[i] == "" {
					continue
				}
				w.Drivers[i].Index = ledgers{w.Drivers[i].Index, []observe.Held{{Handle: "h", Attachment: "va", Entry: &ledger.Entry{NodeID: "id-" + string('0'+rune(i)), NodeName: "gone", NodeUID: tt.uids[i], BootID: "boot-1", State: fence.Held}}}}
			}
			for i := range tt.confirmed {
				tt.confirmed[i].BootID = "boot-1"
			}
			if _, err := w.Records.Confirm(t.Context(), "gone", record.Confirmation{By: "ann", Reason: "unplugged", Machines: tt.confirmed}); err != nil {
				t.Fatal(err)
			}
			if tt.only {
				// Of the first one a VolumeAttachment alone is left.
				w.Drivers[0], w.Drivers[1] = w.Drivers[1], w.Drivers[0]
				w.Drivers[0].Index = ledgers{w.Drivers[0].Index, []observe.Held{{Handle: "h", Attachment: "va"}}}
			}
			s := look(t, w)
			if asked := w.target(s).UID; asked != "uid-0" {
				t.Errorf("the agents are asked about machine %q", asked)
			}
			if s.Proof != tt.proof || !s.Holds {
				t.Errorf("proven by %q, want %q; holds: %v", s.Proof, tt.proof, s.Holds)
			}
		})
	}
}

// separate is a Fencer whose agents read each machine by itself, and whose record has one fence of
// the power at a time.
type separate struct {
	*scripted
	off   map[string]bool // by Node UID
	asked []string
	fence *fencer.Fence
}

func (f *separate) Ask(_ context.Context, t fencer.Target) (fencer.Answer, error) {
	f.asked = append(f.asked, t.UID)
	a := fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}, Why: "agent bmc reads " + t.UID + " as on",
		Machine: record.FencedMachine{NodeUID: t.UID, BootID: t.BootID, LeaseRV: t.LeaseRV}}
	if f.off[t.UID] {
		a.State, a.On, a.Fence, a.Agents = agent.Off, nil, "f-"+t.UID, []string{"bmc"}
		f.fence = &fencer.Fence{ID: a.Fence, Node: t.Node, NodeUID: t.UID, BootID: t.BootID, LeaseRV: t.LeaseRV, Kind: a.Kind, Source: "bmc", Vouched: true}
	}
	return a, nil
}

func (f *separate) FencesOf(context.Context, string) ([]fencer.Fence, error) {
	if f.fence == nil {
		return nil, nil
	}
	return []fencer.Fence{*f.fence}, nil
}

// A machine that registered anew, or another under its name, may be what a ledger names of a Node
// that is gone: what is read of one of them says nothing of the others.
func TestEachMachineOfANodeThatIsGoneIsAskedAndHasToBeProven(t *testing.T) {
	for name, tt := range map[string]struct {
		uids  [2][]string // of each driver's ledgers
		off   []string
		asked []string
		proof fence.Kind
	}{
		"one machine":                       {[2][]string{{"u0"}, {"u0"}}, []string{"u0"}, []string{"u0"}, fence.PowerReading},
		"two, of two drivers":               {[2][]string{{"u0"}, {"u1"}}, []string{"u0", "u1"}, []string{"u0", "u1"}, fence.PowerReading},
		"two, of one driver":                {[2][]string{{"u0", "u1"}, nil}, []string{"u0", "u1"}, []string{"u0", "u1"}, fence.PowerReading},
		"three":                             {[2][]string{{"u0", "u1"}, {"u1", "u2"}}, []string{"u0", "u1", "u2"}, []string{"u0", "u1", "u2"}, fence.PowerReading},
		"the first is on":                   {[2][]string{{"u0"}, {"u1"}}, []string{"u1"}, []string{"u0", "u1"}, ""},
		"the second is on":                  {[2][]string{{"u0"}, {"u1"}}, []string{"u0"}, []string{"u0", "u1"}, ""},
		"the second of one driver is on":    {[2][]string{{"u0", "u1"}, nil}, []string{"u0"}, []string{"u0", "u1"}, ""},
		"three, of which the second is off": {[2][]string{{"u0", "u1"}, {"u1", "u2"}}, []string{"u1"}, []string{"u0", "u1", "u2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := ofTwoDrivers(t)
			agents := &separate{scripted: w.Fencer.(*scripted), off: map[string]bool{}}
			agents.covers, w.Fencer = true, agents
			for _, uid := range tt.off {
				agents.off[uid] = true
			}
			for i, uids := range tt.uids {
				var all []observe.Held
				for _, uid := range uids {
					all = append(all, observe.Held{Handle: "h-" + uid, Attachment: "va-" + uid, Entry: &ledger.Entry{NodeID: "id-" + string('0'+rune(i)), NodeName: "gone", NodeUID: uid, BootID: "boot-1", State: fence.Held}})
				}
				w.Drivers[i].Index = ledgers{w.Drivers[i].Index, all}
			}
			last := map[string]bool{}
			for range 6 {
				agents.asked, w.asked = nil, time.Time{}
				if err := w.ask(t.Context(), look(t, w)); err != nil {
					t.Fatal(err)
				}
				last[agents.asked[len(agents.asked)-1]] = true
				slices.Sort(agents.asked)
				if !slices.Equal(agents.asked, tt.asked) {
					t.Fatalf("asked about %v, want %v", agents.asked, tt.asked)
				}
				if s := look(t, w); s.Proof != tt.proof {
					t.Errorf("proven by %q, want %q", s.Proof, tt.proof)
				}
			}
			if len(last) != len(tt.asked) {
				t.Errorf("last asked about were %v: of the others the record never says that they are off", last)
			}
			// The same record, and agents that answer no more: what they said is too old.
			w.asked = time.Time{}
			if s := look(t, w); s.Proof != "" {
				t.Errorf("by answers that are too old it is proven by %q", s.Proof)
			}
			// One was given its power back, or its fence was withdrawn, and nothing is on record.
			agents.fence, w.asked = nil, time.Now()
			if s := look(t, w); s.Proof != "" {
				t.Errorf("without a fence on record it is proven by %q", s.Proof)
			}
		})
	}
}

// Two drivers may have volumes of one handle.
func TestWhatMovedIsOfItsDriver(t *testing.T) {
	w := ofTwoDrivers(t)
	n := aNode("boot-1", corev1.ConditionTrue)
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{w.Drivers[0].IDs.UniqueName("h"), w.Drivers[1].IDs.UniqueName("h")}
	held := []held{{w.Drivers[0], observe.Held{Handle: "h", Attachment: "va"}}, {w.Drivers[1], observe.Held{Handle: "h"}}}
	if got := w.moved(n, held); got.Handle != "h" || got.Driver != w.Drivers[1].IDs.Driver {
		t.Errorf("moved: %+v", got)
	}
	held[1].Attachment = "va-1"
	if got := w.moved(n, held); got != (observe.MovedVolume{}) {
		t.Errorf("moved: %+v, want nothing", got)
	}
}

// ofTwoDrivers is the worker of a node that has no Node, with what people say as its only source.
func ofTwoDrivers(t *testing.T) *worker {
	t.Helper()
	server := apiserver.New(apiserver.Options{})
	client := kubernetes.NewForConfigOrDie(server.Config("test", nil))
	must(t, client.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "records"}})
	tracker := observe.NewTracker(time.Minute, 1)
	drivers := []*csi.Identity{{Driver: "a.example"}, {Driver: "b.example"}}
	watch := watching(t, client, tracker, drivers...)
	store, seen := record.NewStore(client.CoordinationV1(), "records"), &noted{}
	c := New(Options{Client: client, Nodes: watch.Index("a.example"), Lives: tracker, Events: seen, Metrics: seen, Records: store,
		Sources: []evidence.Source{evidence.Confirmations(evidence.Records{Store: store, Actor: "test"})},
		Fencer:  &scripted{nodes: client.CoreV1(), state: agent.Unclear, records: map[string]fencer.Fence{}}})
	for _, ids := range drivers {
		c.Drivers = append(c.Drivers, Driver{ids, watch.Index(ids.Driver)})
	}
	return &worker{Controller: c, name: "gone", wake: make(chan struct{}, 1), said: map[string]string{}, claims: map[string]string{}}
}
