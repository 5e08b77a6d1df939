package inject

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// replaceOnce edits as a person does; it fails where there is nothing to edit.
func replaceOnce(t *testing.T, text []byte, before, after string) []byte {
	t.Helper()
	if bytes.Count(text, []byte(before)) != 1 {
		t.Fatalf("%d times %q in\n%s", bytes.Count(text, []byte(before)), before, text)
	}
	return bytes.Replace(text, []byte(before), []byte(after), 1)
}

func TestWhatAPersonAddedToTheSidecarIsKept(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	first, err := Inject([]File{f}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := first.Files[0].Text
	at := bytes.Index(text, []byte("--kube-api-qps=400\n"))
	line := string(text[bytes.LastIndexByte(text[:at], '\n')+1 : at])
	text = replaceOnce(t, text, "--kube-api-qps=400\n", "--kube-api-qps=300\n"+line+"--agent-dirs=/opt/agents\n")
	at = bytes.LastIndex(text[:bytes.Index(text, []byte("mountPath: /etc/csi-fencepost\n"))], []byte("- name: "))
	line = string(text[bytes.LastIndexByte(text[:at], '\n')+1 : at])
	text = slices.Concat(text[:at], []byte("- name: bmc\n"+line+"  mountPath: /etc/bmc\n"+line), text[at:])
	at = bytes.LastIndex(text, []byte("- name: fencepost-socket\n"))
	line = string(text[bytes.LastIndexByte(text[:at], '\n')+1 : at])
	text = slices.Concat(text[:at], []byte("- name: bmc\n"+line+"  secret: {secretName: bmc}\n"+line), text[at:])
	text = replaceOnce(t, text, "cpu: 10m\n", "cpu: 20m\n")

	for _, o := range []Options{{}, {Mode: "Enforce", HTTPPort: 9900}} {
		r, err := Inject([]File{{f.Name, text}}, o)
		if err != nil {
			t.Fatal(err)
		}
		p := r.Plans[0]
		for _, want := range []string{"--kube-api-qps=300", "--agent-dirs=/opt/agents"} {
			if !slices.Contains(p.Sidecar.Args, want) {
				t.Errorf("%+v: %q is gone: %q", o, want, p.Sidecar.Args)
			}
		}
		if m, ok := mountOf(&p.Sidecar, "/etc/bmc/x"); !ok || m.Name != "bmc" || !bytes.Contains(r.Files[0].Text, []byte("secretName: bmc")) {
			t.Errorf("%+v: the mount or its volume is gone:\n%s", o, r.Files[0].Text)
		}
		if got := p.Sidecar.Resources.Requests.Cpu().String(); got != "20m" {
			t.Errorf("%+v: cpu %s", o, got)
		}
		if o.HTTPPort != 0 && (p.Sidecar.Ports[0].ContainerPort != 9900 || p.Mode != "Enforce") {
			t.Errorf("what this run asks for is not done: %+v %s", p.Sidecar.Ports, p.Mode)
		}
		if s := said(r.Findings); !strings.Contains(s, "csi-fencepost: kept as it was changed by hand: args --agent-dirs, args --kube-api-qps, resources requests cpu, volumeMounts /etc/bmc") {
			t.Errorf("%+v: not said:\n%s", o, s)
		}
		again, err := Inject(r.Files, Options{HTTPPort: o.HTTPPort})
		if err != nil || !bytes.Equal(again.Files[0].Text, r.Files[0].Text) {
			t.Errorf("%+v: the second time: %v\n%s", o, err, again.Files[0].Text)
		}
		restored(t, r.Files, f.Text)
		if back, err := Uninject([]File{{f.Name, withoutComments(r.Files[0].Text)}}); err != nil || bytes.Contains(back.Files[0].Text, []byte("bmc")) {
			t.Errorf("%+v: without the marks: %v\n%s", o, err, back.Files[0].Text)
		}
	}
}

// Where a person and the run change the same, the run's word counts, and is said.
func TestWhatThisRunChangesIsNotKept(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	first, err := Inject([]File{f}, Options{Image: "registry.example.com/f:v1"})
	if err != nil {
		t.Fatal(err)
	}
	text := replaceOnce(t, first.Files[0].Text, "image: registry.example.com/f:v1\n", "image: registry.example.com/f:v2\n")
	kept, err := Inject([]File{{f.Name, text}}, Options{})
	if err != nil || kept.Plans[0].Sidecar.Image != "registry.example.com/f:v2" {
		t.Errorf("image %s: %v", kept.Plans[0].Sidecar.Image, err)
	}
	r, err := Inject([]File{{f.Name, text}}, Options{Image: "registry.example.com/f:v3"})
	if err != nil || r.Plans[0].Sidecar.Image != "registry.example.com/f:v3" || !strings.Contains(said(r.Findings), "csi-fencepost: changed by hand, and now as this run has it: image") {
		t.Errorf("image %s: %v\n%s", r.Plans[0].Sidecar.Image, err, said(r.Findings))
	}
}

// What the API server fills in is no person's word.
func TestDefaultsAreNoPersonsWord(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	first, err := Inject([]File{f}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := first.Files[0].Text
	for _, line := range []string{"image: csi-fencepost:dev\n>imagePullPolicy: IfNotPresent\n", "fieldPath: metadata.namespace\n>apiVersion: v1\n", "path: /readyz\n>scheme: HTTP\n", "path: /healthz\n>scheme: HTTP\n"} {
		before, after, _ := strings.Cut(line, ">")
		at := bytes.Index(text, []byte(before))
		indent := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
		text = replaceOnce(t, text, before, before+string(indent)+after)
	}
	r, err := Inject([]File{{f.Name, text}}, Options{})
	if err != nil || !bytes.Equal(r.Files[0].Text, first.Files[0].Text) || strings.Contains(said(r.Findings), "by hand") {
		t.Errorf("%v\n%s", err, said(r.Findings))
	}
}

// But a policy that is not the server's own choice for the image is.
func TestAPullPolicyOfAPersonIsKept(t *testing.T) {
	f := inputs(t, "cases")["env-and-comments"]
	for image, policies := range map[string]map[corev1.PullPolicy]bool{
		"r.example.com/f:v1":       {"Always": true, "Never": true, "IfNotPresent": false},
		"r.example.com/f:latest":   {"Always": false, "Never": true, "IfNotPresent": true},
		"r.example.com:5000/f":     {"Always": false, "IfNotPresent": true},
		"r.example.com/f@sha256:1": {"Always": true, "IfNotPresent": false},
	} {
		first, err := Inject([]File{f}, Options{Image: image})
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.LastIndex(first.Files[0].Text, []byte("image: "+image+"\n"))
		indent := first.Files[0].Text[bytes.LastIndexByte(first.Files[0].Text[:at], '\n')+1 : at]
		for policy, kept := range policies {
			text := replaceOnce(t, first.Files[0].Text, "image: "+image+"\n", "image: "+image+"\n"+string(indent)+"imagePullPolicy: "+string(policy)+"\n")
			r, err := Inject([]File{{f.Name, text}}, Options{})
			if err != nil || kept != (r.Plans[0].Sidecar.ImagePullPolicy == policy) {
				t.Errorf("%s %s: kept %v: %v", image, policy, !kept, err)
			}
		}
	}
}
