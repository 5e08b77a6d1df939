package record

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

const (
	uuidA = "11111111-2222-3333-4444-555555555555"
	uuidB = "66666666-7777-8888-9999-aaaaaaaaaaaa"
	uuidC = "cccccccc-7777-8888-9999-aaaaaaaaaaaa"
)

func nobody(Identifier) IdentityClaim { return IdentityClaim{} }

// has is somebody who has what is said of these kinds.
func has(o IdentityClaim, kinds ...string) func(Identifier) IdentityClaim {
	return func(c Identifier) IdentityClaim {
		if strings.Contains(strings.Join(kinds, " "), c.Kind) {
			return o
		}
		return IdentityClaim{}
	}
}

// knownBy is what is bound, with who else has it, and who had it first.
func (r *Record) knownBy() string {
	var words []string
	for _, b := range r.Known().Bound {
		word := b.Kind + "=" + b.Value
		if b.Late {
			word += " after " + b.Other
		} else if b.Other != "" {
			word += " as " + b.Other
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

func (r *Record) binds(t *testing.T, uid string, m fence.Machine, other func(Identifier) IdentityClaim, want string) {
	t.Helper()
	says := IdentifiersOf(m, "d")
	r.Bind(uid, says, other)
	if got := r.knownBy(); got != want {
		t.Errorf("%+v: %q, want %q", m, got, want)
	}
	if r.Bind(uid, says, other) {
		t.Errorf("%+v: the same again is written again", m)
	}
}

// A kubelet may write of its node what it likes, and at any time: what is bound stays.
func TestTheFirstBindingStays(t *testing.T) {
	r := New("n1")
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA}, nobody, "systemUUID="+uuidA)
	// What comes later, as a provider ID of the cloud's controller does, is bound then.
	all := "systemUUID=" + uuidA + "; providerID=x://z/i-1; instanceID=i-1; nodeID/d=i1"
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA, ProviderID: "x://z/i-1", NodeID: "i1"}, nobody, all)
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA, ProviderID: "x://z/i-2", NodeID: "i2"}, nobody, all)
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidB, ProviderID: "x://z/i-2", NodeID: "i2"}, nobody, all)
	r.binds(t, "u1", fence.Machine{SystemUUID: strings.ToUpper(uuidA), ProviderID: "X://z/I-1", NodeID: "I1"}, nobody, all)
	r.binds(t, "u1", fence.Machine{}, nobody, all)
}

// Another provider ID says nothing of the machine: what else it says is bound, as with a system
// UUID that came late.
func TestOnlyAnotherSystemUUIDKeepsTheRestFromBeingBound(t *testing.T) {
	r := New("n1")
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA, ProviderID: "x://z/i-1"}, nobody, "systemUUID="+uuidA+"; providerID=x://z/i-1; instanceID=i-1")
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA, ProviderID: "x://z/i-2", NodeID: "i1"}, nobody, "systemUUID="+uuidA+"; providerID=x://z/i-1; instanceID=i-1; nodeID/d=i1")
	late := New("n2")
	other := has(IdentityClaim{Bound: true, Node: "n1"}, SystemUUID)
	late.binds(t, "u2", fence.Machine{SystemUUID: uuidA}, other, "systemUUID="+uuidA+" after n1")
	late.binds(t, "u2", fence.Machine{SystemUUID: uuidA, NodeID: "i1"}, other, "systemUUID="+uuidA+" after n1; nodeID/d=i1")
}

// Nothing of what a machine says is bound while it may be another one than the bound one.
func TestOfAnotherMachineUnderTheNodeNothingIsBound(t *testing.T) {
	r := New("n1")
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA}, nobody, "systemUUID="+uuidA)
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidB, ProviderID: "x://z/i-2", NodeID: "i2"}, nobody, "systemUUID="+uuidA)
}

