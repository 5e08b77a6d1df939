package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Exit codes of the contract.
const (
	exitOn    = 0
	exitOK    = 0
	exitError = 1
	exitOff   = 2
)

// prefix of the names by which agents are called, as links to this program.
const prefix = "fence_fencepost_"

// actions in the order of the metadata.
var actions = []string{"on", "off", "reboot", "status", "list", "monitor", "metadata"}

// Program is a program of several agents.
type Program struct {
	Name, Version string
	Agents        []*Agent
	Stdin         io.Reader
	Stdout        io.Writer
	Stderr        io.Writer
	// Interval between two looks at a machine that is to be off or on; 0: 1 s.
	Interval time.Duration
}

// Run is the whole program: args[0] is the name by which it was called, fence_fencepost_NAME, or
// its own, which is followed by an agent's name. It returns the exit code.
func (p *Program) Run(ctx context.Context, args []string) int {
	called, rest := filepath.Base(args[0]), args[1:]
	name, linked := strings.CutPrefix(called, prefix)
	if !linked {
		if len(rest) == 0 || rest[0] == "help" || rest[0] == "--help" || rest[0] == "-h" {
			p.usage(p.Stdout)
			return exitOK
		}
		if rest[0] == "version" || rest[0] == "--version" {
			fmt.Fprintln(p.Stdout, p.Version)
			return exitOK
		}
		name, rest = strings.TrimPrefix(rest[0], prefix), rest[1:]
	}
	at := slices.IndexFunc(p.Agents, func(a *Agent) bool { return a.Name == name })
	if at < 0 {
		fmt.Fprintf(p.Stderr, "%s: there is no agent %q\n", p.Name, name)
		p.usage(p.Stderr)
		return exitError
	}
	return p.run(ctx, p.Agents[at], rest)
}

func (p *Program) usage(out io.Writer) {
	fmt.Fprintf(out, "%s AGENT, or called as %sAGENT by a link, with the options on standard input (key=value) or as --key=value:\n\n", p.Name, prefix)
	for _, a := range p.Agents {
		fmt.Fprintf(out, "  %-10s %s\n", a.Name, a.Short)
	}
	fmt.Fprintf(out, "\n%s AGENT --action=metadata prints an agent's parameters. Actions: %s.\n", p.Name, strings.Join(actions, ", "))
}

func (p *Program) run(ctx context.Context, a *Agent, args []string) (code int) {
	var v Values
	more := &fetched{}
	fail := func(err error, v Values) int {
		fmt.Fprintf(p.Stderr, "%s%s: %s\n", prefix, a.Name, a.strike(err.Error(), v, more.list()))
		return exitError
	}
	// Go ends a program that panics with 2, which is off.
	defer func() {
		if fault := recover(); fault != nil {
			code = fail(fmt.Errorf("a fault of this program, nothing is known of the machine: %v: %s", fault, debug.Stack()), v)
		}
	}()
	given, err := p.given(args)
	if err != nil {
		return fail(err, nil)
	}
	action, ok := given["action"]
	delete(given, "action")
	switch {
	case !ok || action == "":
		return fail(fmt.Errorf("no action is given: name one of %s", strings.Join(actions, ", ")), nil)
	case !slices.Contains(actions, action):
		return fail(fmt.Errorf("there is no action %q, only %s", action, strings.Join(actions, ", ")), nil)
	case action == "metadata":
		if err := a.writeMetadata(p.Stdout); err != nil {
			return fail(err, nil)
		}
		return exitOK
	}
	v, err = a.values(given)
	if err != nil {
		return fail(err, Values(given))
	}
	within, err := v.seconds(timeout)
	if err != nil {
		return fail(err, v)
	}
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, fetchedKey{}, more), within, fmt.Errorf("the time (timeout=%s) is over", v[timeout]))
	defer cancel()
	code, err = p.act(ctx, a, action, v)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return fail(err, v)
	}
	return code
}

// given reads arguments, and the standard input where there are none but the action.
func (p *Program) given(args []string) (map[string]string, error) {
	flags := map[string]string{}
	for i := 0; i < len(args); i++ {
		key, value, has := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		if args[i] == "-o" {
			key = "action"
		} else if !strings.HasPrefix(args[i], "--") || key == "" {
			return nil, fmt.Errorf("argument %d is neither --key=value nor -o ACTION", i+1)
		}
		if !has {
			if i++; i == len(args) {
				return nil, fmt.Errorf("argument %d has no value", i)
			}
			value = args[i]
		}
		if err := give(flags, key, value); err != nil {
			return nil, err
		}
	}
	if len(args) > 0 {
		return flags, nil
	}
	return readInput(p.Stdin)
}
