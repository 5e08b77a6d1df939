package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

const root = "../.."

// No copy of a policy or a role lags behind what it was copied from, nor the schema behind what a
// sidecar reads.
func TestTheChartHasWhatItIsMadeFrom(t *testing.T) {
	files, err := generated(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, folder, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what it is made from (%v): go run ./deploy/chart -update", name, err)
		}
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
