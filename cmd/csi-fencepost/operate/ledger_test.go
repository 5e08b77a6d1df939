package operate

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// A node that a broken text names may hold the volume. None is lost, however it
// is broken.
func TestSalvageFindsEveryNodeIDInABrokenText(t *testing.T) {
	whole := ledger.Ledger{Version: 1, Driver: clitest.Driver, Handle: clitest.Handle, Cluster: clitest.Cluster, PVUID: "u", Holders: []ledger.Entry{
		clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing), clitest.Entry(`i"2`, "n2", "uid-2", "boot-2", fence.TakenOver)}}
	text := whole.String()
	for name, broken := range map[string]string{
		"unknown state": strings.Replace(text, "publishing", "pending", 1),
		"wrong type":    strings.Replace(text, `"node":"n1"`, `"node":7`, 1),
		"no cluster":    strings.Replace(text, clitest.Cluster, "", 1),
		"cut off":       text[:len(text)-8],
		"twice":         text + text,
		"no list":       strings.Replace(strings.Replace(text, "[", "", 1), "]", "", 1),
	} {
		if _, err := ledger.Parse(broken); err == nil {
			t.Errorf("%s: it is not broken: %s", name, broken)
		}
		ids := map[string]bool{}
		for _, e := range readable(broken) {
			ids[e.NodeID] = true
		}
		if len(ids) != 2 || !ids["i-1"] || !ids[`i"2`] {
			t.Errorf("%s: found %v", name, ids)
		}
	}
	for _, nothing := range []string{"", "{oops", "[]", `{"holders":null}`, `{"holders":{"nodeID":7}}`} {
		if found := readable(nothing); len(found) != 0 {
			t.Errorf("%q: found %v", nothing, found)
		}
	}
}

func TestSalvageKeepsAContest(t *testing.T) {
	for _, text := range []string{
		`{"holders":[{"nodeID":"i-1","bootID":"b","contested":{"bootID":"b"},"mood":"good"}]}`,
		`{"holders":[{"nodeID":"i-1","contested":{"bootID":"b"}},`,
	} {
		found := readable(text)
		if len(found) != 1 || found[0].Contest == nil {
			t.Errorf("%s: %+v", text, found)
		}
	}
}

// garbledCluster has a volume with a broken ledger that n1 has attached.
func garbledCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	pv := clitest.PV("pv-1")
	pv.Annotations = map[string]string{ledger.Annotation: "{oops"}
	name := pv.Name
	client := fake.NewClientset(pv, clitest.Node("n1", "uid-1", "boot-1"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: clitest.Cluster}},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: clitest.Driver, NodeID: "i-1"}}}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1"}, Spec: storagev1.VolumeAttachmentSpec{Attacher: clitest.Driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}})
	return &cluster.Cluster{Client: client, Config: config.Default()}
}

// Somebody may mend it by hand in the same moment.
func TestRepairWritesOnlyOverTheVeryTextThatItRead(t *testing.T) {
	c, ctx := garbledCluster(t), context.Background()
	p, err := planRepair(ctx, c, "pv-1", &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	pv, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, "pv-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := pv.DeepCopy()
	changed.Annotations[ledger.Annotation] = "mended by hand"
	if _, err := c.Client.CoreV1().PersistentVolumes().Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.write(ctx, c); err == nil {
		t.Error("it wrote over a text that it had not read")
	}
	if pv, _ = c.Client.CoreV1().PersistentVolumes().Get(ctx, "pv-1", metav1.GetOptions{}); pv.Annotations[ledger.Annotation] != "mended by hand" || pv.Annotations[ledger.RepairedAnnotation] != "" {
		t.Errorf("it wrote: %v", pv.Annotations)
	}
	if p, err = planRepair(ctx, c, "pv-1", &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	if err := p.write(ctx, c); err != nil {
		t.Fatal(err)
	}
}

// Two PersistentVolumes of one handle: the older one carries the ledger, and
// no broken text stays behind, which would go on refusing the volume's calls.
func TestRepairOfAVolumeWithTwoPersistentVolumes(t *testing.T) {
	c, ctx := garbledCluster(t), context.Background()
	second := clitest.PV("pv-2", clitest.Entry("i-2", "n2", "uid-2", "boot-2", fence.Publishing))
	if _, err := c.Client.CoreV1().PersistentVolumes().Create(ctx, second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := planRepair(ctx, c, "pv-2", &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.write(ctx, c); err != nil {
		t.Fatal(err)
	}
	book, err := ledger.New(c.Client, clitest.Cluster, &csi.Identity{Driver: clitest.Driver}).Read(ctx, clitest.Handle, []string{"pv-1", "pv-2"})
	if err != nil {
		t.Fatal(err)
	}
	if book.Ledger.Get("i-1") == nil || book.Ledger.Get("i-2") == nil {
		t.Errorf("a holder is lost: %s", book.Ledger)
	}
	if _, there := book.PVs[1].Annotations[ledger.Annotation]; there {
		t.Errorf("two ledgers: %v", book.PVs[1].Annotations)
	}
}
