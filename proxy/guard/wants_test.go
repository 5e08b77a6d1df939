package guard_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

var pending = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}}

// wanting is a volume that nobody has: node a lists it in use, and node b asks for it.
func wanting(t *testing.T) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	r.Claimed(guardrig.Claim)
	for _, n := range []string{"a", "b"} {
		r.Node(n, guardrig.HourAgo)
	}
	r.Lists("a", true, false)
	r.Attachment("b", time.Time{})
	return r
}

func TestANodeThatOnlyWantsTheVolumeBlocksNobody(t *testing.T) {
	for _, life := range []fence.Liveness{fence.Alive, fence.Stale, fence.Unwatched} {
		r := wanting(t)
		r.Lives["a"] = life
		r.PodOn("a", "one", guardrig.ByClaim(guardrig.Claim), pending)
		r.PodOn("a", "two", guardrig.ByClaim(guardrig.Claim), corev1.PodStatus{})
		r.Must(r.PublishTo("b"))
		r.Called("publish id-b")
		if l := r.Ledger(); l.Get("id-a") != nil || l.Get("id-b") == nil {
			t.Errorf("the ledger says %s, want b alone", l)
		}
		// Now b has it, whatever its own pods say.
		r.Lists("b", true, false)
		r.PodOn("b", "three", guardrig.ByClaim(guardrig.Claim), pending)
		r.Attachment("a", time.Time{})
		r.Refused(r.PublishTo("a"), codes.FailedPrecondition, "node b", "["+string(fence.HolderAlive)+"]")
		// The unpublish of what it never had is nobody's business.
		r.Calls = nil
		r.Attachment("a", guardrig.Now)
		r.Must(r.UnpublishFrom("id-a"))
		r.Called("unpublish id-a")
	}
}

func TestANodeOfWhichMoreIsKnownDoesNotOnlyWantTheVolume(t *testing.T) {
	ran := func(s corev1.ContainerState, last corev1.ContainerState, restarts int32, id string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: s, LastTerminationState: last, RestartCount: restarts, ContainerID: id}}}
	}
	none, ended := corev1.ContainerState{}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := func(s corev1.PodStatus) func(*guardrig.Rig) {
		return func(r *guardrig.Rig) { r.PodOn("a", "other", guardrig.ByClaim(guardrig.Claim), s) }
	}
	for name, more := range map[string]func(*guardrig.Rig){
		"a pod runs":                                      pod(corev1.PodStatus{Phase: corev1.PodRunning}),
		"a pod has failed":                                pod(corev1.PodStatus{Phase: corev1.PodFailed}),
		"a pod's phase is lost":                           pod(corev1.PodStatus{Phase: corev1.PodUnknown}),
		"a container runs":                                pod(ran(running, none, 0, "")),
		"a container has ended":                           pod(ran(ended, none, 0, "")),
		"a container had ended before":                    pod(ran(none, ended, 0, "")),
		"a container was restarted":                       pod(ran(none, none, 1, "")),
		"a pod's sandbox is there":                        pod(corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}}),
		"a pod has an address":                            pod(corev1.PodStatus{Phase: corev1.PodPending, PodIP: "10.0.0.7"}),
		"a pod's image is pulled":                         pod(ran(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}, none, 0, "")),
		"a pod is being deleted":                          func(r *guardrig.Rig) { terminating(r) },
		"a ledger of before names it":                     func(r *guardrig.Rig) { before(r) },
		"a container was made":                            pod(ran(none, none, 0, "containerd://1")),
		"an init container runs":                          pod(corev1.PodStatus{InitContainerStatuses: ran(running, none, 0, "").ContainerStatuses}),
		"an ephemeral container runs":                     pod(corev1.PodStatus{EphemeralContainerStatuses: ran(running, none, 0, "").ContainerStatuses}),
		"volumesAttached lists it":                        func(r *guardrig.Rig) { r.Lists("a", true, true) },
		"a VolumeAttachment has it":                       func(r *guardrig.Rig) { r.Attachment("a", time.Time{}); r.SaysAttached("a") },
		"the driver lists it":                             func(r *guardrig.Rig) { r.Listed = []string{"id-a"} },
		"nobody may look at its pods":                     func(r *guardrig.Rig) { forbidPods(r) },
		"it has had it by a publish":                      func(r *guardrig.Rig) { r.Lists("a", false, false); r.Must(r.PublishTo("a")); r.Lists("a", true, false) },
		"the volume was released by its claim":            func(r *guardrig.Rig) { r.Unbound() },
		"another PersistentVolume of the disk is of many": func(r *guardrig.Rig) { r.SecondOfMany() },
		"the volume's claim is unbound":                   func(r *guardrig.Rig) { r.Claimed("") },
	} {
		t.Run(name, func(t *testing.T) {
			r := wanting(t)
			r.PodOn("a", "one", guardrig.ByClaim(guardrig.Claim), pending)
			more(r)
			r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node a", "["+string(fence.HolderAlive)+"]")
		})
	}
	for name, pod := range map[string][2]string{"of another claim": {"a", "logs"}, "on another node": {"b", guardrig.Claim}} {
		t.Run("its pod is "+name, func(t *testing.T) {
			r := wanting(t)
			r.PodOn(pod[0], "one", guardrig.ByClaim(pod[1]), pending)
			r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node a", "["+string(fence.HolderAlive)+"]")
		})
	}
}

