package ipmi

import (
	"context"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

const (
	// holdsFor is how long a session is kept that nobody uses: a BMC ends it after about a minute.
	holdsFor = 45 * time.Second
	// resumeWithin is how long a BMC may take in a session that was kept. One that has started
	// since does not answer in it.
	resumeWithin = 2500 * time.Millisecond
)

// held are the sessions that are kept open between readings, by node; at most one of each.
type held struct {
	mu     sync.Mutex
	byNode map[string]*heldSession
}

type heldSession struct {
	*session
	user credentials
	// on: the machine was read as on in it.
	on   bool
	idle *time.Timer // ends it
}

// take is the node's session, which is the caller's then; nil: there is none.
func (h *held) take(node string) *heldSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.byNode[node]
	if s == nil || !s.idle.Stop() {
		return nil
	}
	delete(h.byNode, node)
	return s
}

// keep keeps a session after a call; one that is too many ends. Of two that is kept in which the
// machine was on.
func (h *held) keep(node string, s *heldSession) {
	s.wire.park()
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := h.byNode[node]; other != nil && (other.on || !s.on) {
		s.wire.end()
		return
	} else if other != nil && other.idle.Stop() {
		other.wire.end()
	}
	if h.byNode == nil {
		h.byNode = map[string]*heldSession{}
	}
	h.byNode[node] = s
	s.idle = time.AfterFunc(holdsFor, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.byNode[node] == s {
			delete(h.byNode, node)
		}
		s.wire.end()
	})
}

// statusHeld is Status in a session that is kept, if there is one, and that is kept afterwards.
// Nothing is sent in it between two calls.
func (a *IPMI) statusHeld(ctx context.Context, m agent.Machine, bmc string, user credentials) (agent.Reading, error) {
	if s := a.held.take(m.Node); s != nil {
		if s.user == user && s.wire.resume(ctx) {
			limited, cancel := context.WithTimeout(ctx, resumeWithin)
			r, err := a.readIn(limited, m, s)
			cancel()
			if err == nil {
				a.held.keep(m.Node, s)
				return r, nil
			}
		}
		s.wire.end()
		if ctx.Err() != nil {
			return agent.Reading{}, context.Cause(ctx)
		}
	}
	opened, err := login(ctx, bmc, user, toRead)
	if err != nil {
		return agent.Reading{}, err
	}
	s := &heldSession{session: opened, user: user}
	r, err := a.readIn(ctx, m, s)
	if err = s.wire.blame(err); err != nil {
		s.logout(ctx)
		return agent.Reading{}, err
	}
	a.held.keep(m.Node, s)
	return r, nil
}

// readIn reads once, and whose BMC it is with it.
func (a *IPMI) readIn(ctx context.Context, m agent.Machine, s *heldSession) (agent.Reading, error) {
	id, err := s.identify(ctx, m)
	if err != nil {
		return agent.Reading{}, err
	}
	r, err := s.power(ctx)
	if err != nil {
		return agent.Reading{}, err
	}
	r.Detail += "; " + id.note
	r.Session = agent.Fresh
	if s.on {
		r.Session = agent.Held
	}
	s.on = s.on || r.State == agent.On
	return r, nil
}
