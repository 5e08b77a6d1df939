package proxy

import (
	"context"
	"regexp"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// DefaultMaxMessageSize, in bytes, is what gRPC receives where nobody says otherwise:
	// external-attacher from a driver, and a driver from external-attacher.
	DefaultMaxMessageSize = 4 << 20
	// ownMessageSize is what our own calls to the driver receive at least. A driver that
	// lists its volumes (ListVolumes) in one message of more than the default costs
	// external-attacher only a check; we would hold up attaches without that list. It is
	// room for 100,000 volumes of 670 bytes.
	ownMessageSize = 64 << 20
)

// received are gRPC's words for a message that it has received and does not take
// (rpc_util.go); what follows is its size and the bound, or the bound alone.
var received = regexp.MustCompile(`^grpc: (?:received message|message after decompression|received message after decompression) larger than max (?:\(\d+ vs\. )?(\d+)\)?$`)

// refused tells whether err is gRPC's refusal of a message of more than bound bytes. It is
// ours, and not the driver's: of messages that passed our bound the driver can refuse only
// those above a smaller one.
func refused(err error, bound int) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted {
		return false
	}
	parts := received.FindStringSubmatch(s.Message())
	return parts != nil && parts[1] == strconv.Itoa(bound)
}

// overBound is err, and where that refuses a message of more than bound bytes also what can
// be done about it.
func overBound(err error, bound int) error {
	if !refused(err, bound) {
		return err
	}
	return status.Errorf(codes.ResourceExhausted, "%s: csi-fencepost takes messages of up to %d bytes here; its flag --max-message-size raises that", status.Convert(err).Message(), bound)
}

// ownCalls are the options of a connection to the driver: what our own calls on it receive.
func ownCalls(maxMessageSize int) []grpc.DialOption {
	bound := max(maxMessageSize, ownMessageSize)
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(bound)),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return overBound(invoke(ctx, method, req, reply, conn, o...), bound)
		}),
	}
}
