package guard_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// A node that fell silent is detached from by force; it boots, and a pod of the volume is back there
// before the detach got through. By the VolumeAttachment that is being deleted it mounts nothing, and
// it gets no other one before the detach is done.
func TestAPodThatIsBackAfterABootKeepsNoVolumeThatIsBeingDetached(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(*guardrig.Rig) // the boot
		after  func(*guardrig.Rig)
		gone   bool
	}{
		"its pod waits":                        {nil, nil, true},
		"its controller lists it as attached":  {nil, func(r *guardrig.Rig) { r.Lists("old", true, true) }, true},
		"its driver lists it there":            {nil, func(r *guardrig.Rig) { r.Listed = []string{"id-old"} }, true},
		"its unpublish was begun":              {func(r *guardrig.Rig) { r.Change(func(l *ledger.Ledger) { l.Get("id-old").State = fence.Leaving }) }, nil, true},
		"the taint that forced it is still on": {nil, func(r *guardrig.Rig) { r.Taint("old") }, true},
		"nobody saw it before it booted":       {nil, func(r *guardrig.Rig) { r.Booted.Store(false) }, false},
		"the VolumeAttachment was made anew":   {nil, func(r *guardrig.Rig) { r.Stripped("old"); r.Attachment("old", time.Time{}); r.SaysAttached("old") }, false},
		"it is another machine": {nil, func(r *guardrig.Rig) {
			r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "another" })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := guardrig.New(t, fence.Policy{})
			r.Claimed(guardrig.Claim)
			r.Node("old", guardrig.HourAgo)
			r.Node("next", guardrig.HourAgo)
			r.Must(r.PublishTo("old"))
			r.Lists("old", true, true)
			r.Deleting("old")
			r.SaysAttached("old")
			r.Lives["old"] = fence.Stale
			r.Refused(r.UnpublishFrom("id-old"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]")
			if tt.before != nil {
				tt.before(r)
			}
			r.Reboot("old", "boot-2")
			r.Booted.Store(true)
			r.Lives["old"] = fence.Alive
			r.Lists("old", true, false)
			r.PodOn("old", "back", guardrig.ByClaim(guardrig.Claim), pending)
			if tt.after != nil {
				tt.after(r)
			}
			r.Calls = nil
			if !tt.gone {
				r.Refused(r.UnpublishFrom("id-old"), codes.FailedPrecondition)
				r.Called()
				return
			}
			r.Must(r.UnpublishFrom("id-old"))
			r.Called("unpublish id-old")
			// And it has it again, by the next one.
			r.Listed = nil
			r.Stripped("old")
			r.Attachment("old", time.Time{})
			r.Must(r.PublishTo("old"))
			r.Called("unpublish id-old", "publish id-old")
			if got := r.State("old"); got != fence.Publishing {
				t.Errorf("the ledger says %q", got)
			}
		})
	}
}
