package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// slow is a guard whose calls take a second.
type slow struct {
	mu        sync.Mutex
	now, most int
	began     []string
}

func (s *slow) call(volume string) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.began = append(s.began, volume)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
}

func (s *slow) ControllerPublishVolume(_ context.Context, req *spec.ControllerPublishVolumeRequest, _ proxy.Driver) (*spec.ControllerPublishVolumeResponse, error) {
	s.call("+" + req.GetVolumeId())
	return nil, nil
}

func (s *slow) ControllerUnpublishVolume(_ context.Context, req *spec.ControllerUnpublishVolumeRequest, _ proxy.Driver) (*spec.ControllerUnpublishVolumeResponse, error) {
	s.call("-" + req.GetVolumeId())
	return nil, nil
}

// calls sends n calls, a millisecond after one another, publishes and unpublishes
// in turn, and waits for their answers.
func calls(ctx context.Context, g proxy.Guard, n int) []error {
	answers := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if volume := fmt.Sprint(i); i%2 == 0 {
				_, answers[i] = g.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: volume}, nil)
			} else {
				_, answers[i] = g.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: volume}, nil)
			}
		})
		time.Sleep(time.Millisecond)
	}
	all.Wait()
	return answers
}

func TestCallsBeyondTheBoundWaitInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, started := &slow{}, time.Now()
		for _, err := range calls(t.Context(), Bound(s, 3), 9) {
			if err != nil {
				t.Error(err)
			}
		}
		if s.most != 3 {
			t.Errorf("%d calls at once, want 3", s.most)
		}
		if took := time.Since(started).Round(time.Second); took != 3*time.Second {
			t.Errorf("9 calls of a second, 3 at once, took %v", took)
		}
		if want := "+0 -1 +2 -3 +4 -5 +6 -7 +8"; strings.Join(s.began, " ") != want {
			t.Errorf("they began as %v, want %s", s.began, want)
		}
	})
}

func TestWithoutABoundNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		calls(t.Context(), Bound(s, 0), 9)
		if s.most != 9 {
			t.Errorf("%d calls at once, want 9", s.most)
		}
	})
}

func TestACallWhoseTurnDoesNotComeIsNeverBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		b := Bound(s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		started := time.Now()
		answers := calls(ctx, b, 5)
		if took := time.Since(started).Round(time.Second); took != 3*time.Second {
			t.Errorf("it took %v, want 3 s: a call waits half of its 5 s", took)
		}
		if !slices.Equal(s.began, []string{"+0", "-1", "+2"}) {
			t.Errorf("they began as %v", s.began)
		}
		for i, err := range answers {
			if busy := status.Code(err) == codes.Aborted && strings.Contains(err.Error(), "["+string(fence.DriverBusy)+"]"); busy != (i > 2) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		// The place of one that gave up is free.
		if err := calls(t.Context(), b, 1)[0]; err != nil {
			t.Error(err)
		}
	})
}
