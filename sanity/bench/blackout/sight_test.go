package blackout

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func blank() *sight {
	return &sight{node: "n1", before: map[types.UID]bool{}, gone: map[types.UID]time.Time{}, running: map[string]run{}}
}

func recordLease(t *testing.T, phase record.Phase) *coordinationv1.Lease {
	t.Helper()
	r := record.New("n1")
	r.PutFence(record.Fence{ID: "f1", Kind: fence.PowerReading, Phase: phase, Machine: record.FencedMachine{NodeUID: "u1"}, Actor: "a", StartedAt: "2026-01-01T00:00:00Z", Agents: []string{"bmc"}}, "Fence")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: record.LeaseName("n1")}}
	if err := r.ToLease(lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestOnlyAFenceThatCountsAfterThePowersEndIsTheProof(t *testing.T) {
	w := blank()
	w.recordChanged(recordLease(t, record.Fenced))
	if !w.proven.IsZero() {
		t.Error("proven while the node has power")
	}
	w.powerOff()
	for _, phase := range []record.Phase{record.Fencing, record.Failed, record.Void} {
		if w.recordChanged(recordLease(t, phase)); !w.proven.IsZero() {
			t.Errorf("a fence in phase %s is taken for the proof", phase)
		}
	}
	unvouched := recordLease(t, record.Fenced)
	delete(unvouched.Annotations, record.FencedAnnotation)
	if w.recordChanged(unvouched); !w.proven.IsZero() {
		t.Error("a fence for which nobody vouches is taken for the proof")
	}
	w.recordChanged(recordLease(t, record.Fenced))
	if w.proven.IsZero() {
		t.Error("a fence that counts is not taken for the proof")
	}
}

func TestAPodThatIsBackUnderTheSameNameIsAnother(t *testing.T) {
	pod := func(uid, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	}
	w := blank()
	w.podChanged(pod("old", "n1"))
	w.podGone(cache.DeletedFinalStateUnknown{Obj: pod("old", "n1")})
	waits := pod("new", "n2")
	waits.Status.Phase = corev1.PodPending
	w.podChanged(waits)
	if len(w.gone) != 1 || len(w.running) != 0 {
		t.Fatalf("gone %v, running %v; want the old one gone and none running", w.gone, w.running)
	}
	w.podChanged(pod("new", "n2"))
	began := w.running["db-0"]
	w.podChanged(pod("new", "n2"))
	if began.since.IsZero() || w.running["db-0"] != began || w.settled() != 1 {
		t.Errorf("running since %v, then since %v; %d on the old node", began, w.running["db-0"], w.settled())
	}
	w.podGone(pod("new", "n2"))
	if len(w.running) != 0 {
		t.Error("a pod that was deleted once more still counts as running")
	}
	ends := pod("newer", "n2")
	ends.DeletionTimestamp = &metav1.Time{}
	w.podChanged(pod("newer", "n2"))
	w.podChanged(ends)
	if len(w.running) != 0 {
		t.Error("a pod that is being deleted counts as running")
	}
}

func TestTheNodesEndIsNoticedOnceAndNotBeforeThePowersEnd(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}}}
	w := blank()
	w.nodeChanged(node) // a kubelet that is only starting
	if !w.notReady.IsZero() || !w.tainted.IsZero() {
		t.Fatal("noticed while the node has power")
	}
	w.powerOff()
	w.nodeChanged(node)
	noticed := w.notReady
	w.nodeChanged(node)
	if noticed.IsZero() || w.notReady != noticed || w.tainted.IsZero() {
		t.Errorf("NotReady %v, then %v; tainted %v", noticed, w.notReady, w.tainted)
	}
}
