package observe

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// A volume was taken by force if it leaves volumesAttached while its kubelet lists it in use.
func TestAVolumeIsSeenToBeTakenByForce(t *testing.T) {
	const u, a, ua = "u", "a", "ua" // in volumesInUse, in volumesAttached, in both
	for name, tt := range map[string]struct {
		shown            []string // of the Node, a minute each
		taken, back, off int      // so many minutes ago; 0: never
	}{
		"in good order":                             {shown: []string{ua, a, ""}},
		"at once":                                   {shown: []string{ua, ""}},
		"by force":                                  {shown: []string{ua, u}, taken: 1},
		"and it has forgotten it":                   {shown: []string{ua, u, ""}, taken: 2},
		"and put back":                              {shown: []string{ua, u, ua}, taken: 2, back: 1},
		"and put back once it was forgotten":        {shown: []string{ua, u, "", a, ua}, taken: 4, back: 2},
		"and taken again":                           {shown: []string{ua, u, ua, u}, taken: 3, back: 2, off: 1},
		"and put back again":                        {shown: []string{ua, u, ua, u, ua}, taken: 4, back: 1},
		"put back, and taken in good order":         {shown: []string{ua, u, ua, a, ""}, taken: 4, back: 3, off: 1},
		"put back, and another Node since":          {shown: []string{ua, u, ua, "another Node ua"}, taken: 3, back: 1},
		"it waits to be attached":                   {shown: []string{u, ua}},
		"in good order, and a pod there waits":      {shown: []string{ua, a, "", u}},
		"nobody saw it":                             {shown: []string{u}},
		"nobody saw it, and another volume changes": {shown: []string{u, "other"}},
		"the Node is deleted":                       {shown: []string{ua, "gone"}},
		"the Node is deleted, and made again":       {shown: []string{ua, "gone", u}},
		"and made again between two listings":       {shown: []string{ua, "another Node u"}},
		"in another boot":                           {shown: []string{ua, u, "boot-2"}},
		"in another boot, and again in that":        {shown: []string{ua, u, "boot-2 ua", "boot-2 u"}, taken: 1},
		"its VolumeAttachment is gone":              {shown: []string{ua, u, "no VolumeAttachment"}},
		"another VolumeAttachment has its name":     {shown: []string{ua, u, "another VolumeAttachment"}},
		"its VolumeAttachment changes":              {shown: []string{ua, u, "detaching"}, taken: 2},
		"another volume is taken by force":          {shown: []string{ua, "other"}},
		"another volume is, and this in good order": {shown: []string{ua, a, "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newForcing()
				for _, what := range tt.shown {
					r.show(what)
					time.Sleep(time.Minute)
				}
				var want *fence.Forced
				if tt.taken > 0 {
					want = &fence.Forced{Taken: minutesAgo(tt.taken), Back: minutesAgo(tt.back), Off: minutesAgo(tt.off)}
				}
				if got := r.Forced("va", "uid", r.boot); !reflect.DeepEqual(got, want) {
					t.Errorf("it is %v, want %v", got, want)
				}
				for _, of := range [][2]string{{"another", r.boot}, {"uid", "boot-0"}} {
					if seen := r.Forced("va", of[0], of[1]); seen != nil {
						t.Errorf("of %v it was seen", of)
					}
				}
			})
		})
	}
}

// minutesAgo is the zero time for 0.
func minutesAgo(n int) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(n) * time.Minute)
}

// The controller takes a volume before it looks whether it is in use, and puts it back then: that
// is over for a kubelet that starts later, whose volume is detached in good order one day.
func TestAVolumeThatWasPutBackIsNotForcedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newForcing()
		for _, what := range []string{"ua", "u", "ua"} {
			r.show(what)
			time.Sleep(time.Second)
		}
		time.Sleep(9 * 24 * time.Hour)
		started := time.Now()
		time.Sleep(24 * time.Hour)
		for _, what := range []string{"a", ""} {
			r.show(what)
			time.Sleep(time.Second)
		}
		if r.Forced("va", "uid", r.boot).Memory(time.Since(started), SyncTime) != "" {
			t.Error("the kubelet is doubted")
		}
	})
}

