package fence

import (
	"strings"
	"testing"
)

// judged is the holder's standing after the changes, as a publish elsewhere sees it.
func judged(t *testing.T, changes ...change) (Verdict, Standing) {
	t.Helper()
	s := expectation{changes: changes}.snapshot()
	v := JudgePublish(s, newNode)
	if v.Action == Allow && len(v.Unpublish) == 1 {
		return v, v.Unpublish[0]
	}
	if v.Blocking == nil {
		t.Fatalf("%v for %q is about nobody", v.Action, v.Reason)
	}
	return v, *v.Blocking
}

func by(source string) func(*Evidence) { return func(e *Evidence) { e.Source = source } }

// The order of sources is fixed, and with it what a person reads.
func TestOfEvidenceThatProvesAlikeTheFirstIsNamed(t *testing.T) {
	for _, k := range []Kind{OutOfServiceTaint, PowerReading, StorageFence, VolumeRelease} {
		v, st := judged(t, deleted, unlisted, stale, with(k, by("first")), with(k, by("second")))
		check(t, v, Allow, HolderFenced)
		if st.Evidence == nil || st.Evidence.Source != "first" {
			t.Errorf("%s: it rests on %v", k, st.Evidence)
		}
	}
	void := func(e *Evidence) { e.Void = "by itself" }
	v, st := judged(t, deleted, stale, with(PowerReading, by("first"), void), with(PowerReading, by("second"), earlier), with(PowerReading, by("third"), earlier))
	check(t, v, Refuse, EvidenceVoid)
	if st.Evidence == nil || st.Evidence.Source != "first" || st.Note != "by itself" {
		t.Errorf("void is %v: %s", st.Evidence, st.Note)
	}
	v, st = judged(t, deleted, unlisted, stale, with(OperatorConfirmation), with(PowerReading, readsOn, by("first")), with(PowerReading, readsOn, by("second"), earlier))
	check(t, v, Refuse, EvidenceContradicted)
	if !strings.Contains(st.Note, "PowerReading (first)") {
		t.Errorf("contradicted by %s", st.Note)
	}
}

func TestEvidenceIsBoundByNodeIDOrByUID(t *testing.T) {
	v, _ := judged(t, deleted, unlisted, stale, with(PowerReading, func(e *Evidence) { e.NodeID = "" }))
	check(t, v, Allow, HolderFenced)
	v, st := judged(t, deleted, unlisted, stale, with(PowerReading, func(e *Evidence) { e.NodeUID = "" }))
	check(t, v, Refuse, EvidenceVoid)
	if st.Note != VoidOtherMachine {
		t.Errorf("by the node ID alone, of a machine with a UID: %q", st.Note)
	}
	v, st = judged(t, deleted, nodeGone, func(h *Holder) { h.NodeUID = "" }, with(StorageFence, func(e *Evidence) { e.NodeID = "" }))
	check(t, v, Refuse, EvidenceVoid)
	if st.Note != VoidUnbound {
		t.Errorf("by neither: %q", st.Note)
	}
	v, _ = judged(t, deleted, nodeGone, func(h *Holder) { h.NodeUID = "" }, with(StorageFence))
	check(t, v, Allow, HolderFenced)
}

func TestVoidEvidenceSaysWhichBootIDIsLacking(t *testing.T) {
	for name, changes := range map[string][]change{
		"then": {with(PowerReading, func(e *Evidence) { e.BootID = "" })},
		"now":  {with(PowerReading), noBoot},
		"both": {noBoot, with(PowerReading)},
	} {
		v, st := judged(t, append([]change{deleted, unlisted, stale}, changes...)...)
		check(t, v, Refuse, EvidenceVoid)
		if st.Note != VoidNoBootID {
			t.Errorf("%s: %q", name, st.Note)
		}
	}
}

