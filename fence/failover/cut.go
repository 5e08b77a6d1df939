package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// cutPause is how long after a fence that failed it is not tried again.
const cutPause = 30 * time.Second

// cut fences the node. The brakes are tried once more, under the lock that
// keeps this process's own fences apart.
func (w *worker) cut(ctx context.Context, s *state) error {
	if time.Since(w.cutAt) < cutPause {
		if w.uncut == "" {
			return errors.Join(w.suspect(ctx, s), errLater)
		}
		w.sayUncut(ctx, s)
		return errLater
	}
	if !w.reserve() {
		s.Brake, s.BrakeWords = BrakeConcurrent, fmt.Sprintf("%d nodes are fenced at a time (fencing.maxConcurrent)", w.MaxConcurrent)
		return errors.Join(w.blocked(ctx, s), errLater)
	}
	defer w.unreserve()
	b, words, err := w.brakes(ctx, s, w.heldBy(w.name))
	if err != nil {
		return err
	}
	if b != NoBrake {
		s.Brake, s.BrakeWords = b, words
		return errors.Join(w.blocked(ctx, s), errLater)
	}
	if _, err := w.still(ctx, s); err != nil {
		return err
	}
	w.Metrics.FencingBlocked(w.name, NoBrake)
	reason := fmt.Sprintf("its lease was unchanged for %s, more than fencing.fenceAfter %s; %s", s.Age.Round(time.Second), w.FenceAfter, s.Answer.Why)
	klog.FromContext(ctx).Info("Fencing the node", "reason", reason)
	w.cutAt, w.uncut = time.Now(), ""
	t := w.target(s)
	var held atomic.Pointer[error] // an agent that hangs asks late
	t.Still = func(_ context.Context, n *corev1.Node) error {
		err := w.mayStill(s, n)
		if err != nil {
			held.Store(&err)
		}
		return err
	}
	answer, err := w.Fencer.Off(ctx, t, reason, false)
	if why := held.Load(); why != nil && answer.State != agent.Off {
		w.cutAt = time.Time{}
		return *why
	}
	if err != nil {
		w.uncut = err.Error()
		w.sayUncut(ctx, s)
		return err
	}
	w.heard(ctx, answer)
	if answer.State != agent.Off {
		w.uncut = answer.Why
		w.sayUncut(ctx, s)
		return fmt.Errorf("node %s was to be fenced, and yet: %s", w.name, answer.Why)
	}
	w.Metrics.NodeFenced(answer.Kind)
	return nil
}

// mayStill is asked under the node's lock, which may have been waited for, right
// before each off: what has come up since the brakes were tried, and takes no request.
func (w *worker) mayStill(s *state, n *corev1.Node) error {
	now := &weather{Node: n, Shared: w.shared(n), StorageOnly: w.storageOnly(n), Waiting: 1}
	if err := w.present(now, s); err != nil {
		return err
	}
	if b, words := now.ofNow(); b != NoBrake {
		return fmt.Errorf("%w: %s [%s]", errChanged, words, b)
	}
	return nil
}

// sayUncut says why the last fence did not come about, until the next one is tried.
func (w *worker) sayUncut(ctx context.Context, s *state) {
	w.sayAll(ctx, s, warning, ReasonBlocked, "failed "+w.uncut, fmt.Sprintf("%s; fencing it failed: %s", silence(s), w.uncut))
}

// blocked says which brake holds.
func (w *worker) blocked(ctx context.Context, s *state) error {
	w.note(s) // the brakes may have been tried again since the look
	w.Metrics.FencingBlocked(w.name, s.Brake)
	w.sayAll(ctx, s, warning, ReasonBlocked, string(s.Brake)+s.BrakeWords, fmt.Sprintf("%s, and is not fenced: %s [%s]", silence(s), s.BrakeWords, s.Brake))
	return nil
}

func (w *worker) reserve() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.cutting) >= w.MaxConcurrent {
		return false
	}
	w.cutting = append(w.cutting, w.name)
	return true
}

func (w *worker) unreserve() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutting = slices.DeleteFunc(w.cutting, func(node string) bool { return node == w.name })
}

// ahead are the nodes that were reserved before this one: of two whose brakes are
// tried at once only the later one counts the other.
func (w *worker) ahead() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.cutting, w.name); i >= 0 {
		return slices.Clone(w.cutting[:i])
	}
	return slices.Clone(w.cutting)
}

// brakes gathers the weather, live, and tries the brakes. It fails if the node is not
// due any more.
func (w *worker) brakes(ctx context.Context, s *state, volumes []held) (Brake, string, error) {
	weather := &weather{Now: time.Now(), Zones: map[string]string{}, Ahead: w.ahead(), Holding: map[string]bool{},
		NodeIDs: map[string]string{}, StorageOnly: w.storageOnly(s.Node), MaxConcurrent: w.MaxConcurrent, MaxUnhealthy: w.MaxUnhealthy}
	for _, d := range w.Drivers {
		weather.NodeIDs[d.IDs.Driver] = d.Index.NodeID(w.name)
	}
	for _, d := range w.holders(s.Node, volumes) {
		weather.Holders = append(weather.Holders, d.IDs.Driver)
	}
	for _, p := range s.Pods {
		if !p.OptedOut && !(weather.StorageOnly && len(p.Foreign) > 0) {
			weather.Waiting++
		}
	}
	waiting, err := w.concerned(ctx, slices.DeleteFunc(slices.Clone(volumes), func(h held) bool { return h.taken(s.Node) }))
	if err != nil {
		return NoBrake, "", err
	}
	for _, p := range waiting {
		if p.Spec.NodeName != w.name && !OptedOut(p.Annotations) {
			weather.Waiting++
		}
	}
	nodes, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return NoBrake, "", fmt.Errorf("cannot list the nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if n.Name == w.name {
			weather.Node, weather.Shared = n, w.shared(n) // as it is now
		}
		weather.Zones[n.Name] = n.Labels[corev1.LabelTopologyZone]
	}
	for _, name := range w.holding() {
		weather.Holding[name] = true
	}
	if weather.Fences, err = w.Fencer.Counting(ctx); err != nil {
		return NoBrake, "", err
	}
	weather.Seeks = w.Fencer.Seeks(w.name)
	if weather.Withheld, err = w.Fencer.Withheld(ctx, w.target(s)); err != nil {
		return NoBrake, "", err
	}
	if err := w.present(weather, s); err != nil {
		return NoBrake, "", err
	}
	b, words := weather.brake()
	return b, words, nil
}

// present adds what takes no request. It fails if the node is not due any more: the
// end of a storm begins every node's age anew, so that no storm says something only of
// an age that is asked after it.
func (w *worker) present(weather *weather, s *state) error {
	if err := w.Lead(); err != nil {
		weather.Lead = err.Error()
	}
	if storm, words := w.Lives.Storm(); storm {
		weather.Storm = words
	}
	if !w.stillDue(s) {
		return errChanged
	}
	return nil
}

// stillDue tells whether the lease that the look has read is still watched unchanged, for long
// enough.
func (w *worker) stillDue(s *state) bool {
	rv, silent := w.Lives.Silent(w.name)
	age, _, _ := w.Lives.Unchanged(w.name)
	return silent && rv == s.LeaseRV && age >= w.FenceAfter
}
