package operate

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// reasonsAgainst says why nothing should be removed yet: a sidecar that runs
// would write it again, and only a record says that a node is cut off from its
// storage. The Leases that somebody holds are watched for so long: what tells is
// whether they change, and not the clocks of two machines. What only looks like a sidecar in a
// namespace whose accounts may nothing in the cluster is none.
func (t *traces) reasonsAgainst(ctx context.Context, c *cluster.Cluster, watch time.Duration, stderr io.Writer) ([]string, error) {
	var reasons []string
	pods, err := explain.FindSidecars(ctx, c.Client)
	if err != nil {
		reasons = append(reasons, "Whether a sidecar runs cannot be seen: "+err.Error())
	}
	who := accounts{client: c.Client}
	var others []string
	for i := range pods {
		if namespace, account := pods[i].Account(); !who.sidecar(ctx, namespace, account) {
			others = append(others, pods[i].String())
			continue
		}
		reasons = append(reasons, fmt.Sprintf("A sidecar runs: %s. Take it out first: csi-fencepost uninject", pods[i]))
	}
	if len(others) > 0 {
		fmt.Fprintf(stderr, "Not taken for %s, since the account may not list PersistentVolumes: %s%s\n", cli.Either(len(others) == 1, "a sidecar", "sidecars"),
			strings.Join(others[:min(len(others), mostNames)], ", "), cli.Either(len(others) > mostNames, " and others", ""))
	}
	cut := t.cutOff()
	for _, node := range t.cutOffNodes() {
		reasons = append(reasons, fmt.Sprintf("Node %s is cut off from the storage of %s, and only its record knows. Give it its access back first: csi-fencepost fence on %s --reason TEXT",
			node, strings.Join(cut[node], ", "), printable.Word(node)))
	}
	doubtful := t.doubtful()
	for _, node := range slices.Sorted(maps.Keys(doubtful)) {
		reasons = append(reasons, fmt.Sprintf("Node %s may be cut off from the storage of %s: a fence of it failed after its agent was told to cut, and only its record knows. Look at it, and give it its access back: csi-fencepost fence on %s --reason TEXT. When the storage shows that it has access, use --force",
			node, strings.Join(doubtful[node], ", "), printable.Word(node)))
	}
	for _, node := range t.garbled {
		reasons = append(reasons, fmt.Sprintf("The record of node %s cannot be read, so it may be cut off from its storage: csi-fencepost fence status %s", node, printable.Word(node)))
	}
	if len(reasons) > 0 || watch == 0 {
		return reasons, nil
	}
	in := map[string]bool{t.namespace: true} // where a Lease may be a sidecar's
	t.held = slices.DeleteFunc(t.held, func(l coordinationv1.Lease) bool {
		if _, asked := in[l.Namespace]; !asked {
			in[l.Namespace] = who.in(ctx, l.Namespace)
		}
		return !in[l.Namespace]
	})
	if len(t.held) == 0 {
		return reasons, nil
	}
	return t.watchHeld(ctx, c, watch, stderr)
}

// watchHeld reports the Leases that are renewed while they are watched.
func (t *traces) watchHeld(ctx context.Context, c *cluster.Cluster, watch time.Duration, stderr io.Writer) (reasons []string, err error) {
	fmt.Fprintf(stderr, "Watching %s for %s, to see that no sidecar renews them.\n", cli.Count(len(t.held), "Lease"), watch)
	for end := time.Now().Add(watch); ; {
		for i := range t.held {
			was := &t.held[i]
			now, err := c.Client.CoordinationV1().Leases(was.Namespace).Get(ctx, was.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return nil, fmt.Errorf("cannot read Lease %s/%s: %w", was.Namespace, was.Name, err)
			case now.ResourceVersion != was.ResourceVersion:
				cli.Progress(stderr, "")
				return []string{fmt.Sprintf("A sidecar runs: Lease %s/%s, held by %s, was just renewed", was.Namespace, was.Name, *was.Spec.HolderIdentity)}, nil
			}
		}
		left := time.Until(end)
		if left <= 0 {
			cli.Progress(stderr, "")
			return nil, nil
		}
		cli.Countdown(stderr, "no sign of a sidecar yet", left)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(min(cluster.LeasePoll, left)):
		}
	}
}
