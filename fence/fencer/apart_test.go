package fencer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// failover answers by the agents of the world, until it is stopped.
func (w *world) failover(actor string) (stop func()) {
	return w.answers(&Answerer{Fencer: w.fencer(actor), Alone: true})
}

func (w *world) answers(a *Answerer) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := a.Run(ctx); err != nil && ctx.Err() == nil {
			w.Error(err)
		}
	})
	all.Go(func() { // as a watch of the records
		for ctx.Err() == nil {
			for _, node := range []string{"n1", "other"} {
				if lease := w.server.Lease(ns, record.LeaseName(node)); lease != nil {
					a.Saw(lease)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return func() { cancel(); all.Wait() }
}

// sidecar is one without agents. woken are the nodes of which it was told.
func (w *world) sidecar(actor string) (a *Apart, woken func() string) {
	levels := w.levels
	w.levels = nil
	defer func() { w.levels = levels }()
	var mu sync.Mutex
	var all []string
	a = NewApart(w.fencer(actor), func(node string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, node)
	})
	return a, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, " ")
	}
}

// patiently asks as long as a guarded call does.
func (w *world) patiently(a *Apart, t Target) (Answer, error) {
	ctx, cancel := context.WithTimeout(w.Context(), 4*time.Second)
	defer cancel()
	return a.Ask(ctx, t)
}

func (w *world) told(a *Apart, t Target) Answer {
	w.Helper()
	answer, err := w.patiently(a, t)
	if err != nil {
		w.Error(err)
	}
	return answer
}

func (w *world) untold(a *Apart, t Target, says string) {
	w.Helper()
	answer, err := w.patiently(a, t)
	var un *UnansweredError
	if !errors.As(err, &un) || !strings.Contains(err.Error(), says) {
		w.Errorf("answer %+v, error %v, want none that says %q", answer, err, says)
	}
}

// end of the questions that nobody answered.
func end() { time.Sleep(asksFor + time.Second) }

func TestASidecarWithoutAgentsIsToldThroughTheRecord(t *testing.T) {
	run(t, func(w *world) {
		stop := w.failover("failover")
		defer stop()
		s, woken := w.sidecar("s")
		a := w.told(s, w.target())
		if a.State != agent.On || a.Kind != fence.PowerReading || strings.Join(a.On, "") != "bmc" || a.Machine.LeaseRV != w.leaseRV("n1") || a.Machine.NodeUID != "u1" {
			w.Fatalf("on: %+v", a)
		}
		time.Sleep(apartFor)
		w.bmc.set(true)
		if a = w.told(s, w.target()); a.State != agent.Off || strings.Join(a.Agents, "") != "bmc" || a.On != nil {
			w.Errorf("off: %+v", a)
		}
		w.expect("fences", w.fences(), "Fenced by failover")
		time.Sleep(apartFor)
		w.bmc.broken = true
		w.expect("broken", w.told(s, w.target()).State, agent.Unclear)
		w.expect("told of what is clear", woken(), "n1 n1")
		other := w.target()
		other.Node, other.LeaseRV = "other", ""
		if a = w.told(s, other); a.State != agent.Unclear || a.Why != "no fence agent reads its power" {
			w.Errorf("of a node that no agent covers: %+v", a)
		}
		w.expect("audit", len(w.record().Audit), 1) // the fence
	})
}

func TestCallersForOneMachineShareAQuestionAndItsAnswerForAShortTime(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { w.expect("state", w.told(s, w.target()).State, agent.On) })
		}
		all.Wait()
		asked, _ := w.bmc.counts()
		w.expect("asked", asked, 1)
		time.Sleep(apartFor - time.Second)
		w.told(s, w.target())
		asked, _ = w.bmc.counts()
		w.expect("asked again", asked, 1)
		w.renew("n1")
		w.told(s, w.target())
		asked, _ = w.bmc.counts()
		w.expect("asked after a sign of life", asked, 2)
		time.Sleep(apartFor)
		w.told(s, w.target())
		asked, _ = w.bmc.counts()
		w.expect("asked after a while", asked, 3)
	})
}

