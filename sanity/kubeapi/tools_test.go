package kubeapi

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// A tool is one of a module of its own, built into bin/ of the checkout: Go sees
// itself whether it has to be built again.
type tool struct {
	once    sync.Once
	module  string // folder below tools/, and what the program is called
	folder  string // in its place
	program string // its package
	path    string
	err     error
}

var (
	kustomizeTool = &tool{module: "kustomize", program: "sigs.k8s.io/kustomize/kustomize/v5"}
	helmTool      = &tool{module: "helm", program: "helm.sh/helm/v4/cmd/helm"}
	webhookTool   = &tool{module: "csi-fencepost-webhook", folder: "../../cmd/csi-fencepost-webhook", program: "."}
	helm3Tool     = &tool{module: "helm3", program: "helm.sh/helm/v3/cmd/helm"}
)

func (x *tool) build(t *testing.T) string {
	t.Helper()
	x.once.Do(func() {
		if x.path, x.err = filepath.Abs(filepath.Join("../../bin", x.module)); x.err != nil {
			return
		}
		cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", x.path, x.program)
		cmd.Dir = cmp.Or(x.folder, filepath.Join("tools", x.module))
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			x.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if x.err != nil {
		t.Fatalf("building %s: %v", x.program, x.err)
	}
	return x.path
}

// inPath is PATH with csi-fencepost in it.
func inPath(t *testing.T) string {
	t.Helper()
	return "PATH=" + filepath.Dir(whole.bed.Fencepost) + ":" + os.Getenv("PATH")
}

// output runs a program and returns its standard output; an error carries its
// standard error.
func output(t *testing.T, env []string, stdin []byte, program string, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %q: %w: %s", program, args, err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// mustOutput is output of what has to work.
func mustOutput(t *testing.T, env []string, stdin []byte, program string, args ...string) []byte {
	t.Helper()
	out, err := output(t, env, stdin, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// csiFencepost runs the program under test.
func csiFencepost(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	if args[0] == "inject" {
		args = append(args, "--image=csi-fencepost:dev")
	}
	return mustOutput(t, nil, stdin, whole.bed.Fencepost, args...)
}
