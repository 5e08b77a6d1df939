package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// Phase is where a fence stands.
type Phase string

const (
	// Fencing is written before the first off is sent. What became of it is not known; whoever gets
	// the lock asks for the status first.
	Fencing Phase = "Fencing"
	// Fenced means that the agents' own reading said off. It is the only phase that proves
	// something. Next: Void, or for a storage fence Lifting.
	Fenced Phase = "Fenced"
	// Lifting means that the access that a storage fence cut is being given back. It is written
	// before the first request that does so: the fence proves nothing, and is still to be lifted.
	// Next: Lifted, or Refencing.
	Lifting Phase = "Lifting"
	// Refencing means that what is being lifted is cut anew; it is written before the first off. It
	// proves nothing, and is still to be lifted. Next: Fenced, or Lifting again.
	Refencing Phase = "Refencing"
	// Failed means that no reading said off. It proves nothing.
	Failed Phase = "Failed"
	// Void means that it proves nothing any more; Fence.Why says since what, and Fence.Ending
	// whether that is more than that the node is back.
	Void Phase = "Void"
	// Lifted means that a storage fence was taken back, confirmed by a reading.
	Lifted Phase = "Lifted"
)

// Ending is how a fence became Void, where that matters to those who come later. Empty:
// it does not.
type Ending string

const (
	// Withdrawn means that a person took the fence's word back. What a storage fence cut is still
	// cut, for all that the record says.
	Withdrawn Ending = "Withdrawn"
	// PowerGivenBack means that somebody began to switch the machine on again.
	PowerGivenBack Ending = "PowerGivenBack"
)

// Fence is one attempt to fence the node, or a reading that it is off, with
// what was asked and answered. A power fence is for the node, a storage fence
// for the volumes of one driver.
type Fence struct {
	ID string `json:"id"`
	// Kind is fence.PowerReading or fence.StorageFence. While Fencing it is
	// what the agent that is being asked would prove.
	Kind fence.Kind `json:"kind"`
	// Driver of a storage fence, the CSI driver's name.
	Driver string `json:"driver,omitempty"`
	// What is cut, in the agents' own words: addresses, an outlet.
	What    string        `json:"what,omitempty"`
	Machine FencedMachine `json:"machine"`
	Phase   Phase         `json:"phase"`
	// OwnWord says, of a storage fence, that nobody but its Node says that what was found cut off is
	// its address (fence.Evidence). It is empty also where that is what this driver's fence itself
	// cut.
	OwnWord bool `json:"ownWord,omitzero"`
	// Actor is who fenced, Reason why.
	Actor  string `json:"actor"`
	Reason string `json:"reason,omitempty"`
	// Forced tells that a person had it done although the node may have been alive.
	Forced bool `json:"forced,omitzero"`
	// Missed says what a machine that runs would have done while the agents read this one as off,
	// twice, and did not, where its lease was not silent for long yet. Somebody vouches for it
	// apart (Missing). Empty: nobody has looked.
	Missed string `json:"missed,omitempty"`
	// Agents whose readings prove it.
	Agents []string `json:"agents,omitempty"`
	// StartedAt and EndedAt, RFC 3339 on the writer's clock, are for people.
	StartedAt string `json:"startedAt"`
	EndedAt   string `json:"endedAt,omitempty"`
	// Why it failed, is void or was lifted, for people.
	Why    string `json:"why,omitempty"`
	Ending Ending `json:"ending,omitempty"`
	// LiftReason is why access is being given back, for people, while the fence is
	// Lifting or Refencing.
	LiftReason string `json:"lifting,omitempty"`
	// Witness is what the kubelet was when it was seen to list a volume that had moved
	// off the node, under a storage fence; nil: it was not seen to.
	Witness *Witness `json:"witness,omitempty"`
	// Steps, in order: each request and its answer.
	Steps []FenceStep `json:"steps,omitempty"`

	Later format.Later `json:",embed"`
}

// FencedMachine is what a fence is bound to.
type FencedMachine struct {
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID,omitempty"`
	// LeaseRV is the resourceVersion of the node's lease, read after the
	// observation and equal to the one before it; empty: there was none.
	LeaseRV    string `json:"leaseRV,omitempty"`
	SystemUUID string `json:"systemUUID,omitempty"`
	// NodeIDs of the drivers that took part, by driver.
	NodeIDs map[string]string `json:"nodeIDs,omitempty"`

	Later format.Later `json:",embed"`
}

