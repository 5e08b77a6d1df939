package simulate

import (
	"strings"
	"testing"
)

// TestALimitOfTheWideWorldIsNotItsNeighbour: what etcd forgot and what went while nobody
// guarded is counted as a limit, and with one thing less it breaks its rule.
func TestALimitOfTheWideWorldIsNotItsNeighbour(t *testing.T) {
	const (
		// The volume is published to n2, whose pod goes; the machine is cut off and loses its name.
		left     = "clock 5s; cut-node n2; force-delete-pod v1; replace n2; "
		released = "delete-pod v1; sync n1; unmount v1 n1; status n1; end-pod v1; settle; "
		to2      = "schedule v1 n2; settle; "
		moved    = "settle; schedule v1 n3; clock 370s; settle"
	)
	restored := func(s Stats) int { return s.Restored }
	stripped := func(s Stats) int { return s.StrippedUnguarded }
	for name, c := range map[string]struct {
		script string
		limit  func(Stats) int // nil: the rule is broken
	}{
		"etcd is restored to before the publish":               {released + "backup; " + to2 + left + "restore; " + moved, restored},
		"it is restored to a time after the publish":           {released + to2 + "backup; " + left + "restore; " + moved, nil},
		"it is stripped, and then saved and restored":          {released + to2 + left + "strip-va v1 n2; backup; restore; " + moved, nil},
		"nothing is restored":                                  {released + "backup; " + to2 + left + moved, nil},
		"published unguarded, and stripped before anybody was": {released + "mode observe; start r1; " + to2 + left + "strip-va v1 n2; mode enforce; " + moved, stripped},
		"stripped once somebody guards":                        {released + "mode observe; start r1; " + to2 + left + "mode enforce; start r1; strip-va v1 n2; " + moved, nil},
		"published while somebody guarded, and stripped later": {released + to2 + "mode observe; start r1; " + left + "strip-va v1 n2; mode enforce; " + moved, nil},
		"neither": {released + "mode observe; start r1; " + to2 + left + "mode enforce; " + moved, nil},
	} {
		t.Run(name, func(t *testing.T) {
			setup, events, err := ParseScript("setup nodes=3 wide=true\n" + strings.ReplaceAll(c.script, ";", "\n"))
			if err != nil {
				t.Fatal(err)
			}
			r := Replay(t, withoutGuard, setup, events, false)
			switch {
			case c.limit == nil && r.Rule != "R1" && r.Rule != "R2":
				t.Errorf("breaks %q (%s), neither R1 nor R2", r.Rule, r.Violation)
			case c.limit != nil && (r.Rule != "" || c.limit(r.Stats) != 1):
				t.Errorf("breaks %q (%s), counts %+v", r.Rule, r.Violation, r.Stats)
			}
		})
	}
}
