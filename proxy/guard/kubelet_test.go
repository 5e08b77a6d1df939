package guard_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// kubelets answer with the number of the process that runs on a node; none, or 0: nobody
// answers. Each is seen as soon as it runs.
type kubelets struct {
	run   map[string]int
	asked []string
	age   time.Duration
	mute  bool                           // they run, and do not answer
	seen  func(node, uid, bootID string) // nil: nothing
}

func process(number int) *fence.Process {
	if number == 0 {
		return nil
	}
	return &fence.Process{Start: float64(1000 * number), CPU: 1, Key: "key"}
}

func (k *kubelets) Seen(node, uid, bootID string) *fence.Process {
	if k.seen != nil {
		k.seen(node, uid, bootID)
	}
	return process(k.run[node])
}

func (k *kubelets) Ask(_ context.Context, n *corev1.Node, _ string) (*kubelet.Answer, error) {
	k.asked = append(k.asked, n.Name)
	if p := process(k.run[n.Name]); p != nil && !k.mute {
		return &kubelet.Answer{Process: *p, Age: k.age}, nil
	}
	return nil, errors.New("connection refused")
}

// asksFor makes a VolumeAttachment that does not say attached yet.
func asksFor(r *guardrig.Rig, node string) {
	r.Attachment(node, time.Time{})
	r.ChangeAttachment(node, func(va *storagev1.VolumeAttachment) { va.Status.Attached = false })
}

// asking is contested, but its kubelet was seen before the publish as process 1.
func asking(t *testing.T) (*guardrig.Rig, *kubelets) {
	r, k := guardrig.New(t, fence.Policy{}), &kubelets{run: map[string]int{"a": 1, "b": 1}}
	r.Sealing()
	r.Guard.Surveyor.Kubelets = k
	since := time.Now().Add(-time.Hour)
	r.Node("a", since)
	r.Node("b", since)
	asksFor(r, "a")
	r.Must(r.PublishTo("a"))
	r.Taint("a")
	r.Attachment("a", time.Now())
	r.Attachment("b", time.Time{})
	return r, k
}

func TestAKubeletThatRanBeforeThePublishIsBelieved(t *testing.T) {
	r, k := asking(t)
	r.Must(r.UnpublishFrom(guardrig.ID("a")))
	r.Stripped("a")
	r.Must(r.PublishTo("b"))
	if len(k.asked) == 0 {
		t.Error("it was not asked")
	}
}

func TestAKubeletIsBelievedThoughItsWordWasRefusedBefore(t *testing.T) {
	r, k := asking(t)
	k.run["a"] = 0
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	k.run["a"] = 1
	r.Must(r.PublishTo("b"))
	r.Called("publish "+guardrig.ID("a"), "unpublish "+guardrig.ID("a"), "publish "+guardrig.ID("b"))
}

func TestAnotherProcessIsNotBelieved(t *testing.T) {
	r, k := asking(t)
	k.run["a"] = 2
	for range 2 { // that it runs now is nothing that ran before the publish
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
		r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	}
	r.Called("publish " + guardrig.ID("a"))
}

