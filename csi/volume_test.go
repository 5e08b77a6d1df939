package csi

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	ebsDriver = "ebs.csi.aws.com"
	gceDriver = "pd.csi.storage.gke.io"
	anyDriver = "d.example.com"
)

func csiPV(driver, handle string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	return pv
}

func ebsPV(volume string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	pv.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: volume}
	return pv
}

func gcePV(disk, zone string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	if zone != "" {
		pv.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	pv.Spec.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: disk}
	pv.Spec.AccessModes = modes
	return pv
}

func TestPVHandle(t *testing.T) {
	nfs := &corev1.PersistentVolume{}
	nfs.Spec.NFS = &corev1.NFSVolumeSource{Server: "s", Path: "/"}
	tests := []struct {
		name, driver string
		pv           *corev1.PersistentVolume
		want         string
	}{
		{"CSI", anyDriver, csiPV(anyDriver, "vol-1"), "vol-1"},
		{"CSI of another driver", anyDriver, csiPV("e.example.com", "vol-1"), ""},
		{"CSI with an empty handle", anyDriver, csiPV(anyDriver, ""), ""},
		{"migrated", ebsDriver, ebsPV("vol-0a"), "vol-0a"},
		{"migrated, an older form", ebsDriver, ebsPV("aws://us-east-1a/vol-0a"), "vol-0a"},
		{"migrated, not translatable", ebsDriver, ebsPV("aws://nonsense"), ""},
		{"migrated to another driver", gceDriver, ebsPV("vol-0a"), ""},
		{"in-tree, driver of no migration", anyDriver, ebsPV("vol-0a"), ""},
		{"migrated, zone in a label", gceDriver, gcePV("disk-1", "us-central1-a"), "projects/UNSPECIFIED/zones/us-central1-a/disks/disk-1"},
		{"migrated, labels of which no place can be made", gceDriver, gcePV("disk-1", "a__b"), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-1"},
		{"migrated, regional", gceDriver, gcePV("disk-1", "us-central1-a__us-central1-b"), "projects/UNSPECIFIED/regions/us-central1/disks/disk-1"},
		{"neither", ebsDriver, nfs, ""},
		{"none", ebsDriver, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := test.pv.DeepCopy()
			got, ok := (&Identity{Driver: test.driver}).PVHandle(test.pv)
			if got != test.want || ok != (test.want != "") {
				t.Errorf("got %q, %v, want %q", got, ok, test.want)
			}
			if !reflect.DeepEqual(before, test.pv) {
				t.Error("the PV, which may be a cached one, was changed")
			}
		})
	}
}

func TestMigrationChangesWhoMayWrite(t *testing.T) {
	gce := &Identity{Driver: gceDriver}
	for _, modes := range [][]corev1.PersistentVolumeAccessMode{
		{corev1.ReadWriteMany}, {corev1.ReadWriteOnce, corev1.ReadOnlyMany}, {corev1.ReadWriteOnce},
	} {
		if got := gce.PVWriters(gcePV("disk-1", "us-central1-a", modes...)); got != Single {
			t.Errorf("in-tree %v: %s", modes, got)
		}
	}
	if got := gce.PVWriters(gcePV("disk-1", "us-central1-a", corev1.ReadOnlyMany)); got != Multi {
		t.Errorf("in-tree ReadOnlyMany: %s", got)
	}
	rwx := csiPV(gceDriver, "projects/p/zones/z/disks/d")
	rwx.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	if got := gce.PVWriters(rwx); got != Multi {
		t.Errorf("CSI ReadWriteMany: %s", got)
	}
	if got := (&Identity{Driver: anyDriver}).PVWriters(rwx); got != Unknown {
		t.Errorf("another driver's: %s", got)
	}
}

