package csi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

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
