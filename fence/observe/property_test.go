package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// rig is an index beside its model, on an API server that a test plays.
type rig struct {
	*testing.T
	*maker
	model *model
	watch *Watch
	index *Index // of the driver
	also  *model // of another driver, with the same objects; nil: the watch is for one
	told  []Change
	nodes []string // told to OnNode
}

// newRig is for the driver; two: and for another one, too.
func newRig(t *testing.T, driver string, seed uint64, two bool) *rig {
	ids := &csi.Identity{Driver: driver}
	drivers, model := []*csi.Identity{ids}, newModel(ids)
	r := &rig{T: t, maker: &maker{Rand: rand.New(rand.NewPCG(seed, 1)), driver: driver}, model: model}
	if two {
		r.also = newModel(&csi.Identity{Driver: other})
		r.also.objects = model.objects
		drivers = append(drivers, r.also.ids)
	}
	r.watch = New(kubernetes.NewForConfigOrDie(&rest.Config{}), NewTracker(time.Minute, 1), "records", drivers...)
	r.index = r.watch.Index(driver)
	r.watch.OnChange(func(c Change) {
		if !slices.Contains(r.told, c) {
			r.told = append(r.told, c)
		}
	})
	for _, ids := range drivers {
		r.watch.Index(ids.Driver).OnNode(func(n *corev1.Node) { r.nodes = append(r.nodes, n.Name) })
	}
	for kind := range kinds {
		r.relist(kind, false)
	}
	if err := r.watch.Ready(); err != nil {
		t.Fatal(err)
	}
	return r
}

// step does one random thing to both.
func (r *rig) step() {
	kind := r.IntN(kinds)
	switch r.IntN(12) {
	case 0:
		for range r.IntN(4) {
			r.unseen(kind)
		}
		r.relist(kind, r.chance(3))
	default:
		r.event(kind)
	}
}

// event has one object added, changed or deleted, as a watch shows it.
func (r *rig) event(kind int) {
	f := r.watch.feeds[kind]
	name, obj := r.make(kind, nil)
	old := r.model.objects[kind][name]
	r.told, r.nodes = nil, nil
	var now runtime.Object
	switch {
	case old == nil:
		r.model.objects[kind][name], now = obj, obj
		f.Add(obj)
	case r.chance(3):
		delete(r.model.objects[kind], name)
		f.Delete(old)
	default:
		_, now = r.make(kind, old)
		for now.(metav1.Object).GetName() != name {
			_, now = r.make(kind, old)
		}
		r.model.objects[kind][name] = now
		f.Update(now)
	}
	want := r.model.changes(kind, old, now)
	if r.also != nil {
		for _, c := range r.also.changes(kind, old, now) {
			if !slices.Contains(want, c) {
				want = append(want, c)
			}
		}
	}
	if !sameChanges(r.told, want) {
		r.Fatalf("%s %s: told %v, want %v\n%+v\n%+v", f.name, name, r.told, want, old, now)
	}
	if kind == nodes && now != nil && (len(want) > 0) != (len(r.nodes) > 0) {
		r.Fatalf("OnNode was told of %v, and OnChange of %v", r.nodes, want)
	}
}

func sameChanges(a, b []Change) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c Change) bool { return !slices.Contains(b, c) })
}

// unseen changes an object while no watch runs.
func (r *rig) unseen(kind int) {
	name, obj := r.make(kind, nil)
	if r.chance(2) {
		delete(r.model.objects[kind], name)
		return
	}
	if old := r.model.objects[kind][name]; kind == attachments && old != nil {
		// Deleted, and made again.
		obj.(metav1.Object).SetUID(obj.(metav1.Object).GetUID() + "-again")
	}
	r.model.objects[kind][name] = obj
}

var errCut = errors.New("the connection is cut")

// relist lists a kind anew, streamed or in pages; at first it may break off.
func (r *rig) relist(kind int, breaks bool) {
	f := r.watch.feeds[kind]
	before, caught := f.api, r.caught(kind)
	defer func() { f.api = before }()
	f.streams = r.chance(2)
	objects := slices.Collect(maps.Values(r.model.objects[kind]))
	f.api.list = func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) { return page(objects, o, breaks) }
	f.api.watch = func(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		return r.stream(kind, objects, breaks), nil
	}
	if _, err := f.list(context.Background(), metav1.ListOptions{}); (err != nil) != breaks {
		r.Fatalf("list: %v, breaks %v", err, breaks)
	}
	if breaks {
		r.checkUnended(kind, caught)
		r.relist(kind, false)
		return
	}
	f.Replace(nil, "")
}

