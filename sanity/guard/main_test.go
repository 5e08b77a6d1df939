package guard

import (
	"flag"
	"fmt"
	"io"
	"os"
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
	os.Exit(bed.RunBare(m, true, func(b *bed.Bed) { sharedBed = b }))
}
