package guard

import (
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// refusedError is the answer FAILED_PRECONDITION: the call is refused.
func refusedError(message string) error { return answer(codes.FailedPrecondition, message) }

// abortedError is the answer ABORTED: another operation on the volume is pending.
func abortedError(message string) error { return answer(codes.Aborted, message) }

// unreachableError is the answer UNAVAILABLE: the Kubernetes API or the driver
// cannot be reached, so nothing was judged.
func unreachableError(message string) error { return answer(codes.Unavailable, message) }

// invalidError is the answer INVALID_ARGUMENT: the request itself is wrong.
func invalidError(message string) error { return answer(codes.InvalidArgument, message) }

// reasonError is the answer for a reason; see Code.
func reasonError(reason fence.Reason, message string) error { return answer(Code(reason), message) }

// Code is the one place that turns a reason not to forward a call into a gRPC
// code. It never is RESOURCE_EXHAUSTED, at which the kubelet may reject the pod.
func Code(reason fence.Reason) codes.Code {
	switch reason {
	case fence.TargetLeaving, fence.OperationPending, fence.LostRace, fence.DriverBusy:
		return codes.Aborted
	case fence.APIUnavailable:
		return codes.Unavailable
	}
	return codes.FailedPrecondition
}

func answer(code codes.Code, message string) error {
	return status.Error(code, Clip(message))
}

// Clip makes a message fit to be a status: no more than text, valid UTF-8, which
// protobuf demands of it, and at most fence.MaxMessage bytes, ending in "..." where
// it was cut.
func Clip(message string) string {
	const ellipsis = "..."
	message = printable.Line(message)
	if len(message) <= fence.MaxMessage {
		return message
	}
	end := fence.MaxMessage - len(ellipsis)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + ellipsis
}
