package failover

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// asked is a Fencer that notes when each node is polled, and answers after hang.
type asked struct {
	scripted
	at   map[string][]time.Time
	all  []time.Time
	hang map[string]time.Duration
	// now are under way, and most were at once.
	now, most atomic.Int32
	refuses   bool
	agents    []string
}

func (a *asked) Poll(ctx context.Context, n *corev1.Node) (agent.State, string) {
	a.mu.Lock()
	a.at[n.Name] = append(a.at[n.Name], time.Now())
	a.all = append(a.all, time.Now())
	hang := a.hang[n.Name]
	a.mu.Unlock()
	if a.now.Add(1); a.now.Load() > a.most.Load() {
		a.most.Store(a.now.Load())
	}
	defer a.now.Add(-1)
	select {
	case <-ctx.Done():
		return agent.Unclear, "it did not answer in time"
	case <-time.After(hang):
	}
	if a.refuses {
		return agent.Unclear, "wrong password"
	}
	return agent.On, "on"
}

// polling polls that many nodes every two seconds, for so long.
func polling(nodes, perSecond int, hang map[string]time.Duration, during time.Duration) (*asked, *Controller) {
	return pollingOf(&asked{at: map[string][]time.Time{}, hang: hang}, nodes, perSecond, during)
}

func pollingOf(f *asked, nodes, perSecond int, during time.Duration) (*asked, *Controller) {
	c := New(Options{Fencer: f, Metrics: &noted{}, Lives: observe.NewTracker(time.Minute, 1), PollsPerSecond: perSecond})
	all := map[string]*polled{}
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		all[name] = &polled{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, agents: f.agents, every: 2 * time.Second}
	}
	c.polls.keep(all)
	ctx, cancel := context.WithTimeout(context.Background(), during)
	defer cancel()
	after := make(chan Polling, 1)
	time.AfterFunc(during-time.Millisecond, func() { after <- c.Polling() })
	c.poll(ctx)
	c.wait.Wait()
	c.Metrics.Polling(<-after)
	return f, c
}

func TestNodesArePolledInTheirPeriodAndEvenlyOverIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := polling(200, 100, nil, 20*time.Second)
		for name, at := range f.at {
			if len(at) < 9 {
				t.Errorf("node %s was asked %d times in 20 s", name, len(at))
			}
			for i := 1; i < len(at); i++ {
				if gap := at[i].Sub(at[i-1]); gap > 2200*time.Millisecond {
					t.Errorf("node %s was not asked for %s", name, gap)
				}
			}
		}
		if len(f.at) != 200 {
			t.Errorf("%d nodes were asked", len(f.at))
		}
		for i := 100; i < len(f.all); i++ {
			if d := f.all[i].Sub(f.all[i-100]); d < 999*time.Millisecond {
				t.Fatalf("100 questions within %s, with a budget of 100 a second", d)
			}
		}
		if p := c.Metrics.(*noted).polling; p.Nodes != 200 || p.Period != 2*time.Second || p.Short || p.Oldest > 2200*time.Millisecond {
			t.Errorf("polling: %+v", p)
		}
	})
}

func TestTheFirstQuestionsAreSpreadOverAPeriodHoweverLong(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 4 * time.Second, time.Minute} {
		var tenths [10]int
		for i := range 1000 {
			at := share(fmt.Sprintf("node-%d", i), every)
			if at < 0 || at >= every {
				t.Fatalf("%s, in a period of %s", at, every)
			}
			tenths[at*10/every]++
		}
		if least := slices.Min(tenths[:]); least < 50 {
			t.Errorf("%s: %v of a thousand", every, tenths)
		}
	}
}

func TestABudgetThatIsShortStretchesThePeriodAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := polling(90, 20, nil, 30*time.Second)
		if n := len(f.all); n > 20*30+1 {
			t.Errorf("%d questions in 30 s, with a budget of 20 a second", n)
		}
		for name, at := range f.at {
			if len(at) < 6 {
				t.Errorf("node %s was asked %d times in 30 s: others are asked in its place", name, len(at))
			}
		}
		if p := c.Metrics.(*noted).polling; !p.Short || p.Period != 4500*time.Millisecond {
			t.Errorf("polling: %+v", p)
		}
	})
}