// A boot ID that is a count tells the boot of one machine: its system UUID has to tell which.
func TestWhatIsSaidWhereBootIDsAreCountsNeedsASystemUUIDOfItsOwn(t *testing.T) {
	counted := func(system string) change {
		return func(h *Holder) {
			h.BootID, h.Node.BootID = "12", "12"
			h.SystemUUID, h.Node.SystemUUID, h.Node.NodeID = system, system, h.NodeID
		}
	}
	shared := func(h *Holder) { h.Node.SystemShared = true }
	of := func(system string) func(*Evidence) { return func(e *Evidence) { e.SystemUUID = system } }
	for name, tt := range map[string]struct {
		changes []change
		void    string
	}{
		"its own":      {[]change{counted("system-1"), with(PowerReading, of("system-1"))}, ""},
		"shared":       {[]change{counted("system-1"), shared, with(PowerReading, of("system-1"))}, VoidNotUnique},
		"was shared":   {[]change{counted("system-1"), func(h *Holder) { h.SystemShared = true }, with(PowerReading, of("system-1"))}, ""},
		"none":         {[]change{counted(""), with(PowerReading)}, VoidNotUnique},
		"not its word": {[]change{counted("system-1"), with(PowerReading)}, VoidNotUnique},
		"another's":    {[]change{counted("system-1"), with(PowerReading, of("system-2"))}, VoidOtherMachine},
	} {
		v, st := judged(t, append([]change{deleted, unlisted, stale}, tt.changes...)...)
		if tt.void == "" {
			check(t, v, Allow, HolderFenced)
			continue
		}
		check(t, v, Refuse, EvidenceVoid)
		if st.Note != tt.void {
			t.Errorf("%s: %q, want %q", name, st.Note, tt.void)
		}
	}
}

// What is read of a machine that took over the Node is not of the one before it, also when
// it has booted since; and what is said of that one counts, though both have counted their
// boots as far.
func TestWhatIsProvenOfTheMachineThatTookOverANodeIsNotProvenOfTheOneBefore(t *testing.T) {
	took := func(boot, system string) change {
		return func(h *Holder) {
			h.SystemUUID = "system-1"
			h.Node.BootID, h.Node.SystemUUID, h.Node.NodeID, h.Node.SystemShared = boot, system, "id-9", true
			h.Sources = []Source{FromLedger, FromAttachment}
		}
	}
	read := func(boot, system string) func(*Evidence) {
		return func(e *Evidence) { e.BootID, e.SystemUUID = boot, system }
	}
	counted := func(h *Holder) { h.BootID = "12" }
	for name, tt := range map[string]struct {
		changes []change
		kind    Kind
		read    func(*Evidence)
		counts  bool
	}{
		"a storage fence of its boot":              {[]change{took("boot-9", "system-1")}, StorageFence, read("boot-9", "system-1"), false},
		"a storage fence of a boot before":         {[]change{took("boot-9", "system-1")}, StorageFence, read("boot-8", "system-1"), false},
		"a storage fence of the holder's":          {[]change{took("boot-9", "system-1")}, StorageFence, read("boot-1", "system-1"), true},
		"a reading of a boot before":               {[]change{took("boot-9", "system-1")}, PowerReading, read("boot-8", "system-1"), false},
		"a word about the holder's, as many boots": {[]change{counted, took("12", "system-2")}, OperatorConfirmation, read("12", "system-1"), true},
		"a word about its own, as many boots":      {[]change{counted, took("12", "system-2")}, OperatorConfirmation, read("12", "system-2"), false},
		"a word about nobody's, as many boots":     {[]change{counted, took("12", "system-2")}, OperatorConfirmation, read("12", ""), false},
	} {
		v, st := judged(t, append(append([]change{deleted, dropped, stale}, tt.changes...), with(tt.kind, tt.read))...)
		if tt.counts != (v.Action == Allow) {
			t.Errorf("%s: %s for %s: %q", name, v.Action, v.Reason, st.Note)
		}
	}
}

// With the Node went what an agent's answer could be held against but the system UUID of the
// ledger. That it reads the machine as on counts all the same.
func TestOfAMachineWhoseNodeIsGoneAReadingIsNoProofWhereItsSystemUUIDIsShared(t *testing.T) {
	shared := func(h *Holder) { h.SystemElsewhere = true }
	v, _ := judged(t, deleted, nodeGone, with(PowerReading))
	check(t, v, Allow, HolderFenced)
	v, st := judged(t, deleted, nodeGone, shared, with(PowerReading))
	check(t, v, Refuse, EvidenceVoid)
	if st.Note != VoidSystemShared {
		t.Errorf("it is void for %q", st.Note)
	}
	v, _ = judged(t, deleted, nodeGone, shared, with(OperatorConfirmation), with(PowerReading, func(e *Evidence) { e.On = true }))
	check(t, v, Refuse, EvidenceContradicted)
	v, _ = judged(t, deleted, nodeGone, shared, with(OperatorConfirmation))
	check(t, v, Allow, HolderFenced)
}

