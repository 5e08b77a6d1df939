package guard_test

import (
	"context"
	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// anew: the volume was taken from node old, which was proven off, and has booted since; its kubelet
// lists the volume. Nobody else has it, as far as the ledger tells; next asks for it.
func anew(t *testing.T) *guardrig.Rig {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Must(r.PublishTo("next"))
	r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) })
	r.Stripped("old")
	r.Guard.Surveyor.Sources = nil
	booted(r)
	r.Attachment("next", time.Time{})
	r.Claimed(guardrig.Claim)
	r.Calls = nil
	return r
}

func booted(r *guardrig.Rig) {
	r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "later" })
	r.Lives["old"] = fence.Alive
}

// offIn is a reading of off in a boot of node old.
type offIn string

func (offIn) Name() string { return "test" }

func (boot offIn) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	if q.Holder.NodeID != guardrig.ID("old") {
		return nil, nil
	}
	return []fence.Evidence{{Kind: fence.PowerReading, Source: "test", NodeID: q.Holder.NodeID, NodeUID: q.Holder.NodeUID, BootID: string(boot), LeaseRV: q.LeaseRV}}, nil
}

// releaseOf is a person's word that the node does not use the volume, of the publication of that token.
type releaseOf string

func (releaseOf) Name() string { return "test" }

func (token releaseOf) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	if q.Holder.NodeID != guardrig.ID("old") || q.Holder.Token != string(token) {
		return nil, nil
	}
	return []fence.Evidence{{Kind: fence.VolumeRelease, Source: "test", NodeID: q.Holder.NodeID, NodeUID: q.Holder.NodeUID, BootID: q.Holder.BootID}}, nil
}

// As once etcd was restored to before the volume was given back to it.
func TestWhatATakenOverNodeListsInALaterBootCounts(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*guardrig.Rig)
		want fence.Reason // empty: next gets it, and old is asked for nothing
	}{
		"it lives":                {func(*guardrig.Rig) {}, fence.HolderAlive},
		"it is silent":            {func(r *guardrig.Rig) { r.Lives["old"] = fence.Stale }, fence.HolderStale},
		"it is not watched yet":   {func(r *guardrig.Rig) { r.Lives["old"] = fence.Unwatched }, fence.HolderUnwatched},
		"it has registered again": {func(r *guardrig.Rig) { r.RenewUID("old") }, fence.HolderAlive},
		"another machine has its name and node ID": {func(r *guardrig.Rig) {
			r.RenewUID("old")
			r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID, s.NodeInfo.MachineID = "another", "another" })
		}, fence.HolderAlive},
		"another machine has its name, its node ID and its count of boots": {func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).BootID = "12" })
			r.RenewUID("old")
			r.Status("old", func(s *corev1.NodeStatus) {
				s.NodeInfo.BootID, s.NodeInfo.SystemUUID, s.NodeInfo.MachineID = "12", "another", "another"
			})
		}, fence.HolderAlive},
		"what was read of its power is of the boot before": {func(r *guardrig.Rig) {
			r.Lives["old"], r.Guard.Surveyor.Sources = fence.Stale, []evidence.Source{offIn("boot-of-old")}
		}, fence.EvidenceVoid},
		"a pod on it has it": {func(r *guardrig.Rig) {
			r.PodOn("old", "runs", guardrig.ByClaim(guardrig.Claim), corev1.PodStatus{Phase: corev1.PodRunning})
		}, fence.HolderAlive},
		"a pod on it only waits for it": {func(r *guardrig.Rig) {
			r.PodOn("old", "waits", guardrig.ByClaim(guardrig.Claim), pending)
		}, ""},
		"the ledgers are sealed, so that it only waits": {func(r *guardrig.Rig) {
			r.Lists("old", false, false)
			r.Sealing()
			r.Must(r.UnpublishFrom("id-of-nobody"))
			r.Calls = nil
			r.Lists("old", true, false)
		}, ""},
		"it is the list of the boot before": {func(r *guardrig.Rig) {
			r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-of-old" })
		}, ""},
		"its boot is not known":     {func(r *guardrig.Rig) { r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "" }) }, ""},
		"that of then is not known": {func(r *guardrig.Rig) { r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).BootID = "" }) }, ""},
		"a person has released the volume there before": {func(r *guardrig.Rig) {
			r.Lives["old"] = fence.Stale
			r.Guard.Surveyor.Sources = []evidence.Source{releaseOf(r.Ledger().Get(guardrig.ID("old")).Token)}
		}, fence.HolderStale},
		"its attachment is there, and it may live": {func(r *guardrig.Rig) {
			r.Attachment("old", time.Time{})
			r.SaysAttached("old")
			r.Lives["old"], r.Guard.Surveyor.Sources = fence.Unwatched, []evidence.Source{offIn("later")}
		}, fence.HolderWanted},
		"it was taken without proof, and a pod on it waits": {func(r *guardrig.Rig) {
			r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Unproven = true })
			r.PodOn("old", "waits", guardrig.ByClaim(guardrig.Claim), pending)
		}, fence.HolderAlive},
		"it was released under the attachment that is there": {func(r *guardrig.Rig) {
			r.Attachment("old", time.Time{})
			r.Attachment("old", guardrig.Now)
			r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).ReleasedUnder = "uid-of-va-old" })
		}, ""},
		"it does not list it": {func(r *guardrig.Rig) { r.Lists("old", false, false) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := anew(t)
			c.then(r)
			if c.want == "" {
				r.Must(r.PublishTo("next"))
				r.Called("publish id-next")
				return
			}
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "node old", "["+string(c.want)+"]")
			r.Called()
		})
	}
}

