package operate

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

func pvOf(t *testing.T, c *cluster.Cluster) *corev1.PersistentVolume {
	t.Helper()
	pv, err := c.Client.CoreV1().PersistentVolumes().Get(t.Context(), "pv-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pv
}

// carry makes pv-1 carry that text.
func carry(t *testing.T, c *cluster.Cluster, text string) {
	t.Helper()
	pv := pvOf(t, c).DeepCopy()
	pv.Annotations[ledger.Annotation] = text
	if _, err := c.Client.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func ledgerWith(t *testing.T, c *cluster.Cluster, entries ...ledger.Entry) *ledger.Ledger {
	t.Helper()
	return &ledger.Ledger{Version: 1, Driver: clitest.Driver, Handle: clitest.Handle, Cluster: clitest.Cluster, PVUID: string(pvOf(t, c).UID), Holders: entries}
}

// detached: no VolumeAttachment names a holder any more.
func detached(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if err := c.Client.StorageV1().VolumeAttachments().Delete(t.Context(), "va-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// driverList is a driver that lists these nodes.
type driverList struct {
	nodes []string
	asked int
}

func (l *driverList) PublishedNodes(context.Context, string) ([]string, bool, error) {
	l.asked++
	return l.nodes, true, nil
}

// surveyorWith surveys as the sidecar does, which can ask the driver.
func surveyorWith(t *testing.T, c *cluster.Cluster, driver *driverList) *survey.Surveyor {
	t.Helper()
	k, err := explain.BeginLook(t.Context(), c, "pv-1")
	if err != nil {
		t.Fatal(err)
	}
	k.Surveyor.Driver = driver
	return k.Surveyor
}

func repairNow(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	p, err := planRepair(t.Context(), c, "pv-1", &strings.Builder{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.write(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// The driver goes on to list i-9; nothing else that can be read names it.
func TestARepairFreesNobodyWhomOnlyTheDriverLists(t *testing.T) {
	c := garbledCluster(t)
	detached(t, c)
	driver := &driverList{nodes: []string{"i-9"}}
	refused := func(when string) *survey.Survey {
		t.Helper()
		s, err := surveyorWith(t, c, driver).Publish(t.Context(), clitest.Handle, "i-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if v := fence.JudgePublish(s.Snapshot, "i-1"); v.Action != fence.Refuse {
			t.Errorf("%s: i-9, which the driver lists, was freed: %v, %v", when, v.Action, v.Reason)
		}
		return s
	}
	refused("before the repair")
	repairNow(t, c)
	s := refused("after the repair")

	// The next write adopts it, and from then on the driver is not asked.
	surveyor := surveyorWith(t, c, driver)
	if _, err := surveyor.Ledgers.Write(t.Context(), s.Book, s.Ledger()); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Parse(pvOf(t, c).Annotations[ledger.Annotation])
	if err != nil {
		t.Fatal(err)
	}
	if e := l.Get("i-9"); e == nil || e.State != fence.Held || e.From != fence.FromDriver {
		t.Errorf("not adopted: %s", l)
	}
	driver.asked = 0
	if s, err = surveyor.Unpublish(t.Context(), clitest.Handle, "i-1"); err != nil || driver.asked != 0 || s.Book.Unasked() {
		t.Errorf("the driver was asked %d times more: %v", driver.asked, err)
	}
}

// The first call after a repair may be an unpublish, which writes too.
func TestAnUnpublishAfterARepairAdoptsWhomTheDriverLists(t *testing.T) {
	c := garbledCluster(t)
	repairNow(t, c)
	s, err := surveyorWith(t, c, &driverList{nodes: []string{"i-1", "i-9"}}).Unpublish(t.Context(), clitest.Handle, "i-1")
	if err != nil {
		t.Fatal(err)
	}
	if l := s.Ledger(); l.Get("i-9") == nil || l.Get("i-1") == nil {
		t.Errorf("the ledger that is written lacks a holder: %s", l)
	}
}

// Where there is no ledger that counts, the sidecar asks the driver. A ledger
// that a person wrote in its place would end that.
func TestALedgerThatIsSetAsideIsLeftToTheSidecar(t *testing.T) {
	for name, change := range map[string]func(*ledger.Ledger){
		"of another object":  func(l *ledger.Ledger) { l.PVUID = "another-uid" },
		"of another cluster": func(l *ledger.Ledger) { l.Cluster = "another-cluster" },
	} {
		c := garbledCluster(t)
		l := ledgerWith(t, c, clitest.Entry("i-9", "n9", "uid-9", "b9", fence.Held))
		change(l)
		carry(t, c, l.String())
		_, err := planRepair(t.Context(), c, "pv-1", &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), "set aside") || !strings.Contains(err.Error(), "the sidecar writes a new one by itself") {
			t.Errorf("%s: %v", name, err)
		}
		if names, err := damaged(t.Context(), c); err != nil || len(names) != 0 {
			t.Errorf("%s: --all would repair %v (%v)", name, names, err)
		}
	}
}

// A ledger of another object in the way of nobody stays when its twin is rebuilt.
func TestARepairLeavesATwinsLedgerThatIsSetAside(t *testing.T) {
	c := garbledCluster(t)
	twin := clitest.PV("pv-2")
	aside := ledgerWith(t, c, clitest.Entry("i-9", "n9", "uid-9", "b9", fence.Held))
	aside.PVUID = "another-uid"
	twin.Annotations = map[string]string{ledger.Annotation: aside.String()}
	if _, err := c.Client.CoreV1().PersistentVolumes().Create(t.Context(), twin, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	repairNow(t, c)
	if _, err := ledger.Parse(pvOf(t, c).Annotations[ledger.Annotation]); err != nil {
		t.Error(err)
	}
	after, err := c.Client.CoreV1().PersistentVolumes().Get(t.Context(), "pv-2", metav1.GetOptions{})
	if err != nil || after.Annotations[ledger.Annotation] != aside.String() || after.Annotations[ledger.RepairedAnnotation] != "" {
		t.Errorf("pv-2 was changed: %v, %v", after.Annotations, err)
	}
}

// Whoever makes a second PersistentVolume for a volume names no holder of it, contests none,
// and keeps nobody from repairing its ledger.
func TestARepairTakesOffWhatASecondPersistentVolumeBroughtAlong(t *testing.T) {
	const holders = `"holders":[{"nodeID":"made-up","state":"held"},{"nodeID":"i-1","state":"held","contested":{"bootID":"boot-1"}}]`
	for name, was := range map[string][]ledger.Entry{
		"the ledger lacks a holder": {},
		"the ledger is whole":       {clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Held)},
	} {
		for _, text := range []string{`{"version":1,` + holders, `{"version":99,` + holders + `}`} {
			c := garbledCluster(t)
			attached(t, c)
			carry(t, c, ledgerWith(t, c, was...).String())
			for _, second := range []string{"pv-0", "pv-2"} {
				brought := clitest.PV(second)
				brought.Annotations = map[string]string{ledger.Annotation: text}
				if _, err := c.Client.CoreV1().PersistentVolumes().Create(t.Context(), brought, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			repairNow(t, c)
			book, err := ledger.New(c.Client, clitest.Cluster, &csi.Identity{Driver: clitest.Driver}).Read(t.Context(), clitest.Handle, []string{"pv-0", "pv-1", "pv-2"})
			if err != nil {
				t.Fatal(err)
			}
			if e := book.Ledger.Get("i-1"); len(book.Ledger.Holders) != 1 || e == nil || e.Contest != nil || len(book.SetAside) != 0 {
				t.Errorf("%s, %s: %s, set aside: %v", name, text, book.Ledger, book.SetAside)
			}
		}
	}
}

// What has the UID of its PersistentVolume was written there, though another one has a ledger.
func TestARepairSalvagesWhatWasWrittenOnATwin(t *testing.T) {
	for version, refused := range map[string]bool{`{"version":1,`: false, `{"version":99,`: true} {
		c := garbledCluster(t)
		carry(t, c, ledgerWith(t, c).String())
		twin := clitest.PV("pv-2", clitest.Entry("i-9", "n9", "uid-9", "b9", fence.Held))
		twin.Annotations[ledger.Annotation] = strings.Replace(strings.TrimSuffix(twin.Annotations[ledger.Annotation], "]}"), `{"version":1,`, version, 1)
		if refused {
			twin.Annotations[ledger.Annotation] += "]}"
		}
		if _, err := c.Client.CoreV1().PersistentVolumes().Create(t.Context(), twin, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p, err := planRepair(t.Context(), c, "pv-1", &strings.Builder{})
		if refused != (err != nil && strings.Contains(err.Error(), "newer csi-fencepost")) {
			t.Errorf("%s: %v", version, err)
		}
		if !refused && p.want.Get("i-9") == nil {
			t.Errorf("%s: a holder is lost: %s", version, p.want)
		}
	}
}

// whileReading writes text as somebody else at the n-th read of the volume that a
// plan makes. It returns how many it makes.
func whileReading(t *testing.T, c *cluster.Cluster, n int, text string) (reads *int) {
	t.Helper()
	reads = new(int)
	client, volumes := c.Client.(*fake.Clientset), corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	write := func(k8stesting.Action) (bool, runtime.Object, error) {
		if *reads++; *reads == n {
			obj, err := client.Tracker().Get(volumes, "", "pv-1")
			if err != nil {
				t.Fatal(err)
			}
			now := obj.(*corev1.PersistentVolume).DeepCopy()
			now.Annotations[ledger.Annotation] = text
			if err := client.Tracker().Update(volumes, now, ""); err != nil {
				t.Fatal(err)
			}
		}
		return false, nil, nil
	}
	client.PrependReactor("get", "persistentvolumes", write)
	client.PrependReactor("list", "persistentvolumes", write)
	return reads
}

// The sidecar writes a contest and a publication down while the repair reads:
// whenever that is, they are not overwritten unread.
func TestARepairLosesNothingThatIsWrittenWhileItReads(t *testing.T) {
	for name, was := range map[string]func(*testing.T, *cluster.Cluster) string{
		"a ledger that lacks a holder": func(t *testing.T, c *cluster.Cluster) string {
			return ledgerWith(t, c).String()
		},
		"a garbled one": func(*testing.T, *cluster.Cluster) string { return "{oops" },
	} {
		prepare := func() *cluster.Cluster {
			c := garbledCluster(t)
			carry(t, c, was(t, c))
			attached(t, c)
			return c
		}
		c := prepare()
		reads := whileReading(t, c, 0, "")
		if _, err := planRepair(t.Context(), c, "pv-1", &strings.Builder{}); err != nil {
			t.Fatalf("%s: nothing to repair: %v", name, err)
		}
		noticed := 0
		for n := 1; n <= *reads+1; n++ {
			c := prepare()
			contested := clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Held)
			contested.Contest = &fence.Contest{BootID: "boot-1"}
			written := ledgerWith(t, c, contested, clitest.Entry("i-2", "n2", "uid-2", "boot-2", fence.Publishing)).String()
			whileReading(t, c, n, written)
			p, err := planRepair(t.Context(), c, "pv-1", &strings.Builder{})
			if err != nil && strings.Contains(err.Error(), "changed meanwhile") {
				noticed++
			}
			if err == nil {
				if n > *reads {
					carry(t, c, written)
				}
				err = p.write(t.Context(), c)
			}
			if err == nil {
				t.Errorf("%s: at read %d of %d: it was written over", name, n, *reads)
			}
			if got := pvOf(t, c).Annotations[ledger.Annotation]; got != written {
				t.Errorf("%s: at read %d of %d: there stands %s", name, n, *reads, got)
			}
		}
		if noticed == 0 {
			t.Errorf("%s: a text that the survey did not see was planned with", name)
		}
	}
}

// attached: the driver has answered, so that the attachment's node is a holder.
func attached(t *testing.T, c *cluster.Cluster) *storagev1.VolumeAttachment {
	t.Helper()
	va, err := c.Client.StorageV1().VolumeAttachments().Get(t.Context(), "va-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	va.Status.Attached = true
	if va, err = c.Client.StorageV1().VolumeAttachments().Update(t.Context(), va, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return va
}

// The node published under boot-0, and was contested under boot-1; the text was
// cut off behind that. With the entry's boot the contest would count as ended.
func TestASalvagedContestWithoutABootCountsInEveryBoot(t *testing.T) {
	c := garbledCluster(t)
	contested := clitest.Entry("i-1", "n1", "uid-1", "boot-0", fence.Held)
	contested.Contest = &fence.Contest{BootID: "boot-1"}
	text := ledgerWith(t, c, contested).String()
	const cut = `"contested":{"bo`
	carry(t, c, text[:strings.Index(text, cut)+len(cut)])
	for _, named := range []string{"by an attachment too", "by the text alone"} {
		if named == "by the text alone" {
			detached(t, c)
		}
		p, err := planRepair(t.Context(), c, "pv-1", &strings.Builder{})
		if err != nil {
			t.Fatal(err)
		}
		e := p.want.Get("i-1")
		if e == nil || e.Contest == nil || e.Contest.BootID != "" || e.Contest.OtherBoot("boot-1") || e.Contest.OtherBoot("boot-0") {
			t.Errorf("named %s: the contest is void in some boot: %s", named, p.want)
		}
	}
}
