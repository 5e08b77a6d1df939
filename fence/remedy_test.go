package fence

import (
	"slices"
	"strings"
	"testing"
)

// registeredAgain: the Node was deleted, and the same boot is back under another one.
func registeredAgain(h *Holder) { h.Node.UID = "uid-9" }

// backAfterBoot: the Node was deleted, and the machine is back after a boot.
func backAfterBoot(h *Holder) {
	replaced(h)
	dropped(h)
	h.SystemUUID, h.Node.SystemUUID = "system-1", "system-1"
}

func offers(r *Remedy, command string) bool {
	return slices.ContainsFunc(r.Commands, func(c string) bool { return strings.Contains(c, command) })
}

// Who does what a refusal says must not be told next that it does not count.
func TestWhatARemedyHasAPersonSayCounts(t *testing.T) {
	for _, r := range refusals {
		s := r.snapshot()
		if r.target {
			continue
		}
		st := r.verdicts(&s)[0].Blocking
		for _, way := range st.Remedies(&s) {
			h := *st.Holder
			h.Evidence = nil
			if offers(&way, "kubectl delete node") {
				nodeGone(&h)
			}
			off := func(k Kind) {
				if h.liveness() == Alive || h.liveness() == Unwatched {
					h.Liveness = Stale // it is turned off first
				}
				with(k, func(e *Evidence) { e.BootID = h.BootID })(&h)
			}
			switch {
			case offers(&way, "fence confirm"):
				off(OperatorConfirmation)
			case offers(&way, "nodeshutdown:NoExecute"):
				off(OutOfServiceTaint)
			case offers(&way, "release pv"):
				with(VolumeRelease, func(e *Evidence) { // as record.ReleaseOf binds it
					e.BootID, e.LeaseRV, e.Attachment = h.BootID, "", h.Attachment.UID
					n := h.Here()
					if n != nil {
						e.BootID = n.BootID
					}
					if e.Living = n != nil && h.Liveness != Stale && h.Liveness != Unknown; n != nil && !e.Living {
						e.LeaseRV = h.LeaseRV
					}
				})(&h)
			default:
				continue
			}
			for i := range h.Evidence {
				if ok, why := h.Evidence[i].holds(&h); !ok {
					t.Errorf("%s: %q, and then: %s", r.name, way.What, why)
				}
			}
		}
	}
}

// explain shows commands whole, and says of each holder what else would do.
func TestRemediesAreAlternativesOfWhichTheFirstStandsAlone(t *testing.T) {
	for _, r := range refusals {
		s := r.snapshot()
		for i, way := range r.verdicts(&s)[0].Blocking.Remedies(&s) {
			if way.Commands == nil || strings.HasSuffix(way.What, ".") {
				t.Errorf("%s: %+v", r.name, way)
			}
			if i > 0 != strings.HasPrefix(way.What, "Or") {
				t.Errorf("%s, way %d: %q", r.name, i, way.What)
			}
		}
	}
}

// What cannot be released is not offered.
func TestAReleaseIsOfferedOnlyWhereItCanBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		changes []change
		pv      string
		offered bool
	}{
		"as it is":            {nil, "pv-1", true},
		"no PersistentVolume": {nil, "", false},
		"no node ID":          {[]change{func(h *Holder) { h.NodeID = "" }}, "pv-1", false},
	} {
		for _, held := range [][]change{{deleted, nodeGone}, {deleted, registeredAgain, stale}, {deleted, dropped, contest}} {
			s := expectation{changes: slices.Concat(held, c.changes)}.snapshot()
			s.PV = c.pv
			_, st, _ := s.Alone(s.Holders[0])
			ways := st.Remedies(&s)
			if got := slices.ContainsFunc(ways, func(w Remedy) bool { return offers(&w, "release pv") }); got != c.offered {
				t.Errorf("%s, %s: %+v", name, st.Reason, ways)
			}
			if len(ways) == 0 {
				t.Errorf("%s, %s: nothing is offered", name, st.Reason)
			}
		}
	}
}
