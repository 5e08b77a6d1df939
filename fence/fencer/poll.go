package fencer

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// Polled names the agents that Poll asks about that node, all at once, and tells how often it is to be
// called; 0: never.
func (f *Fencer) Polled(node string) (agents []string, every time.Duration) {
	levels, every := f.Levels.Polled(node)
	for _, level := range levels {
		for _, b := range level {
			agents = append(agents, b.Agent.Name())
		}
	}
	return agents, every
}

// Poll asks the agents that are polled, once, whether the Node's machine is on. It reads nothing of
// the API server and writes nothing, so that the answer proves nothing: that it reads off is a
// reason to Ask, and that it reads on ends what an answer of off was good for. It takes no turn
// among the questions that Ask puts.
func (f *Fencer) Poll(ctx context.Context, n *corev1.Node) (s agent.State, why string) {
	polled, _ := f.Levels.Polled(n.Name)
	t := Target{Node: n.Name, UID: string(n.UID), BootID: n.Status.NodeInfo.BootID}
	o := polled.Ask(ctx, look{node: n}.machine(t))
	if o.State == agent.On {
		f.forgetOff(n.Name)
	}
	return o.State, o.Why
}
