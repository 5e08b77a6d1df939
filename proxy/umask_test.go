package proxy

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// The umask is the whole process's, and several sockets may be made at once.
func TestListeningLeavesTheUmaskAsItWas(t *testing.T) {
	before := syscall.Umask(0o027)
	defer syscall.Umask(before)
	dir, err := os.MkdirTemp("", "umask") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for j := range 200 {
				path := filepath.Join(dir, fmt.Sprintf("%d-%d", i, j))
				l, err := listen(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if l.file.Mode() != os.ModeSocket|0o666 {
					t.Errorf("%s has mode %v", path, l.file.Mode())
				}
				_ = l.Close()
			}
		})
	}
	running.Wait()
	if now := syscall.Umask(0o027); now != 0o027 {
		t.Errorf("the umask is %o", now)
	}
}
