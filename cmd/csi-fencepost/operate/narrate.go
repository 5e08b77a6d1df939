package operate

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// narrate returns levels whose agents print each step of one node as it ends.
func narrate(levels agent.Levels, node string, w io.Writer) agent.Levels {
	n := &narrator{w: w, said: map[string]string{}}
	told := make(agent.Levels, len(levels))
	for i, level := range levels {
		for _, b := range level {
			if b.Agent.Covers(node) {
				n.width = max(n.width, len(b.Agent.Name()))
			}
			b.Agent = &narrated{b.Agent, n}
			told[i] = append(told[i], b)
		}
	}
	return told
}

type narrator struct {
	w     io.Writer
	width int // of the agents' names

	mu   sync.Mutex
	said map[string]string // the last line of each agent, without times
}

// say prints a step; an agent that reads the same again and again, once.
func (n *narrator) say(name, action, answer string, begun time.Time, detail string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if line := action + answer; n.said[name] == line {
		return
	} else {
		n.said[name] = line
	}
	line := fmt.Sprintf("  %-*s  %-6s  %-7s  %6s  %s", n.width, name, action, answer, cli.Took(time.Since(begun)), printable.Line(detail))
	fmt.Fprintln(n.w, strings.TrimRight(line, " "))
}

// narrated is an agent whose calls are printed.
type narrated struct {
	agent.Agent
	n *narrator
}

// Unwrap is for agent.Seeks.
func (a *narrated) Unwrap() agent.Agent { return a.Agent }

// Status implements agent.Agent.
func (a *narrated) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	begun := time.Now()
	r, err := agent.Read(ctx, a.Agent, m)
	answer, detail := r.State.String(), r.Detail
	if err != nil {
		answer, detail = agent.Unclear.String(), cli.OneLineOf(err)
	}
	a.n.say(a.Name(), "status", answer, begun, detail)
	return r, err
}

// Off implements agent.Agent.
func (a *narrated) Off(ctx context.Context, m agent.Machine) (string, error) {
	return a.act(ctx, m, "off", a.Agent.Off)
}

// On implements agent.Agent.
func (a *narrated) On(ctx context.Context, m agent.Machine) (string, error) {
	return a.act(ctx, m, "on", a.Agent.On)
}

func (a *narrated) act(ctx context.Context, m agent.Machine, action string, f func(context.Context, agent.Machine) (string, error)) (string, error) {
	begun := time.Now()
	detail, err := f(ctx, m)
	answer, said := "sent", detail
	if err != nil {
		answer, said = "failed", cli.OneLineOf(err)
	}
	a.n.say(a.Name(), action, answer, begun, said)
	return detail, err
}