// Who waits is woken by the answer, and has to find it.
func TestAnUnclearAnswerIsUsedFromWhenItCame(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		w.bmc.takes, w.bmc.broken = 2*time.Second, true
		w.told(s, w.target())
		first := w.record().QuestionOf(driver).ID
		time.Sleep(apartFor - time.Millisecond)
		w.told(s, w.target())
		w.expect("asked again too soon", w.record().QuestionOf(driver).ID, first)
		time.Sleep(time.Millisecond)
		w.told(s, w.target())
		if w.record().QuestionOf(driver).ID == first {
			w.Error("not asked again")
		}
	})
}

func TestWithoutFailoverThereIsNoAnswer(t *testing.T) {
	run(t, func(w *world) {
		s, woken := w.sidecar("s")
		w.untold(s, w.target(), "does not answer")
		// It goes on when the caller is gone, and whoever comes next finds what it came to.
		id := w.record().QuestionOf(driver).ID
		time.Sleep(10 * time.Second)
		stop := w.failover("failover")
		time.Sleep(looksRarely)
		w.expect("woken", woken(), "n1")
		w.expect("state", w.told(s, w.target()).State, agent.On)
		w.expect("question", w.record().QuestionOf(driver).ID, id)
		// What is unclear wakes who went without it and says that it is off: a claim counts by that,
		// however often it was unclear before.
		w.bmc.broken = true
		want := "n1"
		for _, claimed := range []bool{false, true, false, true} {
			stop()
			time.Sleep(apartFor)
			target := w.target()
			target.Claimed = claimed
			w.untold(s, target, "does not answer")
			stop = w.failover("failover")
			time.Sleep(looksRarely + othersWithin)
			if claimed {
				want += " n1"
			}
			w.expect("woken by what is unclear", woken(), want)
			w.expect("which is found", w.told(s, target).State, agent.Unclear)
		}
		stop()
		end()
	})
}

// Who may write records, as each driver's pod may, changes what was asked: what is answered then is
// of something else.
func TestWhatIsAnsweredToAChangedQuestionIsNoAnswer(t *testing.T) {
	run(t, func(w *world) {
		s, _ := w.sidecar("s")
		w.untold(s, w.target(), "does not answer")
		if _, err := w.store.Update(w.Context(), "n1", func(r *record.Record) (bool, error) { r.Questions[0].BootID = "x"; return true, nil }); err != nil {
			w.Fatal(err)
		}
		defer w.failover("failover")()
		time.Sleep(10 * time.Second)
		if q := w.record().QuestionOf(driver); !w.record().Vouched(q) {
			w.Fatalf("nobody answered what it became: %+v", q)
		}
		w.untold(s, w.target(), "does not answer")
		end()
	})
}

// Another process may have agents that can tell.
func TestWhoCannotTellLeavesTheQuestionToOthersFirst(t *testing.T) {
	run(t, func(w *world) {
		w.bmc.broken = true
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		begun := time.Now()
		w.told(s, w.target())
		if took := time.Since(begun); took < othersWithin {
			w.Errorf("that nobody can tell was said after %s", took)
		}
	})
}

// What hands out turns takes a moment itself: agents that do not answer have had their time all the
// same, and are not waited for twice, in which time no claim would count.
func TestAgentsThatAreSlowFromTheFirstAreAnsweredForWithin3Seconds(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("failover")
		for range cap(f.slots) {
			f.slots <- struct{}{}
		}
		defer w.answers(&Answerer{Fencer: f, Alone: true})()
		w.bmc.takes = time.Minute
		s, _ := w.sidecar("s")
		go func() {
			time.Sleep(50 * time.Millisecond)
			for range cap(f.slots) {
				<-f.slots
			}
		}()
		begun := time.Now()
		w.expect("state", w.told(s, w.target()).State, agent.Unclear)
		if took := time.Since(begun); took > unclearAfter+looksEvery {
			w.Errorf("it was said after %s", took)
		}
		time.Sleep(2 * time.Minute)
	})
}

