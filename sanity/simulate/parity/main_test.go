package parity

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// realConfig reaches the real API server.
var realConfig *rest.Config

var (
	seeds = flag.Uint64("seeds", 4, "how many random runs")
	first = flag.Uint64("seed", 1, "the first run's seed")
	steps = flag.Int("steps", 250, "operations in a run")
)

// plugins that the model does not have.
const plugins = "DefaultTolerationSeconds,Priority,ServiceAccount,StorageObjectInUseProtection,TaintNodesByCondition"

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	binaries, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return 1, err
	}
	cluster, err := controlplane.Start(ctx, controlplane.Options{Binaries: binaries, NoControllers: true,
		APIServerArgs: []string{"--disable-admission-plugins=" + plugins}, KeepOnFailure: func() bool { return code != 0 }})
	if err != nil {
		return 1, err
	}
	realConfig = cluster.Admin()
	code = m.Run()
	return code, errors.Join(err, cluster.Stop())
}
