package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// version is set by the Makefile with -ldflags.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Once stopping, the signals have their usual effect again: a second one
	// ends the process at once.
	context.AfterFunc(ctx, stop)
	stdout, stderr := underName(os.Args[0], os.Stdout, os.Stderr)
	code := run(ctx, os.Args[1:], stdout, stderr)
	klog.Flush()
	os.Exit(code)
}

// run is the whole program, but for signals and its name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	linkedAs(version)
	return runCommands(ctx, commands(), args, stdout, stderr)
}

// commands are the subcommands, in the order of the help.
func commands() []command {
	return []command{
		{"run", "the sidecar: serve external-attacher, guard the driver", runSidecar},
		{"explain", "who holds a volume, what is known of it, what would unblock it", runExplain},
		fenceCommand(),
		{"release", "tell that a node no longer uses a volume", runRelease},
		ledgerCommand(),
		{"uninstall", "take away what csi-fencepost has left in the cluster", runUninstall},
		{"inject", "put the sidecar into a driver's manifests", runInject},
		{"uninject", "take it out of them again", runUninject},
		{"sanity", "is a driver fit for takeover? a suite for storage vendors", runSanity},
		{"version", "print the version", printVersion},
	}
}
