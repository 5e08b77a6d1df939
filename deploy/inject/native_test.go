package inject

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// isNative asks for one form of the sidecar.
func isNative(native bool) Options { return Options{Native: &native} }

// Nothing but the place and the restart policy tells the two forms apart. A startup probe would
// wait for the driver, which starts after it.
func TestANativeSidecarIsTheContainerInAnotherPlace(t *testing.T) {
	f := inputs(t, "cases")["native-sidecar"]
	_, container := once(t, f, isNative(false))
	_, native := once(t, f, isNative(true))
	want, got := container.Plans[0].Sidecar, native.Plans[0].Sidecar
	if got.RestartPolicy == nil || *got.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("restartPolicy %v", got.RestartPolicy)
	}
	got.RestartPolicy = nil
	if !reflect.DeepEqual(got, want) || got.StartupProbe != nil || got.LivenessProbe == nil || got.ReadinessProbe == nil {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(native.Plans[0].Attacher, container.Plans[0].Attacher) || !reflect.DeepEqual(native.Plans[0].Volumes, container.Plans[0].Volumes) {
		t.Errorf("attacher %+v\nvolumes %+v", native.Plans[0].Attacher, native.Plans[0].Volumes)
	}
}

// It may need what an init container of the pod puts into a volume.
func TestANativeSidecarComesLastOfTheInitContainers(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		o := options[name]
		o.Native, o.HTTPPort, o.Separate = ptr(true), 9999, true
		r, err := Inject([]File{f}, o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, w := range workloadsIn(t, r.Files[0]) {
			var inits, ours []string
			for _, c := range w.Template.Spec.InitContainers {
				if inits = append(inits, c.Name); strings.HasPrefix(c.Name, sidecarName) {
					ours = append(ours, c.Name)
				}
			}
			for _, c := range w.Template.Spec.Containers {
				if strings.HasPrefix(c.Name, sidecarName) {
					t.Errorf("%s: %s is a container", name, c.Name)
				}
			}
			if len(ours) > len(w.attachers()) || !slices.Equal(inits[len(inits)-len(ours):], ours) {
				t.Errorf("%s: init containers %q", name, inits)
			}
		}
		if !slices.ContainsFunc(r.Plans, func(p *Plan) bool { return p.Native }) {
			t.Errorf("%s: no plan is native", name)
		}
	}
}

