// Command csisanity runs csi-sanity, the conformance suite of the Kubernetes
// storage community (suite/go.mod has the version), on a CSI driver directly and
// through csi-fencepost, and compares what the suite reports: the same tests
// have to run, with the same outcomes.
//
//	go run ./sanity/csisanity                                    the reference driver
//	go run ./sanity/csisanity -csi-address /run/csi/csi.sock     a driver of yours
//	go run ./sanity/csisanity -kubernetes ...                    also with a Kubernetes API
//
// What stands behind a -- goes to csi-sanity, for example
// -csi.testvolumeparameters=params.yaml or -ginkgo.focus=Controller.
//
// It exits with 1 if an outcome differs, or if a test failed on the driver
// itself. A test that was skipped counts as skipped, and why is compared too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

func main() {
	tool.Main("csisanity", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// errDiffers ends a run whose outcomes are not as they should be; the table has
// told which.
var errDiffers = errors.New("the outcomes are not as they should be, see the table")

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	t := bed.NewRun(ctx, progress)
	var results []result
	if err := t.Do(func() error { results = play(t, o, progress); return nil }); err != nil {
		return err
	}
	if !printTable(out, results) {
		return errDiffers
	}
	return nil
}

// options are what is to be run.
type options struct {
	driver     string   // socket of the driver; empty: the reference driver
	controller string   // socket of its controller, if it has one of its own
	kubernetes bool     // with a Kubernetes API as well
	extra      []string // for csi-sanity
}

func parse(args []string, output io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("csisanity", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.driver, "csi-address", "", "the driver's socket, /path or unix:///path; without it the reference driver is started")
	flags.StringVar(&o.controller, "controller-address", "", "the socket of the driver's controller, if it is not the one of -csi-address")
	flags.BoolVar(&o.kubernetes, "kubernetes", false, "also with a Kubernetes API: starts a real etcd and kube-apiserver (built the first time: minutes)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.extra = flags.Args()
	for _, socket := range []string{o.driver, o.controller} {
		if socket != "" && !strings.HasPrefix(strings.TrimPrefix(socket, "unix://"), "/") {
			return o, fmt.Errorf("socket %q is neither unix:///path nor /path with an absolute path", socket)
		}
	}
	if o.controller != "" && o.driver == "" {
		return o, errors.New("-controller-address needs -csi-address, the socket with the driver's Identity and Node services")
	}
	return o, nil
}
