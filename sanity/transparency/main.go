// Command transparency shows a sceptic what differs between calls made to a CSI
// driver directly and through csi-fencepost: it makes every call of the CSI spec,
// and calls of a service that nobody has heard of, both ways, and compares what
// caller and driver saw.
//
// It builds csi-fencepost, runs it as a process of its own with --no-kubernetes,
// and exits with 1 if anything differs that is not a named exception.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
	"github.com/csi-fencepost/csi-fencepost/sanity/transparency/wire"
)

func main() {
	tool.Main("transparency", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("transparency", flag.ContinueOnError)
	flags.SetOutput(progress)
	program := flags.String("program", "", "the csi-fencepost to look at; without it, it is built from this checkout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	scratch, err := tempdir.New()
	if err != nil {
		return err
	}
	defer scratch.Remove(false)
	if *program == "" {
		*program = filepath.Join(scratch.Path, "csi-fencepost")
		if err := controlplane.BuildFencepost(ctx, progress, *program, controlplane.FencepostBuild{}); err != nil {
			return err
		}
	}
	return look(ctx, scratch.Path, *program, out)
}

// look puts the program before a driver, compares, and writes the tables.
func look(ctx context.Context, folder, program string, out io.Writer) error {
	began := time.Now()
	socket := filepath.Join(folder, "driver.sock")
	driver, err := wire.StartDriver(socket)
	if err != nil {
		return err
	}
	defer driver.Stop()
	proxied, stop, err := startProxy(ctx, folder, "proxied", program, socket)
	if err != nil {
		return err
	}
	defer stop()
	outcomes, err := compare(ctx, driver, socket, proxied, wire.Properties)
	if err != nil {
		return err
	}
	headers, err := compareHeaders(ctx, folder, program)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	faults := printCalls(out, wire.Properties, outcomes) + printHeaders(out, headers)
	fmt.Fprintf(out, "\n%d comparisons in %.0f s, ", len(headers)+count(outcomes), time.Since(began).Seconds())
	if faults > 0 {
		fmt.Fprintf(out, "%d of them differ and are no named exception.\n", faults)
		return errors.New("the proxy can be told from the driver")
	}
	fmt.Fprintln(out, "none differs but for the named exceptions.")
	return nil
}

func compare(ctx context.Context, driver *wire.Driver, direct, proxied string, properties []wire.Property) ([]wire.Outcome, error) {
	one, err := wire.Dial(direct)
	if err != nil {
		return nil, err
	}
	defer one.Close()
	other, err := wire.Dial(proxied)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	return wire.Compare(ctx, driver, one, other, properties), nil
}

// startProxy starts the program before a driver's socket, and returns its own.
func startProxy(ctx context.Context, folder, name, program, driver string) (socket string, stop func(), err error) {
	const limit = 30 * time.Second
	socket, log := filepath.Join(folder, name+".sock"), filepath.Join(folder, name+".log")
	process, err := controlplane.StartProcess(controlplane.ProcessOptions{
		Name: name, Path: program, LogFile: log,
		Args: []string{"run", "--no-kubernetes", "--csi-address=" + driver, "--listen=" + socket, "--max-message-size=16777216"}, // a property has more than the default
	})
	if err != nil {
		return "", nil, err
	}
	if err := process.Serving(ctx, socket, limit); err != nil {
		process.Stop(0)
		return "", nil, err
	}
	return socket, func() { process.Stop(5 * time.Second) }, nil
}
