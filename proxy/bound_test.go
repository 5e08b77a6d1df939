package proxy_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// What external-attacher could receive directly passes through: it sets no bound, so that
// gRPC's own counts, which is the default here.
func TestByDefaultWhatTheAttacherCouldReceivePasses(t *testing.T) {
	const most = 4 << 20
	d := newDriver(t)
	d.onUnary = func(_ context.Context, in []byte) ([]byte, error) { return make([]byte, len(in)), nil }
	d.start(t)
	e := startEdge(t, t.Context(), d, proxy.Options{})
	attacher, err := grpc.NewClient("unix://"+d.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = attacher.Close() })
	for size, passes := range map[int]bool{most: true, most + 1: false} {
		_, directly := callUnary(t.Context(), attacher, make([]byte, size))
		_, guarded := callUnary(t.Context(), e.ClientConn, make([]byte, size))
		if (directly == nil) != passes || (guarded == nil) != passes {
			t.Errorf("%d bytes: directly %v; through the proxy %v", size, directly, guarded)
		}
		if status.Code(directly) != status.Code(guarded) {
			t.Errorf("%d bytes: code %s directly, %s through the proxy", size, status.Code(directly), status.Code(guarded))
		}
	}
}

// tooLarge checks the error of a message above the bound.
func tooLarge(t *testing.T, what string, err error, size, bound int) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || err == nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, words := range []string{fmt.Sprintf("of up to %d bytes", bound), "--max-message-size"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v does not say %q", what, err, words)
		}
	}
	if size > 0 && !strings.Contains(err.Error(), fmt.Sprint(size)) {
		t.Errorf("%s: %v does not say %d", what, err, size)
	}
}

func TestAMessageAboveTheBoundIsRefusedInEitherDirection(t *testing.T) {
	const bound = 1 << 20
	large := make([]byte, bound+1)
	d := newDriver(t)
	d.onUnary = func(_ context.Context, in []byte) ([]byte, error) {
		switch {
		case string(in) == "answer":
			return large, nil
		case len(in) > bound:
			return nil, nil // it should not have come
		}
		return in, nil
	}
	d.onPublish = func(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
		return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"large": strings.Repeat("x", bound)}}, nil
	}
	d.start(t)
	log := new(lockedBuffer)
	e := startEdge(t, logged(t, log), d, proxy.Options{MaxMessageSize: bound})

	// gRPC itself answers the caller, before anybody else is asked: the log says more, and may
	// say it after the caller has the answer.
	for what, o := range map[string][]grpc.CallOption{"request": nil, "compressed request": {grpc.UseCompressor(gzip.Name)}} {
		_, err := callUnary(t.Context(), e.ClientConn, large, o...)
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), fmt.Sprint(bound)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := callStream(t.Context(), e.ClientConn, echoChat, [][]byte{[]byte("small"), large})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("stream: %v", err)
	}
	times := func() int { return strings.Count(log.String(), "A message was too large to pass") }
	for end := time.Now().Add(30 * time.Second); times() < 3 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if said := log.String(); times() != 3 || !strings.Contains(said, "--max-message-size") {
		t.Errorf("the log:\n%s", said)
	}
	_, err = callUnary(t.Context(), e.ClientConn, []byte("answer"))
	tooLarge(t, "answer", err, len(large), bound)
	_, err = spec.NewControllerClient(e.ClientConn).ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: "v"})
	tooLarge(t, "answer of a judged call", err, 0, bound)
	if out, err := callUnary(t.Context(), e.ClientConn, large[:bound]); err != nil || len(out) != bound {
		t.Errorf("at the bound: %d bytes, %v", len(out), err)
	}
}

// The driver's own words stay its own.
func TestAnErrorOfTheDriverIsNotTakenForTheBound(t *testing.T) {
	for _, text := range []string{"quota", "grpc: received message larger than max (5242880 vs. 1000)", "trying to send message larger than max (9 vs. 4194304)"} {
		d := newDriver(t)
		d.onUnary = func(context.Context, []byte) ([]byte, error) { return nil, status.Error(codes.ResourceExhausted, text) }
		d.start(t)
		e := startEdge(t, t.Context(), d, proxy.Options{})
		if _, err := callUnary(t.Context(), e.ClientConn, nil); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != text {
			t.Errorf("%q became %v", text, err)
		}
	}
}

// A list of volumes that external-attacher cannot take costs it a check each minute; our own
// asking for it would hold up attaches, so it takes more.
func TestOurOwnCallsTakeMore(t *testing.T) {
	const mib = 1 << 20
	d := newDriver(t)
	d.onUnary = func(_ context.Context, in []byte) ([]byte, error) {
		size, err := strconv.Atoi(string(in))
		return make([]byte, size), err
	}
	d.start(t)
	for _, test := range []struct {
		flag, size, bound int
		passes            bool
	}{
		{proxy.DefaultMaxMessageSize, 20 * mib, 64 * mib, true},
		{proxy.DefaultMaxMessageSize, 64*mib + 1, 64 * mib, false},
		{80 * mib, 64*mib + 1, 80 * mib, true},
		{80 * mib, 80*mib + 1, 80 * mib, false},
	} {
		conn, err := proxy.DialWith(t.Context(), d.path, test.flag)
		if err != nil {
			t.Fatal(err)
		}
		out, err := callUnary(t.Context(), conn, []byte(strconv.Itoa(test.size)))
		if test.passes && (err != nil || len(out) != test.size) {
			t.Errorf("%d bytes where the flag is %d: %d bytes, %v", test.size, test.flag, len(out), err)
		}
		if !test.passes {
			tooLarge(t, "our own call", err, test.size, test.bound)
		}
		conn.Close()
	}
}
