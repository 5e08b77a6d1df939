package survey

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// versionOf is Node old: the volume in use, attached or both ("u", "a", "ua", "-"), written
// that many seconds before the detach. A "!" leaves out when, "?" has its kubelet silent.
func versionOf(text string) *corev1.Node {
	lists, ago, _ := strings.Cut(text, "@")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "uid-old"}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-old", SystemUUID: "system-old"}
	if strings.Contains(lists, "u") {
		listing(n)
	}
	if strings.Contains(lists, "a") {
		listingAttached(n)
	}
	ready := corev1.ConditionTrue
	if strings.Contains(lists, "?") {
		ready = corev1.ConditionUnknown
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(detachedAt)}}
	seconds, err := strconv.Atoi(strings.TrimSuffix(ago, "!"))
	if err != nil {
		panic(text)
	}
	if !strings.HasSuffix(ago, "!") {
		before, at := metav1.NewTime(detachedAt.Add(-1000*time.Hour)), metav1.NewTime(detachedAt.Add(-time.Duration(seconds)*time.Second))
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &at}, {Manager: "kubectl"}, {Manager: "kubeadm", Time: &before}}
	}
	return n
}

var detachedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) // as deleted has it

func versionsOf(text string) (all []*corev1.Node) {
	for _, v := range strings.Fields(text) {
		all = append(all, versionOf(v))
	}
	return all
}

func TestAKubeletHasLetGoIfItDidSoBeforeTheControllerTookTheVolumeOff(t *testing.T) {
	if observe.SyncTime != 75*time.Second {
		t.Fatal("the table is for 75 s")
	}
	w := newWorld(t)
	lists := func(n *corev1.Node) (inUse, attached bool) { return w.IDs.NodeLists(n, "vol-1") }
	droppedAt := map[string]time.Duration{"-@0 -@1 -@2 a@3 a@4 ua@79": 4 * time.Second}
	for text, want := range map[string]bool{
		// The newest first: what it is, and what it was.
		"-@0 a@0 ua@75":                true,
		"-@0 a@0 ua@74":                false, // it may have started with the list of the kubelet before it
		"-@0 a@0 ua@74 ua@75":          true,
		"-@0 -@1 -@2 a@3 a@4 ua@79":    true,
		"-@0 a@3 a@4 ua@78":            false, // let go 4 s before
		"-@0 a@0 ua@10 ua@30 ua@200":   true,
		"-@0 a@0 ua@10 a@30 ua@200":    true, // it waited for another pod
		"-@0 a@0 ua@10 a@200":          true,
		"-@0 a@0 ua@10 u@20 ua@200":    false, // put back on volumesAttached
		"-@0 a@0 ua@10 -@20 ua@200":    false,
		"-@0 a@0 -@10 ua@200":          false,
		"-@0 a@0 u@10 ua@200":          false,
		"-@0 u@0 ua@200":               false, // by force
		"-@0 u@0 a@1 ua@200":           false, // in use again meanwhile
		"-@0 ua@200":                   false,
		"-@0 -@1 u@10 ua@200":          false,
		"-@0 -@1 -@200":                false,
		"-@0 a@0 a@200":                false, // when it let go nobody has any more
		"-@0 a@0":                      false,
		"-@0":                          false,
		"":                             false,
		"-?@0 a?@0 ua@75":              true, // silent since
		"-@0 a@0 ua?@30 ua@75":         false,
		"-@0 a@0 ua@30 ua?@60 ua@75":   false,
		"-@0 a@0 ua@30 a?@60 ua@75":    false,
		"-@0 a@0 ua@30 ua?@75":         false,
		"-@0 a@0 ua@75 ua?@75":         true,
		"-@0 a@0! ua@200":              false, // nobody says when
		"-@0 a@0 ua@200!":              false,
		"-@0 a@0 ua@10! ua@200":        true,
		"-@0 a@0! ua?@10 ua@100":       false,
		"a@0 ua@200":                   false, // attached again
		"u@0 a@0 ua@200":               false,
		"ua@0 a@0 ua@200":              false,
		"-@0 a@0 ua@-100 ua@200":       true,
		"-@0 a@0 ua@-100 u@10 ua@2000": false,
	} {
		dropped, got := letGo(versionsOf(text), lists)
		if got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
		if at := droppedAt[text]; got && !dropped.Equal(detachedAt.Add(-at)) {
			t.Errorf("%s: let go at %s, want %s before %s", text, dropped, at, detachedAt)
		}
	}
}

