package fitness

import (
	"context"
	"fmt"
	"time"
)

const (
	// listRounds are how often the listing is measured.
	listRounds = 3
	// soon is what a list may take; what takes longer is said, for a takeover waits for it.
	soon = 10 * time.Second
)

func askListed(ctx context.Context, r *rig) (found, error) {
	if !r.lists {
		return unknown(Open, "it does not tell: it lacks LIST_VOLUMES_PUBLISHED_NODES, and GET_VOLUME"), nil
	}
	if nodes, _, err := r.nodesOf(ctx); err != nil || len(nodes) > 0 {
		r.lists = false
		return no(Unfit, "before any publish it names %s", names(nodes)), err
	}
	var slowest [2]time.Duration // to be named, to be named no more
	for range min(r.config.Rounds, listRounds) {
		named, unnamed, f, err := r.measureListing(ctx, r.nodes[0])
		if err != nil || f != nil {
			if f != nil {
				r.lists = false // no later question asks a liar
				return *f, err
			}
			return found{}, err
		}
		slowest[0], slowest[1] = max(slowest[0], named), max(slowest[1], unnamed)
	}
	saw := fmt.Sprintf("named at most %s after the publish, no more %s after the unpublish", round(slowest[0]), round(slowest[1]))
	if max(slowest[0], slowest[1]) > soon {
		return no(Remark, "%s", saw).because("While a node is still named, its volume waits."), nil
	}
	return yes("%s", saw), nil
}

// measureListing is one publish and one unpublish; f is what is wrong.
func (r *rig) measureListing(ctx context.Context, node string) (named, unnamed time.Duration, f *found, err error) {
	fail := func(x found) (time.Duration, time.Duration, *found, error) { return 0, 0, &x, nil }
	if _, err := r.put(ctx, node); err != nil {
		return 0, 0, nil, err
	}
	limit := r.config.Timeout
	if !r.declares {
		limit = r.config.Watch
	}
	named, nodes, is, err := r.listed(ctx, limit, node)
	switch {
	case err != nil:
		return 0, 0, nil, err
	case !is && !r.declares && len(nodes) == 0:
		return fail(unknown(Open, "it does not tell: ControllerGetVolume names no node, and it lacks LIST_VOLUMES_PUBLISHED_NODES"))
	case !is:
		return fail(no(Unfit, "%s after the publish to %s answered OK, it names %s", limit, node, names(nodes)))
	}
	if err := r.take(ctx, node); ours(err) || ctx.Err() != nil {
		return 0, 0, nil, err
	} else if err != nil {
		return fail(no(Unfit, "%v", err).because("A volume that is not given back stays where it is for ever."))
	}
	unnamed, nodes, is, err = r.listed(ctx, r.config.Timeout)
	switch {
	case err != nil:
		return 0, 0, nil, err
	case !is:
		return fail(no(Unfit, "%s after the unpublish from %s answered OK, it still names %s", r.config.Timeout, node, names(nodes)))
	}
	return named, unnamed, nil, nil
}

// round is a time as a person reads it.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}
