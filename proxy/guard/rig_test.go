package guard

import (
	"context"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

const (
	driverName = "disk.example.com"
	clusterUID = "cluster-uid"
	handle     = "vol-1"
	pvName     = "pv-1"
)

// rig is a Guard over an API server in memory, a driver that notes its calls,
// and nodes of which the test says whether they live. What only a real API server
// can show is in sanity/kubeapi.
type rig struct {
	t       *testing.T
	client  *fake.Clientset
	objects clienttesting.ObjectTracker // what client serves
	ids     *csi.Identity
	guard   *Guard

	lives map[string]fence.Liveness // by node; Alive if it is missing
	// watched is the version that the watch has of the lease of a stale node.
	watched string
	// calls of the driver, as "publish ID"; listed is where it says that the
	// volume is published; listErr is its answer instead.
	calls   []string
	listed  []string
	listErr error
	// unpublishErr is the driver's answer to an unpublish; nil: it succeeds.
	unpublishErr error
}

var errThrottled = status.Error(codes.Internal, "throttled")

func newRig(t *testing.T, p fence.Policy) *rig {
	// fake.NewClientset looks at every type there is for each write.
	objects := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	r := &rig{t: t, client: &fake.Clientset{}, objects: objects, ids: &csi.Identity{Driver: driverName}, lives: map[string]fence.Liveness{}}
	r.client.AddReactor("*", "*", clienttesting.ObjectReaction(objects))
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvName, UID: "uid-of-pv-1", ResourceVersion: "1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := r.client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	r.must(err)
	r.guard = New(Options{Reporter: silent{}, Surveyor: &survey.Surveyor{Client: r.client, IDs: r.ids,
		Ledgers: ledger.New(r.client, clusterUID, r.ids), Records: record.NewStore(r.client.CoordinationV1(), "csi-fencepost"),
		Lives: r, Driver: r, Policy: p}})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// Judge implements survey.Lives.
func (r *rig) Judge(node, _ string, _, nodeExists, _ bool) fence.Liveness {
	if life, ok := r.lives[node]; ok || !nodeExists {
		return life
	}
	return fence.Alive
}

// Silent implements survey.Lives.
func (r *rig) Silent(node string) (string, bool) {
	return r.watched, r.lives[node] == fence.Stale
}

func (r *rig) Storm() (bool, string) { return false, "" }

// PublishedNodes implements survey.Published.
func (r *rig) PublishedNodes(context.Context, string) ([]string, bool, error) {
	return r.listed, r.listErr == nil, r.listErr
}

// Publish and Unpublish implement proxy.Driver.
func (r *rig) Publish(_ context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	r.calls = append(r.calls, "publish "+req.GetNodeId())
	return &spec.ControllerPublishVolumeResponse{}, nil
}

func (r *rig) Unpublish(_ context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	r.calls = append(r.calls, "unpublish "+req.GetNodeId())
	if r.unpublishErr != nil {
		return nil, r.unpublishErr
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// silent is a Reporter.
type silent struct{}

func (silent) Decided(Decision)                                 {}
func (silent) TookOver(Decision, []fence.Holder, time.Duration) {}
func (silent) SetAside(string, string)                          {}
func (silent) LedgerWriteFailed()                               {}

var (
	now     = time.Now().Truncate(time.Second)
	hourAgo = now.Add(-time.Hour)
)
