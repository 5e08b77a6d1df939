package main

import (
	"context"

	"go.opentelemetry.io/otel/trace/noop"
	criapi "k8s.io/cri-api/pkg/apis"
	remote "k8s.io/cri-client/pkg"
	fakeremote "k8s.io/cri-client/pkg/fake"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/kubemark"
)

// connectRuntime is the kubelet's two clients of the container runtime.
func connectRuntime(ctx context.Context, endpoint string) (criapi.RuntimeService, criapi.ImageManagerService, error) {
	runtime, err := remote.NewRemoteRuntimeService(ctx, endpoint, runtimeTimeout, noop.NewTracerProvider(), false)
	if err != nil {
		return nil, nil, err
	}
	images, err := remote.NewRemoteImageService(ctx, endpoint, runtimeTimeout, noop.NewTracerProvider(), false)
	return runtime, images, err
}

// newFakeRuntime is the container runtime of the CRI client's own tests.
func newFakeRuntime() *fakeremote.RemoteRuntime { return fakeremote.NewFakeRemoteRuntime() }

// runHollow runs a kubelet until the process ends.
func runHollow(ctx context.Context, kubelet *kubemark.HollowKubelet) { kubelet.Run(ctx) }

// initializeTLS makes the kubelet's serving certificate, or takes that of before.
func initializeTLS(ctx context.Context, kubelet *kubemark.HollowKubelet) (err error) {
	kubelet.KubeletDeps.TLSOptions, err = app.InitializeTLS(ctx, kubelet.KubeletFlags, kubelet.KubeletConfiguration)
	return err
}
