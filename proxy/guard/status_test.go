package guard

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

func TestEachAnswerHasTheCodeThatTheSpecificationGives(t *testing.T) {
	for code, err := range map[codes.Code]error{
		codes.FailedPrecondition: refusedError("why"), codes.Aborted: abortedError("why"),
		codes.Unavailable: unreachableError("why"), codes.InvalidArgument: invalidError("why"),
	} {
		if status.Code(err) != code || status.Convert(err).Message() != "why" {
			t.Errorf("%s: %v", code, err)
		}
	}
	for reason, want := range map[fence.Reason]codes.Code{
		fence.Undecided: codes.FailedPrecondition, fence.HolderAlive: codes.FailedPrecondition,
		fence.HolderStale: codes.FailedPrecondition, fence.TargetFenced: codes.FailedPrecondition, fence.TargetGone: codes.FailedPrecondition,
		fence.LedgerUnreadable: codes.FailedPrecondition, fence.UnpublishFailed: codes.FailedPrecondition,
		fence.TargetLeaving: codes.Aborted, fence.OperationPending: codes.Aborted, fence.LostRace: codes.Aborted, fence.DriverBusy: codes.Aborted,
		fence.APIUnavailable: codes.Unavailable, fence.UnpublishEveryone: codes.FailedPrecondition,
		"SomeLaterReason": codes.FailedPrecondition,
	} {
		if got := status.Code(reasonError(reason, "why")); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}

func TestAMessageFitsAndIsWholeRunes(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("x", fence.MaxMessage)} {
		if got := Clip(text); got != text {
			t.Errorf("%d bytes became %d", len(text), len(got))
		}
	}
	for _, char := range []string{"x", "é", "€", "🙂"} {
		for shift := range 4 {
			got := Clip(strings.Repeat("x", shift) + strings.Repeat(char, fence.MaxMessage+1))
			if len(got) > fence.MaxMessage || len(got) < fence.MaxMessage-4 || !utf8.ValidString(got) || !strings.HasSuffix(got, char+"...") {
				t.Errorf("%s, shifted by %d: %d bytes, ends in %q", char, shift, len(got), got[len(got)-8:])
			}
		}
	}
	if got := status.Convert(refusedError("a\xffb")).Message(); got != "a\uFFFDb" {
		t.Errorf("got %q, which gRPC cannot send", got)
	}
}

// The words of an API server, a driver or a node are in it, and `kubectl describe` shows it.
func TestAMessageIsNoMoreThanText(t *testing.T) {
	if got := status.Convert(unreachableError("the API says \x1b[2J\u202e\nso")).Message(); got != "the API says  [2J  so" {
		t.Errorf("got %q", got)
	}
}
