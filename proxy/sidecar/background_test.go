package sidecar

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackgroundWorkThatFailsBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var began []time.Duration
		start := time.Now()
		KeepRunning(ctx, func(ctx context.Context) error {
			began = append(began, time.Since(start))
			if len(began) == 3 {
				stop()
			}
			return errors.New("lost the watch")
		})
		if len(began) != 3 || began[1] != backgroundRetry || began[2] != 2*backgroundRetry {
			t.Errorf("it began at %v", began)
		}
	})
}
