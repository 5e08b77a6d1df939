package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const testVersion = "v0.0.1-test"

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func git(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", folder, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_COMMITTER_DATE=1700000000 +0000")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// layoutWith is an archive that begins as that of an image does.
func layoutWith(t *testing.T, index string) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for name, content := range map[string]string{"blobs/sha256/x": "blob", "index.json": index} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// built is a checkout with one commit, and beside it what could have been built from it: its
// program is this test's own, which says with which Go it was built.
func built(t *testing.T) release {
	t.Helper()
	source, output := t.TempDir(), t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "cmd/csi-fencepost-agents/go.mod", "cmd/csi-fencepost-agents/go.sum", "cmd/csi-fencepost-webhook/go.mod", "cmd/csi-fencepost-webhook/go.sum"} {
		write(t, filepath.Join(source, name), []byte(name))
	}
	git(t, source, "init", "-q")
	git(t, source, "add", ".")
	git(t, source, "commit", "-qm", "all")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(output, "csi-fencepost_"+testVersion+"_linux_amd64"), read(t, self))
	write(t, filepath.Join(output, "csi-fencepost_"+testVersion+".oci.tar"), layoutWith(t, `{"manifests":[{"digest":"sha256:`+strings.Repeat("ab", 32)+`"}]}`))
	write(t, filepath.Join(output, "fencepost.yaml"), []byte("plugin"))
	r := release{source: source, output: output, version: testVersion, builder: "https://example.com/builder"}
	r.sum(t)
	return r
}

// sum writes SHA256SUMS as they are.
func (r release) sum(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(r.output)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		hex, err := sumOf(filepath.Join(r.output, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s  %s\n", hex, e.Name())
	}
	write(t, filepath.Join(r.output, "SHA256SUMS"), []byte(text.String()))
}

func (r release) flags(more ...string) []string {
	return append([]string{"-source", r.source, "-o", r.output, "-version", r.version, "-builder", r.builder}, more...)
}

func TestTheProvenanceNamesEveryFileTheCommitAndTheGo(t *testing.T) {
	r := built(t)
	if err := run(t.Context(), r.flags("-image", "registry.example.com/x", "-invocation", "https://example.com/run/1"), io.Discard); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.output, "csi-fencepost_"+testVersion+".intoto.json")
	var s statement
	decoder := json.NewDecoder(bytes.NewReader(read(t, path)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		t.Fatal(err)
	}
	subjects := map[string]string{}
	for _, d := range s.Subject {
		subjects[d.Name] = d.Digest["sha256"]
	}
	for l := range strings.Lines(string(read(t, filepath.Join(r.output, "SHA256SUMS")))) {
		if sum, name, _ := strings.Cut(strings.TrimSpace(l), "  "); subjects[name] != sum {
			t.Errorf("%s is %q, want %s", name, subjects[name], sum)
		}
	}
	if len(subjects) != 4 || subjects["registry.example.com/x"] != strings.Repeat("ab", 32) {
		t.Errorf("subjects %v", subjects)
	}
	commit, d := git(t, r.source, "rev-parse", "HEAD"), s.Predicate.BuildDefinition
	if d.ExternalParameters != (parameters{"git+" + repository + "@" + commit, testVersion, "1700000000", "registry.example.com/x"}) {
		t.Errorf("parameters %+v", d.ExternalParameters)
	}
	if d.InternalParameters.Go != runtime.Version() || d.ResolvedDependencies[0].Digest["gitCommit"] != commit || len(d.ResolvedDependencies) != 8 {
		t.Errorf("made of %+v with %s", d.ResolvedDependencies, d.InternalParameters.Go)
	}
	if s.Predicate.RunDetails.Builder.ID != "https://example.com/builder" || s.Predicate.RunDetails.Metadata.InvocationID != "https://example.com/run/1" {
		t.Errorf("run %+v", s.Predicate.RunDetails)
	}
	again, err := release{r.source, r.output, r.version, "registry.example.com/x", r.builder, "https://example.com/run/1"}.provenance(t.Context())
	if err != nil || !bytes.Equal(again, read(t, path)) {
		t.Errorf("other bytes the second time: %v", err)
	}
	othersTake(t, path, true)
	write(t, path, bytes.Replace(read(t, path), []byte(`"builder": {`), []byte(`"maker": {`), 1))
	othersTake(t, path, false)
}

// othersTake asks in-toto's own library.
func othersTake(t *testing.T, path string, want bool) {
	t.Helper()
	cmd := exec.Command("go", "run", ".", "provenance", path)
	cmd.Dir = "../../sanity/kubeapi/tools/formats"
	if out, err := cmd.CombinedOutput(); (err == nil) != want {
		t.Errorf("%s taken: %t, want %t: %v\n%s", path, err == nil, want, err, out)
	}
}

// Nothing is said of where files come from that are not what they should be.
func TestWhatContradictsItselfHasNoProvenance(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, r release)
		want  string
	}{
		"a file with one more byte": {func(t *testing.T, r release) {
			path := filepath.Join(r.output, "fencepost.yaml")
			write(t, path, append(read(t, path), '\n'))
		}, "is not what SHA256SUMS says"},
		"a file that is gone": {func(t *testing.T, r release) {
			if err := os.Remove(filepath.Join(r.output, "fencepost.yaml")); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"a path that leaves the folder": {func(t *testing.T, r release) {
			write(t, filepath.Join(r.output, "SHA256SUMS"), []byte(strings.Repeat("0", 64)+"  ../x\n"))
		}, "no checksum and the name of a file"},
		"no program": {func(t *testing.T, r release) {
			path := filepath.Join(r.output, "SHA256SUMS")
			lines := slices.DeleteFunc(strings.SplitAfter(string(read(t, path)), "\n"), func(l string) bool { return strings.HasSuffix(l, "_linux_amd64\n") })
			write(t, path, []byte(strings.Join(lines, "")))
		}, "names no program"},
		"a program of another version": {func(t *testing.T, r release) {
			write(t, filepath.Join(r.output, "csi-fencepost_v0_linux_arm64"), read(t, filepath.Join(r.output, "csi-fencepost_"+testVersion+"_linux_amd64")))
			r.sum(t)
		}, "is not of version"},
		"a program that is none": {func(t *testing.T, r release) {
			write(t, filepath.Join(r.output, "csi-fencepost_"+testVersion+"_linux_amd64"), []byte("#!/bin/sh\n"))
			r.sum(t)
		}, "says nothing of how it was built"},
		"two images in the archive": {func(t *testing.T, r release) {
			write(t, filepath.Join(r.output, "csi-fencepost_"+testVersion+".oci.tar"), layoutWith(t, `{"manifests":[{"digest":"sha256:aa"},{"digest":"sha256:bb"}]}`))
			r.sum(t)
		}, "does not name one image"},
		"a change that is not committed": {func(t *testing.T, r release) {
			write(t, filepath.Join(r.source, "go.mod"), []byte("changed"))
		}, "go.mod"},
		"a file that git does not know": {func(t *testing.T, r release) {
			write(t, filepath.Join(r.source, "more.go"), nil)
		}, "more.go"},
		"no commit": {func(t *testing.T, r release) {
			if err := os.RemoveAll(filepath.Join(r.source, ".git")); err != nil {
				t.Fatal(err)
			}
		}, "git rev-parse HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			r := built(t)
			c.spoil(t, r)
			err := run(t.Context(), r.flags(), io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(r.output, "*.intoto.json")); left != nil {
				t.Errorf("%q was written", left)
			}
		})
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"-version", "v1", "more"}, {"-version", "v1", "-builder", ""}} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), "needs -version") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
