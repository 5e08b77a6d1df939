package fitness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func askAgain(ctx context.Context, r *rig) (found, error) {
	first, err := r.put(ctx, r.nodes[0])
	if err != nil {
		return found{}, err
	}
	second, err := r.publish(ctx, r.nodes[0])
	switch {
	case ctx.Err() != nil:
		return found{}, ctx.Err()
	case err != nil:
		return no(Unfit, "the second one answers %s", brief(err)), nil
	case !maps.Equal(first, second):
		return no(Remark, "the second one answers OK, with another publish_context than the first").
			because("The node gets what the last publish answers: both have to lead to the same disk."), nil
	}
	return yes("it answers OK, with the same publish_context"), nil
}

func askElsewhere(ctx context.Context, r *rig) (found, error) {
	old, second := r.nodes[0], r.nodes[1]
	if _, err := r.put(ctx, old); err != nil {
		return found{}, err
	}
	if err := r.awaitListed(ctx, old); err != nil {
		return found{}, err
	}
	_, err := r.publish(ctx, second)
	if ctx.Err() != nil {
		return found{}, ctx.Err()
	}
	if err == nil {
		return r.tookBoth(ctx, old, second)
	}
	r.elsewhere = refuses
	if other, stays, err2 := r.stays(ctx, old); err2 != nil || !stays {
		return no(Unfit, "it answers %s, and then the volume is at %s, not at %s", brief(err), names(other), old).
			because("A refusal that acts all the same: nothing that the driver answers can be relied on."), err2
	}
	if status.Code(err) != codes.FailedPrecondition {
		return no(Remark, "it answers %s, and the volume stays where it is", brief(err)).
			because("No harm; but only at FAILED_PRECONDITION does csi-fencepost look for a holder that nobody else knows of."), nil
	}
	naming := "without naming the node, as the specification asks for"
	if strings.Contains(status.Convert(err).Message(), old) {
		naming = "naming the node"
	}
	return yes("it answers FAILED_PRECONDITION, %s, and the volume stays where it is", naming), nil
}

// awaitListed waits for a driver that lists to name the node.
func (r *rig) awaitListed(ctx context.Context, node string) error {
	if !r.lists {
		return nil
	}
	if _, nodes, is, err := r.listed(ctx, r.config.Timeout, node); err != nil || !is {
		return errors.Join(err, fmt.Errorf("after the publish to %s the driver names %s", node, names(nodes)))
	}
	return nil
}

// tookBoth says what became of a volume that was published to two nodes.
func (r *rig) tookBoth(ctx context.Context, old, second string) (found, error) {
	r.elsewhere = doesNotSay
	if !r.lists {
		return no(Setting, "it answers OK; whether %s keeps the volume the driver does not tell", old).needing(Guard), nil
	}
	// Both is what a move looks like at its beginning.
	_, nodes, is, err := r.listed(ctx, r.config.Watch, second)
	switch {
	case err != nil:
		return found{}, err
	case is:
		r.elsewhere = moves
		return no(Setting, "it answers OK and moves the volume: it is at %s, and taken from %s without a question", second, old).needing(Guard), nil
	case len(nodes) == 2:
		r.elsewhere = attaches
		return no(Setting, "it answers OK and attaches the volume to both, %s", names(nodes)).needing(Guard), nil
	}
	return no(Unfit, "it answers OK, and the volume is at %s", names(nodes)), nil
}

// together makes calls at the same moment, and returns their errors in order.
func together(ctx context.Context, do ...func(context.Context) error) []error {
	errs := make([]error, len(do))
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i, f := range do {
		all.Go(func() {
			<-begin
			errs[i] = f(ctx)
		})
	}
	close(begin)
	all.Wait()
	return errs
}

// publishing is a publish that may be made together with others.
func (r *rig) publishing(node string) func(context.Context) error {
	r.volume.sending(node)
	return func(ctx context.Context) error {
		return r.call(ctx, func(ctx context.Context) error {
			_, err := r.sendPublish(ctx, node)
			return err
		})
	}
}

func askConcurrent(ctx context.Context, r *rig) (found, error) {
	a, b := r.nodes[0], r.nodes[1]
	both, none, wrong := 0, 0, ""
	for range r.config.Rounds {
		if err := r.free(ctx); err != nil {
			return found{}, err
		}
		errs := together(ctx, r.publishing(a), r.publishing(b))
		if ctx.Err() != nil {
			return found{}, ctx.Err()
		}
		var won []string
		for i, node := range []string{a, b} {
			if errs[i] == nil {
				won = append(won, node)
			}
		}
		switch len(won) {
		case 0:
			none++
		case 1:
			if where := r.beside(ctx, won[0]); where != "" {
				wrong = fmt.Sprintf("only the publish to %s answers OK, and the volume is at %s", won[0], where)
			}
		case 2:
			both++
		}
	}
	switch {
	case wrong != "":
		return no(Setting, "%s", wrong).needing(Guard), nil
	case both > 0:
		return no(Setting, "both answer OK in %d of %d rounds", both, r.config.Rounds).needing(Guard), nil
	case none == r.config.Rounds:
		return no(Remark, "neither answers OK, in %d of %d rounds", none, r.config.Rounds).because("No harm: external-attacher tries again."), nil
	}
	return yes("never in %d rounds do both answer OK (neither does in %d)", r.config.Rounds, none), nil
}

