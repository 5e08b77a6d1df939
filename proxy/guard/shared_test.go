package guard_test

import (
	"context"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
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

// One that was let go without proof counts again once it lives.
func TestAPublishForManyLooksAtOneThatWasForwardedWithoutProof(t *testing.T) {
	r := forwarded(t)
	r.Must(r.ShareTo("next", manyWrite))
	r.Lives["old"] = fence.Alive
	r.Refused(r.ShareTo("next", manyWrite), codes.FailedPrecondition, "node old")
}

// Neither sees the other: the ledger does not have the one yet, and the other's
// VolumeAttachment may be too new.
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
