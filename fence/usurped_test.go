package fence

import (
	"strings"
	"testing"
)

func TestAnotherMachineAsksWithTheNodeIDOfOneThatHoldsIt(t *testing.T) {
	target := &Holder{NodeID: "id", NodeName: "n1", NodeUID: "u1", BootID: "b2", SystemUUID: "system-2"}
	held := func(node *Node, sources ...Source) *Holder {
		return &Holder{NodeID: "id", NodeName: "n1", NodeUID: "u1", BootID: "b1", SystemUUID: "system-1", State: Publishing, Liveness: Alive, Node: node,
			Sources: append([]Source{FromLedger}, sources...)}
	}
	taken := &Node{UID: "u1", BootID: "b2", SystemUUID: "system-2", Ready: true}
	for name, h := range map[string]*Holder{
		"its Node is gone": held(nil),
		"its Node is the other's, which lists the volume as in use":   held(taken, FromVolumesInUse),
		"its Node is the other's, which lists the volume as attached": held(taken, FromVolumesAttached),
	} {
		if got, want := usurped(h, target), usurped(held(h.Node), target); got.Reason != want.Reason || got.Gone() || got.Holder.From(FromVolumesInUse) || got.Holder.From(FromVolumesAttached) {
			t.Errorf("%s: %+v, want as without the list: %+v", name, got, want)
		}
	}
	own := held(&Node{UID: "u1", BootID: "b1", SystemUUID: "system-1", Ready: true, InUse: true}, FromVolumesInUse)
	if got := usurped(own, target); !got.Holder.From(FromVolumesInUse) {
		t.Errorf("what its own Node lists does not count: %+v", got)
	}
}

func TestAWordThatIsVoidIsGivenAnewAboutTheMachineThatItWasAbout(t *testing.T) {
	own, other := &Node{UID: "u1", BootID: "b1"}, &Node{UID: "u2", BootID: "b2"}
	for name, c := range map[string]struct {
		node  *Node
		kind  Kind
		older bool
	}{
		"its own Node":              {own, OutOfServiceTaint, false},
		"another machine's Node":    {other, OutOfServiceTaint, true},
		"no Node":                   {nil, OperatorConfirmation, false},
		"another machine's, a word": {other, OperatorConfirmation, true},
	} {
		s := Standing{Holder: &Holder{NodeID: "id", NodeName: "n1", NodeUID: "u1", BootID: "b1", Node: c.node}, Evidence: &Evidence{Kind: c.kind}, Reason: EvidenceVoid, Note: VoidLeaseChanged}
		if got := s.unblock(&Snapshot{PV: "pv-1"}); strings.Contains(got, "--node-id") != c.older {
			t.Errorf("%s: %q, want that it is about the older machine: %v", name, got, c.older)
		}
	}
}

func TestASystemUUIDThatNobodyWroteTellsNothing(t *testing.T) {
	for _, uuid := range SharedSystems {
		if TellsSystem(uuid) || TellsSystem(strings.ToUpper(swapped(uuid))) {
			t.Errorf("%s tells", uuid)
		}
	}
	for uuid, tells := range map[string]bool{
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF": false,
		"ffffffff-ffff-ffff-ffff-ffffffffffff": false,
		"00000000-0000-0000-0000-000000000000": false,
		"4C4C4544-0042-3510-8052-B4C04F564433": true,
		"12345678-1234-5678-90AB-CDDEEFAABBCC": false,
		"4C4C4544-0000-2010-8020-80C04F202020": false,
		"44454c4c-0000-1020-8020-80c04f202020": false, // in the other byte order
	} {
		if sameSystem(uuid, uuid) != tells {
			t.Errorf("%s tells %v, want %v", uuid, !tells, tells)
		}
	}
}