func TestInlineHandle(t *testing.T) {
	attachment := func(attacher string, spec *corev1.PersistentVolumeSpec) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: attacher, Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: spec}}}
	}
	tests := []struct {
		name string
		va   *storagev1.VolumeAttachment
		want string
	}{
		{"translated, as Kubernetes writes it", attachment(ebsDriver, &csiPV(ebsDriver, "vol-0a").Spec), "vol-0a"},
		{"in-tree", attachment(ebsDriver, &ebsPV("aws://us-east-1a/vol-0a").Spec), "vol-0a"},
		{"of another attacher", attachment(gceDriver, &csiPV(ebsDriver, "vol-0a").Spec), ""},
		{"of another driver", attachment(ebsDriver, &csiPV(gceDriver, "vol-0a").Spec), ""},
		{"with a PV", attachment(ebsDriver, nil), ""},
	}
	for _, test := range tests {
		if got, ok := (&Identity{Driver: ebsDriver}).InlineHandle(test.va); got != test.want || ok != (test.want != "") {
			t.Errorf("%s: %q, %v, want %q", test.name, got, ok, test.want)
		}
	}
}

func TestUnspecifiedPartsOfAHandleEqualAny(t *testing.T) {
	const (
		full     = "projects/p/zones/us-central1-a/disks/d"
		project  = "projects/UNSPECIFIED/zones/us-central1-a/disks/d"
		zone     = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"
		regional = "projects/UNSPECIFIED/regions/us-central1/disks/d"
	)
	tests := []struct {
		driver, a, b string
		want         bool
	}{
		{anyDriver, "v", "v", true},
		{anyDriver, "v", "w", false},
		{anyDriver, "", "", false},
		{anyDriver, full, project, false}, // only GCE PD writes such handles
		{gceDriver, full, full, true},
		{gceDriver, full, project, true},
		{gceDriver, full, zone, true},
		{gceDriver, project, zone, true},
		{gceDriver, full, regional, false},
		{gceDriver, project, regional, false},
		{gceDriver, zone, regional, true}, // without its label a regional disk has no other handle
		{gceDriver, full, "projects/q/zones/UNSPECIFIED/disks/d", false},
		{gceDriver, full, "projects/UNSPECIFIED/places/us-central1-a/disks/d", false},
		{gceDriver, full, "projects/p/zones/us-central1-b/disks/d", false},
		{gceDriver, project, "projects/p/zones/us-central1-b/disks/d", false},
		{gceDriver, project, "projects/UNSPECIFIED/zones/us-central1-a/disks/e", false},
		{gceDriver, project, "UNSPECIFIED", false},
		{gceDriver, "a/b", "a/c", false},
		{gceDriver, "projects/p", "projects/UNSPECIFIED", false},
		{gceDriver, "buckets/p/zones/a/disks/d", "buckets/UNSPECIFIED/zones/a/disks/d", false},
	}
	for _, test := range tests {
		i := &Identity{Driver: test.driver}
		if got := i.Same(test.a, test.b); got != test.want || i.Same(test.b, test.a) != got {
			t.Errorf("%s: %s and %s: %v", test.driver, test.a, test.b, got)
		}
		if test.want && !i.Same(i.Key(test.a), test.b) {
			t.Errorf("%s: the key of %s is not the Same as %s", test.driver, test.a, test.b)
		}
		if test.want && i.Key(test.a) != i.Key(test.b) {
			t.Errorf("%s: an index by Key does not find %s by %s", test.driver, test.a, test.b)
		}
	}
}

func TestHandlesAreReadFromANodesStatus(t *testing.T) {
	i := &Identity{Driver: anyDriver}
	node := &corev1.Node{}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{
		"kubernetes.io/csi/d.example.com^vol-2", "kubernetes.io/csi/d.example.com^a^b/c", "kubernetes.io/csi/d.example.com^",
		"kubernetes.io/csi/e.example.com^vol-9", "kubernetes.io/csi/d.example.community^vol-8", "kubernetes.io/aws-ebs/vol-7",
	}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: i.UniqueName("vol-1")}, {Name: i.UniqueName("vol-2")}}
	if got, want := i.NodeHandles(node), []string{"a^b/c", "vol-1", "vol-2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for handle, want := range map[string][2]bool{"vol-1": {false, true}, "vol-2": {true, true}, "a^b/c": {true, false}, "vol-9": {}, "": {}} {
		if inUse, attached := i.NodeLists(node, handle); [2]bool{inUse, attached} != want {
			t.Errorf("%s: in use %v, attached %v, want %v", handle, inUse, attached, want)
		}
	}
	gce := &Identity{Driver: gceDriver}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: gce.UniqueName("projects/UNSPECIFIED/zones/z/disks/d")}}
	if _, attached := gce.NodeLists(node, "projects/p/zones/z/disks/d"); !attached {
		t.Error("the name of a migrated volume is not recognised")
	}
}

