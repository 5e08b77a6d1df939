package apiserver

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// newServer is a server with a client that nothing stands in the way of. Complaints
// fail the test.
func newServer(t testing.TB) (*Server, kubernetes.Interface) {
	s := New(Options{})
	t.Cleanup(func() {
		for _, c := range s.Complaints() {
			t.Errorf("complaint: %s", c)
		}
	})
	return s, clientOf(t, s, "client", Open)
}

func clientOf(t testing.TB, s *Server, name string, gate Gate) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(s.Config(name, gate))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func inDefault(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
}

func aVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: meta(name), Spec: corev1.PersistentVolumeSpec{
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: name}},
	}}
}

func aPod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: inDefault(name), Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "image:1"}}}}
}

func anAttachment(name string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: meta(name), Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "d.example", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv1")}}}
}

func aLease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: inDefault(name), Spec: coordinationv1.LeaseSpec{HolderIdentity: new("somebody")}}
}

// must passes the value on.
func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// wantReason tells whether an error is the API server's with that code and reason.
func wantReason(t testing.TB, err error, code int32, reason metav1.StatusReason) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("got %v, want %d %s", err, code, reason)
	}
	if s := status.Status(); s.Code != code || s.Reason != reason {
		t.Errorf("got %d %s (%s), want %d %s", s.Code, s.Reason, s.Message, code, reason)
	}
}

// gateOf is a gate of two functions; nil serves.
type gateOf struct {
	admit   func(context.Context, Request) Fate
	deliver func(context.Context, Event) Passage
}

func (g gateOf) Admit(ctx context.Context, r Request) Fate {
	if g.admit == nil {
		return Fate{}
	}
	return g.admit(ctx, r)
}

func (g gateOf) Deliver(ctx context.Context, e Event) Passage {
	if g.deliver == nil {
		return Passage{}
	}
	return g.deliver(ctx, e)
}

var ctx = context.Background()
