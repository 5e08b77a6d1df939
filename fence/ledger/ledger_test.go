package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

func sample() *Ledger {
	return &Ledger{
		Version: 1, Driver: "d.example.com", Handle: "vol-1", Cluster: "cluster-uid", PVUID: "pv-uid",
		Holders: []Entry{
			{NodeID: "i-1", NodeName: "n1", NodeUID: "u1", BootID: "b1", Token: "t1", State: fence.Leaving, Contest: &fence.Contest{BootID: "b1", SeenReadySince: "2026-01-01T00:00:00Z"}},
			{NodeID: "projects/<p>&q/é", NodeName: "n2", Token: "t2", State: fence.Publishing},
		},
	}
}

func TestTheTextOfALedgerIsStableAndCompact(t *testing.T) {
	const want = `{"version":1,"driver":"d.example.com","handle":"vol-1","cluster":"cluster-uid","pvUID":"pv-uid","holders":[` +
		`{"nodeID":"i-1","node":"n1","nodeUID":"u1","bootID":"b1","token":"t1","state":"leaving","contested":{"bootID":"b1","seenReadySince":"2026-01-01T00:00:00Z"}},` +
		`{"nodeID":"projects/<p>&q/é","node":"n2","token":"t2","state":"publishing"}]}`
	if got := sample().String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	parsed, err := Parse(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(parsed, sample()) {
		t.Errorf("parsed %+v", parsed)
	}
}

func TestAnEmptyLedgerIsALedger(t *testing.T) {
	l := sample()
	l.Holders = nil
	parsed, err := Parse(l.String())
	if err != nil || parsed.Holders == nil || len(parsed.Holders) != 0 {
		t.Errorf("parsed %+v, %v from %s", parsed, err, l)
	}
}

func TestParseTakesNothingSilently(t *testing.T) {
	good := sample().String()
	tests := []struct{ name, old, new, says string }{
		{"empty", good, ``, "not JSON"},
		{"no object", good, `[]`, "not JSON"},
		{"null", good, `null`, "version is missing"},
		{"truncated", `]}`, ``, "not JSON"},
		{"trailing text", `]}`, `]} x`, "not JSON"},
		{"not UTF-8", "vol-1", "vol-\xff", "UTF-8"},
		{"no version", `"version":1,`, ``, "version is missing"},
		{"version 0", `"version":1`, `"version":0`, "version 0 is unknown"},
		{"later version with fields of its own", `"version":1`, `"version":2,"new":1`, "newer"},
		{"a field that has to be known", `"driver"`, `"must":["seal"],"seal":1,"driver"`, "with fields that this one would have to know: seal"},
		{"field in another case", `"cluster"`, `"Cluster"`, "cluster is missing"},
		{"field twice", `"driver"`, `"driver":"x","driver"`, "duplicate"},
		{"state twice", `"state":"leaving"`, `"state":"leaving","state":"released"`, "duplicate"},
		{"no driver", `"driver":"d.example.com",`, ``, "driver is missing"},
		{"no handle", `"handle":"vol-1",`, ``, "handle is missing"},
		{"no cluster", `"cluster":"cluster-uid",`, ``, "cluster is missing"},
		{"no pvUID", `"pvUID":"pv-uid",`, ``, "pvUID is missing"},
		{"no holders", good[strings.Index(good, `,"holders"`):], `}`, "holders is missing"},
		{"null holders", good[strings.Index(good, `[`):], `null}`, "holders is missing"},
		{"null holder", `[{`, `[null,{`, "holders[0].nodeID is missing"},
		{"no node ID", `"nodeID":"i-1",`, ``, "holders[0].nodeID is missing"},
		{"one node ID twice", `"projects/<p>&q/é"`, `"i-1"`, `holders[1].nodeID: "i-1" is there twice`},
		{"no state", `,"state":"publishing"`, ``, "holders[1].state"},
		{"unknown state", `"publishing"`, `"Publishing"`, `"Publishing" is unknown`},
		{"unknown source", `"state":"publishing"`, `"state":"publishing","from":"hearsay"`, `"hearsay" is unknown`},
		{"another type", `"state":"publishing"`, `"state":1`, "number"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(good, test.old, test.new, 1)
			if text == good {
				t.Fatalf("the test changes nothing")
			}
			l, err := Parse(text)
			if err == nil {
				t.Fatalf("%s was taken as %+v", text, l)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
		})
	}
}

func TestAGarbledLedgerSaysWhereItIsAndHowToMendIt(t *testing.T) {
	err := (&GarbledError{PV: "pv-1", Err: fmt.Errorf("version is missing")}).Error()
	for _, says := range []string{"PersistentVolume pv-1", "version is missing", "which node uses the volume", "kubectl annotate pv pv-1 csi-fencepost.io/holders-"} {
		if !strings.Contains(err, says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample().String())
	f.Add(`{"version":1,"driver":"d","handle":"v","cluster":"c","pvUID":"p","holders":[]}`)
	f.Add(`{"version":1,"driver":"d","handle":"v","cluster":"c","pvUID":"p","holders":[{"nodeID":"\u2028","state":"held","contested":{}}]}`)
	f.Add(`{"version":1}`)
	f.Add(`{"version":1,"holders":[{"state":"takenOver"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			if l != nil {
				t.Errorf("an error and a ledger: %v, %+v", err, l)
			}
			return
		}
		again, err := Parse(l.String())
		if err != nil {
			t.Fatalf("%s: written and not read again: %v", l, err)
		}
		if !reflect.DeepEqual(l, again) {
			t.Errorf("%s became %s", l, again)
		}
	})
}

func TestNothingCutsAnEntryNewerThanItsOwn(t *testing.T) {
	l := sample()
	if l.Cut("i-1", "t0") || l.Cut("i-3", "t1") || l.Cut("i-1", "") || len(l.Holders) != 2 {
		t.Errorf("an entry of another token was cut: %s", l)
	}
	if !l.Cut("i-1", "t1") || l.Get("i-1") != nil || len(l.Holders) != 1 {
		t.Errorf("not cut: %s", l)
	}
	if l.Cut("i-1", "t1") {
		t.Error("cut twice")
	}
}

func TestPutReplacesTheEntryOfTheNodeID(t *testing.T) {
	l := sample()
	l.Put(Entry{NodeID: "i-1", NodeName: "n1", Token: "t3", State: fence.Held})
	if len(l.Holders) != 2 || l.Get("i-1").Token != "t3" || l.Get("i-1").Contest != nil {
		t.Errorf("%s", l)
	}
	l.Put(Entry{NodeID: "i-1b", NodeName: "n1", Token: "t4", State: fence.Held})
	if got := l.ByNodeName("n1"); len(got) != 2 || got[0].NodeID != "i-1" || got[1].NodeID != "i-1b" {
		t.Errorf("by node name: %v", got)
	}
	l.Get("i-1").State = fence.Leaving
	if l.Get("i-1").State != fence.Leaving {
		t.Error("Get does not point into the ledger")
	}
}

func TestOnlyTheLastTakenOverEntriesAreKept(t *testing.T) {
	l := &Ledger{}
	l.Put(Entry{NodeID: "holder", State: fence.Held})
	for i := range 11 {
		l.Put(Entry{NodeID: fmt.Sprint(i), State: fence.TakenOver})
	}
	var ids []string
	for _, e := range l.Holders {
		ids = append(ids, e.NodeID)
	}
	if got, want := strings.Join(ids, " "), "holder 3 4 5 6 7 8 9 10"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// An entry that is taken over only now is the latest.
	l.Put(Entry{NodeID: "holder", State: fence.TakenOver})
	if l.Get("holder") == nil || l.Get("3") != nil || l.Get("4") == nil {
		t.Errorf("%s", l)
	}
}

func TestAnEntryThatIsTakenOverHoldsNothingAndIsTheLatest(t *testing.T) {
	l := sample()
	l.Get("i-1").From = fence.FromDriver
	if l.MarkTaken("i-1", "t2", false) || l.MarkTaken("i-9", "t1", false) {
		t.Errorf("an entry of another token was taken over: %s", l)
	}
	if !l.MarkTaken("i-1", "t1", true) || l.Holders[1].NodeID != "i-1" {
		t.Fatalf("not the latest: %s", l)
	}
	want := Entry{NodeID: "i-1", NodeName: "n1", NodeUID: "u1", BootID: "b1", Token: "t1", State: fence.TakenOver, Unproven: true}
	if got := *l.Get("i-1"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if l.MarkTaken("i-1", "t1", false); l.Get("i-1").Unproven {
		t.Error("a proof came later, and it is still unproven")
	}
	if parsed, err := Parse(l.String()); err != nil || !reflect.DeepEqual(parsed, l) {
		t.Errorf("parsed again: %v, %s", err, parsed)
	}
}

func TestWhatTwoPVsSayOfOneEntryIsTakenAtItsWorst(t *testing.T) {
	driver := Entry{State: fence.Held, Token: "a", From: fence.FromDriver}
	other := Entry{State: fence.Publishing, Token: "c"}
	proven, unproven := Entry{State: fence.TakenOver, Token: "a"}, Entry{State: fence.TakenOver, Token: "b", Unproven: true}
	for name, c := range map[string]struct {
		ours, theirs Entry
		from         fence.Source
		unproven     bool
	}{
		"only the driver, twice":      {driver, driver, fence.FromDriver, false},
		"only the driver, ours":       {driver, other, "", false},
		"only the driver, theirs":     {other, driver, "", false},
		"unproven, ours":              {unproven, proven, "", true},
		"unproven, theirs":            {proven, unproven, "", true},
		"unproven, and holding again": {unproven, other, "", false},
	} {
		l := &Ledger{Holders: []Entry{c.ours}}
		l.merge(&Ledger{Holders: []Entry{c.theirs}})
		if got := l.Holders[0]; got.From != c.from || got.Unproven != c.unproven {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What frees a machine counts only where both say it of the same VolumeAttachment; of two states
// the one that allows less has its own.
func TestOfTwoPVsEntriesAVolumeAttachmentCountsThatBothName(t *testing.T) {
	released := func(under string) Entry { return Entry{State: fence.Released, ReleasedUnder: under} }
	only := func(state fence.State, under string) Entry { return Entry{State: state, OnlyUnder: under} }
	for name, c := range map[string]struct {
		ours, theirs        Entry
		releasedUnder, only string
	}{
		"released under the same":           {released("va"), released("va"), "va", ""},
		"released under another":            {released("va"), released("vb"), "", ""},
		"released under one, theirs not":    {released("va"), released(""), "", ""},
		"released under one, ours not":      {released(""), released("va"), "", ""},
		"released, and taken over there":    {released("va"), Entry{State: fence.TakenOver}, "va", ""},
		"taken over, and released there":    {Entry{State: fence.TakenOver}, released("va"), "va", ""},
		"released, and held there":          {released("va"), Entry{State: fence.Held}, "", ""},
		"held, and released there":          {Entry{State: fence.Held}, released("va"), "", ""},
		"only under the same":               {only(fence.Publishing, "va"), only(fence.Publishing, "va"), "", "va"},
		"only under another":                {only(fence.Publishing, "va"), only(fence.Publishing, "vb"), "", ""},
		"only under one, theirs not":        {only(fence.Publishing, "va"), only(fence.Publishing, ""), "", ""},
		"only under another, that counts":   {only(fence.TakenOver, "va"), only(fence.Held, "vb"), "", ""},
		"only under the same, theirs count": {only(fence.TakenOver, "va"), only(fence.Held, "va"), "", "va"},
	} {
		l := &Ledger{Holders: []Entry{c.ours}}
		l.merge(&Ledger{Holders: []Entry{c.theirs}})
		if got := l.Holders[0]; got.ReleasedUnder != c.releasedUnder || got.OnlyUnder != c.only {
			t.Errorf("%s: released under %q, only under %q; want %q and %q", name, got.ReleasedUnder, got.OnlyUnder, c.releasedUnder, c.only)
		}
	}
}

// What a later version wrote is of one publication, and goes with it.
func TestPutKeepsWhatALaterVersionWroteOfThePublication(t *testing.T) {
	l := &Ledger{Holders: []Entry{{NodeID: "a", Token: "t1", Later: format.Later(`{"later":1}`)}}}
	l.Put(Entry{NodeID: "a", Token: "t1", State: fence.Leaving})
	if got := string(l.Get("a").Later); got != `{"later":1}` {
		t.Errorf("of the same publication: %q", got)
	}
	l.Put(Entry{NodeID: "a", Token: "t2", State: fence.Held})
	if got := l.Get("a").Later; got != nil {
		t.Errorf("of another one: %q", got)
	}
}

func TestWhatAnotherPVsLedgerHasBesidesItsHoldersIsKept(t *testing.T) {
	l := &Ledger{Must: []string{"a"}, Later: format.Later(`{"one":1}`)}
	l.merge(&Ledger{Must: []string{"a", "b"}, Later: format.Later(`{"two":2}`), ForcedIn: []string{"b1"}})
	if !slices.Equal(l.Must, []string{"a", "b"}) || !strings.Contains(string(l.Later), `"one":1`) || !strings.Contains(string(l.Later), `"two":2`) || !l.WasForcedIn("b1") {
		t.Errorf("must %q, later %s, forced in %q", l.Must, l.Later, l.ForcedIn)
	}
}

// An entry that names no process, or another one, is of a publish before which something else may
// have run.
func TestOfTwoPVsEntriesAProcessCountsThatBothName(t *testing.T) {
	p, same, other := &fence.Process{Start: 1, CPU: 2, Key: "k"}, &fence.Process{Start: 1, CPU: 2, Key: "k"}, &fence.Process{Start: 9, CPU: 2, Key: "k"}
	for name, c := range map[string]struct {
		ours, theirs *fence.Process
		state        fence.State // of theirs
		want         bool
	}{
		"both":                        {p, same, fence.Publishing, true},
		"both, and theirs counts":     {p, same, fence.Held, true},
		"ours alone":                  {p, nil, fence.Publishing, false},
		"theirs alone":                {nil, p, fence.Publishing, false},
		"another":                     {p, other, fence.Publishing, false},
		"ours alone, theirs counts":   {p, nil, fence.Held, false},
		"theirs alone, and it counts": {nil, p, fence.Held, false},
		"another one, that counts":    {p, other, fence.Held, false},
	} {
		ours := fence.TakenOver
		if c.state == fence.Publishing {
			ours = fence.Publishing
		}
		l := &Ledger{Holders: []Entry{{Token: "a", State: ours, Kubelet: c.ours}}}
		l.merge(&Ledger{Holders: []Entry{{Token: "b", State: c.state, Kubelet: c.theirs}}})
		if got := l.Holders[0].Kubelet; (got != nil) != c.want || got != nil && *got != *p {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBootsInWhichItWasForcedAreKeptUntilTheyAreTooMany(t *testing.T) {
	l := sample()
	l.Forced("b1", "b2")
	l.Forced("b1")
	if len(l.ForcedIn) != 2 || !l.WasForcedIn("b1") || !l.WasForcedIn("b2") || l.WasForcedIn("b3") {
		t.Errorf("%q", l.ForcedIn)
	}
	full := &Ledger{}
	for i := range maxForcedIn {
		full.Forced(fmt.Sprint("d", i))
	}
	if len(full.ForcedIn) != maxForcedIn || full.WasForcedIn("another") {
		t.Errorf("%d boots are not told apart: %q", maxForcedIn, full.ForcedIn)
	}
	other := &Ledger{}
	for i := range maxForcedIn - 1 {
		other.Forced(fmt.Sprint("c", i))
	}
	if other.WasForcedIn("b1") || len(other.ForcedIn) != maxForcedIn-1 {
		t.Errorf("%q", other.ForcedIn)
	}
	unknown := &Ledger{}
	unknown.Forced("b1", "")
	if len(unknown.ForcedIn) != 1 || !unknown.WasForcedIn("b3") {
		t.Errorf("of a boot that nobody knows: %q", unknown.ForcedIn)
	}
	clone := l.Clone()
	l.merge(other)
	if len(l.ForcedIn) != 1 || !l.WasForcedIn("b3") {
		t.Errorf("of two PVs' ledgers, together more than are told apart: %q", l.ForcedIn)
	}
	if again, err := Parse(clone.String()); err != nil || !again.WasForcedIn("b2") || again.WasForcedIn("b3") {
		t.Errorf("written and read: %v, %v", again, err)
	}
}

func TestACloneSharesNothing(t *testing.T) {
	l := sample()
	clone := l.Clone()
	clone.Holders[0].Contest.BootID = "changed"
	clone.Holders[1].State = fence.Held
	clone.Cut("i-1", "t1")
	if !reflect.DeepEqual(l, sample()) {
		t.Errorf("changing a clone changed the ledger: %s", l)
	}
}

func TestOfTwoPVsEntriesTheOneThatAllowsLessCounts(t *testing.T) {
	contest := &fence.Contest{BootID: "b"}
	tests := []struct {
		name          string
		ours, theirs  Entry
		state         fence.State
		token         string
		wantContested bool
	}{
		{"takenOver gives way", Entry{State: fence.TakenOver, Token: "a"}, Entry{State: fence.Held, Token: "b"}, fence.Held, "b", false},
		{"takenOver does not replace", Entry{State: fence.Held, Token: "a"}, Entry{State: fence.TakenOver, Token: "b"}, fence.Held, "a", false},
		{"released gives way", Entry{State: fence.Released, Token: "a"}, Entry{State: fence.Publishing, Token: "b"}, fence.Publishing, "b", false},
		{"leaving gives way", Entry{State: fence.Leaving, Token: "a"}, Entry{State: fence.Publishing, Token: "b"}, fence.Publishing, "b", false},
		{"the canonical one of two equals", Entry{State: fence.Held, Token: "a"}, Entry{State: fence.Publishing, Token: "b"}, fence.Held, "a", false},
		{"of one publication, theirs", Entry{State: fence.Released, Token: "a"}, Entry{State: fence.Publishing, Token: "a"}, fence.Publishing, "a", false},
		{"of one publication, ours", Entry{State: fence.Held, Token: "a"}, Entry{State: fence.Released, Token: "a"}, fence.Held, "a", false},
		{"a contest stays, theirs", Entry{State: fence.Held, Token: "a"}, Entry{State: fence.Held, Token: "b", Contest: contest}, fence.Held, "a", true},
		{"a contest stays, ours", Entry{State: fence.Leaving, Token: "a", Contest: contest}, Entry{State: fence.Held, Token: "b"}, fence.Held, "b", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := &Ledger{Holders: []Entry{test.ours}}
			l.merge(&Ledger{Holders: []Entry{test.theirs, {NodeID: "other", State: fence.Held}}})
			got := l.Holders[0]
			if got.State != test.state || got.Token != test.token || (got.Contest != nil) != test.wantContested {
				t.Errorf("got %+v", got)
			}
			if len(l.Holders) != 2 || l.Holders[1].NodeID != "other" {
				t.Errorf("not a union: %s", l)
			}
		})
	}
}

// Who waits for a call sees that one was made, whichever of two PVs' entries it stands in.
func TestOfTwoPVsEntriesNeitherHidesACallOfTheOther(t *testing.T) {
	merged := func(a, b string) string {
		l := &Ledger{Holders: []Entry{{State: fence.Leaving, Token: "t", Call: a}}}
		l.merge(&Ledger{Holders: []Entry{{State: fence.Leaving, Token: "t", Call: b}}})
		return l.Holders[0].Call
	}
	if merged("1", "1") != "1" || merged("1", "2") == merged("1", "3") || merged("1", "2") == merged("3", "2") {
		t.Errorf("of 1 and 1 %q, of 1 and 2 %q, of 1 and 3 %q, of 3 and 2 %q", merged("1", "1"), merged("1", "2"), merged("1", "3"), merged("3", "2"))
	}
}

// Whoever waits for the call to end waits for the longest.
func TestOfTwoPVsEntriesTheLongestCallCounts(t *testing.T) {
	for _, c := range [][2]Entry{
		{{State: fence.Leaving, Token: "a", LeavingSeconds: 10}, {State: fence.Leaving, Token: "b", LeavingSeconds: 600}},
		{{State: fence.Leaving, Token: "a", LeavingSeconds: 600}, {State: fence.Leaving, Token: "b", LeavingSeconds: 10}},
		{{State: fence.Released, Token: "a", LeavingSeconds: 600}, {State: fence.Leaving, Token: "a", LeavingSeconds: 10}},
	} {
		l := &Ledger{Holders: []Entry{c[0]}}
		l.merge(&Ledger{Holders: []Entry{c[1]}})
		if got := l.Holders[0]; got.State != fence.Leaving || got.LeavingSeconds != 600 {
			t.Errorf("of %+v: %+v", c, got)
		}
	}
}

func TestOfTwoPVsEntriesOfOnePublicationWhatALaterVersionWroteIsKept(t *testing.T) {
	of := func(state, later string) *Ledger {
		l, err := Parse(fmt.Sprintf(`{"version":1,"driver":"d","handle":"h","cluster":"c","pvUID":"u","holders":[{"nodeID":"n","token":"t","state":%q,%q:1}]}`, state, later))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, l := range []*Ledger{of("released", "a"), of("held", "a")} {
		l.merge(of("leaving", "b"))
		if got := l.String(); !strings.Contains(got, `"a":1`) || !strings.Contains(got, `"b":1`) {
			t.Errorf("%s", got)
		}
	}
}

// Removed, as a garbled one is, it would lose every holder that it names.
func TestALedgerOfANewerVersionIsToBeLeftAsItIs(t *testing.T) {
	for _, text := range []string{`{"version":2}`, `{"version":1,"must":["seal"]}`} {
		_, wrong := Parse(text)
		says := (&GarbledError{PV: "pv-1", Err: wrong}).Error()
		if !strings.Contains(says, "run the newer csi-fencepost") || !strings.Contains(says, "leave it as it is") || strings.Contains(says, "kubectl") {
			t.Errorf("%s: %s", text, says)
		}
	}
}
