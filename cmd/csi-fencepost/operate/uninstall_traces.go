package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
)

// A traceKind is a kind of thing that csi-fencepost writes, for people.
type traceKind string

const (
	taintTrace      traceKind = "Nodes with taint " + ourTaint
	nodeTrace       traceKind = "Nodes with annotations"
	attachmentTrace traceKind = "VolumeAttachments with annotations"
	volumeTrace     traceKind = "PersistentVolumes with annotations"
	leaderTrace     traceKind = "Leases of leaders"
	sealTrace       traceKind = "Leases of seals"
	recordTrace     traceKind = "Leases with nodes' records"
)

// traceKinds in the order in which they go. The records are last: they say which
// nodes are cut off from their storage.
var traceKinds = []traceKind{taintTrace, nodeTrace, attachmentTrace, volumeTrace, leaderTrace, sealTrace, recordTrace}

// A trace is one thing that csi-fencepost has written, and how to remove it. To
// remove it once more is no error.
type trace struct {
	kind   traceKind
	name   string // [namespace/]name of the object
	remove func(ctx context.Context) error
}

// traces are all that csi-fencepost has left in a cluster.
type traces struct {
	namespace string // of the records
	traces    []trace
	notes     []string
	// leases that a running sidecar renews: leaders', and records that are
	// locked.
	held []coordinationv1.Lease
	// records that can be read, and what is wrong with the others.
	records []*record.Record
	garbled []string
}

// findTraces looks for everything. An error names each list that failed, so that
// all missing rights are known at once.
func findTraces(ctx context.Context, c *cluster.Cluster) (*traces, error) {
	t := &traces{namespace: c.Config.Fencing.Namespace}
	err := errors.Join(t.findNodes(ctx, c), t.findAttachments(ctx, c), t.findVolumes(ctx, c), t.findLeases(ctx, c))
	return t, err
}

func (t *traces) add(kind traceKind, name string, remove func(context.Context) error) {
	t.traces = append(t.traces, trace{kind, name, remove})
}

func (t *traces) findNodes(ctx context.Context, c *cluster.Cluster) error {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list Nodes: %w", err)
	}
	nodes := c.Client.CoreV1().Nodes()
	for i := range list.Items {
		n := &list.Items[i]
		if slices.ContainsFunc(n.Spec.Taints, evidence.IsOurTaint) {
			t.add(taintTrace, n.Name, func(ctx context.Context) error { return untaint(ctx, c, n.Name) })
			if !fence.NodeReady(n) {
				t.notes = append(t.notes, fmt.Sprintf("Node %s is not Ready, and our taint lets Kubernetes detach its volumes: without it they wait for the node, or for kubectl taint.", n.Name))
			}
		}
		if body := without(n.ObjectMeta, nodeAnnotations); body != nil {
			t.add(nodeTrace, n.Name, func(ctx context.Context) error {
				_, err := nodes.Patch(ctx, n.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: evidence.Manager})
				return gone(err)
			})
		}
	}
	return nil
}

// untaint takes our taint off the Node as it is then; a person's stays.
func untaint(ctx context.Context, c *cluster.Cluster, name string) error {
	return gone(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(n.Spec.Taints), evidence.IsOurTaint)
		if len(kept) == len(n.Spec.Taints) {
			return nil
		}
		if len(kept) == 0 {
			kept = []corev1.Taint{} // null would be no list
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}, "spec": map[string]any{"taints": kept}})
		if err != nil {
			return err
		}
		_, err = c.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: evidence.Manager})
		return err
	}))
}

func (t *traces) findAttachments(ctx context.Context, c *cluster.Cluster) error {
	attachments := c.Client.StorageV1().VolumeAttachments()
	list, err := attachments.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list VolumeAttachments: %w", err)
	}
	for i := range list.Items {
		va := &list.Items[i]
		if body := without(va.ObjectMeta, attachmentAnnotations); body != nil {
			t.add(attachmentTrace, va.Name, func(ctx context.Context) error {
				_, err := attachments.Patch(ctx, va.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: evidence.Manager})
				return gone(err)
			})
		}
	}
	return nil
}

