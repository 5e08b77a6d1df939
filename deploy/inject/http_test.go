package inject

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// narrowed is what Inject makes of a case with a certificate and a NetworkPolicy.
func narrowed(t *testing.T, name string) (*Result, []byte) {
	t.Helper()
	f := inputs(t, "cases")[name]
	o := options[name]
	o.TLSSecret, o.MetricsFrom = "metrics-tls", "monitoring"
	r, err := Inject([]File{f}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, f.Text
}

func TestFewerSeeTheMetricsWhereThatIsAsked(t *testing.T) {
	r, text := narrowed(t, "env-and-comments")
	p := r.Plans[0]
	for _, arg := range []string{"--tls-cert-file=/etc/csi-fencepost-tls/tls.crt", "--tls-private-key-file=/etc/csi-fencepost-tls/tls.key", "--http-authorization"} {
		if !slices.Contains(p.Sidecar.Args, arg) {
			t.Errorf("no %s: %q", arg, p.Sidecar.Args)
		}
	}
	for _, probe := range []*corev1.Probe{p.Sidecar.LivenessProbe, p.Sidecar.ReadinessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("a probe over %q", probe.HTTPGet.Scheme)
		}
	}
	m, ok := mountOf(&p.Sidecar, "/etc/csi-fencepost-tls/tls.key")
	i := slices.IndexFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
	if !ok || !m.ReadOnly || i < 0 || p.Volumes[i].Secret == nil || p.Volumes[i].Secret.SecretName != "metrics-tls" || p.Volumes[i].Secret.Optional != nil {
		t.Errorf("the certificate is in %+v", p.Volumes)
	}
	for _, want := range []string{"name: csi-fencepost-authorization-array.example.com\n", "kind: NetworkPolicy\n"} {
		if !bytes.Contains(r.Files[0].Text, []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
	again, err := Inject(r.Files, Options{})
	if err != nil || !bytes.Equal(again.Files[0].Text, r.Files[0].Text) {
		t.Errorf("the second time: %v\n%s", err, again.Files[0].Text)
	}
	restored(t, r.Files, text)
	unmarked := bytes.ReplaceAll(r.Files[0].Text, []byte("# csi-fencepost:"), []byte("# lost:"))
	if back, err := Uninject([]File{{"f", unmarked}}); err != nil || bytes.Contains(back.Files[0].Text, []byte("NetworkPolicy")) || bytes.Contains(back.Files[0].Text, []byte("csi-fencepost-authorization")) {
		t.Errorf("without marks: %v\n%s", err, back.Files[0].Text)
	}
}

// Policies add up: one that opened the port, or closed another, would do harm.
func TestTheNetworkPolicyIsOfOnePortOfThePodsAlone(t *testing.T) {
	for port, others := range map[int32]string{9810: "1-9809 9811-65535 1-65535", 8080: "1-8079 8081-65535 1-65535", 1: "2-65535 1-65535", 65535: "1-65534 1-65535"} {
		f := inputs(t, "cases")["env-and-comments"]
		r, err := Inject([]File{f}, Options{MetricsFrom: "monitoring", HTTPPort: port})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.Plans[0].Documents, func(d Document) bool { return d.Kind == "NetworkPolicy" })
		var policy networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(r.Plans[0].Documents[i].Text), &policy); err != nil {
			t.Fatal(err)
		}
		s := policy.Spec
		if policy.Namespace != "storage" || len(s.PodSelector.MatchLabels) != 1 || s.PodSelector.MatchLabels["app"] != "array" || !slices.Equal(s.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
			t.Errorf("it is of %s %+v, for %s", policy.Namespace, s.PodSelector, s.PolicyTypes)
		}
		metrics := s.Ingress[0]
		if len(s.Ingress) != 2 || len(metrics.From) != 1 || metrics.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "monitoring" || metrics.From[0].PodSelector != nil ||
			len(metrics.Ports) != 1 || metrics.Ports[0].Port.IntVal != port || metrics.Ports[0].EndPort != nil {
			t.Errorf("who reaches port %d: %+v", port, metrics)
		}
		var open []string
		for _, p := range s.Ingress[1].Ports {
			open = append(open, p.Port.String()+"-"+fmt.Sprint(*p.EndPort))
		}
		if got := strings.Join(open, " "); got != others || len(s.Ingress[1].From) != 0 {
			t.Errorf("beside port %d there is open %s, want %s", port, got, others)
		}
	}
}

func TestWhereTheMetricsCannotBeNarrowed(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		o     Options
		says  string
	}{
		"no port":       {"hostnetwork", Options{TLSSecret: "s"}, "choose one with --http-port"},
		"host network":  {"hostnetwork", Options{MetricsFrom: "m", HTTPPort: 9999}, "no NetworkPolicy holds for a pod on its node's network"},
		"two attachers": {"two-attachers", Options{MetricsFrom: "m"}, "policies of one pod add up"},
		"no selector":   {"env-and-comments", Options{MetricsFrom: "m"}, "spec.selector is missing"},
	} {
		f := inputs(t, "cases")[c.input]
		if name == "no selector" {
			f.Text = bytes.Replace(f.Text, []byte("    matchLabels: {app: array}\n"), []byte("    matchLabels: {}\n"), 1)
		}
		if _, err := Inject([]File{f}, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	f := inputs(t, "cases")["hostnetwork"]
	if _, err := Inject([]File{f}, Options{TLSSecret: "s", HTTPPort: 9999}); err != nil {
		t.Errorf("TLS on the node's network: %v", err)
	}
}

// The tokens are of the cluster that the sidecar asks, the pod is in the other one.
func TestRightsToAskGoToTheClusterOfTheKubeconfig(t *testing.T) {
	r, _ := narrowed(t, "hosted-control-plane")
	if !bytes.Contains(r.Elsewhere, []byte("csi-fencepost-authorization")) || bytes.Contains(r.Elsewhere, []byte("NetworkPolicy")) ||
		bytes.Contains(r.Files[0].Text, []byte("name: csi-fencepost-authorization")) || !bytes.Contains(r.Files[0].Text, []byte("kind: NetworkPolicy")) {
		t.Errorf("elsewhere\n%s\nhere\n%s", r.Elsewhere, r.Files[0].Text)
	}
}

// What the API server filled in is no person's word.
func TestProbesTurnToHTTPSInWhatTheClusterHas(t *testing.T) {
	r, err := Inject([]File{inputs(t, "cases")["env-and-comments"]}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	stored := bytes.ReplaceAll(r.Files[0].Text, []byte("path: /healthz\n"), []byte("path: /healthz\n              scheme: HTTP\n"))
	if bytes.Equal(stored, r.Files[0].Text) {
		t.Fatal("there is no such probe")
	}
	r, err = Inject([]File{{"f", stored}}, Options{TLSSecret: "s"})
	if err != nil || r.Plans[0].Sidecar.LivenessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS || strings.Contains(said(r.Findings), "changed by hand") {
		t.Errorf("%v\n%s", err, said(r.Findings))
	}
}