// Each way in which the Node of the holder's name is another one has words of
// its own.
func TestEvidenceOfAMachineWhoseNodeIsAnotherSaysHow(t *testing.T) {
	again := func(h *Holder) { h.Node.UID = "uid-9" }
	other := func(h *Holder) { h.Node.UID, h.Node.BootID = "uid-9", "boot-9" }
	for want, changes := range map[string][]change{
		VoidRegisteredAgain: {again, with(PowerReading)},
		VoidOtherMachine:    {other, with(PowerReading)}, // it lists the volume, so it has the node ID
	} {
		v, st := judged(t, append([]change{deleted, stale}, changes...)...)
		check(t, v, Refuse, EvidenceVoid)
		if st.Note != want {
			t.Errorf("got %q, want %q", st.Note, want)
		}
	}
	// Of the machine that took over the Node; of the one before, it counts.
	v, st := judged(t, deleted, dropped, tookOver, stale, with(PowerReading))
	check(t, v, Refuse, EvidenceVoid)
	if st.Note != VoidOtherMachine {
		t.Errorf("of the newer machine: %q", st.Note)
	}
	v, _ = judged(t, deleted, dropped, tookOver, stale, with(PowerReading, func(e *Evidence) { e.BootID = "boot-1" }))
	check(t, v, Allow, HolderFenced)
}

// A machine that is there again under another Node has given its word anew, or its
// access has: what was read under the former Node may have been undone since.
func TestAStorageFenceOfAMachineThatRegisteredAnewMustHaveBeenReadOfItAsItIsNow(t *testing.T) {
	const system = "11111111-2222-3333-4444-555555555555"
	again := func(h *Holder) { h.Node.UID = "uid-9" }
	anew := func(h *Holder) {
		h.SystemUUID, h.Node.UID, h.Node.BootID, h.Node.SystemUUID = system, "uid-9", "boot-9", system
	}
	other := func(h *Holder) { h.Node.UID, h.Node.BootID = "uid-9", "boot-9" }
	ofNow := func(e *Evidence) { e.NodeUID = "uid-9" }
	for name, tt := range map[string]struct {
		change change
		read   func(*Evidence)
		void   string // empty: it counts
	}{
		"same boot, read before":        {again, nil, VoidRegisteredAgain},
		"same boot, read now":           {again, ofNow, ""},
		"same boot, of a third":         {again, func(e *Evidence) { e.NodeUID = "uid-3" }, VoidOtherMachine},
		"booted, read before":           {anew, nil, VoidBackAnew},
		"booted, read now":              {anew, ofNow, ""},
		"booted, of another's system":   {anew, func(e *Evidence) { e.NodeUID, e.SystemUUID = "uid-9", "99999999-2222-3333-4444-555555555555" }, VoidOtherMachine},
		"another that uses it":          {other, nil, VoidOtherMachine},
		"another that uses it, its own": {other, ofNow, VoidOtherMachine},
	} {
		if tt.read == nil {
			tt.read = func(*Evidence) {}
		}
		v, st := judged(t, deleted, unattachedAnew, stale, tt.change, with(StorageFence, tt.read))
		if tt.void == "" {
			check(t, v, Allow, HolderFenced)
			continue
		}
		check(t, v, Refuse, EvidenceVoid)
		if st.Note != tt.void {
			t.Errorf("%s: %q, want %q", name, st.Note, tt.void)
		}
	}
	// One that has the name and does not use the volume says nothing of the holder.
	v, _ := judged(t, deleted, unlisted, replaced, stale, with(StorageFence))
	check(t, v, Allow, HolderFenced)
}

// unattachedAnew: Kubernetes has detached it, and the Node still uses it.
func unattachedAnew(h *Holder) { h.Node.InUse, h.Node.ListedAttached = true, false }

func TestALeaseThatIsGoneWasNotRenewed(t *testing.T) {
	gone := func(h *Holder) { h.LeaseRV = "" }
	for name, tt := range map[string]struct {
		changes []change
		want    string
	}{
		"Node and lease":  {[]change{with(PowerReading), nodeGone}, VoidLeaseGone},
		"the lease alone": {[]change{with(PowerReading), gone}, VoidLeaseGone},
		"renewed":         {[]change{with(PowerReading, earlier)}, VoidLeaseChanged},
		"renewed, gone":   {[]change{nodeGone, func(h *Holder) { h.LeaseRV = "100" }, with(PowerReading, earlier)}, VoidLeaseChanged},
	} {
		v, st := judged(t, append([]change{deleted, unlisted, stale}, tt.changes...)...)
		check(t, v, Refuse, EvidenceVoid)
		if st.Note != tt.want {
			t.Errorf("%s: %q, want %q", name, st.Note, tt.want)
		}
	}
}