// The first that answers may be the one whose devices do not let it in.
func TestWhoCanTellIsHeardAfterWhoCannot(t *testing.T) {
	run(t, func(w *world) {
		s, _ := w.sidecar("s")
		reply := func(after time.Duration, a record.Answer) {
			time.Sleep(after)
			if _, err := w.store.Update(w.Context(), "n1", func(r *record.Record) (bool, error) { return r.Reply(*r.QuestionOf(driver), a), nil }); err != nil {
				w.Error(err)
			}
		}
		go func() {
			reply(time.Second, record.Answer{State: "unclear", Actor: "locked out"})
			reply(2*time.Second, record.Answer{State: "on", On: []string{"bmc"}, Agents: []string{"bmc"}, Actor: "failover"})
		}()
		w.expect("state", w.told(s, w.target()).State, agent.On)
	})
}

// Of a machine whose agents could not be asked yet nothing is said, and so no claim counts.
func TestWhatIsNotAskedYetIsNotUnclear(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("failover")
		for range cap(f.slots) { // others are before it
			f.slots <- struct{}{}
		}
		defer w.answers(&Answerer{Fencer: f, Alone: true})()
		s, _ := w.sidecar("s")
		w.untold(s, w.target(), "does not answer")
		time.Sleep(10 * time.Second)
		if q := w.record().QuestionOf(driver); q.Answer != nil {
			w.Errorf("it was answered: %+v", q.Answer)
		}
		for range cap(f.slots) {
			<-f.slots
		}
		time.Sleep(answersWithin + 2*time.Second)
		w.expect("state", w.told(s, w.target()).State, agent.On)
	})
}

// slowNodes are read so slowly, as where many requests wait for one client's limit.
type slowNodes struct {
	core.NodesGetter
	by time.Duration
}

type slowNode struct {
	core.NodeInterface
	by time.Duration
}

func (s slowNodes) Nodes() core.NodeInterface { return slowNode{s.NodesGetter.Nodes(), s.by} }

func (s slowNode) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Node, error) {
	time.Sleep(s.by)
	return s.NodeInterface.Get(ctx, name, o)
}

// The agents' time is not that of the requests before and after them.
func TestASlowAPIServerIsNoSilenceOfTheAgents(t *testing.T) {
	for name, tt := range map[string]struct {
		by   time.Duration
		off  bool
		want agent.State
	}{"before the agents, on": {4 * time.Second, false, agent.On}, "after them, on": {3 * time.Second, false, agent.On}, "after them, off": {3 * time.Second, true, agent.Off}} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				f := w.fencer("failover")
				f.Nodes = slowNodes{f.Nodes, tt.by}
				w.bmc.takes = 600 * time.Millisecond
				w.bmc.set(tt.off)
				defer w.answers(&Answerer{Fencer: f, Alone: true})()
				s, _ := w.sidecar("s")
				for range 24 { // of half a second
					if q := w.record().QuestionOf(driver); q != nil && q.Answer != nil && q.Answer.State != tt.want.String() {
						w.Fatalf("it was answered: %+v", q.Answer)
					}
					ctx, cancel := context.WithTimeout(w.Context(), 500*time.Millisecond)
					_, _ = s.Ask(ctx, w.target())
					cancel()
				}
				w.expect("state", w.told(s, w.target()).State, tt.want)
				time.Sleep(20 * time.Second)
			})
		})
	}
}

// One outlet that is on is enough for a machine to run.
func TestWhoReadsOnIsHeardBeforeAllHaveAnswered(t *testing.T) {
	run(t, func(w *world) {
		silent := &device{name: "feed-a", kind: fence.PowerReading, takes: 9 * time.Second, broken: true}
		w.levels = agent.Levels{{{Agent: silent, Timeout: 20 * time.Second}, {Agent: w.bmc, Timeout: 20 * time.Second}}}
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		if a := w.told(s, w.target()); a.State != agent.On || strings.Join(a.On, "") != "bmc" {
			w.Errorf("%+v", a)
		}
		// Nor is it lost on who asks himself, and has to go. Storage that is open is no power.
		array := &device{name: "array", kind: fence.StorageFence}
		w.levels[0] = append(w.levels[0], agent.Bounded{Agent: array, Timeout: 20 * time.Second})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		a, err := w.fencer("in the pod").Ask(ctx, w.target())
		if err == nil || strings.Join(a.On, "") != "bmc" || a.State != agent.Unclear || !a.Machine.Same(record.FencedMachine{NodeUID: "u1", BootID: "b1"}) {
			w.Errorf("%+v, error %v", a, err)
		}
		time.Sleep(20 * time.Second)
	})
}

