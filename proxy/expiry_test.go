package proxy_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// Offsets run through the whole life of a call: a quarter expires while it is
// being made, the rest somewhere around the driver's answer.
const expiringSoon = 5 * time.Millisecond

func expiryOffset(i int, answerAfter time.Duration) time.Duration {
	random := rand.New(rand.NewPCG(1, uint64(i)))
	if i%4 == 0 {
		return time.Duration(random.Int64N(int64(expiringSoon)))
	}
	return time.Duration(random.Int64N(int64(2 * answerAfter)))
}

// codeCounts is how many calls ended with each code.
type codeCounts map[codes.Code]int

// inTime is the share of the calls that were answered.
func (c codeCounts) inTime() float64 {
	all := 0
	for _, n := range c {
		all += n
	}
	return float64(c[codes.OK]) / float64(all)
}

func TestCodesOfCallsThatExpireAtVariedOffsetsAreDistributedAsDirectly(t *testing.T) {
	d := newDriver(t)
	var answerAfter atomic.Int64 // a time.Duration
	answer := func(ctx context.Context) error {
		select {
		case <-time.After(time.Duration(answerAfter.Load())):
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	d.onUnary = func(ctx context.Context, in []byte) ([]byte, error) { return in, answer(ctx) }
	d.onPublish = func(ctx context.Context, _ *publishRequest) (*publishResponse, error) {
		return &publishResponse{}, answer(ctx)
	}
	d.start(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	caller := connect(t, d.path)

	// 10,000 calls through the proxy, and every fourth directly as well, in the
	// same moment. Where the machine is busy, answers are late by its doing: then
	// again, fewer and slower.
	for _, load := range []struct {
		calls, atOnce int
		answerAfter   time.Duration
	}{{10_000, 48, 50 * time.Millisecond}, {1_000, 16, 200 * time.Millisecond}, {300, 16, time.Second}} {
		answerAfter.Store(int64(load.answerAfter))
		direct, proxied := expireBothWays(t.Context(), caller, e.ClientConn, load.calls, load.atOnce, load.answerAfter)
		t.Logf("answers after %s: direct %v, proxied %v; in time %.3f, %.3f", load.answerAfter, direct, proxied, direct.inTime(), proxied.inTime())
		for way, counts := range map[string]codeCounts{"direct": direct, "proxied": proxied} {
			for code, n := range counts {
				if code != codes.OK && code != codes.DeadlineExceeded {
					t.Errorf("%s: %d calls ended with %s", way, n, code)
				}
			}
		}
		// Of three eighths that an idle machine answers in time.
		if less := direct.inTime() - proxied.inTime(); direct.inTime() > 0.2 && less < 0.1 && less > -0.1 {
			return
		}
	}
	t.Error("the shares of calls that are answered in time differ by more than a tenth, however few and slow they are")
}

func expireBothWays(ctx context.Context, direct, proxied *grpc.ClientConn, calls, atOnce int, answerAfter time.Duration) (codeCounts, codeCounts) {
	var mu sync.Mutex
	counts := map[*grpc.ClientConn]codeCounts{direct: {}, proxied: {}}
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := range jobs {
				conns := []*grpc.ClientConn{proxied}
				if i/4%4 == 0 { // offsets of all kinds
					conns = append(conns, direct)
				}
				for _, conn := range conns {
					code := expiringCall(ctx, conn, expiryOffset(i, answerAfter), i%2 == 0)
					mu.Lock()
					counts[conn][code]++
					mu.Unlock()
				}
			}
		})
	}
	for i := range calls {
		jobs <- i
	}
	close(jobs)
	workers.Wait()
	return counts[direct], counts[proxied]
}

func expiringCall(ctx context.Context, conn *grpc.ClientConn, offset time.Duration, judged bool) codes.Code {
	ctx, cancel := context.WithTimeout(ctx, offset)
	defer cancel()
	var err error
	if judged {
		_, err = spec.NewControllerClient(conn).ControllerPublishVolume(ctx, &publishRequest{VolumeId: "v", NodeId: "n"})
	} else {
		_, err = callUnary(ctx, conn, notProto)
	}
	return status.Code(err)
}
