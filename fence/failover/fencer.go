package failover

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Fencer asks and uses the fence agents, and keeps the nodes' records: a
// *fencer.Fencer, whose methods say what each guarantees. It is safe for concurrent
// use.
type Fencer interface {
	Covers(node string) bool
	Agents(node string) string
	CoversPower(node string) bool
	CoversStorage(node string) bool
	StorageOnly(node string) bool
	Seeks(node string) bool
	Withheld(ctx context.Context, t fencer.Target) (string, error)
	Ask(ctx context.Context, t fencer.Target) (fencer.Answer, error)
	Polled(node string) (agents []string, every time.Duration)
	Poll(ctx context.Context, n *corev1.Node) (s agent.State, why string)
	Off(ctx context.Context, t fencer.Target, reason string, force bool) (fencer.Answer, error)
	On(ctx context.Context, t fencer.Target, reason string) (fencer.Answer, error)
	Lift(ctx context.Context, t fencer.Target, driver, reason string) (fencer.Answer, error)
	Void(ctx context.Context, node, why string) (voided bool, err error)
	Witness(ctx context.Context, node, fenceID string, seen record.Witness) error
	FencesOf(ctx context.Context, node string) ([]fencer.Fence, error)
	Fences(ctx context.Context) ([]fencer.Fence, error)
	Counting(ctx context.Context) ([]fencer.Fence, error)
}

var _ Fencer = (*fencer.Fencer)(nil)