// Each question would be a login for nothing.
func TestWhereTheBudgetIsSoShortThatNoPowerIsSeenToGoNobodyIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := polling(100, 20, nil, 30*time.Second)
		if p := c.Metrics.(*noted).polling; len(f.all) > 0 || p.Nodes > 0 || !p.Short || p.Period != 0 {
			t.Errorf("%d questions, polling: %+v", len(f.all), p)
		}
	})
}

// Two outlets, each with a program: what is bounded is what is asked of the machine that asks.
func TestEachAgentOfALevelIsAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agents, hang := []string{"a", "b", "c"}, map[string]time.Duration{}
		f, c := pollingOf(&asked{at: map[string][]time.Time{}, agents: agents}, 40, 32, 40*time.Second)
		for i := 10; i < len(f.all); i++ {
			if d := f.all[i].Sub(f.all[i-10]); d < 930*time.Millisecond {
				t.Fatalf("10 nodes within %s, of three agents each, with a budget of 32 questions a second", d)
			}
		}
		if p := c.Metrics.(*noted).polling; !p.Short || p.Period != 3750*time.Millisecond || len(f.all) < 9*40 {
			t.Errorf("polling: %+v, and %d questions", p, len(f.all))
		}
		for i := range 40 {
			hang[fmt.Sprintf("n%03d", i)] = 900 * time.Millisecond
		}
		f, _ = pollingOf(&asked{at: map[string][]time.Time{}, hang: hang, agents: agents}, 40, 32, 40*time.Second)
		if n := f.most.Load(); n != 5 {
			t.Errorf("%d nodes at once, with 16 questions", n)
		}
	})
}

// A fall is seen only within five seconds of a reading of on.
func TestNoQuestionTakesLongerThanItsAnswerIsOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, all := newPolls(1, observe.NewTracker(time.Minute, 1)), map[string]*polled{}
		for i := range 4 {
			all[fmt.Sprint(i)] = &polled{node: &corev1.Node{}, every: 2 * time.Second}
		}
		p.keep(all)
		time.Sleep(4 * time.Second)
		if _, within, _ := p.take(func(string) bool { return false }); within != fallWithin {
			t.Errorf("it may take %s", within)
		}
	})
}

func TestADeviceThatHangsHoldsUpNoOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := polling(10, 100, map[string]time.Duration{"n003": 20 * time.Second}, 19*time.Second)
		for name, at := range f.at {
			if name == "n003" && len(at) > 2 {
				t.Errorf("a device that does not answer was asked %d times in 19 s", len(at))
			}
			if name != "n003" && len(at) < 9 {
				t.Errorf("node %s was asked %d times in 19 s", name, len(at))
			}
		}
		if p := c.Metrics.(*noted).polling; p.Oldest < 16*time.Second {
			t.Errorf("the oldest answer is said to be %s old", p.Oldest)
		}
	})
}

func TestANodeThatFailoverWorksOnIsNotPolledBesides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolls(100, observe.NewTracker(time.Minute, 1))
		p.keep(map[string]*polled{"a": {node: &corev1.Node{}, every: time.Second}})
		time.Sleep(2 * time.Second)
		if n, _, _ := p.take(func(string) bool { return true }); n != nil {
			t.Error("it was")
		}
		if n, _, _ := p.take(func(string) bool { return false }); n == nil {
			t.Error("nor is another")
		}
	})
}

func TestTheNodesThatHoldVolumesArePolledAndNoOthers(t *testing.T) {
	c := scanned(t)
	c.Fencer.(*scripted).poll = 2 * time.Second
	if _, polling := c.due(); len(polling) != scannedNodes || polling["gone"] != nil {
		t.Errorf("%d nodes are polled, of %d that hold volumes", len(polling), scannedNodes)
	}
	c.Drivers = nil // whoever holds their volumes, nobody does of these
	if _, polling := c.due(); len(polling) != 0 {
		t.Errorf("%d nodes are polled that hold nothing", len(polling))
	}
	c = scanned(t)
	if _, polling := c.due(); len(polling) != 0 {
		t.Errorf("%d nodes are polled where no agent has poll", len(polling))
	}
}

// All of the budget is used where a login to a BMC takes its time.
func TestTwoHundredNodesThatAnswerInHalfASecondArePolledInTheirPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := map[string]time.Duration{}
		for i := range 200 {
			slow[fmt.Sprintf("n%03d", i)] = 480 * time.Millisecond
		}
		f, _ := polling(200, 0, slow, 20*time.Second)
		for name, at := range f.at {
			if len(at) < 9 {
				t.Errorf("node %s was asked %d times in 20 s", name, len(at))
			}
		}
	})
}

