package observe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// feed brings the objects of one kind into the index, one at a time, and keeps
// none. It is the store of a client-go Reflector, which watches, begins a watch
// that ended where it ended, and lists again where it cannot. What it lists goes
// past it, straight into the index (list): it would hold all of it at once.
type feed struct {
	name    string
	api     api
	streams bool // the client can stream a list

	// begin begins a listing; each object that is seen in it is put; end ends it,
	// and all that was not put since begin is gone.
	begin, end func()
	put        func(obj runtime.Object, isNew bool)
	drop       func(obj runtime.Object)
	// failed is told why the kind cannot be watched now.
	failed func(error)

	listed atomic.Int64 // objects of the listing under way, or of the last one
	synced atomic.Bool  // a listing has ended
	broke  atomic.Bool  // one has failed
}

// api is how the objects are asked for.
type api struct {
	example runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// page is how many objects are read at once where the server cannot stream:
	// about a megabyte.
	page int64
}

// As client-go's informers wait after an error.
const (
	backoffFirst = 800 * time.Millisecond
	backoffMost  = 30 * time.Second
	backoffReset = 2 * time.Minute
)

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: backoffFirst, Factor: 2, Jitter: 1, Steps: 6, Cap: backoffMost}
}

// run watches until ctx ends.
func (f *feed) run(ctx context.Context) {
	// The Reflector is to call list, not to collect a stream itself. All that it
	// would tell its own logger is that this is expected in tests only.
	lw := listWatch{&cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.api.watch}}
	r := cache.NewReflectorWithOptions(lw, f.api.example, f, cache.ReflectorOptions{Name: f.name, Logger: &klog.Logger{}})
	backoff := newBackoff()
	for ctx.Err() == nil {
		began := time.Now()
		if err := r.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			f.failed(err)
			f.broke.Store(true)
		}
		if time.Since(began) > backoffReset {
			backoff = newBackoff()
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

type listWatch struct{ *cache.ListWatch }

func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// list reads all objects as they are in etcd now, whatever version is asked for,
// and returns an empty list of that version.
func (f *feed) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	began := time.Now()
	version, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(1).Info("Listed", "kind", f.name, "objects", f.listed.Load(), "took", time.Since(began).Round(time.Millisecond))
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
}

// read brings all objects into the index, and returns the version of the list.
func (f *feed) read(ctx context.Context) (version string, err error) {
	if f.streams {
		f.start()
		if version, err = f.stream(ctx); !errors.Is(err, errNoStream) {
			return version, err
		}
		klog.FromContext(ctx).V(2).Info("Listing in pages", "kind", f.name, "why", err)
	}
	// Once more: what a stream has brought may be gone when the pages are read.
	f.start()
	return f.pages(ctx)
}

func (f *feed) start() {
	f.begin()
	f.listed.Store(0)
}

// errNoStream is returned where the server cannot stream a list, or does not say where it ends.
var errNoStream = errors.New("the server does not stream the list")

// A stream that brings fewer than streamLeast objects of the list in a streamWindow
// is not waited for any longer. The server says that the list has ended once its
// cache has caught up with etcd, and an old one never does; until then it sends
// what changes, so there need not be silence. That much is not created for long,
// and the slowest link brings more (a list of 100,000 volumes: thousands a second).
const (
	streamWindow = 20 * time.Second
	streamLeast  = 100
)

// stream has the server send one object after another (WatchList).
func (f *feed) stream(ctx context.Context) (version string, err error) {
	yes := true
	w, err := f.api.watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) {
		return "", fmt.Errorf("%w: %w", errNoStream, err)
	}
	if err != nil {
		return "", err
	}
	defer w.Stop()
	window := time.NewTicker(streamWindow)
	defer window.Stop()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-window.C:
			now := f.listed.Load()
			if now-before < streamLeast {
				klog.FromContext(ctx).Info("The API server streams a list and does not end it; listing in pages", "kind", f.name, "objects", now)
				return "", fmt.Errorf("%w to its end: %d objects in %s", errNoStream, now-before, streamWindow)
			}
			before = now
		case event, open := <-w.ResultChan():
			if !open {
				return "", fmt.Errorf("the stream of %s ended before the list did", f.name)
			}
			version, err := f.streamed(event)
			if err != nil || version != "" {
				return version, err
			}
		}
	}
}

// streamed takes an event of a stream; version: that of the list, which ends.
func (f *feed) streamed(event apiwatch.Event) (version string, err error) {
	switch event.Type {
	case apiwatch.Added:
		f.put(event.Object, true)
		f.listed.Add(1)
	case apiwatch.Modified: // while it lists
		f.put(event.Object, false)
	case apiwatch.Deleted:
		f.drop(event.Object)
	case apiwatch.Error:
		return "", apierrors.FromObject(event.Object)
	case apiwatch.Bookmark:
		m, err := meta.Accessor(event.Object)
		if err != nil {
			return "", err
		}
		if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			return m.GetResourceVersion(), nil
		}
	}
	return "", nil
}

// pages reads the list page by page; all of them are of one version.
func (f *feed) pages(ctx context.Context) (version string, err error) {
	// No resourceVersion: the API server ignores the limit of a list from any version.
	options := metav1.ListOptions{Limit: f.api.page}
	for {
		page, err := f.api.list(ctx, options)
		if err != nil {
			return "", err
		}
		err = meta.EachListItem(page, func(obj runtime.Object) error {
			f.put(obj, true)
			f.listed.Add(1)
			return nil
		})
		if err != nil {
			return "", err
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return "", err
		}
		if options.Continue = m.GetContinue(); options.Continue == "" {
			return m.GetResourceVersion(), nil
		}
	}
}

// Add, Update, Delete, Replace and Resync are what the Reflector calls.
func (f *feed) Add(obj any) error {
	f.put(obj.(runtime.Object), true)
	return nil
}

func (f *feed) Update(obj any) error {
	f.put(obj.(runtime.Object), false)
	return nil
}

func (f *feed) Delete(obj any) error {
	f.drop(obj.(runtime.Object))
	return nil
}

// Replace ends a listing; list has put its objects.
func (f *feed) Replace([]any, string) error {
	f.end()
	f.synced.Store(true)
	return nil
}

// Resync has nothing to do.
func (f *feed) Resync() error { return nil }
