package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
)

// taint puts the out-of-service taint on. It is written against the very Node
// that was looked at, so a person's taint is never overwritten.
//
// Its effect is NoSchedule: what detaches volumes looks at the key alone (K8s
// reconciler.go and gc_controller.go, TaintKeyExists). With NoExecute Kubernetes
// would delete the node's pods at the same time as we do, by their names, and so
// the pods that a StatefulSet has made anew meanwhile.
func (w *worker) taint(ctx context.Context, s *state) error {
	if _, err := w.still(ctx, s); err != nil {
		return err
	}
	ours := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: evidence.OurTaintValue, Effect: corev1.TaintEffectNoSchedule}
	return w.patchTaints(ctx, s, append(slices.Clone(s.Node.Spec.Taints), ours))
}

// empty has Kubernetes delete the pods that are left on the node, now that those
// with our volumes are gone: the effect of our taint becomes NoExecute.
func (w *worker) empty(ctx context.Context, s *state) error {
	if _, err := w.still(ctx, s); err != nil {
		return err
	}
	taints := slices.Clone(s.Node.Spec.Taints)
	for i := range taints {
		if evidence.IsOurTaint(taints[i]) {
			taints[i].Effect = corev1.TaintEffectNoExecute
		}
	}
	return w.patchTaints(ctx, s, taints)
}

// untaint takes our taint off, whichever sidecar put it on.
func (w *worker) untaint(ctx context.Context, s *state) error {
	kept := slices.DeleteFunc(slices.Clone(s.Node.Spec.Taints), evidence.IsOurTaint)
	if err := w.patchTaints(ctx, s, kept); err != nil {
		return err
	}
	w.sayNode(ctx, s, normal, ReasonReadmitted, s.LeaseRV, fmt.Sprintf("node %s is back: the taint %s=%s is off again",
		s.Name, corev1.TaintNodeOutOfService, evidence.OurTaintValue))
	return nil
}

func (w *worker) patchTaints(ctx context.Context, s *state, taints []corev1.Taint) error {
	if taints == nil {
		taints = []corev1.Taint{}
	}
	return w.patchNode(ctx, s, map[string]any{"spec": map[string]any{"taints": taints}})
}

// patchNode changes the Node that was looked at, and no later version of it.
func (w *worker) patchNode(ctx context.Context, s *state, change map[string]any) error {
	meta, _ := change["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["uid"], meta["resourceVersion"] = s.Node.UID, s.Node.ResourceVersion
	change["metadata"] = meta
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = w.Client.CoreV1().Nodes().Patch(ctx, s.Node.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: evidence.Manager})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return errChanged
	case err != nil:
		return fmt.Errorf("cannot change node %s: %w", s.Node.Name, err)
	}
	return nil
}
