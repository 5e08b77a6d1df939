package fence

// InDoubt tells whether the holder stands in the way for nothing but the order in which
// kubelet and controller wrote, which their stamps do not tell: the kubelet's "not in use"
// is not believed for that. It may be read (Node.LetGo).
func (h *Holder) InDoubt(p Policy) bool {
	m := h.machine()
	return m != nil && !m.InUse && !m.ListedAttached && h.Contest == nil && h.State != TakenOver &&
		restartedAfterDeletion(h, m) && !taintedAlive(h, m) && !standing(h, p).Gone()
}

// AsksKubelet tells whether the holder stands in the way for nothing but that its kubelet may
// have restarted, and so forgotten what it has mounted; and whether its process can say that it
// has not: the one that ran before the publish is known.
func (h *Holder) AsksKubelet(p Policy) bool {
	if h.machine() == nil || h.Kubelet == nil || h.State == TakenOver && !h.Observed() || standing(h, p).Gone() {
		return false
	}
	return standing(h.supposing(func(n *Node) { n.Memory = MemoryWhole }), p).Reason == HolderReleased
}

// TrustsKubelet tells whether the holder has let go by its kubelet's word alone, which would not
// count if that had restarted since the volume was taken from it by force (MemoryLost).
func (h *Holder) TrustsKubelet(p Policy) bool {
	m := h.machine()
	return m != nil && m.Memory == "" && (h.State != TakenOver || h.Observed()) && standing(h, p).Reason == HolderReleased &&
		!standing(h.supposing(func(n *Node) { n.Memory = MemoryLost }), p).Gone()
}

// supposing is the holder if its Node were what change makes of it.
func (h *Holder) supposing(change func(*Node)) *Holder {
	holder, node := *h, *h.Node
	change(&node)
	holder.Node = &node
	return &holder
}

// contested tells whether the kubelet's "not in use" is not believed.
func contested(h *Holder) bool {
	m := h.machine()
	if m != nil && m.Memory == MemoryWhole {
		return false
	}
	if h.State == TakenOver && h.ReleasedUnder == "" && h.From(FromDriver) && (m == nil || m.BootID == "" || m.BootID == h.BootID) {
		// What it was taken over by is not in the ledger any more: its kubelet may have
		// forgotten in that boot what it had mounted.
		return true
	}
	if m == nil {
		// Its Node is gone. Where a reboot had ended the contest before the volume was
		// released, the entry has the boot of the release and keeps the contest, which is
		// of the boot before: it does not count any more.
		return h.Contest != nil && (h.State != Released || !h.Contest.OtherBoot(h.BootID))
	}
	if c := h.Contest; c != nil {
		// A boot since the contest, not since the publish: a pod that comes back
		// after a reboot mounts again without one.
		if c.OtherBoot(m.BootID) {
			return false
		}
		if taintedAlive(h, m) {
			return true
		}
		dropped := m.Ready && c.SeenReadySince != "" && c.SeenReadySince == m.ReadySince && !m.InUse && !m.Memory.Doubted()
		return !dropped
	}
	return taintedAlive(h, m) || restartedAfterDeletion(h, m)
}

// taintedAlive tells whether a living node carries the out-of-service taint. The taint has the
// controller detach volumes that are mounted (K8s reconciler.go, hasOutOfServiceTaint), a kubelet
// that restarts meanwhile forgets them, and a quick restart shows nowhere: not in the Ready
// condition, not in the lease.
func taintedAlive(h *Holder, m *Node) bool { return m.OutOfService && !revocable(h) }

// restartedAfterDeletion tells whether the kubelet may have restarted since the VolumeAttachment
// was deleted: its own word of its readiness (True or False) changed later. Unknown is the
// controller's word, and hides when the kubelet's changed: then it is the kubelet's last word of
// anything that must not be later. All times are the API server's (Node.ReadyAt, Node.HeardAt); a
// difference below their resolution counts as later, unless the node is Ready since before the
// publish, which no clock has to say. A change that was seen to come later (Turned) counts whatever
// the stamps say: a clock that was set in between hides it from them. None of it matters where the
// order of the writes was read (Node.LetGo), unless the kubelet's process tells of the restart, or
// does not tell (Memory).
func restartedAfterDeletion(h *Holder, m *Node) bool {
	if !h.Detaching() || h.State == Released || m.LetGo && !m.Memory.Doubted() {
		return false
	}
	if h.Attachment.Turned || m.Memory.Doubted() {
		return true
	}
	if m.Ready && h.ReadySince != "" && h.ReadySince == m.ReadySince {
		return false
	}
	word := m.ReadyAt
	if m.ReadyUnknown {
		word = m.HeardAt
	}
	return word.IsZero() || word.Add(StampResolution).After(h.Attachment.DeletedAt)
}
