package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// RunTests runs the tests of a package on one API server that they share, without
// controllers, and returns the exit code. m is a *testing.M. share is given the
// server before they begin; an error of it fails them all. What the server left
// is kept when a test fails (Options.KeepOnFailure).
func RunTests(m interface{ Run() int }, share func(context.Context, *Cluster) error) int {
	code, err := runTests(m, share)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func runTests(m interface{ Run() int }, share func(context.Context, *Cluster) error) (code int, err error) {
	ctx := context.Background()
	binaries, err := Build(ctx, os.Stderr)
	if err != nil {
		return 1, err
	}
	cluster, err := Start(ctx, Options{Binaries: binaries, NoControllers: true, KeepOnFailure: func() bool { return code != 0 }})
	if err != nil {
		return 1, err
	}
	code = 1
	if err = share(ctx, cluster); err == nil {
		code = m.Run()
	}
	return code, errors.Join(err, cluster.Stop())
}
