package simulate

import (
	"context"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// again replays a schedule from its text, as a person who was given it does.
func again(t *testing.T, factory Factory, r Result) Result {
	t.Helper()
	setup, events, err := ParseScript(r.Script())
	if err != nil {
		t.Fatalf("%v in\n%s", err, r.Script())
	}
	return Replay(t, factory, setup, events, false)
}

// shortEnough is how many events of a schedule that breaks R1 or R2 without a guard
// are left at most: the seeds below leave fewer.
const shortEnough = 20

// TestAFailingScheduleShrinks: what is left is shorter, breaks the same rule, and
// does so again from its text.
func TestAFailingScheduleShrinks(t *testing.T) {
	shrunk := map[string]int{}
	for seed := uint64(0); seed < without && (shrunk["R1"] < 2 || shrunk["R2"] < 2); seed++ {
		failed := Random(t, withoutGuard, seed, false)
		if failed.Rule != "R1" && failed.Rule != "R2" || shrunk[failed.Rule] == 2 {
			continue
		}
		shrunk[failed.Rule]++
		small := Shrink(t, withoutGuard, failed)
		if small.Rule != failed.Rule || len(small.Trace) >= len(failed.Trace) || len(small.Trace) > shortEnough {
			t.Errorf("seed %d: %d events that break %q were shrunk to %d that break %q", seed, len(failed.Trace), failed.Rule, len(small.Trace), small.Rule)
		}
		if got := again(t, withoutGuard, small); got.Rule != failed.Rule {
			t.Errorf("seed %d: the text that was left breaks %q (%s), not %s:\n%s", seed, got.Rule, got.Violation, failed.Rule, small.Script())
		}
	}
	if shrunk["R1"] < 2 || shrunk["R2"] < 2 {
		t.Errorf("so many schedules without a guard were shrunk: %v", shrunk)
	}
}

// confused is a sidecar that refuses the first unpublish, and carries out those that
// follow on every node to which it has published: in each story it takes the volume
// from the node that it moved to.
type confused struct {
	passed
	mu      sync.Mutex
	refused bool
	nodes   []string
}

func isConfused(_ context.Context, p Parts) (Sidecar, error) {
	return &confused{passed: passed{spec.NewControllerClient(p.Driver)}}, nil
}

func (c *confused) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	c.mu.Lock()
	c.nodes = append(c.nodes, r.NodeId)
	c.mu.Unlock()
	return c.passed.ControllerPublishVolume(ctx, r)
}

func (c *confused) ControllerUnpublishVolume(ctx context.Context, r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	c.mu.Lock()
	again, nodes := c.refused, c.nodes
	c.refused = true
	c.mu.Unlock()
	if !again {
		return nil, status.Error(codes.FailedPrecondition, "it may be in use")
	}
	for _, id := range nodes {
		if _, err := c.passed.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: r.VolumeId, NodeId: id}); err != nil {
			return nil, err
		}
	}
	return c.passed.ControllerUnpublishVolume(ctx, r)
}

// TestAFailureOfExhaustiveIsRepeatedByItsScript: although what it planned were numbers
// of writes.
func TestAFailureOfExhaustiveIsRepeatedByItsScript(t *testing.T) {
	setup := DefaultSetup()
	setup.Replicas = 2
	_, failed := Exhaustive(t, isConfused, setup, time.Now().Add(time.Second))
	if len(failed) < len(stories) {
		t.Fatalf("%d schedules fail, where each story has to", len(failed))
	}
	for _, r := range failed {
		if got := again(t, isConfused, r); got.Rule != r.Rule || got.Violation != r.Violation {
			t.Fatalf("its script breaks %q (%s), and the schedule broke %s: %s\n%s", got.Rule, got.Violation, r.Rule, r.Violation, r.Script())
		}
	}
	r := failed[0]
	if small := Shrink(t, isConfused, r); small.Rule != r.Rule || len(small.Trace) >= len(r.Trace) {
		t.Errorf("%d events that break %s were shrunk to %d that break %q", len(r.Trace), r.Rule, len(small.Trace), small.Rule)
	}
}

// TestStrideComesToEach: what a test run cuts short is spread, and nothing is left
// out of a run that has the time.
func TestStrideComesToEach(t *testing.T) {
	for n := 1; n < 500; n++ {
		seen := map[int]bool{}
		for i := range n {
			seen[i*stride(n)%n] = true
		}
		if len(seen) != n {
			t.Errorf("a stride of %d comes to %d of %d", stride(n), len(seen), n)
		}
	}
}
