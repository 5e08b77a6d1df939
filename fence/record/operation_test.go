package record

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

func actions(r *Record) (all []string) {
	for _, a := range r.Audit {
		all = append(all, a.Action)
	}
	return all
}

func TestWhatIsBegunAgainTheSameIsOneOperation(t *testing.T) {
	long := strings.Repeat("x", 2*maxText)
	first := Operation{Kind: On, Actor: "a", NodeUID: "u1", Reason: "repaired " + long}
	for name, tt := range map[string]struct {
		between func(*Record)
		again   func(*Operation)
		same    bool
	}{
		"the same":                 {same: true},
		"what it came to":          {between: func(r *Record) { r.End(r.Operation, "Unclear: no answer") }, same: true},
		"another kind":             {again: func(o *Operation) { o.Kind = Lift }},
		"by another":               {again: func(o *Operation) { o.Actor = "b" }},
		"another machine":          {again: func(o *Operation) { o.NodeUID = "u2" }},
		"another reason":           {again: func(o *Operation) { o.Reason = "moved" }},
		"something else since":     {between: func(r *Record) { r.Note("a", "Confirm", "c1: off") }},
		"a cut since":              {between: func(r *Record) { r.Begin(&Operation{ID: "f1", Kind: Cut, Actor: "a"}) }},
		"what came of another one": {between: func(r *Record) { r.End(Operation{ID: "o9", Kind: Lift, Actor: "b"}, "On") }},
	} {
		r := New("n1")
		one, two := first, first
		one.ID, two.ID = "o1", "o2"
		if !r.Begin(&one) {
			t.Fatalf("%s: the first is no new one", name)
		}
		if tt.between != nil {
			tt.between(r)
		}
		if tt.again != nil {
			tt.again(&two)
		}
		want := map[bool]string{true: "o1", false: "o2"}[tt.same]
		if begun := r.Begin(&two); begun == tt.same || two.ID != want || r.Operation.ID != want {
			t.Errorf("%s: begun anew: %v, as %s; on record is %s, want %s", name, begun, two.ID, r.Operation.ID, want)
		}
	}
}

func TestWhatAnAttemptCameToStandsInTheTrailOnce(t *testing.T) {
	r := New("n1")
	o := Operation{ID: "o1", Kind: Lift, Actor: "a", NodeUID: "u1", Reason: "booted"}
	r.Begin(&o)
	long := strings.Repeat("y", 2*maxText)
	for i, outcome := range []string{long, long, "On", long, "On"} {
		if want := i == 0 || i == 2; r.End(o, outcome) != want {
			t.Errorf("outcome %d is new: %v", i, !want)
		}
	}
	if got := strings.Join(actions(r), " "); got != "Begin:lift End:lift End:lift" {
		t.Errorf("trail: %s", got)
	}
	if last := r.Audit[2].Detail; last != "o1: On" {
		t.Errorf("the last says %q", last)
	}
	for i := range 9 {
		r.End(o, fmt.Sprint(i))
	}
	if len(r.Operation.Outcomes) != maxOutcomes || r.Operation.Outcomes[maxOutcomes-1] != "8" {
		t.Errorf("outcomes %q", r.Operation.Outcomes)
	}
	r.Note("b", "Confirm", "off")
	for range 2 {
		if !r.End(o, "On") {
			t.Error("after something else it is not written again")
		}
	}
}

func TestOnlyACutOpensNothing(t *testing.T) {
	for kind, want := range map[OperationKind]bool{Cut: false, On: true, Lift: true, "OfALaterVersion": true} {
		if o := (Operation{ID: "o1", Kind: kind}); o.GivesBack() != want {
			t.Errorf("%s: %v", kind, !want)
		}
	}
	if (&Operation{}).GivesBack() {
		t.Error("nobody has begun anything")
	}
}

