package guard

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// id of the driver on a node.
func id(node string) string { return "id-" + node }

// node boots a machine, Ready since the given time.
func (r *rig) node(name string, since time.Time) { r.t.Helper(); r.machine(name, name, since) }

// machine is a Node with the node ID and the system UUID of node of.
func (r *rig) machine(name, of string, since time.Time) {
	r.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-of-" + name, SystemUUID: "system-" + of}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	_, err := r.client.CoreV1().Nodes().Create(r.t.Context(), n, metav1.CreateOptions{})
	r.must(err)
	_, err = r.client.StorageV1().CSINodes().Create(r.t.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: id(of)}}}}, metav1.CreateOptions{})
	r.must(err)
}

// published is a volume on node old, by its ledger; node next is there.
func published(t *testing.T, p fence.Policy) *rig {
	t.Helper()
	r := newRig(t, p)
	r.node("old", hourAgo)
	r.node("next", hourAgo)
	r.attachment("old", time.Time{})
	r.must(r.publish("old"))
	return r
}

func (r *rig) changeNode(name string, change func(*corev1.Node)) {
	r.t.Helper()
	n, err := r.client.CoreV1().Nodes().Get(r.t.Context(), name, metav1.GetOptions{})
	r.must(err)
	change(n)
	_, err = r.client.CoreV1().Nodes().Update(r.t.Context(), n, metav1.UpdateOptions{})
	r.must(err)
}

// status changes a Node's status.
func (r *rig) status(name string, change func(*corev1.NodeStatus)) {
	r.t.Helper()
	r.changeNode(name, func(n *corev1.Node) { change(&n.Status) })
}

// lists sets whether a Node's status names the volume.
func (r *rig) lists(name string, inUse, attached bool) {
	r.t.Helper()
	unique := r.ids.UniqueName(handle)
	r.status(name, func(s *corev1.NodeStatus) {
		s.VolumesInUse, s.VolumesAttached = nil, nil
		if inUse {
			s.VolumesInUse = []corev1.UniqueVolumeName{unique}
		}
		if attached {
			s.VolumesAttached = []corev1.AttachedVolume{{Name: unique}}
		}
	})
}

// attachment makes the VolumeAttachment for a node; deleted is its
// deletionTimestamp, zero for none.
func (r *rig) attachment(node string, deleted time.Time) {
	r.t.Helper()
	pv := pvName
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle, driverName, node), UID: types.UID("uid-of-va-" + node),
			Annotations: map[string]string{csi.NodeIDAnnotation: id(node)}, Finalizers: []string{"external-attacher/x"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
	api := r.client.StorageV1().VolumeAttachments()
	if !deleted.IsZero() {
		at := metav1.NewTime(deleted)
		va.DeletionTimestamp = &at
		r.must(r.objects.Delete(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", va.Name))
	}
	_, err := api.Create(r.t.Context(), va, metav1.CreateOptions{})
	r.must(err)
}

// changeAttachment changes the VolumeAttachment for a node.
func (r *rig) changeAttachment(node string, change func(*storagev1.VolumeAttachment)) {
	r.t.Helper()
	va, err := r.client.StorageV1().VolumeAttachments().Get(r.t.Context(), csi.AttachmentName(handle, driverName, node), metav1.GetOptions{})
	r.must(err)
	change(va)
	_, err = r.client.StorageV1().VolumeAttachments().Update(r.t.Context(), va, metav1.UpdateOptions{})
	r.must(err)
}

// stripped removes the VolumeAttachment for a node.
func (r *rig) stripped(node string) {
	r.t.Helper()
	r.must(r.objects.Delete(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", csi.AttachmentName(handle, driverName, node)))
}

// look gives the Surveyor an index of what is there now.
func (r *rig) look() {
	r.t.Helper()
	index, err := survey.ListLive(r.t.Context(), r.client, r.ids)
	r.must(err)
	r.guard.Surveyor.Index = index
}

func (r *rig) publish(node string) error {
	r.t.Helper()
	r.look()
	resp, err := r.guard.ControllerPublishVolume(r.t.Context(), publishOf(handle, id(node)), r)
	r.answered(resp != nil, err)
	return err
}

// publishOf is a publish to a single writer.
func publishOf(volume, nodeID string) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: nodeID,
		VolumeCapability: &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}}}}
}

// answered fails unless there is either an answer or an error: gRPC cannot send none.
func (r *rig) answered(answer bool, err error) {
	r.t.Helper()
	if answer != (err == nil) {
		r.t.Fatalf("answered: %t, with error %v", answer, err)
	}
}

// unpublish calls with that node ID.
func (r *rig) unpublish(nodeID string) error {
	r.t.Helper()
	r.look()
	resp, err := r.guard.ControllerUnpublishVolume(r.t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: nodeID}, r)
	r.answered(resp != nil, err)
	return err
}

func (r *rig) refused(err error, code codes.Code, parts ...string) {
	r.t.Helper()
	text := status.Convert(err).Message()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			r.t.Fatalf("%v: it lacks %q", err, part)
		}
	}
	if status.Code(err) != code {
		r.t.Fatalf("%v, want %s", err, code)
	}
}

func (r *rig) called(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.calls, want) {
		r.t.Fatalf("the driver was called with %q, want %q", r.calls, want)
	}
}

// ledger as the PersistentVolume carries it.
func (r *rig) ledger() *ledger.Ledger {
	r.t.Helper()
	pv, err := r.client.CoreV1().PersistentVolumes().Get(r.t.Context(), pvName, metav1.GetOptions{})
	r.must(err)
	l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
	r.must(err)
	return l
}

func (r *rig) annotate(text string) {
	r.t.Helper()
	pv, err := r.client.CoreV1().PersistentVolumes().Get(r.t.Context(), pvName, metav1.GetOptions{})
	r.must(err)
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, ledger.Annotation, text)
	_, err = r.client.CoreV1().PersistentVolumes().Update(r.t.Context(), pv, metav1.UpdateOptions{})
	r.must(err)
}
