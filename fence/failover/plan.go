package failover

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// state is one look at a node: everything that plan rests on.
type state struct {
	Name string
	// Node as it was read live; nil: there is none.
	Node    *corev1.Node
	LeaseRV string
	Lease   *coordinationv1.Lease // that; nil: there is none
	Life    fence.Liveness
	// Age is for how long the lease was watched unchanged.
	Age time.Duration
	// Overdue tells that, by the API server's clock, the node has been silent for longer than it was
	// watched. Its agents are asked for that, and it is not cut off.
	Overdue bool
	// ReadsOff tells that agents that are polled have seen the node's power go, and that its lease
	// is unchanged since; from the first to the last of these readings it was off for OffFor.
	ReadsOff bool
	OffFor   time.Duration
	// Storm tells that so many nodes are silent, or read off, that the fault is more likely ours. It
	// is looked for only where the node's power was seen to go.
	Storm bool
	// Holds tells that the node holds volumes of the drivers, as far as anybody knows.
	Holds bool
	// Moved is a volume that its status lists in use, and that is not, or soon not, its own
	// any more; zero: none. MovedLong: so it has been for long.
	Moved     observe.MovedVolume
	MovedLong bool
	// Synced tells that what the node lists is its kubelet's own word, and not the last of the
	// kubelet before it.
	Synced bool
	// Leaving tells that some volume's way from the node has begun and is not over.
	Leaving bool
	// Revokes tells that the driver is declared to revoke access on unpublish.
	Revokes bool
	// Attached counts its VolumeAttachments, of all drivers.
	Attached int

	// Covered tells that agents of ours cover the node; CoveredPower, that some of them read its
	// power.
	Covered, CoveredPower bool
	// AskDue tells that the agents' last answer is too old to rest anything on.
	AskDue bool
	// Answer is the last one of this node's agents; nil: not asked yet. Where several machines
	// had the name of a Node that is gone it is one that is not off, if any is.
	Answer *fencer.Answer
	// Answers are about each of these.
	Answers []told
	// Fence is the record's; nil: none.
	Fence *fencer.Fence
	// Standing are the IDs of all that the record has and that are not over.
	Standing []string
	// Proof is the kind of evidence by which the node cannot write; empty: none.
	Proof fence.Kind

	// Pods of the node that use the drivers' volumes; nil until they are asked
	// for (podsMatter).
	Pods []pod
	// Kept tells that a pod of the node that uses none of its volumes opts out of failover.
	Kept bool
	// Brake against fencing, asked only if it is due.
	Brake      Brake
	BrakeWords string

	FenceAfter time.Duration
	// OffForLeast is how long a node has to read off whose lease is not silent.
	OffForLeast time.Duration
	PowerOn     bool
}

// step is one thing to do. The steps of a plan are taken in order; one that
// fails ends the pass.
type step string

const (
	stepAsk      step = "ask the agents"
	stepSuspect  step = "say who is suspected"
	stepBlocked  step = "say why it is not fenced"
	stepCut      step = "fence"
	stepTaint    step = "put the taint on"
	stepEvict    step = "delete the pods"
	stepEmpty    step = "have Kubernetes delete the other pods"
	stepPowerOn  step = "power on"
	stepVoid     step = "void the fence"
	stepWarn     step = "warn of a fence that was wrong"
	stepWitness  step = "note that the kubelet lists what moved"
	stepUntaint  step = "take the taint off"
	stepLift     step = "lift the storage fence"
	stepStranded step = "say that only a reboot readmits"
	stepListed   step = "say which volume it still lists"
)

// plan says what to do next. Nothing: the node needs no work.
func plan(s *state) []step {
	switch {
	case s.storageFenced():
		return planStorage(s)
	case s.optedOut():
		// Hands off, except for what we did ourselves.
		switch {
		case s.Life == fence.Alive:
			return planReturn(s)
		case s.suspect() && s.Holds:
			return []step{stepSuspect}
		}
		return nil
	case s.early():
		return planEarly(s)
	case s.Life == fence.Alive:
		return planReturn(s)
	}
	return planSilent(s)
}

// planSilent is the plan for a node that shows no life.
func planSilent(s *state) []step {
	switch {
	case !s.suspect() && (!s.fenced() || s.provenBefore()) && !(s.Overdue && s.Covered):
		return nil // not watched for long enough
	case !s.Holds && !s.fenced():
		return nil
	case s.Covered && s.AskDue:
		return []step{stepAsk}
	case s.Proof != "":
		return planProven(s)
	case s.cutDue() && s.Brake != NoBrake:
		return []step{stepBlocked}
	case s.cutDue():
		return []step{stepCut}
	case s.Holds && s.suspect():
		return []step{stepSuspect}
	}
	return nil
}