// What is read and written again by each version in turn.
func TestRecordsOfTheVersionsBeforeAreUnderstoodAndWrittenSoThatTheyUnderstandThem(t *testing.T) {
	const head = `{"version":1,"node":"n1","fences":[{"id":"f1","kind":"StorageFence","driver":"d","machine":{"nodeUID":"u1"},"actor":"a","startedAt":"","phase":`
	power := strings.NewReplacer(`"StorageFence","driver":"d"`, `"PowerReading"`).Replace(head)
	for name, tt := range map[string]struct {
		stored  string
		phase   Phase
		ending  Ending
		written []string
	}{
		"fenced":            {head + `"Fenced"}]}`, Fenced, "", []string{`"phase":"Fenced"`}},
		"being lifted":      {head + `"Fenced","lifting":"booted"}]}`, Lifting, "", []string{`"phase":"Fenced"`, `"lifting":"booted"`}},
		"cut anew":          {head + `"Fencing","lifting":"booted"}]}`, Refencing, "", []string{`"phase":"Fencing"`, `"lifting":"booted"`}},
		"without a reason":  {head + `"Lifting"}]}`, Lifting, "", []string{`"phase":"Fenced"`, `"lifting":"no reason is on record"`}},
		"withdrawn":         {head + `"Void","why":"withdrawn: wrong"}]}`, Void, Withdrawn, []string{`"phase":"Void"`, `"why":"withdrawn: wrong","ending":"Withdrawn"`}},
		"power given back":  {power + `"Void","why":"given its power back: repaired"}]}`, Void, PowerGivenBack, []string{`"ending":"PowerGivenBack"`}},
		"heard of":          {power + `"Void","why":"its lease was renewed"}]}`, Void, "", []string{`"why":"its lease was renewed"`}},
		"failed with words": {head + `"Failed","why":"withdrawn: is what the device says"}]}`, Failed, "", []string{`"phase":"Failed"`}},
	} {
		r, err := Parse(tt.stored)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for range 2 { // what is written means the same to this version
			f := &r.Fences[0]
			if f.Phase != tt.phase || f.Ending != tt.ending {
				t.Errorf("%s: %s, ended %q, want %s, %q", name, f.Phase, f.Ending, tt.phase, tt.ending)
			}
			text, err := r.encode()
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range tt.written {
				if !strings.Contains(strings.ReplaceAll(text, `,"endedAt":""`, ""), part) {
					t.Errorf("%s is written as %s, want %s in it", name, text, part)
				}
			}
			if c := r.Clone(); f.Phase != tt.phase || !reflect.DeepEqual(c, r) {
				t.Errorf("%s: writing made it %+v, a copy %+v", name, r, c)
			}
			if r, err = Parse(text); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWithdrawnAndGivenBackReadAsBeforeToTheVersionsBefore(t *testing.T) {
	for ending, end := range map[Ending]func(*Record) bool{
		Withdrawn:      func(r *Record) bool { return r.WithdrawFence("f1", "x", "ann") },
		PowerGivenBack: func(r *Record) bool { return r.GivePowerBack("f1", "x", "ann") },
	} {
		r := New("n1")
		r.PutFence(fenceOf("f1", "PowerReading", "", Fenced), "Fence")
		if !end(r) || end(r) {
			t.Fatalf("%s: it is not ended once", ending)
		}
		f := r.FenceByID("f1")
		words := f.Why
		f.Ending = ""
		r.understood()
		if f.Ending != ending {
			t.Errorf("%q is understood as %q, want %q", words, f.Ending, ending)
		}
	}
}

func TestAnOperationOfAVersionBeforeIsReadFromTheTrail(t *testing.T) {
	trail := func(entries ...string) (all []Audit) {
		for _, e := range entries {
			action, detail, _ := strings.Cut(e, " ")
			all = append(all, Audit{Actor: "old", Action: action, Detail: detail})
		}
		return all
	}
	ours := Operation{ID: "o1", Kind: On, Actor: "new", Latest: true}
	resume := Operation{ID: "o9", Kind: "OfALaterVersion", Latest: true, Later: format.Later(`{"scope":"d"}`)}
	for name, tt := range map[string]struct {
		stored Operation
		audit  []Audit
		id     string
		kind   OperationKind
		latest bool
	}{
		"nothing":                         {Operation{}, nil, "", "", false},
		"theirs alone":                    {Operation{}, trail("Fence f1: x", "Begin:on o2: y", "End:on o2: z", "Confirm c"), "o2", On, false},
		"a lift":                          {Operation{}, trail("Begin:lift o2: y"), "o2", Lift, false},
		"theirs, ended by a cut":          {Operation{}, trail("Begin:on o2: y", "Fence f1: x", "Fenced f1: x"), "f1", Cut, false},
		"ours is the last":                {ours, trail("Begin:on o2: y", "Begin:on o1: y"), "o1", On, true},
		"ours, with what it came to":      {ours, trail("Confirm c", "Begin:on o1: y", "End:on o1: z"), "o1", On, true},
		"ours, and something else since":  {ours, trail("Begin:on o1: y", "Confirm c", "End:on o1: z"), "o1", On, false},
		"theirs began since":              {Operation{ID: "f1", Kind: Cut, Latest: true}, trail("Fence f1: x", "Begin:lift o2: y"), "o2", Lift, false},
		"they cut since":                  {ours, trail("Begin:on o1: y", "Fence f2: x"), "f2", Cut, false},
		"our entry went from the trail":   {ours, trail("End:on o1: z"), "o1", On, false},
		"a later version's":               {resume, trail("Fence f1: x", "Begin:resume o9: y"), "o9", "OfALaterVersion", true},
		"a later version's, not stored":   {ours, trail("Begin:on o1: y", "Begin:resume o9: y"), "o9", "resume", false},
		"ours, which was not the latest":  {Operation{ID: "o1", Kind: On}, trail("Begin:on o1: y"), "o1", On, false},
		"a cut since a later version's":   {resume, trail("Begin:resume o9: y", "Fence f1: x"), "f1", Cut, false},
		"a later version's without trail": {resume, nil, "o9", "OfALaterVersion", false},
	} {
		r := New("n1")
		r.Operation, r.Audit = tt.stored, tt.audit
		for range 2 { // once understood, it means the same
			r.understood()
			if o := r.Operation; o.ID != tt.id || o.Kind != tt.kind || o.Latest != tt.latest {
				t.Errorf("%s: %q %s, the latest: %v; want %q %s, %v", name, o.ID, o.Kind, o.Latest, tt.id, tt.kind, tt.latest)
			}
		}
		if tt.id == "o9" && tt.stored.ID == "o9" && string(r.Operation.Later) != `{"scope":"d"}` {
			t.Errorf("%s: what it says besides is lost: %s", name, r.Operation.Later)
		}
	}
}

// A version before goes by the trail: while something is given back, "Begin:" stands there.
func TestWhatIsBegunAgainStandsInTheTrailWhateverCameBetween(t *testing.T) {
	for name, between := range map[string]func(*Record, Operation, int){
		"others' entries of a version before": func(r *Record, _ Operation, _ int) {
			r.Audit = append(r.Audit, Audit{Actor: "old", Action: "BindRemediation", Detail: "k: x"})
		},
		"outcomes that differ each time": func(r *Record, o Operation, i int) {
			r.End(o, fmt.Sprint("read tcp: port ", i, strings.Repeat("x", 400)))
		},
	} {
		r := New("n1")
		for i := range 3 * maxAudit {
			o := Operation{ID: fmt.Sprint("o", i), Kind: On, Actor: "a", NodeUID: "u1", Reason: "repaired"}
			r.Begin(&o)
			if !slices.ContainsFunc(r.Audit, func(a Audit) bool { return a.Action == "Begin:on" && operationID(a) == o.ID }) {
				t.Fatalf("%s: attempt %d, %s, is not in the trail", name, i, o.ID)
			}
			between(r, o, i)
			text, err := r.encode()
			if err != nil {
				t.Fatal(err)
			}
			if r, err = Parse(text); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestARecordIsWrittenEverywhereAsItIsStored(t *testing.T) {
	r := New("n1")
	f := fenceOf("s1", "StorageFence", "d", Fenced)
	f.Lift("booted")
	r.PutFence(f, "Fence")
	stored, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{r, *r} {
		text, err := json.Marshal(v)
		if err != nil || string(text) != stored || !strings.Contains(stored, `"phase":"Fenced"`) || !strings.Contains(stored, `"lifting":"booted"`) {
			t.Errorf("%v: %s\nwant %s", err, text, stored)
		}
	}
	if r.Fences[0].Phase != Lifting {
		t.Errorf("writing made it %s", r.Fences[0].Phase)
	}
	read, err := Parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	if c := read.Clone(); !reflect.DeepEqual(c, read) || c.Fences[0].Phase != Lifting {
		t.Errorf("the copy is %+v, want %+v", c, read)
	}
}

func TestAFenceIsLiftedOrCutAnewFromEachPhase(t *testing.T) {
	for _, phase := range []Phase{Fencing, Fenced, Lifting, Refencing, Failed, Void, Lifted} {
		f := Fence{Phase: phase}
		begun := f.Lift("booted")
		if want := phase == Fenced || phase == Fencing; begun != want || begun && (!f.BeingLifted() || f.LiftReason != "booted" || f.Standing() != true) {
			t.Errorf("%s: begun %v, then %+v", phase, begun, f)
		}
		was := f
		if off := f.CallOffLift(); off != was.BeingLifted() || f.BeingLifted() || f.LiftReason != "" || begun && f.Phase != phase {
			t.Errorf("%s: called off %v, then %+v", phase, off, f)
		}
		if current := (&Fence{Phase: phase}).Current(); current == slices.Contains([]Phase{Failed, Void, Lifted}, phase) {
			t.Errorf("%s is current: %v", phase, current)
		}
	}
}
