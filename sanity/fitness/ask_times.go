package fitness

import (
	"context"
	"time"
)

// attacherTimeout is the --timeout that inject gives external-attacher, and the
// README recommends: one call takes a volume from the old node and publishes it to
// the new one.
const attacherTimeout = 60 * time.Second

func askTimes(_ context.Context, r *rig) (found, error) {
	publish, unpublish := r.calls.of("ControllerPublishVolume"), r.calls.of("ControllerUnpublishVolume")
	if publish.Calls == publish.Errors || unpublish.Calls == unpublish.Errors {
		return unknown(Open, "no publish or no unpublish has succeeded"), nil
	}
	longest := time.Duration((publish.Max + unpublish.Max) * float64(time.Second))
	if longest > attacherTimeout {
		return no(Setting, "at most %s: the longest unpublish and the longest publish", round(longest)).needing(Time), nil
	}
	return yes("at most %s: the longest unpublish and the longest publish", round(longest)), nil
}