func TestAKubeletThatUsesTheVolumeIsNotAsked(t *testing.T) {
	r, k := asking(t)
	r.Lists("a", true, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	if len(k.asked) > 0 {
		t.Errorf("%q were asked", k.asked)
	}
}

func TestEverydayLifeAsksNoKubelet(t *testing.T) {
	r, k := guardrig.New(t, fence.Policy{}), &kubelets{run: map[string]int{"a": 1, "b": 1}}
	r.Guard.Surveyor.Kubelets = k
	r.Node("a", guardrig.HourAgo)
	r.Node("b", guardrig.HourAgo)
	asksFor(r, "a")
	r.Must(r.PublishTo("a"))
	r.Attachment("a", time.Now())
	r.Attachment("b", time.Time{})
	r.Must(r.PublishTo("b"))
	r.Attachment("b", time.Now())
	r.Must(r.UnpublishFrom(guardrig.ID("b")))
	if len(k.asked) > 0 {
		t.Errorf("%q were asked", k.asked)
	}
}

// forced has node a, whose volume was taken by force five minutes ago, and is let go since.
func forced(t *testing.T) (*guardrig.Rig, *kubelets) {
	r, k := guardrig.New(t, fence.Policy{}), &kubelets{run: map[string]int{"a": 1, "b": 1}, age: time.Hour}
	r.Guard.Surveyor.Kubelets, r.ForcedFor = k, 5*time.Minute
	r.Node("a", guardrig.HourAgo)
	r.Node("b", guardrig.HourAgo)
	asksFor(r, "a")
	r.Must(r.PublishTo("a"))
	r.Attachment("a", time.Now())
	r.Attachment("b", time.Time{})
	return r, k
}

func TestAKubeletIsAskedOnceOfAForcedDetach(t *testing.T) {
	r, k := forced(t)
	r.UnpublishErr = guardrig.ErrThrottled
	for range 3 {
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.Internal, "throttled")
	}
	r.UnpublishErr = nil
	r.Must(r.PublishTo("b"))
	if !slices.Equal(k.asked, []string{"a"}) {
		t.Errorf("%q were asked", k.asked)
	}
}

// Once it was contested for that it stays so, and nobody is asked.
func TestAKubeletThatHasRestartedSinceAForcedDetachIsNotBelieved(t *testing.T) {
	r, k := forced(t)
	k.run["a"], k.age = 2, time.Minute
	contested := "[" + string(fence.HolderContested) + "]"
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, contested)
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, contested)
	asked := len(k.asked)
	for range 2 {
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, contested)
		r.Refused(r.PublishTo("b"), codes.FailedPrecondition, contested)
	}
	if len(k.asked) != asked {
		t.Errorf("%q were asked", k.asked)
	}
	r.Reboot("a", "boot-2")
	r.Must(r.PublishTo("b"))
}

// It is not contested for that, and let go as soon as it says that it has not restarted.
func TestAKubeletThatDoesNotSayWhetherItHasRestartedSinceAForcedDetachIsAskedAgain(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		r, k := forced(t)
		contested := "[" + string(fence.HolderContested) + "]"
		k.mute = true
		for range 2 {
			r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, contested)
			r.Refused(r.PublishTo("b"), codes.FailedPrecondition, contested)
		}
		if c := r.Ledger().Get(guardrig.ID("a")).Contest; c != nil {
			t.Errorf("it is contested with %+v", c)
		}
		if k.mute = false; restarts {
			k.run["a"], k.age = 2, time.Minute
			r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, contested)
			if r.Ledger().Get(guardrig.ID("a")).Contest == nil {
				t.Error("it is not contested")
			}
			continue
		}
		r.Must(r.PublishTo("b"))
		r.Called("publish "+guardrig.ID("a"), "unpublish "+guardrig.ID("a"), "publish "+guardrig.ID("b"))
	}
}

func TestAKubeletThatWasSeenToListTheVolumeAndHasRestartedSinceIsNotBelieved(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		r, k := forced(t)
		r.Lists("a", true, false)
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		if c := r.Ledger().Get(guardrig.ID("a")).Contest; c == nil || c.SeenReadySince == "" {
			t.Fatalf("it is contested with %+v", c)
		}
		r.Lists("a", false, false)
		if !restarts {
			r.Must(r.UnpublishFrom(guardrig.ID("a")))
			continue
		}
		k.run["a"], k.age = 2, time.Minute
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
		k.run["a"] = 0
		r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
		r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	}
}

