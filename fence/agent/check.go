package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Fault is one reason why a node could not be fenced, or not that node alone.
type Fault struct {
	Node string `json:"node"`
	// Agent and Level are empty where the fault is not one agent's.
	Agent string `json:"agent,omitempty"`
	Level int    `json:"level,omitempty"`
	Text  string `json:"text"`
}

func (f Fault) String() string {
	if f.Agent == "" {
		return fmt.Sprintf("node %s: %s", f.Node, f.Text)
	}
	return fmt.Sprintf("node %s: agent %s (level %d): %s", f.Node, f.Agent, f.Level, f.Text)
}

// checksAtOnce bounds how many devices are asked at the same time.
const checksAtOnce = 8

// Check tells what would keep the levels from fencing the machines. It touches
// no power: a Checker is checked, any other agent is asked for the status.
// Found are nodes that no level covers, levels that are passed over because
// only some of their agents cover a node, every agent's own faults, and nodes
// that share one device. The order is that of node, level and agent.
func (l Levels) Check(ctx context.Context, machines []Machine) []Fault {
	c := &check{slots: make(chan struct{}, checksAtOnce), devices: map[string][]probe{}}
	for _, m := range machines {
		if !l.Covers(m.Node) {
			c.fault(probe{node: m.Node}, "no level covers it: it cannot be fenced")
		}
		asked := map[string]bool{}
		for i, level := range l {
			c.coverage(i+1, level, m)
			for _, b := range level {
				if name := b.Agent.Name(); b.Agent.Covers(m.Node) && !asked[name] {
					asked[name] = true
					c.start(ctx, b, m, probe{m.Node, name, i + 1})
				}
			}
		}
	}
	c.wg.Wait()
	c.shared()
	slices.SortFunc(c.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Level, b.Level), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Text, b.Text))
	})
	return c.faults
}

// probe is one agent asked about one node.
type probe struct {
	node, agent string
	level       int
}

type check struct {
	wg    sync.WaitGroup
	slots chan struct{}

	mu     sync.Mutex
	faults []Fault
	// devices by agent and device text.
	devices map[string][]probe
}

func (c *check) fault(p probe, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, Fault{Node: p.node, Agent: p.agent, Level: p.level, Text: clip(fmt.Sprintf(format, args...), maxWords)})
}

// coverage finds a level that is passed over although it was meant to help.
func (c *check) coverage(n int, level Level, m Machine) {
	var lacking []string
	for _, b := range level {
		if !b.Agent.Covers(m.Node) {
			lacking = append(lacking, b.Agent.Name())
		}
	}
	if len(lacking) > 0 && len(lacking) < len(level) {
		c.fault(probe{node: m.Node}, "level %d is passed over: agent %s does not cover it", n, strings.Join(lacking, ", "))
	}
}

func (c *check) start(ctx context.Context, b Bounded, m Machine, p probe) {
	c.wg.Go(func() {
		c.slots <- struct{}{}
		defer func() { <-c.slots }()
		device, faults := b.check(ctx, m)
		for _, err := range faults {
			c.fault(p, "%v", err)
		}
		if device != "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			key := p.agent + "\x00" + device
			c.devices[key] = append(c.devices[key], p)
		}
	})
}

// check asks one agent about one machine, within its time limit.
func (b Bounded) check(ctx context.Context, m Machine) (string, []error) {
	checker, ok := b.Agent.(Checker)
	if !ok {
		if a := b.status(ctx, m, b.timeout()); a.err != nil {
			return "", []error{fmt.Errorf("its status cannot be read: %w", a.err)}
		}
		return "", nil
	}
	var faults []error
	a, _ := bound(ctx, b.timeout(), func(ctx context.Context) answer {
		device, found := checker.Check(ctx, m)
		return answer{Reading{Detail: device}, errors.Join(found...)}
	})
	if joined, ok := a.err.(interface{ Unwrap() []error }); ok && !errors.Is(a.err, errHangs) {
		faults = joined.Unwrap()
	} else if a.err != nil {
		faults = []error{a.err}
	}
	return a.reading.Detail, faults
}

// shared finds nodes that would be fenced together.
func (c *check) shared() {
	for key, probes := range c.devices {
		if len(probes) < 2 {
			continue
		}
		_, device, _ := strings.Cut(key, "\x00")
		for _, p := range probes {
			var others []string
			for _, q := range probes {
				if q.node != p.node {
					others = append(others, q.node)
				}
			}
			if len(others) > 0 {
				slices.Sort(others)
				c.fault(p, "it would act on node %s too: both have the device %s", strings.Join(others, ", "), device)
			}
		}
	}
}
