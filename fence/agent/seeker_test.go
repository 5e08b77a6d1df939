package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// seeking is a vendor's agent that finds machines by their provider IDs. It looks at no doubt.
type seeking struct{ *device }

func (seeking) Seeks(string) []string { return []string{VarProviderID} }

// naming names what the machine that it found has.
type naming struct{ seeking }

func (naming) Status(context.Context, Machine) (Reading, error) {
	return Reading{Named: []string{"192.0.2.1/32", "192.0.2.2/32"}, Cut: []string{"192.0.2.1/32"}}, nil
}

// wrapped is how whoever counts calls hands an agent on.
type wrapped struct{ Agent }

func (w wrapped) Unwrap() Agent { return w.Agent }

// R1: that another machine is off, or that its access is open, says nothing of this one. That it
// has power keeps one that may live from being taken for dead.
func TestOfAMachineInDoubtNoSeekerIsBelievedButThatItHasPower(t *testing.T) {
	const power, storage = fence.PowerReading, fence.StorageFence
	doubts := map[string]Doubt{VarProviderID: {Why: "node n2 says it too", Way: "look"}}
	for name, c := range map[string]struct {
		kind   fence.Kind
		reads  State
		doubts map[string]Doubt
		state  State
	}{
		"power off":                     {power, Off, doubts, Unclear},
		"power on":                      {power, On, doubts, On},
		"access cut":                    {storage, Off, doubts, Unclear},
		"access open":                   {storage, On, doubts, Unclear},
		"power off, and no doubt":       {power, Off, nil, Off},
		"access open, and no doubt":     {storage, On, nil, On},
		"access cut, and another doubt": {storage, Off, map[string]Doubt{VarSystemUUID: {}}, Off},
	} {
		t.Run(name, func(t *testing.T) {
			d := &device{name: "a", kind: c.kind, status: reads(c.reads)}
			m := Machine{Node: "n1", Doubts: c.doubts}
			for _, a := range []Agent{seeking{d}, wrapped{seeking{d}}} {
				o := Levels{{{Agent: a}}}.Ask(t.Context(), m)
				if o.State != c.state {
					t.Errorf("%v, want %v: %s", o.State, c.state, o.Why)
				}
				said := o.Steps[0].Err
				if (said != "") != (c.state == Unclear) || said != "" && !strings.Contains(said, "it reads "+c.reads.String()+", which proves nothing: $(PROVIDER_ID) of node n1 may be another machine's: node n2 says it too; look") {
					t.Error(said)
				}
			}
		})
	}
}

// What a half-cut reading names is another machine's, too.
func TestOfAMachineInDoubtNothingIsNamed(t *testing.T) {
	d := &device{name: "a", kind: fence.StorageFence}
	o := Levels{{{Agent: naming{seeking{d}}}}}.Ask(t.Context(), Machine{Node: "n1", Doubts: map[string]Doubt{VarProviderID: {}}})
	if st := o.Steps[0]; st.Err == "" || len(st.Named)+len(st.Cut) > 0 {
		t.Errorf("%+v", st)
	}
}

// R1: it would be another machine that is cut off, or let in.
func TestAMachineInDoubtIsNeitherCutOffNorLetIn(t *testing.T) {
	for name, doubts := range map[string]map[string]Doubt{"in doubt": {VarProviderID: {Why: "node n2 says it too"}}, "in none": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &device{name: "a", kind: fence.StorageFence, status: reads(Off)}
				l := Levels{{{Agent: wrapped{seeking{d}}}}}
				m := Machine{Node: "n1", Fenced: []string{"192.0.2.1/32"}, Doubts: doubts}
				for action, o := range map[string]Outcome{"off": l.Off(t.Context(), m, permit), "on": l.On(t.Context(), m)} {
					sent, said := d.times(action), ""
					for _, st := range o.Steps {
						if st.Action == action {
							said = st.Err
						}
					}
					if doubts == nil && (sent == 0 || said != "") || doubts != nil && (sent > 0 || !strings.Contains(said, "$(PROVIDER_ID) of node n1 may be another machine's")) {
						t.Errorf("%s was sent %d times: %q", action, sent, said)
					}
				}
			})
		})
	}
}