// One of them may be overridden, and the other one not.
func TestWhoHasJustReadOnStandsBesideWhoReadsOnNow(t *testing.T) {
	run(t, func(w *world) {
		quick := &device{name: "feed-b", kind: fence.PowerReading, broken: true}
		w.levels = agent.Levels{{{Agent: w.bmc, Timeout: 20 * time.Second}, {Agent: quick, Timeout: 20 * time.Second}}}
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		w.bmc.takes = time.Second // so that it is remembered for ten times as long
		w.expect("one", strings.Join(w.told(s, w.target()).On, " "), "bmc")
		time.Sleep(apartFor)
		w.bmc.takes, quick.broken = 15*time.Second, false
		w.expect("both, although that is slow by now", strings.Join(w.told(s, w.target()).On, " "), "bmc feed-b")
		time.Sleep(20 * time.Second)
	})
}

// Agents that are asked already have their 3 s from the question on.
func TestAgentsThatAreAskedAlreadyHaveTheirTimeFromTheQuestionOn(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("failover")
		defer w.answers(&Answerer{Fencer: f, Alone: true})()
		w.bmc.takes = time.Minute
		go f.Ask(w.Context(), w.target())
		time.Sleep(2900 * time.Millisecond)
		s, _ := w.sidecar("s")
		go func() {
			time.Sleep(answersWithin - 100*time.Millisecond)
			if q := w.record().QuestionOf(driver); q == nil || q.Answer != nil {
				w.Errorf("it was answered too soon: %+v", q)
			}
		}()
		w.expect("state", w.told(s, w.target()).State, agent.Unclear)
		time.Sleep(2 * time.Minute)
	})
}

// Who can tell may be heard when somebody has gone by what another could not.
func TestWhatIsSaidAfterAnUnclearAnswerIsReadBeforeThatIsUsedAgain(t *testing.T) {
	run(t, func(w *world) {
		s, _ := w.sidecar("s")
		reply := func(a record.Answer) {
			if _, err := w.store.Update(w.Context(), "n1", func(r *record.Record) (bool, error) { return r.Reply(*r.QuestionOf(driver), a), nil }); err != nil {
				w.Error(err)
			}
		}
		go func() {
			time.Sleep(time.Second)
			reply(record.Answer{State: "unclear", Actor: "locked out"})
		}()
		w.expect("first", w.told(s, w.target()).State, agent.Unclear)
		first := w.record().QuestionOf(driver).ID
		w.expect("again", w.told(s, w.target()).State, agent.Unclear)
		w.expect("by the same question", w.record().QuestionOf(driver).ID, first)
		w.change(func(r *record.Record) { r.Question(first).Answer = nil }) // by who may write records, and may not answer
		w.expect("and so where the answer is taken away", w.told(s, w.target()).State, agent.Unclear)
		w.expect("by that question", w.record().QuestionOf(driver).ID, first)
		reply(record.Answer{State: "on", On: []string{"bmc"}, Agents: []string{"bmc"}, Actor: "failover"})
		go func() {
			time.Sleep(time.Second)
			reply(record.Answer{State: "on", On: []string{"bmc"}, Agents: []string{"bmc"}, Actor: "failover"})
		}()
		w.expect("then", w.told(s, w.target()).State, agent.On)
	})
}

func TestAQuestionThatNobodyAnswersEndsAndIsAskedAnew(t *testing.T) {
	run(t, func(w *world) {
		s, _ := w.sidecar("s")
		w.untold(s, w.target(), "does not answer")
		first := w.record().QuestionOf(driver).ID
		w.untold(s, w.target(), "does not answer")
		w.expect("while it is under way", w.record().QuestionOf(driver).ID, first)
		end()
		w.untold(s, w.target(), "does not answer")
		if w.record().QuestionOf(driver).ID == first {
			w.Error("not asked anew")
		}
		end()
	})
}

