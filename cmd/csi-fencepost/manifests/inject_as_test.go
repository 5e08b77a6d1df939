package manifests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
)

const vendorManifests = "../../../sanity/kubeapi/testdata/vendor.yaml"

// What the API server and kustomize make of it is tested in sanity/kubeapi.
func TestInjectAsLeavesTheManifestsAlone(t *testing.T) {
	before := clitest.ReadFile(t, "sanity/kubeapi/testdata/vendor.yaml")
	var stdout, stderr bytes.Buffer
	if code := cli.Run(t.Context(), Commands(), []string{"inject", "-f", vendorManifests, "--as-policy", named}, &stdout, &stderr); code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{"kind: MutatingAdmissionPolicy\n", "kind: ValidatingAdmissionPolicy\n", "kind: ConfigMap\n", "kind: ClusterRole\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
	if strings.Contains(stdout.String(), "\nkind: Deployment") || !strings.Contains(stderr.String(), "external-attacher") {
		t.Errorf("printed\n%s\n%s", &stdout, &stderr)
	}
	folder := filepath.Join(t.TempDir(), "a", "component")
	stdout.Reset()
	if code := cli.Run(t.Context(), Commands(), []string{"inject", "-f", vendorManifests, "--as-kustomize", folder, named}, &stdout, &stderr); code != cli.ExitOK || stdout.Len() > 0 {
		t.Fatalf("exit code %d: %s%s", code, &stdout, &stderr)
	}
	for name, want := range map[string]string{"kustomization.yaml": "kind: Component\n", "fencepost.yaml": "kind: ConfigMap\n"} {
		if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if clitest.ReadFile(t, "sanity/kubeapi/testdata/vendor.yaml") != before {
		t.Error("the manifests were changed")
	}
}

// What the Helm chart has is left out, in whichever way and from whichever text, and nothing else:
// the policy of --metrics-from is in no chart.
func TestWithoutRightsLeavesOutWhatTheChartHas(t *testing.T) {
	vendor := clitest.ReadFile(t, "sanity/kubeapi/testdata/vendor.yaml")
	crlf := strings.ReplaceAll(vendor, "\n", "\r\n")
	folder := func(name string) string { return filepath.Join(t.TempDir(), name) }
	component, manifests := folder("component"), folder("manifests")
	for _, c := range []struct {
		text    string
		flag    string
		objects int    // with the policy of --metrics-from
		in      string // a folder; empty: printed
	}{
		{vendor, "--as-policy", 5, ""},
		{crlf, "--as-policy", 5, ""},
		{vendor, "--native-sidecar=false", 5, ""},
		{crlf, "--native-sidecar=false", 5, ""},
		{vendor, "--as-kustomize=" + component, 2, component},
		{vendor, "--output=" + manifests, 5, manifests},
	} {
		stdin = strings.NewReader(c.text)
		t.Cleanup(func() { stdin = os.Stdin })
		out, said := clitest.Line(t, Commands(), cli.ExitOK, "inject", named, "--driver=array.example.com", "--without-rights", "--metrics-from=monitoring", "--tls-secret=tls", c.flag)
		if c.in != "" {
			out = ""
			names, err := filepath.Glob(filepath.Join(c.in, "*"))
			if err != nil || len(names) != 2 {
				t.Fatalf("%s: %v, %v", c.flag, names, err)
			}
			for _, name := range names {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				out += string(text)
			}
		}
		out = strings.ReplaceAll(out, "\r\n", "\n")
		if kinds := strings.Count("\n"+out, "\nkind: "); kinds != c.objects || !strings.Contains(out, "\nkind: NetworkPolicy") || strings.Contains(out, "rbac.authorization.k8s.io") || strings.Contains(out, "kind: ConfigMap") {
			t.Errorf("%s: %d objects, want %d:\n%s", c.flag, kinds, c.objects, out)
		}
		clitest.Says(t, said, "serviceAccounts [array-controller]", "httpAuthorization: true")
		if strings.Contains(said, "mode Observe, to begin with") {
			t.Errorf("%s says a mode, which is the chart's:\n%s", c.flag, said)
		}
	}
}

// A run that puts a newer image in keeps what was left out out: else it would be applied over the
// chart's, in mode Observe.
func TestWithoutRightsIsKept(t *testing.T) {
	stdin = strings.NewReader(vendorManifest)
	t.Cleanup(func() { stdin = os.Stdin })
	first, _ := clitest.Line(t, Commands(), cli.ExitOK, "inject", named, "--driver=array.example.com", "--without-rights")
	for flag, left := range map[string]bool{"--http-port=9999": false, "--without-rights=false": true} {
		stdin = strings.NewReader(first)
		again, _ := clitest.Line(t, Commands(), cli.ExitOK, "inject", flag)
		if strings.Contains(again, "kind: ConfigMap") != left || strings.Contains(again, "kind: ClusterRole") != left {
			t.Errorf("%s: rights and configuration %t, want %t:\n%s", flag, !left, left, again)
		}
	}
}

func TestWithoutRightsRefusesWhatTheChartSays(t *testing.T) {
	for _, flags := range [][]string{{}, {"--driver=array.example.com", "--mode=Enforce"}, {"--driver=array.example.com", "--failover"}, {"--driver=array.example.com", "--rights=x"}} {
		stdout, stderr := clitest.Line(t, Commands(), cli.ExitUsage, append([]string{"inject", "-f", vendorManifests, named, "--without-rights"}, flags...)...)
		if clitest.Says(t, stderr, "--without-rights"); stdout != "" {
			t.Errorf("%q prints\n%s", flags, stdout)
		}
	}
	stdin = strings.NewReader(strings.Replace(vendorManifest, "--csi-address=/csi/csi.sock\n", "--csi-address=/csi/csi.sock\n        - --kubeconfig=/csi/kubeconfig\n        - --leader-election\n        - --leader-election-namespace=guests\n", 1))
	t.Cleanup(func() { stdin = os.Stdin })
	_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, "inject", named, "--driver=array.example.com", "--without-rights")
	clitest.Says(t, stderr, "--without-rights: the attacher has a --kubeconfig")
}

// Constraints of OpenShift that give the user refuse a container that names root.
func TestAPolicyNamesNoUserWhereOpenShiftGivesOne(t *testing.T) {
	for scc, user := range map[string]bool{"restricted-v2": false, "privileged": true} {
		stdin = strings.NewReader(strings.Replace(vendorManifest, "  template:\n", "  template:\n    metadata: {annotations: {openshift.io/required-scc: "+scc+"}}\n", 1))
		t.Cleanup(func() { stdin = os.Stdin })
		stdout, _ := clitest.Line(t, Commands(), cli.ExitOK, "inject", named, "--as-policy")
		if strings.Contains(stdout, "runAsUser") != user {
			t.Errorf("%s: names a user %t, want %t", scc, !user, user)
		}
	}
}

func TestInjectAsRefusesWhatCannotBeMeant(t *testing.T) {
	for _, flags := range [][]string{
		{"--as-policy", "--as-kustomize=x"},
		{"--as-policy", "-o", "x"},
		{"--as-kustomize=x", "-o", "y"},
		{"--as-policy", "--check"},
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), Commands(), append([]string{"inject", "-f", vendorManifests}, flags...), &stdout, &stderr)
		if code != cli.ExitUsage || stdout.Len() > 0 || !strings.Contains(stderr.String(), "--as-") {
			t.Errorf("%q: exit code %d: %s", flags, code, &stderr)
		}
	}
}

