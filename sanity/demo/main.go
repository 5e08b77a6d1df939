// Command demo tells a story twice, side by side, on a real control plane: once
// with Kubernetes alone, once with csi-fencepost.
//
//	double-publish   an operator is wrong about a node, and the driver's detach fails
//	power-off        the node of 20 databases loses power (needs ipmi_sim: make deps)
//
// With -real, as root, the first one is told on real nodes.
//
// It exits with 1 if a verdict is not as promised. Ctrl-C leaves no process and
// no file behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx)
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "\nStopped. Nothing is left running.")
		os.Exit(130)
	case err != nil:
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	quick := flag.Bool("quick", false, "notice the silent node after 21 s instead of Kubernetes' own 50 s")
	name := flag.String("story", stories[0].name, "which `story` to tell:\n"+listStories())
	onRealNodes := flag.Bool("real", false, "as root: Kubernetes' own kubelet, containerd, a database in a container and ext4; the verdict is that of e2fsck and of the database")
	flag.Parse()
	chosen, err := choose(*name, *onRealNodes, flag.Args())
	if err != nil {
		return err
	}
	klog.SetOutput(discard{})
	klog.LogToStderr(false)

	scratch, err := tempdir.New()
	if err != nil {
		return err
	}
	defer scratch.Remove(false)
	fmt.Fprintln(os.Stderr, "Building the control plane (minutes the first time, cached after that) and csi-fencepost.")
	programs, err := bed.Build(ctx, os.Stderr, scratch.Path, false)
	if err != nil {
		return canceled(ctx, err)
	}
	clocks := bed.RealClocks
	if *quick {
		clocks = bed.ShortClocks
	}
	return tell(ctx, chosen, programs, clocks)
}

// tell runs the story and cleans up whatever way it ends.
func tell(ctx context.Context, chosen story, programs bed.Programs, clocks bed.Clocks) error {
	t := bed.NewRun(ctx, nil)
	return canceled(ctx, t.Do(func() error {
		fmt.Fprint(os.Stderr, "Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler … ")
		began := time.Now()
		b := bed.New(t, programs, clocks)
		fmt.Fprintf(os.Stderr, "%.1f s\n", time.Since(began).Seconds())
		return chosen.play(t, b)
	}))
}

func canceled(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Canceled
	}
	return err
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