// What a node says that is not what is bound is written down once, for people.
func TestWhatANodeSaysSinceIsWrittenDown(t *testing.T) {
	r := New("n1")
	r.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: uuidA, NodeID: "i1"}, "d"), nobody)
	vouched := r.added
	for _, c := range []struct{ system, id, want string }{
		{uuidA, "i2", "nodeID/d since i2"},
		{uuidB, "i2", "systemUUID since " + uuidB + "; nodeID/d since i2"}, // the rest may be another machine's
		{uuidC, "i1", "systemUUID since " + uuidC + "; nodeID/d since i2"},
		{"", "i3", "systemUUID since " + uuidC + "; nodeID/d since i3"},
		{strings.ToUpper(uuidA), "i1", ""},
	} {
		says := IdentifiersOf(fence.Machine{SystemUUID: c.system, NodeID: c.id}, "d")
		if !r.Bind("u1", says, nobody) || r.Bind("u1", says, nobody) {
			t.Errorf("%+v: it is not written once", c)
		}
		if r.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: strings.ToUpper(c.system), NodeID: strings.ToUpper(c.id)}, "d"), nobody) {
			t.Errorf("%+v: spelled otherwise it is written again", c)
		}
		var words []string
		for _, b := range r.Known().Bound {
			if b.Since != "" {
				words = append(words, b.Kind+" since "+b.Since)
			}
		}
		if got := strings.Join(words, "; "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if !slices.Equal(vouched, r.added) {
		t.Error("it takes the right to fence")
	}
}

// A Node that was deleted and registered again is its machine's as before; a new machine
// under the name is bound anew.
func TestUnderANewNodeOfTheNameTheMachineIsBoundAnew(t *testing.T) {
	r := New("n1")
	first := fence.Machine{SystemUUID: uuidA, ProviderID: "x://z/i-1", NodeID: "i1"}
	all := "systemUUID=" + uuidA + "; providerID=x://z/i-1; instanceID=i-1; nodeID/d=i1"
	r.binds(t, "u1", first, nobody, all)
	r.binds(t, "u2", first, nobody, all)
	r.binds(t, "u2", fence.Machine{SystemUUID: uuidA, ProviderID: "x://z/i-1", NodeID: "i9"}, nobody, all)
	r.binds(t, "u2", first, nobody, all)
	r.binds(t, "u3", fence.Machine{SystemUUID: uuidC, ProviderID: "x://z/i-3", NodeID: "i1"}, nobody,
		"systemUUID="+uuidC+"; providerID=x://z/i-3; instanceID=i-3; nodeID/d=i1")
	// Its driver names it otherwise now; the rest is as it was.
	r.binds(t, "u4", fence.Machine{SystemUUID: uuidC, ProviderID: "x://z/i-3", NodeID: "other"}, nobody,
		"systemUUID="+uuidC+"; providerID=x://z/i-3; instanceID=i-3; nodeID/d=other")
	// What it says of another's is that one's, and what it had is not its any more.
	r.binds(t, "u5", fence.Machine{SystemUUID: uuidB}, has(IdentityClaim{Node: "n2", Bound: true}, SystemUUID),
		"systemUUID="+uuidB+" after n2; providerID=x://z/i-3; instanceID=i-3; nodeID/d=other")
}

// What a new Node says and another says at the same time is bound when that one is gone.
func TestWhatANewNodeSaysIsNotLostWhereAnotherSaysItToo(t *testing.T) {
	r := New("n1")
	r.binds(t, "u1", fence.Machine{NodeID: "a"}, nobody, "nodeID/d=a")
	r.binds(t, "u2", fence.Machine{NodeID: "b"}, has(IdentityClaim{Node: "n2"}, NodeID("d")), "nodeID/d=a")
	r.binds(t, "u2", fence.Machine{NodeID: "b"}, nobody, "nodeID/d=b")
}

// What another node has bound is not this one's, and not when that one is gone either, nor does
// it get it by saying something else in between. A kubelet cannot replace its Node.
func TestWhoWaitsForAValueDoesNotGetIt(t *testing.T) {
	r := New("n1")
	want := "systemUUID=" + uuidA + " after n2; nodeID/d=i1"
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA, NodeID: "i1"}, has(IdentityClaim{Node: "n2", Bound: true}, SystemUUID), want)
	for _, system := range []string{uuidA, uuidB, "", uuidC, uuidA} {
		r.binds(t, "u1", fence.Machine{SystemUUID: system, NodeID: "i1"}, nobody, want)
	}
	r.binds(t, "u2", fence.Machine{SystemUUID: uuidA, NodeID: "i1"}, nobody, "systemUUID="+uuidA+"; nodeID/d=i1")
}

