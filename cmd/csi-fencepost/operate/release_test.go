package operate

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

func contestedEntry(e ledger.Entry) ledger.Entry {
	e.Contest = &fence.Contest{BootID: e.BootID}
	return e
}

func TestReleaseIsBoundToTheVeryPublication(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", contestedEntry(clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing)))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady)
	stdout, _ := commandLine(t, cli.ExitOK, "release", "pv", "pv-1", "--node", "n1", "--reason", "looked: nothing mounted", kubeconfig)
	clitest.Says(t, stdout, "Released: volume pv-1 from node n1 (ID i-1)", "To take it back: csi-fencepost release withdraw pv pv-1 --node n1 --reason TEXT")
	r := api.Record("n1")
	if r == nil || len(r.Releases) != 1 {
		t.Fatalf("record %+v, want one release", r)
	}
	got := r.Releases[0]
	if got.Volume != clitest.Handle || got.Driver != clitest.Driver || got.NodeID != "i-1" || got.NodeUID != "uid-1" || got.Token != "token-i-1" || got.By != "alice" || got.Reason != "looked: nothing mounted" ||
		got.BootID != "boot-1" || got.Life != record.Living {
		t.Errorf("release %+v is not bound to volume, driver, machine, boot, life and token", got)
	}
	stdout, _ = commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "is fenced (VolumeRelease (alice))", "ALLOWED")
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "volume released", "yes, unless the node boots", "volume vol-0001 of disk.example.com from node ID i-1: looked: nothing mounted")
}

func TestReleaseIsRefusedWhileTheNodeUsesTheVolume(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.InUse, clitest.KubeletReady)
	_, stderr := commandLine(t, cli.ExitFailure, "release", "pv", "pv-1", "--node=n1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "node n1 uses PersistentVolume pv-1", "volumesInUse", "kubectl get pods")
	if api.Record("n1") != nil {
		t.Error("a release was written all the same")
	}
}

func TestReleaseSaysWhenItCountsOnlyOnceTheControllerDetaches(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.ListedAttached, clitest.KubeletReady)
	stdout, _ := commandLine(t, cli.ExitOK, "release", "pv", "pv-1", "--node=n1", "--reason=x", kubeconfig)
	clitest.Says(t, stdout, "counts only once Kubernetes has taken the volume off its volumesAttached")
}

func TestReleaseOfAnOlderMachineIsNotRefusedForTheNewOnesUse(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing), clitest.Entry("i-2", "n1", "uid-2", "boot-2", fence.Publishing))
	api.AddNode("n1", "uid-2", "boot-2", "i-2", clitest.InUse, clitest.ListedAttached, clitest.KubeletReady)
	_, stderr := commandLine(t, cli.ExitUsage, "release", "pv", "pv-1", "--node=n1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "choose one with --node-id: i-1, i-2")
	_, stderr = commandLine(t, cli.ExitFailure, "release", "pv", "pv-1", "--node=n1", "--node-id=i-2", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "node n1 uses PersistentVolume pv-1")
	_, stderr = commandLine(t, cli.ExitFailure, "release", "pv", "pv-1", "--node=n1", "--node-id=i-3", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "not hold PersistentVolume pv-1 under node ID i-3, but under i-1, i-2")
	stdout, _ := commandLine(t, cli.ExitOK, "release", "pv", "pv-1", "--node=n1", "--node-id=i-1", "--reason=x", kubeconfig)
	clitest.Says(t, stdout, "Released: volume pv-1 from node n1 (ID i-1)")
	if r := api.Record("n1").Releases[0]; r.NodeUID != "uid-1" || r.Token != "token-i-1" {
		t.Errorf("release %+v, want of the older machine", r)
	}
}

func TestReleaseIsRefusedWhereItSaysNothing(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing), clitest.Entry("i-9", "n9", "uid-9", "boot-9", fence.TakenOver))
	api.AddNode("n1", "uid-1", "boot-1", "i-1")
	_, stderr := commandLine(t, cli.ExitFailure, "release", "pv", "pv-1", "--node=n1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "node n1 (ID i-1) has released PersistentVolume pv-1 already")
	for _, node := range []string{"n2", "n9"} {
		_, stderr = commandLine(t, cli.ExitFailure, "release", "pv", "pv-1", "--node="+node, "--reason=x", kubeconfig)
		clitest.Says(t, stderr, "node "+node+" does not hold PersistentVolume pv-1; who does: node n1 (ID i-1)")
	}
	api.Forbidden["get nodes"] = true
	_, stderr = commandLine(t, cli.ExitFailure, "release", "pv", "pv-1", "--node=n1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "a right is missing", "get nodes")
}

func TestClaimsAreNotWrittenWhereTheConfigurationDoesNotAskForThem(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nevidence:\n  operatorConfirmation: false\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"fence", "confirm", "n1", "--yes"}, {"release", "pv", "pv-1", "--node=n1"}} {
		_, stderr := commandLine(t, cli.ExitFailure, append(args, "--reason=x", "--config="+file, kubeconfig)...)
		clitest.Says(t, stderr, "evidence.operatorConfirmation: false")
	}
	if api.Writes != 0 {
		t.Errorf("%d writes, want none", api.Writes)
	}
}

