package operate

import (
	"context"
	"fmt"
	"io"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// confirmWatch is how long a node's lease is watched before an operator's word
// is written: a kubelet renews it every 10 seconds.
const confirmWatch = 12 * time.Second

// watchPeriod is long enough for a living kubelet to renew its lease: it does
// so four times in the lease's duration.
func watchPeriod(lease *coordinationv1.Lease) time.Duration {
	if lease == nil || lease.Spec.LeaseDurationSeconds == nil {
		return confirmWatch
	}
	return max(confirmWatch, time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second/4+2*time.Second)
}

// watchSilence returns nil if the node shows no life for watchPeriod.
func watchSilence(ctx context.Context, client kubernetes.Interface, now *cluster.Node, progress io.Writer) error {
	period := watchPeriod(now.Lease)
	fmt.Fprintf(progress, "Watching the lease of node %s for %s, to see that it does not live.\n", now.Name, period)
	for end := time.Now().Add(period); ; {
		if err := stillSilent(ctx, client, now); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			cli.Countdown(progress, "", 0)
			return nil
		}
		cli.Countdown(progress, "no sign of life yet", left)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(cluster.LeasePoll, left)):
		}
	}
}

// stillSilent reads the node once more: nil if nothing of it has changed.
func stillSilent(ctx context.Context, client kubernetes.Interface, was *cluster.Node) error {
	now, err := cluster.ReadNode(ctx, client, was.Name)
	if err != nil {
		return err
	}
	alive := func(why string) error { return &aliveError{was.Name, why} }
	switch {
	case now.LeaseRV() != was.LeaseRV() && now.Lease != nil:
		return alive("its kubelet has just renewed its lease")
	case now.Lease != nil:
	case fence.NodeReady(now.Node):
		return alive("its Node is Ready and it has no lease yet")
	}
	if now.UID() != was.UID() || now.BootID() != was.BootID() || now.LeaseRV() != was.LeaseRV() {
		return fmt.Errorf("node %s has changed while it was looked at (its Node or lease was deleted or created again). Nothing was written; try again", was.Name)
	}
	return nil
}

// An aliveError says what shows that a node lives.
type aliveError struct{ node, why string }

func (e *aliveError) Error() string {
	return fmt.Sprintf("node %s is alive: %s. Nothing was written. A node that runs has to be turned off before its volumes can move", e.node, e.why)
}
