package inject

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// combinedOf is csi-sidecars with such arguments.
func combinedOf(args ...string) *corev1.Container {
	c := attacherOf(args...)
	c.Name, c.Image = "csi-sidecars", "registry.example.com/csi-sidecars:v1.0.0"
	return c
}

// Its one address is external-attacher's too. A flag that it does not know would end it.
func TestCSISidecarsArePointedAtTheGuardAsAWhole(t *testing.T) {
	for controllers, others := range map[string]string{
		"attacher,provisioner,resizer": "(provisioner, resizer)", "attacher": "", "*": "(*)", "*,-resizer": "(*, -resizer)",
	} {
		p := planOf(t, combinedOf("--csi-address=$(ADDRESS)", "--controllers="+controllers), nil)
		want := []string{"--csi-address=/fencepost/csi.sock", "--controllers=" + controllers, "--attacher-timeout=60s", "--attacher-worker-threads=100", "--kube-api-qps=100", "--kube-api-burst=200"}
		if !slices.Equal(p.Attacher.Args, want) {
			t.Errorf("%s: %q", controllers, p.Attacher.Args)
		}
		if says := said(p.Findings); !strings.Contains(says, "is csi-sidecars with external-attacher") || !strings.Contains(says, others) || strings.Contains(says, "pass through csi-fencepost too") != (others != "") {
			t.Errorf("%s: %s", controllers, says)
		}
	}
	higher := []string{"--csi-address=$(ADDRESS)", "--controllers=attacher", "--attacher-timeout=2m", "--attacher-worker-threads=200", "--kube-api-qps=200", "--kube-api-burst=400"}
	if p := planOf(t, combinedOf(higher...), nil); !slices.Equal(p.Attacher.Args[1:], higher[1:]) {
		t.Errorf("%q", p.Attacher.Args)
	}
}

// It is an attacher where it runs one, or may.
func TestWhichCSISidecarsAttach(t *testing.T) {
	for args, want := range map[string]bool{
		"--controllers=attacher": true, "--controllers provisioner,attacher": true, "--controllers=*": true, "": true, "--controllers=$(X)": true,
		"--controllers=*,-attacher": false, "--controllers=provisioner": false, "--controllers=node-driver-registrar": false,
	} {
		if got := isAttacher(combinedOf(strings.Fields(args)...)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
	renamed := combinedOf("--controllers=provisioner")
	renamed.Image, renamed.Name, renamed.Command = "registry.example.com/sidecars:v1", "attacher", []string{"/csi-sidecars"}
	if isAttacher(renamed) {
		t.Error("by its name")
	}
}

// Both would attach for one driver, and one of them would get past the guard.
func TestAnAttacherBesideCSISidecarsThatAttachIsRefused(t *testing.T) {
	w := &Workload{APIVersion: "apps/v1", Kind: "Deployment"}
	w.ObjectMeta.Name, w.ObjectMeta.Namespace = "array", "storage"
	driver := corev1.Container{Name: "driver", Args: []string{"--drivername=array.example.com"}, VolumeMounts: []corev1.VolumeMount{{Name: "run", MountPath: "/s"}, {Name: "socket-dir", MountPath: "/t"}}}
	w.Template.Spec.Containers = []corev1.Container{driver, *attacherOf("--csi-address=$(ADDRESS)"), *combinedOf("--csi-address=$(ADDRESS)", "--controllers=attacher")}
	if _, err := NewPlans(w, Options{}); err == nil || !strings.Contains(err.Error(), "would both be attachers of the driver array.example.com") {
		t.Errorf("error %v", err)
	}
}