func TestHoweverManyDevicesHangFewQuestionsAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := map[string]time.Duration{}
		for i := range 100 {
			hang[fmt.Sprintf("n%03d", 2*i)] = time.Hour
		}
		for budget, want := range map[int]int{50: 25, 20: 10, 5: leastAtOnce} {
			f, _ := polling(4*budget, budget, hang, 2*time.Minute)
			if n := f.most.Load(); int(n) != want {
				t.Errorf("%d at once, with a budget of %d a second", n, budget)
			}
			if n := len(f.at); n < 2*want {
				t.Errorf("%d nodes were asked in two minutes: a device that hangs has its place for as long as it likes", n)
			}
		}
	})
}

// A BMC that is refused a wrong password a few times in a minute locks the user out who fences.
func TestADeviceThatRefusesIsAskedMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pollingOf(&asked{at: map[string][]time.Time{}, refuses: true}, 1, 100, time.Hour)
		first := f.all[0]
		minute := 0
		for _, at := range f.all {
			if at.Sub(first) < time.Minute {
				minute++
			}
		}
		if n := len(f.all); minute > 2 || n < 12 || n > 15 {
			t.Errorf("%d times in the first minute, and %d in an hour", minute, n)
		}
	})
}

// Short jobs come and go on a node whose BMC refuses, and so may the lead.
func TestADeviceThatRefusesIsNotAskedMoreOftenBecauseItsNodeComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &asked{at: map[string][]time.Time{}, hang: map[string]time.Duration{"n1": time.Hour}}
		c := New(Options{Fencer: f, Metrics: &noted{}, Lives: observe.NewTracker(time.Minute, 1)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go c.poll(ctx)
		keep := func(names ...string) {
			nodes := map[string]*polled{}
			for _, name := range names {
				nodes[name] = &polled{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, every: 2 * time.Second}
			}
			c.polls.keep(nodes)
		}
		for i := 0; ctx.Err() == nil; i++ {
			keep("n1", "n2")
			time.Sleep(time.Duration(1+i%8) * time.Second)
			keep("n2") // which answers: not everybody refuses
			time.Sleep(20 * time.Second)
		}
		c.wait.Wait()
		at := f.at["n1"]
		minute := 0
		for _, one := range at {
			if one.Sub(at[0]) < time.Minute {
				minute++
			}
		}
		if n := len(at); minute > 2 || n < 8 || n > 15 {
			t.Errorf("%d times in the first minute, and %d in an hour", minute, n)
		}
		c.polls.keep(nil)
		time.Sleep(2*pollRarely + time.Second)
		if c.polls.keep(nil); len(c.polls.rested) > 0 {
			t.Error("what nobody asks is remembered without end")
		}
	})
}

// The devices may all know one user, who is locked out of all of them.
func TestWhereNobodyAnswersOneIsAskedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := pollingOf(&asked{at: map[string][]time.Time{}, refuses: true}, 200, 100, time.Hour)
		if n := len(f.all); n < 12 || n > 20 {
			t.Errorf("200 nodes that refuse were asked %d times in an hour", n)
		}
		second := map[string]time.Duration{}
		for i := range 200 {
			second[fmt.Sprintf("n%03d", i)] = time.Second
		}
		if slow, _ := pollingOf(&asked{at: map[string][]time.Time{}, refuses: true, hang: second}, 200, 100, time.Minute); len(slow.all) > leastAtOnce+4 {
			t.Errorf("200 nodes that refuse after a second were asked %d times in the first minute", len(slow.all))
		}
		time.Sleep(pollRarely)
		one, _, _ := c.polls.take(func(string) bool { return false })
		if next, _, _ := c.polls.take(func(string) bool { return false }); one == nil || next != nil {
			t.Errorf("%v is asked, and %v besides", one, next)
		}
		c.polls.asked(one.Name, true, "")
		c.polls.heard("n007", Reading{State: agent.On, At: time.Now()}, true)
		time.Sleep(pollRarely) // each has its own pause
		if n, _, _ := c.polls.take(func(string) bool { return false }); n == nil {
			t.Error("nobody is asked although one has answered")
		} else if n, _, _ := c.polls.take(func(string) bool { return false }); n == nil {
			t.Error("one is asked at a time although one has answered")
		}
	})
}
