package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// A command is one subcommand. It is given the arguments after its name, and
// prints its result to stdout. A usageError it returns is exit code 2, a
// helpAsked is printed and no failure, any other error is exit code 1.
type command struct {
	Name    string
	Summary string
	Run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// runCommands dispatches to a subcommand of the table, prints its error, and
// returns the exit code.
func runCommands(ctx context.Context, table []command, args []string, stdout, stderr io.Writer) int {
	name, rest, err := chooseCommand(table, args)
	if err == nil && name == "help" {
		printHelp(stdout, table)
		return exitOK
	}
	if err == nil {
		err = find(ctx, table, "", name, rest, stdout, stderr)
	}
	var help *helpAsked
	if errors.As(err, &help) {
		_, err = io.WriteString(stdout, help.text)
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
func chooseCommand(table []command, args []string) (name string, rest []string, err error) {
	if len(args) == 0 {
		return "", nil, usagef("no subcommand is given: one of %s", namesOf(table, "help"))
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

// find runs the subcommand with that name.
func find(ctx context.Context, table []command, of, name string, args []string, stdout, stderr io.Writer) error {
	for _, c := range table {
		if c.Name == name {
			return c.Run(ctx, args, stdout, stderr)
		}
	}
	if of != "" {
		return usagef("%s: unknown subcommand %q: one of %s", of, name, namesOf(table))
	}
	return usagef("unknown subcommand %q: one of %s", name, namesOf(table, "help"))
}

// group is a subcommand that has subcommands of its own; help is printed where
// it is asked for.
func group(name, summary, help string, table ...command) command {
	run := func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		if len(args) == 0 {
			return usagef("%s: no subcommand is given: one of %s", name, namesOf(table))
		}
		switch args[0] {
		case "-h", "--help", "help":
			return helpError(help)
		}
		return find(ctx, table, name, args[0], args[1:], stdout, stderr)
	}
	return command{Name: name, Summary: summary, Run: run}
}

// namesOf the subcommands, and of more, as a sentence lists them.
func namesOf(table []command, more ...string) string {
	var list []string
	for _, c := range table {
		list = append(list, c.Name)
	}
	return strings.Join(append(list, more...), ", ")
}

func printHelp(w io.Writer, table []command) {
	fmt.Fprint(w, "csi-fencepost guards the single-writer volumes of a CSI driver.\n\nUsage: csi-fencepost SUBCOMMAND [flags]\n\n")
	for _, c := range table {
		fmt.Fprintf(w, "  %-9s %s\n", c.Name, c.Summary)
	}
	fmt.Fprint(w, "  help      this text; help SUBCOMMAND, the flags of a subcommand\n")
}

// A usageError says that the program was asked wrongly.
type usageError struct{ text string }

// Error implements error.
func (e usageError) Error() string { return e.text }

// usagef is an error of the command line: exit code 2.
func usagef(format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...)}
}

// helpAsked is the error of a subcommand of which only the help was asked for.
type helpAsked struct{ text string }

// helpError is the error of a subcommand of which only this help was asked for.
func helpError(text string) error { return &helpAsked{text} }

// Error implements error.
func (h *helpAsked) Error() string { return "help was asked for" }
