package observe

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// bytesPerVolume is what the index takes for a volume that is attached, held by its
// ledger and listed by its Node, with its share of a Node of 20 such. It was
// measured.
const bytesPerVolume = 724

// TestTheIndexStaysSmall keeps the goals of docs/bench.md#scale, of which the index
// is what grows with the cluster.
func TestTheIndexStaysSmall(t *testing.T) {
	const volumes, nodes = 20_000, 1_000
	watch := sizedWatch(t)
	before := heap()
	fill(watch, volumes, nodes)
	per := float64(heap()-before) / volumes
	runtime.KeepAlive(watch)
	t.Logf("%.1f bytes per volume", per)
	if per > 1.15*bytesPerVolume {
		t.Errorf("%.0f bytes per volume, want %d: a record has grown, or something is kept of the objects", per, bytesPerVolume)
	}
	if got := len(watch.Index(anyDriver).Attachments(sizedHandle(nodes + 1))); got != 1 {
		t.Errorf("a volume has %d attachments, so that this was not the size of all", got)
	}
}

func sizedWatch(t testing.TB) *Watch {
	return New(kubernetes.NewForConfigOrDie(&rest.Config{}), NewTracker(time.Minute, 1), "records", &csi.Identity{Driver: anyDriver})
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // pools, and what unique holds weakly
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func sizedUID(kind, i int) string { return fmt.Sprintf("0b7ab4c8-3a3b-4a44-%04x-%012x", kind, i) }
func sizedHandle(i int) string    { return fmt.Sprintf("vol-%017x", i) }
func sizedName(node int) string   { return fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", node/256, node%256) }
func sizedNodeID(node int) string { return fmt.Sprintf("i-%017x", node) }
func sizedMeta(name string, kind, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(sizedUID(kind, i)), ResourceVersion: fmt.Sprint(1_000_000 + i)}
}

// fill has the feeds take in a cluster, as its API server would send it.
func fill(watch *Watch, volumeCount, nodeCount int) {
	f, ids := watch.feeds, &csi.Identity{Driver: anyDriver}
	for kind := range kinds {
		f[kind].begin()
	}
	for i := range nodeCount {
		name := sizedName(i)
		f[leases].put(&coordinationv1.Lease{ObjectMeta: sizedMeta(name, leases, i)}, true)
		c := &storagev1.CSINode{ObjectMeta: sizedMeta(name, csiNodes, i)}
		c.Spec.Drivers = []storagev1.CSINodeDriver{{Name: anyDriver, NodeID: sizedNodeID(i)}}
		f[csiNodes].put(c, true)
		n := &corev1.Node{ObjectMeta: sizedMeta(name, nodes, i)}
		n.Spec.ProviderID = "aws:///us-east-1a/" + sizedNodeID(i)
		n.Status.NodeInfo.BootID = sizedUID(7, i)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for v := i; v < volumeCount; v += nodeCount {
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, ids.UniqueName(sizedHandle(v)))
			n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: ids.UniqueName(sizedHandle(v))})
		}
		f[nodes].put(n, true)
	}
	for v := range volumeCount {
		i := v % nodeCount
		pv := &corev1.PersistentVolume{ObjectMeta: sizedMeta("pvc-"+sizedUID(volumes, v), volumes, v)}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: anyDriver, VolumeHandle: sizedHandle(v)}
		book := ledger.Ledger{Version: ledger.Version, Driver: anyDriver, Handle: sizedHandle(v), Cluster: sizedUID(8, 0), PVUID: string(pv.UID),
			Holders: []ledger.Entry{{NodeID: sizedNodeID(i), NodeName: sizedName(i), NodeUID: sizedUID(nodes, i), BootID: sizedUID(7, i), SystemUUID: sizedUID(9, i), State: fence.Held}}}
		pv.Annotations = map[string]string{ledger.Annotation: book.String()}
		f[volumes].put(pv, true)
	}
	for v := range volumeCount {
		node, pv := sizedName(v%nodeCount), "pvc-"+sizedUID(volumes, v)
		va := &storagev1.VolumeAttachment{ObjectMeta: sizedMeta(csi.AttachmentName(sizedHandle(v), anyDriver, node), attachments, v)}
		va.Spec = storagev1.VolumeAttachmentSpec{Attacher: anyDriver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}
		va.Status.Attached = true
		f[attachments].put(va, true)
	}
	for kind := range kinds {
		f[kind].end()
	}
}

// BenchmarkLookup asks for the volumes of a handle.
func BenchmarkLookup(b *testing.B) {
	const volumes = 20_000
	watch := sizedWatch(b)
	fill(watch, volumes, 1_000)
	handles := make([]string, volumes)
	for i := range handles {
		handles[i] = sizedHandle(i)
	}
	for i := 0; b.Loop(); i++ {
		if watch.Index(anyDriver).store.diskOf(handles[i%volumes]) == nil {
			b.Fatal("it is not found")
		}
	}
}
