package kubelet

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Rounds ask the kubelets of the nodes on which the driver is, one after another.
type Rounds struct {
	sightings *Sightings
	client    kubernetes.Interface
	serves    func(node string) bool
	queue     workqueue.TypedRateLimitingInterface[string]
}

const (
	// again is how often each kubelet is asked: one that restarts quickly shows it nowhere.
	again = 10 * time.Minute
	// pace is the least time from one question to the next: 5,000 nodes take as long as again.
	pace = 100 * time.Millisecond
	// A kubelet that does not answer is asked again after retryFirst, and then less often.
	retryFirst = 10 * time.Second
	// driverless is when a node is looked at again that has no driver yet.
	driverless = time.Minute
)

// NewRounds note what they see in s. They read Nodes by client. serves tells whether the driver is
// on a node.
func NewRounds(s *Sightings, client kubernetes.Interface, serves func(node string) bool) *Rounds {
	return &Rounds{sightings: s, client: client, serves: serves,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, again))}
}

// Saw takes note of a Node that was added, or that changed in more than its heartbeat.
func (r *Rounds) Saw(node *corev1.Node) { r.queue.Add(node.Name) }

// Run asks until ctx ends. It is begun once.
func (r *Rounds) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	logger := klog.FromContext(ctx)
	said := "" // of kubelets that do not answer, until one does
	for {
		name, over := r.queue.Get()
		if over {
			return
		}
		wait, asked, err := r.look(ctx, name)
		r.queue.Done(name)
		pause := pace
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			why := "one does not answer"
			if errors.Is(err, ErrNoToken) {
				why, pause = ErrNoToken.Error(), retryFirst
			}
			if said != answers && said != why {
				said = why
				logger.Info("Whether kubelets have restarted is not asked of themselves; everything else goes on as it does without it", "node", name, "err", err)
			}
			logger.V(2).Info("A kubelet does not say what its process is", "node", name, "err", err)
			r.queue.AddRateLimited(name)
		default:
			r.queue.Forget(name)
			if asked {
				said = answers
			}
			if wait > 0 {
				r.queue.AddAfter(name, wait)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// answers: a kubelet has answered, so that one that does not is that node's affair.
const answers = "they answer"

// look asks one kubelet, and says when to look again (0: its Node is gone), and whether it was
// asked.
func (r *Rounds) look(ctx context.Context, name string) (wait time.Duration, asked bool, err error) {
	if !r.serves(name) {
		r.sightings.forget(name)
		return driverless, false, nil
	}
	// The Node first: whatever answers runs in the boot that it says, or in a later one.
	node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.sightings.forget(name)
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if wait, err = r.sightings.Sight(ctx, node); wait == 0 {
		wait = again
	}
	return wait, true, err
}
