package sidecar

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// rememberedEvents are kept by each recorder, to count repeated ones and to bound
// those about one object. client-go keeps 4096 and forgets none by its age: a storm
// would leave 9 MB with us for good. Of 512 it is 1.
const rememberedEvents = 512

// newRecorder writes Events until ctx ends.
func newRecorder(ctx context.Context, client kubernetes.Interface, driver string) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: rememberedEvents}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(corev1.NamespaceAll)})
	return printableEvents{broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "csi-fencepost " + driver})}
}

// printableEvents records messages that are no more than text: `kubectl describe` shows
// them to a terminal as they are.
type printableEvents struct{ record.EventRecorder }

func (e printableEvents) Event(on runtime.Object, kind, reason, message string) {
	e.EventRecorder.Event(on, kind, reason, printable.Line(message))
}

func (e printableEvents) Eventf(on runtime.Object, kind, reason, format string, args ...any) {
	e.Event(on, kind, reason, fmt.Sprintf(format, args...))
}

func (e printableEvents) AnnotatedEventf(on runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	e.EventRecorder.AnnotatedEventf(on, annotations, kind, reason, "%s", printable.Line(fmt.Sprintf(format, args...)))
}