// planProven is the plan for a node that cannot write. The taint comes first: some drivers cut a
// client off only then, and with it Kubernetes detaches at once.
func planProven(s *state) []step {
	var steps []step
	if s.Fence != nil && s.Fence.Kind == fence.PowerReading && s.rebooted() {
		// The proof is another, of this boot: that the node returned in another boot
		// than the fence's would say nothing.
		steps = append(steps, stepVoid)
	}
	if s.Node != nil && s.needsTaint() {
		steps = append(steps, stepTaint)
	}
	if len(s.evictable()) > 0 {
		steps = append(steps, stepEvict)
	}
	if len(steps) == 0 && s.emptyable() {
		return []step{stepEmpty}
	}
	if len(steps) == 0 && s.powerOnDue() && s.keptOff() == "" {
		steps = append(steps, stepPowerOn)
	}
	return steps
}

// planStorage is the plan for a node that cannot write to this driver's volumes, and may live.
// Nothing is done to the node itself.
func planStorage(s *state) []step {
	back := s.Life == fence.Alive && s.ready()
	switch {
	case back && s.fencedBefore():
		return []step{stepLift}
	case s.Covered && s.AskDue:
		return []step{stepAsk}
	case len(s.evictable()) > 0 && s.Proof == fence.StorageFence:
		return []step{stepEvict}
	case !back && s.unconfirmed():
		return []step{stepSuspect}
	case !back:
		return nil
	case s.otherSystem() && s.ourTaint() && s.Moved.Handle == "":
		// What it cut off is not this machine's: neither does it keep this one's taint on.
		return []step{stepUntaint, stepStranded}
	case s.otherSystem():
		return []step{stepStranded}
	case s.revoked():
		return []step{stepLift}
	case s.Moved.Handle != "" && s.Synced && !s.witnessed():
		return []step{stepWitness}
	case s.MovedLong && s.witnessed():
		return []step{stepListed}
	case s.Moved.Handle != "":
		return nil // until its kubelet has synced, or has unmounted it
	case s.witnessed():
		return []step{stepLift}
	}
	return []step{stepStranded}
}

// planReturn is the plan for a node that lives. What was said of its death is void, and our taint
// comes off.
func planReturn(s *state) []step {
	var steps []step
	counts := s.Fence != nil && s.Fence.Kind == fence.PowerReading && s.Fence.Void == "" && !s.provenEarly()
	if counts && !s.rebooted() {
		steps = append(steps, stepWarn, stepVoid)
	}
	if s.ourTaint() && s.ready() && (s.rebooted() || s.Moved.Handle == "") {
		steps = append(steps, stepUntaint)
	}
	if counts && s.rebooted() && (s.ready() || !s.ourTaint()) {
		// Last: it is what says that the node has booted, and so what takes our taint
		// off. Of another boot it proves nothing anyway.
		steps = append(steps, stepVoid)
	}
	return steps
}

// revoked tells whether somebody vouches for the fence, and what has moved cannot be written from
// the node even without the fence, whatever is still mounted there.
func (s *state) revoked() bool { return s.Revokes && !s.Leaving && s.Fence.Vouched }

// suspect tells whether the node is silent for long enough to say so.
func (s *state) suspect() bool { return s.Life == fence.Stale || s.Life == fence.Unknown }

// fenced tells whether somebody has fenced the node, and nobody has said that it is over.
func (s *state) fenced() bool { return s.Fence != nil && s.Fence.Void == "" || s.ourTaint() }

// storageFenced tells whether the pass is about the storage fence. A fence that is being lifted
// proves nothing, so a node that falls silent meanwhile is not fenced: it is cut off anew. So is a
// node under the fence of another machine, which cuts off nothing of it, a node under a fence for
// which nobody vouches, and a node of which an agent says that its fence is not in place.
func (s *state) storageFenced() bool {
	return s.Fence != nil && s.Fence.Void == "" && s.Fence.Kind == fence.StorageFence && s.Proof != fence.PowerReading &&
		(s.Life == fence.Alive || !s.Fence.Lifting && s.Fence.Vouched && !s.othersFence() && !s.denied())
}

// denied tells whether the agents have answered that the node is not cut off as a whole. Where the
// Node is gone nobody could cut it off anew. An agent that does not answer denies nothing: the node
// may be cut off all the same, and need not be turned off too.
func (s *state) denied() bool {
	return s.Node != nil && s.Answer != nil && s.Answer.Uncut
}

// unconfirmed tells whether the node is silent under a storage fence that its agents were asked for
// in vain, so that its volumes wait.
func (s *state) unconfirmed() bool {
	return s.Holds && s.suspect() && s.Proof == "" && s.Answer != nil && s.Answer.State != agent.Off
}

// othersFence tells whether the storage fence on record is of another machine than the one that has
// the name now, so that it says nothing of this one.
func (s *state) othersFence() bool {
	return s.Node != nil && s.Fence != nil && s.Fence.Void == "" && s.Fence.Kind == fence.StorageFence && s.otherSystem()
}

