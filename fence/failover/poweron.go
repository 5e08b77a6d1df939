package failover

import "context"

// powerOn powers a node on that a sidecar had switched off, once no driver's
// volume is attached to it any more.
func (w *worker) powerOn(ctx context.Context, s *state) error {
	if err := w.still(ctx, s); err != nil {
		return err
	}
	return w.Fencer.On(ctx, w.target(s), "every volume has moved (fencing.powerOn)")
}