// Is the machine, as package fence compares it.
func (m FencedMachine) Is() fence.Machine {
	return fence.Machine{NodeUID: m.NodeUID, BootID: m.BootID, SystemUUID: m.SystemUUID}
}

// Same tells whether both are one machine in one boot, or under one Node that reports none.
func (m FencedMachine) Same(o FencedMachine) bool {
	return m.NodeUID == o.NodeUID && m.BootID == o.BootID && m.Is().Compare(o.Is()) != fence.Other
}

// Witness is a kubelet that was seen to list, under a storage fence, a volume that had
// moved off its node: once it lists none, it has unmounted it. A kubelet that restarts may
// forget what is mounted, so that another boot, or a break in being Ready, is another.
type Witness struct {
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID"`
	// ReadySince is the Ready condition's lastTransitionTime; it is compared for equality
	// only.
	ReadySince string `json:"readySince"`
	// LeaseRV is the fence's: of a fence that was made anew it is no witness.
	LeaseRV string `json:"leaseRV,omitempty"`
	// Actor is who saw it.
	Actor string `json:"actor"`

	Later format.Later `json:",embed"`
}

// Same tells whether both are one kubelet that went on, under one fence, whoever saw it.
// Nothing is the same as nil.
func (w *Witness) Same(o *Witness) bool {
	return w != nil && o != nil && w.NodeUID == o.NodeUID && w.BootID == o.BootID && w.ReadySince == o.ReadySince && w.LeaseRV == o.LeaseRV
}

// PutWitness writes down a witness of the storage fence with that ID. It returns false
// if that does not stand, or has it already. For the change of an Update.
func (r *Record) PutWitness(id string, seen Witness) bool {
	f := r.FenceByID(id)
	if f == nil || f.Kind != fence.StorageFence || !f.Standing() || f.Witness.Same(&seen) {
		return false
	}
	return r.Still(f, func() bool {
		f.Witness = &seen
		return true
	})
}

// FenceStep is one request to an agent and its answer, without secrets.
type FenceStep struct {
	Agent   string `json:"agent"`
	Action  string `json:"action"`
	Attempt int    `json:"attempt,omitzero"`
	State   string `json:"state,omitempty"`
	Detail  string `json:"detail,omitempty"`
	Err     string `json:"err,omitempty"`
	At      string `json:"at"`
	// TookMS is how long it took, in milliseconds.
	TookMS int64 `json:"tookMS"`

	Later format.Later `json:",embed"`
}

// cuts tells whether the request was to cut the node off.
func (st *FenceStep) cuts() bool { return st.Action == "off" }

// Cuts tells whether the fence cuts the node off, or has: not one that was found off, nor one that
// failed with no request taken. The machine of one that failed otherwise may well be off.
func (f *Fence) Cuts() bool {
	if f.Phase == Failed {
		return slices.ContainsFunc(f.Steps, func(st FenceStep) bool { return st.cuts() && st.Err == "" })
	}
	return f.UnderWay() || slices.ContainsFunc(f.Steps, func(st FenceStep) bool { return st.cuts() })
}

// SidecarActor is what a sidecar writes as the actor; a person's is a user's name.
func SidecarActor(driver, host string) string { return sidecar + driver + "@" + host }

const sidecar = "csi-fencepost "

// BySidecar tells whether a sidecar fenced, and not a person.
func (f *Fence) BySidecar() bool { return strings.HasPrefix(f.Actor, sidecar) }

// Current tells whether the fence is under way, proves something or is to be lifted.
func (f *Fence) Current() bool { return f.UnderWay() || f.Phase == Fenced || f.Phase == Lifting }

// UnderWay tells whether somebody cuts, and what became of it is not known.
func (f *Fence) UnderWay() bool { return f.Phase == Fencing || f.Phase == Refencing }

// BeingLifted tells whether the access that the fence cut may be open in part. Such a
// fence proves nothing, and is still to be lifted.
func (f *Fence) BeingLifted() bool { return f.Phase == Lifting || f.Phase == Refencing }

// Standing tells whether access was cut and was not given back as a whole. Unless it is
// Fenced it proves nothing.
func (f *Fence) Standing() bool { return f.Phase == Fenced || f.BeingLifted() }

