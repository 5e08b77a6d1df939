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
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if work, err = os.MkdirTemp("", "csi-fencepost-deploy-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return 1, err
	}
	cluster, err = controlplane.Start(ctx, controlplane.Options{Binaries: binaries, NoControllers: true, KeepOnFailure: func() bool { return code != 0 }})
	if err != nil {
		return 1, err
	}
	code = m.Run()
	return code, cluster.Stop()
}
