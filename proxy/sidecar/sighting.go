package sidecar

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// sighting binds taints and remediations on first sight, although no volume is asked for: a
// taint that is put on while its node lives must not become evidence when the
// node dies later. It runs on one replica; a call that comes first binds too.
type sighting struct {
	client  kubernetes.Interface
	index   *observe.Index
	sources *EvidenceSources
	queue   workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// remedied are the Nodes that a remediation was seen of.
	remedied map[string]bool
}

func newSighting(client kubernetes.Interface, index *observe.Index, sources *EvidenceSources) *sighting {
	return &sighting{client: client, index: index, sources: sources, remedied: map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute))}
}

// saw takes note of a Node that was added or changed. Its name alone is kept: a
// replica that does not lead has nobody who looks.
func (s *sighting) saw(node *corev1.Node) {
	if s.worth(node) {
		s.queue.Add(node.Name)
	}
}

// worth a look is a Node that has, or may have had, a taint or a remediation.
func (s *sighting) worth(node *corev1.Node) bool {
	return s.remediated(node.Name) || slices.ContainsFunc(s.sources.taints, func(t *evidence.Taint) bool { return t.Sights(node) })
}

// tainted tells whether a taint to bind is on the Node.
func (s *sighting) tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(s.sources.taints, func(t *evidence.Taint) bool { return t.On(node) })
}

// run looks at each Node that was seen until ctx ends. It may be begun again.
func (s *sighting) run(ctx context.Context) error {
	if err := s.ruleOut(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Each node's record is read by itself")
	}
	s.index.EachNode(s.saw)
	go func() {
		<-ctx.Done()
		s.queue.Add("") // wakes the loop
	}()
	for ctx.Err() == nil {
		name, stop := s.queue.Get()
		if stop {
			return nil
		}
		if name != "" {
			s.look(ctx, name)
		}
		s.queue.Done(name)
	}
	return nil
}

// ruleOut reads all records at once, so that no Node's own is read for a binding
// that is not there: most Nodes have no record. The Nodes are looked at first, as
// by sight: what is bound after the listing is of a taint put on after that look.
func (s *sighting) ruleOut(ctx context.Context) error {
	bare := map[string]types.UID{}
	s.index.EachNode(func(n *corev1.Node) {
		if s.worth(n) && !slices.ContainsFunc(s.sources.taints, func(t *evidence.Taint) bool { return t.On(n) }) {
			bare[n.Name] = n.UID
		}
	})
	if len(bare) == 0 {
		return nil
	}
	records, garbled, err := s.sources.records.List(ctx)
	if err != nil {
		return err
	}
	for _, bad := range garbled {
		delete(bare, bad.Node) // sight says what is wrong with it
	}
	of := map[string]*record.Record{}
	for _, r := range records {
		of[r.Node] = r
	}
	for name, uid := range bare {
		for _, taint := range s.sources.taints {
			taint.Unbound(uid, of[name])
		}
	}
	return nil
}

func (s *sighting) look(ctx context.Context, name string) {
	node := s.index.Node(name)
	if node == nil {
		return
	}
	if err := s.sight(ctx, node); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot bind a node's taint", "node", name)
		s.queue.AddRateLimited(name)
		return
	}
	s.queue.Forget(name)
}

func (s *sighting) sight(ctx context.Context, node *corev1.Node) error {
	if !s.worth(node) {
		return nil // most Nodes, most of the time
	}
	if s.tainted(node) {
		// The watch keeps no managedFields, which tell when the taint was put on.
		var err error
		if node, err = s.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	leaseRV := ""
	lease, err := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		leaseRV = lease.ResourceVersion
	case apierrors.IsNotFound(err):
		lease = nil
	default:
		return err
	}
	for _, taint := range s.sources.taints {
		if err := taint.Sight(ctx, node, lease); err != nil {
			return err
		}
	}
	for _, r := range s.sources.remediations {
		if err := r.Sight(ctx, node, leaseRV); err != nil {
			return err
		}
	}
	return nil
}

// prompted takes note that a node has a remediation, from now on.
func (s *sighting) prompted(_ context.Context, name string) {
	node := s.index.Node(name)
	if node == nil || len(s.sources.remediations) == 0 {
		return
	}
	s.mu.Lock()
	s.remedied[name] = true
	s.mu.Unlock()
	s.saw(node)
}

// remediated tells whether the Node's remediations are read with each change of it.
func (s *sighting) remediated(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remedied[name]
}
