package edge

import (
	"flag"
	"io"
	"os"
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
	os.Exit(bed.RunBare(m, false, func(b *bed.Bed) { sharedBed = b }))
}
