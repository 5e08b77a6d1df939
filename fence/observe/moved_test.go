package observe

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// R1: it may be mounted there and have moved because of the fence; that its pod on the node
// only waits, and that nothing says the node ever had it, does not tell.
func TestAVolumeThatTheNodeListsAndThatIsNotItsOwnHasMovedWhateverItsPodsDo(t *testing.T) {
	const driver, handle = "disk.example.com", "h"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/disk.example.com^h", "kubernetes.io/csi/other^h"}}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}}}
	waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: corev1.PodStatus{Phase: corev1.PodPending},
		Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	attached := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle, driver, "n1")},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}}
	detaching := attached.DeepCopy()
	detaching.DeletionTimestamp = &metav1.Time{}
	for name, tt := range map[string]struct {
		more  runtime.Object
		moved string
	}{"its pod waits": {waits, driver + "/" + handle}, "it is attached": {attached, ""}, "it is being detached": {detaching, driver + "/" + handle}} {
		for but, want := range map[string]string{"": tt.moved + " other/h", "other": tt.moved, driver: "other/h"} {
			moved, err := Moved(t.Context(), fake.NewClientset(pv, tt.more), node, but)
			var words []string
			for _, v := range moved {
				words = append(words, v.Driver+"/"+v.Handle)
			}
			if got := strings.Join(words, " "); err != nil || got != strings.TrimSpace(want) {
				t.Errorf("%s, but %q: moved are %q (%v)", name, but, got, err)
			}
		}
	}
}

// The VolumeAttachment names the second PersistentVolume of the volume, or the only one.
func TestWhatIsReadOfANodesVolumeIsItsEntryOnWhicheverPersistentVolumeHasTheLedger(t *testing.T) {
	const driver, handle = "disk.example.com", "h"
	ledgerOf := func(pv string, state fence.State) string {
		l := ledger.Ledger{Version: 1, Driver: driver, Handle: handle, Cluster: "c", PVUID: "uid-of-" + pv, Holders: []ledger.Entry{}}
		if state != "" {
			l.Holders = append(l.Holders, ledger.Entry{NodeID: "i-1", NodeName: "n1", State: state})
		}
		return l.String()
	}
	own := ledgerOf("second", fence.Held)
	for name, tt := range map[string]struct {
		known, first, second string
		state                fence.State
		fails                bool
	}{
		"text came along with the second":                  {known: "", second: "x"},
		"it is of a newer version":                         {known: "", second: `{"version":99}`},
		"it came along, and the first has the ledger":      {known: "first", first: ledgerOf("first", fence.TakenOver), second: "x", state: fence.TakenOver},
		"what is left of a ledger":                         {known: "", second: own[:len(own)-1], fails: true},
		"what is left of the known one":                    {known: "first", first: ledgerOf("first", fence.Held)[1:], second: own, fails: true},
		"the second has the ledger":                        {known: "second", second: own, state: fence.Held},
		"it has, and nothing is known":                     {known: "", second: own, state: fence.Held},
		"the first alone has one":                          {known: "first", first: ledgerOf("first", fence.TakenOver), state: fence.TakenOver},
		"the ledger went to the second meanwhile":          {known: "first", second: own, state: fence.Held},
		"the known one is gone":                            {known: "gone", second: own, state: fence.Held},
		"both, and the first has let go":                   {known: "first", first: ledgerOf("first", fence.TakenOver), second: own, state: fence.TakenOver},
		"both, and the first alone says that it holds":     {known: "first", first: ledgerOf("first", fence.Held), second: ledgerOf("second", ""), state: fence.Held},
		"both, and the second has let go":                  {known: "first", first: ledgerOf("first", fence.Held), second: ledgerOf("second", fence.TakenOver), state: fence.TakenOver},
		"both, and the node is in that of the first alone": {known: "first", first: ledgerOf("first", fence.Leaving), second: ledgerOf("second", ""), state: fence.Leaving},
	} {
		second := "second"
		objects := []runtime.Object{&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(handle, driver, "n1")},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &second}}}}
		for pv, text := range map[string]string{"first": tt.first, "second": tt.second} {
			o := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv, UID: types.UID("uid-of-" + pv)}}
			if text != "" {
				o.Annotations = map[string]string{ledger.Annotation: text}
			}
			objects = append(objects, o)
		}
		h, err := ReadHeld(t.Context(), fake.NewClientset(objects...), &csi.Identity{Driver: driver}, "n1", Held{Handle: handle, PV: tt.known})
		state := fence.State("")
		if h.Entry != nil {
			state = h.Entry.State
		}
		if tt.fails != (err != nil) || !tt.fails && (state != tt.state || h.Kept() != (state == "" || state == fence.Held)) {
			t.Errorf("%s: the entry is %q, kept: %t (%v)", name, state, h.Kept(), err)
		}
	}
}

// A call that is made once more is news to nobody: whoever waits for the volume would be woken by it as
// often as the driver fails.
func TestACallThatIsRepeatedIsNoNews(t *testing.T) {
	r := newRig(t, anyDriver, 1, false)
	l := ledger.Ledger{Version: 1, Driver: anyDriver, Handle: "h", Cluster: "c", PVUID: "u", Holders: []ledger.Entry{{NodeID: "i-1", NodeName: "n1", Token: "t", Call: "1", State: fence.Leaving}}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-of-calls", UID: "u"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: anyDriver, VolumeHandle: "h"}
	told := func() []Change {
		r.told = nil
		pv = pv.DeepCopy()
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, ledger.Annotation, l.String())
		r.watch.feeds[volumes].Add(pv)
		return r.told
	}
	if len(told()) == 0 {
		t.Error("the volume is no news")
	}
	l.Holders[0].Call = "2"
	if news := told(); len(news) > 0 {
		t.Errorf("it tells of %v", news)
	}
	l.Holders[0].State = fence.TakenOver
	if len(told()) == 0 {
		t.Error("another state is no news")
	}
}