// beside is where the driver says that the volume is, if that is not the node
// alone; it is given the time of a call to say so.
func (r *rig) beside(ctx context.Context, node string) string {
	if !r.lists {
		return ""
	}
	if _, nodes, is, err := r.listed(ctx, r.config.Timeout, node); err == nil && !is {
		return names(nodes)
	}
	return ""
}

func askPending(ctx context.Context, r *rig) (found, error) {
	node := r.nodes[0]
	seen := map[codes.Code]int{}
	strange := ""
	for range r.config.Rounds {
		errs := together(ctx, r.publishing(node), r.publishing(node))
		errs = append(errs, together(ctx, r.publishing(node), func(ctx context.Context) error { return r.unpublish(ctx, node) })...)
		if ctx.Err() != nil {
			return found{}, ctx.Err()
		}
		for _, err := range errs {
			code := status.Code(err)
			seen[code]++
			if code != codes.OK && code != codes.Aborted {
				strange = brief(err)
			}
		}
		if err := r.free(ctx); err != nil {
			return no(Unfit, "calls that met, and an unpublish after them: %v", err), ctx.Err()
		}
	}
	counts := fmt.Sprintf("of %d calls that met, %d answered OK and %d ABORTED", 4*r.config.Rounds, seen[codes.OK], seen[codes.Aborted])
	if strange != "" {
		return no(Remark, "%s; another %s", counts, strange), nil
	}
	return yes("%s", counts), nil
}

const (
	// maxAbandoned bounds the rounds of askAbandoned, each of which watches for
	// what must not happen.
	maxAbandoned = 3
	// minAbandoned is what a publish takes at least that is abandoned. The unpublish of a quicker
	// one could overtake it on the way to the driver, and nobody gives up on such a one.
	minAbandoned = 10 * time.Millisecond
)

func askAbandoned(ctx context.Context, r *rig) (found, error) {
	node, given := r.nodes[0], 0
	for range min(r.config.Rounds, maxAbandoned) {
		abandoned, err := r.abandon(ctx, node)
		if err != nil {
			return found{}, err
		}
		if !abandoned {
			continue
		}
		given++
		if err := r.take(ctx, node); ours(err) || ctx.Err() != nil {
			return found{}, err
		} else if err != nil {
			return no(Unfit, "%v", err), nil
		}
		if f, err := r.orphan(ctx, node); err != nil || f.effect == Unfit {
			return f, err
		}
	}
	if given == 0 {
		return unknown(Open, "no publish took long enough to be abandoned"), nil
	}
	if !r.lists && r.elsewhere != refuses {
		return unknown(Open, "the driver neither lists published nodes truthfully nor refuses a second node, so that nobody can see it"), nil
	}
	return yes("%d publishes were abandoned, and %s after the unpublish the volume is at no node", given, r.config.Watch), nil
}

// abandon gives up on a publish half-way, and says whether it did.
func (r *rig) abandon(ctx context.Context, node string) (bool, error) {
	if err := r.free(ctx); err != nil {
		return false, err
	}
	median := time.Duration(r.calls.of("ControllerPublishVolume").Median * float64(time.Second))
	if median < minAbandoned {
		return false, nil
	}
	short, cancel := context.WithTimeout(ctx, median/2)
	defer cancel()
	if _, err := r.publish(short, node); status.Code(err) != codes.DeadlineExceeded {
		return false, ctx.Err()
	}
	// The attacher does not come back at once either.
	return true, pause(ctx, pollFirst)
}

// orphan looks for an attachment that comes after its unpublish.
func (r *rig) orphan(ctx context.Context, node string) (found, error) {
	if err := pause(ctx, r.config.Watch); err != nil {
		return found{}, err
	}
	if r.lists {
		// What is named late goes away again, an orphan stays.
		if _, nodes, is, err := r.listed(ctx, r.config.Timeout); err != nil || !is {
			return no(Unfit, "after the unpublish has answered, the volume is attached to %s", names(nodes)), err
		}
		return found{}, nil
	}
	if r.elsewhere != refuses {
		return found{}, nil
	}
	if _, err := r.publish(ctx, r.nodes[1]); err != nil && !transient(err) {
		return no(Unfit, "after the unpublish from %s has answered, a publish to %s answers %s", node, r.nodes[1], brief(err)), ctx.Err()
	}
	return found{}, ctx.Err()
}
