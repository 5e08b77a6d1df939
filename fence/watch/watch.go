package watch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence/liveness"
)

// Change is what an event may have unblocked: the volumes of a handle, or
// everything that a node holds. One of the two is set.
type Change struct {
	Volume string
	Node   string
}

// Watch is the index. Make one with New, start it with Run.
type Watch struct {
	ids      *csi.Identity
	tracker  *liveness.Tracker
	stores   map[string]cache.SharedIndexInformer
	onNode   func(*corev1.Node)
	onChange func(Change)

	mu     sync.Mutex
	errors map[string]error // by kind: why it cannot be watched now
}

// Kinds, as they are named in messages.
const (
	volumes     = "persistentvolumes"
	attachments = "volumeattachments"
	nodes       = "nodes"
	csiNodes    = "csinodes"
	leases      = "leases in namespace " + corev1.NamespaceNodeLease
	records     = "leases of the nodes' records"
)

const (
	byHandle = "handle"
	byNodeID = "nodeID"
	bySource = "source"
	byNode   = "node"
)

// New makes a Watch for the driver that ids speaks for. records is the
// namespace of the nodes' records. A kubelet's lease that changes is told to
// tracker.
func New(client kubernetes.Interface, ids *csi.Identity, tracker *liveness.Tracker, recordNamespace string) (*Watch, error) {
	w := &Watch{ids: ids, tracker: tracker, errors: map[string]error{}, stores: map[string]cache.SharedIndexInformer{},
		onNode: func(*corev1.Node) {}, onChange: func(Change) {}}
	// Made one by one: a factory would link the informers of every API group.
	w.stores[volumes] = coreinformers.NewPersistentVolumeInformer(client, 0, cache.Indexers{})
	w.stores[attachments] = storageinformers.NewVolumeAttachmentInformer(client, 0, cache.Indexers{})
	w.stores[nodes] = coreinformers.NewNodeInformer(client, 0, cache.Indexers{})
	w.stores[csiNodes] = storageinformers.NewCSINodeInformer(client, 0, cache.Indexers{})
	w.stores[leases] = coordinationinformers.NewLeaseInformer(client, corev1.NamespaceNodeLease, 0, cache.Indexers{})
	w.stores[records] = coordinationinformers.NewLeaseInformer(client, recordNamespace, 0, cache.Indexers{})
	return w, w.wire()
}

func (w *Watch) wire() error {
	steps := []struct {
		kind     string
		strip    cache.TransformFunc
		indexers cache.Indexers
		handler  cache.ResourceEventHandler
	}{
		{volumes, w.stripVolume, cache.Indexers{byHandle: w.volumeHandle}, w.volumeEvents()},
		{attachments, w.stripAttachment, cache.Indexers{bySource: w.attachmentSource, byNode: attachmentNode}, w.attachmentEvents()},
		{nodes, w.stripNode, cache.Indexers{byHandle: w.nodeHandles}, w.nodeEvents()},
		{csiNodes, w.stripCSINode, cache.Indexers{byNodeID: w.csiNodeID}, w.csiNodeEvents()},
		{leases, stripLease, nil, w.leaseEvents()},
		{records, stripRecord, nil, w.recordEvents()},
	}
	for _, s := range steps {
		informer := w.stores[s.kind]
		if err := informer.SetTransform(s.strip); err != nil {
			return err
		}
		if s.indexers != nil {
			if err := informer.AddIndexers(s.indexers); err != nil {
				return err
			}
		}
		if err := informer.SetWatchErrorHandlerWithContext(w.watchError(s.kind)); err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(s.handler); err != nil {
			return err
		}
	}
	return nil
}

// OnNode is called for each Node that is added or changed, and OnChange for
// what an event may have unblocked. Set both before Run; they must not block.
func (w *Watch) OnNode(f func(*corev1.Node)) { w.onNode = f }
func (w *Watch) OnChange(f func(Change))     { w.onChange = f }

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, informer := range w.stores {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Wait()
}

// watchError remembers why a kind cannot be watched. An outage may have kept
// kubelets from renewing their leases, so every node's age begins anew.
func (w *Watch) watchError(kind string) func(context.Context, *cache.Reflector, error) {
	return func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		w.mu.Lock()
		w.errors[kind] = err
		w.mu.Unlock()
		if kind == leases {
			w.tracker.Reset("the watch of the kubelets' leases broke")
		}
	}
}

// Ready tells which kinds were not listed yet, and why; nil when all were.
func (w *Watch) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []error
	for _, kind := range []string{volumes, attachments, nodes, csiNodes, leases, records} {
		if w.stores[kind].HasSynced() {
			continue
		}
		if err := w.errors[kind]; err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", kind, err))
		} else {
			missing = append(missing, fmt.Errorf("%s: not listed yet", kind))
		}
	}
	return errors.Join(missing...)
}

// WaitReady waits until Ready, and logs what it waits for.
func (w *Watch) WaitReady(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	for said := ""; ; {
		err := w.Ready()
		if err == nil {
			return nil
		}
		if text := err.Error(); text != said {
			logger.Info("Waiting for the Kubernetes objects that say who holds a volume", "missing", strings.ReplaceAll(text, "\n", "; "))
			said = text
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// CaughtPV and CaughtAttachment tell whether the index has seen that very
// object. etcd orders all writes of a kind, so an index that has seen one has
// seen everything that was created before it.
func (w *Watch) CaughtPV(name string, uid string) bool { return w.caught(volumes, name, uid) }
func (w *Watch) CaughtAttachment(name string, uid string) bool {
	return w.caught(attachments, name, uid)
}

func (w *Watch) caught(kind, name, uid string) bool {
	obj, found, err := w.stores[kind].GetStore().GetByKey(name)
	if err != nil || !found {
		return false
	}
	meta, ok := obj.(metav1.Object)
	return ok && string(meta.GetUID()) == uid
}
