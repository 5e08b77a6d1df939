package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// kustomized is a folder that kustomize builds.
func kustomized(t *testing.T, name, kustomization string) string {
	t.Helper()
	folder := manifestFolder(t)
	if err := os.WriteFile(filepath.Join(folder, name), []byte(kustomization), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// A folder's kustomization applies what it names, and nothing else: without this line
// the sidecar runs and its rights are nowhere.
func TestInjectNamesTheRightsInTheFoldersKustomizationAndUninjectTakesThemOut(t *testing.T) {
	for name, kustomization := range map[string]string{
		"kustomization.yaml": "# ours\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - controller.yaml # the vendor's\n\nimages: []\n",
		"kustomization.yml":  "resources: [controller.yaml]\n",
		"Kustomization":      "commonAnnotations: {a: b}\n",
	} {
		folder := kustomized(t, name, kustomization)
		clitest.Line(t, Commands(), cli.ExitOK, "inject", named, "-f", folder, "-o", folder)
		if text := fileText(t, folder, name); strings.Count(text, inject.DocumentsFile) != 1 {
			t.Errorf("%s does not name %s once:\n%s", name, inject.DocumentsFile, text)
		}
		if _, stderr := clitest.Line(t, Commands(), cli.ExitOK, "inject", named, "-f", folder, "-o", folder); strings.Contains(stderr, "written: ") {
			t.Errorf("%s: injecting again writes: %s", name, stderr)
		}
		clitest.Line(t, Commands(), cli.ExitOK, "uninject", "-f", folder, "-o", folder)
		if text := fileText(t, folder, name); text != kustomization {
			t.Errorf("uninject left of %s:\n%s", name, text)
		}
	}
}

func TestAKustomizationThatWouldMisplaceTheRightsIsRefusedAndNothingIsWritten(t *testing.T) {
	for line, says := range map[string]string{"namespace: storage": "sets namespace", "namePrefix: our-": "sets namePrefix", "nameSuffix: -x": "sets nameSuffix"} {
		folder := kustomized(t, "kustomization.yaml", "resources: [controller.yaml]\n"+line+"\n")
		_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, "inject", named, "-f", folder, "-o", folder)
		clitest.Says(t, stderr, "kustomization.yaml:2: it "+says, "--as-kustomize")
		if fileText(t, folder, "controller.yaml") != vendorManifest {
			t.Errorf("%s: the manifest was changed all the same", line)
		}
		clitest.Line(t, Commands(), cli.ExitOK, "inject", named, "-f", folder, "--as-kustomize", filepath.Join(t.TempDir(), "fencepost"))
	}
	folder := kustomized(t, "kustomization.yaml", "resources: [controller.yaml]\n")
	_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, "inject", named, "-f", filepath.Join(folder, "controller.yaml"), "-o", folder)
	clitest.Says(t, stderr, "has a kustomization.yaml that was not given", "-f")
	if fileText(t, folder, "controller.yaml") != vendorManifest {
		t.Error("the manifest was changed all the same")
	}
}

// Helm and kubectl do not pass their --namespace on.
func TestRightsAreNotPlacedByGuessing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chart.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(vendorManifest, "  namespace: storage\n", "", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, "inject", named, "-f", file)
	clitest.Says(t, stderr, "chart.yaml:2: Deployment array names no namespace", "service account default", "--namespace")
	stdout, _ := clitest.Line(t, Commands(), cli.ExitOK, "inject", named, "-f", file, "--namespace=storage")
	clitest.Says(t, stdout, "name: default\n  namespace: storage")
}
