package apiserver

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPutOfAnOldVersionIsAConflictAndChangesNothing(t *testing.T) {
	s, c := newServer(t)
	leases := c.CoordinationV1().Leases(metav1.NamespaceDefault)
	first := must[*coordinationv1.Lease](t)(leases.Create(ctx, aLease("l"), metav1.CreateOptions{}))
	mine, other := first.DeepCopy(), first.DeepCopy()
	other.Spec.HolderIdentity = new("other")
	second := must[*coordinationv1.Lease](t)(leases.Update(ctx, other, metav1.UpdateOptions{}))
	if second.ResourceVersion == first.ResourceVersion || second.UID != first.UID {
		t.Errorf("the update went from %s to %s, UID %s to %s", first.ResourceVersion, second.ResourceVersion, first.UID, second.UID)
	}
	mine.Spec.HolderIdentity = new("mine")
	_, err := leases.Update(ctx, mine, metav1.UpdateOptions{})
	wantReason(t, err, 409, metav1.StatusReasonConflict)
	if now, _ := Find[*coordinationv1.Lease](s, metav1.NamespaceDefault, "l"); *now.Spec.HolderIdentity != "other" || now.ResourceVersion != second.ResourceVersion {
		t.Errorf("the lease is %s's now, version %s", *now.Spec.HolderIdentity, now.ResourceVersion)
	}
}

func TestALeaseIsNotOverwrittenWithoutItsVersion(t *testing.T) {
	_, c := newServer(t)
	leases := c.CoordinationV1().Leases(metav1.NamespaceDefault)
	l := must[*coordinationv1.Lease](t)(leases.Create(ctx, aLease("l"), metav1.CreateOptions{}))
	l.ResourceVersion = ""
	_, err := leases.Update(ctx, l, metav1.UpdateOptions{})
	wantReason(t, err, 422, metav1.StatusReasonInvalid)
}

