package record

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

func fenceOf(id string, kind fence.Kind, driver string, phase Phase) Fence {
	return Fence{ID: id, Kind: kind, Driver: driver, Phase: phase, Actor: "sidecar", StartedAt: "2026-01-02T03:04:05Z", Machine: FencedMachine{NodeUID: "u1"}}
}

func phases(r *Record) string {
	var all []string
	for _, f := range r.Fences {
		all = append(all, f.ID+":"+string(f.Phase))
	}
	return strings.Join(all, " ")
}

func TestTheStoredFormatOfFencesIsStable(t *testing.T) {
	const format = `{"version":1,"node":"n1","fences":[{"id":"f1","kind":"StorageFence","driver":"d","what":"10.0.0.1/32",` +
		`"machine":{"nodeUID":"u1","bootID":"b1","leaseRV":"5","systemUUID":"s","nodeIDs":{"d":"id1"}},"phase":"Fenced","actor":"sidecar","reason":"stale",` +
		`"forced":true,"agents":["array"],"startedAt":"2026-01-02T03:04:05Z","endedAt":"2026-01-02T03:04:06Z","why":"w",` +
		`"witness":{"nodeUID":"u1","bootID":"b1","readySince":"2026-01-02T03:09:05Z","leaseRV":"5","actor":"sidecar"},` +
		`"steps":[{"agent":"array","action":"off","attempt":1,"state":"unclear","detail":"ok","err":"e","at":"2026-01-02T03:04:05Z","tookMS":12}]}],` +
		`"overrides":[{"id":"o1","agent":"bmc","by":"ann","reason":"broken","at":"2026-01-02T03:04:05Z","machine":{"nodeUID":"u1","bootID":"b1","leaseRV":"5"}}]}`
	r, err := Parse(format)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := r.encode(); err != nil || text != format {
		t.Errorf("encoded:\n%s\nwant:\n%s\n%v", text, format, err)
	}
}

func TestAWitnessStandsAtTheStorageFenceThatItIsOf(t *testing.T) {
	seen := Witness{NodeUID: "u1", BootID: "b1", ReadySince: "r", LeaseRV: "5", Actor: "sidecar"}
	r := New("n1")
	for _, f := range []Fence{fenceOf("p", fence.PowerReading, "", Fenced), fenceOf("s1", fence.StorageFence, "d1", Fenced),
		fenceOf("s2", fence.StorageFence, "d2", Lifting), fenceOf("s3", fence.StorageFence, "d3", Void)} {
		r.PutFence(f, "Fenced")
	}
	trail := len(r.Audit)
	for id, want := range map[string]bool{"p": false, "s1": true, "s2": true, "s3": false, "none": false} {
		if r.PutWitness(id, seen) != want || id != "none" && (r.FenceByID(id).Witness != nil) != want {
			t.Errorf("%s is given a witness: want %t", id, want)
		}
	}
	// It is seen at each look: nothing is to be written again, nor to push the trail out.
	seen.Actor = "another replica"
	if r.PutWitness("s1", seen) || len(r.Audit) != trail {
		t.Error("the same witness is written again")
	}
	for name, other := range map[string]Witness{
		"another Node":           {NodeUID: "u2", BootID: "b1", ReadySince: "r", LeaseRV: "5"},
		"another boot":           {NodeUID: "u1", BootID: "b2", ReadySince: "r", LeaseRV: "5"},
		"a break in being Ready": {NodeUID: "u1", BootID: "b1", ReadySince: "s", LeaseRV: "5"},
		"another fence":          {NodeUID: "u1", BootID: "b1", ReadySince: "r", LeaseRV: "6"},
	} {
		if other.Same(&seen) {
			t.Errorf("%s: it is taken for the same", name)
		}
	}
	var none *Witness
	if none.Same(nil) || none.Same(&seen) || seen.Same(nil) {
		t.Error("nothing is a witness")
	}
	// The fence is made anew: of that nobody has seen anything.
	r.PutFence(fenceOf("s1", fence.StorageFence, "d1", Fenced), "Fenced")
	if r.FenceByID("s1").Witness != nil {
		t.Error("a fence that was made anew has the witness of the one before")
	}
}

