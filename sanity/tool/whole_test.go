package tool

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Processes that start beside each other write one configuration and read it.
func TestWhoReadsWhileAFileIsWrittenReadsAWholeOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := strings.Repeat("kind: Configuration\n", 1000)
	if err := WriteWhole(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 200 {
				if err := WriteWhole(path, []byte(text), 0o640); err != nil {
					t.Error(err)
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }()
	for {
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Fatalf("%d bytes of %d were read: %v", len(got), len(text), err)
		}
		select {
		case <-written:
			left, err := os.ReadDir(filepath.Dir(path))
			if info, statErr := os.Stat(path); err != nil || statErr != nil || len(left) != 1 || info.Mode() != 0o640 {
				t.Errorf("%v was left, %v: %v, %v", left, info.Mode(), err, statErr)
			}
			return
		default:
		}
	}
}
