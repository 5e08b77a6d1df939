package failover

import (
	"cmp"
	"context"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

const (
	// defaultPolls a second, where none are configured: 200 nodes every 2 s.
	defaultPolls = 100
	// leastAtOnce are under way at most, or half as many as begin in a second: an answer may take
	// half a second, as after a login to a BMC, and all of the budget is used.
	leastAtOnce = 8
	// A device that does not answer, or refuses the login, is asked again after pollBackoff times as
	// long, and so on up to pollRarely: some lock a user out who is refused a few times in a minute.
	pollBackoff = 8
	pollRarely  = 5 * time.Minute
	// After muteFrom questions in a row that had no answer, whatever nodes they were about, one
	// device is asked at a time, as rarely: all of them may know one user.
	muteFrom = 3
	// fallWithin is how long before it was read as off a machine has to have been read as on, so that
	// its power was seen to go. No device starts anew within that.
	fallWithin = 5 * time.Second
	// readFor is how old a reading of off may be by which people's pods are moved.
	readFor = 10 * time.Second
)

// polls are the nodes that are asked whether they are on, whatever their leases say: those that
// hold volumes, are covered by agents that are polled, and that failover does not work on, which
// asks them itself. Each is asked once in its period, the first time somewhere in it by its name,
// so that the questions are spread evenly; where the budget does not do for all, the periods are
// longer, and where they were so long that no power could be seen to go, none is asked. What is remembered prompts and delays, and proves nothing.
type polls struct {
	spacing time.Duration // between two questions, at least
	atOnce  int
	lives   Lives

	mu    sync.Mutex
	nodes map[string]*polled
	// rested are those that are not asked any more, for as long as it matters that their devices
	// refused: the pauses go on where they are asked again.
	rested map[string]*polled
	asking int
	// mute are the questions in a row that had no answer, and paused for how often, until when,
	// nobody was asked for that.
	mute, paused int
	until        time.Time
	// period of the node that is asked most often; 0: none is asked. short: it is longer than
	// what is configured.
	period time.Duration
	short  bool
	// useless tells that the time between two polls would be so long that no fall could be seen, so
	// that nobody is asked.
	useless bool
	// answered tells that some device has answered since the lead began. Before that, few are asked
	// at once: all of them may know one user, whose password is wrong.
	answered bool
}

// polled is one of these nodes, and what was read of it.
type polled struct {
	node   *corev1.Node // as the watch shows it
	agents []string     // that one question asks, at once
	every  time.Duration
	next   time.Time
	asking bool
	worked bool // failover works on it, which is why it was not asked when it was due
	silent int  // questions in a row that had no answer
	Reading
	// on is when it was asked and read on, by the level that is polled; zero: something else was read
	// since, or by other agents.
	on   time.Time
	fall *fall
}

// A fall is power that was seen to go: the machine was read as on, and within five seconds as off,
// and nothing else was read between or since. A device that starts anew, or has always read off, has
// none. A renewal of the lease ends it, and so does every other answer, until it is read as on again.
type fall struct {
	// since is when the first reading of off was there.
	since time.Time
	// leaseRV is the lease as it was seen then.
	leaseRV string
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
	// Oldest is the age of the oldest reading, of those that failover does not work on.
	Oldest time.Duration
}

func newPolls(perSecond int, lives Lives) *polls {
	if perSecond <= 0 {
		perSecond = defaultPolls
	}
	return &polls{spacing: time.Second / time.Duration(perSecond), atOnce: max(leastAtOnce, perSecond/2), lives: lives, nodes: map[string]*polled{}, rested: map[string]*polled{}}
}

// questions are how many are put at once: each is a login, or a process.
func (n *polled) questions() int { return max(1, len(n.agents)) }

// keep has the polls be of these nodes, and no others.
func (p *polls) keep(nodes map[string]*polled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	least := p.budgetLocked(nodes)
	if p.useless {
		nodes = nil
	}
	for name, one := range p.nodes {
		if nodes[name] == nil {
			delete(p.nodes, name)
			p.rested[name] = one
			p.lives.ReadsOff(name, false)
		}
	}
	for name, one := range p.rested {
		if !one.asking && (one.silent == 0 || now.Sub(one.next) > pollRarely) {
			delete(p.rested, name)
		}
	}
	p.period, p.answered = 0, p.answered && len(nodes) > 0
	for name, n := range nodes {
		known := p.nodes[name]
		if known == nil {
			known = &polled{Reading: Reading{At: now}}
			if before := p.rested[name]; before != nil {
				known.agents, known.next, known.asking, known.silent = before.agents, before.next, before.asking, before.silent
				delete(p.rested, name)
			}
			p.nodes[name] = known
		}
		known.node, known.every = n.node, max(n.every, least)
		if !known.asking {
			known.agents = n.agents
		}
		if known.next.IsZero() {
			known.next = now.Add(share(name, known.every))
		}
		if p.period == 0 || known.every < p.period {
			p.period = known.every
		}
		if known.fall != nil {
			p.compareLocked(name, known, p.lives.Version(name))
		}
	}
}

// budgetLocked is the shortest period that the budget allows for these nodes. It says so once where
// that is longer than configured, or of no use.
func (p *polls) budgetLocked(nodes map[string]*polled) (least time.Duration) {
	questions := 0
	for _, n := range nodes {
		questions += n.questions()
	}
	least = p.spacing * time.Duration(questions)
	short, useless := false, least >= fallWithin
	for _, n := range nodes {
		short = short || n.every < least
	}
	switch {
	case useless && !p.useless:
		klog.InfoS("No node is asked whether it is on before its lease is silent: with this fencing.pollsPerSecond each would be asked so rarely that its power would never be seen to go", "nodes", len(nodes), "questions", questions, "period", least.Round(time.Millisecond), "longest", fallWithin)
	case short && !useless && (!p.short || p.useless):
		klog.InfoS("Nodes are asked less often than configured whether they are on: fencing.pollsPerSecond does not do for all", "nodes", len(nodes), "questions", questions, "period", least.Round(time.Millisecond))
	}
	p.short, p.useless = short, useless
	return least
}

// share is a part of every that is always the same for the name, and spread evenly over names.
func share(name string, every time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name))
	return time.Duration(float64(every) * float64(h.Sum32()) / (1 << 32))
}

