package survey

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// kubelet asks the kubelet of a holder for its process, where that decides whether its word
// counts, after the Node was read: to end a doubt, whether it ran before the publish; and where
// its word is to count though the volume was taken from it by force, and it was sighted in that
// boot, whether it has restarted since. A kubelet that does not answer ends no doubt, and leaves one of a
// volume that was forced. It tells whether it has asked. An error is our own, of which no word of a
// kubelet follows: ctx is over, or, of a volume that was forced, there is no token to ask with any
// more.
func (g *gathering) kubelet(ctx context.Context, h *fence.Holder) (asked bool, err error) {
	switch {
	case g.Kubelets == nil:
		return false, nil
	case h.AsksKubelet(g.survey.Policy):
		now, err := g.process(ctx, h, h.Kubelet.Key)
		if err != nil {
			return true, ctx.Err()
		}
		if h.Kubelet.Is(&now.Process) {
			h.Node.Memory = fence.MemoryWhole
		} else {
			h.Kubelet = nil // it has ended
		}
		return true, nil
	case h.Attachment == nil || !h.TrustsKubelet(g.survey.Policy):
		return false, nil
	}
	forced := g.Index.Forced(h.Attachment.Name, h.Attachment.UID, h.Node.BootID)
	sighted := g.Kubelets.Seen(h.NodeName, h.Node.UID, h.Node.BootID)
	if forced == nil || sighted == nil {
		return false, nil
	}
	now, err := g.process(ctx, h, sighted.Key)
	switch {
	case errors.Is(err, kubelet.ErrNoToken):
		return true, err
	case err != nil:
		h.Node.Memory = fence.MemoryUnsaid
		return true, ctx.Err()
	case h.Kubelet.Is(&now.Process):
		h.Node.Memory = fence.MemoryWhole
	default:
		h.Node.Memory = forced.Memory(now.Age, observe.SyncTime)
	}
	return true, nil
}

// process asks the kubelet of a holder, if it serves by that key. An error says why it is not known.
func (g *gathering) process(ctx context.Context, h *fence.Holder, key string) (*kubelet.Answer, error) {
	node, err := g.node(ctx, h.NodeName)
	if err != nil {
		return nil, err
	}
	now, err := g.asked.get(ctx, nil, h.NodeName+"@"+node.ResourceVersion+"/"+key, func(ctx context.Context) (*kubelet.Answer, error) { return g.Kubelets.Ask(ctx, node, key) })
	if err != nil {
		klog.FromContext(ctx).V(1).Info("A kubelet does not say whether it has restarted", "node", h.NodeName, "volume", g.volume, "err", err)
	}
	return now, err
}
