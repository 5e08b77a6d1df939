package explain

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// n1 holds pv-1 and is silent; a pod on n2 waits for it, and n2's kubelet says
// already that it wants it.
func waitingForPV1(api *clitest.APIServer) {
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse, clitest.ListedAttached)
	api.AddNode("n2", "uid-2", "boot-2", "i-2", clitest.InUse, clitest.KubeletReady)
	api.AddAttachment("n1", true)
	api.AddAttachment("n2", false)
}

func TestExplainJudgesThePublishThatWaits(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	waitingForPV1(api)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "Waiting: node n2 (ID i-2)", "The publish to node n2 now: DEPENDS", "It depends on whether node n1 is alive", "If silent: REFUSED [HolderStale]")
	if strings.Contains(stdout, "Node n2 (ID i-2) ") {
		t.Errorf("the node that waits is shown as a holder:\n%s", stdout)
	}
	stdout, _ = commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", "-ojson", kubeconfig)
	var e explanation
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Holders) != 1 || len(e.Waiting) != 1 || e.Waiting[0].NodeID != "i-2" || e.Decision.Action != e.Waiting[0].Decision.Action {
		t.Errorf("not what is there: %s", stdout)
	}
}

func TestExplainJudgesEachPublishThatWaits(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	waitingForPV1(api)
	api.AddNode("n3", "uid-3", "boot-3", "i-3", clitest.KubeletReady)
	api.AddAttachment("n3", false)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "Waiting: node n2 (ID i-2)", "The publish to node n2 now", "Waiting: node n3 (ID i-3)", "The publish to node n3 now")
}

func TestExplainAllowsTheFirstPublish(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1")
	api.AddNode("n2", "uid-2", "boot-2", "i-2", clitest.InUse, clitest.KubeletReady)
	api.AddAttachment("n2", false)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "No node holds it.", "The publish to node n2 now: ALLOWED [NoOtherHolder]")
}

func addClaim(api *clitest.APIServer, name, pv string) {
	api.Put("/api/v1/namespaces/default/persistentvolumeclaims/"+name, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv}})
}

func TestExplainFromTheClaimAndFromThePod(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	waitingForPV1(api)
	addClaim(api, "data-0", "pv-1")
	addClaim(api, "later", "")
	nfs := clitest.PV("nfs-1")
	nfs.Spec.CSI, nfs.Spec.NFS = nil, &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}
	api.Put("/api/v1/persistentvolumes/nfs-1", nfs)
	addClaim(api, "db-0-scratch", "nfs-1")
	claim := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	api.Put("/api/v1/namespaces/default/pods/db-0", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "default"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		claim("data-0"), claim("later"), claim("missing"), {Name: "tmp"},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}}})

	stdout, _ := commandLine(t, cli.ExitOK, "explain", "pvc", "data-0", kubeconfig)
	clitest.Says(t, stdout, "pv-1 (claim default/data-0)", "Waiting: node n2")
	_, stderr := commandLine(t, cli.ExitFailure, "explain", "pvc", "later", kubeconfig)
	clitest.Says(t, stderr, "PersistentVolumeClaim default/later is bound to no volume yet")
	_, stderr = commandLine(t, cli.ExitFailure, "explain", "pvc", "data-0", "-n", "other", kubeconfig)
	clitest.Says(t, stderr, "there is no PersistentVolumeClaim other/data-0")

	stdout, _ = commandLine(t, cli.ExitOK, "explain", "pod", "db-0", kubeconfig)
	clitest.Says(t, oneLine(stdout), "pv-1 (claim default/data-0)", "Waiting: node n2", "default/later is bound to no volume yet", "PersistentVolumeClaim default/missing", "PersistentVolume nfs-1 is no volume of a CSI driver")
	stdout, _ = commandLine(t, cli.ExitOK, "explain", "pod", "db-0", "-ojson", kubeconfig)
	var list explanationList
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "VolumeExplanationList" || len(list.Items) != 1 || len(list.Notes) != 3 {
		t.Errorf("not what is there: %s", stdout)
	}
}

