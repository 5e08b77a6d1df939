package failover

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// defaultPolls a second, where none are configured: 200 nodes every 2 s.
const defaultPolls = 100

// polls are the nodes that are asked whether they are on, whatever their leases say: those that
// hold volumes, are covered by agents that are polled, and that failover does not work on, which
// asks them itself. Each is asked once in its period, the first time somewhere in it by its name,
// so that the questions are spread evenly; where the budget does not do for all, the periods are
// longer. A device that does not answer holds up no other node's: one question is under way for
// each. What is remembered prompts and delays, and proves nothing.
type polls struct {
	spacing time.Duration // between two questions, at least

	// readsOff is told of each node whether it reads off.
	readsOff func(node string, off bool)

	mu    sync.Mutex
	nodes map[string]*polled
	// period of the node that is asked most often; 0: none is asked. short: it is longer than
	// what is configured.
	period time.Duration
	short  bool
}

// polled is one of these nodes, and what was read of it.
type polled struct {
	node   *corev1.Node // as the watch shows it
	live   *corev1.Node // as it was read at readAt, with its addresses; nil: it was not
	readAt time.Time
	every  time.Duration
	next   time.Time
	asking bool
	Reading
	// off is when the first of the readings of off was asked for that have no other between
	// them; zero: the last one is none.
	off time.Time
	// lease is its version at the first look after that; lies: it has been renewed since, so
	// that the readings are nothing before one says on.
	lease string
	lies  bool
}

// A Reading is what the agents last said of a node's power.
type Reading struct {
	State agent.State
	// At is when they were asked, by this process's clock; before the first answer, when the
	// node began to be polled.
	At time.Time
	// Why says what they read, for people; empty: they have not answered yet.
	Why string
}

// Polling is how the nodes are polled now.
type Polling struct {
	Nodes int
	// Period is how often each is asked that is asked most often. Short: the budget
	// (fencing.pollsPerSecond) makes it longer than what is configured.
	Period time.Duration
	Short  bool
	// Oldest is the age of the oldest reading.
	Oldest time.Duration
}

func newPolls(perSecond int, readsOff func(node string, off bool)) *polls {
	if perSecond <= 0 {
		perSecond = defaultPolls
	}
	return &polls{spacing: time.Second / time.Duration(perSecond), readsOff: readsOff, nodes: map[string]*polled{}}
}

// keep has the polls be of these nodes, and no others.
func (p *polls) keep(nodes map[string]*polled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for name := range p.nodes {
		if nodes[name] == nil {
			delete(p.nodes, name)
			p.readsOff(name, false)
		}
	}
	p.period = 0
	least := p.spacing * time.Duration(len(nodes))
	for name, n := range nodes {
		known := p.nodes[name]
		if known == nil {
			known = &polled{Reading: Reading{At: now}}
			p.nodes[name] = known
		}
		known.node, known.every = n.node, max(n.every, least)
		if known.next.IsZero() {
			known.next = now.Add(share(name, known.every))
		}
		if p.period == 0 || known.every < p.period {
			p.period = known.every
		}
	}
	short := false
	for _, n := range nodes {
		short = short || n.every < least
	}
	if short && !p.short {
		klog.InfoS("Nodes are asked less often than configured whether they are on: fencing.pollsPerSecond does not do for all", "nodes", len(nodes), "period", p.period.Round(time.Millisecond))
	}
	p.short = short
}

// share is a part of every that is always the same for the name, and spread evenly over names.
func share(name string, every time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name))
	return time.Duration(h.Sum32()) * every / (1 << 32)
}

// take is the node that is to be asked now; nil: none is, before wait is over.
func (p *polls) take(busy func(node string) bool) (n *corev1.Node, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var due *polled
	wait = scanEvery
	for name, one := range p.nodes {
		switch {
		case one.asking:
		case one.next.After(now):
			wait = min(wait, one.next.Sub(now))
		case busy(name):
		case due == nil || one.next.Before(due.next):
			due = one
		}
	}
	if due == nil {
		return nil, max(wait, p.spacing)
	}
	due.asking = true
	if due.next = due.next.Add(due.every); due.next.Before(now) {
		due.next = now.Add(due.every)
	}
	return due.node, p.spacing
}