// Values go to one file, what no value holds to another, and the manifests stay as they are.
func TestValuesAndWhatNoValueHoldsAreTwoFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "fencepost")
	const chart = "../../../deploy/values/testdata/proxmox"
	before := clitest.ReadFile(t, "deploy/values/testdata/proxmox.yaml")
	args := []string{"inject", "-f", chart + ".yaml", "--as-values=proxmox", "--values", chart + ".values.yaml", "-o", folder, named, "--mode=Enforce", "--agents-secret=bmc"}
	stdout, stderr := clitest.Line(t, Commands(), cli.ExitOK, args...)
	clitest.Says(t, stderr, "written: "+filepath.Join(folder, "values.yaml"), "written: "+filepath.Join(folder, "csi-fencepost.yaml"), "rights of mode Enforce")
	clitest.Says(t, fileText(t, folder, "values.yaml"), "initContainers:\n", "- --csi-address=/csi/csi-fencepost.sock\n", "secretName: bmc\n")
	clitest.Says(t, fileText(t, folder, "csi-fencepost.yaml"), "kind: ConfigMap\n", "name: csi-fencepost-enforce-csi.proxmox.sinextra.dev\n")
	if stdout != "" || strings.Contains(fileText(t, folder, "values.yaml"), "kind: ") || clitest.ReadFile(t, "deploy/values/testdata/proxmox.yaml") != before {
		t.Errorf("printed %q, or mixed up", stdout)
	}
	// Nothing of it goes with a Helm release that had it before.
	if documents := fileText(t, folder, "csi-fencepost.yaml"); strings.Count(documents, "\nkind: ") != strings.Count(documents, "  annotations: {helm.sh/resource-policy: keep}") {
		t.Errorf("not marked to be kept:\n%s", documents)
	}
	// Where the manifests were not rendered with the values, nothing is written.
	empty := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(empty, []byte("initContainers: [{name: x}]\nextraVolumes: []\ncontroller: {attacher: {args: []}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	_, stderr = clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", chart+".yaml", "--as-values=proxmox", "--values", empty, "-o", none, named)
	clitest.Says(t, stderr, "--as-values proxmox: the pod has [] where the values have [x]")
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("written all the same: %v", err)
	}
}

