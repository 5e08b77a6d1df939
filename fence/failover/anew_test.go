package failover

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// registeredAnew is the worker of a node that lives, Ready, in boot-2, and lists
// these volumes, none of which is its own any more; its record has that fence.
func registeredAnew(t *testing.T, f fencer.Fence, inUse ...string) (*worker, *scripted, *noted) {
	t.Helper()
	server, ids := apiserver.New(apiserver.Options{}), &csi.Identity{Driver: "d.example"}
	node := aNode("boot-2", corev1.ConditionTrue)
	node.ObjectMeta = metav1.ObjectMeta{Name: "n1"}
	for _, handle := range inUse {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, ids.UniqueName(handle))
	}
	apiserver.Put(server, node)
	client := kubernetes.NewForConfigOrDie(server.Config("test", nil))
	tracker := observe.NewTracker(time.Minute, 1)
	index := watching(t, client, tracker, ids).Index(ids.Driver)
	f.Node, f.LeaseRV, f.Vouched, f.Driver = "n1", "5", true, ids.Driver
	known, seen := &scripted{nodes: client.CoreV1(), covers: true, driver: ids.Driver, state: agent.On, kind: f.Kind, records: map[string]fencer.Fence{"n1": f}}, &noted{}
	c := New(Options{Client: client, Drivers: []Driver{{ids, index}}, Nodes: synced{index}, Lives: steady{tracker}, Fencer: known, Events: seen, Metrics: seen})
	w := &worker{Controller: c, name: "n1", wake: make(chan struct{}, 1), said: map[string]string{}, claims: map[string]string{}}
	w.answer, w.asked = &fencer.Answer{State: agent.Off, Kind: f.Kind}, time.Now()
	return w, known, seen
}

func TestANodeThatTookTheNameOfAFencedMachineNeedsNoWork(t *testing.T) {
	w, known, _ := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", Kind: fence.PowerReading})
	pause, err := w.pass(t.Context())
	if err != nil || pause != 0 {
		t.Errorf("the next pass is in %s (%v), want none", pause, err)
	}
	if w.seen.status(w).Fenced {
		t.Error("it is said to be fenced")
	}
	if calls := known.done(); len(calls) > 0 {
		t.Errorf("calls: %v", calls)
	}
}

func TestAStorageFenceIsNotLiftedByABootThatThePublishWasBefore(t *testing.T) {
	w, known, seen := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", Kind: fence.StorageFence}, "h-moved")
	if _, err := w.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, err := w.node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if known.did("lift n1") || !known.did("witness n1") || len(n.Annotations) > 0 {
		t.Fatalf("with a moved volume in use: calls %v, annotations %v", known.done(), n.Annotations)
	}
	// Whatever the plan was made of, what moved is read once more.
	s, err := w.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.lift(t.Context(), s); !errors.Is(err, errChanged) || known.did("lift n1") {
		t.Errorf("with a moved volume in use: %v, calls %v", err, known.done())
	}
	// Seen to list it, and to drop it.
	n.Status.VolumesInUse = nil
	if _, err := w.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pass(t.Context()); err != nil || !known.did("lift n1") {
		t.Errorf("with nothing in use any more: %v, calls %v, events %v", err, known.done(), seen.events)
	}
}

// A pod that waits there for a volume that is attached elsewhere is listed like one that uses
// it, for as long as it waits.
func TestWhoKeepsANodeCutOffForLongIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, known, seen := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", Kind: fence.StorageFence}, "h-moved")
		w.AskEvery = time.Hour
		for at := time.Duration(0); at < 2*movedLong; at += movedLong / 4 {
			if pause, err := w.pass(t.Context()); err != nil || pause == 0 || pause > 2*time.Second && at >= movedLong {
				t.Fatalf("the next pass is in %s (%v)", pause, err)
			}
			said := seen.said("FencepostFencingBlocked n1", "node n1 is kept cut off: its kubelet lists volume h-moved of driver d.example in use") > 0
			if said != (at >= movedLong) {
				t.Errorf("after %s: calls %v, events %q", at, known.done(), seen.events)
			}
			time.Sleep(movedLong / 4)
		}
		if len(seen.events) != 1 || !strings.Contains(seen.events[0], "csi-fencepost fence on n1, with --force if it asks") {
			t.Errorf("events %q", seen.events)
		}
	})
}