// An empty node_id means all nodes: nothing is unpublished, and the next holder
// is judged all the same.
func TestAHolderWithoutNodeIDHidesNoOther(t *testing.T) {
	for name, changes := range map[string][]change{"released": {dropped}, "fenced": {unlisted, stale, with(PowerReading, func(e *Evidence) { e.NodeID = "" })}} {
		s := expectation{changes: append([]change{deleted}, changes...)}.snapshot()
		s.Holders[0].NodeID = ""
		second := base().Holders[0]
		deleted(&second)
		s.Holders = append(s.Holders, second)
		want := HolderAlive
		if name == "fenced" {
			want = HolderUnknown // and it cannot be unpublished
		}
		check(t, JudgePublish(s, newNode), Refuse, want)
	}
}

func TestOwnNodeIsTheHoldersMachineAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change change
		own    bool
	}{"as it was": {func(*Holder) {}, true}, "gone": {nodeGone, false}, "another UID": {replaced, false}, "taken over": {tookOver, false},
		"no UID known": {func(h *Holder) { h.NodeUID = "" }, false}} {
		h := base().Holders[0]
		c.change(&h)
		if h.OwnNode() != c.own {
			t.Errorf("%s: own is %v", name, h.OwnNode())
		}
	}
}

func TestATextThatIsNoUUIDIsComparedAsItIs(t *testing.T) {
	plain := strings.Repeat("x", 36)
	for _, c := range []struct {
		a, b  string
		other bool
	}{
		{plain, plain, false}, {plain, strings.Repeat("y", 36), true},
		{"a-b-c-d-e", "a-b-c-d-e", false}, {"ab-b-c-d-e", "ba-b-c-d-e", true},
		{"abcd-b-c-d-e", "cdab-b-c-d-e", true},
	} {
		if otherSystem(c.a, c.b) != c.other {
			t.Errorf("%q and %q are two machines: %v", c.a, c.b, !c.other)
		}
	}
}

// A contest of another boot has ended, unless one of the boots is not known.
func TestOnlyTwoKnownBootsAreTwo(t *testing.T) {
	for _, c := range []struct {
		then, now string
		other     bool
	}{{"a", "b", true}, {"a", "a", false}, {"", "b", false}, {"a", "", false}, {"", "", false}} {
		if (&Contest{BootID: c.then}).OtherBoot(c.now) != c.other {
			t.Errorf("%q and %q are two boots: %v", c.then, c.now, !c.other)
		}
	}
}

func TestANameIsShortenedOnlyWhereItIsTooLong(t *testing.T) {
	fits, long := strings.Repeat("a", longName), strings.Repeat("a", 60)+strings.Repeat("b", longName-59)
	if short(fits) != fits || typed(fits, "NODE") != fits {
		t.Errorf("%d bytes are shortened to %q", len(fits), short(fits))
	}
	if got, want := short(long), long[:53]+"..."+long[len(long)-53:]; got != want || typed(long, "NODE") != "NODE" {
		t.Errorf("%d bytes are shortened to %q, want %q", len(long), got, want)
	}
	full := strings.Repeat("x", most)
	if Clip(full) != full || Clip(full+"y") != full[:most-3]+"..." {
		t.Errorf("%d bytes are clipped to %d", most, len(Clip(full)))
	}
	if most >= MaxMessage/2 || most < MaxMessage/2-50 {
		t.Errorf("the longest part has %d bytes of %d", most, MaxMessage)
	}
	if got := Clip("a\x1b[31m\xffb\u2028"); got != "a [31m\uFFFDb " {
		t.Errorf("printed as %q", got)
	}
}

func TestEvidenceIsNamedByKindAndSource(t *testing.T) {
	for want, e := range map[string]Evidence{"PowerReading (bmc)": {Kind: PowerReading, Source: "bmc"}, "NodeDeleted": {Kind: NodeDeleted}} {
		if e.String() != want {
			t.Errorf("%+v is %q, want %q", e, e.String(), want)
		}
	}
}

