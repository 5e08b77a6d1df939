package inject

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// wiresOf are the wires of every workload in a file.
func wiresOf(t *testing.T, f File, change func(*corev1.PodSpec)) (wires []Wire) {
	t.Helper()
	for _, w := range workloadsIn(t, f) {
		if change != nil {
			change(&w.Template.Spec)
		}
		wires = append(wires, Wires(&w.Template.Spec, nil)...)
	}
	return wires
}

// What inject writes is wired through, whatever the manifest looked like, and what it was given
// is not.
func TestWhatIsInjectedIsSeenAsGuarded(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		t.Run(name, func(t *testing.T) {
			for _, w := range wiresOf(t, f, nil) {
				if w.Guard != nil || len(w.Beside) > 0 || w.Err != nil {
					t.Errorf("before: container %s is wired through %v, beside %d, %v", w.Attacher.Name, w.Guard, len(w.Beside), w.Err)
				}
			}
			text, r := once(t, f, options[name])
			guarded := map[string]bool{}
			for _, w := range wiresOf(t, File{f.Name, text}, nil) {
				if w.Guard != nil {
					guarded[w.Attacher.Name] = true
				} else if len(w.Beside) > 0 {
					t.Errorf("container %s, which nobody injected, is taken for one that passes by %s", w.Attacher.Name, w.Beside[0].Name)
				}
			}
			for _, p := range r.Plans {
				if !guarded[p.Attacher.Container] {
					t.Errorf("container %s is not seen as guarded", p.Attacher.Container)
				}
			}
			if len(guarded) != len(r.Plans) {
				t.Errorf("guarded are %v of %d", guarded, len(r.Plans))
			}
		})
	}
}

// An attacher that somebody points at the driver again, in whichever spelling, passes by.
func TestAnAttacherThatCallsTheDriverPassesBy(t *testing.T) {
	text, _ := once(t, inputs(t, "cases")["two-attachers"], Options{})
	past := func(volume, address string) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) {
			for i := range pod.Containers {
				if c := &pod.Containers[i]; c.Name == "block-attacher" {
					c.Args = []string{address}
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/elsewhere"})
				}
			}
		}
	}
	for _, c := range []struct{ volume, address, want string }{
		{"block", "--csi-address=/elsewhere/csi.sock", "block.example.com past csi-fencepost"},
		{"block", "--csi-address=unix:///elsewhere/../elsewhere/csi.sock", "block.example.com past csi-fencepost"},
		{"block", "--csi-address=/elsewhere/other.sock", "block.example.com past csi-fencepost"}, // that nobody calls
		{"fencepost-socket", "--csi-address=/elsewhere/csi.sock", "block.example.com through csi-fencepost"},
		{"fencepost-socket-2", "--csi-address=/elsewhere/csi.sock", "file.example.com through csi-fencepost-2"},
	} {
		var got string
		for _, w := range wiresOf(t, File{"f.yaml", text}, past(c.volume, c.address)) {
			if w.Attacher.Name != "block-attacher" {
				continue
			}
			switch {
			case w.Guard != nil:
				got = fmt.Sprintf("%s through %s", w.Driver, w.Guard.Name)
			case len(w.Beside) > 0:
				got = fmt.Sprintf("%s past %s", w.Driver, w.Beside[0].Name)
			}
		}
		if got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.address, c.volume, got, c.want)
		}
	}
}

// Two volumes of one folder of the node are one place.
func TestAFolderOfTheNodeIsOnePlace(t *testing.T) {
	host := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	pod := &corev1.PodSpec{Volumes: []corev1.Volume{host("a", "/var/lib/kubelet/plugins"), host("b", "/var/lib/kubelet/plugins/x.example.com")}}
	one := place(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "a", MountPath: "/p"}}}, "/p/x.example.com/csi.sock")
	two := place(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "b", MountPath: "/csi"}}}, "/csi/csi.sock")
	if one != two || !strings.HasPrefix(one, "on the node") {
		t.Errorf("%q and %q", one, two)
	}
	of := func(mount corev1.VolumeMount, file string) string {
		return place(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{mount}}, file)
	}
	whole, part := corev1.VolumeMount{Name: "c", MountPath: "/all"}, corev1.VolumeMount{Name: "c", MountPath: "/csi", SubPath: "x"}
	if of(whole, "/all/x/csi.sock") != of(part, "/csi/csi.sock") || of(whole, "/all/csi.sock") == of(part, "/csi/csi.sock") {
		t.Error("a part of a volume is taken for the whole")
	}
}
