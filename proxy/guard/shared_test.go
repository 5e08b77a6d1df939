package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

const (
	manyWrite = spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	manyRead  = spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	oneWrites = spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
)

func TestAPublishForManyIsJudgedWhereALedgerNamesASingleWriter(t *testing.T) {
	for _, mode := range []spec.VolumeCapability_AccessMode_Mode{manyWrite, manyRead} {
		r := guardrig.Held(t)
		h := listen(r)
		r.Refused(r.ShareTo("next", mode), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]", "node old (ID id-old) holds it")
		if d := h.decisions[0]; !d.Shared {
			t.Errorf("told as %+v", d)
		}
		r.Lists("old", true, false)
		r.Lives["old"] = fence.Stale
		r.Refused(r.ShareTo("next", mode), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]")
		r.Called()
		r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.PowerReading}}
		r.Attachment("old", guardrig.Now)
		r.Must(r.ShareTo("next", mode))
		r.Called("unpublish id-old", "publish id-next")
		if l := r.Ledger(); len(l.Holders) != 1 || l.Holders[0].NodeName != "old" || l.Holders[0].State != fence.TakenOver {
			t.Errorf("the ledger says %+v, want old taken over and nobody else", l.Holders)
		}
		// What was taken from it stands in nobody's way.
		r.Must(r.ShareTo("next", mode))
		r.Called("unpublish id-old", "publish id-next", "publish id-next")
	}
}

// Nor is it told from the second PersistentVolume that the first has a ledger.
func TestASecondPersistentVolumeForManyIsHeldAgainstTheLedgerOfTheFirst(t *testing.T) {
	r := guardrig.Held(t)
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(t.Context(), guardrig.PVName, metav1.GetOptions{})
	r.Must(err)
	second := pv.DeepCopy()
	second.Name, second.UID, second.Annotations = "a-second", "uid-of-a-second", nil
	_, err = r.Client.CoreV1().PersistentVolumes().Create(t.Context(), second, metav1.CreateOptions{})
	r.Must(err)
	r.Refused(r.ShareTo("next", manyWrite), codes.FailedPrecondition, "node old")
	r.Called()
}

func TestAReaderBesideAWriterBreaksNoPromise(t *testing.T) {
	r := guardrig.Held(t)
	r.Must(r.ShareTo("next", oneWrites))
	r.Called("publish id-next")
}

// Others that have it as one of many do not stand in its way, and no more is asked of
// the API server than the PersistentVolume.
func TestAPublishForManyWithoutASingleWriterIsForwarded(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Many()
	for _, node := range []string{"a", "b", "next"} {
		r.Node(node, guardrig.HourAgo)
		r.Attachment(node, time.Time{})
		r.SaysAttached(node)
		r.Lists(node, true, true)
	}
	r.Lives["a"] = fence.Stale
	h := listen(r)
	r.Look()
	r.Client.ClearActions()
	req := guardrig.PublishOf(guardrig.Handle, guardrig.ID("next"))
	req.VolumeCapability.AccessMode.Mode = manyWrite
	_, err := r.Guard.ControllerPublishVolume(t.Context(), req, r)
	r.Must(err)
	r.Called("publish id-next")
	if n := len(r.Client.Actions()); n != 1 {
		t.Errorf("%d requests, want 1: %v", n, r.Client.Actions())
	}
	if len(h.decisions) != 1 || h.decisions[0].Action != fence.Allow {
		t.Errorf("told %s", h.last()) // so that a refusal of before is forgotten
	}
	// One of them, under a single writer's ledger.
	r.Change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: guardrig.ID("b"), NodeName: "b", NodeUID: "uid-of-b", BootID: "boot-of-b", State: fence.Publishing, Token: "t"})
	})
	r.Refused(r.ShareTo("next", manyWrite), codes.FailedPrecondition, "node b")
	r.Must(r.ShareTo("b", manyWrite))
}

// What stood in its way is what the ledger says, so without that nothing is known.
func TestAPublishForManyWaitsForTheAPIServer(t *testing.T) {
	r := guardrig.Held(t)
	r.Look()
	r.Broken("get", "persistentvolumes")
	h := listen(r)
	req := guardrig.PublishOf(guardrig.Handle, guardrig.ID("next"))
	req.VolumeCapability.AccessMode.Mode = manyWrite
	_, err := r.Guard.ControllerPublishVolume(t.Context(), req, r)
	r.Refused(err, codes.Unavailable, "["+string(fence.APIUnavailable)+"]")
	r.Called()
	if len(h.decisions) != 1 {
		t.Error("not told")
	}
}

