package csi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

func TestEachAnswerHasTheCodeThatTheSpecificationGives(t *testing.T) {
	for code, err := range map[codes.Code]error{
		codes.FailedPrecondition: Refused("why"), codes.Aborted: Pending("why"),
		codes.Unavailable: Unreachable("why"), codes.InvalidArgument: Invalid("why"),
	} {
		if status.Code(err) != code || status.Convert(err).Message() != "why" {
			t.Errorf("%s: %v", code, err)
		}
	}
	for reason, want := range map[fence.Reason]codes.Code{
		fence.Undecided: codes.FailedPrecondition, fence.HolderAlive: codes.FailedPrecondition,
		fence.HolderStale: codes.FailedPrecondition, fence.TargetFenced: codes.FailedPrecondition,
		fence.LedgerUnreadable: codes.FailedPrecondition, fence.UnpublishFailed: codes.FailedPrecondition,
		fence.TargetLeaving: codes.Aborted, fence.OperationPending: codes.Aborted, fence.LostRace: codes.Aborted, fence.DriverBusy: codes.Aborted,
		fence.APIUnavailable: codes.Unavailable, fence.UnpublishEveryone: codes.FailedPrecondition,
		"SomeLaterReason": codes.FailedPrecondition,
	} {
		if got := status.Code(Status(reason, "why")); got != want {
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
	if got := status.Convert(Refused("a\xffb")).Message(); got != "a\uFFFDb" {
		t.Errorf("got %q, which gRPC cannot send", got)
	}
}

func TestASecretThatIsPartOfAnotherLeavesNoRest(t *testing.T) {
	secrets := map[string]string{"user": "admin", "password": "admin-hunter22", "empty": ""}
	for range 20 { // a map has no order
		if got := Redact("no login: admin-hunter22 admin", secrets); got != "no login: ***stripped*** ***stripped***" {
			t.Fatalf("it says %q", got)
		}
	}
}

func TestAnErrorLosesItsSecretsAndNothingElse(t *testing.T) {
	secrets := map[string]string{"password": "hunter22"}
	quoting, err := status.New(codes.PermissionDenied, "no login: hunter22").WithDetails(&errdetails.ErrorInfo{Reason: "LOGIN"})
	if err != nil {
		t.Fatal(err)
	}
	got := status.Convert(RedactError(quoting.Err(), secrets)).Proto()
	want := quoting.Proto()
	want.Message = "no login: ***stripped***"
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, err := range []error{nil, context.Canceled, status.Error(codes.Aborted, "pending"), fmt.Errorf("asking: %w", io.EOF)} {
		if got := RedactError(err, secrets); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if got := RedactError(errors.New("no login: hunter22"), secrets); strings.Contains(got.Error(), "hunter22") {
		t.Errorf("it says %v", got)
	}
}
