package bmc

import "sync"

// PowerSwitch is what a BMC switches. It is called by one BMC at a time, and by
// several BMCs at once if several share it.
type PowerSwitch interface {
	// On tells whether the machine has power.
	On() bool
	// Set gives or cuts power, and returns when that is done.
	Set(on bool) error
}

// Machine is a PowerSwitch that remembers.
type Machine struct {
	// Changed is called, if set, with each command, before it counts; an error
	// is the BMC's answer, and the power stays as it was. Set it before Start.
	Changed func(on bool) error

	mu       sync.Mutex
	on       bool
	commands []bool
}

// NewMachine returns a machine that is on or off.
func NewMachine(on bool) *Machine { return &Machine{on: on} }

func (m *Machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

func (m *Machine) Set(on bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands = append(m.commands, on)
	if m.Changed != nil {
		if err := m.Changed(on); err != nil {
			return err
		}
	}
	m.on = on
	return nil
}

// Commands are the power commands that reached the machine, oldest first.
func (m *Machine) Commands() []bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]bool(nil), m.commands...)
}
