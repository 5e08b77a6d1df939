package failover

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// answering is a Fencer whose agents give one answer.
type answering struct {
	Fencer
	answer fencer.Answer
}

func (f answering) Ask(context.Context, fencer.Target) (fencer.Answer, error) { return f.answer, nil }

// An agent that reads on speaks against what others read; one that an operator has
// declared broken, of that very machine, does not, and proves nothing either.
func TestOnlyAnAgentThatNobodyDeclaredBrokenContradicts(t *testing.T) {
	server := apiserver.New(apiserver.Options{})
	apiserver.Put(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "records"}})
	records := record.NewStore(kubernetes.NewForConfigOrDie(server.Config("test", nil)).CoordinationV1(), "records")
	machine := record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "5"}
	broken := record.Override{ID: "o1", Agent: "bmc", By: "ann", Reason: "its display is frozen",
		Machine: record.Machine{NodeUID: machine.NodeUID, BootID: machine.BootID, LeaseRV: machine.LeaseRV}}
	if _, err := records.OverrideAgent(t.Context(), "n1", broken); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		on   []string
		said agent.State
		want agent.State
	}{
		"nobody reads on":                   {nil, agent.Unclear, agent.Unclear},
		"one that works reads on":           {[]string{"pdu"}, agent.Unclear, agent.On},
		"the broken one alone":              {[]string{"bmc"}, agent.On, agent.Unclear},
		"the broken one and one that works": {[]string{"bmc", "pdu"}, agent.On, agent.On},
		"off, whatever the broken one says": {[]string{"bmc"}, agent.Off, agent.Off},
	} {
		t.Run(name, func(t *testing.T) {
			f := answering{answer: fencer.Answer{State: c.said, Kind: fence.PowerReading, On: c.on, Machine: machine, Why: "as read"}}
			w := &worker{Controller: New(Options{Fencer: f, Records: records}), name: "n1"}
			got, err := w.read(t.Context(), fencer.Target{Node: "n1"})
			if err != nil || got.State != c.want || strings.Contains(got.Why, "overridden by an operator") != (c.want == agent.Unclear && len(c.on) > 0) {
				t.Errorf("%+v (%v), want %s", got, err, c.want)
			}
		})
	}
}
