package failover

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
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
	// portWithin is how long a connection may take: two packets ask for it, one lost one is no silence.
	portWithin = 2500 * time.Millisecond
	// portSaid is how old a silence may be; a node whose power was seen to go is asked without a pause.
	portSaid = 6 * time.Second
	// portOthers are asked at the same time, and portControls of them have to answer: it may be this
	// process that nobody answers, but for a kubelet on its own machine.
	portOthers   = 3
	portControls = 2
)

// ports remember which kubelets' ports answered a connection lately, by node. It takes no token:
// whoever runs there has a machine that runs. That one does not answer proves nothing by itself; a
// machine that was seen to lose its power as well, and answered a moment ago, is not only slow.
type ports struct {
	dial func(ctx context.Context, address string) error

	mu   sync.Mutex
	seen map[string]port
}

type port struct {
	address  string
	tried    time.Time
	answered time.Time
	knocking bool
	// silent is when a connection was begun that had no answer at all, while those of two other nodes
	// were answered. Zero: the last one was.
	silent time.Time
}

func newPorts() *ports {
	return &ports{dial: dialPort, seen: map[string]port{}}
}

// dialPort connects. That there is a connection is the answer; it is ended as TLS wants it, so that
// no kubelet logs each of them.
func dialPort(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	go func() {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		t := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) // nothing is told or believed
		if t.Handshake() == nil {
			t.Close()
		}
	}()
	return nil
}

// portOf is where that Node's kubelet answers; empty: nowhere, or on this machine.
func portOf(n *corev1.Node) string {
	address, err := kubelet.Address(n)
	if at, _ := netip.ParseAddrPort(address); err != nil || at.Addr().IsLoopback() {
		return ""
	}
	return address
}

// change changes what is known of the port of that Node.
func (p *ports) change(n *corev1.Node, address string, what func(*port)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.seen[n.Name]
	if known.address != address {
		known = port{address: address}
	}
	what(&known)
	p.seen[n.Name] = known
}

// look connects, if that is due.
func (p *ports) look(ctx context.Context, n *corev1.Node) {
	address, due := portOf(n), false
	if address == "" {
		return
	}
	began := time.Now()
	p.change(n, address, func(known *port) {
		if due = began.Sub(known.tried) >= portEvery; due {
			known.tried = began
		}
	})
	if due && p.answers(ctx, address) == nil {
		p.change(n, address, func(known *port) { known.answered = began })
	}
}

func (p *ports) answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, portWithin)
	defer cancel()
	return p.dial(ctx, address)
}

// knock finds out, beside its caller, whether the kubelet of a node gives no answer at all whose
// power was seen to go. A refusal is an answer, and so is every error that is not known to be
// silence. It says nothing, too, where fewer than two of the latest others that answered do so
// still.
func (p *ports) knock(ctx context.Context, n *corev1.Node) {
	address, free := portOf(n), false
	if address == "" {
		return
	}
	p.change(n, address, func(known *port) { free, known.knocking = !known.knocking, true })
	if !free {
		return
	}
	go func() {
		began, others := time.Now(), make(chan bool, portOthers)
		all := p.others(n.Name)
		for _, other := range all {
			go func() { others <- p.answers(ctx, other) == nil }()
		}
		silent := noAnswer(p.answers(ctx, address)) && ctx.Err() == nil
		answer := 0
		for range all {
			if <-others {
				answer++
			}
		}
		p.change(n, address, func(known *port) {
			known.knocking, known.silent = false, time.Time{}
			if silent && answer >= portControls {
				known.silent = began
			}
		})
	}()
}

// others are the addresses of the latest other nodes whose kubelets answered.
func (p *ports) others(but string) (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var latest []port
	for name, one := range p.seen {
		if name != but && time.Since(one.answered) <= portFresh {
			latest = append(latest, one)
		}
	}
	slices.SortFunc(latest, func(a, b port) int { return b.answered.Compare(a.answered) })
	for _, one := range latest[:min(len(latest), portOthers)] {
		all = append(all, one.address)
	}
	return all
}

// fell tells that the kubelet of that Node, whose port answered at that very address in the 30 s
// before, has given no answer at all to a connection begun since.
func (p *ports) fell(n *corev1.Node, since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.seen[n.Name]
	return known.address != "" && known.address == portOf(n) && !known.silent.Before(since) && time.Since(known.silent) <= portSaid &&
		known.silent.Sub(known.answered) <= portFresh
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

// noAnswer tells whether nobody answered at all. "No route to host" is what a machine's own
// firewall answers, too.
func noAnswer(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}
