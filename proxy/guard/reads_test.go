package guard

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// What the watch saw begins a judgement. That it is still so is read after all else.
func TestALeaseThatTheWatchIsBehindOfVoidsWhatIsBoundToIt(t *testing.T) {
	r := dead(t)
	r.lease("old", "8")
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition)
	r.called()
	r.watched = "8"
	r.must(r.unpublish(id("old")))
	r.called("unpublish id-old")
}

// A person's taint is bound to the lease for good: to the one that there is.
func TestATaintIsNotBoundToWhatTheWatchIsBehindOf(t *testing.T) {
	r := dead(t)
	r.taint("old")
	r.lease("old", "8")
	r.must(r.unpublish(id("old")))
	r.called("unpublish id-old")
}

// In a storm each of them is one request for each volume.
func TestADeadNodeIsReadOnceForEachCall(t *testing.T) {
	r := dead(t)
	r.look()
	r.client.ClearActions()
	r.must(r.unpublish(id("old")))
	for resource, want := range map[string]int{"nodes": 1, "leases": 2, "persistentvolumes": 1} { // the lease and the record
		if got := r.reads(resource); len(got) != want {
			t.Errorf("an unpublish read %s %q, want %d", resource, got, want)
		}
	}
	r.stripped("old")
	r.attachment("next", time.Time{})
	r.client.ClearActions()
	r.must(r.publish("next"))
	for resource, want := range map[string]int{"nodes": 2, "leases": 2, "persistentvolumes": 2} { // of the old one, only whether it lists the volume
		if got := r.reads(resource); len(got) != want {
			t.Errorf("a publish read %s %q, want %d", resource, got, want)
		}
	}
}