func TestReleaseOfAVolumeThatASilentKubeletListedLast(t *testing.T) {
	for liveness, refused := range map[fence.Liveness]bool{fence.Stale: false, fence.Alive: true, fence.Unwatched: true} {
		h, err := releasable(inUseOnN1(liveness), "n1", "")
		if h == nil || refused != (err != nil) {
			t.Errorf("%s: %v, want it to be refused: %t", liveness, err, refused)
		}
		if refused {
			clitest.Says(t, err.Error(), "node n1 uses PersistentVolume pv-1", "volumesInUse")
		}
	}
}

func TestReleaseOfASilentNodeSaysThatItsVolumeAttachmentHasToGo(t *testing.T) {
	const says = "counts only once Kubernetes has taken the volume off its volumesAttached: delete the pods of node n1"
	h := inUseOnN1(fence.Stale).Survey.Holders[0]
	for _, tt := range []struct {
		a    *fence.Attachment
		said bool
	}{
		{&fence.Attachment{Name: "csi-1"}, true},
		{&fence.Attachment{Name: "csi-1", DeletedAt: time.Now()}, false},
		{nil, false},
	} {
		var out strings.Builder
		h.Attachment = tt.a
		if printReleased(&out, "pv-1", &h, record.Silent); strings.Contains(out.String(), says) != tt.said {
			t.Errorf("with VolumeAttachment %+v: %s", tt.a, &out)
		}
	}
}

// inUseOnN1 is a look at a volume whose holder's own kubelet lists it.
// The sidecar may refuse all the same: it saw the volume taken by force, and the kubelet does not answer.
func TestAVolumeThatIsBeingDetachedIsReleasedThoughItsNodeSeemsToHaveLetItGo(t *testing.T) {
	for state, refused := range map[fence.State]bool{fence.Publishing: false, fence.Held: false, fence.Released: true} {
		l := inUseOnN1(fence.Alive)
		h := &l.Survey.Holders[0]
		h.Node.InUse, h.Node.ListedAttached, h.State = false, false, state
		h.Attachment = &fence.Attachment{Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: time.Now()}
		h.ReadySince, h.Node.ReadySince, h.Node.Ready = "1", "1", true
		if _, st, _ := l.Survey.Snapshot.Alone(*h); st.Reason != fence.HolderReleased {
			t.Fatalf("%s: it is %s", state, st.Reason)
		}
		if err := inTheWay(l, h); refused != (err != nil) {
			t.Errorf("%s: %v, want it to be refused: %t", state, err, refused)
		}
	}
}

func inUseOnN1(liveness fence.Liveness) *explain.Look {
	pv := clitest.PV("pv-1")
	h := fence.Holder{NodeID: "i-0abc", NodeName: "n1", NodeUID: "uid-1", BootID: "boot-1", Sources: []fence.Source{fence.FromLedger, fence.FromVolumesInUse},
		State: fence.Publishing, Token: "t1", Liveness: liveness, LeaseRV: "100",
		Node: &fence.Node{UID: "uid-1", BootID: "boot-1", InUse: true, ListedAttached: true}}
	return &explain.Look{Driver: clitest.Driver, Pv: pv, Survey: &survey.Survey{
		Snapshot: fence.Snapshot{Volume: clitest.Handle, PV: pv.Name, Holders: []fence.Holder{h}},
		Writers:  csi.Single,
		Book:     &ledger.Book{Handle: clitest.Handle, PVs: []*corev1.PersistentVolume{pv}},
	}}
}

