package simulate

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

// Campaign is many schedules.
type Campaign struct {
	Factory Factory
	// Whole plays tier 2.
	Whole bool
	// From is the first seed, Schedules how many follow.
	From      uint64
	Schedules int
	// Wide plays the wide world.
	Wide bool
	// Within ends it early; 0: never.
	Within time.Duration
	// Progress is told every 10 s how far it is; nil: nobody.
	Progress func(string)
	// Enough failures end it; 0: three.
	Enough int

	mu       sync.Mutex
	stats    Stats
	lengths  map[int]int // schedules by number of steps
	attacks  map[int]int // the same, of the steps under attack
	over     int         // schedules whose end started over
	ran      int
	waits    map[Wait]int
	Failures []Result
}

// spare is the percentage of garbage before a collection: a schedule leaves a few
// hundred KiB, all of it garbage, and there is memory.
const spare = 800

// Run runs the schedules on all cores.
func (c *Campaign) Run(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(spare))
	if c.Enough == 0 {
		c.Enough = 3
	}
	c.lengths, c.attacks = map[int]int{}, map[int]int{}
	began := time.Now()
	var next atomic.Uint64
	stop := make(chan struct{})
	defer close(stop)
	go c.tell(began, stop)
	t.Run("schedules", func(t *testing.T) {
		for core := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprintf("core%d", core), func(t *testing.T) {
				t.Parallel()
				for {
					n := next.Add(1) - 1
					if n >= uint64(c.Schedules) || c.Within > 0 && time.Since(began) > c.Within || c.enough() {
						return
					}
					c.note(c.draw(t, c.From+n))
				}
			})
		}
	})
}

func (c *Campaign) enough() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.Failures) >= c.Enough
}

// Ran is how many schedules there were.
func (c *Campaign) Ran() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ran
}

func (c *Campaign) note(r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran++
	c.stats.Add(r.Stats)
	c.noteWaits(r.Waits)
	c.lengths[r.Stats.Steps]++
	c.attacks[r.Attack]++
	if r.Stats.StartedOver > 0 {
		c.over++
	}
	if r.Violation != "" {
		c.Failures = append(c.Failures, r)
		if c.Progress != nil { // at once: who ends the campaign early keeps it
			c.Progress(fmt.Sprintf("seed %d breaks %s: %s", r.Seed, r.Rule, r.Violation))
		}
	}
}

func (c *Campaign) tell(began time.Time, stop chan struct{}) {
	if c.Progress == nil {
		return
	}
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		text := fmt.Sprintf("%d of %d schedules, %.0f a second, %d steps, %d crashes, %d takeovers, %d failures", c.ran, c.Schedules,
			float64(c.ran)/time.Since(began).Seconds(), c.stats.Steps, c.stats.Crashes, c.stats.Takeovers, len(c.Failures))
		c.mu.Unlock()
		c.Progress(text)
	}
}

// Figures adds what was counted to a result.
func (c *Campaign) Figures(r *result.Result, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	median, longest := middle(c.lengths, c.ran)
	attack, longestAttack := middle(c.attacks, c.ran)
	s := c.stats
	for _, f := range []result.Figure{
		{Name: "schedules", Value: float64(c.ran), Unit: "schedules"},
		{Name: "steps", Value: float64(s.Steps), Unit: "steps"},
		{Name: "median length, with the end without faults", Value: float64(median), Unit: "steps"},
		{Name: "longest, with the end without faults", Value: float64(longest), Unit: "steps"},
		{Name: "median length under attack", Value: float64(attack), Unit: "steps"},
		{Name: "longest under attack", Value: float64(longestAttack), Unit: "steps"},
		{Name: "calls of the attacher", Value: float64(s.Calls), Unit: "calls"},
		{Name: "publishes answered OK", Value: float64(s.Publishes), Unit: "calls"},
		{Name: "refusals", Value: float64(s.Refusals), Unit: "calls"},
		{Name: "holders unpublished by a takeover", Value: float64(s.Takeovers), Unit: "calls"},
		{Name: "crashes of a replica", Value: float64(s.Crashes), Unit: "crashes"},
		{Name: "clocks that were set", Value: float64(s.Jumps), Unit: "jumps"},
		{Name: "machines that lost their power", Value: float64(s.PowerOffs), Unit: "machines"},
		{Name: "taken from a machine in use because an operator lied or the driver revokes", Value: float64(s.Excused), Unit: "volumes"},
		{Name: "the same, because it began to use it between the call's last look and the driver's call", Value: float64(s.Raced), Unit: "volumes"},
		{Name: "the same, a limit: a person had stripped the VolumeAttachment or tainted the living node, unseen, and the kubelet forgot the mount", Value: float64(s.Stripped), Unit: "volumes"},
		{Name: "the same, a limit: the kubelet forgot the mount by a restart that shows nowhere", Value: float64(s.Unseen), Unit: "volumes"},
		{Name: "the same, a limit: the kubelet forgot the mount, was given a pod of the volume again, and listed and dropped it for that one", Value: float64(s.Relisted), Unit: "volumes"},
		{Name: "the same, a limit: the kubelet was restarted after it had unpublished the volume and before it had unstaged it, and forgot it", Value: float64(s.Staged), Unit: "volumes"},
		{Name: "the same, a limit: the kubelet was restarted, found no pod of the volume, and unmounted it around a container that nobody could end", Value: float64(s.Outlived), Unit: "volumes"},
		{Name: "the same, a limit: the kubelet forgot the mount by a restart, and a clock was set between that and its heartbeat", Value: float64(s.Leapt), Unit: "volumes"},
		{Name: "the same, a limit: another machine under the node ID had mounted without a publish, and its Node was gone", Value: float64(s.Inherited), Unit: "volumes"},
		{Name: "ends that needed a reboot by hand", Value: float64(s.ByHand), Unit: "reboots"},
		{Name: "ends that needed a pod deleted by hand", Value: float64(s.PodByHand), Unit: "pods"},
		{Name: "ends that needed a volume released by hand", Value: float64(s.Released), Unit: "volumes"},
		{Name: "ends that needed the Node of a dead machine deleted by hand", Value: float64(s.NodeByHand), Unit: "nodes"},
		{Name: "ends in which nothing helped but to reboot every node", Value: float64(c.over), Unit: "schedules"},
	} {
		r.Add(prefix+f.Name, f.Value, f.Unit)
	}
	if c.Whole {
		r.Add(prefix+"machines switched off by failover", float64(s.Failover.Fences), "machines")
		r.Add(prefix+"writes of a Node by failover", float64(s.Failover.Tainted), "calls")
		r.Add(prefix+"pods deleted by failover", float64(s.Failover.Pods), "pods")
	}
}