func TestNoProcessTakesTheAnswerToAnothersQuestion(t *testing.T) {
	run(t, func(w *world) {
		before, _ := w.sidecar("s")
		stop := w.failover("failover")
		w.bmc.broken = true
		w.told(before, w.target())
		stop()
		// The process that asked is gone, another one of its name has begun.
		w.bmc.broken = false
		after, _ := w.sidecar("s")
		w.untold(after, w.target(), "does not answer")
		end()
	})
}

func TestAnAnswerThatNobodyVouchesForIsNone(t *testing.T) {
	run(t, func(w *world) {
		s, _ := w.sidecar("s")
		forge := func() {
			time.Sleep(100 * time.Millisecond)
			r := w.record()
			r.Questions[0].Answer = &record.Answer{State: "unclear", Actor: "eve"}
			lease := w.server.Lease(ns, record.LeaseName("n1"))
			if err := r.ToLease(lease); err != nil {
				w.Error(err)
			}
			w.server.Put(lease)
		}
		go forge()
		w.untold(s, w.target(), "does not answer")
		time.Sleep(asksFor - 10*time.Second)
		w.untold(s, w.target(), "does not answer")
		stop := w.failover("failover")
		time.Sleep(looksRarely)
		w.expect("state", w.told(s, w.target()).State, agent.On)
		stop()
		end()
	})
}

// An answer that was read before the question was seen says nothing of now.
func TestAQuestionIsAnsweredByWhatIsReadAfterIt(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("failover")
		defer w.answers(&Answerer{Fencer: f})()
		w.bmc.set(true)
		w.expect("read before", w.ask(f, w.target()).State, agent.Off)
		w.bmc.set(false)
		w.expect("which is shared", w.ask(f, w.target()).State, agent.Off)
		time.Sleep(time.Second)
		s, _ := w.sidecar("s")
		w.expect("answer", w.told(s, w.target()).State, agent.On)
	})
}

// A reading that was under way may be from before as well.
func TestAQuestionIsNotAnsweredByAReadingUnderWay(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("failover")
		defer w.answers(&Answerer{Fencer: f})()
		w.bmc.set(true)
		w.bmc.takes = time.Second
		on := make(chan bool)
		w.bmc.onStatus = func() { close(on) }
		go f.Ask(w.Context(), w.target())
		<-on
		time.Sleep(10 * time.Millisecond)
		s, _ := w.sidecar("s")
		w.told(s, w.target())
		asked, _ := w.bmc.counts()
		w.expect("asked", asked, 2)
	})
}

// A machine whose management controller went with its power is answered for in minutes. The
// guard does not wait for that where it asks itself, either.
func TestAgentsThatAreSlowAreAnsweredForInTime(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		w.bmc.takes, w.bmc.broken = 9*time.Second, true
		if a := w.told(s, w.target()); a.State != agent.Unclear || a.Why != "its fence agents have not answered within 3s" {
			w.Errorf("slow and broken: %+v", a)
		}
		time.Sleep(20 * time.Second)
		// That it is on they have said once it was too late, and that counts for the next call.
		w.bmc.broken = false
		w.expect("slow", w.told(s, w.target()).State, agent.Unclear)
		time.Sleep(8 * time.Second)
		if a := w.told(s, w.target()); a.State != agent.On || strings.Join(a.On, "") != "bmc" {
			w.Errorf("slow, and on: %+v", a)
		}
		time.Sleep(20 * time.Second)
	})
}

func TestAnsweringWaitsForNoLockAndNoOptOut(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		lock, err := w.store.Lock(w.Context(), "n1", "somebody", 30*time.Second)
		if err != nil {
			w.Fatal(err)
		}
		w.node("n1", "u1", "b1", map[string]string{OptOutAnnotation: "false"})
		w.expect("state", w.told(s, w.target()).State, agent.On)
		lock.Release(w.Context())
	})
}