// workloadsIn are those of a file.
func workloadsIn(t *testing.T, f File) (all []*Workload) {
	t.Helper()
	_, found, err := readFiles([]File{f})
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		if !isWorkload(found[i].APIVersion, found[i].Kind) {
			continue
		}
		o, err := found[i].decode()
		if err != nil {
			t.Fatal(err)
		}
		w, err := FromObject(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

// Whichever form is there, the other one replaces it, a run without the flag keeps it, and
// uninject gives every byte back, with the marks and without.
func TestTheTwoFormsReplaceEachOther(t *testing.T) {
	for name, f := range inputs(t, "cases") {
		in := func(text []byte, native *bool) []byte {
			t.Helper()
			o := options[name]
			if o.Native = native; native != nil {
				o.HTTPPort = 9999
			}
			r, err := Inject([]File{{f.Name, text}}, o)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r.Files[0].Text
		}
		container, native := in(f.Text, ptr(false)), in(f.Text, ptr(true))
		for what, is := range map[string]struct{ got, want []byte }{
			"container to native":          {in(container, ptr(true)), native},
			"native to container":          {in(native, ptr(false)), container},
			"native again":                 {in(native, ptr(true)), native},
			"native, and not said":         {in(native, nil), in(native, nil)},
			"native, not said, but stayed": {in(in(native, nil), ptr(true)), native},
		} {
			if !bytes.Equal(is.got, is.want) {
				t.Errorf("%s: %s:\n%s\nwant\n%s", name, what, is.got, is.want)
			}
		}
		if kept := in(native, nil); !bytes.Contains(kept, []byte("initContainers")) || !bytes.Contains(kept, []byte("Always")) {
			t.Errorf("%s: a run without the flag made it a container:\n%s", name, kept)
		}
		restored(t, []File{{f.Name, native}}, f.Text)
		back, err := Uninject([]File{{f.Name, withoutComments(native)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if before, after := values(t, f.Text), values(t, back.Files[0].Text); !slices.Equal(before, after) {
			t.Errorf("%s: without the marks:\n%s\nwant\n%s", name, after, before)
		}
	}
}

// A Kubernetes without native sidecars refuses probes of an init container, and with them the
// whole write. Without them it would store a pod that never starts.
func TestANativeSidecarHasProbes(t *testing.T) {
	f := inputs(t, "cases")["hostnetwork"]
	_, err := Inject([]File{f}, isNative(true))
	if err == nil || !strings.Contains(err.Error(), "hostnetwork.yaml:1: Deployment kube-system/array: --native-sidecar needs a port") || !strings.Contains(err.Error(), "--http-port") {
		t.Errorf("error %v", err)
	}
	o := isNative(true)
	o.HTTPPort = 9999
	text, _ := once(t, f, o)
	if again, _ := once(t, File{f.Name, text}, Options{}); !bytes.Equal(again, text) {
		t.Errorf("the port is not kept:\n%s", again)
	}
}

// Put in by other means, it is seen as the container is.
func TestANativeSidecarThatIsThereIsSeen(t *testing.T) {
	f := inputs(t, "refused")["by-hand"]
	text := bytes.Replace(f.Text, []byte("      - name: guard"), []byte("      initContainers:\n      - restartPolicy: Always\n        name: guard"), 1)
	if _, err := Inject([]File{{f.Name, text}}, Options{}); err == nil || !strings.Contains(err.Error(), "container guard is csi-fencepost already") {
		t.Errorf("error %v", err)
	}
}

// What a person changed in it stays, as in a container.
func TestWhatWasChangedByHandInANativeSidecarIsKept(t *testing.T) {
	f := inputs(t, "cases")["native-sidecar"]
	text, _ := once(t, f, isNative(true))
	edited := bytes.Replace(text, []byte("- --v=2"), []byte("- --v=4"), 1)
	again, r := once(t, File{f.Name, edited}, Options{})
	if bytes.Equal(edited, text) || !bytes.Equal(again, edited) || !strings.Contains(said(r.Findings), "kept as it was changed by hand: args --v") {
		t.Errorf("%s\n%s", said(r.Findings), again)
	}
}

// What a person has changed by hand stays, unless the pod would never start with it: the containers
// wait for a startup probe, and of them the driver, for which the sidecar waits; and without Always,
// for its end. Without probes, a Kubernetes that has no native sidecars would store the pod.
func TestAHandMadeChangeWithWhichANativeSidecarNeverStartsIsRefused(t *testing.T) {
	f := inputs(t, "cases")["native-sidecar"]
	probes := regexp.MustCompile(`(?m)^ {8}(liveness|readiness)Probe:\n( {10}.*\n)+`)
	for name, c := range map[string]struct {
		before *bool // the form that a person has changed
		change func([]byte) []byte
		says   string
	}{
		"a startup probe, in a container": {ptr(false), withStartupProbe, "its startupProbe was added by hand"},
		"a startup probe":                 {nil, withStartupProbe, "its startupProbe was added by hand"},
		"no probe":                        {nil, func(text []byte) []byte { return probes.ReplaceAll(text, nil) }, "its probes were taken out by hand"},
		"no probe, in a container":        {ptr(false), func(text []byte) []byte { return probes.ReplaceAll(text, nil) }, "its probes were taken out by hand"},
		"no restart policy": {nil, func(text []byte) []byte {
			return bytes.Replace(text, []byte("        restartPolicy: Always\n"), nil, 1)
		}, "its restartPolicy was changed by hand"},
	} {
		o := isNative(true)
		if c.before != nil {
			o.Native = c.before
		}
		text, _ := once(t, f, o)
		edited := c.change(text)
		if bytes.Equal(edited, text) {
			t.Fatalf("%s: nothing was changed in\n%s", name, text)
		}
		r, err := Inject([]File{{f.Name, edited}}, isNative(true))
		if err == nil || !strings.Contains(err.Error(), "native-sidecar.yaml:") || !strings.Contains(err.Error(), "csi-fencepost: "+c.says) {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
		if _, err := Inject([]File{{f.Name, edited}}, isNative(false)); err != nil {
			t.Errorf("%s: as a container, where it does no harm: %v", name, err)
		}
	}
}

func withStartupProbe(text []byte) []byte {
	at := regexp.MustCompile(`(?m)^( +)livenessProbe:\n`).FindSubmatchIndex(text)
	return slices.Concat(text[:at[0]], text[at[2]:at[3]], []byte("startupProbe: {httpGet: {path: /readyz, port: fencepost}}\n"), text[at[0]:])
}

// A component has to know no list from an empty one, which charts render.
func TestAPlanTellsNoListOfInitContainersFromAnEmptyOne(t *testing.T) {
	f := inputs(t, "cases")["native-sidecar"]
	bare := regexp.MustCompile(`(?s)( {6}initContainers:\n).*?( {6}containers:\n)`)
	for list, empty := range map[string]bool{"": false, "      initContainers: []\n": true} {
		text := bare.ReplaceAll(f.Text, []byte(list+"$2"))
		r, err := Inject([]File{{f.Name, text}}, isNative(true))
		if err != nil || bytes.Equal(text, f.Text) {
			t.Fatalf("%v\n%s", err, text)
		}
		if p := r.Plans[0]; len(p.Beside) != 0 || (p.Beside != nil) != empty {
			t.Errorf("%q: %#v", list, p.Beside)
		}
	}
}

// The scheduler of an older Kubernetes would put two of them on one node.
func TestANativeSidecarOnItsNodesNetworkSaysWhichKubernetesItNeeds(t *testing.T) {
	o := isNative(true)
	o.HTTPPort = 9999
	for name, want := range map[string]bool{"hostnetwork": true, "native-sidecar": false} {
		r, err := Inject([]File{inputs(t, "cases")[name]}, o)
		if err != nil {
			t.Fatal(err)
		}
		if s := said(r.Findings); strings.Contains(s, "before Kubernetes 1.34") != want {
			t.Errorf("%s: %s", name, s)
		}
	}
}

// Native sidecars of the vendor's run beside ours.
func TestAPortOfAnInitContainerIsTaken(t *testing.T) {
	p := planOf(t, attacherOf("--csi-address=$(ADDRESS)"), func(w *Workload) {
		w.Template.Spec.InitContainers = []corev1.Container{{Name: "early", Ports: []corev1.ContainerPort{{ContainerPort: 9810}}}}
	})
	if got := p.Sidecar.Ports[0].ContainerPort; got != 9811 {
		t.Errorf("port %d", got)
	}
}