func TestAReleaseCanBeTakenBack(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", contestedEntry(clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing)))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady)
	withdraw := []string{"release", "withdraw", "pv", "pv-1", "--node=n1", "--reason=I was wrong", kubeconfig}
	_, stderr := commandLine(t, cli.ExitFailure, withdraw...)
	clitest.Says(t, stderr, "there is no release of PersistentVolume pv-1 from node n1")
	commandLine(t, cli.ExitOK, "release", "pv", "pv-1", "--node=n1", "--reason=looked", kubeconfig)
	stdout, _ := commandLine(t, cli.ExitOK, withdraw...)
	clitest.Says(t, stdout, "Withdrawn: that node n1 (ID i-1) does not use PersistentVolume pv-1, which alice said at ")
	if r := api.Record("n1"); len(r.Releases) != 0 || r.Audit[len(r.Audit)-1].Action != "WithdrawRelease" {
		t.Errorf("record %+v", r)
	}
	stdout, _ = commandLine(t, cli.ExitOK, "explain", "pv", "pv-1", kubeconfig)
	clitest.Says(t, stdout, "REFUSED [HolderContested]")
	_, stderr = commandLine(t, cli.ExitUsage, "release", "withdraw", "pvc", "data", "--node=n1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, `"pvc" is never released, only pv`)
	_, stderr = commandLine(t, cli.ExitUsage, "release", "withdraw", "pv", "pv-1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "--node is missing")
}

// A word that is bound to nothing would count for ever.
func TestAReleaseOfAHolderThatTheLedgerLacksWritesItDownFirst(t *testing.T) {
	c := garbledCluster(t)
	carry(t, c, ledgerWith(t, c, clitest.Entry("i-9", "n9", "uid-9", "boot-9", fence.TakenOver)).String())
	l, err := explain.LookAt(t.Context(), c, "pv-1", 0, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	h, err := releasable(l, "n1", "")
	if h == nil || h.Token != "" {
		t.Fatalf("the holder is %+v, %v; want one that the ledger lacks", h, err)
	}
	token, err := writtenDown(t.Context(), c, l, h)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ledger.Parse(pvOf(t, c).Annotations[ledger.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	e := parsed.Get(h.NodeID)
	if e == nil || token == "" || e.Token != token || e.State != fence.Held || e.NodeUID != h.NodeUID || parsed.Get("i-9") == nil {
		t.Fatalf("token %q, the ledger has %+v", token, parsed.Holders)
	}
	// Another one has been written since the look.
	if token, err := writtenDown(t.Context(), c, l, h); err == nil {
		t.Errorf("written over another ledger, with token %q", token)
	}
}

// The ledger has one entry for each node ID. What is released by it is that one's.
func TestAReleaseOfANodeThatBorrowsAnIDIsNotWrittenOverTheEntryOfAnother(t *testing.T) {
	c := garbledCluster(t)
	const id = "i-1"
	before := ledgerWith(t, c, clitest.Entry(id, "n0", "uid-0", "boot-0", fence.Publishing)).String()
	carry(t, c, before)
	n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n = n.DeepCopy()
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{(&csi.Identity{Driver: clitest.Driver}).UniqueName(clitest.Handle)}
	if _, err := c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	l, err := explain.LookAt(t.Context(), c, "pv-1", 0, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	h, err := releasable(l, "n1", "")
	if h == nil || h.NodeID != id || h.Token != "" {
		t.Fatalf("the holder is %+v, %v; want n1 under %s, besides n0", h, err, id)
	}
	if _, err := writtenDown(t.Context(), c, l, h); err == nil || !strings.Contains(err.Error(), "node n1 has the node ID of node n0") {
		t.Errorf("%v", err)
	}
	if now := pvOf(t, c).Annotations[ledger.Annotation]; now != before {
		t.Errorf("the ledger is %s, want %s", now, before)
	}
	p, err := rebuild(t.Context(), c, "pv-1", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if e := p.want.Get(id); e == nil || e.NodeName != "n0" || len(p.notes) == 0 || !strings.Contains(p.notes[0], "Node n1 is named by") {
		t.Errorf("a repair would write %+v, and says %q", e, p.notes)
	}
}

// Written without the driver's list, the ledger must not look as if it had been asked.
func TestAReleaseWhereThereIsNoLedgerWritesTheFirstOneAsARepairDoes(t *testing.T) {
	c := garbledCluster(t)
	other := ledgerWith(t, c) // restored from a backup of another cluster
	other.Cluster = "another"
	carry(t, c, strings.Replace(other.String(), `"holders":null`, `"holders":[]`, 1))
	look := func() (*explain.Look, *fence.Holder) {
		l, err := explain.LookAt(t.Context(), c, "pv-1", 0, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		h, err := releasable(l, "n1", "")
		if h == nil {
			t.Fatal(err)
		}
		return l, h
	}
	l, h := look()
	token, err := writtenDown(t.Context(), c, l, h)
	if err != nil || token == "" {
		t.Fatalf("token %q, %v", token, err)
	}
	if l, h = look(); h.Token != token || !l.Survey.Book.Unasked() {
		t.Errorf("the holder is %+v, the driver counts as asked: %t", h, !l.Survey.Book.Unasked())
	}
}

// An entry that says nothing of the machine could be bound to none.
func TestAReleaseIsRefusedWhileTheNodesDriverIsNotRegistered(t *testing.T) {
	c := garbledCluster(t)
	carry(t, c, ledgerWith(t, c, clitest.Entry("i-9", "n9", "uid-9", "boot-9", fence.TakenOver)).String())
	l, err := explain.LookAt(t.Context(), c, "pv-1", 0, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := releasable(l, "n1", "")
	h.NodeUID = ""
	if _, err := writtenDown(t.Context(), c, l, h); err == nil || !strings.Contains(err.Error(), "its driver is not registered there") {
		t.Errorf("%v", err)
	}
}

func TestAReleaseOfALivingNodeIsRefusedWhilePodsThereMayUseTheVolumeAgain(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddPV("pv-1", contestedEntry(clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing)))
	api.AddNode("n1", "uid-1", "boot-1", "i-1", clitest.KubeletReady)
	api.AddAttachment("n1", true)
	_, stderr := commandLine(t, cli.ExitFailure, "release", "pv", "pv-1", "--node=n1", "--reason=x", kubeconfig)
	clitest.Says(t, stderr, "node n1 lives, and its VolumeAttachment csi-", " of PersistentVolume pv-1 is not being deleted", "kubectl get pods")
	if api.Record("n1") != nil {
		t.Error("a release was written all the same")
	}
}
