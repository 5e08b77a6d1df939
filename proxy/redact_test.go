package proxy_test

import (
	"context"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-fencepost/csi-fencepost/proxy"
)

func TestASecretThatTheDriverQuotesReachesNobody(t *testing.T) {
	const secret = "hunter2-never-to-be-seen"
	log := new(lockedBuffer)
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(log))))
	said := detailedStatus(t).Proto()
	d := newDriver(t)
	d.onPublish = func(context.Context, *publishRequest) (*publishResponse, error) {
		quoting := proto.CloneOf(said)
		quoting.Message = "login as admin/" + secret + " failed"
		return nil, status.FromProto(quoting).Err()
	}
	d.onUnpublish = func(context.Context, *unpublishRequest) (*unpublishResponse, error) {
		return nil, status.Error(codes.Unauthenticated, secret+" is wrong")
	}
	d.start(t)
	e := startEdge(t, ctx, d, proxy.Options{Guard: proxy.Pass()})
	client, secrets := spec.NewControllerClient(e), map[string]string{"password": secret, "empty": ""}

	_, err := client.ControllerPublishVolume(t.Context(), &publishRequest{VolumeId: "v", NodeId: "n", Secrets: secrets})
	want := proto.CloneOf(said)
	want.Message = "login as admin/***stripped*** failed"
	if got := status.Convert(err).Proto(); !proto.Equal(got, want) {
		t.Errorf("publish: got %v, want the driver's status without the secret, with its details: %v", got, want)
	}
	_, err = client.ControllerUnpublishVolume(t.Context(), &unpublishRequest{VolumeId: "v", NodeId: "n", Secrets: secrets})
	if status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != "***stripped*** is wrong" {
		t.Errorf("unpublish: %v", err)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the secret was logged:\n%s", log)
	}
}
