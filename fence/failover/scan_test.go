package failover

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

const (
	scannedNodes   = 300
	scannedVolumes = 100 // in use on each of them
)

// scanned is a Controller, not running, of a cluster whose nodes all hold volumes.
func scanned(t *testing.T) *Controller {
	t.Helper()
	server, ids := apiserver.New(apiserver.Options{}), &csi.Identity{Driver: "d.example"}
	for n := range scannedNodes {
		name := fmt.Sprintf("n%03d", n)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for v := range scannedVolumes {
			node.Status.VolumesInUse = append(node.Status.VolumesInUse, ids.UniqueName(fmt.Sprintf("%s-%03d", name, v)))
		}
		apiserver.Put(server, node)
		holds(server, ids, name)
	}
	holds(server, ids, "gone")
	tracker := observe.NewTracker(time.Minute, 1)
	index := watching(t, kubernetes.NewForConfigOrDie(server.Config("test", nil)), tracker, ids).Index(ids.Driver)
	return New(Options{Drivers: []Driver{{ids, index}}, Nodes: index, Lives: tracker, Fencer: &scripted{}, Metrics: &noted{}})
}

func holds(server *apiserver.Server, ids *csi.Identity, node string) {
	pv := "pv-" + node
	apiserver.Put(server, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName("h-"+node, ids.Driver, node)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: ids.Driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}})
}

func TestAScanCostsTheSameHoweverManyVolumesTheNodesHold(t *testing.T) {
	c := scanned(t)
	perNode := testing.AllocsPerRun(10, c.scan) / scannedNodes
	t.Logf("%.1f allocations for each of %d nodes with %d volumes", perNode, scannedNodes, scannedVolumes)
	if perNode > 6 {
		t.Errorf("%.1f allocations for each node in every second, want at most 6", perNode)
	}
}

func TestOnlyAHolderWithoutANodeIsLookedAtWhileTheOthersLive(t *testing.T) {
	c := scanned(t)
	if due, _ := c.due(); len(due) != 1 || due[0] != "gone" {
		t.Errorf("work on %v, want on gone alone", due)
	}
}

// overdue is a tracker that knows a node to be overdue.
type overdue struct {
	*observe.Tracker
	node string
}

func (o overdue) Overdue(node string) bool { return node == o.node }

func TestANodeThatIsOverdueIsLookedAtBeforeItWasWatchedForLong(t *testing.T) {
	c := scanned(t)
	c.Lives = overdue{c.Lives.(*observe.Tracker), "n007"}
	for _, covers := range []bool{true, false} {
		c.Fencer = &scripted{covers: covers}
		if due, _ := c.due(); slices.Contains(due, "n007") != covers || !slices.Contains(due, "gone") {
			t.Errorf("work on %v, agents cover n007: %v", due, covers)
		}
	}
}

// A ledger alone keeps a volume from whoever waits for it, as a VolumeAttachment does.
func TestANodeThatOnlyALedgerNamesIsLookedAtOnceSomebodyWaits(t *testing.T) {
	server, ids := apiserver.New(apiserver.Options{}), &csi.Identity{Driver: "d.example"}
	for node, waits := range map[string]bool{"waited-for": true, "forgotten": false} {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-of-" + node, UID: types.UID("uid-" + node)}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: ids.Driver, VolumeHandle: "h-" + node}
		book := ledger.Ledger{Version: ledger.Version, Driver: ids.Driver, Handle: "h-" + node, Cluster: "c", PVUID: string(pv.UID),
			Holders: []ledger.Entry{{NodeID: "id", NodeName: node, NodeUID: "u", BootID: "b", State: fence.Held}}}
		pv.Annotations = map[string]string{ledger.Annotation: book.String()}
		apiserver.Put(server, pv)
		if waits {
			apiserver.Put(server, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName("h-"+node, ids.Driver, "next")},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: ids.Driver, NodeName: "next", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}})
		}
	}
	apiserver.Put(server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "next"}})
	tracker := observe.NewTracker(time.Minute, 1)
	index := watching(t, kubernetes.NewForConfigOrDie(server.Config("test", nil)), tracker, ids).Index(ids.Driver)
	c := New(Options{Drivers: []Driver{{ids, index}}, Nodes: index, Lives: tracker, Fencer: &scripted{}})
	if due, _ := c.due(); len(due) != 1 || due[0] != "waited-for" {
		t.Errorf("work on %v, want on waited-for alone", due)
	}
}

// synced is an index that has watched the kubelets for long.
type synced struct{ *observe.Index }

func (synced) Synced(_, _, _, _ string) bool { return true }

// steady is a tracker that has seen every lease being renewed for long.
type steady struct{ *observe.Tracker }

func (steady) Steady(string, time.Duration) bool { return true }

// watching is a watch that has seen what the server has.
func watching(t testing.TB, client kubernetes.Interface, tracker *observe.Tracker, drivers ...*csi.Identity) *observe.Watch {
	t.Helper()
	watch := observe.New(client, tracker, "records", drivers...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); watch.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := watch.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return watch
}
