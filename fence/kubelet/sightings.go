package kubelet

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Asker asks a Node's kubelet for its process (Client).
type Asker interface {
	Ask(ctx context.Context, node *corev1.Node, key string) (*Answer, error)
}

// Sightings are the processes that were last seen to run. They are asked for ahead (Rounds), so
// that a publish finds what ran before it without asking. A sighting that is out of date is of a process
// that has ended: it makes nobody believe anything. It is safe for concurrent use.
type Sightings struct {
	asker  Asker
	mu     sync.Mutex
	seen   map[string]sighting // by node
	prompt func(node string)   // has a node sighted anew; nil: nobody does
	// unanswered are the questions of calls that had no answer lately.
	unanswered map[question]refusal
}

// question is to the kubelet of the Node of that UID, if it serves by that key.
type question struct {
	node types.UID
	key  string
}

// refusal is when a question had no answer, and why.
type refusal struct {
	at  time.Time
	why error
}

// askedAgain is how long after it had no answer a question is asked again: in a storm each volume
// would wait for one.
const askedAgain = 10 * time.Second

// missGap is for how long a kubelet may not have been asked within the hour after which its silence
// is no sign: whoever waits asks more often, and nobody does while the API server is away.
const missGap = 15 * time.Minute

// sighting is the process that ran on a Node of that UID, which said that boot.
type sighting struct {
	uid, bootID string
	process     fence.Process
	since       time.Time // when it was first seen to run
	// missed is since when its node was asked in vain, at least every missGap, and last when it was;
	// zero: it answered.
	missed, last time.Time
}

// NewSightings asks by asker, and has seen none.
func NewSightings(asker Asker) *Sightings {
	return &Sightings{asker: asker, seen: map[string]sighting{}, unanswered: map[question]refusal{}}
}

// Seen is the process that was last seen to run on the Node of that UID in that boot; nil: none
// was. It is the caller's.
func (s *Sightings) Seen(node, uid, bootID string) *fence.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is := s.seen[node]; bootID != "" && is.bootID == bootID && is.uid == uid {
		return &is.process
	}
	return nil
}

// Ask asks a Node's kubelet now, if it serves by that key, and notes nothing of its process. That is
// no younger than it was seen to be, whatever time a machine that was paused has missed. An error
// says why that is not known, for ten seconds without asking again; a refused connection, which takes
// no time, it is not kept. A kubelet that is asked in vain is forgotten as by Sight, and one that serves by
// another key is sighted soon.
func (s *Sightings) Ask(ctx context.Context, node *corev1.Node, key string) (*Answer, error) {
	q := question{node.UID, key}
	s.mu.Lock()
	last, unanswered := s.unanswered[q]
	s.mu.Unlock()
	if unanswered && time.Since(last.at) < askedAgain {
		return nil, last.why
	}
	answer, err := s.asker.Ask(ctx, node, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, r := range s.unanswered {
		if other == q || time.Since(r.at) >= askedAgain {
			delete(s.unanswered, other)
		}
	}
	if err != nil {
		switch {
		case errors.Is(err, ErrNoToken): // which says nothing of that kubelet
			return nil, err
		case !errors.Is(err, syscall.ECONNREFUSED):
			s.unanswered[q] = refusal{time.Now(), err}
		}
		switch {
		case ctx.Err() != nil || !fence.NodeReady(node):
		case !errors.Is(err, errAnotherKey):
			s.missLocked(node.Name)
		case s.prompt != nil && s.seen[node.Name].process.Key == key:
			s.prompt(node.Name) // it may have another certificate
		}
		return nil, err
	}
	s.excuseLocked(node.Name)
	if is := s.seen[node.Name]; is.uid == string(node.UID) && is.process.Is(&answer.Process) {
		answer.Age = max(answer.Age, time.Since(is.since))
	}
	return answer, nil
}

// Sight asks a Node's kubelet, as it was read before, and notes its process. A process that has started
// just now does not tell itself from the one after it yet (fence.Settled), and is not noted: wait
// is how long it takes; 0: it is noted. An error says why its process is not known; what was noted
// is forgotten where it was asked again and again for an hour, in which the node was Ready: then its
// silence is no sign.
func (s *Sightings) Sight(ctx context.Context, node *corev1.Node) (wait time.Duration, err error) {
	answer, err := s.asker.Ask(ctx, node, "")
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ErrNoToken) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.missLocked(node.Name)
		}
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excuseLocked(node.Name)
	before := s.seen[node.Name]
	if wait = fence.Settled*time.Second - answer.Age; wait > 0 {
		return min(wait, fence.Settled*time.Second), nil
	}
	now := sighting{uid: string(node.UID), bootID: node.Status.NodeInfo.BootID, process: answer.Process, since: time.Now()}
	if before.uid == now.uid && before.bootID == now.bootID && before.process.Is(&now.process) {
		now.since = before.since
	}
	s.seen[node.Name] = now
	return 0, nil
}

// missLocked takes note that the kubelet of a node that is Ready does not answer.
func (s *Sightings) missLocked(node string) {
	is, noted := s.seen[node]
	if !noted {
		return
	}
	if is.missed.IsZero() || time.Since(is.last) > missGap {
		is.missed = time.Now()
	}
	is.last = time.Now()
	if s.seen[node] = is; time.Since(is.missed) >= again {
		delete(s.seen, node)
	}
}

// excuse takes note that the kubelet of a node need not answer: it is not Ready.
func (s *Sightings) excuse(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excuseLocked(node)
}

func (s *Sightings) excuseLocked(node string) {
	if is, noted := s.seen[node]; noted {
		is.missed = time.Time{}
		s.seen[node] = is
	}
}

func (s *Sightings) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.seen)
}

func (s *Sightings) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, node)
}
