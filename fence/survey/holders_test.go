package survey

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// holders as "ID@node UID [sources]".
func holders(s *Survey) []string {
	var all []string
	for i := range s.Holders {
		h := &s.Holders[i]
		all = append(all, fmt.Sprintf("%s@%s %s %v", h.NodeID, h.NodeName, h.NodeUID, h.Sources))
	}
	return all
}

func sameHolders(t *testing.T, s *Survey, want ...string) {
	t.Helper()
	if got := holders(s); !slices.Equal(got, want) {
		t.Errorf("holders\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func withID(id string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) { va.Annotations = map[string]string{csi.NodeIDAnnotation: id} }
}

func attached(va *storagev1.VolumeAttachment) { va.Status.Attached = true }

// named is a VolumeAttachment that is read in the order of its name.
func (w *world) named(name, node string, change ...func(*storagev1.VolumeAttachment)) {
	w.t.Helper()
	va := liveVA(name, liveDriver, node, ofPV("pv-1"))
	for _, c := range change {
		c(va)
	}
	w.put(va)
}

func TestWhoeverIsNamedAnywhereIsAHolder(t *testing.T) {
	w := newWorld(t)
	w.node("a", nil)
	w.node("b", nil)
	w.node("c", listing)
	w.node("d", listingAttached)
	w.inLedger(entry("a"))
	w.attachment("b", "id-b", nil)
	sameHolders(t, w.publish("id-next", "id-e"),
		"id-a@a uid-a [ledger]", "id-b@b uid-b [VolumeAttachment]", "id-c@c uid-c [volumesInUse]", "id-d@d uid-d [volumesAttached]", "id-e@  [published_node_ids]")
}

func TestTwoNodesOfUnknownIDAreTwoHolders(t *testing.T) {
	w := newWorld(t)
	w.named("va-1", "a", attached)
	w.named("va-2", "b", attached)
	got := holders(w.publish("id-next"))
	slices.Sort(got)
	if want := []string{"@a  [VolumeAttachment]", "@b  [VolumeAttachment]"}; !slices.Equal(got, want) {
		t.Errorf("holders %q, want %q", got, want)
	}
}

func TestANodeThatListsTheVolumeAndCannotBeReadIsNotTakenForGone(t *testing.T) {
	w := newWorld(t)
	w.inLedger()
	w.node("c", listing)
	w.look()
	down := errors.New("connection refused")
	w.broken["get nodes/c"] = down
	if s, err := w.Publish(t.Context(), "vol-1", "id-next", nil); !errors.Is(err, down) || s != nil {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestAHolderWithoutANameIsGivenThatOfTheNodeThatHasItsID(t *testing.T) {
	w := newWorld(t)
	w.node("a", nil)
	e := entry("a")
	e.NodeName, e.NodeUID, e.BootID = "", "", ""
	w.inLedger(e)
	sameHolders(t, w.publish("id-next"), "id-a@a  [ledger]")
}

func TestWhatAVolumeAttachmentSaysOfItsHolder(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world)
		want   []string
	}{
		{"it was never published", func(w *world) { w.named("va-1", "unregistered") }, nil},
		{"nor that, but another was", func(w *world) { w.named("va-1", "unregistered"); w.named("va-2", "b", withID("id-b")) }, []string{"id-b@b uid-b [VolumeAttachment]"}},
		{"it is attached, and nobody knows the ID", func(w *world) { w.named("va-1", "unregistered", attached) }, []string{"@unregistered uid-unregistered [VolumeAttachment]"}},
		{"the attacher has not noted the ID yet", func(w *world) { w.named("va-1", "b") }, []string{"id-b@b uid-b [VolumeAttachment]"}},
		{"it was published with the ID of another machine", func(w *world) { w.named("va-1", "b", withID("id-before")) }, []string{"id-before@b  [VolumeAttachment]"}},
		{"one ID under two names", func(w *world) { w.named("va-1", "b", withID("id-b")); w.named("va-2", "c", withID("id-b"), deleted) }, []string{"id-b@b uid-b [VolumeAttachment]"}},
		{"of another driver", func(w *world) { w.put(liveVA("va-1", "other.example.com", "b", ofPV("pv-1"))) }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("b", nil)
			w.node("unregistered", nil)
			w.put(liveCSINode("unregistered", "other.example.com", "x"))
			tt.change(w)
			s := w.publish("id-next")
			sameHolders(t, s, tt.want...)
			for i := range s.Holders {
				if a := s.Holders[i].Attachment; a == nil || !a.DeletedAt.IsZero() || a.Attached != (s.Holders[i].NodeID == "") {
					t.Errorf("VolumeAttachment %+v", a)
				}
			}
		})
	}
}

func TestWhomANodesStatusSpeaksOf(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world)
		want   []string
	}{
		{"of the ledger's machine, whatever its ID is now", func(w *world) {
			w.inLedger(entry("old"))
			w.put(liveCSINode("old", liveDriver, "id-new"))
		}, []string{"id-old@old uid-old [ledger volumesInUse]"}},
		{"of that, not of one that had the name before", func(w *world) {
			e := entry("old")
			e.NodeID, e.NodeUID = "id-before", "uid-before"
			w.inLedger(e, entry("old"))
			w.put(liveCSINode("old", liveDriver, "id-new"))
		}, []string{"id-before@old uid-before [ledger]", "id-old@old uid-old [ledger volumesInUse]"}},
		{"of the machine that took its Node over", func(w *world) {
			w.inLedger(entry("old"))
			w.node("old", func(n *corev1.Node) {
				listing(n)
				n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-2", SystemUUID: "system-2"}
			})
			w.put(liveCSINode("old", liveDriver, "id-new"))
		}, []string{"id-new@old uid-old [volumesInUse]", "id-old@old uid-old [ledger]"}},
		{"of the machine under a new Node", func(w *world) {
			w.inLedger(entry("old"))
			w.node("old", func(n *corev1.Node) { listing(n); n.UID = "uid-2" })
			w.put(liveCSINode("old", liveDriver, "id-new"))
		}, []string{"id-new@old uid-2 [volumesInUse]", "id-old@old uid-old [ledger]"}},
		{"of one that was taken from, and has it again", func(w *world) {
			e := entry("old")
			e.State = fence.TakenOver
			w.inLedger(e)
		}, []string{"id-old@old uid-old [ledger volumesInUse]"}},
		{"while its driver registers anew, of the one that its VolumeAttachment names", func(w *world) {
			w.put(liveCSINode("old", "other.example.com", "x"))
			w.attachment("old", "id-before", nil)
		}, []string{"id-before@old  [VolumeAttachment volumesInUse]"}},
		{"meanwhile not of another node's", func(w *world) {
			w.put(liveCSINode("old", "other.example.com", "x"))
			w.attachment("other", "id-before", nil)
		}, []string{"@old uid-old [volumesInUse]", "id-before@other  [VolumeAttachment]"}},
		{"nor of one of which the ledger knows no machine", func(w *world) {
			w.put(liveCSINode("old", "other.example.com", "x"))
			e := entry("old")
			e.NodeUID, e.BootID, e.SystemUUID = "", "", ""
			w.inLedger(e)
		}, []string{"@old uid-old [volumesInUse]", "id-old@old  [ledger volumesInUse]"}},
		{"of a node that never had the driver", func(w *world) { w.put(liveCSINode("old", "other.example.com", "x")) }, []string{"@old uid-old [volumesInUse]"}},
		{"of both that have the ID and list it", func(w *world) {
			w.node("and", listing)
			w.put(liveCSINode("and", liveDriver, "id-old"))
		}, []string{"id-old@and uid-and [volumesInUse]", "id-old@old uid-old [volumesInUse]"}},
		{"of both that have the ID, not of the one that the ledger has", func(w *world) {
			w.inLedger(entry("old"))
			w.node("and", func(n *corev1.Node) { listing(n); n.Status.NodeInfo.SystemUUID = "" })
			w.put(liveCSINode("and", liveDriver, "id-old"))
		}, []string{"id-old@old uid-old [ledger volumesInUse]", "id-old@and uid-and [volumesInUse]"}},
		{"of one that cannot be told from it, besides", func(w *world) {
			w.inLedger(entry("gone"))
			w.node("old", func(n *corev1.Node) { listing(n); n.Status.NodeInfo.SystemUUID = "" })
			w.put(liveCSINode("old", liveDriver, "id-gone"))
		}, []string{"id-gone@gone uid-gone [ledger]", "id-gone@old uid-old [volumesInUse]"}},
		{"of the same one, renamed", func(w *world) {
			w.inLedger(entry("gone"))
			w.node("old", func(n *corev1.Node) { listing(n); n.Status.NodeInfo.SystemUUID = "system-gone" })
			w.put(liveCSINode("old", liveDriver, "id-gone"))
		}, []string{"id-gone@old uid-old [ledger volumesInUse]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.inLedger()
			w.node("old", listing)
			tt.change(w)
			sameHolders(t, w.publish("id-next"), tt.want...)
		})
	}
}

