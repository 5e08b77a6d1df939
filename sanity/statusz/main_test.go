package statusz_test

import (
	"flag"
	"io"
	"os"
	"testing"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

var (
	sharedBed *bed.Bed
	save      = flag.String("save", "", "a folder that the pages are written to, to be looked at")
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(bed.RunBare(m, false, func(b *bed.Bed) { sharedBed = b }))
}