func TestAHolderIsNamedAsAPersonKnowsIt(t *testing.T) {
	for want, h := range map[string]Holder{"node ID i": {NodeID: "i"}, "node n": {NodeID: "n", NodeName: "n"}, "node n (ID i)": {NodeID: "i", NodeName: "n"}} {
		if h.Describe() != want {
			t.Errorf("%+v is %q, want %q", h, h.Describe(), want)
		}
	}
}

func TestAContestByTheTaintSaysToTakeItOff(t *testing.T) {
	for name, c := range map[string]struct {
		changes   []change
		says, not string
	}{
		"tainted":     {[]change{tainted}, "take the taint off: csi-fencepost release pv pv-1 --node n1 --reason 'WHY YOU ARE SURE' ; kubectl taint node n1 node.kubernetes.io/out-of-service-", "To unblock: reboot"},
		"not tainted": {[]change{contest}, "To unblock: reboot node n1", "taint"},
	} {
		s := expectation{changes: append([]change{deleted, dropped}, c.changes...)}.snapshot()
		v := JudgePublish(s, newNode)
		check(t, v, Refuse, HolderContested)
		if text := v.Message(&s); !strings.Contains(text, c.says) || strings.Contains(text, c.not) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// An old word that the machine runs is no evidence that somebody tried to prove
// it fenced.
func TestAVoidReadingOfOnSaysNothing(t *testing.T) {
	v, _ := judged(t, deleted, stale, with(PowerReading, readsOn, earlier))
	check(t, v, Refuse, HolderStale)
	v, _ = judged(t, deleted, unlisted, stale, with(OperatorConfirmation), with(PowerReading, readsOn, earlier))
	check(t, v, Allow, HolderFenced)
}

func TestEveryKindOfThisVersionIsKnown(t *testing.T) {
	for _, k := range []Kind{OutOfServiceTaint, CloudShutdownTaint, OperatorConfirmation, VolumeRelease, NodeDeleted, PowerReading, StorageFence,
		FenceAgentsRemediation, SelfNodeRemediation} {
		v, _ := judged(t, deleted, unlisted, stale, with(k))
		check(t, v, Allow, HolderFenced)
	}
}

func TestAMessageWithoutAReasonOrANameIsStillOne(t *testing.T) {
	s := base()
	if text := (Verdict{}).Message(&s); !strings.HasSuffix(text, "pv-1 ["+Runbook+"]") || strings.Contains(text, "[]") {
		t.Errorf("without a reason: %s", text)
	}
	// Whoever is known by a node ID alone cannot be named in a command.
	ways := Standing{Holder: &Holder{NodeID: "i-7"}, Reason: HolderStale}.Remedies(&s)
	if text := (Standing{Holder: &Holder{NodeID: "i-7"}, Reason: HolderStale}).unblock(&s); !strings.HasPrefix(text, "find out which machine node ID i-7 is;") || len(ways) != 1 || len(ways[0].Commands) != 0 {
		t.Errorf("without a name: %s", text)
	}
}

// A new machine takes over the Node, dies and is proven off; then its Node is
// deleted, so that nothing but the two machines' own UUIDs tells them apart.
func TestEvidenceOfTheMachineThatTookOverTheNodeIsNoneOfTheOneBefore(t *testing.T) {
	for _, kind := range []Kind{PowerReading, OutOfServiceTaint, StorageFence} {
		h := Holder{NodeID: "id-1", NodeName: "n1", NodeUID: "uid-1", BootID: "boot-1", SystemUUID: "system-1", State: Publishing,
			Evidence: []Evidence{{Kind: kind, NodeUID: "uid-1", BootID: "boot-2", SystemUUID: "system-2"}}}
		v := JudgeUnpublish(Snapshot{Holders: []Holder{h}}, "id-1")
		if v.Action != Refuse || v.Reason != EvidenceVoid || v.Blocking.Note != VoidOtherMachine {
			t.Errorf("%s: %s, %s", kind, v.Action, v.Reason)
		}
		for _, same := range []string{"system-1", ""} {
			h.Evidence[0].SystemUUID = same
			if v := JudgeUnpublish(Snapshot{Holders: []Holder{h}}, "id-1"); v.Action != Allow {
				t.Errorf("%s of machine %q: %s, %s", kind, same, v.Action, v.Reason)
			}
		}
	}
}

// It may have come back, and its new lease is gone with its Node: the record of a
// reading is from before, and the name, by which agents ask, is another machine's.
func TestEvidenceBoundToALeaseThatIsGoneDoesNotCountOnceTheNameIsTaken(t *testing.T) {
	for _, taken := range []change{replaced, tookOver} {
		for _, k := range []Kind{PowerReading, OperatorConfirmation, OutOfServiceTaint} {
			word := with(k, func(e *Evidence) { e.NodeUID, e.BootID = "uid-1", "boot-1" })
			v, st := judged(t, deleted, word, taken, func(h *Holder) { h.LeaseRV += "1" })
			check(t, v, Refuse, EvidenceVoid)
			if text := v.Message(&Snapshot{PV: "pv-1"}); st.Note != VoidNameTaken || !strings.Contains(text, "csi-fencepost fence confirm n1 --node-id "+oldNode) || strings.Contains(text, "kubectl taint") {
				t.Errorf("%s: %s", k, text)
			}
		}
	}
}

// Access that is revoked comes back with the next publish to the same node ID.
func TestRevokingIsNoEndWhereAnotherMachineHasTheNodeID(t *testing.T) {
	shared := func(h *Holder) { h.Shared = true }
	for what, c := range map[string][]change{
		"silent":             {stale},
		"its evidence void":  {stale, with(OperatorConfirmation, func(e *Evidence) { e.LeaseRV = "1" })},
		"gone":               {nodeGone},
		"another has a name": {replaced},
	} {
		s := expectation{changes: append(c, deleted)}.snapshot()
		s.Policy = revokes
		check(t, JudgePublish(s, newNode), Allow, HolderRevoked)
		shared(&s.Holders[0])
		for _, v := range []Verdict{JudgePublish(s, newNode), JudgeUnpublish(s, oldNode)} {
			if v.Action != Refuse {
				t.Errorf("%s: %s for %s", what, v.Action, v.Reason)
			}
		}
	}
}

// Whatever somebody said of a machine whose Node was gone: it runs, and may have
// begun the pods that it had.
func TestAMachineThatIsBackUnderAnotherNodeObjectVoidsWhatWasSaidOfIt(t *testing.T) {
	back := func(h *Holder) {
		replaced(h)
		h.SystemUUID, h.Node.SystemUUID = "system-1", "SYSTEM-1"
	}
	word := func(k Kind) change {
		return with(k, func(e *Evidence) { e.BootID, e.LeaseRV = "boot-1", "" })
	}
	for _, k := range []Kind{OperatorConfirmation, NodeDeleted, OutOfServiceTaint, PowerReading} {
		v, st := judged(t, deleted, back, word(k))
		check(t, v, Refuse, EvidenceVoid)
		if st.Note != VoidBackAnew || !strings.Contains(v.Message(&Snapshot{PV: "pv-1"}), "csi-fencepost release pv pv-1 --node n1") {
			t.Errorf("%s: %s", k, v.Message(&Snapshot{PV: "pv-1"}))
		}
	}
	v, st := judged(t, deleted, back)
	check(t, v, Refuse, HolderUnknown)
	if text := st.unblock(&Snapshot{PV: "pv-1"}); !strings.Contains(text, "csi-fencepost release pv pv-1 --node n1") || strings.Contains(text, "fence confirm") {
		t.Errorf("to unblock: %s", text)
	}
	v, _ = judged(t, deleted, back, with(VolumeRelease))
	check(t, v, Allow, HolderFenced)
	for what, c := range map[string]change{
		"another machine":  func(h *Holder) { h.Node.SystemUUID = "system-2" },
		"nobody can tell":  func(h *Holder) { h.SystemUUID = "" },
		"nobody can tell ": func(h *Holder) { h.Node.SystemUUID = "" },
		"the boards' maker wrote nothing": func(h *Holder) {
			h.SystemUUID, h.Node.SystemUUID = "03000200-0400-0500-0006-000700080009", "03000200-0400-0500-0006-000700080009"
		},
		"nor there, in the other byte order": func(h *Holder) {
			h.SystemUUID, h.Node.SystemUUID = "00020003-0004-0005-0006-000700080009", "00020003-0004-0005-0006-000700080009"
		},
		"nor there": func(h *Holder) { h.SystemUUID, h.Node.SystemUUID = "FFFFFFFF-FFFF", "ffffffff-ffff" },
	} {
		if v, _ := judged(t, deleted, back, word(OperatorConfirmation), c); v.Action != Allow {
			t.Errorf("%s: %s for %s", what, v.Action, v.Reason)
		}
	}
}
