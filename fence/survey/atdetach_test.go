package survey

import (
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// etcd has what Node old was at one resourceVersion.
type etcd struct {
	at    uint64
	node  *corev1.Node // nil: there was none
	err   error
	reads int
}

// serves has the world's API server be that etcd's.
func (e *etcd) serves(w *world) {
	w.client.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		if o.FieldSelector == "" {
			return false, nil, nil // the index
		}
		e.reads++
		if o.FieldSelector != "metadata.name=old" || o.ResourceVersion != strconv.FormatUint(e.at, 10) || o.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
			w.t.Errorf("asked for %+v, want Node old at %d", o, e.at)
		}
		list := &corev1.NodeList{}
		if e.node != nil {
			list.Items = append(list.Items, *e.node.DeepCopy())
		}
		return true, list, e.err
	})
}

// TestThePastIsReadBesideANodeThatWaits: its pods were asked for before.
func TestThePastIsReadBesideANodeThatWaits(t *testing.T) {
	w := newWorld(t)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "uid-old"}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-old", SystemUUID: "system-old", MachineID: "machine-1"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(detachedAt.Add(-time.Hour))}}
	l := entry("old")
	l.ReadySince = detachedAt.Add(-time.Hour).UTC().Format(time.RFC3339)
	w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) { deleted(va); va.ResourceVersion = "4500" })
	w.node("waits", listing)
	(&etcd{at: 4500, node: n}).serves(w)
	w.inLedger(l)
	w.look()
	s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
	w.must(err)
	if h := w.holder(s, "id-old"); h.AtDetach == nil || !h.LetGoAtDetach() {
		t.Errorf("what it was is not known: %+v", h)
	}
}

