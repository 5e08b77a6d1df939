// Command csi-fencepost-sanity is what csi-fencepost sanity runs: the suite of
// package sanity/fitness, for storage vendors. It is a program of its own because
// the sidecar, which is resident beside every driver, does not carry a test
// framework.
//
// Exit codes: 0, the driver is fit, with settings or without; 1, it is not; 2, the
// program was asked wrongly, or it cannot be told.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	// A driver's own words are in the report.
	stdout, stderr = printable.Writer{To: stdout}, printable.Writer{To: stderr}
	o, err := setup.Parse(args)
	switch {
	case setup.IsHelp(err):
		setup.PrintHelp(stdout)
		return setup.ExitFit
	case err != nil:
		fmt.Fprintf(stderr, "csi-fencepost: %s\n", setup.Explain(err))
		return setup.ExitCannotTell
	}
	return fitness.Run(o, stdout, stderr)
}
