package scenarios

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

// clocks of the control planes.
var clocks = bed.ShortClocks

// shared is what the scenarios share.
var shared struct {
	programs bed.Programs
	once     sync.Once
	bed      *bed.Bed
	err      error
	failed   bool
}

func TestMain(m *testing.M) {
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(quiet{})
	os.Exit(runAll(m))
}

type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return len(p), nil }

func runAll(m *testing.M) int {
	scratch, err := tempdir.New()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer scratch.Remove(false)
	if shared.programs, err = bed.Build(context.Background(), os.Stderr, scratch.Path, false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	shared.failed = code != 0
	if shared.bed != nil {
		if err := shared.bed.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// sharedBed is the control plane for the scenarios that leave it alone.
func sharedBed(t *testing.T) *bed.Bed {
	t.Helper()
	shared.once.Do(func() {
		shared.bed, shared.err = bed.Start(context.Background(), shared.programs, clocks, func() bool { return shared.failed })
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.bed
}