func TestAPublishForManyToANodeThatItWasTakenFrom(t *testing.T) {
	taken := func(state fence.State) *guardrig.Rig {
		r := guardrig.New(t, fence.Policy{})
		r.Many()
		r.Node("next", guardrig.HourAgo)
		r.Attachment("next", time.Time{})
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: guardrig.ID("next"), NodeName: "next", NodeUID: "uid-of-next", BootID: "boot-of-next", State: state, Token: "t"})
		})
		return r
	}
	r := taken(fence.TakenOver)
	r.Must(r.ShareTo("next", manyWrite))
	r.Must(r.UnpublishFrom(guardrig.ID("next"))) // not answered for what was taken before
	r.Called("publish id-next", "unpublish id-next")
	for _, state := range []fence.State{fence.Leaving, fence.Released} {
		r := taken(state)
		r.Refused(r.ShareTo("next", manyWrite), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		r.Called()
	}
}

// A node whose unpublish was forwarded without proof (unpublish.unfenced: Forward) is a
// holder again once its lease is renewed and it lists the volume.
func TestAPublishForManyLooksAtOneThatWasForwardedWithoutProof(t *testing.T) {
	r := forwarded(t)
	r.Must(r.ShareTo("next", manyWrite))
	r.Lives["old"] = fence.Alive
	r.Refused(r.ShareTo("next", manyWrite), codes.FailedPrecondition, "node old")
}

// Neither call could see the other: the single writer's is written into the ledger only
// after it was judged, and the VolumeAttachment of the other may be too new for the watch.
func TestAPublishForManyAndOneForASingleWriterAreNotUnderWayTogether(t *testing.T) {
	for _, first := range []spec.VolumeCapability_AccessMode_Mode{manyWrite, spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER} {
		r := guardrig.New(t, fence.Policy{})
		for _, node := range []string{"old", "next"} {
			r.Node(node, guardrig.HourAgo)
		}
		r.Attachment("old", time.Time{})
		r.Look()
		other := manyWrite
		if first == manyWrite {
			other = spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		}
		publish := func(node string, mode spec.VolumeCapability_AccessMode_Mode, during func() error) error {
			req := guardrig.PublishOf(guardrig.Handle, guardrig.ID(node))
			req.VolumeCapability.AccessMode.Mode = mode
			_, err := r.Guard.ControllerPublishVolume(context.Background(), req, acting{Rig: r, publish: during})
			return err
		}
		during := func() error {
			r.Refused(publish("next", other, nil), codes.Aborted, "["+string(fence.OperationPending)+"]")
			if first == manyWrite {
				r.Must(publish("next", manyWrite, nil)) // many may, at once
				r.Must(r.UnpublishFrom(guardrig.ID("next")))
			}
			return nil
		}
		r.Must(publish("old", first, during))
		r.Must(publish("old", first, nil))
	}
}

// To the driver they are one, and what the ledger promised it promised to the other.
func TestAPublishForManyWithABorrowedIDIsJudged(t *testing.T) {
	for _, gone := range []bool{false, true} {
		r := borrowed(t, "evil", "system-evil", "boot-evil", true)
		if gone {
			r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
			r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
			r.Lives["old"] = fence.Unknown
		}
		r.Stripped("old")
		r.AttachmentWith("evil", guardrig.ID("old"), time.Time{})
		r.Refused(r.ShareTo("old", manyWrite), codes.FailedPrecondition, "node old (ID id-old) h")
		r.Called()
		r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.OperatorConfirmation}}
		r.Must(r.ShareTo("old", manyWrite))
		if l := r.Ledger(); len(l.Holders) != 0 {
			t.Errorf("the ledger says %+v, want nothing of a machine that is gone", l.Holders)
		}
	}
}

