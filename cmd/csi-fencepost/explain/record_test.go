package explain

import (
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Whoever explains asks nobody: what was answered last counts, for as long as a reading does.
func TestWhatFailoverAnsweredLastIsWhatExplainJudgesBy(t *testing.T) {
	h := &fence.Holder{NodeName: "n1", NodeID: "i1", NodeUID: "u1", BootID: "b1"}
	at := time.Now()
	asked := func(change func(*record.Record)) *record.Record {
		r := record.New("n1")
		r.Ask(record.Question{ID: "q", Driver: "d", Actor: "s", NodeUID: "u1", BootID: "b1", LeaseRV: "7"})
		change(r)
		return r
	}
	answer := func(state string, on ...string) func(*record.Record) {
		return func(r *record.Record) { r.Reply(*r.Question("q"), record.Answer{State: state, On: on, Actor: "f"}) }
	}
	override := func(agent string) func(*record.Record) {
		return func(r *record.Record) {
			r.AddOverride(record.Override{ID: "o", Agent: agent, By: "ann", Reason: "broken", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "7"}})
		}
	}
	for name, c := range map[string]struct {
		record     *record.Record
		now        time.Time
		n          int
		on, unsaid bool
		void       bool
	}{
		"never asked":          {record.New("n1"), at, 0, false, false, false},
		"on":                   {asked(answer("on", "bmc")), at, 1, true, false, false},
		"on, long ago":         {asked(answer("on", "bmc")), at.Add(time.Hour), 1, true, false, true},
		"on, overridden":       {asked(func(r *record.Record) { answer("on", "bmc")(r); override("bmc")(r) }), at, 1, true, false, true},
		"unclear":              {asked(answer("unclear")), at, 0, false, false, false},
		"no answer":            {asked(func(*record.Record) {}), at, 1, false, true, false},
		"no answer, overriden": {asked(override(fencer.FailoverAgent)), at, 1, false, true, true},
		"forged":               {asked(func(r *record.Record) { r.Questions[0].Answer = &record.Answer{State: "unclear", Actor: "eve"} }), at, 1, false, true, false},
		"of another machine": {func() *record.Record {
			r := record.New("n1")
			r.Ask(record.Question{ID: "q", Driver: "d", Actor: "s", NodeUID: "u2"})
			return r
		}(), at, 0, false, false, false},
	} {
		found := answered(c.record.QuestionOf("d"), c.record, h, c.now)
		if len(found) != c.n || c.n == 1 && (found[0].On != c.on || found[0].Unanswered != c.unsaid || (found[0].Void != "") != c.void) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