// A node of another name has the ID of a ledger entry by now, and lists the volume.
func TestWhatTheLedgerSaysOfANodeThatAnotherOneHasTheIDOf(t *testing.T) {
	for state, over := range map[fence.State]bool{fence.Released: true, fence.TakenOver: true, fence.Publishing: false, fence.Held: false, fence.Leaving: false} {
		w := newWorld(t)
		e := entry("before")
		e.NodeID, e.State, e.Contest, e.SystemUUID = "id-now", state, &fence.Contest{}, "system-now"
		w.inLedger(e)
		w.node("now", listing)
		w.attachment("before", "id-now", deleted)
		w.attachment("now", "id-now", attached)
		h := w.holder(w.publish("id-next"), "id-now")
		if h.NodeName != "now" || h.NodeUID != "uid-now" || !h.From(fence.FromVolumesInUse) || !h.From(fence.FromLedger) {
			t.Errorf("%s: holder %+v, want the node that lists it", state, h)
		}
		if over && (h.State != fence.NotInLedger || h.Token != "" || h.Contest != nil || h.BootID != "boot-now") {
			t.Errorf("%s: holder %+v, want one that the ledger says nothing of", state, h)
		}
		if !over && (h.State != state || h.Token != "token-before" || h.Contest == nil || h.BootID != "" || h.Attachment == nil || !h.Attachment.Attached) {
			t.Errorf("%s: holder %+v, want what the ledger says, of the machine that lists it", state, h)
		}
	}
}