// What two say at once is bound to neither, and to the one that says it alone later.
func TestWhatTwoSayAtOnceIsBoundToNeither(t *testing.T) {
	r := New("n1")
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA}, has(IdentityClaim{Node: "n2"}, SystemUUID), "")
	if r.Identity != nil {
		t.Error("there is an identity of nothing")
	}
	r.binds(t, "u1", fence.Machine{SystemUUID: uuidA}, nobody, "systemUUID="+uuidA)
}

// A machine that is registered under another name while its first Node was gone has it there
// too, and while both Nodes are there it is neither's alone: nothing tells which one lies.
func TestAValueThatTwoNodesHaveIsNeithersAlone(t *testing.T) {
	r := New("n1")
	m := fence.Machine{SystemUUID: uuidA}
	r.binds(t, "u1", m, nobody, "systemUUID="+uuidA)
	r.binds(t, "u1", m, has(IdentityClaim{Node: "n2"}, SystemUUID), "systemUUID="+uuidA) // which merely says it
	r.binds(t, "u1", m, has(IdentityClaim{Node: "n0", Bound: true}, SystemUUID), "systemUUID="+uuidA+" as n0")
	r.binds(t, "u1", m, nobody, "systemUUID="+uuidA)
}

// What is bound to a name keeps others from it only while a Node of that name has or says it,
// and what a node merely says does while it may still be bound to it; else its claim is idle.
func TestWhatANodeHasAClaimTo(t *testing.T) {
	r := New("n1")
	r.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: uuidA}, "d"), nobody)
	r.Bind("u1", IdentifiersOf(fence.Machine{NodeID: "i1"}, "d"), has(IdentityClaim{Node: "n2", Bound: true}, NodeID("d")))
	for _, c := range []struct {
		uid  string
		says fence.Machine
		want string
	}{
		{"u1", fence.Machine{}, "bound " + uuidA},
		{"u1", fence.Machine{SystemUUID: uuidB, NodeID: "i9"}, "bound " + uuidA + " idle " + uuidB + " idle i9"},
		{"u1", fence.Machine{NodeID: "i1"}, "bound " + uuidA + " idle i1"},
		{"u1", fence.Machine{ProviderID: "x"}, "bound " + uuidA + " says x says x"},
		{"u2", fence.Machine{}, ""},
		{"u2", fence.Machine{SystemUUID: uuidB, NodeID: "i1"}, "says " + uuidB + " says i1"},
		{"u2", fence.Machine{SystemUUID: strings.ToUpper(uuidA)}, "bound " + uuidA + " says " + strings.ToUpper(uuidA)},
	} {
		var words []string
		for _, claim := range r.Claims(c.uid, IdentifiersOf(c.says, "d")) {
			word := map[bool]string{true: "idle ", false: "says "}[claim.Idle]
			if claim.Bound {
				word = "bound "
			}
			words = append(words, word+claim.Value)
			if claim.Node != "n1" || claim.Bound && claim.Idle {
				t.Error(claim)
			}
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%s %+v: %q, want %q", c.uid, c.says, got, c.want)
		}
	}
}

// Whoever takes a path apart may pass over its empty parts.
func TestAnotherSpellingOfAPathIsTheSame(t *testing.T) {
	first := Identifier{ProviderID, "aws:///z/i-2"}
	for value, want := range map[string]bool{"aws:///z/i-2": true, "aws:////z/i-2": true, "aws:///z//i-2": true, "aws:///z/i-2/": true, "aws://z/i-2": true, "AWS:///z/I-2//": true,
		"aws:///y/i-2": false, "aws:///z/i-22": false, "aws:///zi-2": false} {
		if got := first.Is(Identifier{ProviderID, value}); got != want {
			t.Errorf("%s: %t", value, got)
		}
	}
	// Of a cloud whose IDs have empty parts they are as good as any.
	if ibm := (Identifier{ProviderID, "ibm://account///cluster/worker"}); !ibm.Tells() || ibm.Is(Identifier{ProviderID, "ibm://account///cluster/other"}) {
		t.Error(ibm)
	}
}

