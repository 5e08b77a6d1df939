package guard_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// A volume from before the installation, whose VolumeAttachment a person has stripped: the
// silent node's list is all that names it, and goes with its Node.
func TestWhomAPublishIsRefusedForIsWrittenDownBeforeItsNodeGoes(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	r.Lists("old", true, false)
	r.Lives["old"] = fence.Stale
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]")
	r.WantHolder("old", fence.Held)
	token := r.Ledger().Get(guardrig.ID("old")).Token
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]")
	if e := r.Ledger().Get(guardrig.ID("old")); e.Token != token || e.NodeUID == "" || e.SystemUUID == "" {
		t.Errorf("written down anew, or without its machine: %+v", e)
	}
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Lives["old"] = fence.Unknown
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	r.Called()
	// It is the kubelet's word, as ever, that ends it.
	r = guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	r.Lists("old", true, false)
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Lists("old", false, false)
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-old", "publish id-next")
}

// Where the guard has kept a ledger, a node that lists the volume in use mostly waits for it.
// Once it dies and its Node is deleted it blocks nobody; one to which it was attached does.
func TestANodeThatMayOnlyWantTheVolumeIsNotWrittenDown(t *testing.T) {
	for _, attached := range []string{"", "volumesAttached", "VolumeAttachment"} {
		r := guardrig.New(t, fence.Policy{})
		for _, node := range []string{"old", "next", "first"} {
			r.Node(node, guardrig.HourAgo)
		}
		r.Attachment("first", time.Time{})
		r.Must(r.PublishTo("first"))
		r.Attachment("first", guardrig.Now)
		r.Must(r.UnpublishFrom(guardrig.ID("first")))
		r.Stripped("first")
		r.Lists("old", true, attached == "volumesAttached")
		if attached == "VolumeAttachment" {
			r.Attached("old")
		}
		r.Lives["old"] = fence.Stale
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]")
		if e := r.Ledger().Get(guardrig.ID("old")); (e != nil) != (attached != "") {
			t.Errorf("attached by %q: the ledger says %+v", attached, e)
		}
	}
}

// Where the API server does not take it, the publish is refused all the same.
func TestAPublishIsRefusedThoughTheHolderCannotBeWrittenDown(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	r.Must(r.PublishTo("next"))
	r.Node("old", guardrig.HourAgo)
	r.Lists("old", true, false)
	r.Broken("patch", "persistentvolumes")
	before := r.Ledger().String()
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	if after := r.Ledger().String(); after != before {
		t.Errorf("the ledger was %s, and is %s", before, after)
	}
}
