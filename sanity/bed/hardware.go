package bed

import (
	"context"
	"errors"
	"sync"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/machine"
)

// hardware is the machine under one Node and under the drivers on it: what a
// power switch switches.
type hardware struct {
	kube *controlplane.Node
	vm   *machine.Machine // nil: there is no virtual machine

	switching sync.Mutex // one change of the power at a time
	booting   *boot      // the latest; under switching

	mu      sync.Mutex
	off     bool
	drivers []*Node
}

// boot of a machine, which takes its time.
type boot struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended
}

// wait returns how the boot ended.
func (b *boot) wait() error {
	if b == nil {
		return nil
	}
	<-b.ended
	return b.err
}

// On tells whether the machine has power. A virtual machine that runs has,
// whoever switched it off.
func (h *hardware) On() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.off || h.vm != nil && h.vm.Running()
}

// Set is a BMC's power switch. A machine that is powered on boots in its own
// time, under a new boot ID.
func (h *hardware) Set(on bool) error {
	if !on {
		return h.powerOff()
	}
	_, err := h.powerOn()
	return err
}

// powerOff also ends a boot.
func (h *hardware) powerOff() error {
	h.switching.Lock()
	defer h.switching.Unlock()
	if h.booting != nil {
		h.booting.cancel()
		<-h.booting.ended
	}
	if h.vm != nil {
		h.vm.Kill()
	}
	err := h.each(true, func(n *Node) error { return n.stage.Array.PowerOff(n.ID) })
	h.kube.PowerOff()
	for _, n := range h.nodes() {
		if n.stage.disks != nil {
			n.stage.disks.forget(n.ID)
		}
	}
	return err
}

// powerOn begins a boot. It does nothing to a machine that runs, and returns its
// latest boot; nil: it was never off.
func (h *hardware) powerOn() (*boot, error) {
	h.switching.Lock()
	defer h.switching.Unlock()
	if h.On() {
		return h.booting, nil
	}
	err := h.each(false, func(n *Node) error { return n.stage.Array.PowerOn(n.ID) })
	ctx, cancel := context.WithCancel(context.Background())
	b := &boot{cancel: cancel, ended: make(chan struct{})}
	h.booting = b
	go func() {
		defer close(b.ended)
		defer cancel()
		b.err = h.boot(ctx)
	}()
	return b, err
}

// boot starts the virtual machine, if there is one, and then the kubelet.
func (h *hardware) boot(ctx context.Context) error {
	if h.vm != nil {
		if err := h.bootVM(ctx); err != nil {
			return err
		}
	}
	return h.kube.Boot(ctx)
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

// nodes are the drivers' nodes on the machine.
func (h *hardware) nodes() []*Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*Node(nil), h.drivers...)
}
