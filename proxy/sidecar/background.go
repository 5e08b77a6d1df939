package sidecar

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// backgroundRetry is the pause before failed background work begins again.
const backgroundRetry = 5 * time.Second

// KeepRunning runs work until ctx ends, and again after a pause when it ends
// before: its failure must not take the serving of calls with it.
func KeepRunning(ctx context.Context, work func(context.Context) error) {
	for ctx.Err() == nil {
		err := work(ctx)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Background work ended, it begins again", "after", backgroundRetry)
		select {
		case <-ctx.Done():
		case <-time.After(backgroundRetry):
		}
	}
}
