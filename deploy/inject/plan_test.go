package inject

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy"
)

// attacherOf makes an external-attacher out of its arguments.
func attacherOf(args ...string) *corev1.Container {
	return &corev1.Container{
		Name: "csi-attacher", Image: "registry.k8s.io/sig-storage/csi-attacher:v4.12.0", Args: args,
		Env:          []corev1.EnvVar{{Name: "ADDRESS", Value: "/csi/csi.sock"}},
		VolumeMounts: []corev1.VolumeMount{{Name: "socket-dir", MountPath: "/csi/"}, {Name: "run", MountPath: "/run/csi"}},
	}
}

// planOf plans for a Deployment with such an attacher.
func planOf(t *testing.T, attacher *corev1.Container, change func(*Workload)) *Plan {
	t.Helper()
	w := &Workload{APIVersion: "apps/v1", Kind: "Deployment"}
	w.ObjectMeta.Name, w.ObjectMeta.Namespace = "array", "storage"
	w.Template.Spec.Containers = []corev1.Container{*attacher}
	if change != nil {
		change(w)
	}
	plans, err := NewPlans(w, Options{Drivers: []string{"array.example.com"}})
	if err != nil || len(plans) != 1 {
		t.Fatalf("%d plans: %v", len(plans), err)
	}
	return plans[0]
}

// Each way in which Go's flag package takes a flag, and where it stops.
func TestEverySpellingOfTheSocketIsFound(t *testing.T) {
	for _, c := range []struct{ args, socket, after string }{
		{"--csi-address=/csi/csi.sock", "/csi/csi.sock", "--csi-address=/fencepost/csi.sock"},
		{"-csi-address=unix:///csi/csi.sock", "/csi/csi.sock", "-csi-address=/fencepost/csi.sock"},
		{"--csi-address=$(ADDRESS)", "/csi/csi.sock", "--csi-address=/fencepost/csi.sock"},
		{"-csi-address unix:/csi//csi.sock", "/csi/csi.sock", "-csi-address /fencepost/csi.sock"},
		{"--csi-address=/other/csi.sock --csi-address=/csi/csi.sock", "/csi/csi.sock", "--csi-address=/other/csi.sock --csi-address=/fencepost/csi.sock"},
		{"--leader-election --csi-address $(ADDRESS)", "/csi/csi.sock", "--leader-election --csi-address /fencepost/csi.sock"},
		{"--v 5", "/run/csi/socket", "--v 5"},
		{"", "/run/csi/socket", ""},
	} {
		p := planOf(t, attacherOf(strings.Fields(c.args)...), nil)
		if !slices.Contains(p.Sidecar.Args, "--csi-address="+c.socket) {
			t.Errorf("%q: the sidecar has %q", c.args, p.Sidecar.Args)
		}
		got := strings.Join(p.Attacher.Args, " ")
		if want := strings.TrimSpace(c.after + " --timeout=60s --worker-threads=100 --kube-api-qps=100 --kube-api-burst=200"); c.socket == defaultSocket {
			want = strings.TrimSpace(c.after + " --csi-address=/fencepost/csi.sock --timeout=60s --worker-threads=100 --kube-api-qps=100 --kube-api-burst=200")
			if got != want {
				t.Errorf("%q: attacher %q, want %q", c.args, got, want)
			}
		} else if got != want {
			t.Errorf("%q: attacher %q, want %q", c.args, got, want)
		}
	}
}

