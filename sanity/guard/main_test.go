package guard

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// sharedBed is the API server that all tests share.
var sharedBed *bed.Bed

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		// The tests wait more than they compute.
		_ = flag.Set("test.parallel", "10")
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if err := noteSources(); err != nil {
		return 1, err
	}
	folder, err := os.MkdirTemp("", "csi-fencepost-guard-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	programs, err := bed.Build(context.Background(), os.Stderr, folder, true)
	if err != nil {
		return 1, err
	}
	sharedBed, err = bed.StartBare(context.Background(), programs, func() bool { return code != 0 })
	if err != nil {
		return 1, err
	}
	code = m.Run()
	return code, sharedBed.Stop()
}

// noteSources looks at the sources of csi-fencepost's main package, which no test
// imports: else `go test` would not know that a cached result is outdated.
func noteSources() error {
	files, err := filepath.Glob("../../cmd/csi-fencepost/*.go")
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return err
		}
	}
	return err
}
