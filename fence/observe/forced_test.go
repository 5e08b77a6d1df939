package observe

import (
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
)

// A volume was taken by force if it leaves volumesAttached while its kubelet lists it in use.
func TestAVolumeIsSeenToBeTakenByForce(t *testing.T) {
	const u, a, ua = "u", "a", "ua" // in volumesInUse, in volumesAttached, in both
	for name, tt := range map[string]struct {
		shown []string // of the Node, a minute each
		want  time.Duration
	}{
		"in good order":                        {shown: []string{ua, a, ""}},
		"at once":                              {shown: []string{ua, ""}},
		"by force":                             {shown: []string{ua, u}, want: time.Minute},
		"and it has forgotten it":              {shown: []string{ua, u, ""}, want: 2 * time.Minute},
		"and put back":                         {shown: []string{ua, u, ua}, want: 2 * time.Minute},
		"and taken again":                      {shown: []string{ua, u, ua, u}, want: 3 * time.Minute},
		"it waits to be attached":              {shown: []string{u, ua}},
		"in good order, and a pod there waits": {shown: []string{ua, a, "", u}},
		"nobody saw it":                        {shown: []string{u}},
		"nobody saw it, and another volume changes": {shown: []string{u, "other"}},
		"the Node is deleted":                       {shown: []string{ua, "gone"}},
		"the Node is deleted, and made again":       {shown: []string{ua, "gone", u}},
		"in another boot":                           {shown: []string{ua, u, "boot-2"}},
		"in another boot, and again in that":        {shown: []string{ua, u, "boot-2 ua", "boot-2 u"}, want: time.Minute},
		"its VolumeAttachment is gone":              {shown: []string{ua, u, "no VolumeAttachment"}},
		"another VolumeAttachment has its name":     {shown: []string{ua, u, "another VolumeAttachment"}},
		"its VolumeAttachment changes":              {shown: []string{ua, u, "detaching"}, want: 2 * time.Minute},
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
				if ago, seen := r.Forced("va", "uid", r.boot); seen != (tt.want > 0) || ago != tt.want {
					t.Errorf("seen %t, %s ago", seen, ago)
				}
				for _, of := range [][2]string{{"another", r.boot}, {"uid", "boot-0"}} {
					if _, seen := r.Forced("va", of[0], of[1]); seen {
						t.Errorf("of %v it was seen", of)
					}
				}
			})
		})
	}
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
	if _, seen := r.Forced("inline", "uid", r.boot); !seen {
		t.Error("of the other node it was not seen")
	}
	if _, seen := r.Forced("va", "uid", r.boot); seen {
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
	case "other":
		r.node.Status.VolumesAttached = r.node.Status.VolumesAttached[1:]
	default:
		r.list(what == "u" || what == "ua", what == "a" || what == "ua")
	}
	r.watch.feeds[nodes].put(r.node, false)
}
