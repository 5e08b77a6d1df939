package fitness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func askOffers(_ context.Context, r *rig) (found, error) {
	if !r.publishes {
		return no(Unfit, "it lacks the capability PUBLISH_UNPUBLISH_VOLUME"), nil
	}
	return yes("it has the capability PUBLISH_UNPUBLISH_VOLUME"), nil
}

// idempotent tells whether an unpublish of what is not published may answer so.
func idempotent(err error) bool {
	return err == nil || status.Code(err) == codes.NotFound
}

// answered is the finding of an unpublish that has nothing to do.
func answered(err error) found {
	if idempotent(err) {
		return yes("it answers %s", brief(err))
	}
	return no(Unfit, "it answers %s", brief(err))
}

func askNeverPublished(ctx context.Context, r *rig) (found, error) {
	// The last node: no question before has published to it.
	return answered(r.unpublish(ctx, r.nodes[len(r.nodes)-1])), ctx.Err()
}

func askTwice(ctx context.Context, r *rig) (found, error) {
	node := r.nodes[0]
	if _, err := r.put(ctx, node); err != nil {
		return found{}, err
	}
	if err := r.take(ctx, node); err != nil {
		return found{}, err
	}
	return answered(r.unpublish(ctx, node)), ctx.Err()
}

func askUnknownNode(ctx context.Context, r *rig) (found, error) {
	node, made := r.config.UnknownNodeID, false
	if node == "" {
		node, made = "csi-fencepost-sanity-"+strings.ToLower(rand.Text()), true
	}
	if _, err := r.put(ctx, r.nodes[0]); err != nil {
		return found{}, err
	}
	if err := r.awaitListed(ctx, r.nodes[0]); err != nil {
		return found{}, err
	}
	err := r.unpublish(ctx, node)
	switch {
	case ctx.Err() != nil:
		return found{}, ctx.Err()
	case made && status.Code(err) == codes.InvalidArgument:
		return unknown(Open, "it answers %s to a made-up ID, %s; --unknown-node-id gives one that is well-formed", brief(err), node), nil
	case !idempotent(err):
		return no(Unfit, "it answers %s", brief(err)), nil
	}
	if other, stays, err := r.stays(ctx, r.nodes[0]); err != nil || !stays {
		return no(Unfit, "it answers %s, and then the volume is at %s, not at %s", brief(nil), names(other), r.nodes[0]), err
	}
	return yes("it answers %s", brief(err)), nil
}

func askLate(ctx context.Context, r *rig) (found, error) {
	old, now := r.nodes[0], r.nodes[1]
	if err := r.move(ctx, old, now); err != nil {
		return found{}, err
	}
	late := r.unpublish(ctx, old)
	if ctx.Err() != nil {
		return found{}, ctx.Err()
	}
	if !idempotent(late) {
		return no(Unfit, "it answers %s", brief(late)), nil
	}
	if r.lists {
		other, stays, err := r.stays(ctx, now)
		if err != nil || !stays {
			return no(Unfit, "it answers %s, and then the volume is at %s, not at %s", brief(late), names(other), now), err
		}
		return yes("it answers %s, and %s later the volume is still at %s", brief(late), r.config.Watch, now), nil
	}
	return r.probeLate(ctx, old, late)
}

// probeLate tells by a publish to the old node, where the driver does not say,
// whether the new one still has the volume.
func (r *rig) probeLate(ctx context.Context, old string, late error) (found, error) {
	if r.elsewhere != refuses {
		return unknown(Missing, "the driver neither lists published nodes truthfully nor refuses a second node, so that nobody can see what became of the first"), nil
	}
	// What is detached in the background is seen as well.
	if err := pause(ctx, r.config.Watch); err != nil {
		return found{}, err
	}
	_, err := r.publish(ctx, old)
	if err == nil {
		return no(Unfit, "it answers %s, and then a publish to %s, which was refused while another node had the volume, succeeds", brief(late), old), ctx.Err()
	}
	return yes("it answers %s, and %s later a publish to the old node is refused as before", brief(late), r.config.Watch), ctx.Err()
}

// move takes the volume from one node to the other.
func (r *rig) move(ctx context.Context, from, to string) error {
	if _, err := r.put(ctx, from); err != nil {
		return err
	}
	if err := r.take(ctx, from); err != nil {
		return err
	}
	// A driver that lists late would name both for a while.
	if _, nodes, is, err := r.listed(ctx, r.config.Timeout); err != nil || !is {
		return errors.Join(err, fmt.Errorf("after the unpublish from %s the driver still names %s", from, names(nodes)))
	}
	if _, err := r.put(ctx, to); err != nil {
		return err
	}
	return r.awaitListed(ctx, to)
}

func askGone(ctx context.Context, r *rig) (found, error) {
	switch {
	case r.config.GoneNodeID != "":
		return answered(r.unpublish(ctx, r.config.GoneNodeID)), ctx.Err()
	case r.config.RemoveNodeExec == "":
		return unknown(Open, "it was not asked: --gone-node-id or --remove-node-exec is missing"), nil
	}
	gone, other := r.nodes[len(r.nodes)-1], r.nodes[0]
	if _, err := r.put(ctx, gone); err != nil {
		return found{}, err
	}
	if err := r.removeNode(ctx, gone); err != nil {
		return found{}, err
	}
	if err := r.retry(ctx, func(ctx context.Context) error { return r.unpublish(ctx, gone) }); !idempotent(err) {
		return no(Unfit, "with the volume published to it, it answers %s", brief(err)), ctx.Err()
	}
	// Nothing was promised of the second node until here.
	if err := r.retryWhile(ctx, always, func(ctx context.Context) error {
		_, err := r.publish(ctx, other)
		return err
	}); err != nil {
		return no(Unfit, "it answers OK, and then the publish to %s answers %s", other, brief(err)), ctx.Err()
	}
	return yes("with the volume published to it, it answers OK or NOT_FOUND, and the volume then goes to %s", other), nil
}

// removeNode runs the program that takes a machine away.
func (r *rig) removeNode(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, max(r.config.Timeout, 10*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", r.config.RemoveNodeExec)
	cmd.Env = append(slices.Clone(os.Environ()), "NODE_ID="+node, "VOLUME_ID="+r.volume.id)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // its group
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("--remove-node-exec, for node %s: %w", node, err)
	}
	return nil
}
