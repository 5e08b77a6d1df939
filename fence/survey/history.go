package survey

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
)

// The API server still has what a Node was until etcd is compacted, which by default keeps
// five minutes (kube-apiserver, --etcd-compaction-interval). A LIST at an exact
// resourceVersion reads it from etcd (Kubernetes API concepts, "Resource versions"). So the
// order in which kubelet and controller wrote can be read where their stamps do not tell it.

// pastVersions of a Node are read, with a request for each, or those of pastTime: a Node is
// written for each volume that is detached from it.
const (
	pastVersions = 128
	pastTime     = 2 * observe.SyncTime
)

// order learns whether the kubelet of a holder let the volume go before the controller took
// it off, where nothing else keeps its word from counting. It tells whether it has read
// anything.
func (g *gathering) order(ctx context.Context, h *fence.Holder) (read bool, err error) {
	lease := g.pulses[h.NodeName]
	const least = observe.SyncTime + observe.SteadyGap
	if lease == nil || !h.InDoubt(g.survey.Policy) || !g.Lives.Steady(h.NodeName, least) {
		return false, nil
	}
	versions, err := g.pasts.get(ctx, g.Limit, h.NodeName, func(ctx context.Context) ([]*corev1.Node, error) { return g.past(ctx, h.NodeName) })
	if err != nil {
		return true, err
	}
	if now := versions[0]; string(now.UID) != h.Node.UID || now.Status.NodeInfo.BootID != h.Node.BootID {
		return true, nil
	}
	dropped, ok := letGo(versions, g.lists)
	// A kubelet that cannot write its status does not list what it has. So its lease must
	// have been renewed all the time from SyncTime before it let go: until the last renewal,
	// of which the API server has the time as well, and for up to SteadyGap since.
	renewed := evidence.RenewedAt(lease)
	since := max(0, renewed.Sub(dropped))
	h.Node.LetGo = ok && !renewed.IsZero() && g.Lives.Steady(h.NodeName, least+since)
	return true, nil
}

// letGo tells whether the kubelet took the volume out of volumesInUse while the controller
// still had it in volumesAttached, and has not listed it since; and when, by the API
// server's clock. A kubelet that restarts forgets what is not in volumesAttached (K8s
// pkg/kubelet/volumemanager/reconciler, updateReconstructedFromNodeStatus), and what it
// lists at first may be what the kubelet before it said. So the volume has to be in
// volumesAttached in all of SyncTime before, and the kubelet not silent. The versions are
// what the Node was, the newest first; false: they do not show it.
func letGo(versions []*corev1.Node, lists func(*corev1.Node) (inUse, attached bool)) (dropped time.Time, ok bool) {
	// Back to where the controller still had it, then to where the kubelet had, and then
	// for SyncTime more.
	controllerHadIt := false
	for i, n := range versions {
		switch inUse, attached := lists(n); {
		case i == 0 && attached, !controllerHadIt && inUse:
			return dropped, false // still in use or attached, or in use when the controller took it off
		case !controllerHadIt:
			controllerHadIt = attached
		case !attached:
			return dropped, false // the controller had taken it off before, and put it back
		case inUse && dropped.IsZero():
			if dropped = written(versions[i-1]); dropped.IsZero() {
				return dropped, false
			}
		}
		if dropped.IsZero() {
			continue
		}
		if nodeFacts(n).ReadyUnknown {
			return dropped, false
		}
		if since := written(n); !since.IsZero() && dropped.Sub(since) >= observe.SyncTime {
			return dropped, true
		}
	}
	return dropped, false
}

// past reads what the Node is and was, the newest first, as far as it is of one machine and
// boot and can be read.
func (g *gathering) past(ctx context.Context, name string) ([]*corev1.Node, error) {
	node, err := g.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	versions, now := []*corev1.Node{node}, written(node)
	ctx = throttle.Unpaid(ctx)
	for len(versions) < pastVersions && now.Sub(written(node)) < pastTime {
		if node, err = g.before(ctx, node); err != nil || node == nil {
			break
		}
		versions = append(versions, node)
	}
	return versions, err
}

// before reads what the Node was until it was written so; nil: there was none of that
// machine and boot, or the API server cannot tell.
func (g *gathering) before(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	version, err := strconv.ParseUint(node.ResourceVersion, 10, 64)
	if err != nil || version < 2 {
		return nil, nil
	}
	list, err := g.Client.CoreV1().Nodes().List(ctx, exactly(node.Name, version-1))
	switch {
	case err != nil:
		return nil, forgotten(err)
	case len(list.Items) != 1:
		return nil, nil
	}
	older := &list.Items[0]
	was, err := strconv.ParseUint(older.ResourceVersion, 10, 64)
	if err != nil || was >= version || older.UID != node.UID || older.Status.NodeInfo.BootID != node.Status.NodeInfo.BootID {
		return nil, nil
	}
	return older, nil
}

// written is when that version was written, or before: what it has in volumesAttached it
// has had from then on, since whoever adds to that list is its manager and stamped. Zero:
// the Node does not say.
func written(node *corev1.Node) (last time.Time) {
	for _, f := range node.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}
