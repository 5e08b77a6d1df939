package edge

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// sharedBed is the API server that all tests share.
var sharedBed *bed.Bed

func TestMain(m *testing.M) {
	flag.Parse()
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
	folder, err := os.MkdirTemp("", "csi-fencepost-edge-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	programs, err := bed.Build(context.Background(), os.Stderr, folder, false)
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

// noteSources looks at the sources of csi-fencepost, which no test imports: else
// `go test` would not know that a cached result is outdated.
func noteSources() error {
	for _, folder := range []string{"cmd", "csi", "fence", "proxy"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".go" {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
