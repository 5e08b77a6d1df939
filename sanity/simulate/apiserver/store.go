package apiserver

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is a typed object of one of the kinds that are modelled.
type Object interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// stored is one version of an object. It never changes.
type stored struct {
	object  Object
	key     string // namespace/name
	version uint64
	created bool   // and not changed since
	proto   []byte // the object as protobuf
	text    []byte // the object as JSON, without kind and apiVersion; made when asked for
}

// change is one write, as a watch shows it. For one that deletes, now is the object
// as it was last, under the version of its deletion.
type change struct {
	kind        watch.EventType
	before, now *stored
}

func (c *change) version() uint64 { return c.now.version }

// table holds the objects of one kind.
type table struct {
	objects map[string]*stored
	sorted  []*stored // by key; nil: to be made anew
	log     []change
	// forgotten is how many changes before the log are compacted.
	forgotten int
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

// all are the objects in the order in which etcd lists them.
func (t *table) all() []*stored {
	if t.sorted == nil {
		t.sorted = sortedByKey(t.objects)
	}
	return t.sorted
}

func sortedByKey(objects map[string]*stored) []*stored {
	out := make([]*stored, 0, len(objects))
	for _, o := range objects {
		out = append(out, o)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].key < out[j].key })
	return out
}

// asOf is what the table held right after a version that is not compacted.
func (t *table) asOf(version uint64) map[string]*stored {
	then := make(map[string]*stored, len(t.objects))
	for key, o := range t.objects {
		then[key] = o
	}
	for i := len(t.log) - 1; i >= 0 && t.log[i].version() > version; i-- {
		c := &t.log[i]
		if c.before == nil {
			delete(then, c.now.key)
		} else {
			then[c.before.key] = c.before
		}
	}
	return then
}

// putLocked stores the next version of an object, which belongs to the server from now
// on.
func (s *Server) putLocked(k *kind, o Object) *stored {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	now := &stored{object: o, key: keyOf(o.GetNamespace(), o.GetName()), version: s.version, proto: marshal(o)}
	t := &s.tables[k.id]
	c := change{kind: watch.Modified, before: t.objects[now.key], now: now}
	if c.before == nil {
		c.kind, now.created = watch.Added, true
	}
	t.objects[now.key] = now
	s.happenedLocked(k, c)
	return now
}

// removeLocked takes an object away. It returns the object under the version of its
// deletion.
func (s *Server) removeLocked(k *kind, last *stored) *stored {
	s.version++
	o := clone(last.object)
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	gone := &stored{object: o, key: last.key, version: s.version, proto: marshal(o)}
	delete(s.tables[k.id].objects, last.key)
	s.happenedLocked(k, change{kind: watch.Deleted, before: last, now: gone})
	return gone
}

func (s *Server) happenedLocked(k *kind, c change) {
	t := &s.tables[k.id]
	t.sorted = nil
	t.log = append(t.log, c)
	for _, w := range s.watches {
		if w.call.kind == k {
			w.nudge()
		}
	}
}

func clone[T Object](o T) T { return o.DeepCopyObject().(T) }

func marshal(o Object) []byte {
	out, err := o.Marshal()
	if err != nil {
		panic(fmt.Sprintf("%T %s cannot be encoded: %v", o, o.GetName(), err))
	}
	return out
}

// json is the object as it comes from etcd, where empty is the same as missing,
// without kind and apiVersion. The server's lock is held.
func (o *stored) json() []byte {
	if o.text == nil {
		out, err := json.Marshal(decoded(kindOf(o.object), o.proto))
		if err != nil {
			panic(fmt.Sprintf("%T %s cannot be encoded: %v", o.object, o.key, err))
		}
		o.text = out
	}
	return o.text
}

func decoded(k *kind, proto []byte) Object {
	o := k.empty()
	if err := o.Unmarshal(proto); err != nil {
		panic(fmt.Sprintf("%s: what was encoded cannot be decoded: %v", k.kind, err))
	}
	return o
}