// take is the node that is to be asked now, with the time that there is for that; nil: none is,
// before wait is over.
func (p *polls) take(busy func(node string) bool) (n *corev1.Node, within, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var due *polled
	wait = scanEvery
	switch {
	case p.mute >= muteFrom && (p.asking > 0 || now.Before(p.until)):
		return nil, 0, scanEvery
	case p.asking >= p.atOnce, p.asking >= leastAtOnce && !p.answered:
		return nil, 0, p.spacing
	}
	for name, one := range p.nodes {
		switch {
		case one.asking:
		case one.next.After(now):
			wait = min(wait, one.next.Sub(now))
		case busy(name):
			one.worked = true
		case p.asking > 0 && p.asking+one.questions() > p.atOnce:
			wait = p.spacing
		case due == nil || one.next.Before(due.next):
			due = one
		}
	}
	if due == nil {
		return nil, 0, max(wait, p.spacing)
	}
	due.asking, due.worked = true, false
	p.asking += due.questions()
	if due.next = due.next.Add(due.every); due.next.Before(now) {
		due.next = now.Add(due.every)
	}
	return due.node, min(2*due.every, fallWithin), p.spacing * time.Duration(due.questions())
}

// asked ends the question about the node that take gave. An unclear one had no answer.
func (p *polls) asked(node string, unclear bool, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := cmp.Or(p.nodes[node], p.rested[node])
	p.asking -= one.questions()
	if one.asking = false; !unclear {
		return
	}
	now := time.Now()
	if p.mute++; p.mute == muteFrom {
		klog.InfoS("It cannot be read of any node whether it is on: one is asked now and then until there is an answer", "node", node, "read", why)
	}
	if p.mute >= muteFrom && !now.Before(p.until) {
		p.until = now.Add(pauseOf(one.every, p.paused))
		p.paused++
	}
	pause := pauseOf(one.every, one.silent)
	if one.silent++; one.silent == 1 {
		klog.InfoS("It cannot be read whether a node is on: it is asked again after a while, and more and more rarely, up to every 5 minutes", "node", node, "read", why)
	}
	one.next = now.Add(pause)
}

