package kubelet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Rounds ask the kubelets of the nodes on which the driver is, one after another: when the node is
// first seen, when its Node says that it may have restarted, and now and then, since a quick
// restart shows nowhere.
type Rounds struct {
	sightings *Sightings
	renew     func(context.Context) error
	client    kubernetes.Interface
	has       func(node string) (there, driver bool)
	queue     workqueue.TypedRateLimitingInterface[string]

	mu    sync.Mutex
	signs map[string]signs // by node
}

// signs are what a Node says that tells of a restart of its kubelet, and when that was last asked.
type signs struct {
	uid, bootID string
	ready       corev1.ConditionStatus
	since       int64
	asked       time.Time
}

const (
	// again is how often each kubelet is asked.
	again = time.Hour
	// floor is the least time from one question to a kubelet to the next.
	floor = time.Minute
	// pace is the least time from one question to the next, of whichever kubelet: a first round
	// over 5,000 nodes takes 17 minutes.
	pace = 200 * time.Millisecond
	// A kubelet that does not answer is asked again after retryFirst, and then less often.
	retryFirst = 10 * time.Second
	// unfit is when a node is looked at again that has no driver yet, or is not Ready.
	unfit = time.Minute
)

// NewRounds note what they see in s. renew has the token made that s asks with. They read Nodes by
// client. has tells whether there is a Node of that name, and the driver on it.
func NewRounds(s *Sightings, renew func(context.Context) error, client kubernetes.Interface, has func(node string) (there, driver bool)) *Rounds {
	r := &Rounds{sightings: s, renew: renew, client: client, has: has, signs: map[string]signs{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, again))}
	s.prompt = r.prompt
	return r
}

// Saw takes note of a Node that was added or changed.
func (r *Rounds) Saw(node *corev1.Node) {
	now := signs{uid: string(node.UID), bootID: node.Status.NodeInfo.BootID}
	if c := fence.ReadyCondition(node); c != nil {
		now.ready, now.since = c.Status, c.LastTransitionTime.Unix()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.signs[node.Name]
	now.asked = was.asked
	if known && was == now {
		return // a volume more or less
	}
	r.signs[node.Name] = now
	r.queue.AddAfter(node.Name, time.Until(was.asked.Add(floor)))
}

// prompt has a node asked as soon as the floor lets it.
func (r *Rounds) prompt(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.AddAfter(node, time.Until(r.signs[node].asked.Add(floor)))
}

func (r *Rounds) promptAll() {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.signs))
	r.mu.Unlock()
	for _, node := range all {
		r.prompt(node)
	}
}

// Run asks until ctx ends. It is begun once.
func (r *Rounds) Run(ctx context.Context) {
	context.AfterFunc(ctx, r.queue.ShutDown)
	defer r.queue.ShutDown() // whichever ends first
	go r.keep(ctx)
	logger := klog.FromContext(ctx)
	said := "" // of kubelets that do not answer, until one does
	for {
		name, over := r.queue.Get()
		if over {
			return
		}
		wait, asked, err := r.look(ctx, name)
		r.queue.Done(name)
		pause := time.Duration(0)
		if asked {
			pause = pace
		}
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
				logger.Info("Kubelets cannot be asked whether they have restarted: one that may have is doubted until its node reboots or somebody vouches for it, as without evidence.kubelet", "node", name, "err", err)
			}
			logger.V(2).Info("A kubelet does not say what its process is", "node", name, "err", err)
			r.queue.AddRateLimited(name)
		default:
			r.queue.Forget(name)
			if asked {
				said = answers
				logger.V(2).Info("A kubelet was asked what its process is", "node", name, "again", wait)
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

// keep has a token there whenever a call may need one.
func (r *Rounds) keep(ctx context.Context) {
	refused := 0
	for ctx.Err() == nil {
		// look says what is wrong. Who may not ask, as once the account is taken away, has seen none:
		// nobody waits for a token that does not come. Once may be an account that is made anew.
		switch err := r.renew(ctx); {
		case err == nil && refused > 1:
			r.promptAll()
			fallthrough
		case err == nil:
			refused = 0
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			if refused++; refused > 1 {
				r.sightings.forgetAll()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(lifetime / 6):
		}
	}
}

// answers is said where a kubelet has answered, so that one that does not is that node's affair.
const answers = "they answer"

// look asks one kubelet, and says when to look again (0: its Node is gone), and whether it was
// asked.
func (r *Rounds) look(ctx context.Context, name string) (wait time.Duration, asked bool, err error) {
	switch there, driver := r.has(name); {
	case !there:
		r.forget(name)
		return 0, false, nil
	case !driver:
		return unfit, false, nil
	case !r.ready(name):
		r.sightings.excuse(name)
		return unfit, false, nil
	}
	// The Node first: whatever answers runs in the boot that it says, or in a later one.
	node, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.forget(name)
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if !fence.NodeReady(node) {
		r.sightings.excuse(name)
		return unfit, false, nil // whoever has its address by now is told no token
	}
	if err := r.renew(ctx); err != nil {
		return 0, true, err
	}
	r.mu.Lock()
	if is, known := r.signs[name]; known {
		is.asked = time.Now()
		r.signs[name] = is
	}
	r.mu.Unlock()
	if wait, err = r.sightings.Sight(ctx, node); wait == 0 {
		wait = again
	}
	return wait, true, err
}

// ready tells whether the Node was last seen Ready.
func (r *Rounds) ready(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signs[name].ready == corev1.ConditionTrue
}

func (r *Rounds) forget(name string) {
	r.sightings.forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.signs, name)
}