func TestExplainNodeListsWhatItHolds(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	waitingForPV1(api)
	stdout, _ := commandLine(t, cli.ExitOK, "explain", "node", "n1", kubeconfig)
	clitest.Says(t, stdout, "node UID uid-1, boot ID boot-1", "VOLUME  CLAIM           DRIVER            NODE ID  STATE", "pv-1    default/data-0  disk.example.com  i-1      publishing")
	stdout, _ = commandLine(t, cli.ExitOK, "explain", "node", "n2", kubeconfig)
	clitest.Says(t, stdout, "Ready, ", "i-2      waiting")
	_, stderr := commandLine(t, cli.ExitFailure, "explain", "node", "n9", kubeconfig)
	clitest.Says(t, stderr, "nothing is known of a node n9; did you mean n1, n2?")
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestAPageThatIsPrintedAgainAndAgainIsNoMoreThanText(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-\u202e1\x1b[2J", "n1", "uid-1", "boot-1", fence.Publishing))
	for _, format := range []string{"text", "json", "yaml"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out, errs strings.Builder
		shown := writer(func(p []byte) (int, error) {
			if out.Write(p); strings.Contains(out.String(), "uid-1") {
				cancel() // the page is printed to its end
			}
			return len(p), nil
		})
		cli.Run(ctx, []cli.Command{Command()}, []string{"explain", "pv", "pv-1", "-w", "-o", format, kubeconfig}, shown, &errs)
		if !strings.Contains(out.String(), "uid-1") || strings.ContainsAny(out.String(), "\u202e\x1b") {
			t.Errorf("%s: printed %q, %q", format, out.String(), errs.String())
		}
	}
}

// Whoever watches sees what a single look cannot tell: that a node lives.
func TestExplainThatWatchesFollowsTheLeases(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	waitingForPV1(api)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs strings.Builder
	shown := writer(func(p []byte) (int, error) {
		out.Write(p)
		switch _, second, twice := strings.Cut(out.String(), "DEPENDS"); {
		case strings.Contains(second, "now: REFUSED"):
			cancel()
		case twice: // the lease is renewed once the first look has been shown
			api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse, clitest.ListedAttached)
		}
		return len(p), nil
	})
	if code := cli.Run(ctx, []cli.Command{Command()}, []string{"explain", "pv", "pv-1", "-w", kubeconfig}, shown, &errs); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	first, second, twice := strings.Cut(out.String(), "DEPENDS")
	if !twice || strings.Contains(first, "REFUSED") {
		t.Fatalf("the first look could not tell, and told:\n%s", out.String())
	}
	clitest.Says(t, second, "The publish to node n2 now: REFUSED [HolderAlive]")
}

func TestExplainNodeTakesNoWordAboutTheMachineBeforeForTheOneThatHasItsNode(t *testing.T) {
	now := &cluster.Node{Name: "n1", Node: clitest.Node("n1", "uid-1", "boot-1"), Lease: leaseOf("7")}
	now.Node.Status.NodeInfo.SystemUUID = "system-2"
	for system, counts := range map[string]bool{"": true, "system-1": false, "system-2": true} {
		m := record.Machine{NodeUID: "uid-1", BootID: "boot-1", SystemUUID: system, LeaseRV: "7"}
		r := record.New("n1")
		r.AddConfirmation(record.Confirmation{ID: "c", By: "ann", Reason: "off", At: "2026-11-21T11:00:01Z", Machines: []record.Machine{m}})
		if e := NodeEvidence(r, now); len(e) != 1 || e[0].Counts != counts || e[0].Since == "" {
			t.Errorf("a word about %q of system-2: %+v, want that it counts: %v", system, e, counts)
		}
	}
}

func TestExplainNodeSaysWhoWroteATaint(t *testing.T) {
	now := &cluster.Node{Name: "n1", Node: clitest.Node("n1", "uid-1", "boot-1"), Lease: leaseOf("7")}
	r := &record.Record{Node: "n1", Taints: map[string]record.TaintBinding{corev1.TaintNodeOutOfService: {NodeUID: "uid-1", BootID: "boot-1", LeaseRV: "7", Value: "nodeshutdown", Writer: "kubectl\n\x1b[31m"}}}
	e := NodeEvidence(r, now)
	if len(e) != 1 {
		t.Fatalf("%+v", e)
	}
	const want = `OutOfServiceTaint with value nodeshutdown (the taints were last written by "kubectl\n\x1b[31m")`
	if got := evidenceWords(&e[0]); !strings.HasPrefix(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// leaseOf is a kubelet's lease with that resourceVersion.
func leaseOf(version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "kube-node-lease", ResourceVersion: version}}
}

// oneLine is the text without its line breaks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