func TestLimitsAreRaisedOnlyWhereTheyAreLower(t *testing.T) {
	higher := []string{"--csi-address=$(ADDRESS)", "--timeout=2m", "--worker-threads=100", "--kube-api-qps=100.5", "--kube-api-burst=1000"}
	p := planOf(t, attacherOf(higher...), nil)
	if got, want := p.Attacher.Args[1:], higher[1:]; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	p = planOf(t, attacherOf("--csi-address=$(ADDRESS)", "--timeout=59s", "-worker-threads", "99", "--kube-api-qps=many"), nil)
	if got, want := p.Attacher.Args[1:], []string{"--timeout=60s", "-worker-threads", "100", "--kube-api-qps=many", "--kube-api-burst=200"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// external-attacher ends at a flag that it does not know.
func TestAnOldAttacherGetsNoFlagThatItDoesNotKnow(t *testing.T) {
	for tag, want := range map[string]bool{"v2.2.0": false, "v3.1.0": false, "3.1.0": false, "v3.2.0": true, "v4.12.0-eksbuild.5": true, "latest": true} {
		a := attacherOf("--csi-address=$(ADDRESS)")
		a.Image = "registry.example.com:5000/csi-attacher:" + tag
		if got := slices.Contains(planOf(t, a, nil).Attacher.Args, "--kube-api-qps=100"); got != want {
			t.Errorf("%s: given %v, want %v", tag, got, want)
		}
	}
}

// deploy/sidecar/patch.yaml is what a person applies by hand: the two do the
// same.
func TestThePatchAndInjectAgree(t *testing.T) {
	text, err := deploy.Files.ReadFile("sidecar/patch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var patch appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &patch); err != nil {
		t.Fatal(err)
	}
	containers := patch.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "csi-attacher" })
	p := planOf(t, attacherOf("--csi-address=$(ADDRESS)", "--leader-election", "--v=2"), nil)
	if got, want := slices.Sorted(slices.Values(p.Attacher.Args)), slices.Sorted(slices.Values(containers[i].Args)); !slices.Equal(got, want) {
		t.Errorf("attacher: inject %q, patch %q", got, want)
	}
	ours := containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == sidecarName })]
	if !slices.Equal(p.Sidecar.Args, ours.Args) {
		t.Errorf("sidecar: inject %q, patch %q", p.Sidecar.Args, ours.Args)
	}
}

func ptr[T any](v T) *T { return &v }

// The driver's socket lets in whom it lets in now: the sidecar is that user, and
// has no other right.
func TestTheSidecarRunsAsTheAttacherDoes(t *testing.T) {
	overrides := []corev1.Capability{"DAC_OVERRIDE"}
	for name, c := range map[string]struct {
		pod      *corev1.PodSecurityContext
		scc      string
		attacher *corev1.SecurityContext
		user     *int64
		adds     []corev1.Capability
		says     string
	}{
		"the user of the image, which is root": {user: ptr(int64(0)), adds: overrides, says: "runs as root"},
		"the pod's user":                       {pod: &corev1.PodSecurityContext{RunAsUser: ptr(int64(1000))}, says: "user 1000 of the pod"},
		"the pod's user is root":               {pod: &corev1.PodSecurityContext{RunAsUser: ptr(int64(0))}, adds: overrides, says: "user 0 of the pod"},
		"not root":                             {pod: &corev1.PodSecurityContext{RunAsNonRoot: ptr(true)}, says: "set runAsUser of both"},
		"a user of its own": {
			attacher: &corev1.SecurityContext{RunAsUser: ptr(int64(65532)), RunAsGroup: ptr(int64(7)), SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1"}},
			user:     ptr(int64(65532)), says: "user 65532, as csi-attacher does",
		},
		"OpenShift gives the user":              {scc: "restricted-v2", says: "the SecurityContextConstraints restricted-v2"},
		"a cluster's own constraints":           {scc: "storage-operators", says: "storage-operators"},
		"OpenShift leaves the image's user":     {scc: "privileged", user: ptr(int64(0)), adds: overrides, says: "runs as root"},
		"OpenShift, and a user that is written": {scc: "restricted-v2", attacher: &corev1.SecurityContext{RunAsUser: ptr(int64(5))}, user: ptr(int64(5)), says: "user 5"},
		"privileged": {
			attacher: &corev1.SecurityContext{Privileged: ptr(true), AllowPrivilegeEscalation: ptr(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}},
			user:     ptr(int64(0)), adds: overrides, says: "runs as root",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := attacherOf("--csi-address=$(ADDRESS)")
			a.SecurityContext = c.attacher
			p := planOf(t, a, func(w *Workload) {
				w.Template.Spec.SecurityContext = c.pod
				if c.scc != "" {
					w.Template.Annotations = map[string]string{"openshift.io/required-scc": c.scc}
				}
			})
			want := &corev1.SecurityContext{
				RunAsUser: c.user, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: c.adds},
				AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			if c.attacher != nil {
				want.RunAsGroup, want.SELinuxOptions = c.attacher.RunAsGroup, c.attacher.SELinuxOptions
			}
			if got := p.Sidecar.SecurityContext; !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if !strings.Contains(said(p.Findings), c.says) {
				t.Errorf("%q is not said:\n%s", c.says, said(p.Findings))
			}
		})
	}
}

