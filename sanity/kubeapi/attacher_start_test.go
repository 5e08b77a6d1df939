package kubeapi

import (
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// crashLoop is how long an attacher that exits at its start has shown it several
// times.
const crashLoop = 10 * time.Second

func TestAttacherStartedBeforeTheDriverDoesNotCrashLoopAndAttachesOnceItIsUp(t *testing.T) {
	staged.take(t)
	s := common.use(t).Stage(t, "late-driver", bed.StageOptions{Manual: true, Nodes: -1})
	s.Array.Stop()
	fencepost := s.Launch("fp")
	s.StartAttacherOn("fp.sock")
	va := wantAttached(t, s)

	notServed := func() bool { _, err := os.Stat(s.Socket("fp.sock")); return err == nil }
	s.Never(crashLoop, "the socket is served, and there is no driver", notServed)
	s.WaitLog(fencepost, time.Second, `"Waiting for the CSI driver" .*csi.sock.*no such file`)

	// The driver is there, and not ready yet.
	probe := s.Array.Inject(array.Fault{Method: "Probe", Do: array.Fail, Code: codes.FailedPrecondition, Message: "the array is away"})
	if err := s.Array.Serve(t.Context(), s.DriverSocket()); err != nil {
		t.Fatal(err)
	}
	s.Never(crashLoop, "the socket is served, and the driver is not ready", notServed)
	s.WaitLog(fencepost, 20*time.Second, `"Waiting for the CSI driver" .*the array is away`)

	probe.Clear()
	took := s.WaitFor(60*time.Second, "the volume is attached", func() bool {
		got, err := s.Client.StorageV1().VolumeAttachments().Get(t.Context(), va, metav1.GetOptions{})
		return err == nil && got.Status.Attached
	})
	s.Log("attached %s after the driver was ready", took.Round(time.Millisecond))
	for _, p := range []interface {
		Name() string
		Restarts() int
	}{s.Attacher, fencepost} {
		if n := p.Restarts(); n != 0 {
			t.Errorf("%s was restarted %d times, want none", p.Name(), n)
		}
	}
	s.NoViolations()
}

// Why the socket waits: with one that is served before a driver stands behind it,
// the attacher fails its first probe and exits.
func TestAttacherCrashLoopsOnASocketThatIsServedTooEarly(t *testing.T) {
	staged.take(t)
	s := common.use(t).Stage(t, "early-socket", bed.StageOptions{Manual: true, Nodes: -1})
	socket, err := net.Listen("unix", s.Socket("early.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(server.Stop)
	s.StartAttacherOn("early.sock")
	s.WaitFor(60*time.Second, "the attacher was restarted twice", func() bool { return s.Attacher.Restarts() >= 2 })
}

// wantAttached makes all that an attach needs, and the VolumeAttachment that asks
// for it, and returns its name.
func wantAttached(t *testing.T, s *bed.Stage) string {
	t.Helper()
	node, id := s.Name+"-n1", "id1"
	if err := s.Array.AddMachine(id); err != nil {
		t.Fatal(err)
	}
	v := s.Volume("v", bed.VolumeOptions{})
	if _, err := s.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: s.Driver, NodeID: id}}}}
	if _, err := s.Client.StorageV1().CSINodes().Create(t.Context(), csiNode, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(v.Handle, s.Driver, node)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: s.Driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name}},
	}
	if _, err := s.Client.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return va.Name
}