func TestWhatANodeWasWhenItWasDetachedReleases(t *testing.T) {
	readySince := metav1.NewTime(detachedAt.Add(-time.Hour))
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
	for name, tt := range map[string]struct {
		change func(*world, *etcd, *ledger.Entry)
		forced bool
		seen   string // the VolumeAttachment being deleted, at this version
		refuse bool
		unseen bool // the past is not asked
		fails  bool // the survey does
	}{
		"it had let go": {},
		"its VolumeAttachment was written to since, and its deletion was seen": {change: func(w *world, _ *etcd, _ *ledger.Entry) {
			w.node("old", listing)
			w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) { deleted(va); va.ResourceVersion = "4700" })
		}, seen: "4500"},
		"its deletion was seen in an etcd of before a restore": {change: func(w *world, _ *etcd, _ *ledger.Entry) { w.node("old", listing) }, seen: "9000"},
		"the controller still lists it":                        {change: func(_ *world, e *etcd, _ *ledger.Entry) { listingAttached(e.node) }},
		"it was found":                                         {change: func(_ *world, _ *etcd, l *ledger.Entry) { l.State = fence.Held }},
		"it had booted since it was published": {change: func(_ *world, e *etcd, l *ledger.Entry) {
			e.node.Status.NodeInfo.BootID, l.MachineID = "later", ""
		}},
		"it listed it": {change: func(_ *world, e *etcd, _ *ledger.Entry) { listing(e.node) }, refuse: true},
		"it was another machine": {change: func(_ *world, e *etcd, _ *ledger.Entry) {
			e.node.Status.NodeInfo.BootID, e.node.Status.NodeInfo.SystemUUID = "later", "another"
		}, refuse: true},
		"only its node ID would tell whether it was": {change: func(_ *world, e *etcd, l *ledger.Entry) {
			e.node.Status.NodeInfo.BootID, e.node.Status.NodeInfo.SystemUUID, l.SystemUUID = "later", "", ""
		}, refuse: true},
		"it was registered again": {change: func(_ *world, e *etcd, _ *ledger.Entry) { e.node.UID = "later" }, refuse: true},
		"its kubelet may have begun": {change: func(_ *world, e *etcd, _ *ledger.Entry) {
			e.node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(detachedAt)
		}, refuse: true},
		"it had the out-of-service taint": {change: func(_ *world, e *etcd, _ *ledger.Entry) {
			e.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}, refuse: true},
		"it had to give the volume up by force": {change: func(w *world, _ *etcd, _ *ledger.Entry) { w.Kubelets = &kubelets{} }, forced: true, refuse: true},
		"it had to, and nobody asks kubelets":   {forced: true},
		"it was gone by then":                   {change: func(_ *world, e *etcd, _ *ledger.Entry) { e.node = nil }, refuse: true},
		"etcd was compacted":                    {change: func(_ *world, e *etcd, _ *ledger.Entry) { e.err = apierrors.NewResourceExpired("too old") }, refuse: true},
		"it tells nothing exact":                {change: func(_ *world, e *etcd, _ *ledger.Entry) { e.err = apierrors.NewBadRequest("no") }, refuse: true},
		"it does not answer":                    {change: func(_ *world, e *etcd, _ *ledger.Entry) { e.err = errors.New("no leader") }, fails: true},
		"it may not be asked":                   {change: func(_ *world, e *etcd, _ *ledger.Entry) { e.err = forbidden }, refuse: true},

		"it was contested":                     {change: func(_ *world, _ *etcd, l *ledger.Entry) { l.Contest = &fence.Contest{BootID: "boot-old"} }, refuse: true, unseen: true},
		"it was contested in a boot of before": {change: func(_ *world, _ *etcd, l *ledger.Entry) { l.Contest = &fence.Contest{BootID: "before"} }, refuse: true, unseen: true},
		"it is not being detached":             {change: func(w *world, _ *etcd, _ *ledger.Entry) { w.attachment("old", "id-old", nil) }, refuse: true, unseen: true},
		"nobody knows when it was": {change: func(w *world, _ *etcd, _ *ledger.Entry) {
			w.attachment("old", "id-old", deleted)
		}, refuse: true, unseen: true},
		"there is another attachment": {change: func(w *world, _ *etcd, _ *ledger.Entry) {
			va := liveVA(csi.AttachmentName("vol-1", liveDriver, "older"), liveDriver, "older", ofPV("pv-1"))
			va.Annotations = map[string]string{csi.NodeIDAnnotation: "id-old"}
			w.put(va)
		}, refuse: true, unseen: true},
		"an unpublish has begun": {change: func(_ *world, _ *etcd, l *ledger.Entry) { l.State = fence.Leaving }, refuse: true, unseen: true},
		"a pod is back there":    {change: func(w *world, _ *etcd, _ *ledger.Entry) { w.node("old", listing) }},
		"a pod is back there, and it was in use": {change: func(w *world, e *etcd, _ *ledger.Entry) {
			w.node("old", listing)
			listing(e.node)
		}, refuse: true},
		"another Node of the name lists it": {change: func(w *world, _ *etcd, _ *ledger.Entry) {
			w.node("old", func(n *corev1.Node) { listing(n); n.UID = "anew" })
		}, refuse: true, unseen: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "uid-old"}}
			n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-old", SystemUUID: "system-old", MachineID: "machine-1"}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: readySince}}
			e := &etcd{at: 4500, node: n}
			l := entry("old")
			l.ReadySince = readySince.UTC().Format(time.RFC3339)
			w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) { deleted(va); va.ResourceVersion = "4500" })
			e.serves(w)
			if tt.change != nil {
				tt.change(w, e, &l)
			}
			w.inLedger(l)
			w.look()
			if tt.forced {
				w.Index = anyForced{w.Index}
			}
			if tt.seen != "" {
				w.Index = seenDeleted{w.Index, tt.seen}
			}
			s, err := w.Unpublish(t.Context(), "vol-1", "id-old")
			if tt.fails {
				if err == nil {
					t.Error("it is judged, and the past may tell more the next time")
				}
				return
			}
			w.must(err)
			v := fence.JudgeUnpublish(s.Snapshot, "id-old")
			if tt.refuse != (v.Action == fence.Refuse) {
				t.Errorf("%s, %s, want refused: %t", v.Action, v.Reason, tt.refuse)
			}
			if !tt.refuse && v.Reason != fence.HolderReleased {
				t.Errorf("%s, want it released", v.Reason)
			}
			if want := 1; tt.unseen == (e.reads == want) {
				t.Errorf("%d reads", e.reads)
			}
		})
	}
}

// anyForced: each volume was taken by force.
type anyForced struct{ Index }

func (anyForced) Forced(_, _, bootID string) *fence.Forced {
	if bootID != "boot-old" {
		return nil
	}
	return &fence.Forced{Taken: time.Now()}
}

// seenDeleted has seen each VolumeAttachment being deleted at that version first.
type seenDeleted struct {
	Index
	version string
}

func (s seenDeleted) DeletedVersion(_, _ string) string { return s.version }