const (
	// startsOver is of how many schedules in a thousand the end may start over: a
	// person who has to reboot every node is not helped by any refusal.
	startsOver = 10
	// many schedules are enough to judge the campaign as a whole.
	many = 200
)

// Shortfalls say what no schedule shows alone: an end that starts over too often, or
// a failover that did nothing.
func (c *Campaign) Shortfalls() (short []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ran < many {
		return nil
	}
	if c.over*1000 > c.ran*startsOver {
		short = append(short, fmt.Sprintf("in %d of %d schedules nothing helped but to reboot every node; %d in a thousand may", c.over, c.ran, startsOver))
	}
	if f := c.stats.Failover; c.Whole && (f.Fences == 0 || f.Tainted == 0 || f.Pods == 0) {
		short = append(short, fmt.Sprintf("in %d schedules failover switched %d machines off, wrote %d Nodes and deleted %d pods: it has to do each", c.ran, f.Fences, f.Tainted, f.Pods))
	}
	return short
}

// middle is the median and the longest of so many schedules, counted by length.
func middle(by map[int]int, ran int) (median, longest int) {
	var lengths []int
	for n := range by {
		lengths = append(lengths, n)
	}
	slices.Sort(lengths)
	half := 0
	for _, n := range lengths {
		if half += by[n]; half*2 >= ran {
			return n, lengths[len(lengths)-1]
		}
	}
	return 0, 0
}

// Script is a result as a text that Replay's caller can read again.
func (r *Result) Script() string {
	var text strings.Builder
	if r.Violation != "" {
		fmt.Fprintf(&text, "# breaks %s: %s\n", r.Rule, r.Violation)
	}
	fmt.Fprintln(&text, r.Setup)
	for _, e := range r.Trace {
		fmt.Fprintln(&text, e)
	}
	return text.String()
}

// ParseScript reads a script: a setup line, and an event on each other line; #
// begins a comment.
func ParseScript(text string) (Setup, []Event, error) {
	setup, known := DefaultSetup(), false
	var events []Event
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "setup" && !known:
			s, err := parseSetup(words[1:])
			if err != nil {
				return setup, nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			setup, known = s, true
		default:
			e, err := parseEvent(line)
			if err != nil {
				return setup, nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			events = append(events, e)
		}
	}
	if !known {
		return setup, nil, fmt.Errorf("there is no setup line, such as: %s", DefaultSetup())
	}
	return setup, events, nil
}

// Shrink removes events from a failing schedule as long as the same rule breaks.
func Shrink(t *testing.T, factory Factory, failed Result) Result {
	fails := func(setup Setup, events []Event) (Result, bool) {
		r := Replay(t, factory, setup, events, true)
		return r, r.Rule == failed.Rule
	}
	best, ok := fails(failed.Setup, failed.Trace)
	if !ok {
		return failed // it cannot be replayed: as it is
	}
	for size := max(len(best.Trace)/2, 1); ; {
		shorter := false
		for at := 0; at < len(best.Trace); {
			events := slices.Concat(best.Trace[:at], best.Trace[min(at+size, len(best.Trace)):])
			if r, ok := fails(best.Setup, events); ok && len(r.Trace) < len(best.Trace) {
				best, shorter = r, true
			} else {
				at += size
			}
		}
		if size == 1 && !shorter {
			break
		}
		if !shorter || size > len(best.Trace) {
			size = max(size/2, 1)
		}
	}
	return simpler(best, fails)
}

// simpler takes out of the setup what the failure does not need.
func simpler(best Result, fails func(Setup, []Event) (Result, bool)) Result {
	for _, change := range []func(*Setup){
		func(s *Setup) { s.Replicas = 1 }, func(s *Setup) { s.Volumes = 1 }, func(s *Setup) { s.Nodes = 2 }, func(s *Setup) { s.Lies = false },
		func(s *Setup) { s.Agents = false }, func(s *Setup) { s.NamedIDs = false }, func(s *Setup) { s.Lists = Nothing }, func(s *Setup) { s.ByList, s.Neighbour, s.Versions = false, false, false },
		func(s *Setup) { s.Skew = "" }, func(s *Setup) { s.Twins = "" }, func(s *Setup) { s.Single = Allows }, func(s *Setup) { s.Revokes = false },
	} {
		setup := best.Setup
		change(&setup)
		if r, ok := fails(setup, best.Trace); ok && setup != best.Setup {
			best = r
		}
	}
	return best
}