// cutDue tells whether the node holds volumes and was silent for so long that it is to be fenced.
// Life is judged live; the age alone would be the watch's.
func (s *state) cutDue() bool {
	return s.Holds && s.Covered && s.FenceAfter > 0 && s.Life == fence.Stale && s.Age >= s.FenceAfter && s.Proof == "" &&
		s.Answer != nil && s.Answer.State != agent.Off
}

// podsMatter tells whether the plan will ask for the node's pods.
func (s *state) podsMatter() bool { return s.Proof != "" || s.cutDue() }

// rebooted tells whether the Node shows another boot than the fenced one, by a fence that counts.
// An empty boot ID never differs from, nor equals, another. Only of the Node that was fenced is the
// boot known that it was fenced in: where the Node was gone it is the boot of a publish, which may
// have been an earlier one, and a fence that stands may have been found in place in a later boot.
func (s *state) rebooted() bool {
	if s.Node == nil || s.Fence == nil || s.Fence.Void != "" || s.Fence.NodeUID != string(s.Node.UID) {
		return false
	}
	was, is := s.Fence.BootID, s.Node.Status.NodeInfo.BootID
	return was != "" && is != "" && was != is
}

// sameMachine tells whether nothing says that the Node is another machine than the fenced one,
// neither its UID nor, where a new one took the Node over, its system UUID.
func (s *state) sameMachine() bool {
	return s.machineFenced().Compare(fence.MachineOf(s.Node)).OneNode()
}

// otherSystem tells whether the Node is another machine's by now than the fenced one.
func (s *state) otherSystem() bool {
	return s.machineFenced().Compare(fence.MachineOf(s.Node)) == fence.Other
}

// machineFenced is the one that was fenced.
func (s *state) machineFenced() fence.Machine {
	return fence.Machine{NodeName: s.Name, NodeUID: s.Fence.NodeUID, BootID: s.Fence.BootID, SystemUUID: s.Fence.SystemUUID}
}

// fencedBefore tells whether the machine that was fenced has booted since, by a fence that somebody
// vouches for: who may write the rest of the record could change which boot it was.
func (s *state) fencedBefore() bool { return s.Fence.Vouched && s.rebooted() && s.sameMachine() }

func (s *state) ready() bool { return fence.NodeReady(s.Node) }

func (s *state) optedOut() bool { return s.Node != nil && OptedOut(s.Node.Annotations) }

func (s *state) ourTaint() bool {
	if s.Node == nil {
		return false
	}
	return slices.ContainsFunc(s.Node.Spec.Taints, evidence.IsOurTaint)
}

// emptyable tells whether our taint is on, and Kubernetes does not delete pods for it yet. Where a
// pod opts out, whichever driver's volumes it uses, Kubernetes must not.
func (s *state) emptyable() bool {
	return s.Node != nil && !s.Kept && !slices.ContainsFunc(s.Pods, func(p pod) bool { return p.OptedOut }) &&
		slices.ContainsFunc(s.Node.Spec.Taints, func(t corev1.Taint) bool { return evidence.IsOurTaint(t) && t.Effect != corev1.TaintEffectNoExecute })
}

// needsTaint tells whether neither our taint nor a person's is on.
func (s *state) needsTaint() bool { return !hasTaint(s.Node, corev1.TaintNodeOutOfService) }

// witnessed tells whether this boot's kubelet, Ready without a break since, was seen to list a
// volume that moved. Only then is its silence believed: a kubelet that restarts forgets what is
// mounted.
func (s *state) witnessed() bool {
	return s.Node != nil && s.Fence != nil && s.Fence.Vouched && s.Fence.Witness.Same(witnessOf(s.Node, s.Fence))
}

// evictable are the pods to delete under the proof that there is.
func (s *state) evictable() []pod {
	var out []pod
	if s.optedOut() {
		return nil
	}
	for _, p := range s.Pods {
		if p.OptedOut || s.Proof == fence.StorageFence && len(p.Foreign) > 0 {
			continue
		}
		out = append(out, p)
	}
	return out
}

// about is the fence that a pass over the node is about, of those on record, the
// first first; nil: none counts.
func about(fences []fencer.Fence, n *corev1.Node) *fencer.Fence {
	for i := range fences {
		if f := &fences[i]; f.Void == "" && !over(f, n) {
			return f
		}
	}
	return nil
}

// over tells that a fence is a power fence of a machine whose name another Node has by now, in
// another boot. It says nothing of that one, so that there is nothing to do about
// it; of the fenced machine it may still be evidence. A storage fence is never
// over by itself: it may cut off whatever has the name.
func over(f *fencer.Fence, n *corev1.Node) bool {
	return f.Kind == fence.PowerReading && n != nil && f.NodeUID != string(n.UID) && f.BootID != n.Status.NodeInfo.BootID
}
