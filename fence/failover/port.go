package failover

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
)

const (
	// portEvery is how often it is looked whether the kubelet of a polled node answers, and
	// portFresh for how long that is remembered.
	portEvery = 10 * time.Second
	portFresh = 30 * time.Second
	// portWithin is how long a connection may take.
	portWithin = time.Second
)

// ports remember which kubelets' ports answered a connection lately, by node. It takes no token:
// whoever runs there has a machine that runs. That one does not answer proves nothing by itself; a
// machine that read off as well, and answered a moment ago, is not only slow.
type ports struct {
	dial func(ctx context.Context, address string) error

	mu   sync.Mutex
	seen map[string]port
}

type port struct {
	address  string
	tried    time.Time
	answered time.Time
}

func newPorts() *ports {
	return &ports{dial: dialPort, seen: map[string]port{}}
}

func dialPort(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		c.Close()
	}
	return err
}

// look connects, if that is due.
func (p *ports) look(ctx context.Context, n *corev1.Node) {
	address, err := kubelet.Address(n)
	if err != nil {
		return
	}
	p.mu.Lock()
	known := p.seen[n.Name]
	if known.address != address {
		known = port{address: address}
	}
	due := time.Since(known.tried) >= portEvery
	known.tried = time.Now()
	if due {
		p.seen[n.Name] = known
	}
	p.mu.Unlock()
	if !due {
		return
	}
	limited, cancel := context.WithTimeout(ctx, portWithin)
	defer cancel()
	if p.dial(limited, address) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen[n.Name].address == address {
		known.answered = known.tried
		p.seen[n.Name] = known
	}
}

// fell tells that the kubelet of that Node, whose port answered at that very address within the
// last 30 s, gives no answer at all now. A refusal is an answer, and so is every error that is not
// known to be silence.
func (p *ports) fell(ctx context.Context, n *corev1.Node) bool {
	address, err := kubelet.Address(n)
	p.mu.Lock()
	known := p.seen[n.Name]
	p.mu.Unlock()
	if err != nil || known.address != address || known.answered.IsZero() || time.Since(known.answered) > portFresh {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, portWithin)
	defer cancel()
	return noAnswer(p.dial(limited, address)) && ctx.Err() == nil
}

// forget what is known of other nodes.
func (p *ports) forget(but func(node string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.seen {
		if !but(name) {
			delete(p.seen, name)
		}
	}
}

// noAnswer: nobody answered, and no host on the way said that it may not, or that there is no way.
// EHOSTUNREACH is what this host says where no machine answers for the address.
func noAnswer(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH)
}
