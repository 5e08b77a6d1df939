package array

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	fencepb "github.com/csi-addons/spec/lib/go/fence"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Names of CSI methods as Faults and Calls have them. Any other method of the
// driver's services can be named as well.
const (
	Publish   = "ControllerPublishVolume"
	Unpublish = "ControllerUnpublishVolume"
)

// Action is what a Fault does to a call.
type Action int

const (
	// Proceed does the call, after the fault's Delay.
	Proceed Action = iota
	// Fail does nothing and answers with the fault's code and message. With
	// codes.NotFound it is the driver that cannot find a node any more.
	Fail
	// DoThenFail does the call and answers with the code and message all the
	// same: the answer that got lost.
	DoThenFail
	// Lie does nothing and answers OK. Only for Publish, Unpublish, Fence and
	// Unfence.
	Lie
	// Hang answers nothing until the caller gives up; then nothing is done.
	// Clear lets the call proceed.
	Hang
	// HangThenDo answers nothing until the caller gives up, and then does the
	// call, Delay later: the orphan attachment. Clear lets the call proceed.
	HangThenDo
)

// Fault changes what the driver does with some calls. The call's arguments are
// not looked at before, its secrets are.
type Fault struct {
	// Method is the CSI method, such as Publish or "NodeStageVolume".
	Method string
	// Volume and Node narrow it to a volume ID or a node ID; empty: any. The
	// node of a call on a node socket is that node.
	Volume, Node string
	Do           Action
	// Times is how many calls it hits; 0: all, until it is cleared.
	Times int
	// Delay passes before the action (for HangThenDo: after the caller gave
	// up). A caller that gives up during the delay ends the call undone.
	Delay time.Duration
	// Code and Message are the answer of Fail and DoThenFail;
	// INTERNAL and a plain sentence if not set.
	Code    codes.Code
	Message string
}

// Injection is a Fault in force.
type Injection struct {
	fault   Fault
	array   *Array
	cleared chan struct{}
	once    sync.Once
	hits    int // under array.mu
}

// Inject puts a fault in force. Of several that match a call, the one injected
// first takes it. Inject panics on a fault that cannot be: it is a mistake in a
// scenario's text.
func (a *Array) Inject(fault Fault) *Injection {
	if fault.Method == "" {
		panic("array: Inject: Fault.Method is empty; name a CSI method, such as array.Publish")
	}
	if fault.Do == Lie && emptyAnswer(fault.Method) == nil {
		panic(fmt.Sprintf("array: Inject: Lie is for %s, %s, %s and %s, not for %s", Publish, Unpublish, Fence, Unfence, fault.Method))
	}
	if fault.Code == codes.OK {
		fault.Code = codes.Internal
	}
	if fault.Message == "" {
		fault.Message = "the array failed to do " + fault.Method
	}
	injection := &Injection{fault: fault, array: a, cleared: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, injection)
	return injection
}

// Clear takes the fault out of force and lets hanging calls proceed.
func (i *Injection) Clear() {
	i.once.Do(func() { close(i.cleared) })
	i.array.mu.Lock()
	defer i.array.mu.Unlock()
	i.array.faults = slices.DeleteFunc(i.array.faults, func(x *Injection) bool { return x == i })
}

// Hits is how many calls the fault has hit.
func (i *Injection) Hits() int {
	i.array.mu.Lock()
	defer i.array.mu.Unlock()
	return i.hits
}

// ClearFaults takes all faults out of force.
func (a *Array) ClearFaults() {
	a.mu.Lock()
	faults := slices.Clone(a.faults)
	a.mu.Unlock()
	for _, i := range faults {
		i.Clear()
	}
}

// takeFault is the fault that hits this call, or nil.
func (a *Array) takeFault(method, volumeID, nodeID string) *Injection {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range a.faults {
		f := i.fault
		if f.Method != method || (f.Volume != "" && f.Volume != volumeID) || (f.Node != "" && f.Node != nodeID) {
			continue
		}
		if f.Times > 0 && i.hits >= f.Times {
			continue
		}
		i.hits++
		a.changedLocked()
		return i
	}
	return nil
}

// apply puts a call through the fault. do is the call itself.
func (i *Injection) apply(ctx context.Context, do func(context.Context) (any, error)) (any, error) {
	f := i.fault
	if f.Do != HangThenDo {
		if err := wait(ctx, f.Delay); err != nil {
			return nil, err
		}
	}
	switch f.Do {
	case Fail:
		return nil, status.Error(f.Code, f.Message)
	case DoThenFail:
		if _, err := do(ctx); err != nil {
			return nil, err
		}
		return nil, status.Error(f.Code, f.Message)
	case Lie:
		return emptyAnswer(f.Method), nil
	case Hang, HangThenDo:
		return i.hang(ctx, do)
	}
	return do(ctx)
}

func (i *Injection) hang(ctx context.Context, do func(context.Context) (any, error)) (any, error) {
	select {
	case <-i.cleared:
		return do(ctx)
	case <-ctx.Done():
	}
	if i.fault.Do == HangThenDo {
		i.array.work.Go(func() {
			running := i.array.running
			if wait(running, i.fault.Delay) == nil && running.Err() == nil {
				do(running) // nobody is left to hear an error
			}
		})
	}
	return nil, status.FromContextError(ctx.Err()).Err()
}

// wait lets d pass, or says as a status that the caller has given up.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func emptyAnswer(method string) any {
	switch method {
	case Publish:
		return &spec.ControllerPublishVolumeResponse{}
	case Unpublish:
		return &spec.ControllerUnpublishVolumeResponse{}
	case Fence:
		return &fencepb.FenceClusterNetworkResponse{}
	case Unfence:
		return &fencepb.UnfenceClusterNetworkResponse{}
	}
	return nil
}