// pauseOf is the pause after an answer that did not come, and after so many before it.
func pauseOf(every time.Duration, before int) time.Duration {
	for range before + 1 {
		every = min(every*pollBackoff, pollRarely)
	}
	return every
}

// heard keeps a reading of a node that is polled, and tells since when its power has been seen to be
// gone; zero: it has not. Only two readings by the level that is polled begin a fall, and only one by
// it leaves a fall be.
func (p *polls) heard(node string, r Reading, polled bool) (since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.nodes[node]
	if one == nil || !r.At.After(one.At) {
		return time.Time{}
	}
	now, on := time.Now(), one.on
	one.Reading, one.on = r, time.Time{}
	switch {
	case r.State == agent.On && polled:
		one.fall, one.on = nil, r.At
	case r.State != agent.Off || !polled:
		one.fall = nil
	case !on.IsZero() && now.Sub(on) <= fallWithin:
		if leaseRV := p.lives.Version(node); leaseRV != "" {
			one.fall = &fall{now, leaseRV}
		}
	}
	p.lives.ReadsOff(node, one.fall != nil)
	if r.State != agent.Unclear {
		p.mute, p.paused, p.answered = 0, 0, true
		if one.silent > 0 {
			one.silent, one.next = 0, now.Add(one.every)
		}
	}
	if one.fall == nil {
		return time.Time{}
	}
	return one.fall.since
}

// off tells since when a node's power has been seen to be gone, whose lease has that version now,
// and when it was last read. The next renewal ends that.
func (p *polls) off(node, leaseRV string) (since, read time.Time, off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.nodes[node]
	if one == nil || one.fall == nil {
		return time.Time{}, time.Time{}, false
	}
	if p.compareLocked(node, one, leaseRV); one.fall == nil {
		return time.Time{}, time.Time{}, false
	}
	return one.fall.since, one.At, true
}

// compareLocked ends the fall of a node whose lease is not as it was then, whoever works on it: in a
// storm nobody does, and a device that lies would keep it up.
func (p *polls) compareLocked(node string, one *polled, leaseRV string) {
	if one.fall.leaseRV == leaseRV {
		return
	}
	klog.InfoS("A node reads off and renews its lease: what is read of it is not believed before it reads on", "node", node, "read", one.Why)
	one.fall = nil
	p.lives.ReadsOff(node, false)
}

func (p *polls) polling() Polling {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Polling{Nodes: len(p.nodes), Period: p.period, Short: p.short}
	for _, one := range p.nodes {
		if !one.worked {
			out.Oldest = max(out.Oldest, time.Since(one.At))
		}
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

// poll asks until ctx ends.
func (c *Controller) poll(ctx context.Context) {
	for ctx.Err() == nil {
		n, within, wait := c.polls.take(c.working)
		if n != nil {
			c.wait.Go(func() { c.pollOne(ctx, n, within) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// pollOne asks about one node, and begins work on one whose power was seen to go, and stays away, where
// that is no storm. A question that takes longer than within has no answer.
func (c *Controller) pollOne(ctx context.Context, n *corev1.Node, within time.Duration) {
	c.wait.Go(func() { c.ports.look(ctx, n) })
	asked := time.Now()
	limited, cancel := context.WithTimeout(ctx, within)
	s, why := c.Fencer.Poll(limited, n)
	cancel()
	c.polls.asked(n.Name, s == agent.Unclear, why)
	if ctx.Err() != nil {
		return
	}
	c.Metrics.PowerPolled(s)
	since := c.polls.heard(n.Name, Reading{State: s, At: asked, Why: why}, true)
	if since.IsZero() {
		return
	}
	if storm, _ := c.Lives.Storm(); storm {
		return
	}
	c.knock(n)
	if time.Since(since) >= askFrom {
		c.begin(n.Name, true)
	}
}

// knock finds out whether the node's kubelet is silent, which may end after its caller has.
func (c *Controller) knock(n *corev1.Node) {
	c.mu.Lock()
	ctx := c.running
	c.mu.Unlock()
	if ctx != nil {
		c.ports.knock(ctx, n)
	}
}

// working tells whether failover works on the node.
func (c *Controller) working(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.work[node] != nil
}
