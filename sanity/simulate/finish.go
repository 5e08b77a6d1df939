package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// finishWithin is how much of the model's time everything may take to come right
// once the faults have ceased: force detach and an operator who needs a while to
// read what a refusal says included.
const finishWithin = 40 * time.Minute

// finish ends all faults, has an honest operator say what is true, and judges
// whether everything comes right.
func (w *World) finish() {
	w.repair()
	var stuck string
	for began, try := time.Now(), 0; time.Since(began) < finishWithin; try++ {
		w.honest()
		if w.settle(w.calm, 3*time.Minute) || w.Violation != "" {
			if w.nextInLine() {
				continue
			}
			return
		}
		w.noteWaits()
		stuck = w.advice(try)
	}
	w.violation("stuck", fmt.Sprintf("after %s without faults: %s", finishWithin, stuck))
}

// repair ends what is not the truth about machines: partitions, stalls, pauses.
func (w *World) repair() {
	if w.setup.Lists != Nothing {
		w.setup.Lists = Truthfully
	}
	for _, name := range w.replicas {
		p := w.procs[name]
		p.noAPI, p.noDriver, p.noAgent = false, false, false
		clear(p.stalled)
		if p.up() {
			p.leasesSeen()
		}
		p.goOn()
	}
	w.noADC = false
	w.repairWide()
	for _, v := range w.volumes {
		v.late = nil
	}
	for _, s := range w.slots {
		s.cut = false
		s.machine.resume()
	}
	for _, m := range w.machines {
		if m.severed {
			w.powerOff(m) // nobody would leave it running
		}
	}
}

// mend has the maker of a driver that lied attach what it said that it had. A call
// that is under way attaches it itself, and maybe elsewhere.
func (w *World) mend() {
	for _, s := range w.slots {
		for _, v := range w.volumes {
			if va := w.vaOf(v, s); va != nil && va.Status.Attached && va.DeletionTimestamp == nil && v.podOn(s) && len(v.attached) == 0 && !w.called(v) {
				v.attach(s.machine.id)
				v.attachedFor[s.machine.id] = s.machine
				v.share(s.machine.id, w.saysMany(*va.Spec.Source.PersistentVolumeName))
			}
		}
	}
}

// called tells whether a call of the volume is under way.
func (w *World) called(v *volume) bool {
	return slices.ContainsFunc(w.calls, func(c *call) bool { return c.v == v })
}

// honest is an operator who says of each machine what is so, and moves the pods
// of those that are off.
func (w *World) honest() {
	clear(w.patience)
	w.mend()
	if !slices.ContainsFunc(w.slots, func(s *slot) bool { return s.machine.power }) {
		w.powerOn(w.slots[0].machine) // a fence that was ordered before may have been the last one's
	}
	for _, s := range w.slots {
		n := w.peekNode(s.name)
		switch {
		case s.machine.power && tainted(n):
			w.taint(s, false)
		case !s.machine.power && n != nil && !tainted(n):
			w.taint(s, true)
		}
		switch {
		case !s.machine.power:
			w.confirm(s)
		case !slices.ContainsFunc(w.machines, func(m *machine) bool { return m.slot == s && m.severed && m.power }):
			// Of what had the name before, in another boot or registration.
			w.confirmOthers(s)
		}
		if s.machine.power && n == nil && !s.machine.kubelet.fresh {
			// A kubelet that runs does not register again.
			w.doKubelet(Event{Verb: RestartKubelet, A: s.name})
		}
	}
	for _, v := range w.volumes {
		v.moveMore()
		if s := v.pod.node; s != nil && (!s.machine.power || v.pod.terminating) {
			v.pod = v.nextPod() // as the taint has it done
			w.mirrorPod(v)
		}
		if v.pod.node == nil {
			w.schedule(v)
		}
	}
}

func (w *World) schedule(v *volume) {
	for _, s := range w.slots {
		if s.machine.power {
			v.pod = pod{node: s}
			w.mirrorPod(v)
			return
		}
	}
}