// While the node is being fenced the agents are asked, and what they say may be over at once: it is
// neither on nor unclear by that.
func TestWhatIsReadWhilePowerChangesIsReadAgain(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("failover")
		defer w.answers(&Answerer{Fencer: f})()
		s, _ := w.sidecar("s")
		w.bmc.onStatus = func() { w.bmc.onStatus = nil; f.forget("n1") }
		w.expect("state", w.told(s, w.target()).State, agent.On)
		asked, _ := w.bmc.counts()
		w.expect("asked", asked, 2)
	})
}

func TestANodeThatIsGoneIsAskedFor(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		gone := w.target()
		gone.SystemUUID = "uuid-n1"
		w.server.DeleteNode("n1")
		w.expect("on", w.told(s, gone).State, agent.On)
		w.bmc.set(true)
		time.Sleep(apartFor)
		w.expect("off", w.told(s, gone).State, agent.Off)
		w.expect("fences", w.fences(), "Fenced by failover")
	})
}

func TestAnAnswerIsAboutTheMachineThatWasMeant(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		w.bmc.set(true)
		for name, change := range map[string]func(*Target){
			"another Node":       func(t *Target) { t.UID = "u2" },
			"another boot":       func(t *Target) { t.BootID = "b2" },
			"an earlier lease":   func(t *Target) { t.LeaseRV = "1" },
			"of no known Node":   func(t *Target) { t.UID = "" },
			"with another lease": func(t *Target) { t.LeaseRV = "" },
		} {
			target := w.target()
			change(&target)
			if a := w.told(s, target); a.State != agent.Unclear || a.Machine.LeaseRV != target.LeaseRV {
				w.Errorf("%s: %+v", name, a)
			}
		}
		w.expect("the one", w.told(s, w.target()).State, agent.Off)
	})
}

// Another driver's node ID is not the failover's own driver's.
func TestWhatAnotherDriverCallsANodeIsNotWrittenAsOurs(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		s.own.Driver = "other.example.com"
		w.bmc.set(true)
		w.expect("state", w.told(s, w.target()).State, agent.Off)
		w.expect("node IDs", len(w.record().Fences[0].Machine.NodeIDs), 0)
	})
}

// Of two that have agents for some nodes each, the one says nothing of the other's.
func TestOnlyWhoHasAllAgentsSaysThatNoneCoversANode(t *testing.T) {
	run(t, func(w *world) {
		stop := w.answers(&Answerer{Fencer: w.fencer("failover")})
		s, _ := w.sidecar("s")
		other := w.target()
		other.Node = "other"
		w.untold(s, other, "does not answer")
		stop()
		end()
	})
}

func TestWhoMayNotFenceDoesNotAnswer(t *testing.T) {
	run(t, func(w *world) {
		f := w.fencer("failover")
		f.ReadOnly = true
		stop := w.answers(&Answerer{Fencer: f, Alone: true})
		s, _ := w.sidecar("s")
		w.untold(s, w.target(), "does not answer")
		stop()
		end()
	})
}

func TestWhatCannotBeAskedIsSaid(t *testing.T) {
	run(t, func(w *world) {
		s, _ := w.sidecar("s")
		w.server.Forbid("create")
		w.untold(s, w.target(), "it cannot be asked: cannot write the record of node n1")
		s.own.ReadOnly = true
		w.untold(s, w.target(), "mode Observe")
	})
}