// page gives two objects at a time.
func page(objects []runtime.Object, o metav1.ListOptions, breaks bool) (runtime.Object, error) {
	from := 0
	fmt.Sscan(o.Continue, &from)
	to := min(from+2, len(objects))
	if breaks && to == len(objects) {
		return nil, errCut
	}
	list := &corev1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, obj := range objects[from:to] {
		list.Items = append(list.Items, runtime.RawExtension{Object: obj})
	}
	if to < len(objects) {
		list.Continue = fmt.Sprint(to)
	}
	return list, nil
}

// stream sends the objects, and one that is deleted while they are sent.
func (r *rig) stream(kind int, objects []runtime.Object, breaks bool) apiwatch.Interface {
	events := make(chan apiwatch.Event, len(objects)+4)
	for _, obj := range objects {
		events <- apiwatch.Event{Type: apiwatch.Added, Object: obj}
	}
	if name, obj := r.make(kind, nil); r.model.objects[kind][name] == nil {
		events <- apiwatch.Event{Type: apiwatch.Added, Object: obj}
		events <- apiwatch.Event{Type: apiwatch.Modified, Object: obj}
		events <- apiwatch.Event{Type: apiwatch.Deleted, Object: obj}
	}
	if !breaks {
		end := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		events <- apiwatch.Event{Type: apiwatch.Bookmark, Object: end}
	}
	close(events)
	return apiwatch.NewProxyWatcher(events)
}

// checkUnended: a listing broke off. What was caught before it, and is still
// there, still is; what was not, is not yet, although it may have been listed.
func (r *rig) checkUnended(kind int, caught map[string]bool) {
	for name, obj := range r.model.objects[kind] {
		if pv, ok := obj.(*corev1.PersistentVolume); ok {
			if _, ours := r.model.ids.PVHandle(pv); !ours {
				continue // it was the driver's before, and nobody asks for it any more
			}
		}
		uid := string(obj.(metav1.Object).GetUID())
		is := kind == volumes && r.index.CaughtPV(name, uid) || kind == attachments && r.index.CaughtAttachment(name, uid)
		if is != caught[name+uid] {
			r.Fatalf("%s %s, in a listing that broke off: caught %v, before it %v", r.watch.feeds[kind].name, name, is, caught[name+uid])
		}
	}
}

// caught are the objects that are caught now, by name and UID.
func (r *rig) caught(kind int) map[string]bool {
	caught := map[string]bool{}
	for name, obj := range r.model.objects[kind] {
		uid := string(obj.(metav1.Object).GetUID())
		caught[name+uid] = kind == volumes && r.index.CaughtPV(name, uid) || kind == attachments && r.index.CaughtAttachment(name, uid)
	}
	return caught
}

// check compares every answer.
func (r *rig) check() {
	r.checkIndex(r.index, r.model)
	if r.also != nil {
		r.checkIndex(r.watch.Index(other), r.also)
	}
}