// advice does what the refusals say that only a person can, and returns what is
// not right. At first a person says what is so, then deletes pods, then reboots,
// and at last releases single volumes.
func (w *World) advice(try int) string {
	var left []string
	if try >= 5 {
		w.startOver()
	}
	for _, v := range w.volumes {
		for _, s := range w.slots {
			for _, what := range [...]string{Publish, Unpublish} {
				reason := w.last[callKey{what, v.name, s.name}]
				if va := w.va(v, s); va == nil || reason == "" || reason == "OK" {
					continue
				}
				left = append(left, fmt.Sprintf("%s of %s on %s: %s", what, v.name, s.name, reason))
				switch fence.Reason(reason) {
				case fence.HolderContested, fence.HolderListed, fence.TargetFenced, fence.HolderAlive:
					switch {
					case try%3 == 0 && fence.Reason(reason) == fence.HolderAlive:
						w.deletePod(v, try)
					default:
						w.rebootHolders(v)
					}
				case fence.HolderUnknown, fence.EvidenceContradicted, fence.HolderStale:
					if try > 0 {
						w.release(v)
					}
					if try > 2 {
						w.deleteDead()
					}
				case fence.EvidenceVoid:
					for _, dead := range w.slots {
						if !dead.machine.power {
							w.taint(dead, false) // and on again, next
						}
					}
					if try > 1 {
						w.release(v)
					}
					if try > 2 {
						w.deleteDead()
					}
				}
			}
		}
		if s := v.pod.node; s != nil {
			if va := w.vaOf(v, s); va != nil && va.Status.Attached && !v.attached[s.machine.id] {
				w.deletePod(v, try) // Kubernetes believes that it is attached, to a machine of before
			}
		}
		left = append(left, w.whereIs(v))
	}
	return strings.Join(left, "; ")
}

// deleteDead deletes the Nodes of machines that are off: one that registered under
// a new UID and died is not the machine that the ledger names, and what is proven
// of it says nothing of that one while its Node stands there.
func (w *World) deleteDead() {
	for _, s := range w.slots {
		if !s.machine.power && w.peekNode(s.name) != nil {
			w.Stats.NodeByHand++
			w.doMachine(Event{Verb: DeleteNode, A: s.name})
		}
	}
}

// deletePod deletes the pod of a volume: its node lists the volume in use and has
// not got it, so that nothing lets go of it.
func (w *World) deletePod(v *volume, try int) {
	w.Stats.PodByHand++
	v.pod, v.more = pod{}, nil
	w.mirrorPod(v)
	gone := func() bool {
		for _, s := range w.slots {
			if va := w.vaOf(v, s); va != nil && va.DeletionTimestamp != nil {
				return false
			}
		}
		return true
	}
	if !w.settle(gone, 2*time.Minute) && try > 0 {
		w.release(v)
		w.settle(gone, 2*time.Minute)
	}
}

// rebootHolders drains and reboots the nodes that hold the volume and do not want
// it: what a refusal advises where a kubelet's word is not believed.
func (w *World) rebootHolders(v *volume) {
	w.Stats.ByHand++
	entries := w.ledger(v)
	for _, s := range w.slots {
		held := slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.NodeName == s.name && e.State != fence.TakenOver })
		if s.machine.power && (held || s.machine.mounts[v] != nil && !v.podOn(s)) {
			w.powerOff(s.machine)
			w.powerOn(s.machine)
		}
	}
}

// startOver reboots every machine and releases every volume from where it is not
// used: what is left to a person whom nothing that a refusal says has helped.
func (w *World) startOver() {
	w.Stats.StartedOver++
	for _, s := range w.slots {
		if s.machine.power {
			w.powerOff(s.machine)
			w.powerOn(s.machine)
		}
	}
	for _, v := range w.volumes {
		v.pod, v.more = pod{}, nil
		w.mirrorPod(v)
	}
	unused := func() bool {
		for _, v := range w.volumes {
			if len(v.adc) > 0 {
				return false
			}
		}
		return true
	}
	w.settle(unused, 2*time.Minute)
	for _, v := range w.volumes {
		w.release(v)
		w.forgetNameless(v)
	}
	w.settle(unused, 5*time.Minute)
	w.detachStrays()
}

