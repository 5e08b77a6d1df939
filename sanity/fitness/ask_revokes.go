package fitness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/writer"
)

// firstWrites is how many writes have to succeed before the volume is taken away.
const firstWrites = 10

func askRevokes(ctx context.Context, r *rig) (found, error) {
	if r.config.WriterExec == "" && r.config.WriterAddress == "" {
		return unknown(Open, "it was not asked: no writer ran on a node (--writer-exec, --writer-address)"), nil
	}
	node := r.nodes[0]
	publishContext, err := r.put(ctx, node)
	if err != nil {
		return found{}, err
	}
	start := writer.Start{VolumeID: r.volume.id, NodeID: node, PublishContext: publishContext}
	w, how, err := r.startWriter(ctx, start)
	if err != nil {
		return found{}, err
	}
	defer w.Close()
	if err := r.call(ctx, func(ctx context.Context) error {
		first, _ := w.Progress()
		_, err := w.Until(ctx, func(p writer.Progress) bool { return p.Wrote >= first.Wrote+firstWrites && p.Wrote > p.Failed })
		return err
	}); err != nil {
		return found{}, fmt.Errorf("the writer on %s wrote nothing before the unpublish: %w", node, err)
	}
	return r.revoke(ctx, w, node, how)
}

// revoke takes the volume from the node that writes, and looks.
func (r *rig) revoke(ctx context.Context, w *writer.Client, node, how string) (found, error) {
	if err := r.retry(ctx, func(ctx context.Context) error { return r.unpublish(ctx, node) }); err != nil {
		return no(Remark, "unpublish from a node that writes answers %s", brief(err)).
			because("The driver itself keeps the volume at a node that uses it. What it answers when that node is silent, only a node that is silent shows."), ctx.Err()
	}
	var mark uint64
	err := r.call(ctx, func(ctx context.Context) (err error) {
		mark, err = w.Mark(ctx)
		return err
	})
	if err != nil {
		return unknown(Open, "the writer was lost: %v", err), ctx.Err()
	}
	if f := r.watchWriter(ctx, w, mark, how, "the unpublish"); f.answer != Yes {
		return f, ctx.Err()
	}
	// A takeover goes on with this; some storage lets an old session live again.
	if _, err := r.put(ctx, r.nodes[1]); err != nil {
		return found{}, err
	}
	return r.watchWriter(ctx, w, mark, how, "the unpublish, and after the publish to "+r.nodes[1]), ctx.Err()
}

// watchWriter looks whether a write that began after the mark succeeds. Yes: all
// of them have failed.
func (r *rig) watchWriter(ctx context.Context, w *writer.Client, mark uint64, how, after string) found {
	wait, cancel := context.WithTimeout(ctx, r.config.Watch)
	defer cancel()
	p, err := w.Until(wait, func(p writer.Progress) bool { return p.Wrote > mark })
	switch {
	case p.Wrote > mark:
		return no(Remark, "write %d, which began after the answer of %s, succeeded (%s)", p.Wrote, after, how)
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return unknown(Open, "the writer was lost: %v", err)
	case p.Pending > max(p.Failed, p.Wrote):
		return unknown(Open, "write %d hangs: when the path comes back it may still land", p.Pending)
	case p.Failed <= mark:
		return unknown(Open, "the writer has told nothing of the writes after %s", after)
	}
	return yes("within %s no write that began after the answer of %s succeeded (%s; they fail with %q)", r.config.Watch, after, how, p.Why)
}

// startWriter connects to the writer, and waits until it has opened the volume:
// a device appears some time after the publish.
func (r *rig) startWriter(ctx context.Context, start writer.Start) (w *writer.Client, how string, err error) {
	if w, err = r.reachWriter(ctx, start); err != nil {
		return nil, "", err
	}
	p := pace(0)
	for end := time.Now().Add(r.config.Timeout); ; {
		err := r.call(ctx, func(ctx context.Context) (err error) {
			how, err = w.Start(ctx, start)
			return err
		})
		if err == nil {
			return w, how, nil
		}
		_, ended := w.Progress()
		// An answer that comes too late would be taken for the next one's.
		if ended != nil || errors.Is(err, context.DeadlineExceeded) || time.Now().After(end) || p.wait(ctx) != nil {
			w.Close()
			return nil, "", fmt.Errorf("the writer on %s cannot write to the volume: %w", start.NodeID, err)
		}
	}
}

func (r *rig) reachWriter(ctx context.Context, start writer.Start) (*writer.Client, error) {
	if r.config.WriterAddress != "" {
		ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
		defer cancel()
		return writer.Dial(ctx, r.config.WriterAddress)
	}
	text, err := json.Marshal(start.PublishContext)
	if err != nil {
		return nil, err
	}
	return writer.Exec(r.config.WriterExec, []string{
		"VOLUME_ID=" + start.VolumeID, "NODE_ID=" + start.NodeID, "PUBLISH_CONTEXT=" + string(text),
	}, r.log)
}
