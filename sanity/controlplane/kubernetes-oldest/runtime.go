package main

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	criapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/kubelet/cri/remote"
	fakeremote "k8s.io/kubernetes/pkg/kubelet/cri/remote/fake"
	"k8s.io/kubernetes/pkg/kubemark"
)

// connectRuntime is the kubelet's two clients of the container runtime, which in
// v1.30 are a package of the kubelet's.
func connectRuntime(_ context.Context, endpoint string) (criapi.RuntimeService, criapi.ImageManagerService, error) {
	runtime, err := remote.NewRemoteRuntimeService(endpoint, runtimeTimeout, trace.NewNoopTracerProvider())
	if err != nil {
		return nil, nil, err
	}
	images, err := remote.NewRemoteImageService(endpoint, runtimeTimeout, trace.NewNoopTracerProvider())
	return runtime, images, err
}

// newFakeRuntime is the container runtime of the CRI client's own tests.
func newFakeRuntime() *fakeremote.RemoteRuntime { return fakeremote.NewFakeRemoteRuntime() }

// runHollow runs a kubelet until the process ends: in v1.30 no context ends it.
func runHollow(_ context.Context, kubelet *kubemark.HollowKubelet) { kubelet.Run() }

// initializeTLS makes the kubelet's serving certificate, or takes that of before: in v1.30
// without a context.
func initializeTLS(_ context.Context, kubelet *kubemark.HollowKubelet) (err error) {
	kubelet.KubeletDeps.TLSOptions, err = app.InitializeTLS(kubelet.KubeletFlags, kubelet.KubeletConfiguration)
	return err
}