func TestARecordHasOneCurrentPowerFenceAndOneStorageFenceOfEachDriver(t *testing.T) {
	r := New("n1")
	r.PutFence(fenceOf("p1", fence.PowerReading, "d1", Fencing), "Fence") // a power fence is of no driver
	r.PutFence(fenceOf("s1", fence.StorageFence, "d1", Fenced), "Fenced")
	r.PutFence(fenceOf("s2", fence.StorageFence, "d2", Fenced), "Fenced")
	r.PutFence(fenceOf("p1", fence.PowerReading, "", Fenced), "Fenced") // the same one
	if got := phases(r); got != "p1:Fenced s1:Fenced s2:Fenced" {
		t.Fatal(got)
	}
	r.PutFence(fenceOf("p2", fence.PowerReading, "", Fencing), "Fence")
	r.PutFence(fenceOf("p3", fence.PowerReading, "", Fenced), "Fenced")
	if got := phases(r); got != "p1:Void s1:Fenced s2:Fenced p2:Failed p3:Fenced" {
		t.Fatal(got)
	}
	if err := r.validate(); err != nil {
		t.Error(err)
	}
	if r.Fence(fence.PowerReading, "any").ID != "p3" || r.Fence(fence.StorageFence, "d2").ID != "s2" || r.Fence(fence.StorageFence, "d3") != nil {
		t.Error("the wrong fence is current")
	}
	if !r.StorageFenced("d1") || r.StorageFenced("d3") {
		t.Error("StorageFenced")
	}
	r.EndFence("s1", Lifted, "back", "sidecar")
	if r.StorageFenced("d1") || r.EndFence("s1", Void, "again", "sidecar") {
		t.Error("a lifted fence is current")
	}
	var actions []string
	for _, a := range r.Audit {
		actions = append(actions, a.Action)
	}
	if got := strings.Join(actions, " "); got != "Fence Fenced Fenced Fenced EndFence Fence EndFence Fenced LiftedFence" {
		t.Errorf("audit trail: %s", got)
	}
}

func TestOneMachineInOneBootIsOneUIDAndOneBootID(t *testing.T) {
	m := FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "5"}
	for _, tt := range []struct {
		other FencedMachine
		same  bool
	}{
		{FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "6", SystemUUID: "s"}, true},
		{FencedMachine{NodeUID: "u1", BootID: "b2", LeaseRV: "5"}, false},
		{FencedMachine{NodeUID: "u2", BootID: "b1", LeaseRV: "5"}, false},
		{FencedMachine{NodeUID: "u2", BootID: "b2", LeaseRV: "5"}, false},
	} {
		if m.Same(tt.other) != tt.same || tt.other.Same(m) != tt.same {
			t.Errorf("%+v and %+v are one machine: %v", m, tt.other, !tt.same)
		}
	}
}

func TestTheAuditTrailSaysWhatWasFencedAndWhy(t *testing.T) {
	r := New("n1")
	power, storage := fenceOf("p1", fence.PowerReading, "", Fencing), fenceOf("s1", fence.StorageFence, "d1", Fenced)
	power.Machine.BootID, power.Machine.LeaseRV = "b1", "5"
	power.Reason, storage.Why = "lease unchanged for 60s", "no answer"
	r.PutFence(power, "Fence")
	r.PutFence(storage, "Fenced")
	next := fenceOf("p2", fence.PowerReading, "", Fenced)
	next.Actor = "another"
	r.PutFence(next, "Fenced")
	r.PutFence(fenceOf("p3", fence.PowerReading, "", Fenced), "Fenced")
	r.EndFence("p3", Void, "renewed", "sidecar")
	for i, want := range []string{
		`p1: PowerReading, node UID u1, boot ID "b1", lease "5": lease unchanged for 60s`,
		`s1: StorageFence, node UID u1, boot ID "", lease "", driver d1: no answer`,
		`p1: left unfinished by sidecar; another went on with fence p2`,
		`p2: PowerReading, node UID u1, boot ID "", lease ""`,
		`p2: fence p3 took its place`,
		`p3: PowerReading, node UID u1, boot ID "", lease ""`,
		`p3: renewed`,
	} {
		if got := r.Audit[i].Detail; got != want {
			t.Errorf("entry %d says %s, want %s", i, got, want)
		}
	}
	for _, id := range []string{"p1", "p2", "p3"} {
		if f := r.FenceByID(id); f.Why == "" || f.EndedAt == "" {
			t.Errorf("%+v does not say why and when it ended", f)
		}
	}
}

