package survey

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

const liveDriver = "disk.example.com"

func livePV(name, driver, handle string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	return pv
}

func liveVA(name, attacher, node string, source storagev1.VolumeAttachmentSource) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: node, Source: source}}
}

func ofPV(name string) storagev1.VolumeAttachmentSource {
	return storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}
}

func liveCSINode(name, driver, id string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: id}}}}
}

func liveObjects() []runtime.Object {
	inUse := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "in-use"}}
	inUse.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/" + liveDriver + "^vol-1"}
	attached := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "attached"}}
	attached.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/" + liveDriver + "^vol-1"}}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	other.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/other.example.com^vol-1"}
	inline := func(handle string) storagev1.VolumeAttachmentSource {
		return storagev1.VolumeAttachmentSource{InlineVolumeSpec: &livePV("", liveDriver, handle).Spec}
	}
	return []runtime.Object{
		livePV("pv-b", liveDriver, "vol-1"), livePV("pv-a", liveDriver, "vol-1"),
		livePV("pv-c", liveDriver, "vol-2"), livePV("pv-d", "other.example.com", "vol-1"),
		liveVA("va-pv", liveDriver, "n1", ofPV("pv-a")),
		liveVA("va-inline", liveDriver, "n2", inline("vol-1")),
		liveVA("va-inline-other-volume", liveDriver, "n2", inline("vol-2")),
		liveVA(csi.AttachmentName("vol-1", liveDriver, "n3"), liveDriver, "n3", ofPV("pv-gone")),
		liveVA("va-other-volume", liveDriver, "n1", ofPV("pv-c")),
		liveVA("va-other-driver", "other.example.com", "n1", ofPV("pv-a")),
		inUse, attached, other,
		liveCSINode("n1", liveDriver, "id-1"), liveCSINode("n2", liveDriver, "id-1"), liveCSINode("n3", "other.example.com", "id-3"),
	}
}

func listed(t *testing.T, known ...*corev1.PersistentVolume) *Live {
	t.Helper()
	l, err := ListLive(t.Context(), fake.NewClientset(liveObjects()...), &csi.Identity{Driver: liveDriver}, known...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLiveNamesEverythingThatMayNameAHolder(t *testing.T) {
	l := listed(t)
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"both PVs with the handle", l.Volumes("vol-1"), []string{"pv-a", "pv-b"}},
		{"no PV", l.Volumes("vol-9"), []string{}},
		{"attachments by PV, inline, and by the name that is made of the handle", l.Attachments("vol-1"),
			[]string{csi.AttachmentName("vol-1", liveDriver, "n3"), "va-inline", "va-pv"}},
		{"nodes by volumesInUse and volumesAttached", l.NodesListing("vol-1"), []string{"attached", "in-use"}},
		{"one ID under two names", l.NodeNames("id-1"), []string{"n1", "n2"}},
		{"an empty ID names nobody", l.NodeNames(""), []string{}},
		{"ID of a node", l.NodeID("n2"), "id-1"},
		{"a node without this driver", l.NodeID("n3"), ""},
		{"all IDs", l.NodeIDs(), []string{"id-1"}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestLiveHasCaughtTheVeryObjectOnly(t *testing.T) {
	l := listed(t)
	for _, c := range []struct {
		what      string
		got, want bool
	}{
		{"PV", l.CaughtPV("pv-a", "uid-pv-a"), true},
		{"PV created again", l.CaughtPV("pv-a", "another"), false},
		{"PV that was not there", l.CaughtPV("pv-new", "uid-pv-new"), false},
		{"VolumeAttachment", l.CaughtAttachment("va-pv", "uid-va-pv"), true},
		{"VolumeAttachment created again", l.CaughtAttachment("va-pv", "another"), false},
		{"VolumeAttachment that was not there", l.CaughtAttachment("va-new", "uid-va-new"), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: caught %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestLiveTakesAKnownPVAsListed(t *testing.T) {
	l := listed(t, livePV("pv-known", liveDriver, "vol-9"), livePV("pv-a", liveDriver, "vol-9"))
	if got := l.Volumes("vol-9"); !reflect.DeepEqual(got, []string{"pv-known"}) {
		t.Errorf("PVs of vol-9: %v, want pv-known, and pv-a as it was listed", got)
	}
}

func TestLiveFailsWhenAKindCannotBeListed(t *testing.T) {
	for resource, kind := range map[string]string{"persistentvolumes": "PersistentVolumes", "volumeattachments": "VolumeAttachments", "nodes": "Nodes", "csinodes": "CSINodes"} {
		client := fake.NewClientset(liveObjects()...)
		client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(storagev1.Resource(resource), "", errors.New("no"))
		})
		_, err := ListLive(t.Context(), client, &csi.Identity{Driver: liveDriver})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot list "+kind) {
			t.Errorf("%s: error %v, want Forbidden that names %s", resource, err, kind)
		}
	}
}
