package deploy

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// cluster is the API server that all tests share. There are no controllers.
var cluster *controlplane.Cluster

// work is a folder for the whole run.
var work string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if work, err = os.MkdirTemp("", "csi-fencepost-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(work)
	return controlplane.RunTests(m, func(_ context.Context, c *controlplane.Cluster) error { cluster = c; return nil })
}
