package simulate

import (
	"fmt"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// The oracle knows the machines and the array, and nothing of what the product
// thinks.
//
// R1, after every step: no two machines with power both have a volume mounted (or
// have a kubelet that has begun to mount it) and access to it at the array. And a
// publish that is answered with OK is not answered while another machine than its
// own may write so.
//
// R2, at every unpublish that the driver carries out: the machine has not got the
// volume mounted, nor has its kubelet begun to mount it, under access that the
// array grants and the call would take away.
//
// R6, when an off is sent: the node's lease is as it was when that was decided.
//
// What the design believes is excused, and that mount alone, for good:
//
//   - a false word: an operator's taint or confirmation stands, or stood at some
//     moment of the call, that is bound to the machine's UID, its present boot and
//     its present lease, although the machine has power; of a machine whose Node
//     was gone by then, whose boot nobody could see, to the node ID and the lease alone
//     (to the node ID, where that is gone too and the machine never comes back to it).
//     A taint is a word of the time when it was put on: once the machine has renewed its
//     lease since, it excuses nothing;
//   - a person's bypass that nothing in Kubernetes tells of any more: the
//     VolumeAttachment was stripped of its finalizer and deleted while the volume
//     was mounted, the pod is gone, and the kubelet restarted, before or after that,
//     before it had unmounted and, where the VolumeAttachment was made anew, before
//     the volume was listed as attached again. The controller has taken the volume
//     off volumesAttached, the kubelet has forgotten it, and no deletionTimestamp
//     says that there was a detach, whoever has the machine's name by then. Without
//     the restart, or without the stripping, R2 holds;
//   - the same after a detach under a false taint that was on and off again while
//     no csi-fencepost looked: no record binds it, and nothing else tells of it;
//   - a kubelet that forgets the mount by a restart after a forced detach, or between
//     its two writes, of which the Node shows nothing, its Ready condition being what
//     it was: either the kubelet had been read, Ready, with the volume in use since the
//     detach began, so that the volume that is gone from its list looks unmounted; or
//     it said False, and nobody had asked for the unpublish before;
//   - a kubelet that restarts after it has unpublished the volume and before it has
//     unstaged it, while it is in volumesAttached: it looks for what pods have, finds
//     none, and lists the volume no more;
//   - a kubelet that restarts, finds no pod of a volume that it has mounted, and unmounts
//     it from the machine while a container has it mounted that nobody can end;
//   - a kubelet that has forgotten the mount, and is given a pod of the volume again
//     while a container of before still uses it: what it lists and drops for the new
//     one looks like the old one's;
//   - a kubelet that forgets the mount by a restart after a detach, of which the Ready
//     condition tells, where the node's clock was set forward since the detach, or the
//     API server's back, and not every replica had seen the one and then the other
//     when the call was judged, or the two came at once (skew.go);
//   - a machine that has a name, and with it the node ID, that another had before,
//     mounts without a publish what was attached to that one, and the Node that
//     listed it is gone;
//   - a machine that was off, and whose boot its Node shows only since the call's last
//     read of its lease, right before the ledger's write; or, if its kubelet mounts
//     before it has renewed the lease, which kubelets do not, since the read of the
//     Node before that, or in a Node that is gone or another machine's by now;
//   - a node that had let go of the volume, whose VolumeAttachment nobody deletes, and
//     that is given it again, and says so, only since the call has read the Node for
//     the last time;
//   - with unpublishRevokesAccess: at some moment of the call the node's lease was
//     not renewed for suspectAfter, or there was no Node, or another machine has its
//     name by now (stale or unknown), so that the design takes the volume from a
//     client that may be using it. R1 holds for it all the same.

// judge looks for R1 after a step.
func (w *World) judge() {
	for _, s := range w.slots {
		if time.Since(s.renewed) >= suspectAfter || w.peekNode(s.name) == nil {
			s.silent = time.Now()
		}
	}
	for _, p := range w.procs {
		switch sees := p.sees(StallNodes) && p.sees(StallVAs); {
		case p.dead: // what it saw until then it judged by
		case !sees:
			p.unbroken = time.Time{}
		case p.unbroken.IsZero():
			p.unbroken = time.Now()
		}
	}
	for _, m := range w.machines {
		if w.believed(m) {
			m.believedAt = time.Now()
		}
		w.noteNoticed(m)
	}
	if w.apart != nil {
		w.apart.look()
		if w.apart.bare {
			return
		}
	}
	for _, v := range w.volumes {
		w.noteReleased(v)
		if w.setup.Wide {
			w.noteBelieved(v)
			w.noteForgotten(v)
			w.judgeWide(v)
			continue
		}
		var writer *machine
		for _, m := range w.machines {
			if !v.mayWrite(m) {
				continue
			}
			if writer != nil && !w.excuse(v, writer) && !w.excuse(v, m) {
				w.violation("R1", fmt.Sprintf("%s and %s both have power, access and volume %s mounted or about to be", describe(writer), describe(m), v.name))
			}
			writer = m
		}
	}
}

// judgeAnswer looks for R1 when a publish is answered with OK.
func (w *World) judgeAnswer(c *call) {
	if w.apart.unjudged() {
		return
	}
	for _, m := range w.machines {
		if !w.guards() {
			return
		}
		target := w.machineOf(c.nodeID)
		if m.id != c.nodeID && c.v.mayWrite(m) && !w.believed(m) && !w.believedReleased(c.v, m) && !(c.many && c.v.shared[m.id]) &&
			!w.allowed(c.v, m, target) && !m.hostile && !w.forgottenHolder(c.v, m, target) {
			w.violation("R1", fmt.Sprintf("the publish of volume %s to %s is answered with OK while %s may still write", c.v.name, c.nodeID, describe(m)))
		}
	}
}

// taken looks for R2 when the driver takes the volume from a node.
func (w *World) taken(v *volume, id, how string) {
	m := w.machineOf(id)
	if w.apart.unjudged() {
		w.apart.took(v, m)
		return
	}
	if m == nil || !v.attached[id] || !v.mayWrite(m) || v.shared[id] || m.hostile || w.unguardedCall(v, m) {
		return
	}
	if w.excuse(v, m) || lately(m.believedAt) || lately(m.releasedAt[v]) || w.setup.Revokes && (m.severed || w.wasSilent(m.slot)) {
		w.excused(v, m)
		return
	}
	if w.justBack(m) || w.justUsed(v, m) {
		w.Stats.Raced++
		w.forgive(v, m)
		return
	}
	if limit := w.limit(v, m); limit != nil {
		*limit++
		m.mounts[v].excused = true
		return
	}
	if w.forgottenHolder(v, m, nil) {
		return
	}
	w.violation("R2", fmt.Sprintf("volume %s is %s from %s, on which it is in use", v.name, how, describe(m)))
}

// limit is the count of the limit that a mount is taken at; nil: at none.
func (w *World) limit(v *volume, m *machine) *int {
	mount := m.mounts[v]
	switch n := w.peekNode(m.slot.name); {
	case mount == nil:
	case mount.forgotten && mount.stripped, mount.misled && !w.taintSeen(m):
		return &w.Stats.Stripped
	case mount.forgotten && mount.restart.unseen():
		return &w.Stats.Unseen
	case mount.outlives:
		return &w.Stats.Outlived
	case mount.unlisted:
		return &w.Stats.Staged
	case mount.forgotten && mount.relisted:
		return &w.Stats.Relisted
	case mount.forgotten && w.leapt(v, m):
		return &w.Stats.Leapt
	case mount.inherited != "" && (n == nil || n.UID != mount.inherited):
		return &w.Stats.Inherited
	}
	return nil
}

// noteReleased notes that a write of the ledger, in this step, commits the kubelet's word. Whether
// that is at a limit is asked as of now, by what the call was shown that was served: another one
// may act on it, much later.
func (w *World) noteReleased(v *volume) {
	for _, e := range w.ledger(v) {
		m := w.machineOf(e.NodeID)
		if e.State != fence.Released || v.released[e.Token] {
			continue
		}
		v.released[e.Token] = true
		if m == nil || m.mounts[v] == nil || m.mounts[v].excused {
			continue
		}
		if limit := w.limit(v, m); limit != nil {
			*limit++
			m.mounts[v].excused = true
		}
	}
}

// noteNoticed notes that the Node says another thing of readiness than before its kubelet
// restarted. Where it comes back to that within a second, the stamps are the same.
func (w *World) noteNoticed(m *machine) {
	for _, mount := range m.mounts {
		if r := &mount.restart; r.ready != "" {
			switch n := w.peekNode(m.slot.name); {
			case n != nil && readyCondition(n) == r.ready:
				r.noticed = time.Time{}
			case r.noticed.IsZero():
				r.noticed = time.Now()
			}
		}
	}
}

// justBack tells whether the machine has booted, and its Node says so only since the call has read
// its lease for the last time; or the lease was not renewed in this boot, and the Node says so only
// since the call has read it, or no more: it is gone, or another machine's. There is always a
// moment between the last read and the call.
func (w *World) justBack(m *machine) bool {
	lease, node := w.serving["get:lease/"+m.slot.name], w.serving["get:node/"+m.slot.name]
	if lease > 0 && m.shown > lease {
		return true
	}
	n := w.peekNode(m.slot.name)
	return m.slot.renewedBoot != m.boot() && (node > 0 && m.shown > node || n == nil || n.Status.NodeInfo.BootID != m.boot())
}

// justUsed tells whether the call has read for the last time that the Node lists the volume
// nowhere, and only since then does it say that it is in use.
func (w *World) justUsed(v *volume, m *machine) bool {
	read := w.serving[freeKey(m.slot, v)]
	return !m.severed && read > 0 && m.slot.listed[v] > read
}

// excuse tells whether the design believes a false word about the machine; whatever it still writes
// through this mount is then excused from then on.
func (w *World) excuse(v *volume, m *machine) bool {
	if !w.believed(m) && !w.believedReleased(v, m) {
		return false
	}
	w.excused(v, m)
	return true
}

func (w *World) excused(v *volume, m *machine) {
	w.Stats.Excused++
	w.forgive(v, m)
}

// forgive excuses whatever the machine still writes through this mount.
func (w *World) forgive(v *volume, m *machine) {
	if s := m.mounts[v]; s != nil {
		s.excused = true
		return
	}
	delete(m.kubelet.verified, v) // it finds no disk
	if w.setup.Wide {
		m.kubelet.failed[v] = time.Now()
	}
}

// taintSeen tells whether a taint of the node was bound in its record in this boot, whatever became
// of it.
func (w *World) taintSeen(m *machine) bool {
	rec := w.record(m.slot)
	if rec == nil {
		return false
	}
	for _, b := range rec.Taints {
		if b.BootID == m.boot() {
			return true
		}
	}
	return false
}

// wasSilent tells whether the node was silent within the time that a call takes.
func (w *World) wasSilent(s *slot) bool { return lately(s.silent) }

// lately tells whether it was within the time that a call takes.
func lately(at time.Time) bool { return !at.IsZero() && time.Since(at) <= callTimeout+orphanLife }

// believed tells whether an operator's word that the machine is off stands as the design binds it,
// and is not true.
func (w *World) believed(m *machine) bool {
	if !m.power || !w.spoken {
		return false
	}
	s := m.slot
	rec := w.record(s)
	if rec == nil || len(rec.Taints) == 0 && len(rec.Confirmations) == 0 {
		return false
	}
	lease := w.leaseVersion(s.name)
	for _, b := range rec.Taints {
		if b.Void == "" && b.BootID == m.boot() && (b.LeaseRV == lease || m.severed) && !m.outlived {
			return true
		}
	}
	gone := w.peekNode(s.name) == nil
	for _, c := range rec.Confirmations {
		for _, bound := range c.Machines {
			if c.Void != "" || bound.Void != "" {
				continue
			}
			if bound.BootID == m.boot() && (bound.LeaseRV == lease || bound.LeaseRV == "" || m.severed) || gone && bound.NodeID == m.id && (lease != "" || m.severed) && bound.LeaseRV == lease {
				return true
			}
		}
	}
	return false
}

// judgeOff is called in the step in which the last check before an off was
// answered: R6, no machine is switched off whose kubelet has renewed its lease
// since what the fence rests on.
func (w *World) judgeOff(p *Process, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rv, ordered := p.ordered[node]; ordered && rv != w.leaseVersion(node) && !p.dead {
		w.violation("R6", fmt.Sprintf("%s is about to be switched off by %s although it has renewed its lease since that was decided", node, p.name))
	}
}

func (w *World) violation(rule, text string) {
	if w.Violation == "" {
		w.Violation, w.Rule = text, rule
	}
}

func describe(m *machine) string {
	text := m.id
	if m.paused {
		text += " (paused)"
	}
	if m.severed {
		text += " (replaced)"
	}
	return text
}
