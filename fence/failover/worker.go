package failover

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// errChanged is returned where what a plan rests on changed before it was carried out.
var errChanged = errors.New("the node changed meanwhile; it is looked at again")

// errLater is returned where it was said already why nothing could be done now.
var errLater = errors.New("nothing can be done now; it is tried again")

// worker is the work on one node. What it remembers delays questions and keeps
// Events from being repeated; nothing is done because of it.
type worker struct {
	*Controller
	name   string
	wake   chan struct{}
	askNow atomic.Bool

	asked    time.Time
	answer   *fencer.Answer
	answers  []told
	silent   int               // questions in a row that had no answer
	turn     int               // of which machine is asked last
	cutAt    time.Time         // when Off was last tried
	uncut    string            // why it did not come about
	liftAt   time.Time         // when Lift failed last
	movedAt  time.Time         // since when the node lists what moved
	said     map[string]string // by object: the last text's key
	waitedOn time.Time
	claims   map[string]string // namespaces of claims, by PV
	seen     *sight            // the last look, for Status; under mu
}

func (w *worker) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run works until the node needs none.
func (w *worker) run(ctx context.Context) {
	defer w.end(w)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "node", w.name)
	ctx = klog.NewContext(ctx, logger)
	for said := ""; ctx.Err() == nil; {
		pause, err := w.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errChanged):
			pause = 50 * time.Millisecond
		case errors.Is(err, errLater):
			pause = w.AskEvery
		case err != nil:
			pause = errorPause
			if err.Error() != said {
				said = err.Error()
				logger.Error(err, "Failover is tried again", "pause", pause)
			}
			// What a failed pass has written rouses its own worker.
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			continue
		case pause == 0:
			return
		}
		w.rest(ctx, pause)
	}
}

// rest until the pause is over or the worker is roused. Of a node that is fenced,
// with nothing left to do, all that changes for a while is what Kubernetes and the
// guard do with its volumes: news of that are looked at together.
func (w *worker) rest(ctx context.Context, pause time.Duration) {
	over, began := time.After(pause), time.Now()
	var together <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-together:
			return
		case <-w.wake:
			least := w.AskEvery - time.Since(began)
			if pause < idleEvery || least <= 0 || w.askNow.Load() {
				return
			}
			together = time.After(least)
		}
	}
}

// pass looks, plans and acts, again and again while that gets on. It returns
// the pause until the next pass; 0: the node needs no more work.
func (w *worker) pass(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	for {
		s, err := w.look(ctx)
		if err != nil {
			return 0, err
		}
		w.note(s)
		w.sayLeftAlone(s)
		w.sayKeptOff(s)
		steps := plan(s)
		for _, step := range steps {
			if err := w.take(ctx, s, step); err != nil {
				return 0, err
			}
		}
		switch {
		case slices.Contains(steps, stepAsk), slices.Contains(steps, stepCut):
			// The answer decides what is next.
		case slices.Contains(steps, stepStranded), slices.Contains(steps, stepListed):
			return w.idle(s), nil // it is said what a person has to do
		case s.early() && s.Storm:
			return 0, nil
		case s.awaitsEarly():
			return earlyEvery, nil
		case len(steps) > 0 && s.Proof == "":
			return w.AskEvery, nil
		case len(steps) > 0:
			return errorPause, nil
		case s.Proof != "" || s.fenced():
			return w.idle(s), nil
		case s.Overdue && s.Covered && !s.suspect() && s.Life != fence.Alive:
			return w.AskEvery, nil // until it was watched for long enough
		default:
			return 0, nil
		}
	}
}

// idle is the pause of a node that is fenced and needs nothing now.
func (w *worker) idle(s *state) time.Duration {
	if s.storageFenced() || s.Life == fence.Alive {
		return 2 * time.Second // its kubelet is about to let go
	}
	return idleEvery
}

// take takes one step.
func (w *worker) take(ctx context.Context, s *state, what step) error {
	switch what {
	case stepAsk:
		return w.ask(ctx, s)
	case stepSuspect:
		return w.suspect(ctx, s)
	case stepBlocked:
		return w.blocked(ctx, s)
	case stepCut:
		return w.cut(ctx, s)
	case stepTaint:
		return w.taint(ctx, s)
	case stepEvict:
		return w.evict(ctx, s)
	case stepEmpty:
		return w.empty(ctx, s)
	case stepPowerOn:
		return w.powerOn(ctx, s)
	case stepWarn:
		return w.warn(s)
	case stepVoid:
		return w.void(ctx, s)
	case stepWitness:
		return w.witness(ctx, s)
	case stepUntaint:
		return w.untaint(ctx, s)
	case stepLift:
		return w.lift(ctx, s)
	case stepStranded:
		return w.stranded(s)
	case stepListed:
		w.sayNode(ctx, s, warning, ReasonBlocked, "listed "+s.Moved.Handle, "node "+w.name+" is kept cut off: "+w.letGo(s.Moved))
		return nil
	}
	return errors.New("unknown step: " + string(what))
}