// A question that is answered again and again is no load on the agents.
func TestTheAgentsAreNotAskedMoreOftenThanEverySecondForOneProcess(t *testing.T) {
	run(t, func(w *world) {
		defer w.failover("failover")()
		for n := range 50 {
			if _, err := w.store.Update(w.Context(), "n1", func(r *record.Record) (bool, error) {
				return r.Ask(record.Question{ID: string(rune('a' + n)), Driver: driver, Actor: "eve", NodeUID: "u1", BootID: "b1", LeaseRV: w.leaseRV("n1")}), nil
			}); err != nil {
				w.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if asked, _ := w.bmc.counts(); asked < 2 || asked > 6 {
			w.Errorf("asked %d times in 5s", asked)
		}
		time.Sleep(answersAgain)
		synctest.Wait()
	})
}

func TestASidecarAsksItsOwnAgentsAboutTheStorage(t *testing.T) {
	for name, c := range map[string]struct {
		power   func(*device)
		cut     bool
		state   agent.State
		kind    fence.Kind
		storage agent.State
		on      string
	}{
		"on, open":      {func(*device) {}, false, agent.On, fence.PowerReading, agent.On, "bmc"},
		"on, cut":       {func(*device) {}, true, agent.Off, fence.StorageFence, agent.Off, "bmc"},
		"off, open":     {func(d *device) { d.off = true }, false, agent.Off, fence.PowerReading, agent.On, ""},
		"off, cut":      {func(d *device) { d.off = true }, true, agent.Off, fence.PowerReading, agent.Off, ""},
		"unclear, cut":  {func(d *device) { d.broken = true }, true, agent.Off, fence.StorageFence, agent.Off, ""},
		"unclear, open": {func(d *device) { d.broken = true }, false, agent.On, fence.StorageFence, agent.On, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				array := &device{name: "array", kind: fence.StorageFence, off: c.cut}
				stop := w.failover("failover")
				s, _ := w.sidecar("s")
				w.levels = agent.Levels{{{Agent: array}}}
				s.own = w.fencer("s")
				c.power(w.bmc)
				if !s.Covers("n1") || s.CoversPower("n1") || !s.CoversStorage("n1") || strings.Join(s.StorageAgents("n1"), "") != "array" {
					w.Error("covered otherwise")
				}
				a := w.told(s, w.target())
				if a.State != c.state || a.Kind != c.kind || a.Storage != c.storage || strings.Join(a.On, "") != c.on {
					w.Errorf("%+v", a)
				}
				only := w.target()
				only.StorageOnly = true
				asked, _ := w.bmc.counts()
				if a := w.told(s, only); (a.State == agent.Off) != c.cut || a.Kind != fence.StorageFence {
					w.Errorf("the storage alone: %+v", a)
				}
				if again, _ := w.bmc.counts(); again != asked {
					w.Error("the power was asked for")
				}
				stop()
				// Without an answer it is said what the storage's agents say.
				time.Sleep(apartFor)
				a, err := w.patiently(s, w.target())
				var un *UnansweredError
				if !errors.As(err, &un) || a.Storage != c.storage || len(a.On) > 0 {
					w.Errorf("%+v, %v", a, err)
				}
				end()
			})
		})
	}
}

// A failover in a pod may have agents for the storage of its own driver, which says nothing of
// the power.
func TestAMachineThatIsCutOffFromStorageIsAnsweredAsOn(t *testing.T) {
	run(t, func(w *world) {
		w.levels = append(w.levels, agent.Level{{Agent: &device{name: "array", kind: fence.StorageFence, off: true}}})
		defer w.failover("failover")()
		s, _ := w.sidecar("s")
		if a := w.told(s, w.target()); a.State != agent.On || a.Kind != fence.PowerReading || strings.Join(a.On, "") != "bmc" {
			w.Errorf("%+v", a)
		}
	})
}

// Where nobody answers, that is to be seen.
func TestItIsToldWhatCameOfEachQuestionThatWasPut(t *testing.T) {
	run(t, func(w *world) {
		s, _ := w.sidecar("s")
		var mu sync.Mutex
		var all []string
		came := func() []string { mu.Lock(); defer mu.Unlock(); return all }
		s.Outcome = func(node string, a Answer, err error) {
			said := a.State.String()
			var un *UnansweredError
			if errors.As(err, &un) {
				said = "unanswered: " + un.Why
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, node+" "+said)
		}
		w.untold(s, w.target(), "has not said")
		w.expect("while it may be answered still", len(came()), 0)
		end()
		w.expect("nobody answers", strings.Join(came(), ", "), "n1 unanswered: it does not answer")
		stop := w.failover("failover")
		w.told(s, w.target())
		w.told(s, w.target()) // by the same answer
		w.expect("answered", strings.Join(came()[1:], ", "), "n1 on")
		stop()
		s.own.ReadOnly = true
		w.renew("n1")
		w.untold(s, w.target(), "mode Observe")
		unknown := w.target()
		unknown.UID = ""
		w.told(s, unknown)
		w.expect("what is not asked", len(came()), 2)
	})
}
