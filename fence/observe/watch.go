package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Change is what an event may have unblocked: the volumes of a handle, or
// everything that a node holds. One of the two is set.
type Change struct {
	Volume string
	Node   string
}

// Watch follows the objects, and keeps an Index for each driver. Make one with New, start
// it with Run. It is safe for concurrent use.
type Watch struct {
	tracker  *Tracker
	feeds    [kinds]*feed
	onChange func(Change)
	onRecord func(node string, lease *coordinationv1.Lease)
	order    Order
	indexes  []*Index

	mu     sync.RWMutex // of all indexes, too
	errors [kinds]error // why a kind cannot be watched now
}

// Index shows the volumes of one driver, and the nodes, as a Watch sees them. It is safe
// for concurrent use.
type Index struct {
	ids    *csi.Identity
	order  *Order
	onNode func(*corev1.Node)

	mu    *sync.RWMutex
	store *store
	// refusals are the VolumeAttachments of the first listing that carry one, by
	// name; nil: nobody is going to ask for them, or has, see KeepRefused.
	refusals map[string]refusal
}

// New makes a Watch with an Index for each of these drivers. recordNamespace is that
// of the nodes' records. A kubelet's lease that changes is told to tracker.
func New(client kubernetes.Interface, tracker *Tracker, recordNamespace string, drivers ...*csi.Identity) *Watch {
	w := &Watch{tracker: tracker, onChange: func(Change) {}, onRecord: func(string, *coordinationv1.Lease) {}}
	for _, ids := range drivers {
		w.indexes = append(w.indexes, &Index{ids: ids, order: &w.order, mu: &w.mu, store: newStore(ids), onNode: func(*corev1.Node) {}})
	}
	w.wire(client, recordNamespace)
	return w
}

// Index is that of a driver that New was given.
func (w *Watch) Index(driver string) *Index {
	for _, x := range w.indexes {
		if x.ids.Driver == driver {
			return x
		}
	}
	return nil
}

// OnNode is called for each Node that is added or changed, with what EachNode
// shows of it. Set it before Run; it must not block.
func (x *Index) OnNode(f func(*corev1.Node)) { x.onNode = f }

// OnChange is called for what an event may have unblocked. Set it before Run; it must not
// block.
func (w *Watch) OnChange(f func(Change)) { w.onChange = f }

// OnRecord is called with the Lease of each node's record that is added or changed, whatever
// changed in it. Set it before Run; it must not block.
func (w *Watch) OnRecord(f func(node string, lease *coordinationv1.Lease)) { w.onRecord = f }

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var running sync.WaitGroup
	for kind, f := range w.feeds {
		running.Go(func() {
			if kind == attachments {
				// They are cheaper to take in where their PVs are known.
				w.awaitListing(ctx, volumes)
			}
			f.run(ctx)
		})
	}
	running.Wait()
}

// awaitListing waits until a kind was listed, or cannot be.
func (w *Watch) awaitListing(ctx context.Context, kind int) {
	for f := w.feeds[kind]; !f.synced.Load() && !f.broke.Load(); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// watchError remembers why a kind cannot be watched. An outage may have kept
// kubelets from renewing their leases, so every node's age begins anew.
func (w *Watch) watchError(kind int, err error) {
	w.mu.Lock()
	w.errors[kind] = err
	w.mu.Unlock()
	if kind == leases {
		w.tracker.Reset("the watch of the kubelets' leases broke")
	}
}

// Ready tells which kinds were not listed yet, and why; nil when all were.
func (w *Watch) Ready() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var missing []error
	for kind, f := range w.feeds {
		switch err := w.errors[kind]; {
		case f.synced.Load():
		case err != nil:
			missing = append(missing, fmt.Errorf("%s: %w", f.name, err))
		default:
			missing = append(missing, fmt.Errorf("%s: not listed yet", f.name))
		}
	}
	return errors.Join(missing...)
}

// sayEvery is how often WaitReady tells how far it has come.
const sayEvery = 5 * time.Second

// WaitReady waits until Ready, and logs what it waits for.
func (w *Watch) WaitReady(ctx context.Context) error {
	logger, began := klog.FromContext(ctx), time.Now()
	for said, saidAt := "", began; ; {
		err := w.Ready()
		if err == nil {
			logger.Info("Watching the Kubernetes objects that say who holds a volume", append(w.counts(), "took", time.Since(began).Round(time.Millisecond))...)
			return nil
		}
		if text := err.Error(); text != said || time.Since(saidAt) > sayEvery {
			logger.Info("Waiting for the Kubernetes objects that say who holds a volume", append([]any{"missing", strings.ReplaceAll(text, "\n", "; ")}, w.counts()...)...)
			said, saidAt = text, time.Now()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// counts are how many objects of each kind were listed so far, for the log.
func (w *Watch) counts() (keysAndValues []any) {
	for kind, f := range w.feeds {
		keysAndValues = append(keysAndValues, logKeys[kind], f.listed.Load())
	}
	return keysAndValues
}

var logKeys = [kinds]string{leases: "leases", csiNodes: "csiNodes", nodes: "nodes", volumes: "persistentVolumes", attachments: "volumeAttachments", records: "records"}

// CaughtPV and CaughtAttachment tell whether the index has seen that very
// object. etcd orders all writes of a kind, so an index that has seen one has
// seen everything that was created before it. An object that was first seen in a
// listing that has not ended does not count: a list is ordered by name.
func (x *Index) CaughtPV(name string, uid string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	v := x.store.volumes[name]
	return v != nil && v.there && !v.unsure && v.uid == x.store.hash(uid)
}

func (x *Index) CaughtAttachment(name string, uid string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	a := x.store.attachments[name]
	return a != nil && !a.unsure && a.uid == x.store.hash(uid)
}

// Synced is Order's.
func (x *Index) Synced(node, uid, bootID, readySince string) bool {
	return x.order.Synced(node, uid, bootID, readySince)
}

// Forced tells when the controller was seen to take a volume off volumesAttached by force, while the
// node's kubelet listed it in use (K8s pkg/controller/volume/attachdetach/reconciler), in that boot of the
// node, under the VolumeAttachment of that name and UID. A kubelet that starts after that does not know
// that the volume is mounted, unless it was back by then. nil: it did not, as in every detach in good order,
// in which the kubelet takes it off volumesInUse first; or nobody here saw it. It is the caller's.
func (x *Index) Forced(attachment, uid, bootID string) *fence.Forced {
	x.mu.RLock()
	defer x.mu.RUnlock()
	a := x.store.attachments[attachment]
	if a == nil || a.forced == nil || a.uid != x.store.hash(uid) || a.forced.boot != bootID {
		return nil
	}
	seen := a.forced.Forced
	return &seen
}

// BootedSince is Order's.
func (x *Index) BootedSince(attachment, uid string, node *corev1.Node, heard, silent bool) (before string, since bool) {
	return x.order.BootedSince(attachment, uid, node, heard, silent)
}

// DeletedVersion is Order's.
func (x *Index) DeletedVersion(attachment, uid string) string {
	return x.order.DeletedVersion(attachment, uid)
}

// TurnedSince is Order's.
func (x *Index) TurnedSince(node, attachment string) bool {
	return x.order.TurnedSince(node, attachment)
}
