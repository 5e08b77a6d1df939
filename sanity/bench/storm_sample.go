package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// stormSample is one side of a storm; times in seconds, in order.
type stormSample struct {
	// proofs of the nodes, since the power's end; alone: the operator's taints.
	proofs []float64
	// moved is when each volume was published elsewhere, since its own node's proof; total, the same
	// since the power's end; running, when its pod ran.
	moved, total, running []float64
	// calls of the driver: how many, at once at most, and their time together.
	calls, atOnce int
	driver        float64
	violations    int
	// waiting is all that external-attacher's workers did, held what they did
	// while nothing was proven.
	waiting, held workerTime
	cpu           time.Duration // of csi-fencepost
	cores         coreShare     // from the first proof on
	// requests of csi-fencepost's account, and how long they went on.
	requests   *requestLog
	took       time.Duration
	memory     residency
	restarts   int
	afterFreed float64 // until the stuck volume was published
}

// stormUsage is what processes have used so far.
type stormUsage struct {
	workers workerTime    // of external-attacher
	cpu     time.Duration // of csi-fencepost
}

func (s *stormSide) usage() (u stormUsage, err error) {
	if u.workers, err = readWorkerTime(s.ctx, s.metrics); err != nil || s.alone {
		return u, err
	}
	if u.workers["OK"].calls < s.volumes {
		return u, fmt.Errorf("external-attacher has attached %d volumes, and its metrics tell of %v", s.volumes, u.workers)
	}
	u.cpu, err = cpuTime(s.stage.Fencepost.Pid())
	return u, err
}

// sample is what came of the storm, which is over.
func (s *stormSide) sample(before stormUsage) (*stormSample, error) {
	s.mu.Lock()
	err := s.operated
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("the operator's taint: %w", err)
	}
	f := &stormSample{violations: len(s.stage.Array.Violations()), took: time.Since(s.offAt)}
	if err := s.times(f); err != nil {
		return nil, err
	}
	if f.cores, err = shareSince(s.cores, s.offAt.Add(time.Duration(first(f.proofs)*float64(time.Second)))); err != nil {
		return nil, err
	}
	f.calls, f.atOnce, f.driver = callsSince(s.stage.Array.Calls(), s.offAt)
	after, err := s.usage()
	if err != nil {
		return nil, err
	}
	f.waiting, f.cpu = after.workers.since(before.workers), after.cpu-before.cpu
	if s.alone {
		return f, nil
	}
	f.restarts = s.stage.Fencepost.Restarts()
	if f.memory, err = resident(s.stage.Fencepost.Pid()); err != nil {
		return nil, err
	}
	f.requests, err = requestsOf(s.audit.path, s.stage.Name, s.offAt, time.Now())
	return f, err
}

// times fills in what the moments amount to.
func (s *stormSide) times(f *stormSample) error {
	published := s.published()
	runs, nodes := s.sight.runs()
	proof := map[string]time.Time{}
	for name, n := range nodes {
		proof[name] = n.proven
		if s.alone {
			proof[name] = n.tainted
		}
		if proof[name].IsZero() {
			return fmt.Errorf("all has moved, and of node %s nobody saw the proof", name)
		}
		f.proofs = append(f.proofs, proof[name].Sub(s.offAt).Seconds())
	}
	for pod, node := range s.nodeOf {
		at, moved := published[pod]
		if !moved {
			if s.stuck != nil && pod == s.stuckPod() {
				continue
			}
			return fmt.Errorf("pod %s runs elsewhere, and the driver never published its volume there", pod)
		}
		f.moved = append(f.moved, at.Sub(proof[node]).Seconds())
		f.total = append(f.total, at.Sub(s.offAt).Seconds())
	}
	for at := range maps.Values(runs) {
		f.running = append(f.running, at.Sub(s.offAt).Seconds())
	}
	for _, list := range [][]float64{f.proofs, f.moved, f.total, f.running} {
		slices.Sort(list)
	}
	return nil
}

// callsSince counts the driver's calls for volumes since a moment, how many of
// them it had at once, and how long they took it together.
func callsSince(calls []array.Call, from time.Time) (n, atOnce int, seconds float64) {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, c := range calls {
		if c.Start.Before(from) || c.Method != array.Publish && c.Method != array.Unpublish {
			continue
		}
		n++
		edges = append(edges, edge{c.Start, 1})
		if !c.End.IsZero() {
			edges = append(edges, edge{c.End, -1})
			seconds += c.End.Sub(c.Start).Seconds()
		}
	}
	// One that ends at the moment at which another begins is not beside it.
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.step, b.step)) })
	now := 0
	for _, e := range edges {
		now += e.step
		atOnce = max(atOnce, now)
	}
	return n, atOnce, seconds
}
