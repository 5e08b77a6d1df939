package guard_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// inUseOnOld: the volume is in use on old, whose lease is 7, and a pod waits on next.
func inUseOnOld(t *testing.T) (*guardrig.Rig, *record.Store) {
	r := guardrig.Held(t)
	store := record.NewStore(r.Client.CoordinationV1(), "csi-fencepost")
	r.Guard.Surveyor.Records = store
	r.Guard.Surveyor.Sources = []evidence.Source{evidence.Releases(evidence.Records{Store: store, Actor: "sidecar"})}
	r.Lease("old", "7")
	r.SaysAttached("old")
	r.Lists("old", true, true)
	return r, store
}

// release is what `csi-fencepost release pv` writes of old as it is now.
func release(r *guardrig.Rig, store *record.Store, life record.Life, lease string) {
	r.T.Helper()
	rel := record.Release{Volume: guardrig.Handle, Driver: guardrig.DriverName, NodeID: guardrig.ID("old"), NodeUID: "uid-of-old", BootID: "boot-of-old", LeaseRV: lease,
		Life: life, Token: r.Ledger().Get(guardrig.ID("old")).Token, By: "ann", Reason: "detached at the array"}
	if life == record.Living {
		rel.Attachment = "uid-of-va-old"
	}
	_, err := store.ReleaseVolume(r.T.Context(), "old", rel)
	r.Must(err)
}

// silent: the node falls silent, and its volume is detached by force.
func silent(r *guardrig.Rig, lease string) {
	r.Lease("old", lease)
	r.Lives["old"], r.Watched = fence.Stale, lease
	r.Lists("old", true, false)
	r.Attachment("old", guardrig.Now)
	r.Calls = nil
}

func TestAReleaseOfASilentNodeCountsAtOnce(t *testing.T) {
	r, store := inUseOnOld(t)
	silent(r, "7")
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]")
	release(r, store, record.Silent, "7")
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-old", "publish id-next")
}

// The word was about an incident that is over: the pod never stopped, and writes on in
// the next partition, about which nobody has said anything.
func TestAReleaseOfAnEarlierIncidentSaysNothingOfThisOne(t *testing.T) {
	for name, between := range map[string]func(*guardrig.Rig){
		"seen by nobody": func(*guardrig.Rig) {},
		"calls see that it lives": func(r *guardrig.Rig) {
			r.Lives["old"] = fence.Alive
			r.Lease("old", "8")
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition)
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
		},
		"it boots, and the pod mounts again without a publish": func(r *guardrig.Rig) { r.Reboot("old", "boot-2") },
	} {
		t.Run(name, func(t *testing.T) {
			r, store := inUseOnOld(t)
			r.Lives["old"], r.Watched = fence.Stale, "7"
			release(r, store, record.Silent, "7")
			between(r)
			silent(r, "2000")
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.EvidenceVoid)+"]", "VolumeRelease (ann) does not prove it fenced")
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
			r.Called()
			got, err := store.Get(t.Context(), "old")
			r.Must(err)
			if got.Releases[0].Void == "" {
				t.Error("that it is void was not written down")
			}
		})
	}
}

// A contested kubelet, looked at by a person.
func TestAReleaseOfALivingNodeCountsUntilTheVolumeIsUsedThereAgain(t *testing.T) {
	contested := func(t *testing.T) (*guardrig.Rig, *record.Store) {
		r, store := inUseOnOld(t)
		r.Unsynced.Store(true)
		r.Attachment("old", guardrig.Now)
		r.Lists("old", true, false)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
		r.Status("old", func(s *corev1.NodeStatus) { // its kubelet has restarted, and forgets
			s.Conditions[0].LastTransitionTime = metav1.NewTime(guardrig.Now.Add(time.Minute))
		})
		r.Lists("old", false, false)
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
		r.Calls = nil
		return r, store
	}
	r, store := contested(t)
	release(r, store, record.Living, "")
	r.Lease("old", "8") // it lives
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old")

	for name, since := range map[string]func(*guardrig.Rig){
		"it is listed":  func(r *guardrig.Rig) { r.Lists("old", true, false) },
		"it has booted": func(r *guardrig.Rig) { r.Reboot("old", "boot-2"); r.Lists("old", true, false) },
		"it is attached anew": func(r *guardrig.Rig) {
			r.Stripped("old")
			r.Attachment("old", time.Time{})
			r.SaysAttached("old")
		},
	} {
		r, store := contested(t)
		release(r, store, record.Living, "")
		since(r)
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition)
		if r.Called(); t.Failed() {
			t.Errorf("%s: the driver was called", name)
		}
	}
}
