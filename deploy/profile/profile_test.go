package profile

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// aSource is a repository, or an issue of it, or a vendor's document; and where in it.
var aSource = regexp.MustCompile(`^(EC2 API reference, \w+: .+|[\w.-]+/[\w.-]+(#\d+| [\w./-]+[\w]\.\w+, .+)(, and .+|: .+)?)$`)

var aVersion = regexp.MustCompile(`^[\w.-]+ of \d{4}-\d\d-\d\d$`)

func (p *Profile) facts() map[string]Fact {
	return map[string]Fact{"Publishes": p.Publishes, "RevokesAccess": p.RevokesAccess, "ListsPublished": p.ListsPublished, "TaintFirst": p.TaintFirst}
}

// What is not known takes the safe answer, and what is known says from where.
func TestEachFactNamesItsSource(t *testing.T) {
	if len(profiles) < 50 {
		t.Errorf("%d profiles", len(profiles))
	}
	for _, p := range profiles {
		for name, f := range p.facts() {
			if f.Known != Unknown && f.Known != Yes && f.Known != No || f.Known == Unknown && f.Source != "" || f.Known != Unknown && !aSource.MatchString(f.Source) {
				t.Errorf("%s: %s is %q by %q", p.Name, name, f.Known, f.Source)
			}
		}
		for _, n := range p.Notes {
			if !aSource.MatchString(n.Source) || n.Text == "" || strings.HasSuffix(n.Text, ".") {
				t.Errorf("%s: %q by %q", p.Name, n.Text, n.Source)
			}
		}
		if !aVersion.MatchString(p.Read) {
			t.Errorf("%s: in which version, of which day, was it read? %q", p.Name, p.Read)
		}
	}
}

func TestASourceSaysWhere(t *testing.T) {
	for source, is := range map[string]bool{
		"a/b pkg/c.go, function":                         true,
		"a/b README.md, Heading":                         true,
		"a/b#12":                                         true,
		"a/b#12: the client is blocked":                  true,
		"EC2 API reference, DetachVolume: it stays busy": true,
		"":              false,
		"the same":      false,
		"a/b":           false,
		"a/b pkg/c.go":  false,
		"the source":    false,
		"b c.go, f":     false,
		"a/b pkg/c.go,": false,
	} {
		if aSource.MatchString(source) != is {
			t.Errorf("%q is a source: %v", source, !is)
		}
	}
}

func TestNamesAndImagesAreOfOneProfileOnly(t *testing.T) {
	seen := map[string]string{}
	for _, p := range profiles {
		for _, name := range append(append([]string{p.Name}, p.Drivers...), p.Images...) {
			if seen[name] != "" {
				t.Errorf("%s is of %s and of %s", name, seen[name], p.Name)
			}
			seen[name] = p.Name
		}
		for _, name := range p.Drivers {
			if faults := validation.IsDNS1123Subdomain(strings.TrimPrefix(name, ".")); len(faults) > 0 || len(name) > 63 {
				t.Errorf("%s: no CSIDriver is called %s: %v", p.Name, name, faults)
			}
		}
		if p.Name == "" || p.Driver() == "" {
			t.Errorf("%+v has no name", p)
		}
	}
}

// An image that says no more than that it is a driver is anybody's.
func TestNoImageIsAnybodys(t *testing.T) {
	for _, p := range profiles {
		for _, image := range p.Images {
			for _, anybodys := range []string{"driver", "csi", "csi-driver", "csi-plugin", "release", "plugin", "controller"} {
				if image == anybodys || ImageName(image) != image {
					t.Errorf("%s: an image %s", p.Name, image)
				}
			}
		}
	}
}

// What is not asked to publish anything has nothing else to be known.
func TestNothingIsKnownOfCallsThatAreNotMade(t *testing.T) {
	for _, p := range profiles {
		if p.Publishes.Known == No && (p.RevokesAccess.Known != Unknown || p.ListsPublished.Known != Unknown || p.TaintFirst.Known != Unknown) {
			t.Errorf("%s publishes nothing: %+v", p.Name, p.facts())
		}
	}
}

func TestNothingIsClaimedOfAnUnknownDriver(t *testing.T) {
	if p := For("array.example.com"); p.RevokesAccess.Known != Unknown || len(p.Notes) == 0 || !strings.Contains(p.Notes[0].String(), "Observe") {
		t.Errorf("%+v", p)
	}
}

func TestDriversAndImagesAreRecognised(t *testing.T) {
	for name, want := range map[string]string{
		"rook-ceph.rbd.csi.ceph.com":                "Ceph RBD",
		"rook-ceph.cephfs.csi.ceph.com":             "CephFS",
		"mine.blockvolume.csi.oraclecloud.com":      "Oracle Cloud block volume",
		"csi.trident.netapp.io":                     "NetApp Trident",
		"ebs.csi.eks.amazonaws.com":                 "unknown driver",
		"blockvolume.csi.oraclecloud.com.elsewhere": "unknown driver",
	} {
		if p := For(name); p.Name != want {
			t.Errorf("%s: %s, want %s", name, p.Name, want)
		}
	}
	if p := For("rook-ceph.rbd.csi.ceph.com"); p.TaintFirst.Known != Yes {
		t.Errorf("Rook: %+v", p)
	}
	for image, want := range map[string]string{
		"public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver:v1.64.0": "ebs.csi.aws.com",
		"localhost:5000/azuredisk-csi@sha256:0123":                 "disk.csi.azure.com",
		"localhost:5000/hcloud-csi-driver":                         "csi.hetzner.cloud",
	} {
		if p := ForImage(image); p == nil || p.Driver() != want {
			t.Errorf("%s: %+v, want %s", image, p, want)
		}
	}
	if p := ForImage("registry.example.com/storage/driver:v1"); p != nil {
		t.Errorf("an image that is called driver is %s", p.Name)
	}
}

// The Helm chart (deploy/chart) knows no profiles, and has to, as inject does, once one of them
// changes a configuration.
func TestNoProfileChangesAConfiguration(t *testing.T) {
	for _, p := range profiles {
		if p.RevokesAccess.Known == Yes {
			t.Errorf("%s revokes access: inject writes that down, and deploy/chart does not", p.Name)
		}
	}
}
