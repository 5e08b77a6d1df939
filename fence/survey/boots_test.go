package survey

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// toldOfBoots is an index that is told of the boots of Nodes.
type toldOfBoots struct {
	Index
	heard, silent *bool
}

func (i toldOfBoots) BootedSince(_, _ string, _ *corev1.Node, heard, silent bool) (string, bool) {
	*i.heard, *i.silent = heard, silent
	return "boot-before", true
}

// A boot lasted until the deletion where the API server's stamps say that its kubelet was heard since, or so
// shortly before that no machine boots in between, whatever their resolution; or where the lease is silent.
func TestABootIsKnownToHaveLastedByTheAPIServersStampsOrBySilence(t *testing.T) {
	deletedAt := time.Now().Add(-time.Minute).Truncate(time.Second)
	short := observe.BootTime - fence.StampResolution
	for name, tt := range map[string]struct {
		heardAt time.Time // zero: nobody says
		silent  bool
		heard   bool
	}{
		"heard since":             {heardAt: deletedAt.Add(30 * time.Second), heard: true},
		"heard with the deletion": {heardAt: deletedAt, heard: true},
		"heard just before":       {heardAt: deletedAt.Add(time.Second - short), heard: true},
		"heard before":            {heardAt: deletedAt.Add(-short)},
		"heard long before":       {heardAt: deletedAt.Add(-time.Hour)},
		"nobody says":             {},
		"silent":                  {heardAt: deletedAt.Add(-time.Hour), silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("old", func(n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(deletedAt)}}
				if !tt.heardAt.IsZero() {
					at := metav1.NewTime(tt.heardAt)
					n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Subresource: "status", Time: &at,
						FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`)}}
				}
			})
			w.inLedger(entry("old"))
			w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) {
				at := metav1.NewTime(deletedAt)
				va.DeletionTimestamp = &at
			})
			if tt.silent {
				w.silent = map[string]string{"old": "1"}
			}
			w.look()
			heard, silent := !tt.heard, !tt.silent
			w.Index = toldOfBoots{w.Index, &heard, &silent}
			s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
			w.must(err)
			if heard != tt.heard || silent != tt.silent {
				t.Errorf("heard %t, silent %t; want %t, %t", heard, silent, tt.heard, tt.silent)
			}
			if n := w.holder(s, "id-old").Node; n == nil || n.BootBefore != "boot-before" || !n.BootedSince {
				t.Errorf("%+v", n)
			}
		})
	}
}