// forgetNameless takes ledger entries away that have no node's name, for want of a
// Node and a CSINode when the publish was judged: no command names such a holder,
// only kubectl can.
func (w *World) forgetNameless(v *volume) {
	w.forgetNamelessOn(v.name)
	if second := w.second(v); second != nil {
		w.forgetNamelessOn(second.Name)
	}
}

func (w *World) forgetNamelessOn(name string) {
	pv, ok := w.objects.Volumes.Get(name)
	if !ok || pv.Annotations[ledger.Annotation] == "" {
		return
	}
	l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
	if err != nil {
		return
	}
	for _, e := range slices.Clone(l.Holders) {
		if e.NodeName == "" {
			l.Cut(e.NodeID, e.Token)
		}
	}
	pv.Annotations[ledger.Annotation] = l.String()
	w.objects.Volumes.Put(pv)
}

// detachStrays is an administrator of the array who takes volumes off machines
// that do not use them and that nothing in Kubernetes names as holders.
func (w *World) detachStrays() {
	for _, v := range w.volumes {
		for _, id := range v.nodes() {
			holds := func(e ledger.Entry) bool { return e.State != fence.TakenOver }
			if m := w.machineOf(id); len(v.adc) == 0 && !slices.ContainsFunc(w.ledger(v), holds) && (m == nil || !v.mayWrite(m)) {
				v.detach(m, id, false)
			}
		}
	}
}

// release releases the volume from the machines that truly do not use it, as
// `csi-fencepost release pv` does.
func (w *World) release(v *volume) {
	w.Stats.Released++
	for _, e := range w.ledger(v) {
		// One without a node's name is known from the driver's list alone.
		if e.NodeName == "" || e.State == fence.TakenOver || slices.ContainsFunc(w.machines, func(m *machine) bool { return m.calledAs(e.NodeID) && v.mayWrite(m) }) {
			continue
		}
		w.releaseEntry(v, &e)
	}
}

func (w *World) releaseEntry(v *volume, e *ledger.Entry) {
	rel, ok := w.boundRelease(v, e)
	if !ok {
		return
	}
	rel.ID, rel.Volume, rel.Driver = "release-"+strconv.Itoa(w.steps)+e.NodeID, v.name, DriverName
	rel.By, rel.Reason, rel.At = "operator", "it is not used there", "2000-01-01T00:00:00Z"
	w.changeRecord(e.NodeName, func(r *record.Record) { r.AddRelease(rel) })
}

// boundRelease binds a release as `csi-fencepost release pv` does; false: it would be
// refused, since pods there may use the volume at any time.
func (w *World) boundRelease(v *volume, e *ledger.Entry) (rel record.Release, ok bool) {
	h := fence.Holder{NodeID: e.NodeID, NodeName: e.NodeName, Token: e.Token, Liveness: fence.Alive}
	h.Take(e.Machine())
	if n := w.peekNode(e.NodeName); n != nil {
		m := fence.MachineOf(n)
		h.Node = m.Live()
		h.Node.SystemShared = w.shared(n)
		if c := w.peekCSINode(e.NodeName); c != nil {
			h.Node.NodeID = nodeIDOf(c)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				h.Liveness, h.LeaseRV = fence.Stale, w.leaseVersion(e.NodeName)
			}
		}
	}
	for _, s := range w.slots {
		if va := w.va(v, s); va != nil && s.name == e.NodeName {
			h.Attachment = &fence.Attachment{UID: string(va.UID)}
			if va.DeletionTimestamp != nil {
				h.Attachment.DeletedAt = va.DeletionTimestamp.Time
			}
		}
	}
	rel = record.ReleaseOf(&h)
	return rel, rel.Life != record.Living || h.Attachment == nil || h.Detaching()
}

func (w *World) whereIs(v *volume) string {
	where := "nowhere"
	if v.pod.node != nil {
		where = v.pod.node.name + v.moreWords()
	}
	return fmt.Sprintf("%s is wanted on %s, attached to %v, ledger %s", v.name, where, v.nodes(), w.ledgerWords(v))
}

func (w *World) ledgerWords(v *volume) string {
	var words []string
	for _, e := range w.ledger(v) {
		word := e.NodeID + " " + string(e.State)
		if e.Contest != nil {
			word += " contested"
		}
		words = append(words, word)
	}
	return "[" + strings.Join(words, ", ") + "]"
}
