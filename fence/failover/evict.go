package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

const (
	// deleteAtOnce is how many pods are deleted side by side.
	deleteAtOnce = 16
	// vanguard is how many pods go ahead of the others, until the volume of one is
	// attached elsewhere, at most vanguardLimit: the attach-detach controller begins
	// every detach that it can, at 20 requests a second, before it begins an attach.
	// Without, the first of 50 volumes is published 3.5 s after the proof, with it
	// after 1.1 s (docs/use/failover.md).
	vanguard = 8
	// provenFor is how many pods are deleted before it is asked anew whether the node
	// is fenced.
	provenFor = 4 * deleteAtOnce
)

// vanguardLimit is a variable for the tests.
var vanguardLimit = time.Second

// evict deletes the node's pods by force: their kubelet cannot. Each is deleted
// by its UID, under which the node's name cannot change: a pod that is already
// back under the same name is another one.
func (w *worker) evict(ctx context.Context, s *state) error {
	pods := s.evictable()
	ahead := pods[:min(vanguard, len(pods))]
	err := w.evictPods(ctx, s, ahead)
	if rest := pods[len(ahead):]; len(rest) > 0 && !errors.Is(err, errChanged) {
		// Pods that cannot be deleted keep nobody else from moving.
		w.follow(ctx, ahead)
		for batch := range slices.Chunk(rest, provenFor) {
			if err = errors.Join(err, w.evictPods(ctx, s, batch)); errors.Is(err, errChanged) {
				break
			}
		}
	}
	return err
}

func (w *worker) evictPods(ctx context.Context, s *state, pods []pod) error {
	if err := w.stillFenced(ctx, s); err != nil {
		return err
	}
	errs, slots := make([]error, len(pods)), make(chan struct{}, deleteAtOnce)
	var wait sync.WaitGroup
	for i, p := range pods {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			errs[i] = w.deletePod(ctx, p)
		})
	}
	wait.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	w.Metrics.PodsDeleted(len(pods) - failed)
	klog.FromContext(ctx).Info("Deleted pods of a fenced node", "pods", len(pods)-failed, "failed", failed, "evidence", s.Proof)
	w.sayMoved(ctx, s, pods)
	return errors.Join(errs...)
}

// follow waits until a volume of these pods is attached elsewhere, or is not
// going to be soon.
func (w *worker) follow(ctx context.Context, ahead []pod) {
	ctx, cancel := context.WithTimeout(ctx, vanguardLimit)
	defer cancel()
	elsewhere := func(pv string) bool {
		return slices.ContainsFunc(w.Drivers, func(d Driver) bool { return d.Index.AttachedElsewhere(pv, w.name) })
	}
	for !slices.ContainsFunc(ahead, func(p pod) bool { return slices.ContainsFunc(p.PVs, elsewhere) }) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stillFenced is an error unless what proved the fence is still said. A node may live under a
// storage fence, and under no other. The agents are not asked again.
func (w *worker) stillFenced(ctx context.Context, s *state) error {
	now := *s
	var err error
	if s.Proof == fence.StorageFence {
		now.Node, err = w.node(ctx)
	} else {
		now.Node, err = w.still(ctx, s)
	}
	if err != nil {
		return err
	}
	fences, err := w.Fencer.FencesOf(ctx, w.name)
	if err != nil {
		return err
	}
	now.Fence, now.Proof = about(fences, now.Node), ""
	if err := w.prove(ctx, &now, w.heldBy(w.name)); err != nil {
		return err
	}
	f := now.Fence
	if now.Proof != s.Proof || s.Proof == fence.StorageFence &&
		(f == nil || f.Lifting || s.Fence == nil || f.Kind != s.Fence.Kind || f.LeaseRV != s.Fence.LeaseRV || f.NodeUID != s.Fence.NodeUID) {
		return errChanged
	}
	return nil
}

func (w *worker) deletePod(ctx context.Context, p pod) error {
	err := w.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &p.UID},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod of that name
	}
	return fmt.Errorf("cannot delete pod %s/%s: %w", p.Namespace, p.Name, err)
}

// proven says by what the node cannot write.
func (s *state) proven() string {
	words := fmt.Sprintf("node %s is proven unable to write (%s)", s.Name, s.Proof)
	if s.Answer != nil && s.reads(s.Proof) {
		words += ": " + s.Answer.Why
	}
	return words
}

// sayMoved tells each pod, and the Node, after the deletions: speed matters.
func (w *worker) sayMoved(ctx context.Context, s *state, gone []pod) {
	words := s.proven()
	w.sayNode(ctx, s, warning, ReasonFenced, string(s.Proof)+s.LeaseRV, words+"; its pods were deleted by force, so that their volumes move")
	for _, p := range gone {
		w.say(p.Pod, "pod/"+string(p.UID), warning, ReasonFenced, "", words+"; this pod was deleted by force, so that its volumes move")
	}
}

// sayLeftAlone tells the pods that a proof does not move why they stay.
func (w *worker) sayLeftAlone(s *state) {
	if s.Proof == "" {
		return
	}
	for _, p := range s.Pods {
		switch {
		case p.OptedOut:
			w.say(p.Pod, "pod/"+string(p.UID), warning, ReasonLeftAlone, "optout", s.proven()+
				"; this pod is left alone: it or its claim has the annotation "+OptOutAnnotation+": \"false\"")
		case s.Proof == fence.StorageFence && len(p.Foreign) > 0:
			w.say(p.Pod, "pod/"+string(p.UID), warning, ReasonLeftAlone, "foreign", s.proven()+
				"; this pod is left alone: the fence does not cover its volumes of "+strings.Join(p.Foreign, ", ")+
				", which it may still write to. Delete it by hand once they are safe")
		}
	}
}
