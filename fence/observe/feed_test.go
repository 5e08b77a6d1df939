package observe

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// An API server before WatchList, or with it switched off, says so.
func TestAServerThatDoesNotStreamIsListedInPages(t *testing.T) {
	r := newRig(t, anyDriver, 1, false)
	f := r.watch.feeds[volumes]
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
	r := newRig(t, anyDriver, 1, false)
	f := r.watch.feeds[volumes]
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

// sends plays a stream: first at once, and then one of next each time.
func sends(first []apiwatch.Event, every time.Duration, next func(i int) apiwatch.Event) func(context.Context, metav1.ListOptions) (apiwatch.Interface, error) {
	return func(ctx context.Context, _ metav1.ListOptions) (apiwatch.Interface, error) {
		events := make(chan apiwatch.Event)
		w := apiwatch.NewProxyWatcher(events)
		go func() {
			for _, e := range first {
				events <- e
			}
			for i := 0; ; i++ {
				select {
				case <-w.StopChan():
					return
				case <-time.After(every):
				}
				select {
				case <-w.StopChan():
					return
				case events <- next(i):
				}
			}
		}()
		return w, nil
	}
}

// The API server ends a list once its cache has caught up with etcd, and until then
// it sends what changes. An old cache, or a server that ends no list, is no reason
// to wait for ever.
func TestAStreamThatDoesNotEndIsListedInPages(t *testing.T) {
	gone, stays := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}
	first := []apiwatch.Event{{Type: apiwatch.Added, Object: gone}, {Type: apiwatch.Added, Object: stays}}
	for what, next := range map[string]func(i int) apiwatch.Event{
		"changes": func(int) apiwatch.Event { return apiwatch.Event{Type: apiwatch.Modified, Object: stays} },
		"bookmarks": func(int) apiwatch.Event {
			return apiwatch.Event{Type: apiwatch.Bookmark, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}}
		},
		"new ones": func(i int) apiwatch.Event {
			return apiwatch.Event{Type: apiwatch.Added, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("new-%d", i)}}}
		},
	} {
		for _, every := range []time.Duration{time.Second, time.Hour} {
			r := newRig(t, anyDriver, 1, false)
			synctest.Test(t, func(t *testing.T) {
				f, began := r.watch.feeds[nodes], time.Now()
				f.streams, f.api.watch = true, sends(first, every, next)
				f.api.list = func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return page([]runtime.Object{stays}, o, false)
				}
				if _, err := f.list(t.Context(), metav1.ListOptions{}); err != nil {
					t.Fatalf("%s every %s: %v", what, every, err)
				}
				_ = f.Replace(nil, "")
				if took := time.Since(began); took > streamWindow {
					t.Errorf("%s every %s: it was waited for %s", what, every, took)
				}
				if r.index.Node("stays") == nil || r.index.Node("gone") != nil {
					t.Errorf("%s every %s: the index does not show what the pages do: a node that is gone is there, or one that stays is not", what, every)
				}
			})
		}
	}
}

// What a stream that was given up has brought is not counted beside the pages.
func TestAStreamAndThePagesAfterItCountOnce(t *testing.T) {
	r := newRig(t, anyDriver, 1, false)
	pv := "pv"
	va := &storagev1.VolumeAttachment{ObjectMeta: r.meta("another's"), Spec: storagev1.VolumeAttachmentSpec{Attacher: other, NodeName: "n9",
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
	synctest.Test(t, func(t *testing.T) {
		f := r.watch.feeds[attachments]
		f.streams, f.api.watch = true, sends([]apiwatch.Event{{Type: apiwatch.Added, Object: va}}, time.Hour, nil)
		f.api.list = func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return page([]runtime.Object{va}, o, false)
		}
		if _, err := f.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		_ = f.Replace(nil, "")
		if n := r.index.AttachmentsOn("n9"); n != 1 || f.listed.Load() != 1 {
			t.Errorf("a node with one VolumeAttachment: %d are counted, %d were listed", n, f.listed.Load())
		}
	})
}

// 100,000 volumes take longer than a stream is waited for without any.
func TestALongStreamIsReadToItsEnd(t *testing.T) {
	const perSecond, seconds = 100, 300
	r := newRig(t, anyDriver, 1, false)
	synctest.Test(t, func(t *testing.T) {
		f := r.watch.feeds[nodes]
		f.streams, f.api.watch = true, sends(nil, time.Second/perSecond, func(i int) apiwatch.Event {
			if i == perSecond*seconds {
				return apiwatch.Event{Type: apiwatch.Bookmark, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}}
			}
			return apiwatch.Event{Type: apiwatch.Added, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}}
		})
		f.api.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			t.Error("it is listed in pages")
			return &corev1.List{}, nil
		}
		if _, err := f.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := f.listed.Load(); n != perSecond*seconds {
			t.Errorf("%d objects were listed, %d were sent", n, perSecond*seconds)
		}
	})
}

// client-go says of a client that cannot stream that this "is expected in unit
// tests but not in production"; ours streams by itself.
func TestNoLogLineSaysThatTheClientIsForTests(t *testing.T) {
	defer klog.CaptureState().Restore()
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"v": "9", "logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	klog.SetOutput(&log)
	defer klog.SetOutput(io.Discard)
	r := newRig(t, anyDriver, 1, false)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := r.watch.feeds[nodes]
		f.streams, f.api.watch = true, sends(nil, time.Second, func(int) apiwatch.Event {
			return apiwatch.Event{Type: apiwatch.Bookmark, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}}
		})
		ended := make(chan struct{})
		go func() { defer close(ended); f.run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		<-ended
	})
	klog.Flush()
	if text := log.String(); !strings.Contains(text, "Listed") || strings.Contains(text, "unit tests") {
		t.Errorf("the log:\n%s", text)
	}
}

// What is refused before a restart has to be waited for after it.
func TestRefusalsOfBeforeAreToldOnce(t *testing.T) {
	r := newRig(t, anyDriver, 1, false)
	r.index.KeepRefused()
	handle, pv, refused, plain := handlesOf[anyDriver][0], pvNames[0], "", r.attachment()
	volume := &corev1.PersistentVolume{ObjectMeta: r.meta(pv)}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: anyDriver, VolumeHandle: handle}
	r.watch.feeds[volumes].Add(volume)
	plain.Name, plain.Spec.Attacher, plain.Status.AttachError = "other-error", anyDriver, &storagev1.VolumeError{Message: "no such disk"}
	r.watch.feeds[attachments].Add(plain)
	for _, attacher := range []string{anyDriver, other} {
		va := &storagev1.VolumeAttachment{ObjectMeta: r.meta(csi.AttachmentName(handle, attacher, "n1"))}
		va.Spec = storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}
		va.Status.AttachError = &storagev1.VolumeError{Message: "refused " + fence.Mark}
		if attacher == anyDriver {
			refused = va.Name
		}
		r.watch.feeds[attachments].Add(va)
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
