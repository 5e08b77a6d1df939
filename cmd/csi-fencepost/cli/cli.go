package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// Exit codes.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// A Command is one subcommand. It is given the arguments after its name, and
// prints its result to stdout. A UsageError it returns is exit code 2, a
// Help is printed and no failure, any other error is exit code 1.
type Command struct {
	Name    string
	Summary string
	// Args are the words that its first argument may be, for completion; nil: any.
	Args []string
	Run  func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// Run dispatches to a subcommand of the table, prints its error, and
// returns the exit code. What it and the subcommands print is no more than text to a
// terminal, whoever wrote it; see package printable.
func Run(ctx context.Context, table []Command, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = printable.Writer{To: stdout}, printable.Writer{To: stderr}
	if completes(args) {
		if complete(ctx, table, args, stdout, stderr) != nil {
			return ExitFailure // it has said why
		}
		return ExitOK
	}
	name, rest, err := chooseCommand(table, args)
	if err == nil && name == "help" {
		printHelp(stdout, table)
		return ExitOK
	}
	if err == nil {
		err = find(ctx, table, "", name, rest, stdout, stderr)
	}
	var help *Help
	if errors.As(err, &help) {
		_, err = io.WriteString(stdout, help.text)
	}
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "csi-fencepost: %s\n", err)
	if usage := (UsageError{}); errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitFailure
}

// chooseCommand returns the name of the subcommand and its arguments.
func chooseCommand(table []Command, args []string) (name string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, Usagef("no subcommand is given: one of %s", namesOf(table, "help"))
	}
	switch first := args[0]; {
	case first == "help" || first == "-h" || first == "-help" || first == "--help":
		if first == "help" && len(args) > 1 {
			return args[1], append(slices.Clone(args[2:]), "--help"), nil
		}
		return "help", nil, nil
	case first == "-version" || first == "--version":
		return "version", args[1:], nil
	case strings.HasPrefix(first, "-"):
		return "", nil, Usagef("flag %s stands where the subcommand belongs: the sidecar is started as csi-fencepost run %s …", first, first)
	default:
		return first, args[1:], nil
	}
}

// find runs the subcommand with that name.
func find(ctx context.Context, table []Command, of, name string, args []string, stdout, stderr io.Writer) error {
	for _, c := range table {
		if c.Name == name {
			return c.Run(ctx, args, stdout, stderr)
		}
	}
	what := fmt.Sprintf("unknown subcommand %q", name)
	if flag, _, _ := strings.Cut(name, "="); strings.HasPrefix(flag, "-") { // its value may be a secret
		what = fmt.Sprintf("flag %s stands where the subcommand belongs, which comes first", flag)
	}
	if of != "" {
		return Usagef("%s: %s: one of %s", of, what, namesOf(table))
	}
	return Usagef("%s: one of %s", what, namesOf(table, "help"))
}

// Group is a subcommand that has subcommands of its own; help is printed where
// it is asked for.
func Group(name, summary, help string, table ...Command) Command {
	run := func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		if len(args) == 0 {
			return Usagef("%s: no subcommand is given: one of %s", name, namesOf(table))
		}
		switch {
		case args[0] == "help" && len(args) > 1:
			return find(ctx, table, name, args[1], []string{"--help"}, stdout, stderr)
		case slices.Contains([]string{"-h", "--help", "help"}, args[0]):
			return &Help{text: help, table: table}
		}
		return find(ctx, table, name, args[0], args[1:], stdout, stderr)
	}
	return Command{Name: name, Summary: summary, Run: run}
}

// namesOf the subcommands, and of more, as a sentence lists them.
func namesOf(table []Command, more ...string) string {
	var list []string
	for _, c := range table {
		list = append(list, c.Name)
	}
	return strings.Join(append(list, more...), ", ")
}

const helpSummary = "this text; help SUBCOMMAND, the flags of a subcommand"

func printHelp(w io.Writer, table []Command) {
	fmt.Fprint(w, "csi-fencepost guards the single-writer volumes of a CSI driver.\n\nUsage: csi-fencepost SUBCOMMAND [flags]\n\n")
	for _, c := range table {
		fmt.Fprintf(w, "  %-10s %s\n", c.Name, c.Summary)
	}
	fmt.Fprintf(w, "  %-10s %s\n", "help", helpSummary)
}

// A UsageError says that the program was asked wrongly.
type UsageError struct{ text string }

// Error implements error.
func (e UsageError) Error() string { return e.text }

// Usagef is an error of the command line: exit code 2.
func Usagef(format string, args ...any) error {
	return UsageError{fmt.Sprintf(format, args...)}
}

// Help is the error of a subcommand of which only the help was asked for.
type Help struct {
	text string
	// What it has, for completion.
	flags   *pflag.FlagSet
	formats []string // of -o
	table   []Command
}

// Error implements error.
func (h *Help) Error() string { return "help was asked for" }
