package kubeapi

import (
	"os"
	"path/filepath"
	"testing"
)

// What Helm renders, with and without us.
func TestHelmRendersWhatInjectWrites(t *testing.T) {
	single.take(t)
	whole.use(t)
	for name, c := range map[string]struct {
		helm *tool
		args []string
	}{
		"Helm 3": {helm3Tool, []string{"--post-renderer", "csi-fencepost", "--post-renderer-args", "inject",
			"--post-renderer-args", "--namespace=storage", "--post-renderer-args", "--mode=Enforce", "--post-renderer-args", "--image=csi-fencepost:dev"}},
		"Helm 4": {helmTool, []string{"--post-renderer", "fencepost", "--post-renderer-args", "--namespace=storage", "--post-renderer-args", "--mode=Enforce", "--post-renderer-args", "--image=csi-fencepost:dev"}},
	} {
		t.Run(name, func(t *testing.T) {
			helm, env := c.helm.build(t), helmHome(t)
			template := []string{"template", "array", "testdata/chart", "--namespace=storage"}
			plain := mustOutput(t, env, nil, helm, template...)
			got := mustOutput(t, env, nil, helm, append(template, c.args...)...)
			want := csiFencepost(t, plain, "inject", "--namespace=storage", "--mode=Enforce")
			got, want = inNamespace(t, got, "storage"), inNamespace(t, want, "storage")
			namespaces(t, want)
			sameAll(t, got, want)
			if container := findObject(t, objects(t, got), "StatefulSet", "array-controller"); len(podOf(t, container)) != 3 {
				t.Errorf("containers %q", podOf(t, container))
			}
		})
	}
}

// A chart without an attacher is an error, not a release without a guard.
func TestHelmFailsWhereThereIsNothingToGuard(t *testing.T) {
	single.take(t)
	whole.use(t)
	for name, c := range map[string]struct {
		helm *tool
		args []string
	}{
		"Helm 3": {helm3Tool, []string{"--post-renderer", "csi-fencepost", "--post-renderer-args", "inject"}},
		"Helm 4": {helmTool, []string{"--post-renderer", "fencepost"}},
	} {
		t.Run(name, func(t *testing.T) {
			chart := filepath.Join(t.TempDir(), "chart")
			if err := os.CopyFS(chart, os.DirFS("testdata/chart")); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(chart, "templates/controller.yaml")); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"template", "array", chart}, c.args...)
			if out, err := output(t, helmHome(t), nil, c.helm.build(t), args...); err == nil {
				t.Errorf("rendered\n%s", out)
			}
		})
	}
}

// helmHome is the environment of a person who has the plugin, and nothing else.
func helmHome(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	plugin := filepath.Join(home, "plugins", "fencepost")
	if err := os.CopyFS(plugin, os.DirFS("../../deploy/helm")); err != nil {
		t.Fatal(err)
	}
	return []string{inPath(t), "HELM_PLUGINS=" + filepath.Join(home, "plugins"), "HELM_CONFIG_HOME=" + home,
		"HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none")}
}
