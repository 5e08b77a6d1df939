package guardrig

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// The driver and its volume, the PersistentVolume of it, and the cluster.
const (
	DriverName = "disk.example.com"
	ClusterUID = "cluster-uid"
	Handle     = "vol-1"
	PVName     = "pv-1"
)

// Rig is a Guard over an API server in memory, a driver that notes its calls,
// and nodes of which the test says whether they live.
type Rig struct {
	T       *testing.T
	Client  *fake.Clientset
	objects clienttesting.ObjectTracker // what Client serves
	ids     *csi.Identity
	Guard   *guard.Guard
	caller  *proxy.Caller

	Lives map[string]fence.Liveness // by node; Alive if it is missing
	// Unsynced tells that the kubelets' Ready conditions were not watched for long enough yet.
	Unsynced atomic.Bool
	// ForcedFor is for how long every volume was seen to be taken from its node by force; 0: none was.
	ForcedFor time.Duration
	// Unseen is a node of which the index does not know yet that it lists the volume.
	Unseen string
	// Unattached is a node of whose VolumeAttachment the index does not know yet.
	Unattached string
	// Booted tells that the nodes have booted since their VolumeAttachments were being deleted;
	// BootUnsure, that nobody knows that the boot before had lasted until then.
	Booted, BootUnsure atomic.Bool
	// Watched is the version that the watch has of the lease of a stale node.
	Watched string
	// Calls of the driver, as "publish ID"; Listed is where it says that the
	// volume is published; ListErr is its answer instead, or there is none (ListHangs).
	Calls     []string
	Listed    []string
	ListErr   error
	ListHangs bool
	// UnpublishErr is the driver's answer to an unpublish, PublishErr to a publish; nil: it
	// succeeds.
	UnpublishErr, PublishErr error
	// UnpublishErrOf is the driver's answer to an unpublish of that node ID.
	UnpublishErrOf map[string]error
}

// ErrThrottled is an answer of the driver.
var ErrThrottled = status.Error(codes.Internal, "throttled")

// New is a rig with the volume, and no node.
func New(t *testing.T, p fence.Policy) *Rig {
	// fake.NewClientset looks at every type there is for each write.
	objects := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	r := &Rig{T: t, Client: &fake.Clientset{}, objects: objects, ids: &csi.Identity{Driver: DriverName}, Lives: map[string]fence.Liveness{}}
	r.Client.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, object, err := clienttesting.ObjectReaction(objects)(action)
		if action.GetVerb() == "patch" && err != nil && strings.Contains(err.Error(), "test failed") {
			err = apierrors.NewInvalid(schema.GroupKind{}, "", nil) // as an API server has it
		}
		return handled, object, err
	})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: PVName, UID: "uid-of-pv-1", ResourceVersion: "1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: DriverName, VolumeHandle: Handle}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := r.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	r.Must(err)
	r.Guard = guard.New(guard.Options{Reporter: silent{}, Surveyor: &survey.Surveyor{Client: r.Client, IDs: r.ids,
		Ledgers: ledger.New(r.Client, ClusterUID, r.ids), Records: record.NewStore(r.Client.CoordinationV1(), "csi-fencepost"),
		Lives: r, Driver: r, Policy: p}})
	return r
}

// Must fails for any error.
func (r *Rig) Must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// Judge implements survey.Lives.
func (r *Rig) Judge(node string, _ *coordinationv1.Lease, nodeExists, _ bool) fence.Liveness {
	if life, ok := r.Lives[node]; ok || !nodeExists {
		return life
	}
	return fence.Alive
}

// Silent implements survey.Lives.
func (r *Rig) Silent(node string) (string, bool) {
	return r.Watched, r.Lives[node] == fence.Stale
}

// Steady implements survey.Lives.
func (r *Rig) Steady(string, time.Duration) bool { return true }

// Storm implements survey.Lives.
func (r *Rig) Storm() (bool, string) { return false, "" }

// PublishedNodes implements survey.Published.
func (r *Rig) PublishedNodes(ctx context.Context, _ string) ([]string, bool, error) {
	if r.ListHangs {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return r.Listed, r.ListErr == nil, r.ListErr
}

// Publish implements proxy.Driver.
func (r *Rig) Publish(_ context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	r.Calls = append(r.Calls, "publish "+req.GetNodeId())
	if r.PublishErr != nil {
		return nil, r.PublishErr
	}
	return &spec.ControllerPublishVolumeResponse{}, nil
}

// Unpublish implements proxy.Driver.
func (r *Rig) Unpublish(_ context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	r.Calls = append(r.Calls, "unpublish "+req.GetNodeId())
	if err := cmp.Or(r.UnpublishErrOf[req.GetNodeId()], r.UnpublishErr); err != nil {
		return nil, err
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// silent is a Reporter.
type silent struct{}

func (silent) Decided(guard.Decision)                                 {}
func (silent) TookOver(guard.Decision, []fence.Holder, time.Duration) {}
func (silent) SetAside(string, string)                                {}
func (silent) TurnedAway(_, _, _ string)                              {}
func (silent) LedgerWriteFailed()                                     {}

// When the tests began, to the second as in the API, and an hour before.
var (
	Now     = time.Now().Truncate(time.Second)
	HourAgo = Now.Add(-time.Hour)
)
