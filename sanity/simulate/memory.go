package simulate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// object is a Kubernetes object of any kind.
type object interface {
	metav1.Object
	runtime.Object
	comparable
}

// Table is the cluster's objects of one kind, as the world reads and writes them
// past all gates. What Get and List return is the caller's.
type Table[T any] interface {
	// Get an object; false: there is none. A Lease's name is namespace/name.
	Get(name string) (T, bool)
	// Put creates it or takes its place, whatever the resourceVersion, and keeps
	// it: the caller changes it no more. One with
	// neither finalizers nor a deletionTimestamp stays; one with a
	// deletionTimestamp and no finalizers goes.
	Put(T)
	// Delete removes it at once, finalizers or not.
	Delete(name string)
	List() []T
}

// Objects are the cluster.
type Objects struct {
	Nodes       Table[*corev1.Node]
	Leases      Table[*coordinationv1.Lease]
	Volumes     Table[*corev1.PersistentVolume]
	Attachments Table[*storagev1.VolumeAttachment]
	CSINodes    Table[*storagev1.CSINode]
}

// memory is the cluster of tier 1: typed objects and one counter of versions.
type memory struct {
	now     func() time.Time
	changed func() // a Node or VolumeAttachment
	version int
	uids    int
	nodes   *table[*corev1.Node]
	leases  *table[*coordinationv1.Lease]
	volumes *table[*corev1.PersistentVolume]
	vas     *table[*storagev1.VolumeAttachment]
	csi     *table[*storagev1.CSINode]
}

func newMemory(now func() time.Time) *memory {
	m := &memory{now: now, changed: func() {}, version: 100}
	m.nodes = newTable[*corev1.Node](m, corev1.Resource("nodes"))
	m.leases = newTable[*coordinationv1.Lease](m, coordinationv1.Resource("leases"))
	m.volumes = newTable[*corev1.PersistentVolume](m, corev1.Resource("persistentvolumes"))
	m.vas = newTable[*storagev1.VolumeAttachment](m, storagev1.Resource("volumeattachments"))
	m.csi = newTable[*storagev1.CSINode](m, storagev1.Resource("csinodes"))
	return m
}

func (m *memory) objects() Objects {
	return Objects{Nodes: m.nodes, Leases: m.leases, Volumes: m.volumes, Attachments: m.vas, CSINodes: m.csi}
}

// table of one kind. What stands in it is never changed, only replaced.
type table[T object] struct {
	m        *memory
	resource schema.GroupResource
	items    map[string]T
	names    []string // sorted
	past     map[string][]past[T]
}

// past is what an object was, from a version and time on: the zero T: there was none.
type past[T object] struct {
	version int
	since   time.Time
	was     T
}

// compaction is how long etcd still has what was (kube-apiserver,
// --etcd-compaction-interval).
const compaction = 5 * time.Minute

// at reads what an object was at a version, as a LIST at an exact resourceVersion does.
func (t *table[T]) at(name string, version int) (was T, err error) {
	for _, p := range slices.Backward(t.past[name]) {
		if p.version <= version {
			if was = p.was; was != *new(T) {
				was = was.DeepCopyObject().(T)
			}
			return was, nil
		}
		if time.Since(p.since) > compaction {
			return was, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
		}
	}
	return was, nil
}

// passed takes note of what a Node is from now on; of other kinds nobody asks.
func (t *table[T]) passed(key string, now T) {
	if t.resource.Resource != "nodes" {
		return
	}
	t.past[key] = append(t.past[key], past[T]{t.m.version, time.Now(), now})
}

func newTable[T object](m *memory, resource schema.GroupResource) *table[T] {
	return &table[T]{m: m, resource: resource, items: map[string]T{}, past: map[string][]past[T]{}}
}

func keyOf(o metav1.Object) string {
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + o.GetName()
	}
	return o.GetName()
}

func (t *table[T]) Get(name string) (T, bool) {
	o, ok := t.items[name]
	if !ok {
		var none T
		return none, false
	}
	return o.DeepCopyObject().(T), true
}

func (t *table[T]) List() []T {
	all := make([]T, 0, len(t.names))
	for _, name := range t.names {
		all = append(all, t.items[name].DeepCopyObject().(T))
	}
	return all
}

func (t *table[T]) Put(o T) { t.put(o) }