// Lift begins to give back what a storage fence cut; the reason is for people. It returns
// false where somebody has begun already. For the change of an Update.
func (f *Fence) Lift(reason string) bool {
	switch f.Phase {
	case Fenced:
		f.Phase = Lifting
	case Fencing:
		f.Phase = Refencing
	default:
		return false
	}
	f.LiftReason = clipTo(reason, maxLiftReason)
	return true
}

// CallOffLift takes that back, of a fence of which nothing was given back. It returns
// false where it is not being lifted. For the change of an Update.
func (f *Fence) CallOffLift() bool {
	switch f.Phase {
	case Lifting:
		f.Phase = Fenced
	case Refencing:
		f.Phase = Fencing
	default:
		return false
	}
	f.LiftReason = ""
	return true
}

// key is equal for any two fences of which only one may be current.
func (f *Fence) key() string { return string(f.Kind) + "/" + f.Driver }

func (f *Fence) validate() error {
	switch {
	case f.ID == "":
		return errors.New("it has no id")
	case f.Kind != fence.PowerReading && f.Kind != fence.StorageFence:
		return fmt.Errorf("its kind is %q, neither %s nor %s", f.Kind, fence.PowerReading, fence.StorageFence)
	case (f.Kind == fence.StorageFence) != (f.Driver != ""):
		return errors.New("a storage fence is of one driver, a power fence of none")
	case f.Machine.NodeUID == "":
		return errors.New("its machine has no nodeUID")
	case f.Actor == "":
		return errors.New("it does not say by whom")
	}
	switch f.Phase {
	case Fencing, Fenced, Lifting, Refencing, Failed, Void, Lifted:
		return nil
	}
	return fmt.Errorf("its phase is %q, none of %s, %s, %s, %s, %s, %s, %s", f.Phase, Fencing, Fenced, Lifting, Refencing, Failed, Void, Lifted)
}

// Fence returns the current fence of that kind (of that driver, for a storage
// fence); nil: there is none.
func (r *Record) Fence(kind fence.Kind, driver string) *Fence {
	if r == nil {
		return nil
	}
	if kind == fence.PowerReading {
		driver = ""
	}
	for i := range r.Fences {
		if f := &r.Fences[i]; f.Current() && f.Kind == kind && f.Driver == driver {
			return f
		}
	}
	return nil
}

// LastPowerFence returns the power fence that was made last, current or not; nil: there
// is none.
func (r *Record) LastPowerFence() *Fence {
	for i := len(r.Fences) - 1; i >= 0; i-- {
		if f := &r.Fences[i]; f.Kind == fence.PowerReading {
			return f
		}
	}
	return nil
}

// FenceByID returns the fence with that ID, current or not; nil: none.
func (r *Record) FenceByID(id string) *Fence {
	if r == nil {
		return nil
	}
	for i := range r.Fences {
		if r.Fences[i].ID == id {
			return &r.Fences[i]
		}
	}
	return nil
}

// StorageFenced tells whether the node's access to that driver's volumes was cut
// and was not given back as a whole. A node that lives may be so too.
func (r *Record) StorageFenced(driver string) bool {
	f := r.Fence(fence.StorageFence, driver)
	return f != nil && f.Standing()
}

// PutFence writes f in place of the fence with its ID, or adds it. Another
// current fence of its kind and driver ends: a record has one. For one that is under way or
// proves, the caller vouches (Vouched), and for when it cut: where nobody vouches for when the
// fence with its ID began, it begins now, but for one that is being lifted. For the change of an
// Update.
func (r *Record) PutFence(f Fence, action string) {
	f.clip()
	if f.Kind == fence.PowerReading {
		f.Driver = ""
	}
	old := r.FenceByID(f.ID)
	known := old == nil || r.Vouched(old.Cutting())
	if !known && f.Cuts() && !f.BeingLifted() {
		f.StartedAt, known = now(), true
	}
	if r.vouch(&f); known {
		r.vouch(f.Cutting())
	}
	r.vouch(f.Missing())
	for i := range r.Fences {
		old := &r.Fences[i]
		if old.ID == f.ID || !old.Current() || !f.Current() || old.key() != f.key() {
			continue
		}
		underWay := old.UnderWay()
		old.Phase, old.EndedAt, old.Why, old.LiftReason = Void, now(), "fence "+f.ID+" took its place", ""
		if underWay {
			old.Phase, old.Why = Failed, clip("left unfinished by "+old.Actor+"; "+f.Actor+" went on with fence "+f.ID)
		}
		r.audit(f.Actor, "EndFence", old.ID+": "+old.Why)
	}
	if old != nil {
		*old = f
	} else {
		r.Fences = append(r.Fences, f)
	}
	detail := fmt.Sprintf("%s: %s, node UID %s, boot ID %q, lease %q", f.ID, f.Kind, f.Machine.NodeUID, f.Machine.BootID, f.Machine.LeaseRV)
	if f.Driver != "" {
		detail += ", driver " + f.Driver
	}
	for _, text := range []string{f.Reason, f.Why} {
		if text != "" {
			detail += ": " + text
		}
	}
	r.audit(f.Actor, action, detail)
}

