package fence

// What else is asked of the decision than its two calls.

// AnyOther stands for a node that has nothing to do with the volume. No driver gives
// such an ID.
const AnyOther = "any other node"

// ToAnyOther is s for a publish to AnyOther.
func (s Snapshot) ToAnyOther() Snapshot {
	s.Target = &Holder{NodeID: AnyOther}
	return s
}

// Alone judges a publish to AnyOther as if h were the only holder, and says what h amounts
// to. held is false when it holds nothing, as one that only wants it.
func (s Snapshot) Alone(h Holder) (v Verdict, st Standing, held bool) {
	s.Holders = []Holder{h}
	v = JudgePublish(s.ToAnyOther(), AnyOther)
	switch {
	case v.Blocking != nil:
		return v, *v.Blocking, true
	case len(v.Unpublish) > 0:
		return v, v.Unpublish[0], true
	}
	return v, Standing{}, false
}

// User is machine m as the holder of some volume that it uses: what is asked of a machine,
// whatever volumes it has, is asked of that. live is the Node of its name, nil if there is
// none, life and leaseRV what is known of its lease.
func User(m Machine, live *Node, life Liveness, leaseRV string) Holder {
	h := Holder{NodeName: m.NodeName, NodeID: m.NodeID, State: Held, Liveness: life, LeaseRV: leaseRV}
	h.Take(m)
	if live != nil {
		n := *live
		n.InUse, h.Node = true, &n
	}
	return h
}

// Proof is the evidence that has the holder's machine write no more, as it would let an
// unpublish of the volume through; nil: none does.
func (h *Holder) Proof() *Evidence {
	if v := JudgeHolder(Snapshot{}, h); v.Action == Allow && v.Reason == HolderFenced {
		return v.Subject.Evidence
	}
	return nil
}

// Live is a Node that reports machine m, and says no more.
func (m Machine) Live() *Node {
	return &Node{UID: m.NodeUID, NodeID: m.NodeID, BootID: m.BootID, SystemUUID: m.SystemUUID, ProviderID: m.ProviderID, MachineID: m.MachineID, SystemShared: m.SystemShared}
}