// On nodes that enforce SELinux a process without the label cannot connect to the
// socket of a privileged one in a folder of the node. It is asked for, and kept.
func TestASELinuxTypeIsAskedForAndNotInherited(t *testing.T) {
	privileged := func(folder bool) (*corev1.Container, func(*Workload)) {
		a := attacherOf("--csi-address=$(ADDRESS)")
		a.SecurityContext = &corev1.SecurityContext{Privileged: ptr(true)}
		return a, func(w *Workload) {
			if folder {
				w.Template.Spec.Volumes = []corev1.Volume{{Name: "socket-dir", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/x"}}}}
			}
		}
	}
	for _, folder := range []bool{false, true} {
		a, change := privileged(folder)
		p := planOf(t, a, change)
		if p.Sidecar.SecurityContext.SELinuxOptions != nil || strings.Contains(said(p.Findings), "--selinux-type spc_t") != folder {
			t.Errorf("in a folder of the node %t: %+v\n%s", folder, p.Sidecar.SecurityContext, said(p.Findings))
		}
	}
	f := inputs(t, "cases")["hostnetwork"]
	text, _ := once(t, f, Options{SELinuxType: "spc_t"})
	if !strings.Contains(string(text), "type: spc_t") {
		t.Errorf("not there:\n%s", text)
	}
	again, _ := once(t, File{f.Name, text}, Options{})
	if string(again) != string(text) {
		t.Errorf("not kept:\n%s", again)
	}
}

func TestNoFixedPortOnTheNodesNetwork(t *testing.T) {
	p := planOf(t, attacherOf("--csi-address=$(ADDRESS)"), func(w *Workload) { w.Template.Spec.HostNetwork = true })
	c := p.Sidecar
	if len(c.Ports) > 0 || c.LivenessProbe != nil || c.ReadinessProbe != nil || strings.Contains(strings.Join(c.Args, " "), "http-endpoint") {
		t.Errorf("sidecar %+v", c)
	}
}

// The attacher keeps the driver's socket where anything else of it is there.
func TestTheDriversMountIsTakenOffOnlyIfNothingElseNeedsIt(t *testing.T) {
	for name, change := range map[string]func(*corev1.Container){
		"another flag": func(c *corev1.Container) { c.Args = append(c.Args, "--log_file=/csi/log") },
		"a variable":   func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "DIR", Value: "/csi"}) },
		"an unknown flag": func(c *corev1.Container) {
			c.Args = append(c.Args, "--x=$(Y)")
			c.Env = append(c.Env, corev1.EnvVar{Name: "Y", ValueFrom: &corev1.EnvVarSource{}})
		},
		"a probe": func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}}
		},
		"a mount in it": func(c *corev1.Container) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "x", MountPath: "/csi/x"})
		},
	} {
		a := attacherOf("--csi-address=$(ADDRESS)")
		change(a)
		if p := planOf(t, a, nil); p.Attacher.VolumeMounts[0].MountPath != "/csi/" {
			t.Errorf("%s: taken off: %+v", name, p.Attacher.VolumeMounts)
		}
	}
	if p := planOf(t, attacherOf("--csi-address=$(ADDRESS)"), nil); p.Attacher.VolumeMounts[0].MountPath == "/csi/" {
		t.Error("left on, although nothing needs it")
	}
}

