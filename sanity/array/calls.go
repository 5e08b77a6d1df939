package array

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ControllerSocket is the Socket of a Call on the controller socket.
const ControllerSocket = "controller"

// Call is a CSI call that reached the driver, whatever became of it.
type Call struct {
	// Socket is ControllerSocket, or the node ID of the node socket.
	Socket string
	// Method is the bare name, such as Publish or "NodeStageVolume".
	Method  string
	Volume  string // the request's volume ID, if it has one
	Node    string // the request's node ID, or that of the node socket
	Secrets bool   // the request carried secrets (which are not kept)
	Start   time.Time
	End     time.Time // zero while the call runs
	Code    codes.Code
	Message string // of an error
}

// Calls lists the calls received, in the order of their start.
func (a *Array) Calls() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := make([]Call, len(a.calls))
	for i, c := range a.calls {
		calls[i] = *c
	}
	return calls
}

// CallsOf lists the calls of one method for one volume, in the order of their
// start. An empty volume ID stands for any.
func (a *Array) CallsOf(method, volumeID string) []Call {
	var calls []Call
	for _, c := range a.Calls() {
		if c.Method == method && (volumeID == "" || c.Volume == volumeID) {
			calls = append(calls, c)
		}
	}
	return calls
}

// intercept records each call of a socket, and is the one place where secrets
// are checked, a paused machine keeps silent, and faults strike.
func (a *Array) intercept(socket string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		call := a.recordCall(socket, path.Base(info.FullMethod), req)
		answer, err := a.serveCall(ctx, *call, req, handler)
		a.mu.Lock()
		defer a.mu.Unlock()
		call.End, call.Code, call.Message = a.options.Now(), status.Code(err), status.Convert(err).Message()
		if err != nil {
			a.eventLocked(call.Volume, call.Node, call.Method+" answers "+call.Code.String()+": "+call.Message)
		}
		a.changedLocked()
		return answer, err
	}
}

func (a *Array) recordCall(socket, method string, req any) *Call {
	call := &Call{Socket: socket, Method: method}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		call.Volume = r.GetVolumeId()
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		call.Node = r.GetNodeId()
	} else if socket != ControllerSocket {
		call.Node = socket
	}
	if r, ok := req.(interface{ GetSecrets() map[string]string }); ok {
		call.Secrets = len(r.GetSecrets()) > 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	call.Start = a.options.Now()
	a.calls = append(a.calls, call)
	a.changedLocked()
	return call
}

func (a *Array) serveCall(ctx context.Context, call Call, req any, handler grpc.UnaryHandler) (any, error) {
	do := func(ctx context.Context) (any, error) { return handler(ctx, req) }
	if call.Socket != ControllerSocket {
		if err := a.waitResumed(ctx, call.Socket); err != nil {
			return nil, err
		}
	}
	if err := a.checkSecrets(call.Method, req); err != nil {
		return nil, err
	}
	if err := wait(ctx, a.takes(call)); err != nil {
		return nil, err
	}
	if injection := a.takeFault(call.Method, call.Volume, call.Node); injection != nil {
		return injection.apply(ctx, do)
	}
	return do(ctx)
}

// waitResumed waits while the machine is paused.
func (a *Array) waitResumed(ctx context.Context, nodeID string) error {
	err := a.WaitFor(ctx, "machine "+nodeID+" to be resumed", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		m := a.machines[nodeID]
		return m == nil || !m.paused
	})
	if err != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// checkSecrets holds a publish, an unpublish or a call about fences against
// RequireSecrets.
func (a *Array) checkSecrets(method string, req any) error {
	switch method {
	case Publish, Unpublish, Fence, Unfence, ListFences, FenceClients:
	default:
		return nil
	}
	given := req.(interface{ GetSecrets() map[string]string }).GetSecrets()
	for key, want := range a.options.RequireSecrets {
		switch got, ok := given[key]; {
		case !ok:
			return status.Errorf(codes.Unauthenticated, "%s needs the secret %q, which the request does not carry", method, key)
		case got != want:
			return status.Errorf(codes.Unauthenticated, "%s: the value of the secret %q is wrong", method, key)
		}
	}
	return nil
}

// takes is how long a call takes on this array.
func (a *Array) takes(call Call) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.switchesLocked(a.volumes[call.Volume])
	switch call.Method {
	case Publish:
		return s.PublishTakes
	case Unpublish:
		return s.UnpublishTakes
	}
	return 0
}
