package failover

import (
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
	c := New(Options{Client: client, Nodes: watch.Index("a.example"), Lives: tracker, Events: seen, Metrics: seen, SuspectAfter: time.Minute, Records: store,
		Sources: []evidence.Source{evidence.Confirmations(evidence.Records{Store: store, Actor: "test"})},
		Fencer:  &scripted{nodes: client.CoreV1(), state: agent.Unclear, records: map[string]fencer.Fence{}}})
	for _, ids := range drivers {
		c.Drivers = append(c.Drivers, Driver{ids, watch.Index(ids.Driver)})
	}
	return &worker{Controller: c, name: "gone", wake: make(chan struct{}, 1), said: map[string]string{}, claims: map[string]string{}}
}
