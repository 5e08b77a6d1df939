package manifests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

const vendorManifest = `# the vendor's
apiVersion: apps/v1
kind: Deployment
metadata:
  name: array
  namespace: storage
spec:
  template:
    spec:
      containers:
      - name: driver
        image: registry.example.com/driver
        args: [--drivername=array.example.com]
        volumeMounts: [{name: s, mountPath: /csi}]
      - name: csi-attacher
        image: registry.k8s.io/sig-storage/csi-attacher:v4.12.0
        args:
        - --csi-address=/csi/csi.sock
        volumeMounts:
        - name: s
          mountPath: /csi
      volumes:
      - name: s
        emptyDir: {}
`

// named is the flag that the first run needs.
const named = "--image=registry.example.com/csi-fencepost:v1"

// manifestFolder has the manifest, and a file that is none.
func manifestFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"controller.yaml": vendorManifest, "README.md": "{{ if .x }}\na: 1\n{{ end }}\n", "values.yml": "replicas: 3\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func fileText(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestInjectReadsStandardInputAndSaysWhatItChose(t *testing.T) {
	pipe := func(text string, args ...string) (string, string) {
		t.Helper()
		stdin = strings.NewReader(text)
		t.Cleanup(func() { stdin = os.Stdin })
		return clitest.Line(t, Commands(), cli.ExitOK, args...)
	}
	stdout, stderr := pipe(vendorManifest, "inject", "--image", "registry.example.com/csi-fencepost:v1", "--mode=Enforce")
	clitest.Says(t, stdout, "--csi-address=/fencepost/csi.sock", "image: registry.example.com/csi-fencepost:v1", "mode: Enforce", "name: csi-fencepost-enforce-array.example.com")
	clitest.Says(t, stderr, "standard input:2: driver array.example.com, by --drivername of container driver", "rights of mode Enforce")
	if strings.Contains(stdout, "name: csi-fencepost-failover") {
		t.Error("the rights of failover are given to who did not ask")
	}
	again, _ := pipe(stdout, "inject")
	if again != stdout {
		t.Errorf("injecting again changed it:\n%s", again)
	}
	back, _ := pipe(stdout, "uninject", "-f", "-")
	if back != vendorManifest {
		t.Errorf("uninject gave\n%s", back)
	}
	same, stderr := pipe(vendorManifest, "uninject")
	if same != vendorManifest || !strings.Contains(stderr, "Nothing was injected") {
		t.Errorf("stderr %q, stdout\n%s", stderr, same)
	}
}

func TestInjectChangesAFolderInPlaceAndBack(t *testing.T) {
	folder := manifestFolder(t)
	stdout, stderr := clitest.Line(t, Commands(), cli.ExitOK, "inject", "-f", folder, "-o", folder, named)
	if stdout != "" {
		t.Errorf("printed %s", stdout)
	}
	clitest.Says(t, stderr, "written: "+filepath.Join(folder, "controller.yaml"), "written: "+filepath.Join(folder, inject.DocumentsFile))
	clitest.Says(t, fileText(t, folder, "controller.yaml"), "name: csi-fencepost\n")
	clitest.Says(t, fileText(t, folder, inject.DocumentsFile), "kind: ConfigMap", "kind: ClusterRoleBinding")
	if strings.Contains(stderr, "values.yml") || fileText(t, folder, "values.yml") != "replicas: 3\n" {
		t.Errorf("values.yml was touched: %s", stderr)
	}
	if _, stderr = clitest.Line(t, Commands(), cli.ExitOK, "inject", "-f", folder, "-o", folder); strings.Contains(stderr, "written: ") {
		t.Errorf("the second time: %s", stderr)
	}
	clitest.Line(t, Commands(), cli.ExitOK, "inject", "-f", folder, "-o", folder, "--check")
	clitest.Line(t, Commands(), cli.ExitOK, "uninject", "-f", folder, "-o", folder)
	if got := fileText(t, folder, "controller.yaml"); got != vendorManifest {
		t.Errorf("uninject left\n%s", got)
	}
	if _, err := os.Stat(filepath.Join(folder, inject.DocumentsFile)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", inject.DocumentsFile, err)
	}
}