// The unpublish of the VolumeAttachment of before comes late, as after a backoff: it takes nothing
// from the node, and neither the node nor the volume waits for anything. One of all nodes would.
func TestALateUnpublishOfATakenOverNodeThatListsTheVolumeAnewIsAnswered(t *testing.T) {
	r := anew(t)
	r.Attachment("old", time.Time{})
	r.Attachment("old", guardrig.Now)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called()
	r.Refused(r.UnpublishFrom(""), codes.FailedPrecondition, "node old")
	r.Called()
}

// What shows that it is attached again is judged as that of any node that was taken over.
func TestOneThatIsAttachedAnewIsNotUnpublishedWithoutACall(t *testing.T) {
	r := anew(t)
	r.Lists("old", true, true)
	r.Attachment("old", time.Time{})
	r.Attachment("old", guardrig.Now)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Called()
}

// A proof of the later boot takes it once more, and then that is the boot in which it was taken.
func TestATakenOverNodeThatListsTheVolumeAnewIsTakenOnceMore(t *testing.T) {
	r := anew(t)
	r.Lives["old"] = fence.Stale
	r.Guard.Surveyor.Sources = []evidence.Source{offIn("later")}
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-old", "publish id-next")
	if e := r.Ledger().Get(guardrig.ID("old")); e.State != fence.TakenOver || e.BootID != "later" {
		t.Errorf("the ledger says %+v", e)
	}
	r.Guard.Surveyor.Sources, r.Calls = nil, nil
	r.Must(r.PublishTo("next"))
	r.Called("publish id-next")
}

// A machine mounts again after a boot without a publish. It is taken over in the boot in which it
// died, and what it lists from then says nothing.
func TestATakeoverIsOfTheBootInWhichTheMachineDied(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Kubelet = &fence.Process{Key: "of the boot before"} })
	r.Lists("old", true, true)
	booted(r)
	r.Lives["old"] = fence.Stale
	r.Lists("old", true, false)
	r.Attachment("old", guardrig.Now)
	r.Guard.Surveyor.Sources = []evidence.Source{offIn("later")}
	r.Calls = nil
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-old", "publish id-next")
	if e := r.Ledger().Get(guardrig.ID("old")); e.State != fence.TakenOver || e.BootID != "later" || e.Kubelet != nil {
		t.Errorf("the ledger says %+v", e)
	}
	r.Guard.Surveyor.Sources, r.Calls = nil, nil
	r.Must(r.PublishTo("next"))
	r.Called("publish id-next")

	// So it is where the unpublish is judged first.
	r = guardrig.Published(t, fence.Policy{})
	booted(r)
	r.Lives["old"] = fence.Stale
	r.Lists("old", true, false)
	r.Attachment("old", guardrig.Now)
	r.Guard.Surveyor.Sources = []evidence.Source{offIn("later")}
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	if e := r.Ledger().Get(guardrig.ID("old")); e == nil || e.State != fence.TakenOver || e.BootID != "later" {
		t.Errorf("the ledger says %+v", e)
	}
}

// Where it listed nothing when it was taken over there is no list of before.
func TestWhatIsListedFirstAfterATakeoverIsNotOfBefore(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	booted(r)
	r.Lists("old", false, false)
	r.Stripped("old")
	r.Attachment("next", time.Time{})
	r.Must(r.PublishTo("next"))
	r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) })
	r.Lists("old", true, false)
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
}

// A publish for many is not kept from by who lists the volume in use, as each of many does.
func TestAPublishForManyBesideOneThatWasTakenOver(t *testing.T) {
	for _, attached := range []bool{false, true} {
		r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
		r.Must(r.PublishTo("next"))
		r.Stripped("old")
		r.Guard.Surveyor.Sources = nil
		booted(r)
		r.Lists("old", true, attached)
		r.Many()
		err := r.ShareTo("next", spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
		if attached {
			r.Refused(err, codes.FailedPrecondition, "node old")
		} else {
			r.Must(err)
		}
	}
}

// At a seal it is none of whom the ledger would have to tell while it lives: it may wait.
func TestALivingTakenOverNodeThatListsTheVolumeAnewIsNotWrittenDownByTheSeal(t *testing.T) {
	for alive, state := range map[fence.Liveness]fence.State{fence.Alive: fence.TakenOver, fence.Stale: fence.Held} {
		r := anew(t)
		r.Lives["old"] = alive
		r.Sealing()
		r.Must(r.UnpublishFrom("id-of-nobody"))
		if e := r.Ledger().Get(guardrig.ID("old")); e == nil || e.State != state {
			t.Errorf("%s: the ledger says %+v", alive, e)
		}
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "node old")
	}
}

// A Node of the name whose driver has another node ID speaks of that one.
func TestWhatIsListedUnderAnotherNodeIDIsNotOfTheOneThatWasTakenOver(t *testing.T) {
	r := anew(t)
	r.Register("old", "another")
	r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID, s.NodeInfo.MachineID = "another", "another" })
	r.ChangeNode("old", func(n *corev1.Node) { n.UID = types.UID("another") })
	r.Stripped("next")
	r.AttachmentWith("old", "another", time.Time{})
	r.Look()
	_, err := r.Guard.ControllerPublishVolume(t.Context(), guardrig.PublishOf(guardrig.Handle, "another"), r)
	r.Must(err)
}
