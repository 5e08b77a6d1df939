package guard_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// What the watch saw begins a judgement. That it is still so is read after all else.
func TestALeaseThatTheWatchIsBehindOfVoidsWhatIsBoundToIt(t *testing.T) {
	r := guardrig.Dead(t)
	r.Lease("old", "8")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	r.Called()
	r.Watched = "8"
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old")
}

// A person's taint is bound to the lease for good: to the one that there is.
func TestATaintIsNotBoundToWhatTheWatchIsBehindOf(t *testing.T) {
	r := guardrig.Dead(t)
	r.Taint("old")
	r.Lease("old", "8")
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old")
}

// In a storm each of them is one request for each volume.
func TestADeadNodeIsReadOnceForEachCall(t *testing.T) {
	r := guardrig.Dead(t)
	r.Look()
	r.Client.ClearActions()
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	for resource, want := range map[string]int{"nodes": 1, "leases": 2, "persistentvolumes": 1} { // the lease and the record
		if got := r.Reads(resource); len(got) != want {
			t.Errorf("an unpublish read %s %q, want %d", resource, got, want)
		}
	}
	r.Stripped("old")
	r.Attachment("next", time.Time{})
	r.Client.ClearActions()
	r.Must(r.PublishTo("next"))
	for resource, want := range map[string]int{"nodes": 2, "leases": 2, "persistentvolumes": 2} { // of the old one, only whether it lists the volume
		if got := r.Reads(resource); len(got) != want {
			t.Errorf("a publish read %s %q, want %d", resource, got, want)
		}
	}
}
