package kubeapi

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// abandonedAfter is when csi-fencepost takes a pending unpublish of the node that
// asks for the volume for abandoned.
const abandonedAfter = 2 * time.Minute

// The VolumeAttachment of a pending unpublish was removed by hand and made again:
// nobody will repeat the unpublish. This is the first file, because it takes
// longest.
func TestAnAbandonedUnpublishOfTheNodeThatAsksIsFinishedInTheEnd(t *testing.T) {
	r := newRig(t, "abandoned", bed.StageOptions{})
	v, n := r.volume("v"), r.node("n")
	r.attach(v, n)
	r.letGo(v, n)
	r.Array.Inject(array.Fault{Method: array.Unpublish, Volume: v.Handle, Do: array.Fail, Code: codes.Internal, Message: "throttled", Times: 1})
	r.wantError(r.unpublish(v.Handle, n), codes.Internal, "throttled")
	r.gone(v, n)
	r.attachment(v, n)
	r.settle()
	first := time.Now()
	for {
		err := r.publish(v.Handle, n)
		if err == nil {
			break
		}
		r.wantError(err, codes.Aborted, n.name, "["+string(fence.TargetLeaving)+"]")
		if time.Since(first) > abandonedAfter+15*time.Second {
			t.Fatalf("still pending after %s", time.Since(first))
		}
		time.Sleep(2 * time.Second)
	}
	if waited := time.Since(first); waited < abandonedAfter-time.Second {
		t.Errorf("taken for abandoned after %s: a call of another process may have been under way", waited)
	}
	r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id, "unpublish "+n.id, "publish "+n.id)
	r.wantState(v, n, fence.Publishing)
	r.wantAttached(v.Handle, n)
}