// PutMissed writes down what a machine that runs would have done and this one did not, at the
// fence with that ID, and vouches for it. It returns false where that stands there already, or
// nothing is missing. For the change of an Update.
func (r *Record) PutMissed(id, missed string) bool {
	f := r.FenceByID(id)
	if f == nil || missed == "" || r.Vouched(f.Missing()) {
		return false
	}
	f.Missed = clip(missed)
	r.vouch(f.Missing())
	return true
}

// Early is the power fence of that machine with its lease as it is, that was proven before that
// was silent; nil: there is none, it has no lease that a renewal could change, or nobody who may
// fence vouches for all of it.
func (r *Record) Early(m FencedMachine) *Fence {
	f := r.Fence(fence.PowerReading, "")
	if f == nil || m.LeaseRV == "" || f.Phase != Fenced || !r.Vouched(f) || !r.Vouched(f.Missing()) || !f.Machine.Same(m) || f.Machine.LeaseRV != m.LeaseRV {
		return nil
	}
	return f
}

// EndFence writes down that the fence with that ID counts no more. It returns
// false if it is not current. For the change of an Update.
func (r *Record) EndFence(id string, phase Phase, why, actor string) bool {
	f := r.FenceByID(id)
	if f == nil || !f.Current() {
		return false
	}
	f.Phase, f.Ending, f.Why, f.EndedAt, f.LiftReason = phase, "", clip(why), now(), ""
	r.audit(actor, string(phase)+"Fence", id+": "+why)
	return true
}

// WithdrawFence is EndFence for a person who takes the fence's word back. Nothing is
// given back by that: what a storage fence cut stays cut.
func (r *Record) WithdrawFence(id, reason, by string) bool {
	return r.endAs(id, Withdrawn, reason, by)
}

// GivePowerBack is EndFence for the power fence of a machine that is about to be
// switched on. Where somebody vouches for it the caller, who may fence, vouches for when it cut: what
// was sent is known by that if the machine stays off, also where a version that knows of no such
// claim has made the fence.
func (r *Record) GivePowerBack(id, reason, actor string) bool {
	f := r.FenceByID(id)
	vouched := f != nil && r.Vouched(f)
	if !r.endAs(id, PowerGivenBack, reason, actor) {
		return false
	}
	if vouched {
		r.vouch(f.Cutting())
	}
	return true
}

func (r *Record) endAs(id string, e Ending, reason, actor string) bool {
	if !r.EndFence(id, Void, endings[e]+reason, actor) {
		return false
	}
	r.FenceByID(id).Ending = e
	return true
}

// Withdrawn tells whether a person took the fence's word back, and what it cut was
// not seen to be open since.
func (f *Fence) Withdrawn() bool { return f.Phase == Void && f.Ending == Withdrawn }

// MayBeCut tells whether a storage fence has ended that may have cut what nobody has given
// back, or read as open, since: it was withdrawn, or failed.
func (f *Fence) MayBeCut() bool { return f.Withdrawn() || f.Phase == Failed }

// LiftEnded writes down that what such a fence may have cut is open. It returns false of any
// other. For the change of an Update.
func (r *Record) LiftEnded(id, why, actor string) bool {
	f := r.FenceByID(id)
	if f == nil || !f.MayBeCut() {
		return false
	}
	f.Phase, f.Why, f.EndedAt = Lifted, clip(why), now()
	r.audit(actor, string(Lifted)+"Fence", id+": "+why)
	return true
}

