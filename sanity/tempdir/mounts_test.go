package tempdir

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A kubelet that runs as root leaves bind mounts of raw block volumes behind.
func TestAMountBelowAFolderDoesNotOutliveIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster")
	source, target := filepath.Join(path, "disk"), filepath.Join(path, "dev")
	for _, file := range []string{source, target} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		t.Logf("no right to mount here (%v): without one no kubelet leaves a mount either", err)
	} else if got := mountsBelow(path); len(got) != 1 || got[0] != target {
		t.Errorf("mounts below %s: %q, want %q", path, got, target)
	}
	if err := removeAll(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", path, err)
	}
}