// The node that lists it is another machine: what it wants does not hide who holds it.
func TestAnotherMachineThatListsTheVolumeDoesNotTakeTheHoldersPlace(t *testing.T) {
	for _, name := range []string{"anew", "zebra"} { // before and after the holder's
		for _, gone := range []bool{false, true} {
			w := newWorld(t)
			e := entry("before")
			e.NodeID = "id-shared"
			w.inLedger(e)
			if !gone {
				w.node("before", listing)
				w.put(liveCSINode("before", liveDriver, "id-shared"))
			}
			w.node(name, listing)
			w.put(liveCSINode(name, liveDriver, "id-shared"))
			h := w.holder(w.publish("id-next"), "id-shared")
			if h.NodeName != "before" || h.NodeUID != "uid-before" || h.SystemUUID != "system-before" || h.BootID != "boot-before" || !h.Shared || h.From(fence.FromVolumesInUse) == gone {
				t.Errorf("%s, gone: %t: holder %+v", name, gone, h)
			}
		}
	}
}

func TestANodeThatHasLetGoSinceItWasSeenHidesNoOther(t *testing.T) {
	for name, let := range map[string]func(*world){
		"it does not list it any more": func(w *world) { w.node("a", nil) },
		"it is gone":                   func(w *world) { w.gone("a") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a", listing)
			w.node("b", listing)
			w.node("c", listing)
			w.look()
			let(w)
			s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
			w.must(err)
			sameHolders(t, s, "id-b@b uid-b [volumesInUse]", "id-c@c uid-c [volumesInUse]")
		})
	}
}

func TestAVolumeAttachmentThatIsGoneSinceItWasSeenHidesNoOther(t *testing.T) {
	for name, goes := range map[string]func(*world){
		"it is gone": func(w *world) {
			w.must(w.client.StorageV1().VolumeAttachments().Delete(w.t.Context(), "va-1", metav1.DeleteOptions{}))
		},
		"another driver's has its name": func(w *world) {
			va := liveVA("va-1", "other.example.com", "a", ofPV("pv-1"))
			attached(va)
			w.put(va)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("b", nil)
			w.named("va-1", "a", withID("id-a"))
			w.named("va-2", "b", withID("id-b"))
			w.look()
			goes(w)
			s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
			w.must(err)
			sameHolders(t, s, "id-b@b uid-b [VolumeAttachment]")
		})
	}
}