// before: the PersistentVolume was made anew, with the annotation of the one that was.
func before(r *guardrig.Rig) {
	r.Lists("a", false, false)
	r.Must(r.PublishTo("a"))
	r.Lists("a", true, false)
	r.Change(func(l *ledger.Ledger) { l.PVUID = "uid-before" })
}

// Whichever VolumeAttachment is read first: of two nodes with one ID, to which the volume is
// attached by the name of the one that is gone, and the other waits.
func TestANodeWhoseIDHasTheVolumeDoesNotOnlyWantIt(t *testing.T) {
	for i := range 8 {
		r := wanting(t)
		r.PodOn("a", "one", guardrig.ByClaim(guardrig.Claim), pending)
		r.Attachment("a", time.Time{})
		old := fmt.Sprintf("old-%d", i)
		r.AttachmentWith(old, "id-a", time.Time{})
		r.SaysAttached(old)
		r.Refused(r.PublishTo("b"), codes.FailedPrecondition)
		r.Called()
	}
}

// A machine that was taken over without proof, and is called otherwise now.
func TestANodeWhoseIDTheLedgerNamesDoesNotOnlyWantTheVolume(t *testing.T) {
	r := wanting(t)
	r.Lists("a", false, false)
	r.Node("old", guardrig.HourAgo)
	r.Must(r.PublishTo("old"))
	r.Change(func(l *ledger.Ledger) {
		e := l.Get("id-old")
		e.State, e.Unproven = fence.TakenOver, true
	})
	r.Heir("old", "new")
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Lists("new", true, false)
	r.PodOn("new", "one", guardrig.ByClaim(guardrig.Claim), pending)
	r.Calls = nil
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "node new")
	r.Called()
}

// The pods are read when the leases were: who comes back meanwhile is not taken over.
func TestALeaseIsReadAgainAfterThePods(t *testing.T) {
	for _, heals := range []bool{false, true} {
		r := wanting(t)
		r.PodOn("a", "one", guardrig.ByClaim(guardrig.Claim), pending)
		r.Node("old", guardrig.HourAgo)
		r.Lease("old", "7")
		r.Must(r.PublishTo("old"))
		r.Lists("old", true, false)
		r.Lives["old"], r.Watched, r.Calls = fence.Stale, "7", nil
		r.Guard.Surveyor.Sources = []evidence.Source{off{"old"}}
		r.Client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if heals {
				r.Lives["old"] = fence.Alive
			}
			return false, nil, nil
		})
		err := r.PublishTo("b")
		if heals {
			r.Refused(err, codes.FailedPrecondition, "node old")
			r.Called()
			continue
		}
		r.Must(err)
		r.Called("unpublish id-old", "publish id-b")
	}
}

func terminating(r *guardrig.Rig) {
	now := metav1.NewTime(guardrig.Now)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "ends", DeletionTimestamp: &now, Finalizers: []string{"x"}}, Status: pending}
	pod.Spec.NodeName, pod.Spec.Volumes = "a", []corev1.Volume{guardrig.ByClaim(guardrig.Claim)}
	_, err := r.Client.CoreV1().Pods(pod.Namespace).Create(r.T.Context(), pod, metav1.CreateOptions{})
	r.Must(err)
}

func forbidPods(r *guardrig.Rig) {
	r.Client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
	})
}

// What lists a volume by the name of an ephemeral one wants it, too.
func TestTheClaimOfAnEphemeralVolumeIsNamedAfterItsPod(t *testing.T) {
	r := wanting(t)
	r.Claimed("db-scratch")
	r.PodOn("a", "db", corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}, pending)
	r.Must(r.PublishTo("b"))
	r.Called("publish id-b")
}
