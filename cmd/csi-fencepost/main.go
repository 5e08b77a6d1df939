package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/doctor"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/manifests"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/operate"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/run"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// version is set by the Makefile with -ldflags.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Once stopping, the signals have their usual effect again: a second one
	// ends the process at once.
	context.AfterFunc(ctx, stop)
	stdout, stderr := cli.UnderName(os.Args[0], os.Stdout, os.Stderr)
	// What client-go and the packages of ours say while a command runs; run logs as its flags say.
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(printable.Writer{To: stderr}))))
	code := runProgram(ctx, os.Args[1:], stdout, stderr)
	klog.Flush()
	os.Exit(code)
}

// runProgram is the whole program, but for signals and its name.
func runProgram(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cli.LinkedAs(version)
	return cli.Run(ctx, commands(), args, stdout, stderr)
}

// commands are the subcommands, in the order of the help.
func commands() []cli.Command {
	return slices.Concat([]cli.Command{
		run.Command(),
		run.FailoverCommand(),
		explain.Command(),
		doctor.Command(),
	}, operate.Commands(), manifests.Commands(), []cli.Command{
		{Name: "sanity", Summary: "is a driver fit for takeover? a suite for storage vendors", Run: runSanity},
		cli.Completion(commands),
		{Name: "version", Summary: "print the version", Run: cli.PrintVersion},
	})
}
