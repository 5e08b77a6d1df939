package bed

import (
	"context"
	"errors"
	"sync"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// hardware is the machine under one Node and under the drivers on it: what a
// power switch switches.
type hardware struct {
	kube *controlplane.Node

	switching sync.Mutex // one change of the power at a time
	mu        sync.Mutex
	off       bool
	drivers   []*Node
}

// On tells whether the machine has power.
func (h *hardware) On() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.off
}

// Set is a BMC's power switch. A machine that is powered on boots in its own
// time, under a new boot ID.
func (h *hardware) Set(on bool) error {
	if !on {
		return h.powerOff()
	}
	return h.powerOn(func() { go h.kube.Boot(context.Background()) })
}

func (h *hardware) powerOff() error {
	h.switching.Lock()
	defer h.switching.Unlock()
	err := h.each(true, func(n *Node) error { return n.stage.Array.PowerOff(n.ID) })
	h.kube.PowerOff()
	return err
}

// powerOn does nothing to a machine that runs.
func (h *hardware) powerOn(boot func()) error {
	h.switching.Lock()
	defer h.switching.Unlock()
	if h.On() {
		return nil
	}
	err := h.each(false, func(n *Node) error { return n.stage.Array.PowerOn(n.ID) })
	boot()
	return err
}

// each notes the power and tells the drivers' arrays.
func (h *hardware) each(off bool, tell func(*Node) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.off = off
	var errs []error
	for _, n := range h.drivers {
		errs = append(errs, tell(n))
	}
	return errors.Join(errs...)
}

func (h *hardware) add(n *Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drivers = append(h.drivers, n)
}