// It is one of the ways in which people change access modes.
func TestAPublishForManyIsHeldAgainstTheLedgerOfAPersistentVolumeThatWasCreatedAgain(t *testing.T) {
	for what, change := range map[string]func(*ledger.Ledger){
		"again":           func(l *ledger.Ledger) { l.PVUID = "uid-of-before" },
		"another cluster": func(l *ledger.Ledger) { l.PVUID, l.Cluster = "uid-of-before", "another" },
		"taken over":      func(l *ledger.Ledger) { l.PVUID, l.Holders[0].State = "uid-of-before", fence.TakenOver },
	} {
		r := guardrig.Held(t)
		r.Many()
		r.Lives["old"] = fence.Stale
		r.Node("b", guardrig.HourAgo)
		r.Attachment("b", time.Time{})
		r.SaysAttached("b")
		r.Change(change)
		err := r.ShareTo("next", manyWrite)
		if what != "again" {
			r.Must(err) // of another disk, or over
			continue
		}
		r.Refused(err, codes.FailedPrecondition, "["+string(fence.HolderStale)+"]", "node old")
		r.Called()
		r.Lists("old", true, false)
		r.Attachment("old", guardrig.Now)
		r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.PowerReading}}
		r.Must(r.ShareTo("next", manyWrite))
		r.Called("unpublish id-old", "publish id-next")
		if l := r.Ledger(); l.PVUID != "uid-of-pv-1" || len(l.Holders) != 1 || l.Holders[0].State != fence.TakenOver {
			t.Errorf("the ledger says %+v", l)
		}
		r.Must(r.ShareTo("next", manyWrite))
	}
}

// One of many under its own PersistentVolume is no single writer because another of the
// same disk has one: its unpublish is judged, and it is not written down.
func TestOneOfManyIsNotMadeASingleWriter(t *testing.T) {
	for _, named := range []bool{true, false} {
		r := guardrig.New(t, fence.Policy{}) // with a PersistentVolume for one
		pv, err := r.Client.CoreV1().PersistentVolumes().Get(t.Context(), guardrig.PVName, metav1.GetOptions{})
		r.Must(err)
		second := pv.DeepCopy()
		second.Name, second.UID, second.Spec.AccessModes = "pv-many", "uid-of-pv-many", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		_, err = r.Client.CoreV1().PersistentVolumes().Create(t.Context(), second, metav1.CreateOptions{})
		r.Must(err)
		for _, node := range []string{"a", "b", "next"} {
			r.Node(node, guardrig.HourAgo)
			r.Attachment(node, time.Time{})
			r.SaysAttached(node)
			r.Lists(node, true, true)
			if named {
				r.Names(node, "pv-many")
			}
		}
		r.Refused(r.PublishTo("a"), codes.FailedPrecondition, "node b")
		r.Attachment("a", guardrig.Now)
		if named {
			r.Names("a", "pv-many")
		}
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "node a")
		err = r.ShareTo("next", manyWrite)
		if !named {
			r.Refused(err, codes.FailedPrecondition)
			continue
		}
		r.Must(err)
		r.Called("publish id-next")
	}
}

// What the driver alone names is asked but once: whoever writes a ledger has to keep it.
func TestAPublishForManyDoesNotForgetWhomTheDriverAloneNames(t *testing.T) {
	r := guardrig.Held(t)
	r.Many()
	r.Lists("old", false, false)
	r.Stripped("old")
	r.Listed = []string{"id-of-nobody"}
	r.Change(func(l *ledger.Ledger) { l.PVUID = "uid-of-before" })
	r.Refused(r.ShareTo("next", manyWrite), codes.FailedPrecondition, "id-of-nobody")
	r.Called()
}

// A rebuilt or renamed node waits with the ID that the volume is being taken from.
func TestAPublishForManyDoesNotWaitForAnUnpublishThatWaitsForIt(t *testing.T) {
	r := borrowed(t, "zebra", "system-zebra", "boot-zebra", true)
	r.Attachment("old", guardrig.Now)
	r.AttachmentWith("zebra", guardrig.ID("old"), time.Time{})
	r.Guard.Surveyor.Sources = []evidence.Source{off{"old"}}
	r.Must(r.ShareTo("old", manyWrite))
	r.Called("publish id-old")
}

// Kubernetes may take it from a living node.
func TestAnUnpublishIsHeldAgainstTheLedgerOfAPersistentVolumeThatWasCreatedAgain(t *testing.T) {
	r := guardrig.Held(t)
	r.Many()
	r.Change(func(l *ledger.Ledger) { l.PVUID = "uid-of-before" })
	r.Attachment("old", guardrig.Now)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "node old")
	r.Refused(r.UnpublishFrom(""), codes.FailedPrecondition)
	r.Called()
}