func TestANodeThatListsTheVolumeAndCannotBeToldFromAnotherMachineIsAnError(t *testing.T) {
	w := newWorld(t)
	w.node("old", func(n *corev1.Node) { listing(n); n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-2"} })
	w.inLedger(entry("old"))
	down := errors.New("connection refused")
	w.look()
	w.broken["get csinodes"] = down
	if s, err := w.Unpublish(t.Context(), "vol-1", "id-next"); !errors.Is(err, down) || s != nil {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestWhichNodeAPublishIsFor(t *testing.T) {
	two := func(w *world) { // machines with one ID
		w.node("a", nil)
		w.node("b", nil)
		w.put(liveCSINode("a", liveDriver, "id-x"), liveCSINode("b", liveDriver, "id-x"))
	}
	on := func(node string) ledger.Entry { e := entry(node); e.NodeID = "id-x"; return e }
	tests := []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"nobody has the ID", func(*world) {}, ""},
		{"the one that has the ID", func(w *world) { w.node("x", nil) }, "x"},
		{"the holder, which has no CSINode now", func(w *world) { w.inLedger(on("b")) }, "b"},
		{"one that was renamed", func(w *world) { w.inLedger(on("before")); w.node("x", nil) }, "x"},
		{"the first of two", two, "a"},
		{"the holder of two", func(w *world) { two(w); w.inLedger(on("b")) }, "b"},
		{"the one with a VolumeAttachment", func(w *world) { two(w); w.attachment("b", "id-x", nil) }, "b"},
		{"the one whose VolumeAttachment stays", func(w *world) {
			two(w)
			w.attachment("a", "id-x", deleted)
			w.attachment("b", "", nil)
		}, "b"},
		{"not for the one whose VolumeAttachment has another ID", func(w *world) {
			two(w)
			w.attachment("b", "id-before", nil)
		}, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			s := w.publish("id-x")
			if s.Target.NodeName != tt.want || s.Target.NodeID != "id-x" {
				t.Errorf("target %s on %q, want %q", s.Target.NodeID, s.Target.NodeName, tt.want)
			}
		})
	}
}

func TestWhoHasTheHoldersNodeIDNowAndWhatItWasCalledBefore(t *testing.T) {
	tests := []struct {
		name         string
		change       func(w *world)
		heir, former string
	}{
		{"nobody else", func(*world) {}, "", ""},
		{"another node", func(w *world) { w.node("new", nil); w.put(liveCSINode("new", liveDriver, "id-old")) }, "new", ""},
		{"one whose VolumeAttachment goes", func(w *world) { w.attachment("before", "id-old", deleted) }, "", "before"},
		{"one whose VolumeAttachment stays", func(w *world) { w.attachment("before", "id-old", nil) }, "", ""},
		{"one whose VolumeAttachment of another ID goes", func(w *world) { w.attachment("before", "id-before", deleted) }, "", ""},
		{"its own VolumeAttachment goes", func(w *world) { w.attachment("old", "id-old", deleted) }, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := inUse(t)
			tt.change(w)
			if h := w.holder(w.publish("id-next"), "id-old"); h.Heir != tt.heir || h.Former != tt.former {
				t.Errorf("heir %q, want %q; former %q, want %q", h.Heir, tt.heir, h.Former, tt.former)
			}
		})
	}
	t.Run("of a holder of unknown ID nobody can say", func(t *testing.T) {
		w := newWorld(t)
		w.inLedger()
		w.attachment("old", "", func(va *storagev1.VolumeAttachment) { attached(va) })
		w.attachment("before", "", func(va *storagev1.VolumeAttachment) { attached(va); deleted(va) })
		w.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
		for _, h := range w.publish("id-next").Holders {
			if h.Heir != "" || h.Former != "" {
				t.Errorf("%s: heir %q, former %q", h.NodeName, h.Heir, h.Former)
			}
		}
	})
}

