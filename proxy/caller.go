package proxy

import (
	"context"

	"google.golang.org/grpc/stats"
)

// A Caller is whoever calls, as far as one connection tells. external-attacher has one
// connection for its life, which ends when it leads no more (kubernetes-csi/csi-lib-utils
// leaderelection, OnStoppedLeading): while the Caller is the same, no other has led.
type Caller struct{ _ byte } // not of size zero: two of those may have one address

type callerKey struct{}

// WithCaller is the context of a call by that Caller. A Server's calls have it.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf tells by whom a call is; nil: nobody has said so.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// callers tells the calls of one connection from those of another.
type callers struct{}

var _ stats.Handler = callers{}

func (callers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return WithCaller(ctx, new(Caller))
}

func (callers) HandleConn(context.Context, stats.ConnStats) {}

func (callers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (callers) HandleRPC(context.Context, stats.RPCStats) {}