func TestLeaderElectionWhereThereMayBeTwo(t *testing.T) {
	elects := func(p *Plan) bool { return slices.Contains(p.Sidecar.Args, "--leader-election") }
	if elects(planOf(t, attacherOf("--csi-address=$(ADDRESS)", "--leader-election=false"), nil)) {
		t.Error("one replica without an election has one")
	}
	if !elects(planOf(t, attacherOf("--csi-address=$(ADDRESS)", "-leader-election"), nil)) {
		t.Error("the attacher elects, the sidecar does not")
	}
	if !elects(planOf(t, attacherOf("--csi-address=$(ADDRESS)"), func(w *Workload) { w.Replicas = ptr(int32(2)) })) {
		t.Error("two replicas without an election")
	}
}

// An image's name counts, not what a container happens to be called.
func TestWhatIsAnAttacher(t *testing.T) {
	for _, c := range []struct {
		container corev1.Container
		want      bool
	}{
		{corev1.Container{Image: "registry.k8s.io/sig-storage/csi-attacher:v4"}, true},
		{corev1.Container{Image: "rancher/mirrored-sig-storage-csi-attacher"}, true},
		{corev1.Container{Image: "localhost:5000/ose-csi-external-attacher-rhel9@sha256:1"}, true},
		{corev1.Container{Image: "x", Command: []string{"/csi-attacher"}}, true},
		{corev1.Container{Image: "x", Args: []string{"--reconcile-sync=1m"}}, true},
		{corev1.Container{Image: "x", Name: "attacher", Args: []string{"-csi-address", "/x"}}, true},
		{corev1.Container{Image: "x", Name: "csi-attacher"}, false},
		{corev1.Container{Image: "csi-attacher.example.com/provisioner:csi-attacher"}, false},
		{corev1.Container{Image: "x", Args: []string{"--csi-address=/x"}}, false},
	} {
		if got := isAttacher(&c.container); got != c.want {
			t.Errorf("%+v: %v", c.container, got)
		}
	}
}

func TestVariablesAreExpandedAsKubernetesDoes(t *testing.T) {
	env := map[string]*string{"A": ptr("1"), "B": nil}
	for text, want := range map[string]string{"$(A)": "1", "x$(A)$(A)y": "x11y", "$$(A)": "$(A)", "$(C)": "$(C)", "$(A": "$(A", "$A": "$A"} {
		if got, err := expand(text, env); got != want || err != nil {
			t.Errorf("%s: %q %v, want %q", text, got, err, want)
		}
	}
	if _, err := expand("$(B)", env); err == nil || !strings.Contains(err.Error(), "valueFrom") {
		t.Errorf("error %v", err)
	}
}

// What a driver is told is its name has to look like one.
func TestAFlagThatIsNoDriverNameIsNotTaken(t *testing.T) {
	for value, want := range map[string]string{"array": "array.example.com", "other.example.com": "other.example.com"} {
		w := &Workload{APIVersion: "apps/v1", Kind: "Deployment", CSIDrivers: map[string]bool{"array.example.com": true}}
		w.ObjectMeta.Name = "array"
		driver := corev1.Container{Name: "driver", Args: []string{"--drivername", value}, VolumeMounts: []corev1.VolumeMount{{Name: "socket-dir", MountPath: "/s"}}}
		w.Template.Spec.Containers = []corev1.Container{*attacherOf("--csi-address=$(ADDRESS)"), driver}
		plans, err := NewPlans(w, Options{Namespace: "csi"})
		if err != nil || len(plans) != 1 || plans[0].Driver != want {
			t.Errorf("--drivername %s: %+v %v", value, plans, err)
		}
	}
}
