package survey

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// wants learns whether holders only want the volume that their Nodes list in use, where
// nothing else is known of them, or it was released there before: their pods say so, or the
// seal. Of those whose Nodes are gone, the seal alone. It tells whether it has asked for any.
func (g *gathering) wants(ctx context.Context, matters func(*fence.Holder) bool) (asked bool) {
	for _, h := range g.sorted() {
		switch {
		case !matters(h):
			continue
		case g.mayWait(h):
			asked, h.Node.Waits = true, g.waits(ctx, h.NodeName) || g.sealed(ctx, h)
		case g.mayHaveAsked(h):
			recorded, unsure := g.Seal.Records(ctx, g.volume, h.NodeName)
			asked, h.OnlyAsked, g.survey.SealUnused = true, recorded, g.survey.SealUnused || unsure
		}
		if n := h.Node; g.Seal != nil && n != nil && n.Lists() && h.State == fence.NotInLedger && !h.OnlyWants() && !g.survey.PodsUnread {
			g.Seal.Doubt(g.volume, h.NodeName, n.UID) // that Node may be gone when this is judged again
		}
	}
	return asked
}

// mayHaveAsked tells whether it depends on the seal whether a node that is gone only asked for the
// volume. It does not where the ledger has its machine by another node ID.
func (g *gathering) mayHaveAsked(h *fence.Holder) bool {
	if g.Seal == nil || g.survey.Book.Unasked() || len(g.survey.many) > 0 || h.Node != nil || !g.survey.OnlyAttachment(h) {
		return false
	}
	for _, other := range g.holders {
		if other != h && other.NodeName == h.NodeName {
			return false
		}
	}
	asks := *h
	asks.OnlyAsked = true
	return asks.OnlyWants()
}

// sealed tells whether the ledger would name the holder if it ever had the volume, or had it again
// since it was released there. That takes a ledger that the guard wrote, which was asked of the
// driver, too.
func (g *gathering) sealed(ctx context.Context, h *fence.Holder) bool {
	node := g.known[h.NodeName]
	return g.Seal != nil && node != nil && !g.survey.Book.Unasked() && g.Seal.Covers(ctx, g.volume, node)
}

// mayWait tells whether it depends on its pods, or the seal, whether the holder only wants the
// volume. It does not where the holder has, or had, it in another way: by another PersistentVolume
// of many, of which no ledger tells; by another VolumeAttachment of the node or its ID; by a ledger
// of before.
func (g *gathering) mayWait(h *fence.Holder) bool {
	if h.Node == nil || !h.Node.InUse || len(g.survey.many) > 0 || slices.Contains(g.survey.Book.Before, h.NodeID) {
		return false
	}
	for _, va := range g.attachments {
		if id := csi.AttachmentNodeID(va); va.Status.Attached && (va.Spec.NodeName == h.NodeName || id != "" && id == h.NodeID) {
			return false
		}
	}
	asks := *h
	asks.Node = new(*h.Node)
	asks.Node.Waits = true
	if h.ReleasedUnder != "" {
		return asks.ReleasedForGood() && !h.ReleasedUnderThis()
	}
	return asks.OnlyWants() && (h.ListsAnew || g.survey.Book.Ledger.Get(h.NodeID) == nil)
}

// waits tells whether pods of the volume's claims are bound to the node, and none can have had it
// mounted. What cannot be read shows nothing, so that the holder counts as one.
func (g *gathering) waits(ctx context.Context, node string) bool {
	found := false
	for _, claim := range g.claims() {
		pods, err := g.pods.get(ctx, g.Limit, claim.Namespace+"/"+node, func(ctx context.Context) (*corev1.PodList, error) {
			return g.Client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
		})
		if err != nil {
			g.survey.PodsUnread = true
			klog.FromContext(ctx).Error(err, "Cannot list the pods that may wait for a volume", "namespace", claim.Namespace, "node", node, "volume", g.volume)
			return false
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName != node || !csi.UsesClaim(pod, claim.Name) {
				continue
			}
			if pod.DeletionTimestamp != nil || mayHaveRun(pod) {
				return false
			}
			found = true
		}
	}
	return found
}

// claims to which the volume's PersistentVolumes are bound, each once.
func (g *gathering) claims() []types.NamespacedName {
	var claims []types.NamespacedName
	for _, pv := range g.survey.Book.PVs {
		if c := pv.Spec.ClaimRef; c != nil && pv.Status.Phase == corev1.VolumeBound && !slices.Contains(claims, types.NamespacedName{Namespace: c.Namespace, Name: c.Name}) {
			claims = append(claims, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
		}
	}
	return claims
}

// mayHaveRun tells whether the pod's volumes may have been mounted once, as far as its kubelet
// says: a container has started, or its sandbox is there, which is made when they are mounted, so
// that images are pulled, or fail to be (K8s kubelet.go, SyncPod).
func mayHaveRun(pod *corev1.Pod) bool {
	s := &pod.Status
	if s.Phase != corev1.PodPending && s.Phase != "" || !pod.Spec.HostNetwork && s.PodIP != "" {
		return true
	}
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses), func(c corev1.ContainerStatus) bool {
		w := c.State.Waiting
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState != (corev1.ContainerState{}) || c.RestartCount > 0 || c.ContainerID != "" ||
			w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing"
	})
}
