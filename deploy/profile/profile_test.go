package profile

import (
	"strings"
	"testing"
)

// What is not known takes the safe answer, and what is known says from where.
func TestEachFactNamesItsSource(t *testing.T) {
	if len(profiles) < 10 {
		t.Errorf("%d profiles", len(profiles))
	}
	for _, p := range profiles {
		for name, f := range map[string]Fact{"Publishes": p.Publishes, "RevokesAccess": p.RevokesAccess, "ListsPublished": p.ListsPublished, "TaintFirst": p.TaintFirst} {
			if (f.Known == Unknown) != (f.Source == "") {
				t.Errorf("%s: %s is %q by %q", p.Name, name, f.Known, f.Source)
			}
			if f.Known != Unknown && f.Known != Yes && f.Known != No {
				t.Errorf("%s: %s is %q", p.Name, name, f.Known)
			}
		}
	}
}

func TestNamesAndImagesAreOfOneProfileOnly(t *testing.T) {
	seen := map[string]string{}
	for _, p := range profiles {
		for _, name := range append(append([]string{}, p.Drivers...), p.Images...) {
			if seen[name] != "" {
				t.Errorf("%s is of %s and of %s", name, seen[name], p.Name)
			}
			seen[name] = p.Name
		}
		if p.Name == "" || p.Driver() == "" {
			t.Errorf("%+v has no name", p)
		}
	}
}

func TestNothingIsClaimedOfAnUnknownDriver(t *testing.T) {
	if p := For("array.example.com"); p.RevokesAccess.Known != Unknown || len(p.Notes) == 0 || !strings.Contains(p.Notes[0], "Observe") {
		t.Errorf("%+v", p)
	}
}

func TestRookAndImagesAreRecognised(t *testing.T) {
	if p := For("rook-ceph.rbd.csi.ceph.com"); p.Name != "Ceph RBD" || p.TaintFirst.Known != Yes {
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