func TestDriversOfANodesStatusAreNamedOnce(t *testing.T) {
	names := []corev1.UniqueVolumeName{"kubernetes.io/csi/e.example.com^vol-9", "kubernetes.io/aws-ebs/vol-7", "kubernetes.io/csi/d.example.com^a^b/c",
		"kubernetes.io/csi/e.example.com^vol-1", "kubernetes.io/csi/d.example.com^"}
	if got, want := DriversOf(names), []string{"d.example.com", "e.example.com"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAPodsVolumeIsOfTheClaimThatItNamesOrOfItsOwn(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0"}}
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	for name, c := range map[string]struct {
		source corev1.VolumeSource
		want   string
	}{
		"a claim":      {claim, "data"},
		"an ephemeral": {corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, "db-0-scratch"},
		"none":         {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, ""},
	} {
		v := corev1.Volume{Name: "scratch", VolumeSource: c.source}
		if got := ClaimName(pod, &v); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		pod.Spec.Volumes = []corev1.Volume{{Name: "other"}, v}
		for _, of := range []string{"data", "db-0-scratch", ""} {
			if got := UsesClaim(pod, of); got != (of != "" && of == c.want) {
				t.Errorf("%s: uses claim %q: %v", name, of, got)
			}
		}
	}
}

func TestNodeIDs(t *testing.T) {
	node := &storagev1.CSINode{}
	node.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "e.example.com", NodeID: "e-1"}, {Name: anyDriver, NodeID: "d-1"}}
	if got := (&Identity{Driver: anyDriver}).NodeID(node); got != "d-1" {
		t.Errorf("got %q", got)
	}
	if got := (&Identity{Driver: "f.example.com"}).NodeID(node); got != "" {
		t.Errorf("got %q", got)
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"csi.alpha.kubernetes.io/node-id": "d-2"}}}
	if got := AttachmentNodeID(va); got != "d-2" {
		t.Errorf("got %q", got)
	}
}

// The expected name is what Kubernetes makes: sha256 of the three texts in a row.
func TestAttachmentNameIsKubernetesOwn(t *testing.T) {
	const want = "csi-4499ee017ffbd7c27adcaf4b6d7385ae0ab9c5fa487205ab041ef1825c4e8e71"
	if got := AttachmentName("vol-1", anyDriver, "node-1"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Whoever patches PersistentVolumes may change a label, and nobody a source.
func TestWhatVolumeAPersistentVolumeMayBe(t *testing.T) {
	const inA, inB, region = "projects/p/zones/us-central1-a/disks/d", "projects/p/zones/us-central1-b/disks/d", "projects/p/regions/us-central1/disks/d"
	ofCSI := &corev1.PersistentVolume{}
	ofCSI.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: gceDriver, VolumeHandle: inA}
	for _, test := range []struct {
		driver string
		pv     *corev1.PersistentVolume
		want   string // of inA, inB, region, another disk
	}{
		{gceDriver, gcePV("d", "us-central1-a"), "yes yes yes no"},
		{gceDriver, gcePV("d", "us-central1-a__us-central1-b"), "yes yes yes no"},
		{gceDriver, gcePV("d", ""), "yes yes yes no"},
		{gceDriver, ofCSI, "yes no no no"},
		{ebsDriver, gcePV("d", "us-central1-a"), "no no no no"},
	} {
		i := &Identity{Driver: test.driver}
		var got []string
		for _, handle := range []string{inA, inB, region, "projects/p/zones/us-central1-a/disks/e"} {
			got = append(got, map[bool]string{true: "yes", false: "no"}[i.PVMayHave(test.pv, handle)])
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s, %v: %s, want %s", test.driver, test.pv.Labels, text, test.want)
		}
	}
}
