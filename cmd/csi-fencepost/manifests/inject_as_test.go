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
	// Where the manifests were not rendered with the values, nothing is written.
	empty := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(empty, []byte("initContainers: [{name: x}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	_, stderr = clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", chart+".yaml", "--as-values=proxmox", "--values", empty, "-o", none, named)
	clitest.Says(t, stderr, "--as-values proxmox: the pod has [] where the values have [x]")
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("written all the same: %v", err)
	}
}
