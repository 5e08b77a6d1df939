package proxy_test

import (
	"context"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

// TestACallerIsOneConnection: all calls of one have it, of both methods, and those of another
// have another.
func TestACallerIsOneConnection(t *testing.T) {
	var by []*proxy.Caller
	g := &guardFuncs{
		publish: func(ctx context.Context, _ *publishRequest, _ proxy.Driver) (*publishResponse, error) {
			by = append(by, proxy.CallerOf(ctx))
			return &publishResponse{}, nil
		},
		unpublish: func(ctx context.Context, _ *unpublishRequest, _ proxy.Driver) (*unpublishResponse, error) {
			by = append(by, proxy.CallerOf(ctx))
			return &unpublishResponse{}, nil
		},
	}
	e := startEdge(t, t.Context(), startDriver(t), proxy.Options{Guard: g})
	for range 2 {
		client := spec.NewControllerClient(dialSocket(t, e.path))
		if _, err := client.ControllerPublishVolume(t.Context(), &publishRequest{VolumeId: "v"}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.ControllerUnpublishVolume(t.Context(), &unpublishRequest{VolumeId: "v"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(by) != 4 || by[0] == nil || by[2] == nil || by[0] != by[1] || by[2] != by[3] || by[0] == by[2] {
		t.Errorf("the callers are %v, want the same of the first two and of the last two calls, and two of them", by)
	}
	if proxy.CallerOf(t.Context()) != nil {
		t.Error("somebody calls where nobody does")
	}
}