// What was written since says who holds it.
func TestALedgerThatIsSetAsideIsNotAskedOnceOneCounts(t *testing.T) {
	r := guardrig.Held(t)
	r.Many()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(t.Context(), guardrig.PVName, metav1.GetOptions{})
	r.Must(err)
	second := pv.DeepCopy()
	second.Name, second.UID = "z-second", "uid-of-z-second"
	_, err = r.Client.CoreV1().PersistentVolumes().Create(t.Context(), second, metav1.CreateOptions{})
	r.Must(err)
	r.Change(func(l *ledger.Ledger) { l.Holders = nil })
	r.Must(r.ShareTo("next", manyWrite))
	r.Called("publish id-next")
}

// Nobody asks that ledger: somebody has to be told that it is there.
func TestAPublishForManyThatPassesTellsOfALedgerThatIsSetAside(t *testing.T) {
	r := guardrig.Held(t)
	r.Many()
	r.Change(func(l *ledger.Ledger) { l.Cluster = "another-cluster" })
	h := listen(r)
	r.Must(r.ShareTo("next", manyWrite))
	r.Called("publish id-next")
	if len(h.aside) != 1 || !strings.Contains(h.aside[0], "written in another cluster") {
		t.Errorf("set aside: %q", h.aside)
	}
}

// The watch has it still.
func TestAPublishForManyOfAVolumeWhosePersistentVolumeIsGone(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	r.Look()
	r.Must(r.Client.CoreV1().PersistentVolumes().Delete(t.Context(), guardrig.PVName, metav1.DeleteOptions{}))
	req := guardrig.PublishOf(guardrig.Handle, guardrig.ID("next"))
	req.VolumeCapability.AccessMode.Mode = manyWrite
	_, err := r.Guard.ControllerPublishVolume(t.Context(), req, r)
	r.Must(err)
	r.Called("publish id-next")
}

// Where one is judged and has to be written down, the others are not.
func TestTheOthersOfManyAreNotAdoptedAsSingleWriters(t *testing.T) {
	r := guardrig.Held(t)
	r.Many()
	pv, err := r.Client.CoreV1().PersistentVolumes().Get(t.Context(), guardrig.PVName, metav1.GetOptions{})
	r.Must(err)
	second := pv.DeepCopy()
	delete(second.Annotations, ledger.Annotation)
	second.Name, second.UID, second.Spec.AccessModes = "pv-one", "uid-of-pv-one", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err = r.Client.CoreV1().PersistentVolumes().Create(t.Context(), second, metav1.CreateOptions{})
	r.Must(err)
	delete(pv.Annotations, ledger.Annotation)
	_, err = r.Client.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{})
	r.Must(err)
	r.Names("old", "pv-one")
	r.Attachment("next", time.Time{})
	r.SaysAttached("next")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "node old")
	if l := r.Ledger(); len(l.Holders) != 1 || l.Holders[0].NodeName != "old" {
		t.Errorf("the ledger says %+v, want old alone", l.Holders)
	}
}

// What it was promised as a single writer it may still be writing to.
func TestAPublishForManyLeavesTheEntryOfAMachineThatRegisteredAnew(t *testing.T) {
	for boot, kept := range map[string]bool{"boot-of-old": true, "boot-2": true, "boot-3": false} {
		r := guardrig.Held(t)
		r.Change(func(l *ledger.Ledger) { l.Holders[0].SystemUUID = "11111111-2222-3333-4444-555555555555" })
		r.RenewUID("old")
		r.Status("old", func(s *corev1.NodeStatus) {
			s.NodeInfo.BootID, s.NodeInfo.SystemUUID = boot, "11111111-2222-3333-4444-555555555555"
			if !kept {
				s.NodeInfo.SystemUUID = "99999999-2222-3333-4444-555555555555"
			}
		})
		if !kept {
			r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.OperatorConfirmation}}
		}
		r.Must(r.ShareTo("old", manyWrite))
		if e := r.Ledger().Get(guardrig.ID("old")); (e != nil) != kept {
			t.Errorf("%s: the ledger says %+v", boot, e)
		}
	}
}
