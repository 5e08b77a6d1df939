package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// krew runs a program of krew's in a home of its own, and returns what it prints.
func krew(t *testing.T, program, home string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "KREW_ROOT="+home, "HOME="+home, "KREW_NO_UPGRADE_CHECK=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// krew reads the manifest as it does one for its index, and installs the plugin from the
// archive, which has to be the one that the manifest names.
func TestKrewInstallsThePlugin(t *testing.T) {
	f := folder(t)
	manifest := filepath.Join(f, "fencepost.yaml")
	if out, err := krew(t, others(t, "sigs.k8s.io/krew/cmd/validate-krew-manifest"), t.TempDir(), "-skip-install", "-manifest", manifest); err != nil {
		t.Errorf("krew refuses the manifest: %v\n%s", err, out)
	}
	program, home, ours := others(t, "sigs.k8s.io/krew/cmd/krew"), t.TempDir(), archive(runtime.GOARCH)
	if out, err := krew(t, program, home, "install", "--manifest", manifest, "--archive", filepath.Join(f, ours)); err != nil {
		t.Fatalf("krew does not install it: %v\n%s", err, out)
	}
	installed := filepath.Join(home, "bin", "kubectl-fencepost")
	if out, err := exec.Command(installed, "version").CombinedOutput(); err != nil || !strings.Contains(string(out), testVersion) {
		t.Errorf("what krew has installed says %q: %v", out, err)
	}
	if out, err := exec.Command(installed, "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "kubectl fencepost") {
		t.Errorf("it is no plugin: %v\n%s", err, out)
	}
	wrong := filepath.Join(t.TempDir(), ours)
	content := bytes.Clone(read(t, filepath.Join(f, ours)))
	content[len(content)/2] ^= 1
	if err := os.WriteFile(wrong, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := krew(t, program, t.TempDir(), "install", "--manifest", manifest, "--archive", wrong); err == nil || !strings.Contains(out, "checksum") {
		t.Errorf("an archive with one other bit is installed: %v\n%s", err, out)
	}
}

// What the manifest names is what the release holds, where releases are.
func TestTheManifestNamesTheArchivesOfItsRelease(t *testing.T) {
	var m krewManifest
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(folder(t), "fencepost.yaml")), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Spec.Platforms) != len(architectures) || m.Spec.Version != testVersion {
		t.Errorf("%d platforms, version %s", len(m.Spec.Platforms), m.Spec.Version)
	}
	for i, arch := range architectures {
		p, name := m.Spec.Platforms[i], archive(arch)
		if want := "https://github.com/csi-fencepost/csi-fencepost/releases/download/" + testVersion + "/" + name; p.URI != want {
			t.Errorf("URI %s, want %s", p.URI, want)
		}
		if got := digest(read(t, filepath.Join(folder(t), name))).Hex; got != p.SHA256 || p.Selector["matchLabels"]["arch"] != arch || p.Selector["matchLabels"]["os"] != "linux" {
			t.Errorf("%s is %s, the manifest says %+v", name, got, p)
		}
	}
}

func TestEveryVersionIsASemanticOneForKrew(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":            "v1.2.3",
		"v1.2.3-rc.1":       "v1.2.3-rc.1",
		"v1.2.3-4-g0123abc": "v1.2.3-4-g0123abc",
		"v1.2":              "v0.0.0-gv1.2",
		"0123abc-dirty":     "v0.0.0-g0123abc-dirty",
		"0123456":           "v0.0.0-g0123456",
		"a_b":               "v0.0.0-ga-b",
		"a..b":              "",
	} {
		got, err := release{version: version}.semantic()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, want %q, error %v", version, got, want, err)
		}
	}
}