func (t *traces) findVolumes(ctx context.Context, c *cluster.Cluster) error {
	volumes := c.Client.CoreV1().PersistentVolumes()
	list, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list PersistentVolumes: %w", err)
	}
	for i := range list.Items {
		pv := &list.Items[i]
		if body := without(pv.ObjectMeta, volumeAnnotations); body != nil {
			t.add(volumeTrace, pv.Name, func(ctx context.Context) error {
				_, err := volumes.Patch(ctx, pv.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: evidence.Manager})
				return gone(err)
			})
		}
	}
	return nil
}

// without is the patch that takes annotations off that very object; nil: it has
// none of them.
func without(meta metav1.ObjectMeta, keys []string) []byte {
	off := map[string]any{}
	for _, key := range keys {
		if _, there := meta.Annotations[key]; there {
			off[key] = nil
		}
	}
	if len(off) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": meta.UID, "annotations": off}})
	if err != nil {
		panic(err) // strings only
	}
	return body
}

// gone is no error: what was to be removed went with its object.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// findLeases finds the records and seals, which have a namespace of their own, and the
// leaders' Leases, which are where the drivers are.
func (t *traces) findLeases(ctx context.Context, c *cluster.Cluster) error {
	list, err := c.Client.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list Leases in all namespaces: %w", err)
	}
	for i := range list.Items {
		lease := &list.Items[i]
		_, isRecord := record.NodeOf(lease)
		kind := recordTrace
		switch {
		case isRecord && lease.Namespace == t.namespace:
		case strings.HasPrefix(lease.Name, cluster.LockPrefix):
			kind = leaderTrace
		case strings.HasPrefix(lease.Name, guard.SealPrefix) && lease.Namespace == t.namespace:
			kind = sealTrace
		case isRecord && lease.Annotations[record.Annotation] != "":
			t.notes = append(t.notes, fmt.Sprintf("Lease %s/%s looks like a record in another namespace: if it is, give the --config whose fencing.namespace is %s.", lease.Namespace, lease.Name, lease.Namespace))
			continue
		default:
			continue
		}
		if kind != sealTrace && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
			t.held = append(t.held, *lease)
		}
		t.add(kind, lease.Namespace+"/"+lease.Name, func(ctx context.Context) error {
			return gone(c.Client.CoordinationV1().Leases(lease.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}}))
		})
	}
	var garbled []*record.GarbledError
	if t.records, garbled, err = c.Records().List(ctx); err != nil {
		return err
	}
	for _, g := range garbled {
		t.garbled = append(t.garbled, g.Node)
	}
	return nil
}

// cutOff are the nodes that a record says are cut off from a driver's storage,
// with the driver.
func (t *traces) cutOff() map[string][]string {
	out := map[string][]string{}
	for _, r := range t.records {
		for i := range r.Fences {
			if f := &r.Fences[i]; f.Driver != "" && f.Current() {
				out[r.Node] = append(out[r.Node], f.Driver)
			}
		}
	}
	return out
}

// doubtful are the nodes with a storage fence that failed after its agent was
// told to cut, with the driver: nothing says whether it did. Only a later fence of
// that driver that was lifted settles it; one that stands is among cutOff.
func (t *traces) doubtful() map[string][]string {
	out := map[string][]string{}
	for _, r := range t.records {
		cut := map[string]bool{}
		for i := range r.Fences {
			switch f := &r.Fences[i]; {
			case f.Driver == "":
			case f.Current(), f.Phase == record.Lifted:
				delete(cut, f.Driver)
			case f.Phase == record.Failed && slices.ContainsFunc(f.Steps, isOff):
				cut[f.Driver] = true
			}
		}
		if len(cut) > 0 {
			out[r.Node] = slices.Sorted(maps.Keys(cut))
		}
	}
	return out
}

func isOff(s record.FenceStep) bool { return s.Action == "off" }

func (t *traces) cutOffNodes() []string { return slices.Sorted(maps.Keys(t.cutOff())) }