// heard keeps a reading of a node that is polled.
func (p *polls) heard(node string, r Reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.nodes[node]; one != nil {
		one.asking = false
		if r.At.After(one.At) {
			one.note(r)
			p.readsOff(node, one.counts())
		}
	}
}

// note takes a reading.
func (n *polled) note(r Reading) {
	n.Reading = r
	switch {
	case r.State != agent.Off:
		n.off, n.lease = time.Time{}, ""
		n.lies = n.lies && r.State != agent.On
	case n.off.IsZero():
		n.off = r.At
	}
}

// counts: it reads off, and nothing contradicts that.
func (n *polled) counts() bool { return !n.off.IsZero() && !n.lies }

// off tells whether a node reads off, whose lease has that version now, and from the first to the
// last of these readings for how long. Once the lease is renewed meanwhile it does not any more.
func (p *polls) off(node, leaseRV string) (during time.Duration, off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.nodes[node]
	if one == nil || !one.counts() {
		return 0, false
	}
	if one.lease == "" {
		one.lease = leaseRV
	}
	if one.lies = one.lease != leaseRV; one.lies {
		klog.InfoS("A node reads off and renews its lease: what is read of it is not believed before it reads on", "node", node, "read", one.Why)
		p.readsOff(node, false)
		return 0, false
	}
	return one.At.Sub(one.off), true
}

// suspects: the node reads off, and is to be looked at.
func (p *polls) suspects(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.nodes[node]
	return one != nil && one.counts()
}

func (p *polls) polling() Polling {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Polling{Nodes: len(p.nodes), Period: p.period, Short: p.short}
	for _, one := range p.nodes {
		out.Oldest = max(out.Oldest, time.Since(one.At))
	}
	return out
}

// Polling tells how nodes are polled now, for people.
func (c *Controller) Polling() Polling { return c.polls.polling() }

// Power is what was last read of a node's power, for people; false: it is not polled.
func (c *Controller) Power(node string) (Reading, bool) {
	c.polls.mu.Lock()
	defer c.polls.mu.Unlock()
	if one := c.polls.nodes[node]; one != nil {
		return one.Reading, true
	}
	return Reading{}, false
}

// poll asks until ctx ends, and forgets then what was read.
func (c *Controller) poll(ctx context.Context) {
	defer c.polls.keep(nil)
	for ctx.Err() == nil {
		n, wait := c.polls.take(c.working)
		if n != nil {
			c.wait.Go(func() { c.pollOne(ctx, n) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// pollOne asks about one node.
func (c *Controller) pollOne(ctx context.Context, n *corev1.Node) {
	asked := time.Now()
	s, why := agent.Unclear, "its Node cannot be read"
	if live := c.live(ctx, n); live != nil {
		c.wait.Go(func() { c.ports.look(ctx, live) })
		s, why = c.Fencer.Poll(ctx, live)
	}
	if ctx.Err() != nil {
		return
	}
	c.Metrics.PowerPolled(s)
	c.polls.heard(n.Name, Reading{State: s, At: asked, Why: why})
	if c.polls.suspects(n.Name) {
		c.begin(n.Name, true)
	}
}

// liveFor is how long a Node is taken for what it was when it was read, while its boot is the same.
const liveFor = 5 * time.Minute

// live is the Node with all that it says: the watch keeps neither its addresses nor its system
// UUID as it is written. While the API server does not answer it is what it was; nil: nobody knows.
func (c *Controller) live(ctx context.Context, n *corev1.Node) *corev1.Node {
	p := c.polls
	p.mu.Lock()
	one := p.nodes[n.Name]
	if one == nil { // it is not polled any more
		p.mu.Unlock()
		return nil
	}
	known, at := one.live, one.readAt
	p.mu.Unlock()
	if known != nil && known.UID == n.UID && known.Status.NodeInfo.BootID == n.Status.NodeInfo.BootID && time.Since(at) < liveFor {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	read, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return known
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.nodes[n.Name]; one != nil {
		one.live, one.readAt = read, time.Now()
	}
	return read
}

// working tells whether failover works on the node.
func (c *Controller) working(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work[node] != nil
}