func TestPutOfADeletedLeaseByItsUIDIsAConflictAndWithoutItCreates(t *testing.T) {
	_, c := newServer(t)
	leases := c.CoordinationV1().Leases(metav1.NamespaceDefault)
	l := must[*coordinationv1.Lease](t)(leases.Create(ctx, aLease("l"), metav1.CreateOptions{}))
	if err := leases.Delete(ctx, "l", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := leases.Update(ctx, l, metav1.UpdateOptions{})
	wantReason(t, err, 409, metav1.StatusReasonConflict)
	was := l.UID
	l.UID = ""
	if again := must[*coordinationv1.Lease](t)(leases.Update(ctx, l, metav1.UpdateOptions{})); again.UID == was {
		t.Errorf("created with the old UID %s", was)
	}
}

func TestPatchTestsHoldOrNothingIsApplied(t *testing.T) {
	s, c := newServer(t)
	pvs := c.CoreV1().PersistentVolumes()
	pv := must[*corev1.PersistentVolume](t)(pvs.Create(ctx, aVolume("pv1"), metav1.CreateOptions{}))
	patch := func(version, value string) error {
		body := fmt.Sprintf(`[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/metadata/annotations","value":{"a":%q}}]`, version, value)
		_, err := pvs.Patch(ctx, "pv1", types.JSONPatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	if err := patch(pv.ResourceVersion, "right"); err != nil {
		t.Fatal(err)
	}
	wantReason(t, patch(pv.ResourceVersion, "wrong"), 422, metav1.StatusReasonInvalid)
	if now, _ := Find[*corev1.PersistentVolume](s, "", "pv1"); now.Annotations["a"] != "right" {
		t.Errorf("the annotation is %q", now.Annotations["a"])
	}
}

func TestMergePatchIsBoundByTheVersionItNames(t *testing.T) {
	s, c := newServer(t)
	nodes := c.CoreV1().Nodes()
	n := Put(s, &corev1.Node{ObjectMeta: meta("n1")})
	taint := func(version string) error {
		body := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"taints":[{"key":"k","value":%q,"effect":"NoSchedule"}]}}`, n.UID, version, version)
		_, err := nodes.Patch(ctx, "n1", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	if err := taint(n.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	wantReason(t, taint(n.ResourceVersion), 409, metav1.StatusReasonConflict)
	_, err := nodes.Patch(ctx, "n1", types.MergePatchType, []byte(`{"metadata":{"uid":"another"}}`), metav1.PatchOptions{})
	wantReason(t, err, 422, metav1.StatusReasonInvalid)
}

func TestAWriteThatChangesNothingIsNone(t *testing.T) {
	s, c := newServer(t)
	n := Put(s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"a": "b"}}})
	after := must[*corev1.Node](t)(c.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{}))
	if after.ResourceVersion != n.ResourceVersion {
		t.Errorf("the version went from %s to %s", n.ResourceVersion, after.ResourceVersion)
	}
}

func TestDeleteHoldsItsPreconditions(t *testing.T) {
	s, c := newServer(t)
	p := Put(s, aPod("p", "n1"))
	pods := c.CoreV1().Pods(metav1.NamespaceDefault)
	err := pods.Delete(ctx, "p", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("another"))}})
	wantReason(t, err, 409, metav1.StatusReasonConflict)
	if err := pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID}}); err != nil {
		t.Fatal(err)
	}
	if _, there := Find[*corev1.Pod](s, metav1.NamespaceDefault, "p"); there {
		t.Error("the pod is still there")
	}
}

func TestAFinalizerHoldsWhatIsDeletedAndNoneCanBeAddedThen(t *testing.T) {
	s, c := newServer(t)
	vas := c.StorageV1().VolumeAttachments()
	va := anAttachment("va")
	va.Finalizers = []string{"external-attacher/d-example"}
	Put(s, va)
	if err := vas.Delete(ctx, "va", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	now := must[*storagev1.VolumeAttachment](t)(vas.Get(ctx, "va", metav1.GetOptions{}))
	if now.DeletionTimestamp == nil {
		t.Fatal("it is not being deleted")
	}
	_, err := vas.Patch(ctx, "va", types.MergePatchType, []byte(`{"metadata":{"finalizers":["external-attacher/d-example","x/y"]}}`), metav1.PatchOptions{})
	wantReason(t, err, 422, metav1.StatusReasonInvalid)
	must[*storagev1.VolumeAttachment](t)(vas.Patch(ctx, "va", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))
	if _, err := vas.Get(ctx, "va", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("with the last finalizer gone: %v", err)
	}
}

func TestAPodHasItsTimeToEndWhichOnlyShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t)
		pods := c.CoreV1().Pods(metav1.NamespaceDefault)
		must[*corev1.Pod](t)(pods.Create(ctx, aPod("p", "n1"), metav1.CreateOptions{}))
		began := time.Now()
		until := func(seconds *int64) time.Duration {
			t.Helper()
			if err := pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: seconds}); err != nil {
				t.Fatal(err)
			}
			return must[*corev1.Pod](t)(pods.Get(ctx, "p", metav1.GetOptions{})).DeletionTimestamp.Sub(began)
		}
		if got := until(nil); got != 30*time.Second {
			t.Errorf("it ends after %s, want 30s", got)
		}
		time.Sleep(5 * time.Second)
		if got := until(new(int64(60))); got != 30*time.Second {
			t.Errorf("asked for more it ends after %s, want 30s", got)
		}
		if got := until(new(int64(10))); got != 10*time.Second {
			t.Errorf("asked for less it ends after %s, want 10s", got)
		}
		if err := pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
		if _, there := Find[*corev1.Pod](s, metav1.NamespaceDefault, "p"); there {
			t.Error("deleted by force, the pod is still there")
		}
	})
}

func TestStatusAndTheRestAreWrittenApart(t *testing.T) {
	_, c := newServer(t)
	vas := c.StorageV1().VolumeAttachments()
	va := anAttachment("va")
	va.Status.Attached = true
	va = must[*storagev1.VolumeAttachment](t)(vas.Create(ctx, va, metav1.CreateOptions{}))
	if va.Status.Attached {
		t.Error("created with a status")
	}
	va.Status.Attached, va.Annotations = true, map[string]string{"a": "b"}
	va = must[*storagev1.VolumeAttachment](t)(vas.UpdateStatus(ctx, va, metav1.UpdateOptions{}))
	if !va.Status.Attached || va.Annotations != nil {
		t.Errorf("after the status: attached %t, annotations %v", va.Status.Attached, va.Annotations)
	}
	va.Status.Attached, va.Annotations = false, map[string]string{"a": "b"}
	va = must[*storagev1.VolumeAttachment](t)(vas.Update(ctx, va, metav1.UpdateOptions{}))
	if !va.Status.Attached || va.Annotations["a"] != "b" {
		t.Errorf("after the rest: attached %t, annotations %v", va.Status.Attached, va.Annotations)
	}
	va.Spec.NodeName = "n2"
	_, err := vas.Update(ctx, va, metav1.UpdateOptions{})
	wantReason(t, err, 422, metav1.StatusReasonInvalid)
}

// fence/survey reads from this entry when the API server saw the heartbeat.
func TestTheHeartbeatCarriesTheServersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t)
		ready := func(at time.Time) []corev1.NodeCondition {
			return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(at), LastTransitionTime: metav1.NewTime(at)}}
		}
		n := Put(s, &corev1.Node{ObjectMeta: meta("n1"), Status: corev1.NodeStatus{Conditions: ready(time.Now().Add(-time.Hour))}})
		if len(n.ManagedFields) != 0 {
			t.Fatalf("a new node has %v", n.ManagedFields)
		}
		time.Sleep(7 * time.Second)
		n.Status.Conditions = ready(time.Now().Add(-time.Hour))
		n = must[*corev1.Node](t)(c.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{FieldManager: "kubelet"}))
		stamped := time.Now()
		time.Sleep(3 * time.Second)
		n.Spec.Unschedulable = true
		n = must[*corev1.Node](t)(c.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}))
		if len(n.ManagedFields) != 1 {
			t.Fatalf("managedFields are %v", n.ManagedFields)
		}
		if f := n.ManagedFields[0]; f.Manager != "kubelet" || f.Subresource != "status" || !f.Time.Equal(new(metav1.NewTime(stamped))) {
			t.Errorf("the heartbeat is %s's at %s, subresource %q", f.Manager, f.Time, f.Subresource)
		}
		for _, manager := range []string{"kubectl-taint", "kube-controller-manager"} {
			time.Sleep(2 * time.Second)
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: manager, Effect: corev1.TaintEffectNoSchedule})
			n = must[*corev1.Node](t)(c.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{FieldManager: manager}))
			n.Labels = map[string]string{"by": manager}
			n = must[*corev1.Node](t)(c.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{FieldManager: "kubectl-label"}))
			if len(n.ManagedFields) != 2 || n.ManagedFields[1].Manager != manager || !n.ManagedFields[1].Time.Equal(new(metav1.NewTime(time.Now()))) {
				t.Errorf("of the taints of %s: %v", manager, n.ManagedFields)
			}
		}
	})
}

func TestNothingIsCreatedInANamespaceThatIsNotThere(t *testing.T) {
	_, c := newServer(t)
	l := aLease("l")
	l.Namespace = "nowhere"
	_, err := c.CoordinationV1().Leases("nowhere").Create(ctx, l, metav1.CreateOptions{})
	wantReason(t, err, 404, metav1.StatusReasonNotFound)
}
