package failover

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// As a StatefulSet's pod: somebody deletes it by force and it is made again
// under its name, after the node's pods were listed and before they are deleted.
func TestAPodThatIsBackUnderItsNameIsNotDeleted(t *testing.T) {
	w := newWorld(t)
	w.volume("a", w.driver, nil)
	w.volume("b", w.driver, nil)
	old := w.pod("a", w.n1, nil, "a")
	w.pod("b", w.n1, nil, "b")
	w.beforeTaint(func() {
		at := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		if err := w.api.CoreV1().Pods(w.ns).Delete(context.Background(), "a", at); err != nil {
			t.Error(err)
			return
		}
		w.pod("a", "", nil, "a")
	})
	w.fencer.reads(agent.Off)
	w.start()
	w.lives(w.n1, false)
	w.eventually("the node's other pod is gone", func() bool { return !w.has("b") })
	w.never("the new pod was deleted", 2*time.Second, func() bool { return !w.has("a") })
	now, err := w.api.CoreV1().Pods(w.ns).Get(context.Background(), "a", metav1.GetOptions{})
	if err != nil || now.UID == old.UID {
		t.Errorf("the pod of that name: %v, UID %s, the old one's %s", err, now.UID, old.UID)
	}
}
