package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

func TestExplainReadsLedgerNodeAttachmentAndLease(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse, clitest.ListedAttached)
	pv := "pv-1"
	api.Put("/apis/storage.k8s.io/v1/volumeattachments/va-1", &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1", UID: "va"},
		Spec:   storagev1.VolumeAttachmentSpec{Attacher: clitest.Driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true}})

	stdout, stderr := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "Node n1 (ID i-1)", "ledger, VolumeAttachment, volumesInUse, volumesAttached", "the same, not rebooted", "not watched", "attached: va-1", "DEPENDS", "default configuration")
	if stderr != "" || api.Writes != 0 {
		t.Errorf("stderr %q and %d writes, want neither", stderr, api.Writes)
	}

	stdout, _ = commandLine(t, cli.ExitOK, "explain", "pv", kubeconfig, "-o", "json", "pv-1")
	var e explanation
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		t.Fatal(err)
	}
	if e.Kind != "VolumeExplanation" || len(e.Holders) != 1 || e.Holders[0].Liveness.State != "unwatched" || e.IfSilent == nil || e.IfSilent.Reason != fence.HolderStale {
		t.Errorf("not what is there: %s", stdout)
	}
	asYAML, _ := commandLine(t, cli.ExitOK, "explain", "pv", kubeconfig, "-oyaml", "pv-1")
	var again explanation
	if err := yaml.UnmarshalStrict([]byte(asYAML), &again); err != nil {
		t.Fatal(err)
	}
}

// As the guard, the page and the Events say it.
func TestExplainSaysWhatToDoWithANodeOfWhichNoProofCouldCount(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "", fence.Held))
	api.AddNode("n1", "uid-1", "", "i-1", clitest.InUse)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, strings.Join(strings.Fields(stdout), " "), fence.VoidNoBootID, "delete its Node once it is off", "kubectl delete node n1")
	if strings.Contains(stdout, corev1.TaintNodeOutOfService) {
		t.Errorf("it proposes a taint, which could not count:\n%s", stdout)
	}
}

func TestExplainFindsTheKubeconfigAsKubectlDoes(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1")
	t.Setenv("KUBECONFIG", strings.TrimPrefix(kubeconfig, "--kubeconfig="))
	commandLine(t, cli.ExitOK, "explain", "pv", "pv-1")
	t.Setenv("KUBECONFIG", "/nowhere")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, stderr := commandLine(t, cli.ExitFailure, "explain", "pv", "pv-1")
	clitest.Says(t, stderr, "the Kubernetes API is not known", "give --kubeconfig, or set KUBECONFIG")
}

func TestExplainNamesTheNearestNames(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	for _, name := range []string{"pvc-1a2b", "pvc-1a2c", "pvc-9999", "other"} {
		api.AddPV(name)
	}
	_, stderr := commandLine(t, cli.ExitFailure, "explain", "pv", "pvc-1a2d", kubeconfig)
	clitest.Says(t, stderr, "there is no PersistentVolume pvc-1a2d; did you mean pvc-1a2b, pvc-1a2c?")
	_, stderr = commandLine(t, cli.ExitFailure, "explain", "pv", "zzz-zzz", kubeconfig)
	clitest.Says(t, stderr, "nor one with a name like it (there are 4)")
}

func TestExplainGoesOnWhereARightIsMissingAndNamesIt(t *testing.T) {
	for _, right := range []string{"list persistentvolumes", "list volumeattachments", "list nodes", "list csinodes", "get nodes",
		"get leases/kube-node-lease", "get leases/csi-fencepost", "get volumeattachments"} {
		api, kubeconfig := clitest.NewAPI(t)
		api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
		api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse)
		pv := "pv-1"
		api.Put("/apis/storage.k8s.io/v1/volumeattachments/va-1", &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1"},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: clitest.Driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}})
		api.Forbidden[right] = true
		stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
		clitest.Says(t, stdout, "Node n1 (ID i-1)", "! Missing right: "+strings.Replace(right, "/", " in namespace ", 1), "CANNOT BE TOLD")
		if strings.Contains(stdout, "gone") {
			t.Errorf("%s: what could not be read is called gone:\n%s", right, stdout)
		}
	}
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	api.Forbidden["get namespaces"] = true
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "Node n1 (ID i-1)", "identity of the cluster could not be read")
	api.Forbidden["get persistentvolumes"] = true
	_, stderr := commandLine(t, cli.ExitFailure, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stderr, "cannot read PersistentVolume pv-1", "forbidden")
}