// VoidFence writes down that one fence, as it was judged, counts no more.
func (s *Store) VoidFence(ctx context.Context, node string, judged Fence, why, actor string) (*Record, error) {
	return s.Update(ctx, node, func(r *Record) (bool, error) {
		f := r.FenceByID(judged.ID)
		if f == nil || f.Phase != judged.Phase || f.Machine.LeaseRV != judged.Machine.LeaseRV || !f.Machine.Same(judged.Machine) {
			return false, nil
		}
		return r.EndFence(judged.ID, Void, why, actor), nil
	})
}

const (
	maxSettled    = 4  // fences that count no more
	maxFences     = 24 // current ones: a power fence, and storage fences by driver
	maxSteps      = 32 // of one fence; the newest
	maxStepText   = 256
	maxCutText    = 2 << 10 // bytes of the words that say what was cut: some 100 addresses
	maxLiftReason = 256
	maxFenceText  = 24 << 10 // bytes of the steps of all fences
	maxAgents     = 16
)

// clip bounds the texts, which come from devices and programs.
func (f *Fence) clip() {
	f.What = clipTo(f.What, maxCutText)
	f.Actor, f.Reason, f.Why, f.LiftReason = clip(f.Actor), clip(f.Reason), clip(f.Why), clip(f.LiftReason)
	f.Agents = slices.Clone(f.Agents[:min(len(f.Agents), maxAgents)])
	f.Steps = last(slices.Clone(f.Steps), maxSteps)
	for i := range f.Steps {
		st := &f.Steps[i]
		most := maxStepText
		if st.cuts() {
			most = maxCutText
		}
		st.Agent, st.Detail, st.Err = clipTo(st.Agent, maxStepText), clipTo(st.Detail, most), clipTo(st.Err, maxStepText)
	}
}

// boundFences drops settled fences, the oldest first, and then steps, those of
// the oldest fence first, and requests to cut the node off last: they are part of what is
// vouched for. A current fence is never dropped: a storage fence keeps volumes away from the node.
// Each driver's last withdrawn fence stays, too: nothing else names what it cut.
func (r *Record) boundFences() {
	settled, named := 0, map[string]bool{}
	for i := len(r.Fences) - 1; i >= 0; i-- {
		f := &r.Fences[i]
		if f.Current() {
			continue
		}
		if f.Kind == fence.StorageFence && f.Withdrawn() && !named[f.Driver] {
			named[f.Driver] = true
			continue
		}
		if settled++; settled > maxSettled {
			r.Fences = slices.Delete(r.Fences, i, i+1)
		}
	}
	r.boundSteps(func(st *FenceStep) bool { return !st.cuts() })
	r.boundSteps(func(*FenceStep) bool { return true })
}

// boundSteps drops those of the steps that it may, the oldest first, until the text of all
// is within bounds.
func (r *Record) boundSteps(may func(*FenceStep) bool) {
	size := 0
	for i := range r.Fences {
		for j := range r.Fences[i].Steps {
			size += r.Fences[i].Steps[j].size()
		}
	}
	for i := range r.Fences {
		f := &r.Fences[i]
		f.Steps = slices.DeleteFunc(f.Steps, func(st FenceStep) bool {
			if size <= maxFenceText || !may(&st) {
				return false
			}
			size -= st.size()
			return true
		})
	}
}

func (st *FenceStep) size() int {
	return len(st.Agent) + len(st.Action) + len(st.State) + len(st.Detail) + len(st.Err) + len(st.At) + 64
}

// validateFences holds the record to one current fence of each kind and driver.
func (r *Record) validateFences() error {
	current := map[string]string{}
	for i := range r.Fences {
		f := &r.Fences[i]
		if err := f.validate(); err != nil {
			return fmt.Errorf("fence %q: %w", f.ID, err)
		}
		if !f.Current() {
			continue
		}
		if other, twice := current[f.key()]; twice {
			return fmt.Errorf("fences %q and %q are both current, and of one kind", other, f.ID)
		}
		current[f.key()] = f.ID
	}
	if len(current) > maxFences {
		return fmt.Errorf("%d fences are current, more than %d", len(current), maxFences)
	}
	return nil
}
