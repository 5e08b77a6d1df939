package rack

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// rig is a machine with quick periods, a driver, a claim that is bound, and the
// attach-detach controller played by the test.
type rig struct {
	t       *testing.T
	client  kubernetes.Interface
	array   *array.Array
	driver  spec.ControllerClient
	machine *Machine
}

const handle = "vol-1"

func newRig(t *testing.T) *rig {
	t.Helper()
	client := fake.NewClientset()
	r := &rig{t: t, client: client, array: array.New(array.Options{DriverName: "rack.test"})}
	t.Cleanup(r.array.Close)
	folder, err := os.MkdirTemp("/tmp", "rack-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := r.array.CreateVolume(handle, array.VolumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.array.Serve(t.Context(), folder+"/c.sock"); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+folder+"/c.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r.driver = spec.NewControllerClient(conn)
	r.machine, err = Boot(t.Context(), Options{Name: "m1", ID: "id1", Client: r.client, Array: r.array, Folder: folder + "/m1",
		LeaseEvery: 50 * time.Millisecond, StatusEvery: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.machine.Stop)
	// The fake clientset shows a watch nothing that was there before it.
	r.wait("the machine watches", func() bool {
		watches := 0
		for _, a := range client.Actions() {
			if a.GetVerb() == "watch" {
				watches++
			}
		}
		return watches == 2
	})
	r.claim()
	return r
}

func (r *rig) claim() {
	r.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "rack.test", VolumeHandle: handle}}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "team"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}}
	_, err := r.client.CoreV1().PersistentVolumes().Create(r.t.Context(), pv, metav1.CreateOptions{})
	if err == nil {
		_, err = r.client.CoreV1().PersistentVolumeClaims("team").Create(r.t.Context(), claim, metav1.CreateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// schedule puts a pod on the machine that uses the claim.
func (r *rig) schedule() {
	r.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "team", UID: "u1"}, Spec: corev1.PodSpec{NodeName: "m1",
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	if _, err := r.client.CoreV1().Pods("team").Create(r.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) node() *corev1.Node {
	r.t.Helper()
	n, err := r.client.CoreV1().Nodes().Get(r.t.Context(), "m1", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) inUse() bool {
	return slices.Contains(r.node().Status.VolumesInUse, UniqueName("rack.test", handle))
}

// publish attaches the volume, list says so in volumesAttached.
func (r *rig) publish() {
	r.t.Helper()
	_, err := r.driver.ControllerPublishVolume(r.t.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: "id1", VolumeCapability: capability})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) list() {
	r.t.Helper()
	n := r.node()
	n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: UniqueName("rack.test", handle)}}
	if _, err := r.client.CoreV1().Nodes().UpdateStatus(r.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) running() bool {
	p, err := r.client.CoreV1().Pods("team").Get(r.t.Context(), "db", metav1.GetOptions{})
	return err == nil && p.Status.Phase == corev1.PodRunning
}

func (r *rig) mounted() bool { return len(r.array.Published(handle)) == 1 }

func (r *rig) wait(what string, ok func() bool) {
	r.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			r.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (r *rig) never(what string, bad func() bool) {
	r.t.Helper()
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		if bad() {
			r.t.Fatal(what)
		}
	}
}

// run has the pod run on the machine.
func (r *rig) run() {
	r.t.Helper()
	r.schedule()
	r.publish()
	r.list()
	r.wait("the pod runs", func() bool { return r.running() && r.mounted() })
}

func TestAVolumeIsReportedInUseBeforeItIsMountedAndAttachedBeforeThat(t *testing.T) {
	r := newRig(t)
	r.schedule()
	r.wait("the volume is reported in use", r.inUse)
	r.publish()
	r.never("mounted although the Node does not list it as attached", func() bool { return r.mounted() || r.running() })
	r.list()
	r.wait("the pod runs", r.running)
	if !r.mounted() {
		t.Error("the pod runs, and its volume is not mounted")
	}
}

// One that writes its volumes without a heartbeat looks as if its clock were off by
// the heartbeat's age, and as if it had become Ready just now.
func TestWhatIsInUseIsReportedWithAHeartbeat(t *testing.T) {
	r := newRig(t)
	ready := func() corev1.NodeCondition {
		all := r.node().Status.Conditions
		return all[slices.IndexFunc(all, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })]
	}
	before := ready()
	time.Sleep(1100 * time.Millisecond) // what is written has whole seconds
	r.schedule()
	r.wait("the volume is reported in use", r.inUse)
	after := ready()
	if !after.LastHeartbeatTime.After(before.LastHeartbeatTime.Time) || !after.LastTransitionTime.Equal(&before.LastTransitionTime) || len(r.node().Status.Conditions) != 4 {
		t.Errorf("conditions %+v, and Ready was %+v", r.node().Status.Conditions, before)
	}
}

func TestNothingIsMountedThatIsNotReportedInUse(t *testing.T) {
	r := newRig(t)
	k := newKubelet(r.machine)
	w := &workload{pod: &corev1.Pod{}, volumes: []*volume{{unique: UniqueName("rack.test", handle)}}}
	n := &corev1.Node{Status: corev1.NodeStatus{VolumesAttached: []corev1.AttachedVolume{{Name: w.volumes[0].unique}}}}
	if k.attached(w, n) {
		t.Error("a volume that the API server has not in volumesInUse may be mounted")
	}
	k.reported[w.volumes[0].unique] = true
	if !k.attached(w, n) || k.attached(w, &corev1.Node{}) {
		t.Error("what is reported may be mounted exactly when the Node lists it as attached")
	}
}

func TestAPodThatIsDeletedIsUnmountedThenGoneThenNotInUse(t *testing.T) {
	r := newRig(t)
	r.run()
	pod, err := r.client.CoreV1().Pods("team").Get(t.Context(), "db", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now() // as the API server does for a pod with a kubelet
	pod.DeletionTimestamp, pod.Finalizers = &now, nil
	if _, err := r.client.CoreV1().Pods("team").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.wait("the pod is gone", func() bool {
		_, err := r.client.CoreV1().Pods("team").Get(t.Context(), "db", metav1.GetOptions{})
		if apierrors.IsNotFound(err) && r.mounted() {
			t.Fatal("the pod is gone, and its volume is still mounted")
		}
		return apierrors.IsNotFound(err)
	})
	r.wait("the volume is not in use any more", func() bool { return !r.inUse() })
}

func TestAMachineWithoutPowerWritesNothingToAVolumeNorToTheAPI(t *testing.T) {
	r := newRig(t)
	r.run()
	r.wait("the pod writes", func() bool { return len(r.array.Writes(handle)) == 1 })
	if err := r.machine.Set(false); err != nil {
		t.Fatal(err)
	}
	writes, lease := r.array.Writes(handle)[0].Accepted, r.lease()
	r.never("it writes to the volume", func() bool { return r.array.Writes(handle)[0].Accepted != writes })
	if r.lease() != lease {
		t.Error("its lease was renewed")
	}
	if r.machine.On() || !r.inUse() {
		t.Error("its BMC reads on, or what it used is forgotten")
	}
	if err := r.machine.Set(true); err == nil || r.machine.On() {
		t.Error("it came back, and nothing would start its kubelet")
	}
}

func TestALeaseIsRenewedWhileThereIsPower(t *testing.T) {
	r := newRig(t)
	first := r.lease()
	r.wait("the lease is renewed", func() bool { return r.lease() != first })
}

func (r *rig) lease() string {
	r.t.Helper()
	l, err := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(context.Background(), "m1", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return l.Spec.RenewTime.String()
}
