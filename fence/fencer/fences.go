package fencer

import (
	"context"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Fence is what a node's record says of one fence.
type Fence struct {
	ID   string
	Node string
	// NodeUID, BootID and LeaseRV of the machine, the lease read after the
	// agent's observation. They stay as they were when the fence becomes void.
	// Where the Node was gone, UID and boot ID are a ledger's, and so those of a
	// publish.
	NodeUID, BootID, LeaseRV string
	// SystemUUID of the machine as its Node reported it; empty: not known.
	SystemUUID string
	// NodeIDs of the machine, by driver, as far as they are known.
	NodeIDs map[string]string
	Kind    fence.Kind
	// Driver that a storage fence is of; of a power fence empty.
	Driver string
	// Others tells that it is the storage fence of another driver than the Fencer's, which that
	// driver's sidecar makes and lifts. FencesOf has none of these.
	Others bool
	// OwnWord says, of a storage fence that was found, that nobody but its Node says that what is
	// cut off is its address (record.Fence).
	OwnWord bool
	// Source names the agents.
	Source string
	// Cut tells that the machine was switched or cut off, not found off; Sidecar, that no person did
	// it.
	Cut, Sidecar bool
	// At is the writer's clock. The brakes count by it; nothing is permitted by
	// it.
	At time.Time
	// Missed says what a machine that runs would have done and this one did not, where somebody
	// who may fence vouches for that too (record.Early). Empty: nothing is known to be missing.
	Missed string
	// Void says why it does not count any more; empty: it does.
	Void string
	// Lifting tells that access is being given back. The fence is still to be lifted, and proves
	// nothing.
	Lifting bool
	// Vouched tells that an account that may fence wrote it just so (record.Vouched).
	Vouched bool
	// Timed tells that such an account vouches for Cut, At and NodeIDs, for this fence or since it
	// ended (record.Fence.Cutting).
	Timed bool
	// Witness of a storage fence, as the record has it.
	Witness *record.Witness
}

// FencesOf reads the node's record live: its power fence and the storage fence of
// this driver, in this order, as far as they count or are to be lifted.
func (f *Fencer) FencesOf(ctx context.Context, node string) ([]Fence, error) {
	r, err := f.Records.Get(ctx, node)
	if err != nil {
		return nil, err
	}
	return Standing(r, f.Driver), nil
}

// Fences reads the fences of all nodes, void ones too. Records that cannot be read
// are left out: what they claim does not count. So are fences that failed, unless an
// off was taken: the machine may well be off.
func (f *Fencer) Fences(ctx context.Context) ([]Fence, error) {
	records, _, err := f.Records.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []Fence
	for _, r := range records {
		for i := range r.Fences {
			one := &r.Fences[i]
			if one.Phase == record.Failed && !one.Cuts() {
				continue
			}
			shown := fenceOf(r, one)
			shown.Others = one.Kind == fence.StorageFence && one.Driver != f.Driver
			all = append(all, *shown)
		}
	}
	return all, nil
}

// Witness writes into the node's record, at the storage fence with that ID, that its
// kubelet was seen to list what had moved off the node. Nothing is written where that
// fence does not stand any more.
func (f *Fencer) Witness(ctx context.Context, node, fenceID string, seen record.Witness) error {
	if f.ReadOnly {
		return refuse(node, "note the witness", "nothing is changed here (mode Observe, or a command that only reads)")
	}
	seen.Actor = f.Actor
	_, err := f.Records.Update(ctx, node, func(r *record.Record) (bool, error) { return r.PutWitness(fenceID, seen), nil })
	return err
}

// Standing are the fences of a record that count, or are still to be lifted: the
// power fence, then the driver's storage fence.
func Standing(r *record.Record, driver string) (all []Fence) {
	for _, kind := range []fence.Kind{fence.PowerReading, fence.StorageFence} {
		if f := r.Fence(kind, driver); f != nil && f.Standing() {
			all = append(all, *fenceOf(r, f))
		}
	}
	return all
}

func fenceOf(r *record.Record, f *record.Fence) *Fence {
	out := &Fence{ID: f.ID, Node: r.Node, Vouched: r.Vouched(f), Timed: r.Vouched(f.Cutting()), NodeUID: f.Machine.NodeUID, BootID: f.Machine.BootID, LeaseRV: f.Machine.LeaseRV,
		SystemUUID: f.Machine.SystemUUID, NodeIDs: f.Machine.NodeIDs, Kind: f.Kind, Driver: f.Driver, OwnWord: f.OwnWord, Source: strings.Join(f.Agents, ", "), Cut: f.Cuts(), Sidecar: f.BySidecar(), Lifting: f.BeingLifted(), Witness: f.Witness}
	if r.Vouched(f.Missing()) {
		out.Missed = f.Missed
	}
	// A time that cannot be read is long ago: it only counts for the brakes.
	out.At, _ = time.Parse(time.RFC3339, f.StartedAt)
	if f.Phase == record.Fenced {
		// A fence that was cut anew began with the first.
		for _, s := range f.Steps {
			if at, err := time.Parse(time.RFC3339, s.At); err == nil && s.Action == "off" && at.After(out.At) {
				out.At = at
			}
		}
	}
	if !f.Current() {
		out.Void = f.Why
		if out.Void == "" {
			out.Void = string(f.Phase)
		}
	}
	return out
}