// The vendor's manifests say nothing of an earlier run: the folder that it wrote does.
func TestALaterRunKeepsWhatTheEarlierOneConfigured(t *testing.T) {
	const chart = "../../../deploy/values/testdata/proxmox"
	for way, flags := range map[string][]string{
		"csi-fencepost.yaml": {"--as-values=proxmox", "--values", chart + ".values.yaml", "-o"},
		"fencepost.yaml":     {"--as-kustomize"},
	} {
		t.Run(way, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "fencepost")
			manifests := chart + ".yaml"
			run := func(code int, more ...string) (stderr string) {
				t.Helper()
				_, stderr = clitest.Line(t, Commands(), code, append(append([]string{"inject", "-f", manifests, named}, append(flags, folder)...), more...)...)
				return stderr
			}
			run(cli.ExitOK, "--mode=Enforce", "--failover")
			first := fileText(t, folder, way)
			clitest.Says(t, first, "    mode: Enforce\n", "name: csi-fencepost-failover\n")
			// A person's own words in it stay, too.
			mine := strings.Replace(first, "    mode: Enforce\n", "    mode: Enforce # mine\n", 1)
			if err := os.WriteFile(filepath.Join(folder, way), []byte(mine), 0o644); err != nil {
				t.Fatal(err)
			}
			clitest.Says(t, run(cli.ExitOK), "mode and configuration as "+filepath.Join(folder, way)+" has them")
			if got := fileText(t, folder, way); got != mine {
				t.Errorf("the second run has\n%s\nwant\n%s", got, mine)
			}
			if says := run(cli.ExitOK, "--mode=Observe"); strings.Contains(says, "as "+folder) {
				t.Errorf("says %s", says)
			}
			clitest.Says(t, fileText(t, folder, way), "    mode: Observe\n")
			manifests = filepath.Join(t.TempDir(), "another.yaml")
			another := strings.NewReplacer("csi.proxmox.sinextra.dev", "another.example.com", "proxmox-csi-controller", "another").Replace(clitest.ReadFile(t, "deploy/values/testdata/proxmox.yaml"))
			if err := os.WriteFile(manifests, []byte(another), 0o644); err != nil {
				t.Fatal(err)
			}
			clitest.Says(t, run(cli.ExitFailure), "ConfigMap csi-proxmox/csi-fencepost-csi.proxmox.sinextra.dev, of what is not guarded here, and would be replaced")
			clitest.Says(t, fileText(t, folder, way), "name: csi-fencepost-csi.proxmox.sinextra.dev\n")
		})
	}
}

// A release's own values.yaml, or somebody's kustomization, is not replaced.
func TestWhatInjectHasNotWrittenIsNotReplaced(t *testing.T) {
	const chart = "../../../deploy/values/testdata/proxmox"
	for name, flags := range map[string][]string{
		"values.yaml":        {"--as-values=proxmox", "--values", chart + ".values.yaml", "-o"},
		"csi-fencepost.yaml": {"--as-values=proxmox", "--values", chart + ".values.yaml", "-o"},
		"kustomization.yaml": {"--as-kustomize"},
		"fencepost.yaml":     {"--as-kustomize"},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, name), []byte("mine: true\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, append([]string{"inject", "-f", chart + ".yaml", named}, append(flags, folder)...)...)
		clitest.Says(t, stderr, filepath.Join(folder, name)+" is not of csi-fencepost inject, and would be replaced")
		files, err := os.ReadDir(folder)
		if err != nil || len(files) != 1 || fileText(t, folder, name) != "mine: true\n" {
			t.Errorf("%s: %v, %v", name, files, err)
		}
	}
}