// remembers makes the API server know the versions of Node old, as one at resourceVersions
// 10,000, 9,990 and so on does, unless answer says otherwise.
func (w *world) remembers(text string, answer func(asked int) (runtime.Object, error)) (reads *int) {
	w.t.Helper()
	all := versionsOf(text)
	for i, n := range all {
		n.ResourceVersion = strconv.Itoa(10_000 - 10*i)
	}
	w.node("old", func(n *corev1.Node) { *n = *all[0] })
	at := metav1.NewTime(detachedAt.Add(10 * time.Second))
	w.put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "old", ResourceVersion: "70", ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)}}}})
	reads = new(int)
	w.client.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		if o.ResourceVersion == "" {
			return false, nil, nil
		}
		*reads++
		asked, err := strconv.Atoi(o.ResourceVersion)
		if err != nil || o.ResourceVersionMatch != metav1.ResourceVersionMatchExact || o.FieldSelector != "metadata.name=old" {
			w.t.Errorf("asked for %+v", o)
		}
		if answer != nil {
			if list, err := answer(asked); list != nil || err != nil {
				return true, list, err
			}
		}
		list := &corev1.NodeList{}
		for _, n := range all {
			if version, _ := strconv.Atoi(n.ResourceVersion); version <= asked {
				list.Items = append(list.Items, *n)
				break
			}
		}
		return true, list, nil
	})
	return reads
}

