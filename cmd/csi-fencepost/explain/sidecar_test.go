package explain

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestASidecarIsKnownByWhatItIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		container corev1.Container
		is        bool
	}{
		"by name":         {corev1.Container{Name: "csi-fencepost"}, true},
		"renamed":         {corev1.Container{Name: "guard", Args: []string{"run", "--csi-address=/a", "--listen=/b"}}, true},
		"one dash, apart": {corev1.Container{Name: "guard", Command: []string{"/csi-fencepost", "run"}, Args: []string{"-csi-address", "/a", "-listen", "/b"}}, true},
		"an attacher":     {corev1.Container{Name: "csi-attacher", Args: []string{"--csi-address=/a"}}, false},
		"a listener":      {corev1.Container{Name: "web", Args: []string{"run", "--listen=:80"}}, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "driver"}, c.container}}}
		if got := sidecarOf(pod) != nil; got != c.is {
			t.Errorf("%s: %v, want %v", name, got, c.is)
		}
	}
}

func TestAnArgumentIsFoundHoweverItIsWritten(t *testing.T) {
	for _, args := range [][]string{{"--config=/c"}, {"-config=/c"}, {"--config", "/c"}, {"run", "-config", "/c", "--v=2"}} {
		if value, given := argument(&corev1.Container{Args: args}, "config"); !given || value != "/c" {
			t.Errorf("%v: %q, %v", args, value, given)
		}
	}
	if _, given := argument(&corev1.Container{Args: []string{"--config-file=/c"}}, "config"); given {
		t.Error("another flag was taken for it")
	}
}