// What a ledger says that ran before a publish has run before the machine can have had the
// volume at all, in that boot.
func TestWhatRanBeforeAPublishRanBeforeTheMachineHadTheVolume(t *testing.T) {
	held := func(change func(*ledger.Entry)) func(*guardrig.Rig) {
		return func(r *guardrig.Rig) {
			r.Must(r.PublishTo("a"))
			r.Change(func(l *ledger.Ledger) { change(l.Get(guardrig.ID("a"))) })
		}
	}
	taken := func(e *ledger.Entry) { e.State = fence.TakenOver }
	for name, c := range map[string]struct {
		before func(*guardrig.Rig) // with process 1; then process 2 runs
		want   int
	}{
		"nobody had it":        {func(*guardrig.Rig) {}, 2},
		"another had it":       {func(r *guardrig.Rig) { r.Change(func(l *ledger.Ledger) { l.Put(takenFrom("b")) }) }, 2},
		"it is a retry":        {held(func(*ledger.Entry) {}), 1},
		"it was taken from it": {held(taken), 1},
		"it was taken from it, nobody knows what ran":      {held(func(e *ledger.Entry) { taken(e); e.Kubelet = nil }), 0},
		"it was taken from it, and it has booted":          {held(func(e *ledger.Entry) { taken(e); e.BootID = "boot-0" }), 0},
		"it was taken from it, nobody knows in which boot": {held(func(e *ledger.Entry) { taken(e); e.BootID = "" }), 0},
		// What it mounted in this boot it mounted without a publish.
		"it has booted with it": {held(func(e *ledger.Entry) { e.BootID = "boot-0" }), 0},
		"it has booted with it, and is contested": {held(func(e *ledger.Entry) {
			e.BootID, e.Contest = "boot-0", &fence.Contest{BootID: "boot-of-a"}
		}), 0},
		"it was registered again":                    {held(func(e *ledger.Entry) { e.NodeUID = "uid-before" }), 0},
		"nothing is sealed":                          {func(r *guardrig.Rig) { r.Guard.Seal, r.Guard.Surveyor.Seal = nil, nil }, 0},
		"its Node lists it, and there is no ledger":  {func(r *guardrig.Rig) { r.Lists("a", true, false) }, 0},
		"it was taken from it under another node ID": {held(func(e *ledger.Entry) { taken(e); e.NodeID = "id-before" }), 0},
		"it was adopted":                             {held(func(e *ledger.Entry) { e.State, e.Kubelet = fence.Held, nil }), 0},
		"its PersistentVolume was created again": {func(r *guardrig.Rig) {
			r.Annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"cluster-uid","pvUID":"uid-of-another","holders":[{"nodeID":"id-a","node":"a","nodeUID":"uid-of-a","bootID":"boot-of-a","systemUUID":"system-a","token":"t","state":"publishing"}]}`)
		}, 0},
		"its Node lists it as attached": {func(r *guardrig.Rig) { r.Lists("a", false, true) }, 0},
		"its Node lists it, and the ledger says that nobody has it": {func(r *guardrig.Rig) {
			r.Must(r.PublishTo("a"))
			r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("a"), l.Get(guardrig.ID("a")).Token) })
			r.Lists("a", true, false)
		}, 2},
		"its Node came after the seal, and the ledger says that nobody has it": {func(r *guardrig.Rig) {
			r.Must(r.PublishTo("a"))
			r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("a"), l.Get(guardrig.ID("a")).Token) })
			r.RenewUID("a")
		}, 0},
		"its VolumeAttachment says attached": {func(r *guardrig.Rig) { r.SaysAttached("a") }, 0},
		"the driver lists it":                {func(r *guardrig.Rig) { r.Listed = []string{guardrig.ID("a")} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, k := guardrig.New(t, fence.Policy{}), &kubelets{run: map[string]int{"a": 1}}
			r.Sealing()
			r.Guard.Surveyor.Kubelets = k
			r.Node("a", guardrig.HourAgo)
			r.Node("b", guardrig.HourAgo)
			asksFor(r, "a")
			c.before(r)
			k.run["a"] = 2
			r.Must(r.PublishTo("a"))
			e := r.Ledger().Get(guardrig.ID("a"))
			if want := process(c.want); (e.Kubelet == nil) != (want == nil) || want != nil && *e.Kubelet != *want {
				t.Errorf("the ledger says %+v, want process %d", e.Kubelet, c.want)
			}
		})
	}
}

// A kubelet may write that a pod of its waits for the volume before the first publish comes: of a
// volume that was made since the ledgers were sealed, and of which this process gave nobody
// anything, that is all that it can mean.
func TestOfANewVolumeAKubeletThatListsItOnlyWaits(t *testing.T) {
	before := func(version string, change func(*guardrig.Rig, *guardrig.Etcd)) func(*guardrig.Rig, *guardrig.Etcd) {
		return func(r *guardrig.Rig, e *guardrig.Etcd) {
			r.Provisioned(version, nil)
			change(r, e)
		}
	}
	nothing := func(*guardrig.Rig, *guardrig.Etcd) {}
	for name, c := range map[string]struct {
		before func(*guardrig.Rig, *guardrig.Etcd)
		want   int
	}{
		"it is new":                             {before("5000", nothing), 1},
		"it was there when the seal was put on": {before("999", nothing), 0},
		"a person made it":                      {nothing, 0},
		"two volumes are the disk":              {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Beside("pv-2") }), 0},
		"another process has put its seal on":   {before("5000", func(_ *guardrig.Rig, e *guardrig.Etcd) { e.Lease.ResourceVersion = "77" }), 0},
		"its VolumeAttachment says attached":    {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) { r.SaysAttached("a") }), 0},
		"its Node lists it as attached, too":    {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) { r.Lists("a", true, true) }), 0},
		"it was published, and its ledger taken off": {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Must(r.PublishTo("a"))
			r.Lose()
		}), 0},
		"it was published, its ledger is taken off, and its Node lists nothing": {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Must(r.PublishTo("a"))
			r.Lose()
			r.Lists("a", false, false)
		}), 0},
		"its ledger could not be written at first": {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) {
			fails := true
			r.Client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				failed := fails
				fails = false
				return failed, nil, apierrors.NewInternalError(errors.New("etcd is away"))
			})
			r.Refused(r.PublishTo("a"), codes.Unavailable, "")
		}), 1},
		"its Node came after the seal":                             {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) { r.RenewUID("a") }), 1},
		"its Node came after the seal, and the volume was there":   {before("999", func(r *guardrig.Rig, _ *guardrig.Etcd) { r.RenewUID("a") }), 0},
		"its Node came after the seal, and lists nothing":          {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) { r.RenewUID("a"); r.Lists("a", false, false) }), 1},
		"its Node came after, lists nothing, the volume was there": {before("999", func(r *guardrig.Rig, _ *guardrig.Etcd) { r.RenewUID("a"); r.Lists("a", false, false) }), 0},
		"its disk was published, and has another PersistentVolume": {before("5000", func(r *guardrig.Rig, _ *guardrig.Etcd) {
			r.Must(r.PublishTo("a"))
			r.Stripped("a")
			again(r)
			asksFor(r, "a")
		}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := made(t)
			r.Guard.Surveyor.Kubelets = &kubelets{run: map[string]int{"a": 1}}
			asksFor(r, "a")
			r.Lists("a", true, false)
			c.before(r, e)
			r.Must(r.PublishTo("a"))
			got := r.Ledger().Get(guardrig.ID("a")).Kubelet
			if want := process(c.want); (got == nil) != (want == nil) || want != nil && *got != *want {
				t.Errorf("the ledger says %+v, want process %d", got, c.want)
			}
		})
	}
}

// A disk that somebody had when the seal was put on is not made new by a PersistentVolume that is
// made afterwards.
func TestADiskThatANodeOrAnAttachmentNamesAtTheSealIsNotNew(t *testing.T) {
	for name, c := range map[string]struct{ before, then func(*guardrig.Rig) }{
		"its Node lists it":                                  {func(r *guardrig.Rig) { r.Lists("a", true, false) }, func(*guardrig.Rig) {}},
		"another's Node lists it":                            {func(r *guardrig.Rig) { r.Lists("b", true, false) }, func(r *guardrig.Rig) { r.Lists("b", false, false) }},
		"its disk has another PersistentVolume then":         {nil, again},
		"its PersistentVolume is there, and is bound anew":   {nil, func(*guardrig.Rig) {}},
		"a VolumeAttachment of its PersistentVolume is left": {func(r *guardrig.Rig) { r.Attachment("b", time.Time{}) }, func(r *guardrig.Rig) { r.Stripped("b") }},
	} {
		t.Run(name, func(t *testing.T) {
			r := guardrig.New(t, fence.Policy{})
			r.Sealing()
			r.Guard.Surveyor.Kubelets = &kubelets{run: map[string]int{"a": 1}}
			for _, n := range []string{"a", "b", "c"} {
				r.Node(n, guardrig.HourAgo)
			}
			seal := func() { _ = r.UnpublishFrom(guardrig.ID("c")) }
			if c.before == nil {
				seal()
			} else {
				c.before(r)
				without(r, seal)
			}
			r.Provisioned("5000", nil)
			c.then(r)
			asksFor(r, "a")
			r.Lists("a", true, false)
			r.Must(r.PublishTo("a"))
			if got := r.Ledger().Get(guardrig.ID("a")).Kubelet; got != nil {
				t.Errorf("the ledger says %+v ran before the volume was", got)
			}
		})
	}
}

// What is published while the ledgers are being sealed is not new afterwards.
func TestWhatIsPublishedWhileTheSealIsPutOnIsNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k := guardrig.New(t, fence.Policy{}), &kubelets{run: map[string]int{"a": 1}}
		r.Sealing()
		r.Guard.Surveyor.Kubelets = k
		for _, n := range []string{"a", "b", "c"} {
			r.Node(n, time.Now().Add(-time.Hour))
		}
		driver := held{asked: make(chan struct{}, 10), hold: make(chan struct{})}
		r.Guard.Surveyor.Driver = driver
		without(r, func() {
			other(r, "c")                         // of which the driver is asked
			_ = r.UnpublishFrom(guardrig.ID("b")) // it waits for the seal in vain
		})
		<-driver.asked
		r.Provisioned("5000", nil)
		asksFor(r, "a")
		r.Must(r.PublishTo("a"))
		close(driver.hold)
		time.Sleep(time.Second)
		synctest.Wait()
		r.Stripped("a")
		r.Lose()
		k.run["a"] = 2
		asksFor(r, "a")
		r.Lists("a", true, false)
		r.Must(r.PublishTo("a"))
		if got := r.Ledger().Get(guardrig.ID("a")).Kubelet; got != nil {
			t.Errorf("the ledger says %+v ran before the volume was", got)
		}
	})
}

// held is a driver that does not say where volume other is before hold is closed.
type held struct{ asked, hold chan struct{} }

func (h held) PublishedNodes(_ context.Context, volume string) ([]string, bool, error) {
	if volume == "other" {
		h.asked <- struct{}{}
		<-h.hold
	}
	return nil, true, nil
}

// other is a volume that a silent node lists and no ledger names.
func other(r *guardrig.Rig, node string) {
	r.T.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-other", UID: "uid-of-pv-other", ResourceVersion: "1"}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: guardrig.DriverName, VolumeHandle: "other"}
	_, err := r.Client.CoreV1().PersistentVolumes().Create(r.T.Context(), pv, metav1.CreateOptions{})
	r.Must(err)
	r.Status(node, func(s *corev1.NodeStatus) {
		s.VolumesInUse = append(s.VolumesInUse, corev1.UniqueVolumeName("kubernetes.io/csi/"+guardrig.DriverName+"^other"))
	})
	r.Lives[node] = fence.Stale
}

// again: a provisioner that is asked again makes another PersistentVolume for the same disk.
func again(r *guardrig.Rig) {
	r.T.Helper()
	pvs := r.Client.CoreV1().PersistentVolumes()
	pv, err := pvs.Get(r.T.Context(), guardrig.PVName, metav1.GetOptions{})
	r.Must(err)
	r.Must(pvs.Delete(r.T.Context(), guardrig.PVName, metav1.DeleteOptions{}))
	pv = pv.DeepCopy()
	pv.UID, pv.ResourceVersion = "uid-again", "9"
	delete(pv.Annotations, ledger.Annotation)
	_, err = pvs.Create(r.T.Context(), pv, metav1.CreateOptions{})
	r.Must(err)
}

// A first publish that fails names nobody whom the ledger did not name before, though a kubelet that
// waits for the volume lists it by then. Of a disk that is not new, and lacks a ledger, whoever lists
// it may have it.
func TestAFirstPublishThatFailsThoughTheNodeListsTheVolume(t *testing.T) {
	for name, c := range map[string]struct {
		code  codes.Code
		made  bool
		entry bool
		only  string
	}{
		"it is new, and the driver is through":         {codes.Internal, true, false, ""},
		"it is new, and the driver may be at it still": {codes.DeadlineExceeded, true, true, "uid-of-va-a"},
		"it was there":                          {codes.Internal, false, true, ""},
		"it was there, and the driver is at it": {codes.DeadlineExceeded, false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := made(t)
			if c.made {
				r.Provisioned("5000", nil)
			}
			asksFor(r, "a")
			r.Lists("a", true, false)
			r.PublishErr = status.Error(c.code, "it failed")
			if err := r.PublishTo("a"); status.Code(err) != c.code {
				t.Fatal(err)
			}
			r.PublishErr = nil
			e := r.Ledger().Get(guardrig.ID("a"))
			if (e != nil) != c.entry {
				t.Fatalf("the ledger says %s", r.Ledger())
			}
			if e != nil && (e.State != fence.Publishing || e.OnlyUnder != c.only) {
				t.Errorf("the ledger says %s", r.Ledger())
			}
			// The node dies, and its pod is deleted.
			r.Lives["a"] = fence.Stale
			r.Attachment("a", time.Now())
			r.ChangeAttachment("a", func(va *storagev1.VolumeAttachment) { va.Status.Attached = false })
			r.Attachment("b", time.Time{})
			err := r.PublishTo("b")
			if c.made {
				r.Must(err)
				return
			}
			r.Refused(err, codes.FailedPrecondition, "["+string(fence.HolderStale)+"]")
		})
	}
}

// takenFrom is an entry of a node that the volume was taken from.
func takenFrom(node string) ledger.Entry {
	return ledger.Entry{NodeID: guardrig.ID(node), NodeName: node, NodeUID: "uid-of-" + node, BootID: "boot-of-" + node, SystemUUID: "system-" + node, Token: "t-" + node, State: fence.TakenOver}
}

func TestWhatWasSeenIsAskedForOfTheNodeAndBootThatTheTargetHasNow(t *testing.T) {
	r, k := guardrig.New(t, fence.Policy{}), &kubelets{run: map[string]int{"a": 1}}
	r.Guard.Surveyor.Kubelets = k
	r.Node("a", guardrig.HourAgo)
	asksFor(r, "a")
	n, err := r.Client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	r.Must(err)
	k.seen = func(node, uid, bootID string) {
		if node != "a" || uid != string(n.UID) || bootID != n.Status.NodeInfo.BootID {
			t.Errorf("it asks for %s, %s, %s", node, uid, bootID)
		}
	}
	r.Must(r.PublishTo("a"))
}

func TestAContestedMachineThatRegistersAgainIsNotBelievedByItsProcess(t *testing.T) {
	r, k := asking(t)
	k.run["a"] = 0
	r.Refused(r.UnpublishFrom(guardrig.ID("a")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.RenewUID("a")
	k.run["a"] = 1 // as a hostile one would say
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	if len(k.asked) > 1 {
		t.Errorf("%q were asked", k.asked)
	}
}

// cutAnew is a storage fence of the machine of node old as it is registered now.
type cutAnew struct{}

func (cutAnew) Name() string { return "test" }

func (cutAnew) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	if q.Holder.NodeID != guardrig.ID("old") {
		return nil, nil
	}
	n := q.Holder.Node
	return []fence.Evidence{{Kind: fence.StorageFence, Source: "test", NodeID: q.Holder.NodeID, NodeUID: n.UID, SystemUUID: n.SystemUUID, BootID: n.BootID, LeaseRV: q.LeaseRV}}, nil
}

// A storage fence is lifted in the same boot, and a person may have been wrong: what its kubelet has
// forgotten may be there still when the volume comes back. So nothing is noted with a publish in a
// boot in which the machine had to give it up.
func TestNothingIsNotedInABootInWhichTheVolumeWasForced(t *testing.T) {
	contested := func(r *guardrig.Rig) {
		r.Lists("old", false, false)
		r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Contest = &fence.Contest{BootID: "boot-of-old"} })
	}
	gone := func(r *guardrig.Rig) {
		r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Lives["old"] = fence.Unknown
	}
	anew := func(r *guardrig.Rig) {
		contested(r)
		r.RenewUID("old")
		r.Guard.Surveyor.Sources = []evidence.Source{cutAnew{}}
	}
	other := func(r *guardrig.Rig) { // another machine has its name
		r.Lists("old", false, false)
		r.RenewUID("old")
		r.Status("old", func(s *corev1.NodeStatus) {
			s.NodeInfo.SystemUUID, s.NodeInfo.BootID = "system-of-another", "boot-of-another"
		})
	}
	back := func(r *guardrig.Rig) {
		r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID, s.NodeInfo.BootID = "system-old", "boot-of-old" })
	}
	nothing := func(*guardrig.Rig) {}
	for name, c := range map[string]struct {
		kind         fence.Kind
		before, then func(*guardrig.Rig)
		noted        bool
	}{
		"cut off at the storage":                             {fence.StorageFence, nothing, nothing, false},
		"cut off, and contested":                             {fence.StorageFence, contested, nothing, false},
		"cut off, registered again":                          {fence.StorageFence, anew, nothing, false},
		"cut off, and the Node was gone":                     {fence.StorageFence, gone, func(r *guardrig.Rig) { r.Node("old", guardrig.HourAgo) }, false},
		"a person said so, and another machine had its name": {fence.OperatorConfirmation, other, back, false},
		"a person said so":                                   {fence.OperatorConfirmation, nothing, nothing, false},
		"a person put the taint on":                          {fence.OutOfServiceTaint, nothing, nothing, false},
		"a person released it":                               {fence.VolumeRelease, contested, nothing, false},
		"a person said so, and it has booted":                {fence.OperatorConfirmation, nothing, func(r *guardrig.Rig) { r.Reboot("old", "boot-2") }, true},
		"a person said so, the Node was gone, it booted":     {fence.OperatorConfirmation, gone, func(r *guardrig.Rig) { r.Node("old", guardrig.HourAgo); r.Reboot("old", "boot-2") }, false},
		"a device said that it is off":                       {fence.PowerReading, nothing, nothing, true},
		"a device said so, and the Node was gone":            {fence.PowerReading, gone, func(r *guardrig.Rig) { r.Node("old", guardrig.HourAgo) }, true},
		"it let go, as its kubelet says":                     {"", func(r *guardrig.Rig) { r.Lists("old", false, false); r.Lives["old"] = fence.Alive }, nothing, true},
	} {
		for way, give := range map[string]func(*guardrig.Rig) error{
			"by its unpublish":     func(r *guardrig.Rig) error { return r.UnpublishFrom(guardrig.ID("old")) },
			"by another's publish": func(r *guardrig.Rig) error { return r.PublishTo("next") },
			"from everywhere":      func(r *guardrig.Rig) error { return r.UnpublishFrom("") },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				r, k := guardrig.Fenced(t, fence.Policy{}, c.kind), &kubelets{run: map[string]int{"old": 2}}
				r.Sealing()
				r.Guard.Surveyor.Kubelets = k
				c.before(r)
				r.Must(give(r))
				r.Stripped("old")
				// The volume comes back.
				c.then(r)
				r.Lists("old", false, false)
				r.Lives["old"], r.Guard.Surveyor.Sources = fence.Alive, nil
				r.Reconnect()                                                     // and the ledgers are sealed anew
				r.Change(func(l *ledger.Ledger) { l.Holders = []ledger.Entry{} }) // as it was cut since, or trimmed
				asksFor(r, "old")
				r.Must(r.PublishTo("old"))
				if noted := r.Ledger().Get(guardrig.ID("old")).Kubelet != nil; noted != c.noted {
					t.Errorf("noted: %t, %s", noted, r.Ledger())
				}
			})
		}
	}
}

// cutBefore is a storage fence of the machine of node old as it was registered first.
type cutBefore struct{}

func (cutBefore) Name() string { return "test" }

func (cutBefore) Evidence(ctx context.Context, q evidence.Question) ([]fence.Evidence, error) {
	if q.Holder.NodeUID != "uid-of-old" {
		return nil, nil
	}
	return guardrig.Says{fence.StorageFence}.Evidence(ctx, q)
}

// To the driver two machines with one node ID are one: for the publish of the second nothing is
// unpublished.
func TestAMachineWhoseNodeIDAnotherOneHasWasForced(t *testing.T) {
	for name, publish := range map[string]func(*guardrig.Rig) error{
		"alone": func(r *guardrig.Rig) error { return r.PublishTo("old") },
		"one of many": func(r *guardrig.Rig) error {
			r.Many()
			return r.ShareTo("old", spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
		},
	} {
		r := guardrig.Fenced(t, fence.Policy{}, fence.StorageFence)
		r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
		r.Lives["old"] = fence.Unknown
		r.Stripped("old")
		r.Heir("old", "heir")
		r.Status("heir", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "system-heir" })
		r.Guard.Surveyor.Sources = []evidence.Source{cutBefore{}}
		r.Must(publish(r))
		if l := r.Ledger(); !l.WasForcedIn("boot-of-old") {
			t.Errorf("%s: %s", name, l)
		}
	}
}

// What may have the volume mounted still is every machine of the node ID that was proven gone.
func TestOfWhichBootsNobodyKnowsThatTheVolumeIsOut(t *testing.T) {
	node := func(uid, boot string) *fence.Node { return &fence.Node{UID: uid, BootID: boot} }
	holder := func(name, uid, boot string, n *fence.Node) fence.Holder {
		return fence.Holder{NodeID: "id", NodeName: name, NodeUID: uid, BootID: boot, State: fence.Held, Node: n, Liveness: fence.Stale}
	}
	read := &fence.Evidence{Kind: fence.PowerReading}
	for name, c := range map[string]struct {
		st     fence.Standing
		others []fence.Holder
		want   []string
	}{
		"it has let go":                   {fence.Standing{Reason: fence.HolderReleased}, nil, nil},
		"it reads off":                    {fence.Standing{Reason: fence.HolderFenced, Evidence: read}, nil, nil},
		"it read off, and that is over":   {fence.Standing{Reason: fence.UnfencedForward, Evidence: read}, nil, []string{"b1", "b2"}},
		"its access was revoked":          {fence.Standing{Reason: fence.HolderRevoked}, nil, []string{"b1", "b2"}},
		"another of its ID is in the way": {fence.Standing{Reason: fence.HolderReleased}, []fence.Holder{holder("m", "u2", "b3", nil)}, []string{ledger.AnyBoot}},
		"it was taken from another of its ID before": {fence.Standing{Reason: fence.HolderReleased}, func() []fence.Holder {
			h := holder("m", "u2", "b3", nil)
			h.State = fence.TakenOver
			return []fence.Holder{h}
		}(), nil},
	} {
		s := &survey.Survey{Snapshot: fence.Snapshot{Holders: append([]fence.Holder{holder("n", "u1", "b1", node("u1", "b2"))}, c.others...)}}
		c.st.Holder = &s.Holders[0]
		if got := guard.ForcedIn(s, &c.st); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What a Node says that was made anew may be of before.
func TestABootUnderAnotherNodeIsNotTheOneThatIsNoted(t *testing.T) {
	h := fence.Holder{NodeID: "id", NodeName: "n", NodeUID: "u1", BootID: "b1", SystemUUID: "s", State: fence.Held, Node: &fence.Node{UID: "u2", BootID: "b0", SystemUUID: "s"}}
	s := &survey.Survey{Snapshot: fence.Snapshot{Holders: []fence.Holder{h}}}
	if got := guard.ForcedIn(s, &fence.Standing{Holder: &s.Holders[0], Reason: fence.HolderRevoked}); !slices.Equal(got, []string{ledger.AnyBoot}) {
		t.Errorf("%q", got)
	}
}
