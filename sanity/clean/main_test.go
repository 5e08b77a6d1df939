package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

func TestOnlyWhatNobodyOwnsIsRemoved(t *testing.T) {
	cache, base, bin := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "bin")
	t.Setenv("XDG_CACHE_HOME", cache)
	binary := filepath.Join(cache, "csi-fencepost", "controlplane", "key", "etcd")
	owned, orphan := filepath.Join(base, tempdir.Prefix+"owned", "owner.lock"), filepath.Join(base, tempdir.Prefix+"orphan", "owner.lock")
	for _, file := range []string{binary, owned, orphan, filepath.Join(bin, "tool"), filepath.Join(base, "other", "file")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	owner, err := tempdir.Lock(owned, true)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := remove(&out, base, bin); err != nil {
		t.Error(err)
	}
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	if !there(owned) || !there(binary) || there(orphan) || there(bin) || !strings.Contains(out.String(), filepath.Dir(owned)+" is left") {
		t.Errorf("while a stage lives: owned %v, binary %v, orphan %v, bin %v; it says:\n%s", there(owned), there(binary), there(orphan), there(bin), out.String())
	}
	owner.Close()
	if err := remove(&out, base, bin); err != nil {
		t.Error(err)
	}
	if there(owned) || there(binary) || !there(filepath.Join(base, "other", "file")) {
		t.Errorf("when none lives: owned %v, binary %v", there(owned), there(binary))
	}
}
