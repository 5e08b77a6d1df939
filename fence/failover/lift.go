package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

// liftPause is how long after a lift that failed it is not tried again: each try is
// a request to every agent.
const liftPause = 10 * time.Second

// witnessOf is the kubelet as it is now; nil where nothing can be witnessed.
func witnessOf(n *corev1.Node, f *fencer.Fence) *noderecord.Witness {
	ready := fence.ReadyCondition(n)
	if ready == nil || ready.Status != corev1.ConditionTrue || n.Status.NodeInfo.BootID == "" || f == nil {
		return nil
	}
	return &noderecord.Witness{NodeUID: string(n.UID), BootID: n.Status.NodeInfo.BootID,
		ReadySince: ready.LastTransitionTime.UTC().Format(time.RFC3339), LeaseRV: f.LeaseRV}
}

// witness writes down that the kubelet of this boot, Ready since then and synced, was seen
// to list a volume that had moved. It stands in the node's record, since it is by it that a
// fence is lifted: whoever patches Nodes could write an annotation.
func (w *worker) witness(ctx context.Context, s *state) error {
	seen := witnessOf(s.Node, s.Fence)
	if seen == nil {
		return nil
	}
	return w.Fencer.Witness(ctx, w.name, s.Fence.ID, *seen)
}

// lift gives the node its access back. What would make it write to a volume that
// moved is read live once more, when the fence has already ceased to free volumes.
func (w *worker) lift(ctx context.Context, s *state) error {
	if !w.liftAt.IsZero() && time.Since(w.liftAt) < liftPause {
		return errLater
	}
	why, still := "the node has booted since", func(context.Context, *corev1.Node) error { return nil }
	switch {
	case s.fencedBefore():
	case s.revoked():
		why = "every volume that moved is unpublished from it, and the driver is declared to revoke access by that (driver.unpublishRevokesAccess)"
		still = func(ctx context.Context, n *corev1.Node) error {
			if err := w.nothingLeaves(ctx); err != nil {
				return err
			}
			return w.nothingMoved(ctx, n, s.Fence.Driver, s.Fence.Driver)
		}
	default:
		why = "the kubelet has unmounted every volume that moved"
		still = func(ctx context.Context, n *corev1.Node) error { return w.nothingMoved(ctx, n, s.Fence.Driver, "") }
	}
	t := w.target(s)
	t.Fences = []string{s.Fence.ID}
	t.Still = func(ctx context.Context, n *corev1.Node) error {
		if n == nil || n.UID != s.Node.UID || n.Status.NodeInfo.BootID != s.Node.Status.NodeInfo.BootID {
			return errChanged
		}
		return still(ctx, n)
	}
	_, err := w.Fencer.Lift(ctx, t, s.Fence.Driver, why)
	if errors.Is(err, errChanged) {
		return err
	}
	if err != nil {
		w.liftAt = time.Now()
		err = fmt.Errorf("cannot lift the storage fence of node %s: %w", w.name, err)
		w.sayNode(ctx, s, warning, ReasonBlocked, "unlifted "+err.Error(), err.Error())
		return err
	}
	w.sayNode(ctx, s, normal, ReasonReadmitted, s.Fence.LeaseRV, fmt.Sprintf("the storage fence of node %s is lifted: %s", w.name, why))
	return nil
}

// nothingMoved fails if the Node lists in use what is not its own any more, of whichever
// driver but that one. ours is the driver of the fence.
func (w *worker) nothingMoved(ctx context.Context, n *corev1.Node, ours, but string) error {
	moved, err := observe.Moved(ctx, w.Client, n, but)
	switch {
	case err != nil || len(moved) == 0:
		return err
	case moved[0].Driver == ours:
		return errChanged
	}
	return fmt.Errorf("two drivers may serve one storage, and %s", w.letGo(moved[0]))
}

// movedLong is how long a kubelet may list what moved before a person is told: a pod that ends
// takes 30 s, and its kubelet some more.
const movedLong = 2 * time.Minute

// letGo says what keeps the node cut off, and what a person does about it. A kubelet lists what
// a pod only waits for like what is mounted.
func (w *worker) letGo(v observe.MovedVolume) string {
	return fmt.Sprintf("its kubelet lists volume %s of driver %s in use, which has moved off it: a pod there uses it still, or waits for it. "+
		"Delete that pod, or have it run elsewhere; or, if nothing of it is mounted there: csi-fencepost fence on %s, with --force if it asks", v.Handle, v.Driver, printable.Word(w.name))
}

// nothingLeaves fails if a volume is on its way from the node, by live
// VolumeAttachments and ledgers.
func (w *worker) nothingLeaves(ctx context.Context) error {
	for _, h := range w.heldBy(w.name) {
		live, err := observe.ReadHeld(ctx, w.Client, h.IDs, w.name, h.Held)
		if err != nil {
			return err
		}
		if (held{Held: live}).leaving() {
			return errChanged
		}
	}
	return nil
}

// clearOthers is what a person does about the storage fence of another machine.
func (w *worker) clearOthers(s *state) string {
	return fmt.Sprintf("Once that machine is off for good, take what was cut off the list of %s (csi-fencepost fence status %s names it), then: csi-fencepost fence on %s",
		s.Fence.Driver, s.Name, s.Name)
}

// stranded says why a storage fence is not lifted from a node whose kubelet lists nothing, and was
// never seen to. A kubelet that restarted forgets what is mounted, so its silence is not believed.
func (w *worker) stranded(s *state) error {
	if s.otherSystem() {
		w.say(s.Node, "node", warning, ReasonBlocked, "stranded other", fmt.Sprintf(
			"node %s is under the storage fence of another machine that had its name (node UID %s, boot ID %s), which is not lifted for this one. "+
				"%s", s.Name, s.Fence.NodeUID, s.Fence.BootID, w.clearOthers(s)))
		return nil
	}
	if !s.sameMachine() {
		w.say(s.Node, "node", warning, ReasonBlocked, "stranded anew", fmt.Sprintf(
			"node %s is under a storage fence that was made before it registered anew (the fence: node UID %s, boot ID %s), and lists no volume that moved: whether the machine has booted since, nobody can tell. "+
				"If nothing of %s is mounted there that was before: csi-fencepost fence on %s", s.Name, s.Fence.NodeUID, s.Fence.BootID, s.Fence.Driver, s.Name))
		return nil
	}
	w.say(s.Node, "node", warning, ReasonBlocked, "stranded", fmt.Sprintf(
		"node %s is back under its storage fence and lists no volume that moved, but was never seen to list one: its kubelet may have restarted, and forgotten what is mounted. "+
			"Reboot it, or, if nothing of %s is mounted there: csi-fencepost fence on %s", s.Name, s.Fence.Driver, s.Name))
	return nil
}