func TestExplainOfAGarbledLedgerSaysHowToMendItAndShowsTheRest(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	pv := clitest.PV("pv-1")
	pv.Annotations = map[string]string{ledger.Annotation: "{oops"}
	api.Put("/api/v1/persistentvolumes/pv-1", pv)
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "GARBLED", "csi-fencepost ledger repair pv-1", "kubectl annotate pv pv-1 csi-fencepost.io/holders-", "REFUSED [LedgerUnreadable]", "Node n1 (ID i-1)", "volumesInUse")
}

// What only a newer version can read is whole: whoever removes it loses who holds the volume.
func TestExplainOfANewerLedgerSaysToUpgradeAndNotToRemoveIt(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	pv := clitest.PV("pv-1")
	pv.Annotations = map[string]string{ledger.Annotation: `{"version":99,"holders":[]}`}
	api.Put("/api/v1/persistentvolumes/pv-1", pv)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "REFUSED [LedgerUnreadable]", "Upgrade this csi-fencepost", "leave it as it is")
	for _, ruin := range []string{"ledger repair", "holders-"} {
		if strings.Contains(stdout, ruin) {
			t.Errorf("it advises %q:\n%s", ruin, stdout)
		}
	}
}

// The sidecar goes on with the ledger of the other PersistentVolume.
func TestExplainNamesWhatASecondPersistentVolumeBroughtAlongAsSetAside(t *testing.T) {
	for name, second := range map[string]string{"it is read before the ledger": "pv-0", "after it": "pv-2"} {
		for _, text := range []string{"{oops", `{"version":99,"holders":[{"nodeID":"made-up"}]}`} {
			api, kubeconfig := clitest.NewAPI(t)
			api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
			api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse)
			brought := clitest.PV(second)
			brought.Annotations = map[string]string{ledger.Annotation: text}
			api.Put("/api/v1/persistentvolumes/"+second, brought)
			stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
			clitest.Says(t, stdout, "what stands on PersistentVolume "+second+" is no ledger", "set aside", "Node n1 (ID i-1)")
			if strings.Contains(stdout, "GARBLED") || strings.Contains(stdout, "LedgerUnreadable") {
				t.Errorf("%s, %q: called garbled:\n%s", name, text, stdout)
			}
		}
	}
}

func TestExplainUnderstandsMigratedInTreeVolumesAndRefusesOthers(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	in := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "in-tree", UID: "u"}}
	in.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	in.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	in.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0123456789abcdef0"}
	api.Put("/api/v1/persistentvolumes/in-tree", in)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "in-tree", kubeconfig)
	clitest.Says(t, stdout, "ebs.csi.aws.com", "vol-0123456789abcdef0")

	nfs := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "nfs", UID: "v"}}
	nfs.Spec.NFS = &corev1.NFSVolumeSource{Server: "s", Path: "/"}
	api.Put("/api/v1/persistentvolumes/nfs", nfs)
	_, stderr := commandLine(t, cli.ExitFailure, "explain", "pv", "nfs", kubeconfig)
	clitest.Says(t, stderr, "PersistentVolume nfs is no volume of a CSI driver")
}

func TestExplainSaysThatADriverWithoutAttachHasNothingToGuard(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1")
	no := false
	api.Put("/apis/storage.k8s.io/v1/csidrivers/"+clitest.Driver, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: clitest.Driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "attachRequired: false")
}

// observed looks for 20 s at a fake cluster whose node renews its lease, or not.
func observed(t *testing.T, renews bool) *Look {
	t.Helper()
	pv := clitest.PV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	node := clitest.Node("n1", "uid-1", "boot-1")
	clitest.InUse(node)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: corev1.NamespaceNodeLease, ResourceVersion: "5"}}
	client := fake.NewClientset(pv, node, lease,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: clitest.Cluster}},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: clitest.Driver, NodeID: "i-1"}}}})
	if renews {
		time.AfterFunc(8*time.Second, func() {
			renewed := lease.DeepCopy()
			renewed.ResourceVersion = "6"
			if _, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(t.Context(), renewed, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	l, err := LookAt(t.Context(), &cluster.Cluster{Client: client, Config: config.Default()}, "pv-1", 20*time.Second, &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestExplainThatObservesTellsLifeByWhetherTheLeaseChanged(t *testing.T) {
	for renews, want := range map[bool]fence.Reason{true: fence.HolderAlive, false: fence.HolderStale} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			e := Explain(observed(t, renews))
			if e.Decision.Reason != want || e.IfAlive != nil {
				t.Errorf("renews %v: decision %+v, want %s", renews, e.Decision, want)
			}
			if took := time.Since(began); took < 20*time.Second || took > 22*time.Second {
				t.Errorf("it took %s, want 20s", took)
			}
		})
	}
}

// explainLine runs a command line of explain and asserts its exit code.
func commandLine(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	return clitest.Line(t, []cli.Command{Command()}, want, args...)
}