func TestWhenTheDriverIsAskedWhereTheVolumeIs(t *testing.T) {
	repair := func(w *world) { // as a person's repair leaves it
		w.inLedger()
		pv, err := w.client.CoreV1().PersistentVolumes().Get(w.t.Context(), "pv-1", metav1.GetOptions{})
		w.must(err)
		pv.Annotations[ledger.RepairedAnnotation] = fmt.Sprintf(`{"sha256":%q}`, ledger.DigestOf(pv.Annotations[ledger.Annotation]))
		w.put(pv)
	}
	known := func(w *world) { w.inLedger() }
	tests := []struct {
		name     string
		change   func(w *world)
		suspects []string
		asks     int
		want     []string
	}{
		{"there is no ledger", func(*world) {}, nil, 1, []string{"id-a@a uid-a [published_node_ids]", "id-z@  [published_node_ids]"}},
		{"a repair wrote it", repair, nil, 1, []string{"id-a@a uid-a [published_node_ids]", "id-z@  [published_node_ids]"}},
		{"there is a ledger", known, nil, 0, nil},
		{"the driver has pointed at somebody", known, []string{"id-s"}, 1, []string{"id-a@a uid-a [published_node_ids]", "id-s@  [published_node_ids]", "id-z@  [published_node_ids]"}},
		{"it has, and cannot say more", func(w *world) { known(w); w.unable = true }, []string{"id-s"}, 1, []string{"id-s@  [published_node_ids]"}},
		{"there is no driver to ask", func(w *world) { w.Driver = nil }, nil, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a", nil)
			w.listed = []string{"id-a", "", "id-z"}
			tt.change(w)
			sameHolders(t, w.publish("id-next", tt.suspects...), tt.want...)
			if w.asks != tt.asks {
				t.Errorf("asked %d times, want %d", w.asks, tt.asks)
			}
		})
	}
}

func TestAHolderThatOnlyTheDriverListedIsForgottenOnceItDoesNotListItAnyMore(t *testing.T) {
	fromDriver := func(change func(*ledger.Entry)) func(w *world) {
		return func(w *world) {
			e := entry("a")
			e.State, e.From = fence.Held, fence.FromDriver
			if change != nil {
				change(&e)
			}
			w.inLedger(e)
		}
	}
	tests := []struct {
		name   string
		change func(w *world)
		stays  bool
		asks   int
	}{
		{"not listed any more", fromDriver(nil), false, 1},
		{"listed still", func(w *world) { fromDriver(nil)(w); w.listed = []string{"id-a"} }, true, 1},
		{"the driver cannot say", func(w *world) { fromDriver(nil)(w); w.unable = true }, true, 1},
		{"the driver does not answer", func(w *world) { fromDriver(nil)(w); w.listErr = errors.New("unavailable") }, true, 1},
		{"there is no driver to ask", func(w *world) { fromDriver(nil)(w); w.Driver = nil }, true, 0},
		{"somebody else named it", fromDriver(func(e *ledger.Entry) { e.From = "" }), true, 0},
		{"it was published to", fromDriver(func(e *ledger.Entry) { e.State = fence.Publishing }), true, 0},
		{"its VolumeAttachment names it", func(w *world) { fromDriver(nil)(w); w.attachment("a", "id-a", nil) }, true, 0},
		{"its kubelet names it", func(w *world) { fromDriver(nil)(w); w.node("a", listing) }, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a", nil)
			tt.change(w)
			s := w.publish("id-next")
			if got := s.Holder("id-a") != nil; got != tt.stays || (s.Ledger().Get("id-a") != nil) != tt.stays || w.asks != tt.asks {
				t.Errorf("holders %v, ledger %s, asked %d times", holders(s), s.Ledger(), w.asks)
			}
		})
	}
	t.Run("also where nobody asks for the volume", func(t *testing.T) {
		w := newWorld(t)
		fromDriver(nil)(w)
		if s := w.volume(); s.Holder("id-a") != nil {
			t.Errorf("holders %v", holders(s))
		}
	})
	t.Run("a driver that hangs is not waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			fromDriver(nil)(w)
			w.takes = time.Hour
			begun := time.Now()
			if s := w.publish("id-next"); s.Holder("id-a") == nil || time.Since(begun) > 5*time.Second {
				t.Errorf("holders %v after %s", holders(s), time.Since(begun))
			}
		})
	})
	t.Run("and it hides no other that is not listed", func(t *testing.T) {
		w := newWorld(t)
		var all []ledger.Entry
		for _, node := range []string{"a", "b", "c"} {
			e := entry(node)
			e.State, e.From = fence.Held, fence.FromDriver
			all = append(all, e)
		}
		w.inLedger(all...)
		w.listed = []string{"id-b"}
		s := w.publish("id-next")
		if s.Holder("id-a") != nil || s.Holder("id-b") == nil || s.Holder("id-c") != nil {
			t.Errorf("holders %v", holders(s))
		}
	})
}