// R1: two drivers may serve one storage, and with its access back the machine would write to
// what moved of the other, whether or not its own driver revokes access.
func TestAStorageFenceIsNotLiftedWhileTheNodeListsWhatMovedOfAnotherDriver(t *testing.T) {
	const theirs = "kubernetes.io/csi/another.example.com^h-theirs"
	for _, revokes := range []bool{false, true} {
		w, known, seen := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", Kind: fence.StorageFence, Vouched: true})
		w.UnpublishRevokesAccess = revokes
		n, err := w.node(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{theirs, "kubernetes.io/nfs/x"}
		if _, err := w.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s, err := w.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.lift(t.Context(), s); err == nil || known.did("lift n1") || !strings.Contains(strings.Join(seen.events, " "), "volume h-theirs of driver another.example.com") {
			t.Errorf("revokes %v: it is lifted: %v, events %v", revokes, err, seen.events)
		}
		pv := "pv-theirs"
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName("h-theirs", "another.example.com", "n1")},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "another.example.com", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
		if _, err := w.Client.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.liftAt = time.Time{}
		if err := w.lift(t.Context(), s); err != nil || !known.did("lift n1") {
			t.Errorf("revokes %v: where the volume is the node's still: %v", revokes, err)
		}
	}
}

// A kubelet that has just started leaves the list of the one before it for a while.
func TestWhatAKubeletListsBeforeItWasWatchedForLongIsNoWitness(t *testing.T) {
	for name, unlike := range map[string]func(w *worker){
		"its Node was not watched for long":           func(w *worker) { w.Nodes = w.Nodes.(synced).Index },
		"its lease was not seen being renewed for it": func(w *worker) { w.Lives = w.Lives.(steady).Tracker },
	} {
		w, known, _ := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", Kind: fence.StorageFence}, "h-moved")
		unlike(w)
		for range 3 {
			if pause, err := w.pass(t.Context()); err != nil || pause == 0 || pause > 2*time.Second {
				t.Fatalf("%s: the next pass is in %s (%v)", name, pause, err)
			}
		}
		if len(known.done()) > 0 {
			t.Errorf("%s: calls %v", name, known.done())
		}
	}
}

func TestANodeThatRegisteredAnewUnderItsStorageFenceIsToldWhatLiftsIt(t *testing.T) {
	w, known, seen := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", Kind: fence.StorageFence})
	if _, err := w.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(known.done()) > 0 || seen.said("FencepostFencingBlocked n1", "node UID uid-0, boot ID boot-1") != 1 ||
		seen.said("FencepostFencingBlocked n1", "csi-fencepost fence on n1") != 1 || strings.Contains(seen.events[0], "Reboot") {
		t.Errorf("calls %v, events %q", known.done(), seen.events)
	}
}

// The fence is of another machine, whatever addresses this one has.
func TestAFenceOfAnotherMachineIsNotLiftedForTheOneThatHasItsName(t *testing.T) {
	w, known, seen := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", SystemUUID: "aaaa", Kind: fence.StorageFence})
	w.UnpublishRevokesAccess = true
	isAnotherMachine(t, w)
	for range 3 {
		if pause, err := w.pass(t.Context()); err != nil || pause <= errorPause {
			t.Errorf("the next pass is in %s (%v)", pause, err)
		}
	}
	if len(known.done()) > 0 || seen.said("FencepostFencingBlocked n1", "another machine that had its name (node UID uid-0, boot ID boot-1)") != 1 || len(seen.events) != 1 {
		t.Errorf("calls %v, events %q", known.done(), seen.events)
	}
}

func TestALiftThatFailsIsToldAndNotTriedAgainAtOnce(t *testing.T) {
	w, known, seen := registeredAnew(t, fencer.Fence{NodeUID: "uid-0", BootID: "boot-1", Kind: fence.StorageFence})
	w.UnpublishRevokesAccess = true
	known.unliftable = errors.New("the storage says no")
	if _, err := w.pass(t.Context()); !errors.Is(err, known.unliftable) {
		t.Errorf("error %v", err)
	}
	if _, err := w.pass(t.Context()); !errors.Is(err, errLater) || len(known.done()) != 1 {
		t.Errorf("right after: %v, calls %v", err, known.done())
	}
	if seen.said("FencepostFencingBlocked n1", "cannot lift the storage fence of node n1: the storage says no") != 1 {
		t.Errorf("events %q", seen.events)
	}
	w.liftAt = time.Now().Add(-liftPause)
	known.unliftable = nil
	if _, err := w.pass(t.Context()); err != nil || len(known.done()) != 3 {
		t.Errorf("later: %v, calls %v", err, known.done())
	}
}

// ledgers is an index of what they name on a node.
type ledgers struct {
	Index
	held []observe.Held
}

func (l ledgers) HeldBy(string) []observe.Held { return l.held }

func TestAMachineWithoutANodeIsWhatTheLedgersNameWithItsSystem(t *testing.T) {
	w, _, _ := registeredAnew(t, fencer.Fence{Kind: fence.PowerReading})
	w.Drivers[0].Index = ledgers{w.Drivers[0].Index, []observe.Held{{Handle: "h", Entry: &ledger.Entry{NodeID: "id1", NodeUID: "uid-0", BootID: "boot-1", SystemUUID: "aaaa", State: fence.Held}}}}
	if got := w.target(&state{Name: "n1"}); got.UID != "uid-0" || got.BootID != "boot-1" || got.SystemUUID != "aaaa" {
		t.Errorf("%+v", got)
	}
}
