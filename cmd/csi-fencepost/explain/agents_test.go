package explain

import (
	"context"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// named is an agent of which only its name and what it proves are asked.
type named struct {
	name   string
	proves fence.Kind
}

func (n named) Name() string                                                 { return n.name }
func (n named) Proves() fence.Kind                                           { return n.proves }
func (n named) Covers(string) bool                                           { return true }
func (n named) Status(context.Context, agent.Machine) (agent.Reading, error) { panic("asked") }
func (n named) Off(context.Context, agent.Machine) (string, error)           { panic("asked") }
func (n named) On(context.Context, agent.Machine) (string, error)            { panic("asked") }

func TestWhatAgentsReadIsEvidenceAsItIsForTheSidecar(t *testing.T) {
	power, storage := fence.PowerReading, fence.StorageFence
	x := &explaining{asked: &sidecar.AgentSet{}}
	for level, agents := range [][]named{{{"bmc", power}, {"pdu", power}}, {{"cloud", power}}, {{"array", storage}}} {
		var l agent.Level
		for _, a := range agents {
			b := agent.Bounded{Agent: a}
			l = append(l, b)
			x.asked.Members = append(x.asked.Members, sidecar.Member{Bounded: b, Level: level + 1})
		}
		x.asked.Levels = append(x.asked.Levels, l)
	}
	read := func(text string) (views []cluster.ReadingView) {
		levels := map[string]int{"bmc": 1, "pdu": 1, "cloud": 2, "array": 3}
		for _, word := range strings.Fields(text) {
			name, state, _ := strings.Cut(word, "=")
			views = append(views, cluster.ReadingView{Agent: name, Level: levels[name], State: state})
		}
		return views
	}
	for _, c := range []struct{ reads, want string }{
		{"bmc=off pdu=off cloud=unclear", "off by bmc, pdu"},
		{"bmc=off pdu=unclear cloud=unclear", ""},         // all agents of a level must confirm
		{"bmc=off pdu=unclear cloud=off", "off by cloud"}, // the next level has
		{"bmc=off pdu=off cloud=on", "on by cloud"},       // one that reads on is against it
		{"bmc=on pdu=off cloud=on", "on by bmc, on by cloud"},
		{"bmc=unclear pdu=unclear array=off", ""}, // a cut storage is shown, not judged by
		{"array=on bmc=off pdu=off", "off by bmc, pdu"},
		{"", ""},
	} {
		var got []string
		for _, e := range x.evidenceOf(read(c.reads)) {
			word := "off by "
			if e.On {
				word = "on by "
			}
			got = append(got, word+e.Source)
			if e.Kind != power {
				t.Errorf("%s: evidence of kind %s", c.reads, e.Kind)
			}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q", c.reads, text, c.want)
		}
	}
}
