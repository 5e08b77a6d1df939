package main

import (
	"fmt"
	"time"

	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"
)

// forceDetachEnv shortens the attach-detach controller's wait before it
// detaches by force (6 minutes in Kubernetes), where the length of that wait
// is not what a scenario is about.
const forceDetachEnv = "SANITY_FORCE_DETACH_AFTER"

func shortenTimers(lookup func(string) (string, bool)) error {
	value, ok := lookup(forceDetachEnv)
	if !ok || value == "" {
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%s: %w", forceDetachEnv, err)
	}
	attachdetach.DefaultTimerConfig.ReconcilerMaxWaitForUnmountDuration = d
	return nil
}