// The same disk under a VolumeAttachment that carries it, and another node that has it.
func TestWhatIsTakenByForceIsOfOneNode(t *testing.T) {
	r := newForcing()
	n2 := r.node.DeepCopy()
	n2.Name, n2.UID = "n2", "uid-n2"
	inline := r.va("inline", "n2")
	inline.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &r.pv("h").Spec}
	r.watch.feeds[attachments].put(inline, true)
	r.show("ua")
	r.watch.feeds[nodes].put(n2, true)
	n2 = n2.DeepCopy()
	n2.Status.VolumesAttached = nil
	r.watch.feeds[nodes].put(n2, false)
	if r.Forced("inline", "uid", r.boot) == nil {
		t.Error("of the other node it was not seen")
	}
	if r.Forced("va", "uid", r.boot) != nil {
		t.Error("it was seen of the wrong node")
	}
}

// forcing is an index with node n1, its volumes h and g, and their VolumeAttachments va and other.
type forcing struct {
	*Index
	watch *Watch
	node  *corev1.Node
	boot  string
}

func newForcing() *forcing {
	ids := &csi.Identity{Driver: anyDriver}
	w := New(kubernetes.NewForConfigOrDie(&rest.Config{}), NewTracker(time.Minute, 1), "records", ids)
	r := &forcing{Index: w.Index(anyDriver), watch: w, boot: "boot-1"}
	for _, handle := range []string{"h", "g"} {
		w.feeds[volumes].put(r.pv(handle), true)
	}
	w.feeds[attachments].put(r.va("va", "n1"), true)
	other := r.va("other", "n1")
	name := "pv-g"
	other.Spec.Source.PersistentVolumeName = &name
	w.feeds[attachments].put(other, true)
	r.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"}}
	r.list(true, true)
	return r
}

func (r *forcing) pv(handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle, UID: types.UID("uid-" + handle)}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: anyDriver, VolumeHandle: handle}}}}
}

func (r *forcing) va(name, node string) *storagev1.VolumeAttachment {
	pv := "pv-h"
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: anyDriver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
}

// list has the node list volume h so, and g in both.
func (r *forcing) list(inUse, attached bool) {
	g := r.ids.UniqueName("g")
	r.node.Status.NodeInfo.BootID = r.boot
	r.node.Status.VolumesInUse = []corev1.UniqueVolumeName{g}
	r.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: g}}
	if inUse {
		r.node.Status.VolumesInUse = append(r.node.Status.VolumesInUse, r.ids.UniqueName("h"))
	}
	if attached {
		r.node.Status.VolumesAttached = append(r.node.Status.VolumesAttached, corev1.AttachedVolume{Name: r.ids.UniqueName("h")})
	}
}

// show has the watch show something of the node, or of volume h's VolumeAttachment.
func (r *forcing) show(what string) {
	feed := r.watch.feeds[attachments]
	va := r.va("va", "n1")
	switch what {
	case "gone":
		r.watch.feeds[nodes].drop(r.node)
		return
	case "no VolumeAttachment":
		feed.drop(va)
		return
	case "another VolumeAttachment":
		va.UID = "uid-2"
		feed.put(va, false)
		return
	case "detaching":
		va.DeletionTimestamp = &metav1.Time{}
		feed.put(va, false)
		return
	}
	r.node = r.node.DeepCopy()
	switch what {
	case "boot-2", "boot-2 u", "boot-2 ua":
		r.boot = "boot-2"
		r.list(what != "boot-2", what == "boot-2 ua")
	case "another Node u", "another Node ua":
		r.node.UID = "uid-of-another"
		r.list(true, what == "another Node ua")
	case "other":
		r.node.Status.VolumesAttached = r.node.Status.VolumesAttached[1:]
	default:
		r.list(what == "u" || what == "ua", what == "a" || what == "ua")
	}
	r.watch.feeds[nodes].put(r.node, false)
}
