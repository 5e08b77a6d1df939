package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const root = "../.."

// No copy of a policy or a role lags behind what it was copied from, nor the schema behind what a
// sidecar reads.
func TestTheChartHasWhatItIsMadeFrom(t *testing.T) {
	if err := fresh(root); err != nil {
		t.Error(err)
	}
	files, err := generated(root)
	if err != nil {
		t.Fatal(err)
	}
	in := os.DirFS(filepath.Join(root, folder))
	err = fs.WalkDir(in, "files", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && files[name] == nil {
			t.Errorf("%s is made from nothing", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The same sources are packed to the same bytes, whenever their files were written, and whoever may
// read them.
func TestTheSameSourcesArePackedToTheSameBytes(t *testing.T) {
	var packed [2][]byte
	for i := range packed {
		source := t.TempDir()
		if err := os.CopyFS(filepath.Join(source, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
			t.Fatal(err)
		}
		values := filepath.Join(source, folder, "values.yaml")
		if err := os.Chtimes(values, time.Time{}, time.Unix(int64(1e9*i), 0)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(values, os.FileMode(0o600+0o44*i)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(source, folder, ".mine"), []byte{byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
		path, err := release{source: source, output: filepath.Join(source, "dist"), version: "v1.2.3", date: time.Unix(1e9, 0)}.pack()
		if err != nil {
			t.Fatal(err)
		}
		if packed[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packed[0], packed[1]) {
		t.Error("two archives of the same sources differ")
	}
}

// The version of the chart is a semantic one, whatever the program's is, which is the image's tag.
func TestTheVersionsOfTheChart(t *testing.T) {
	for version, want := range map[string]string{
		"":               "0.1.0 dev",
		"v1.2.3":         "1.2.3 v1.2.3",
		"v1.2.3-4-gabc":  "1.2.3-4-gabc v1.2.3-4-gabc",
		"0123abc":        "0.1.0+0123abc 0123abc",
		"a_branch-dirty": "0.1.0+a-branch-dirty a_branch-dirty",
	} {
		text, chart, err := release{source: root, version: version}.head()
		if program := strings.TrimPrefix(want, chart+" "); err != nil || program == want || !strings.Contains(string(text), "appVersion: "+program+"\n") || !strings.Contains(string(text), "version: "+chart+"\n") {
			t.Errorf("%q: %v, chart %s, want %s:\n%s", version, err, chart, want, text)
		}
	}
	if _, _, err := (release{source: root, version: "a b"}).head(); err == nil {
		t.Error("an image with a space in its tag")
	}
}

// What is not what it was copied from is not packed.
func TestAStaleChartIsNotPacked(t *testing.T) {
	source := t.TempDir()
	if err := os.CopyFS(filepath.Join(source, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "deploy/rbac/enforce.yaml"), []byte("kind: Other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (release{source: source, output: t.TempDir()}).pack(); err == nil || !strings.Contains(err.Error(), "files/rbac/enforce.yaml is not what it is made from: go run ./deploy/chart -update") {
		t.Error(err)
	}
}