func (r *rig) checkIndex(w *Index, m *model) {
	same := func(what string, got, want []string) {
		if !slices.Equal(got, want) && len(got)+len(want) > 0 {
			r.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
	for _, handle := range append([]string{"unknown", "x"}, handlesOf[r.driver]...) {
		same("Volumes of "+handle, w.Volumes(handle), m.volumesOf(handle))
		same("Attachments of "+handle, w.Attachments(handle), m.attachmentsOf(handle))
		same("NodesListing "+handle, w.NodesListing(handle), m.nodesListing(handle))
	}
	ids, byID := m.nodeIDs(), map[string][]string{}
	for name, id := range ids {
		byID[id] = append(byID[id], name)
	}
	same("NodeIDs", w.NodeIDs(), slices.Sorted(maps.Keys(byID)))
	for _, id := range []string{"i-1", "i-2", "i-3", ""} {
		same("NodeNames of "+id, w.NodeNames(id), sorted(byID[id]))
	}
	same("Holding", w.Holding(), m.holding())
	r.checkNodes(w, m, ids)
	r.checkCaught(w, m)
}

func (r *rig) checkNodes(w *Index, m *model, ids map[string]string) {
	each := map[string]bool{}
	w.EachNode(func(n *corev1.Node) {
		real, found := get[*corev1.Node](m, nodes, n.Name)
		if !found || (len(m.ids.NodeHandles(n)) > 0) != (len(m.ids.NodeHandles(real)) > 0) || n.UID != real.UID || !reflect.DeepEqual(n.Spec.Taints, real.Spec.Taints) {
			r.Fatalf("EachNode shows %+v of %+v", n, real)
		}
		each[n.Name] = true
	})
	for _, name := range append([]string{"unknown"}, nodeNames...) {
		if w.NodeID(name) != ids[name] {
			r.Fatalf("NodeID of %s: %q, want %q", name, w.NodeID(name), ids[name])
		}
		if got, want := w.AttachmentsOn(name), m.attachmentsOn(name); got != want {
			r.Fatalf("%d attachments on %s, want %d", got, name, want)
		}
		for _, uuid := range systemUUIDs {
			if got, want := w.SystemShared(name, uuid), m.systemShared(name, uuid); got != want {
				r.Fatalf("another Node than %s reports %q: %v, want %v", name, uuid, got, want)
			}
		}
		node, found := get[*corev1.Node](m, nodes, name)
		shown := w.Node(name)
		if (shown != nil) != found || found != each[name] {
			r.Fatalf("Node %s: %v, want %v", name, shown, node)
		}
		if found && (!sameNode(m.ids, node, shown) || node.ResourceVersion != shown.ResourceVersion) {
			r.Fatalf("Node %s: %+v, want %+v", name, shown, node)
		}
		possible := m.heldBy(name)
		held := w.HeldBy(name)
		if len(held) != len(possible) {
			r.Fatalf("%s holds %+v, want %+v", name, held, possible)
		}
		for _, h := range held {
			if !slices.ContainsFunc(possible[h.Handle], func(p Held) bool { return reflect.DeepEqual(p, h) }) {
				r.Fatalf("%s holds %+v, want one of %+v", name, h, possible[h.Handle])
			}
		}
		for _, pv := range pvNames {
			if got, want := w.AttachedElsewhere(pv, name), m.attachedElsewhere(pv, name); got != want {
				r.Fatalf("%s is attached elsewhere than on %s: %v, want %v", pv, name, got, want)
			}
		}
	}
}

func (r *rig) checkCaught(w *Index, m *model) {
	for _, name := range pvNames {
		pv, found := get[*corev1.PersistentVolume](m, volumes, name)
		handle, ours := m.ids.PVHandle(pv)
		shown := w.Volume(name)
		if (shown != nil) != found {
			r.Fatalf("Volume %s: %v, want %v", name, shown, pv)
		}
		if found {
			own, isOurs := m.ids.PVHandle(shown)
			if own != handle || isOurs != ours || !ours && sourceOf(shown) != sourceOf(pv) {
				r.Fatalf("Volume %s: %+v, want %+v", name, shown.Spec, pv.Spec)
			}
		}
		for _, uid := range []string{"uid-0", "uid-1", "uid-2", ""} {
			if got, want := w.CaughtPV(name, uid), ours && string(pv.UID) == uid; got != want {
				r.Fatalf("PV %s with UID %s is caught: %v, want %v", name, uid, got, want)
			}
		}
	}
	for _, va := range all[*storagev1.VolumeAttachment](m, attachments) {
		ours := va.Spec.Attacher == m.ids.Driver
		if got := w.CaughtAttachment(va.Name, string(va.UID)); got != ours {
			r.Fatalf("VolumeAttachment %s is caught: %v", va.Name, got)
		}
		if w.CaughtAttachment(va.Name, string(va.UID)+"x") || w.CaughtAttachment(va.Name+"x", string(va.UID)) {
			r.Fatalf("another than VolumeAttachment %s is caught", va.Name)
		}
	}
}

// TestTheIndexAnswersAsALookAtEveryObjectWould does random things to an index and
// to its model, and asks both everything. At the end nothing is left of what was
// deleted.
func TestTheIndexAnswersAsALookAtEveryObjectWould(t *testing.T) {
	sequences, steps := 100, 80
	if testing.Short() {
		sequences = 20
	}
	for _, driver := range []string{anyDriver, gceDriver} {
		for seed := range sequences {
			t.Run(fmt.Sprintf("%s/%d", driver, seed), func(t *testing.T) {
				r := newRig(t, driver, uint64(seed), seed%2 == 1)
				for range steps {
					r.step()
					r.check()
				}
				r.empty()
			})
		}
	}
}

// empty has everything deleted, some of it unseen.
func (r *rig) empty() {
	for kind := range kinds {
		for name, obj := range r.model.objects[kind] {
			delete(r.model.objects[kind], name)
			if r.chance(2) {
				r.watch.feeds[kind].Delete(obj)
			}
		}
		r.relist(kind, false)
		r.check()
	}
	for _, x := range r.watch.indexes {
		r.checkEmpty(x.store)
	}
}

func (r *rig) checkEmpty(s *store) {
	left := map[string]int{
		"disks": len(s.disks), "volumes": len(s.volumes), "attachments": len(s.attachments), "places": len(s.places), "places by ID": len(s.placesByID),
		"foreign PVs": len(s.foreign), "strays": len(s.strays), "records": len(s.records), "system UUIDs": len(s.systems),
	}
	for what, n := range left {
		if n != 0 {
			r.Fatalf("%d %s are left of nothing", n, what)
		}
	}
}
