package evidence

import (
	"context"
	"errors"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

// Contradictions is a Source for who acts on claims and has no agents for power: what speaks
// against a claim by the power that another process reads. It asks only where a source before
// it has a claim, and proves nothing.
type Contradictions struct{ readings *AgentReadings }

// Against is the Source of what that process reads as on, or does not say.
func Against(a *fencer.Apart) *Contradictions { return against(a) }

func against(a Asker) *Contradictions { return &Contradictions{Agents(a)} }

// Name implements Source.
func (*Contradictions) Name() string { return "Contradictions" }

// Evidence implements Source.
func (c *Contradictions) Evidence(ctx context.Context, q Question) ([]fence.Evidence, error) {
	claims := func(e fence.Evidence) bool { return e.Kind.Claim() && e.Void == "" }
	t, ask := c.readings.target(&q)
	if !ask || t.StorageOnly || !slices.ContainsFunc(q.Holder.Evidence, claims) {
		return nil, nil
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := c.readings.asker.Ask(limited, t)
	var unanswered *fencer.UnansweredError
	switch {
	case errors.As(err, &unanswered) && ctx.Err() == nil:
		return []fence.Evidence{unsaidOf(&q, unanswered)}, nil
	case err != nil:
		return nil, err
	}
	return slices.DeleteFunc(readings(&q, &a), func(e fence.Evidence) bool { return !e.On }), nil
}

var _ Source = (*Contradictions)(nil)
