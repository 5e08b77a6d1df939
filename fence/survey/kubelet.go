package survey

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// kubelet asks the kubelet of a holder for its process, where that may end what the holder
// stands in the way for, after the Node was read. One that does not answer says nothing. It
// tells whether it has asked.
func (g *gathering) kubelet(ctx context.Context, h *fence.Holder) (asked bool) {
	if g.Kubelets == nil || !h.AsksKubelet(g.survey.Policy) {
		return false
	}
	node, err := g.node(ctx, h.NodeName)
	if err != nil || node == nil {
		return false // read before, and kept
	}
	now, err := g.asked.get(ctx, nil, h.NodeName+"@"+node.ResourceVersion+"/"+h.Kubelet.Key, func(ctx context.Context) (*fence.Process, error) { return g.Kubelets.Ask(ctx, node, h.Kubelet.Key) })
	if err != nil {
		klog.FromContext(ctx).V(1).Info("A kubelet does not say whether it has restarted", "node", h.NodeName, "volume", g.volume, "err", err)
	}
	if h.Node.Remembers = h.Kubelet.Is(now); now != nil && !h.Node.Remembers {
		h.Kubelet = nil // it has ended, and nobody asks for it again
	}
	return true
}
