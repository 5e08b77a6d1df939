package sidecar

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// rememberedEvents are kept by each recorder, to count repeated ones and to bound
// those about one object. client-go keeps 4096 and forgets none by its age: a storm
// would leave 9 MB with us for good. Of 512 it is 1.
const rememberedEvents = 512

// newRecorder writes Events until ctx ends.
func newRecorder(ctx context.Context, client kubernetes.Interface, driver string) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: rememberedEvents}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(corev1.NamespaceAll)})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "csi-fencepost " + driver})
}