// put keeps o, and returns it.
func (t *table[T]) put(o T) T {
	key := keyOf(o)
	old, there := t.items[key]
	t.m.version++
	o.SetResourceVersion(strconv.Itoa(t.m.version))
	switch {
	case there:
		o.SetUID(old.GetUID())
		o.SetCreationTimestamp(old.GetCreationTimestamp())
	default:
		t.m.uids++
		o.SetUID(types.UID("uid-" + strconv.Itoa(t.m.uids)))
		o.SetCreationTimestamp(stamp(t.m.now()))
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		t.Delete(key)
		return o
	}
	t.items[key] = o
	t.passed(key, o)
	if !there {
		at, _ := slices.BinarySearch(t.names, key)
		t.names = slices.Insert(t.names, at, key)
	}
	if t.resource.Resource == "nodes" || t.resource.Resource == "volumeattachments" {
		t.m.changed()
	}
	return o
}

func (t *table[T]) Delete(name string) {
	if _, there := t.items[name]; !there {
		return
	}
	t.m.version++
	delete(t.items, name)
	t.passed(name, *new(T))
	at, _ := slices.BinarySearch(t.names, name)
	t.names = slices.Delete(t.names, at, at+1)
}

// read, create and update are what the API server does for a client.

func (t *table[T]) read(name string) (T, error) {
	o, ok := t.Get(name)
	if !ok {
		return o, apierrors.NewNotFound(t.resource, name)
	}
	return o, nil
}

func (t *table[T]) create(o T) (T, error) {
	if _, there := t.items[keyOf(o)]; there {
		var none T
		return none, apierrors.NewAlreadyExists(t.resource, o.GetName())
	}
	return t.put(o).DeepCopyObject().(T), nil
}

func (t *table[T]) update(o T) (T, error) {
	var none T
	old, there := t.items[keyOf(o)]
	switch {
	case !there:
		return none, apierrors.NewNotFound(t.resource, o.GetName())
	case o.GetUID() != "" && o.GetUID() != old.GetUID(),
		o.GetResourceVersion() != "" && o.GetResourceVersion() != old.GetResourceVersion():
		return none, apierrors.NewConflict(t.resource, o.GetName(), fmt.Errorf("the object has been modified"))
	}
	return t.put(o).DeepCopyObject().(T), nil
}

// patchOperation is one of a JSON patch.
type patchOperation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// patchAnnotations applies a JSON patch that tests uid, resourceVersion or
// annotations and changes annotations: all that the product patches so. Anything
// else panics: it would be modelled wrongly.
func (t *table[T]) patchAnnotations(name string, patch []byte) (T, error) {
	o, err := t.read(name)
	if err != nil {
		return o, err
	}
	var ops []patchOperation
	if err := json.Unmarshal(patch, &ops); err != nil {
		panic(fmt.Sprintf("simulate: the patch %s is none: %v", patch, err))
	}
	for _, op := range ops {
		if !applyOperation(o, op) {
			var none T
			return none, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", t.resource, name,
				"the server rejected our request due to an error in our request: testing value "+op.Path+" failed", 0, false)
		}
	}
	return t.put(o).DeepCopyObject().(T), nil
}

const annotationsPath = "/metadata/annotations"

func applyOperation(o metav1.Object, op patchOperation) bool {
	annotations := o.GetAnnotations()
	key, ofOne := strings.CutPrefix(op.Path, annotationsPath+"/")
	key = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
	var text string
	if op.Path != annotationsPath && op.Op != "remove" && json.Unmarshal(op.Value, &text) != nil {
		panic("simulate: not modelled: JSON patch " + op.Op + " " + op.Path)
	}
	now, there := annotations[key]
	switch {
	case op.Op == "test" && op.Path == "/metadata/uid":
		return string(o.GetUID()) == text
	case op.Op == "test" && op.Path == "/metadata/resourceVersion":
		return o.GetResourceVersion() == text
	case op.Op == "test" && ofOne:
		return there && now == text
	case op.Op == "add" && op.Path == annotationsPath:
		o.SetAnnotations(map[string]string{})
		return true
	case op.Op == "add" && ofOne && annotations != nil, op.Op == "replace" && ofOne && there:
		annotations[key] = text
		o.SetAnnotations(annotations)
		return true
	case op.Op == "remove" && ofOne && there:
		delete(annotations, key)
		o.SetAnnotations(annotations)
		return true
	case ofOne:
		return false // add without a map, replace or remove of what is not there
	}
	panic("simulate: not modelled: JSON patch " + op.Op + " " + op.Path)
}
