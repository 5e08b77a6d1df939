package contract

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// call is one action at one platform.
type call struct {
	p        *Program
	agent    *Agent
	platform Platform
	v        Values
}

func (p *Program) act(ctx context.Context, a *Agent, action string, v Values) (int, error) {
	needsPlug := !a.Plugless && action != "list" && action != "monitor"
	if needsPlug && v[plug] == "" {
		return 0, errors.New("parameter plug is missing: the machine")
	}
	platform, err := a.Open(ctx, v)
	if err != nil {
		return 0, err
	}
	if s, ok := platform.(Session); ok {
		defer s.Close(context.WithoutCancel(ctx))
	}
	c := &call{p, a, platform, v}
	switch action {
	case "status":
		return c.status(ctx)
	case "off":
		return exitOK, c.off(ctx)
	case "on":
		return exitOK, c.on(ctx)
	case "reboot":
		if err := c.off(ctx); err != nil {
			return 0, err
		}
		return exitOK, c.on(ctx)
	case "list", "monitor":
		return exitOK, c.list(ctx, action == "list")
	}
	return 0, fmt.Errorf("action %s is not written", action)
}

func (c *call) status(ctx context.Context) (int, error) {
	m, err := c.find(ctx)
	if err != nil {
		return 0, err
	}
	switch m.State {
	case On:
		fmt.Fprintln(c.p.Stdout, "Status: ON")
		c.identify(m)
		return exitOn, nil
	case Off:
		fmt.Fprintln(c.p.Stdout, "Status: OFF")
		c.identify(m)
		return exitOff, nil
	}
	return 0, neither(m)
}

func neither(m *Machine) error {
	return fmt.Errorf("machine %s is %s, which is neither on nor off", m.ID, m.Says)
}

// identify prints who the machine is, by the platform's own word.
func (c *call) identify(m *Machine) {
	if m.ID != "" {
		fmt.Fprintf(c.p.Stdout, "Identity: %s\n", plain(m.ID))
	}
	if !placeholder(m.UUID) {
		fmt.Fprintf(c.p.Stdout, "Identity: %s\n", plain(m.UUID))
	}
}

// find reads the machine, and holds it against the UUID that it has to have.
func (c *call) find(ctx context.Context) (*Machine, error) {
	m, err := c.platform.Find(ctx, c.v[plug])
	if err != nil {
		return nil, err
	}
	switch want := c.v[uuid]; {
	case want == "":
	case want == noUUID:
		m.UUID = ""
	case SameUUID(want, m.UUID):
		m.UUID = want // in the order in which the machine itself prints it
	case placeholder(m.UUID):
		return nil, fmt.Errorf("the platform says no system UUID of machine %s (it says %q): leave out uuid if another parameter tells for certain which it is", m.ID, m.UUID)
	default:
		return nil, fmt.Errorf("machine %s has the system UUID %s, and %s is meant: it is another one", m.ID, m.UUID, want)
	}
	return m, nil
}

// off cuts the power and waits until the platform says so. What is off is left alone.
func (c *call) off(ctx context.Context) error {
	m, err := c.find(ctx)
	if err != nil || m.State == Off {
		return err
	}
	if err := c.platform.Off(ctx, m); err != nil {
		return fmt.Errorf("off: %w", err)
	}
	return c.await(ctx, Off)
}

// on gives power and waits until the machine runs.
func (c *call) on(ctx context.Context) error {
	m, err := c.find(ctx)
	if err != nil || m.State == On {
		return err
	}
	if err := c.platform.On(ctx, m); err != nil {
		return fmt.Errorf("on: %w", err)
	}
	return c.await(ctx, On)
}

// await looks until the machine is in that state. An error in between may pass.
func (c *call) await(ctx context.Context, want State) error {
	every := c.p.Interval
	if every <= 0 {
		every = time.Second
	}
	for {
		m, err := c.find(ctx)
		if err == nil {
			if m.State == want {
				return nil
			}
			err = fmt.Errorf("machine %s is %s", m.ID, m.Says)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it was commanded, and not seen to be done: %w", err)
		case <-time.After(every):
		}
	}
}

func (c *call) list(ctx context.Context, show bool) error {
	if c.agent.Plugless {
		m, err := c.find(ctx)
		if err == nil && show {
			fmt.Fprintf(c.p.Stdout, "%s,%s\n", plain(m.ID), plain(m.Name))
		}
		return err
	}
	all, err := c.platform.List(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if show {
			fmt.Fprintf(c.p.Stdout, "%s,%s\n", plain(m.ID), plain(m.Name))
		}
	}
	return nil
}