func TestCheckChangesNothingAndFailsIfSomethingWould(t *testing.T) {
	folder := manifestFolder(t)
	stdout, stderr := clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", folder, "-o", folder, "--check")
	clitest.Says(t, stderr, "inject would change: "+filepath.Join(folder, "controller.yaml"), inject.DocumentsFile, "--timeout from 15s to 60s")
	if stdout != "" || fileText(t, folder, "controller.yaml") != vendorManifest {
		t.Errorf("printed %q, or changed the file", stdout)
	}
	file := filepath.Join(folder, "controller.yaml")
	_, stderr = clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", file, "--check")
	clitest.Says(t, stderr, "inject would change: "+file)
	clitest.Line(t, Commands(), cli.ExitOK, "uninject", "-f", file, "--check")
}

func TestInjectTakesAnOwnConfiguration(t *testing.T) {
	folder := manifestFolder(t)
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, []byte("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Enforce # mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, _ := clitest.Line(t, Commands(), cli.ExitOK, "inject", "-f", folder, "--config", own, named)
	clitest.Says(t, stdout, "    mode: Enforce # mine\n", "name: csi-fencepost-enforce\n")
	_, stderr := clitest.Line(t, Commands(), cli.ExitUsage, "inject", "-f", folder, "--config", own, "--failover=in-pod")
	clitest.Says(t, stderr, "--config says mode, and failover in the pod, itself")
	_, stderr = clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", folder, "--config", own, named, "--failover")
	clitest.Says(t, stderr, "the configuration does not say fencing.apart: true")
	if err := os.WriteFile(own, []byte("mode: Enforce\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr = clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", folder, "--config", own)
	clitest.Says(t, stderr, own, "apiVersion: Required value")
}

func TestInjectSaysWhatIsWrongWithItsInput(t *testing.T) {
	folder := manifestFolder(t)
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{cli.ExitFailure, []string{"-f", filepath.Join(folder, "missing.yaml")}, "missing.yaml: no such file"},
		{cli.ExitFailure, []string{"-f", t.TempDir()}, "has no .yaml, .yml or .json file"},
		{cli.ExitFailure, []string{"-f", filepath.Join(folder, "values.yml")}, "no external-attacher was found"},
		{cli.ExitFailure, []string{"-f", filepath.Join(folder, "README.md")}, "README.md:1: a template is left in it"},
		{cli.ExitFailure, []string{"-f", folder, "--mode=Observe", "--failover"}, "--failover needs --mode Enforce"},
		{cli.ExitUsage, []string{"-f", folder, "--mode=Enforce", "--failover=true"}, "it has to be apart or in-pod"},
		{cli.ExitUsage, []string{"-f", folder, "--mode=Maybe"}, "it has to be Observe or Enforce"},
		{cli.ExitUsage, []string{"-f", folder, "-f", filepath.Join(folder, "controller.yaml")}, "given twice"},
		{cli.ExitUsage, []string{folder}, "manifests are named with -f"},
		{cli.ExitUsage, []string{"-f", folder, "--http-port=70000"}, "between 1 and 65535"},
	} {
		_, stderr := clitest.Line(t, Commands(), c.code, append([]string{"inject"}, c.args...)...)
		clitest.Says(t, stderr, c.want)
	}
}

// A Deployment that rolls keeps its pods where the new image is not there; of a
// StatefulSet the only one is gone.
func TestInjectNeedsAnImageThatSomebodyNamed(t *testing.T) {
	folder := manifestFolder(t)
	for _, args := range [][]string{{}, {"-o", folder}, {"--as-policy"}, {"--as-kustomize", filepath.Join(folder, "component")}} {
		stdout, stderr := clitest.Line(t, Commands(), cli.ExitFailure, append([]string{"inject", "-f", folder}, args...)...)
		clitest.Says(t, stderr, "no image is named", "--image registry.example.com/csi-fencepost:VERSION", "install.md#the-image")
		if stdout != "" || fileText(t, folder, "controller.yaml") != vendorManifest {
			t.Errorf("%q: printed or written all the same: %s", args, stdout)
		}
	}
	releasedImage = "registry.example.com/released:v7"
	t.Cleanup(func() { releasedImage = "" })
	stdout, _ := clitest.Line(t, Commands(), cli.ExitOK, "inject", "-f", folder)
	clitest.Says(t, stdout, "image: registry.example.com/released:v7")
	stdout, _ = clitest.Line(t, Commands(), cli.ExitOK, "inject", "-f", folder, named)
	clitest.Says(t, stdout, "image: registry.example.com/csi-fencepost:v1")
}

// Names in a manifest are its author's.
func TestWhatIsSaidOfAManifestIsNothingButText(t *testing.T) {
	stdin = strings.NewReader(strings.Replace(vendorManifest, "name: csi-attacher", `name: "csi-\e[2Jattacher"`, 1))
	t.Cleanup(func() { stdin = os.Stdin })
	_, stderr := clitest.Line(t, Commands(), cli.ExitOK, "inject", named)
	clitest.Says(t, stderr, "csi- [2Jattacher")
	if strings.Contains(stderr, "\x1b") {
		t.Errorf("said %q", stderr)
	}
}

// What is piped to kubectl is the author's, also where a terminal would not show it so.
func TestAManifestIsHandedOnByteForByte(t *testing.T) {
	text := "# a\u00a0non-breaking space, a joined \U0001F469\u200d\U0001F4BB and a \u202e\n" + vendorManifest
	stdin = strings.NewReader(text)
	t.Cleanup(func() { stdin = os.Stdin })
	if stdout, _ := clitest.Line(t, Commands(), cli.ExitOK, "uninject"); stdout != text {
		t.Errorf("handed on as %q", stdout[:min(len(stdout), 120)])
	}
}

// As on HyperShift: the pod runs in one cluster, and looks after another.
func TestTheRightsInAnotherClusterComeApart(t *testing.T) {
	hosted := filepath.Join(t.TempDir(), "hosted.yaml")
	text := strings.Replace(vendorManifest, "--csi-address=/csi/csi.sock\n", "--csi-address=/csi/csi.sock\n        - --kubeconfig=/csi/kubeconfig\n        - --leader-election\n        - --leader-election-namespace=guests\n", 1)
	if err := os.WriteFile(hosted, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr := clitest.Line(t, Commands(), cli.ExitUsage, "inject", "-f", hosted, named)
	clitest.Says(t, stderr, "--rights FILE keeps the two apart")
	rights := filepath.Join(t.TempDir(), "rights.yaml")
	for _, as := range []string{"--mode=Observe", "--as-policy"} {
		stdout, stderr := clitest.Line(t, Commands(), cli.ExitOK, "inject", "-f", hosted, named, "--rights", rights, as)
		clitest.Says(t, stderr, "written: "+rights, "the user may have another name")
		clitest.Says(t, stdout, "kind: ConfigMap", "namespace: storage", "--leader-election-namespace=guests")
		clitest.Says(t, fileText(t, rights), "kind: ClusterRoleBinding", "  namespace: guests\n")
		if strings.Contains(stdout, "ClusterRole") || strings.Contains(fileText(t, rights), "ConfigMap") || strings.Contains(fileText(t, rights), "namespace: storage") {
			t.Errorf("%s: not apart:\n%s\n%s", as, stdout, fileText(t, rights))
		}
	}
}

// What is no file has no end, or none that anybody waits for.
func TestWhatIsReadHasAnEnd(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "config.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxManifest+1); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"/dev/zero is a device":                 {"-f", "/dev/zero"},
		pipe + " is no regular file":            {"-f", manifestFolder(t), named, "--config", pipe},
		large + " is larger than 64 MiB":        {"-f", large},
		"standard input is larger than 64 MiB":  {"-f", "-"},
		large + " is larger than 1048576 bytes": {"-f", manifestFolder(t), named, "--config", large},
	} {
		stdin = zeros{}
		t.Cleanup(func() { stdin = os.Stdin })
		_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, append([]string{"inject"}, args...)...)
		clitest.Says(t, stderr, want)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Whoever may write the folder chooses no other file for us to write.
func TestNothingIsWrittenThroughALink(t *testing.T) {
	folder, elsewhere := manifestFolder(t), filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(folder, inject.DocumentsFile)); err != nil {
		t.Fatal(err)
	}
	_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", filepath.Join(folder, "controller.yaml"), "-o", folder, named)
	clitest.Says(t, stderr, filepath.Join(folder, inject.DocumentsFile)+" is a symbolic link", "nothing is written")
	if fileText(t, elsewhere) != "as it was" || fileText(t, folder, "controller.yaml") != vendorManifest {
		t.Error("it was written")
	}
}

func TestTwoFilesOfOneNameAreNotWrittenOverEachOther(t *testing.T) {
	a, b, out := manifestFolder(t), manifestFolder(t), t.TempDir()
	other := strings.Replace(vendorManifest, "array.example.com", "other.example.com", 1)
	if err := os.WriteFile(filepath.Join(b, "controller.yaml"), []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	_, stderr := clitest.Line(t, Commands(), cli.ExitFailure, "inject", "-f", a, "-f", b, "-o", out, named)
	clitest.Says(t, stderr, "two files would be written to")
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("written all the same: %v %v", left, err)
	}
}

func TestHelpOfInjectListsItsFlags(t *testing.T) {
	for _, name := range []string{"inject", "uninject"} {
		stdout, _ := clitest.Line(t, Commands(), cli.ExitOK, name, "--help")
		clitest.Says(t, stdout, "--filename", "--output", "--check", "kubectl apply -f -")
	}
	if !bytes.Contains([]byte(injectHelp), []byte("standard error")) {
		t.Error("the help does not say where the choices are printed")
	}
}

// The flag asks for one form or the other, and leaving it off for what is there.
func TestTheFormOfTheSidecarIsAFlag(t *testing.T) {
	t.Cleanup(func() { stdin = os.Stdin })
	text := vendorManifest
	for _, step := range []struct {
		flag   string
		native bool
	}{{"--mode=Observe", false}, {"--native-sidecar", true}, {"--mode=Observe", true}, {"--native-sidecar=false", false}} {
		stdin = strings.NewReader(text)
		text, _ = clitest.Line(t, Commands(), cli.ExitOK, "inject", named, step.flag)
		if got := strings.Contains(text, "initContainers:"); got != step.native || strings.Count(text, "name: csi-fencepost\n") < 1 {
			t.Errorf("%s: native %v:\n%s", step.flag, got, text)
		}
	}
}

// A pod that values of a chart, a policy or a person have put it into has no record of ours: it is
// named, where in an emergency somebody would take silence for done.
func TestUninjectSaysWhatItLeaves(t *testing.T) {
	text := clitest.ReadFile(t, "deploy/inject/testdata/refused/by-hand.yaml")
	stdin = strings.NewReader(text)
	t.Cleanup(func() { stdin = os.Stdin })
	stdout, stderr := clitest.Line(t, Commands(), cli.ExitOK, "uninject")
	clitest.Says(t, stderr, "container guard of Deployment ", "is csi-fencepost, and stays", "docs/use/upgrade.md#removing-it")
	if stdout != text || strings.Contains(stderr, "Nothing was injected") {
		t.Errorf("it says\n%s", stderr)
	}
}