func TestWhatANodeWasIsReadWhereOnlyTheOrderIsInDoubt(t *testing.T) {
	const clean = "-@0 a@0 ua@30 ua@60 ua@100 ua@200 ua@300"
	one := func(change func(*corev1.Node)) func(int) (runtime.Object, error) {
		return func(asked int) (runtime.Object, error) {
			n := versionOf("ua@200")
			n.ResourceVersion = strconv.Itoa(asked - 1)
			change(n)
			return &corev1.NodeList{Items: []corev1.Node{*n}}, nil
		}
	}
	fails := func(err error) func(int) (runtime.Object, error) {
		return func(asked int) (runtime.Object, error) {
			if asked < 9_980 {
				return nil, err
			}
			return nil, nil
		}
	}
	resource, kind := corev1.Resource("nodes"), schema.GroupKind{Kind: "ListOptions"}
	forbidden := apierrors.NewForbidden(resource, "", nil)
	down := apierrors.NewServiceUnavailable("etcdserver: no leader")
	long := "-@0 a@0" + strings.Repeat(" ua@10", pastVersions) + " ua@200"
	for name, tt := range map[string]struct {
		past   string
		answer func(asked int) (runtime.Object, error)
		entry  func(*fence.Holder, *storagev1.VolumeAttachment)
		world  func(*world)
		want   bool
		reads  int
		err    error
	}{
		"it let go before":                   {past: clean, want: true, reads: 5},
		"it had not let go":                  {past: "-@0 u@0 ua@200", reads: 2},
		"only a part is there":               {past: "-@0 a@0 ua@30", reads: 3},
		"etcd was compacted":                 {past: clean, answer: fails(apierrors.NewResourceExpired("too old")), reads: 3},
		"it may not list Nodes yet":          {past: clean, answer: fails(forbidden), reads: 3, err: forbidden},
		"it does not know exact":             {past: clean, answer: fails(apierrors.NewInvalid(kind, "", nil)), reads: 3},
		"nor the words":                      {past: clean, answer: fails(apierrors.NewBadRequest("no")), reads: 3},
		"nor lists":                          {past: clean, answer: fails(apierrors.NewMethodNotSupported(resource, "list")), reads: 3},
		"it does not answer now":             {past: clean, answer: fails(down), reads: 3, err: down},
		"it is asked too much":               {past: clean, answer: fails(apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "list", resource, "", "", 1, true)), reads: 3, err: errors.New("")},
		"it gives what is now":               {past: clean, answer: one(func(n *corev1.Node) { n.ResourceVersion = "10000" }), reads: 1},
		"it gives no version":                {past: clean, answer: one(func(n *corev1.Node) { n.ResourceVersion = "" }), reads: 1},
		"it was another machine's":           {past: clean, answer: one(func(n *corev1.Node) { n.UID = "before" }), reads: 1},
		"it was another boot":                {past: clean, answer: one(func(n *corev1.Node) { n.Status.NodeInfo.BootID = "before" }), reads: 1},
		"it gives two":                       {past: clean, answer: func(int) (runtime.Object, error) { return &corev1.NodeList{Items: make([]corev1.Node, 2)}, nil }, reads: 1},
		"it was written often":               {past: long, reads: pastVersions - 1},
		"the pod is back: nothing to detach": {past: clean, entry: func(_ *fence.Holder, va *storagev1.VolumeAttachment) { va.DeletionTimestamp = nil }},
		"it is contested":                    {past: clean, entry: func(h *fence.Holder, _ *storagev1.VolumeAttachment) { h.Contest = &fence.Contest{} }},
		"it was released":                    {past: clean, entry: func(h *fence.Holder, _ *storagev1.VolumeAttachment) { h.State = fence.Released }},
		"it is another machine":              {past: clean, entry: func(h *fence.Holder, _ *storagev1.VolumeAttachment) { h.NodeUID = "before" }},
		"nor for as long before it let go":   {past: clean, reads: 5, world: func(w *world) { w.steady = 104 * time.Second }},
		"it was watched for just so long":    {past: clean, reads: 5, want: true, world: func(w *world) { w.steady = 105 * time.Second }},
		"nobody knows when it was renewed":   {past: clean, reads: 5, world: func(w *world) { w.lease("old", "70") }},
		"its lease was not watched for long": {past: clean, reads: 0, world: func(w *world) { w.steady = 94 * time.Second }},
		"somebody released it": {past: clean, want: false, world: func(w *world) {
			w.found = []fence.Evidence{{Kind: fence.VolumeRelease, NodeID: "id-old", NodeUID: "uid-old", BootID: "boot-old", Living: true, Attachment: "uid-" + csi.AttachmentName("vol-1", liveDriver, "old")}}
		}},
		"it has the taint": {past: clean, world: func(w *world) {
			n := versionOf("-@0")
			n.ResourceVersion, n.Spec.Taints = "10000", []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
			w.put(n)
		}},
		"it is in use":   {past: "u@0 ua@200"},
		"it is attached": {past: "a@0 ua@200"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			reads := w.remembers(tt.past, tt.answer)
			e := entry("old")
			h := fence.Holder{State: e.State}
			w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) {
				deleted(va)
				if tt.entry != nil {
					tt.entry(&h, va)
				}
			})
			e.State, e.Contest = h.State, h.Contest
			if h.NodeUID != "" {
				e.NodeUID = h.NodeUID
			}
			w.inLedger(e)
			if tt.world != nil {
				tt.world(w)
			}
			w.look()
			s, err := w.Unpublish(t.Context(), "vol-1", "id-old")
			if *reads != tt.reads {
				t.Errorf("%d reads, want %d", *reads, tt.reads)
			}
			if tt.err != nil {
				if err == nil || tt.err == down && !errors.Is(err, down) {
					t.Errorf("got %v, want %v", err, tt.err)
				}
				return
			}
			w.must(err)
			if got := s.Holder("id-old").Node.LetGo; got != tt.want {
				t.Errorf("let go: %t, want %t", got, tt.want)
			}
			want := fence.Allow
			if !tt.want && !strings.Contains(name, "released") {
				want = fence.Refuse
			}
			if name == "the pod is back: nothing to detach" {
				return
			}
			if v := fence.JudgeUnpublish(s.Snapshot, "id-old"); v.Action != want {
				t.Errorf("%s, %s, want %s", v.Action, v.Reason, want)
			}
		})
	}
}

// A renewal while somebody else's past is read is a sign of life.
func TestWhatIsProvenIsHeldAgainstTheLeaseOnceMoreAfterAPastWasRead(t *testing.T) {
	w := newWorld(t)
	w.remembers("-@0 a@0 ua@100", func(int) (runtime.Object, error) {
		w.lease("off", "71")
		return nil, nil
	})
	w.node("off", listing)
	w.silent["off"] = "70"
	w.found = []fence.Evidence{{Kind: fence.PowerReading, NodeName: "off", NodeUID: "uid-off", BootID: "boot-off", LeaseRV: "70"}}
	w.attachment("old", "id-old", deleted)
	w.inLedger(entry("old"), entry("off"))
	w.look()
	s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
	w.must(err)
	if h := w.holder(s, "id-off"); h.LeaseRV != "71" || h.Liveness != fence.Alive {
		t.Errorf("off is %s at lease %s", h.Liveness, h.LeaseRV)
	}
	if !w.holder(s, "id-old").Node.LetGo {
		t.Error("old has not let go")
	}
}