func TestParseRefusesFencesThatSayTooLittle(t *testing.T) {
	tests := map[string]struct {
		spoil func(*Record)
		says  string
	}{
		"no id":                  {func(r *Record) { r.Fences[0].ID = "" }, "no id"},
		"another kind":           {func(r *Record) { r.Fences[0].Kind = "NodeDeleted" }, "kind"},
		"a driver's power fence": {func(r *Record) { r.Fences[0].Driver = "d" }, "of one driver"},
		"nobody's storage fence": {func(r *Record) { r.Fences[1].Driver = "" }, "of one driver"},
		"of no machine":          {func(r *Record) { r.Fences[0].Machine.NodeUID = "" }, "nodeUID"},
		"by nobody":              {func(r *Record) { r.Fences[0].Actor = "" }, "by whom"},
		"unknown phase":          {func(r *Record) { r.Fences[0].Phase = "Done" }, "phase"},
		"two are current": {func(r *Record) {
			r.Fences = append(r.Fences, fenceOf("old", fence.PowerReading, "", Failed), fenceOf("x", fence.PowerReading, "", Fenced))
		}, "both current"},
		"too many are current": {func(r *Record) {
			for i := range maxFences {
				r.Fences = append(r.Fences, fenceOf(fmt.Sprint(i), fence.StorageFence, fmt.Sprint("d", i), Fenced))
			}
		}, "more than 24"},
		"override without id":     {func(r *Record) { r.Overrides[0].ID = "" }, "no id"},
		"override of no agent":    {func(r *Record) { r.Overrides[0].Agent = "" }, "no agent"},
		"override by nobody":      {func(r *Record) { r.Overrides[0].By = "" }, "by whom"},
		"override of no machine":  {func(r *Record) { r.Overrides[0].Machine.NodeUID = "" }, "nodeUID"},
		"override without reason": {func(r *Record) { r.Overrides[0].Reason = "" }, "why"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := New("n1")
			r.PutFence(fenceOf("p", fence.PowerReading, "", Fenced), "Fenced")
			r.PutFence(fenceOf("s", fence.StorageFence, "d", Fenced), "Fenced")
			r.Overrides = []Override{{ID: "o", Agent: "bmc", By: "ann", Reason: "x", Machine: Machine{NodeUID: "u1"}}}
			tt.spoil(r)
			text, err := format.Text(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(string(text)); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestFencesAreBoundedAndACurrentOneIsNeverDropped(t *testing.T) {
	r := New("n1")
	r.PutFence(fenceOf("s", fence.StorageFence, "d", Fenced), "Fenced")
	long := strings.Repeat("x", 5000)
	for i := range 200 {
		f := fenceOf(fmt.Sprint("p", i), fence.PowerReading, "", Fenced)
		f.What, f.Reason = long, long
		for range 100 {
			f.Steps = append(f.Steps, FenceStep{Agent: "a", Action: "status", Detail: long, Err: long, At: "2026-01-02T03:04:05Z"})
		}
		r.PutFence(f, "Fenced")
		r.Releases = append(r.Releases, Release{ID: fmt.Sprint(i), Volume: long, Driver: "d", NodeID: "i", By: "ann", Reason: "y"})
	}
	text, err := r.encode()
	if err != nil || len(text) > maxBytes {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	back, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if !back.StorageFenced("d") || back.Fence(fence.PowerReading, "").ID != "p199" || len(back.Fence(fence.PowerReading, "").Steps) == 0 {
		t.Errorf("left: %s", phases(back))
	}
	if len(back.Fences) != 2+maxSettled {
		t.Errorf("%d fences", len(back.Fences))
	}
}

func TestOfFencesThatCountNoMoreTheNewestAreKept(t *testing.T) {
	r := New("n1")
	for i := range maxSettled {
		r.PutFence(fenceOf(fmt.Sprint("f", i), fence.PowerReading, "", Failed), "FenceFailed")
	}
	r.bound()
	if got := phases(r); got != "f0:Failed f1:Failed f2:Failed f3:Failed" {
		t.Errorf("left: %s", got)
	}
	r.PutFence(fenceOf("s", fence.StorageFence, "d", Fenced), "Fenced")
	r.PutFence(fenceOf("f4", fence.PowerReading, "", Failed), "FenceFailed")
	r.bound()
	if got := phases(r); got != "f1:Failed f2:Failed f3:Failed s:Fenced f4:Failed" {
		t.Errorf("left: %s", got)
	}
}

func TestTheNewestStepsOfTheNewestFencesAreKept(t *testing.T) {
	r := New("n1")
	for i, steps := range []int{1, maxSteps, maxSteps + 1} {
		f := fenceOf(fmt.Sprint("f", i), fence.PowerReading, "", Failed)
		for n := range steps {
			f.Steps = append(f.Steps, FenceStep{Attempt: n, Detail: strings.Repeat("x", 5000), Err: strings.Repeat("y", 5000)})
		}
		r.PutFence(f, "FenceFailed")
	}
	r.bound()
	size := 0
	for _, f := range r.Fences {
		for _, st := range f.Steps {
			size += len(st.Detail) + len(st.Err)
		}
	}
	oldest, middle, newest := r.Fences[0].Steps, r.Fences[1].Steps, r.Fences[2].Steps
	if len(oldest) != 0 || len(middle) == 0 || len(middle) == maxSteps || len(newest) != maxSteps || size > maxFenceText || size < maxFenceText/2 {
		t.Fatalf("%d, %d and %d steps are left, of %d bytes", len(oldest), len(middle), len(newest), size)
	}
	if middle[len(middle)-1].Attempt != maxSteps-1 || newest[0].Attempt != 1 || newest[maxSteps-1].Attempt != maxSteps {
		t.Error("the newest steps are not those that are left")
	}
}

// A block that is missing there is opened by nobody.
func TestWhatWasCutIsKeptWhereANodeHasManyAddresses(t *testing.T) {
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprintf("2001:db8:1111:2222:3333:4444:5555:%x/128", 0x6600+i))
	}
	text := "array: driver x lists " + strings.Join(all, ", ") + " as fenced"
	r := New("n1")
	f := fenceOf("s", fence.StorageFence, "d", Fenced)
	f.What, f.Steps = text, []FenceStep{{Action: "off", Detail: text}, {Action: "status", Detail: text}}
	r.PutFence(f, "Fenced")
	s := r.FenceByID("s")
	if s.What != text || s.Steps[0].Detail != text || len(s.Steps[1].Detail) > maxStepText {
		t.Errorf("kept are %d, %d and %d bytes of %d", len(s.What), len(s.Steps[0].Detail), len(s.Steps[1].Detail), len(text))
	}
	f.What += strings.Repeat("x", maxCutText)
	f.Steps[0].Detail = f.What
	r.PutFence(f, "Fenced")
	if s := r.FenceByID("s"); len(s.What) > maxCutText || len(s.Steps[0].Detail) > maxCutText {
		t.Error("it is not bounded")
	}
}

func TestTheStepsOfAllFencesAreBoundedWhicheverTextIsLong(t *testing.T) {
	long := strings.Repeat("x", maxStepText)
	for name, step := range map[string]FenceStep{
		"none": {}, "agent": {Agent: long}, "action": {Action: long}, "state": {State: long}, "detail": {Detail: long}, "error": {Err: long}, "time": {At: long},
	} {
		t.Run(name, func(t *testing.T) {
			r := New("n1")
			for i := range maxFences {
				f := fenceOf(fmt.Sprint(i), fence.StorageFence, fmt.Sprint("d", i), Fenced)
				f.Steps = slices.Repeat([]FenceStep{step}, maxSteps)
				r.PutFence(f, "Fenced")
			}
			if err := r.validate(); err != nil {
				t.Fatal(err)
			}
			r.bound()
			size := 0
			for _, f := range r.Fences {
				text, err := format.Text(f.Steps)
				if err != nil {
					t.Fatal(err)
				}
				size += len(text)
			}
			if len(r.Fences) != maxFences || size > maxFenceText || size < maxFenceText/2 {
				t.Errorf("%d fences with steps of %d bytes", len(r.Fences), size)
			}
		})
	}
}

// A version before vouched for the fence alone: that it cut is known once the machine is to be
// switched on, as long as the fence itself is vouched for.
func TestWhoGivesPowerBackVouchesForWhatWasCut(t *testing.T) {
	for _, vouched := range []bool{true, false} {
		r := New("n1")
		f := Fence{ID: "f1", Kind: fence.PowerReading, Phase: Fenced, Actor: "x", Machine: FencedMachine{NodeUID: "u"}, Steps: []FenceStep{{Agent: "bmc", Action: "off"}}}
		r.Fences = []Fence{f}
		if vouched {
			r.vouch(&r.Fences[0])
		}
		if r.Vouched(r.Fences[0].Cutting()) {
			t.Fatal("somebody vouches for when it cut already")
		}
		if !r.GivePowerBack("f1", "repaired", "ann") || r.Vouched(r.FenceByID("f1").Cutting()) != vouched {
			t.Errorf("vouched for %v: that it cut is vouched for: %v", vouched, !vouched)
		}
	}
}

func TestWhatCutsANodeOffIsToldFromWhatFoundItOff(t *testing.T) {
	off, failedOff, status := FenceStep{Action: "off"}, FenceStep{Action: "off", Err: "timeout"}, FenceStep{Action: "status"}
	for name, c := range map[string]struct {
		phase Phase
		steps []FenceStep
		want  bool
	}{
		"found off":                            {Fenced, []FenceStep{status}, false},
		"cut off":                              {Fenced, []FenceStep{status, off}, true},
		"cut off, as it seemed not to be done": {Fenced, []FenceStep{failedOff, status}, true},
		"under way, and nothing sent":          {Fencing, []FenceStep{status}, true},
		"failed, and nothing sent":             {Failed, []FenceStep{status}, false},
		"failed, and no request taken":         {Failed, []FenceStep{failedOff, status}, false},
		"failed, and a request was taken":      {Failed, []FenceStep{failedOff, off}, true},
	} {
		f := Fence{Phase: c.phase, Steps: c.steps}
		if got := f.Cuts(); got != c.want {
			t.Errorf("%s: it cuts: %v", name, got)
		}
	}
}

// When a fence cut decides what an earlier word counts for: nobody moves it who cannot vouch for it.
func TestSinceWhenAFenceCutsIsVouchedForOrIsNow(t *testing.T) {
	const before = "2026-01-02T03:04:05Z"
	cuts, found := []FenceStep{{Action: "off"}}, []FenceStep{{Action: "status"}}
	for name, c := range map[string]struct {
		steps        []FenceStep
		old, vouched bool
		kept         bool // when it began, as it is given
	}{
		"a new one that cuts":                   {cuts, false, false, true},
		"a new one that found it off":           {found, false, false, true},
		"nobody vouches, and it cuts":           {cuts, true, false, false},
		"nobody vouches, and it cuts nothing":   {found, true, false, true},
		"somebody vouches, and it cuts":         {cuts, true, true, true},
		"somebody vouches, and it cuts nothing": {found, true, true, true},
	} {
		r := New("n1")
		f := fenceOf("f1", fence.PowerReading, "", Fenced)
		f.Steps = c.steps
		if c.old {
			r.Fences = []Fence{f}
		}
		if c.vouched {
			r.vouch(r.Fences[0].Cutting())
		}
		r.PutFence(f, "Fence")
		got := r.FenceByID("f1")
		if (got.StartedAt == before) != c.kept || r.Vouched(got.Cutting()) != got.Cuts() {
			t.Errorf("%s: began at %s, vouched for: %v", name, got.StartedAt, r.Vouched(got.Cutting()))
		}
	}
}

func TestWhatAMachineMissedIsWrittenDownOnce(t *testing.T) {
	r := New("n1")
	r.Fences = []Fence{fenceOf("f1", fence.PowerReading, "", Fenced)}
	for _, c := range []struct {
		id, missed string
		want       bool
	}{{"f2", "a renewal", false}, {"f1", "", false}, {"f1", "a renewal", true}, {"f1", "a renewal", false}, {"f1", "another", false}, {"f1", "", false}} {
		if got := r.PutMissed(c.id, c.missed); got != c.want {
			t.Errorf("%s, %q: written: %v", c.id, c.missed, got)
		}
	}
	if got := r.FenceByID("f1").Missed; got != "a renewal" {
		t.Errorf("it is %q", got)
	}
}

// Versions side by side read what each other vouches for: what a claim's digest is made of stays.
func TestTheDigestsOfWhatIsVouchedForAreStable(t *testing.T) {
	f := Fence{ID: "f1", Kind: fence.PowerReading, Phase: Fenced, Actor: "a", StartedAt: "2026-01-02T03:04:05Z", Missed: "a renewal",
		Machine: FencedMachine{NodeUID: "u1", BootID: "b1", SystemUUID: "s1", LeaseRV: "7", NodeIDs: map[string]string{"d": "i1"}},
		Steps:   []FenceStep{{Agent: "bmc", Action: "off", At: "x", Err: "timeout"}, {Agent: "bmc", Action: "off", At: "y"}, {Agent: "bmc", Action: "status", At: "z"}}}
	for claim, want := range map[Claim]string{f.Cutting(): "babe39ec094a82f4aeaa8ac2e3a394fecd62e83206ce92b8b31be77c1b16821f", f.Missing(): "8b64dace0eb6160995da3c2575403ac2b7aecec43406da3d5b6f304f9c98c797"} {
		if got := digest(claim); got != want {
			t.Errorf("%T: %s, want %s", claim, got, want)
		}
	}
	for name, change := range map[string]func(*Fence){
		"of the storage": func(f *Fence) { f.Kind = fence.StorageFence },
		"not proven":     func(f *Fence) { f.Phase = Fencing },
		"nothing missed": func(f *Fence) { f.Missed = "" },
	} {
		other := f
		change(&other)
		if got := digest(other.Missing()); got != "" {
			t.Errorf("%s: it is missing something: %s", name, got)
		}
	}
	if digest((*Fence)(nil).Missing()) != "" || digest((*Fence)(nil).Cutting()) != "" {
		t.Error("no fence claims something")
	}
}

// A fence whose access is being given back is written as one that stands, with the reason, also
// behind one of which nothing is given back.
func TestAFenceThatIsBeingLiftedIsWrittenAsOneThatStands(t *testing.T) {
	r := New("n1")
	standing, lifting, again := fenceOf("f1", fence.PowerReading, "", Fenced), fenceOf("f2", fence.StorageFence, "d", Lifting), fenceOf("f3", fence.StorageFence, "e", Refencing)
	lifting.LiftReason = "repaired"
	r.Fences = []Fence{standing, lifting, again}
	text, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, `"phase":"Lifting"`) || strings.Contains(text, `"phase":"Refencing"`) || strings.Count(text, `"lifting":`) != 2 {
		t.Errorf("written as %s", text)
	}
	back, err := Parse(text)
	if err != nil || phases(back) != phases(r) {
		t.Errorf("read as %s, %v; it was %s", phases(back), err, phases(r))
	}
}
