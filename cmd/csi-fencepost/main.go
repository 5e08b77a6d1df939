package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/klog/v2"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

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

// A command is one subcommand. It is given the arguments after its name, and
// prints its result to stdout. A usageError it returns is exit code 2, any
// other error 1.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// commands are the subcommands, in the order of the help.
func commands() []command {
	return []command{
		{"run", "the sidecar: serve external-attacher, guard the driver", runSidecar},
		{"explain", "who holds a volume, what is known of it, what would unblock it", runExplain},
		{"fence", "status, confirm and withdraw the fencing of a node", runFence},
		{"release", "tell that a node no longer uses a volume", runRelease},
		{"ledger", "export and repair the record of who holds a volume", runLedger},
		{"uninstall", "take away what csi-fencepost has left in the cluster", runUninstall},
		{"inject", "put the sidecar into a driver's manifests", runInject},
		{"uninject", "take it out of them again", runUninject},
		{"sanity", "is a driver fit for takeover? a suite for storage vendors", runSanity},
		{"version", "print the version", printVersion},
	}
}

// run dispatches to a subcommand and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name, rest, err := chooseCommand(args)
	if err == nil && name == "help" {
		printHelp(stdout)
		return exitOK
	}
	if err == nil {
		err = dispatch(ctx, name, rest, stdout, stderr)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "csi-fencepost: %v\n", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// chooseCommand returns the name of the subcommand and its arguments.
func chooseCommand(args []string) (name string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, usagef("no subcommand is given: one of %s", commandNames())
	}
	switch first := args[0]; {
	case first == "help" || first == "-h" || first == "-help" || first == "--help":
		if first == "help" && len(args) > 1 {
			return args[1], []string{"--help"}, nil
		}
		return "help", nil, nil
	case first == "-version" || first == "--version":
		return "version", args[1:], nil
	case strings.HasPrefix(first, "-"):
		return "", nil, usagef("flag %s stands where the subcommand belongs: the sidecar is started as csi-fencepost run %s …", first, first)
	default:
		return first, args[1:], nil
	}
}

func dispatch(ctx context.Context, name string, args []string, stdout, stderr io.Writer) error {
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, args, stdout, stderr)
		}
	}
	return usagef("unknown subcommand %q: one of %s", name, commandNames())
}

func commandNames() string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return strings.Join(append(names, "help"), ", ")
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, "csi-fencepost guards the single-writer volumes of a CSI driver.\n\nUsage: csi-fencepost SUBCOMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-9s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "  help      this text; help SUBCOMMAND, the flags of a subcommand\n")
}

// A usageError says that the program was asked wrongly.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...)}
}