func TestAStrangerThatTheDriverListsIsNotInTheWayOfItsOwnUnpublish(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world)
		nodeID string
		want   []string
	}{
		{"its own", func(*world) {}, "id-z", []string{"id-y@  [published_node_ids]"}},
		{"that of all nodes", func(*world) {}, "", nil},
		{"another's", func(*world) {}, "id-x", []string{"id-y@  [published_node_ids]", "id-z@  [published_node_ids]"}},
		{"it is a node of the cluster", func(w *world) {
			w.node("z", nil)
		}, "id-z", []string{"id-y@  [published_node_ids]", "id-z@z uid-z [published_node_ids]"}},
		{"another source names it", func(w *world) { w.attachment("z", "id-z", nil) }, "id-z", []string{"id-y@  [published_node_ids]", "id-z@z  [VolumeAttachment published_node_ids]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.listed = []string{"id-y", "id-z"}
			tt.change(w)
			sameHolders(t, w.unpublish(tt.nodeID), tt.want...)
		})
	}
}

func TestWhatAnUnpublishIsAbout(t *testing.T) {
	before := func(state fence.State) func(w *world) { // the machine that had the name, under another ID
		return func(w *world) {
			e := entry("a")
			e.NodeID, e.NodeUID, e.State = "id-before", "uid-before", state
			w.inLedger(e)
		}
	}
	// overAnd: the ID was taken from, and the node was published to under the one
	// before; its VolumeAttachment carries id.
	overAnd := func(id string, change func(*storagev1.VolumeAttachment)) func(w *world) {
		return func(w *world) {
			over, e := entry("a"), entry("a")
			over.State, e.NodeID = fence.TakenOver, "id-before"
			w.inLedger(e, over)
			w.attachment("a", id, change)
		}
	}
	tests := []struct {
		name   string
		change func(w *world)
		nodeID string
		want   string
	}{
		{"the node ID in the ledger", func(w *world) { w.inLedger(entry("a")) }, "id-a", "id-a"},
		{"that, not another one of that name", func(w *world) {
			e := entry("a")
			e.NodeID, e.NodeUID = "id-0", "uid-0"
			w.inLedger(e, entry("a"))
		}, "id-a", "id-a"},
		{"all nodes", before(fence.Publishing), "", ""},
		{"the machine that had the name before", before(fence.Publishing), "id-a", "id-before"},
		{"that, which only a VolumeAttachment names under its own ID", func(w *world) { before(fence.Publishing)(w); w.attachment("a", "id-a", nil) }, "id-a", "id-before"},
		{"not one that was taken from", before(fence.TakenOver), "id-a", "id-a"},
		{"the one whose VolumeAttachment is being deleted, where the ID's own entry is over", overAnd("id-before", deleted), "id-a", "id-before"},
		{"not one whose VolumeAttachment is not", overAnd("id-before", nil), "id-a", "id-a"},
		{"not one whose VolumeAttachment was published under another ID", overAnd("id-c", deleted), "id-a", "id-a"},
		{"not one that the ledger lacks", func(w *world) { w.inLedger(); w.attachment("a", "id-before", nil) }, "id-a", "id-a"},
		{"not one of another name", func(w *world) { w.inLedger(entry("b")) }, "id-a", "id-a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a", nil)
			tt.change(w)
			if got := w.unpublish(tt.nodeID).Subject; got != tt.want {
				t.Errorf("about %q, want %q", got, tt.want)
			}
		})
	}
}