// Of what is not its node's own no command goes, and nobody is taken for off.
func TestWhatIsNotANodesOwn(t *testing.T) {
	r := New("n1")
	r.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: uuidA, NodeID: "i1"}, "d"), has(IdentityClaim{Node: "n0", Bound: true}, ""))
	r.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: uuidA, NodeID: "i2"}, "e"), has(IdentityClaim{Node: "n2", Bound: true}, NodeID("e")))
	r.Bind("u1", IdentifiersOf(fence.Machine{NodeID: "i3"}, "f"), nobody)
	r.Bind("u1", IdentifiersOf(fence.Machine{NodeID: "i3"}, "f"), has(IdentityClaim{Node: "n2", Bound: true}, NodeID("f")))
	r.Bind("u1", IdentifiersOf(fence.Machine{ProviderID: "x://z/i-1"}, "d"), nobody)
	const another = "the node says " + uuidB + " since, and was known by " + uuidA + " first, so that it may be another machine"
	// Kubernetes keeps the Node's provider ID, whichever machine registers under it: one that
	// was restored from a backup is not off because the one before is.
	for _, c := range []Identifier{{ProviderID, "x://z/i-1"}, {InstanceID, "i-1"}, {ProviderID, "x://z/i-2"}, {NodeID("d"), "i1"}} {
		if got := r.NotOwn(c, uuidB, ""); got != another {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for _, c := range []struct{ kind, value, system, want string }{
		{SystemUUID, strings.ToUpper(uuidA), uuidA, ""},
		{NodeID("d"), "i1", uuidA, ""},
		{NodeID("d"), "i1", "", ""},
		{NodeID("d"), "i1", uuidB, "the node says " + uuidB + " since, and was known by " + uuidA + " first, so that it may be another machine"},
		{NodeID("d"), "i9", uuidA, "the node says i9 since, and was known by i1 first"},
		{NodeID("e"), "i2", uuidA, "node n2 was known by i2 first"},
		{NodeID("e"), "i9", uuidA, "the node says i9 since, and was known by i2 first"},
		{NodeID("f"), "i3", uuidA, "node n2 is known by i3 as well"},
		{NodeID("g"), "x", uuidA, ""},
	} {
		if got := r.NotOwn(Identifier{c.kind, c.value}, c.system, ""); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if why := New("n2").NotOwn(Identifier{SystemUUID, uuidA}, uuidA, ""); why != "" {
		t.Error(why)
	}
}

// R1: what is bound of one Node of the name is of another one's machine only if the system UUID says so, once
// none is there that says it now.
func TestWhatIsBoundOfAnotherNodeOfTheNameIsNotOwnOnceThatIsGone(t *testing.T) {
	const wary = "another Node of its name was known by i1, which may have been another machine's"
	id := Identifier{NodeID("d"), "i1"}
	of := func(uid, system string) *Record {
		r := New("n1")
		r.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: uuidA, NodeID: "i1"}, "d"), nobody)
		r.Bind(uid, IdentifiersOf(fence.Machine{SystemUUID: system}, "d"), nobody)
		return r
	}
	cloned := of("u1", uuidA)
	cloned.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: uuidA}, "d"), has(IdentityClaim{Node: "n2", Bound: true}, SystemUUID))
	late := of("u1", uuidA)
	late.TakeFrom([]Identifier{{SystemUUID, uuidA}}, "n2", "it is", "ada")
	unset := New("n1")
	const zero = "00000000-0000-0000-0000-000000000000"
	unset.BindAs("u1", []Identifier{{SystemUUID, zero}, id}, nil, "it is", "ada")
	for what, c := range map[string]struct {
		r                  *Record
		system, gone, want string
	}{
		"its own Node":                                            {of("u1", uuidA), "", "u1", ""},
		"a Node that is there":                                    {of("u1", uuidA), "", "", ""},
		"another, and no UUID":                                    {of("u1", uuidA), "", "u2", wary},
		"another, and the same UUID":                              {of("u1", uuidA), strings.ToUpper(uuidA), "u2", ""},
		"another, of which the UUID alone is bound":               {of("u2", uuidB), uuidB, "u2", wary},
		"the same machine, of which the UUID alone is bound anew": {of("u2", uuidA), uuidA, "u3", wary},
		"another, and the UUID is another node's too":             {cloned, uuidA, "u2", wary},
		"another, and the UUID was another node's":                {late, uuidA, "u2", wary},
		"another, and the UUID tells nothing":                     {unset, zero, "u2", wary},
	} {
		if got := c.r.NotOwn(id, c.system, c.gone); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// R1: a VM that was restored under another name has the Node's name from its disk, and the VM of
// that name is off.
func TestAMachineWithAnotherSystemUUIDHasNothingOfItsOwnNotEvenTheNodesName(t *testing.T) {
	r := New("n1")
	m := fence.Machine{SystemUUID: uuidA, ProviderID: "gce://p/z/N1", NodeID: "n1"}
	r.Bind("u1", IdentifiersOf(m, "d"), nobody)
	r.Bind("u1", IdentifiersOf(fence.Machine{NodeID: "n1"}, "e"), has(IdentityClaim{Node: "n2", Bound: true}, NodeID("e")))
	var own []string
	for _, c := range append(IdentifiersOf(m, "d"), Identifier{NodeID("e"), "n1"}) {
		if r.NotOwn(c, uuidB, "") == "" {
			own = append(own, c.Kind)
		}
	}
	if got := strings.Join(own, " "); got != "" {
		t.Errorf("its own are %s", got)
	}
	for value, want := range map[string]bool{"n1": true, "N1": true, "k3s://n1": true, "gce://p/z/n1": false, "kind://docker/c/n1": false, "n12": false, "x://n12": false, "": false, "k3s://": false} {
		if got := (Identifier{ProviderID, value}).IsName("n1"); got != want {
			t.Errorf("%s: %t", value, got)
		}
	}
	if (Identifier{SystemUUID, uuidA}).IsName(uuidA) || (Identifier{NodeID("d"), ""}).IsName("") {
		t.Error("that is no name")
	}
}

// R1: whoever may write the record, and not fence, would switch the check of the system UUID off.
func TestALateSystemUUIDForWhichNobodyVouchesTakesNoDoubtAway(t *testing.T) {
	r := New("n1")
	r.Identity = &Identity{Bound: []Binding{{Identifier: Identifier{SystemUUID, uuidA}, NodeUID: "u1", Other: "n9", Late: true}}}
	says := IdentifiersOf(fence.Machine{SystemUUID: uuidA, ProviderID: "aws:///z/i-1"}, "d")
	if r.Bind("u1", says, nobody) {
		t.Error("bound: " + r.knownBy())
	}
	if r.NotOwn(says[1], uuidB, "") == "" {
		t.Error("another system UUID is no doubt")
	}
	r.BindAs("u1", says, map[string]string{SystemUUID: "n9"}, "a clone", "ann")
	if why := r.NotOwn(says[1], uuidB, ""); why != "" {
		t.Error("with a late one that a person bound: " + why)
	}
}

// Two drivers know one machine by two node IDs, and see a new Node one after the other.
func TestEachDriverHasItsNodeID(t *testing.T) {
	r := New("n1")
	if r.Bind("u0", nil, nobody) || r.Identity != nil {
		t.Error("there is an identity of nothing")
	}
	r.Bind("u1", IdentifiersOf(fence.Machine{NodeID: "i1"}, "d"), nobody)
	r.Bind("u1", IdentifiersOf(fence.Machine{NodeID: "i2"}, "e.example.com"), nobody)
	if got := r.knownBy(); got != "nodeID/d=i1; nodeID/e.example.com=i2" {
		t.Error(got)
	}
	r.Bind("u2", IdentifiersOf(fence.Machine{NodeID: "i1-anew"}, "d"), nobody)
	r.Bind("u2", IdentifiersOf(fence.Machine{NodeID: "i2-anew"}, "e.example.com"), nobody)
	r.Bind("u2", IdentifiersOf(fence.Machine{NodeID: "i2-claimed"}, "e.example.com"), nobody)
	if got := r.knownBy(); got != "nodeID/d=i1-anew; nodeID/e.example.com=i2-anew" {
		t.Error(got)
	}
}

func TestWhatTellsNoMachineIsNoIdentifier(t *testing.T) {
	if got := IdentifiersOf(fence.Machine{NodeID: strings.Repeat("x", maxText)}, "d"); len(got) != 1 {
		t.Errorf("the longest: %v", got)
	}
	for _, m := range []fence.Machine{{}, {SystemUUID: "00000000-0000-0000-0000-000000000000"}, {SystemUUID: "03000200-0400-0500-0006-000700080009"},
		{SystemUUID: "a name"}, {SystemUUID: strings.ReplaceAll(uuidA, "-", "")}, {SystemUUID: uuidA + "\n"}, {SystemUUID: "x" + uuidA},
		{ProviderID: strings.Repeat("x", maxText+1) + "/"}, {NodeID: strings.Repeat("x", maxText+1)}} {
		if got := IdentifiersOf(m, "d"); len(got) > 0 {
			t.Errorf("%+v: %v", m, got)
		}
	}
}

// A program is told values: what is the same to it is the same here.
func TestValuesThatMayNameOneMachine(t *testing.T) {
	for _, c := range []struct {
		a, b Identifier
		want bool
	}{
		{Identifier{SystemUUID, uuidA}, Identifier{SystemUUID, strings.ToUpper(uuidA)}, true},
		{Identifier{SystemUUID, uuidA}, Identifier{SystemUUID, "11111111-2222-3333-4444-555555555556"}, false},
		{Identifier{SystemUUID, "12345678-2222-3333-4444-555555555555"}, Identifier{SystemUUID, "78563412-2222-3333-4444-555555555555"}, true},
		{Identifier{ProviderID, "x://z/i-1"}, Identifier{ProviderID, "X://Z/I-1"}, true},
		{Identifier{InstanceID, "i-0abc"}, Identifier{NodeID("d"), "I-0ABC"}, true},
		{Identifier{NodeID("d"), "i-0abc"}, Identifier{NodeID("e"), "i-0abc"}, true},
		{Identifier{InstanceID, "7"}, Identifier{InstanceID, "7"}, true},
		{Identifier{InstanceID, "7"}, Identifier{NodeID("d"), "7"}, false},
	} {
		if got := c.a.Meets(c.b); got != c.want || c.b.Meets(c.a) != c.want {
			t.Errorf("%v and %v: %t, want %t", c.a, c.b, got, c.want)
		}
	}
}

// A person has the last word, and it is written down whose it was.
func TestAPersonBindsWhatANodeSays(t *testing.T) {
	r, other := New("n1"), New("n2")
	r.Bind("u1", IdentifiersOf(fence.Machine{SystemUUID: uuidA, NodeID: "old"}, "d"), nobody)
	says := IdentifiersOf(fence.Machine{SystemUUID: uuidB, NodeID: "new"}, "d")
	other.Bind("u2", IdentifiersOf(fence.Machine{SystemUUID: uuidB, ProviderID: "x://z/i-2"}, "d"), nobody)
	if !other.TakeFrom(says, "n1", "new board", "alice") || other.knownBy() != "systemUUID="+uuidB+" after n1; providerID=x://z/i-2; instanceID=i-2" {
		t.Error(other.knownBy())
	}
	if other.TakeFrom(says, "n1", "new board", "alice") {
		t.Error("it was taken twice")
	}
	r.BindAs("u1", says, nil, "new board", "alice")
	if got := r.knownBy(); got != "systemUUID="+uuidB+"; nodeID/d=new" {
		t.Error(got)
	}
	for of, want := range map[*Record]string{r: "Bind alice systemUUID " + uuidB + ", nodeID/d new: new board", other: "Unbind alice systemUUID " + uuidB + ", which is node n1's: new board"} {
		if a := of.Audit[len(of.Audit)-1]; a.Action+" "+a.Actor+" "+a.Detail != want {
			t.Errorf("%+v, want %q", a, want)
		}
	}
	if New("n3").TakeFrom(says, "n1", "x", "y") {
		t.Error("it was nothing's")
	}
}

// Another build's words are kept by this one, as package format has it for all of a record.
func TestAnIdentityIsStored(t *testing.T) {
	const text = `"identity":{"bound":[{"kind":"systemUUID","value":"` + uuidA + `","nodeUID":"u1","of a later build":1},{"kind":"nodeID/d","value":"i1","nodeUID":"u1","other":"n2","late":true}],"a later one":[2]}`
	r, err := Parse(`{"version":1,"node":"n1",` + text + `}`)
	if err != nil {
		t.Fatal(err)
	}
	r.vouch(r.Identity)
	if !r.Bind("u2", IdentifiersOf(fence.Machine{SystemUUID: uuidA}, "d"), nobody) {
		t.Error("nothing was changed")
	}
	got, err := r.encode()
	if want := strings.Replace(text, `"u1","of`, `"u2","of`, 1); err != nil || !strings.Contains(got, want) {
		t.Error(got, err)
	}
}
