package watch

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// An API server before WatchList, or with it switched off, says so.
func TestAServerThatDoesNotStreamIsListedInPages(t *testing.T) {
	r := newRig(t, anyDriver, 1)
	f := r.index.feeds[volumes]
	pv := r.volume(pvNames[0])
	f.streams = true
	f.api.watch = func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
	}
	f.api.list = func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		if o.Limit == 0 || o.ResourceVersion != "" {
			t.Errorf("%+v may bring the whole list at once, or an old one", o)
		}
		return page([]runtime.Object{pv}, o, false)
	}
	if _, err := f.list(context.Background(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Fatal(err)
	}
	if r.index.Volume(pv.Name) == nil {
		t.Error("what was listed is not in the index")
	}
}

func TestAStreamThatEndsBeforeTheListIsNoList(t *testing.T) {
	r := newRig(t, anyDriver, 1)
	f := r.index.feeds[volumes]
	f.streams = true
	for what, events := range map[string][]apiwatch.Event{
		"nothing":          {},
		"an object":        {{Type: apiwatch.Added, Object: r.volume(pvNames[0])}},
		"another bookmark": {{Type: apiwatch.Bookmark, Object: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}}},
		"an error":         {{Type: apiwatch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: 410}}},
	} {
		f.api.watch = func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
			sent := make(chan apiwatch.Event, len(events))
			for _, e := range events {
				sent <- e
			}
			close(sent)
			return apiwatch.NewProxyWatcher(sent), nil
		}
		if _, err := f.list(context.Background(), metav1.ListOptions{}); err == nil {
			t.Errorf("%s, and then its end, is taken for the whole list", what)
		}
	}
}

// What is refused before a restart has to be waited for after it.
func TestRefusalsOfBeforeAreToldOnce(t *testing.T) {
	r := newRig(t, anyDriver, 1)
	handle, pv, refused, plain := handlesOf[anyDriver][0], pvNames[0], "", r.attachment()
	volume := &corev1.PersistentVolume{ObjectMeta: r.meta(pv)}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: anyDriver, VolumeHandle: handle}
	r.index.feeds[volumes].Add(volume)
	plain.Name, plain.Spec.Attacher, plain.Status.AttachError = "other-error", anyDriver, &storagev1.VolumeError{Message: "no such disk"}
	r.index.feeds[attachments].Add(plain)
	for _, attacher := range []string{anyDriver, other} {
		va := &storagev1.VolumeAttachment{ObjectMeta: r.meta(csi.AttachmentName(handle, attacher, "n1"))}
		va.Spec = storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}
		va.Status.AttachError = &storagev1.VolumeError{Message: "refused " + fence.Mark}
		if attacher == anyDriver {
			refused = va.Name
		}
		r.index.feeds[attachments].Add(va)
	}
	var told []string
	for range 2 {
		r.index.EachRefused(func(va *storagev1.VolumeAttachment, handle string) {
			told = append(told, va.Name, handle, va.Status.AttachError.Message)
		})
	}
	if want := []string{refused, handle, "refused " + fence.Mark}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
