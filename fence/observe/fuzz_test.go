package observe

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// empty objects of each kind.
var empties = [kinds]func() runtime.Object{
	leases:      func() runtime.Object { return &coordinationv1.Lease{} },
	csiNodes:    func() runtime.Object { return &storagev1.CSINode{} },
	nodes:       func() runtime.Object { return &corev1.Node{} },
	volumes:     func() runtime.Object { return &corev1.PersistentVolume{} },
	attachments: func() runtime.Object { return &storagev1.VolumeAttachment{} },
	records:     func() runtime.Object { return &coordinationv1.Lease{} },
}

// maxSteps of an input are taken.
const maxSteps = 40

// A step of a fuzzed watch: an object of a kind, or the deletion of the one of its name.
type step struct {
	Kind   int             `json:"kind"`
	Gone   bool            `json:"gone,omitempty"`
	Object json.RawMessage `json:"object"`
}

// text is that step as JSON, of the object as it is given.
func (s step) text(object any) []byte {
	var err error
	if s.Object, err = json.Marshal(object); err != nil {
		panic(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

// fuzzed is an index beside its model, with all that the objects named.
type fuzzed struct {
	*testing.T
	watch                  *Watch
	index                  *Index
	model                  *model
	handles, names, nodeID map[string]bool
}

func newFuzzed(t *testing.T, driver string) *fuzzed {
	ids := &csi.Identity{Driver: driver}
	z := &fuzzed{T: t, watch: New(kubernetes.NewForConfigOrDie(&rest.Config{}), NewTracker(time.Minute, 1), "records", ids), model: newModel(ids),
		handles: map[string]bool{"": true, "unknown": true}, names: map[string]bool{"": true, "unknown": true}, nodeID: map[string]bool{"": true, "unknown": true}}
	z.index = z.watch.Index(driver)
	z.watch.OnChange(func(Change) {})
	z.watch.OnRecord(func(string, *coordinationv1.Lease) {})
	for _, f := range z.watch.feeds {
		f.begin()
		f.end()
	}
	return z
}

// put brings an object to both, as the API server may: nothing is without a name; a VolumeAttachment
// names its volume in one way (K8s pkg/apis/storage/validation), and is another one where its spec is.
func (z *fuzzed) put(kind int, obj runtime.Object) {
	name := obj.(metav1.Object).GetName()
	f, old := z.watch.feeds[kind], z.model.objects[kind][name]
	if name == "" {
		return
	}
	if va, ok := obj.(*storagev1.VolumeAttachment); ok {
		if va.Spec.Source.InlineVolumeSpec != nil && va.Spec.Source.PersistentVolumeName != nil {
			return
		}
		if old != nil && !reflect.DeepEqual(va.Spec, old.(*storagev1.VolumeAttachment).Spec) {
			z.drop(kind, name)
			old = nil
		}
	}
	z.model.objects[kind][name] = obj
	if old == nil {
		_ = f.Add(obj.DeepCopyObject())
	} else {
		_ = f.Update(obj.DeepCopyObject())
	}
	z.learn(name, obj)
}

func (z *fuzzed) drop(kind int, name string) {
	if old := z.model.objects[kind][name]; old != nil {
		delete(z.model.objects[kind], name)
		_ = z.watch.feeds[kind].Delete(old)
	}
}

// learn takes note of what an object names.
func (z *fuzzed) learn(name string, obj runtime.Object) {
	z.names[name] = true
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		handle, _ := z.model.ids.PVHandle(o)
		z.handles[handle] = true
		if l, err := ledger.Parse(o.Annotations[ledger.Annotation]); err == nil {
			for _, e := range l.Holders {
				z.names[e.NodeName] = true
			}
		}
	case *storagev1.VolumeAttachment:
		handle, _ := z.model.ids.InlineHandle(o)
		z.handles[handle], z.names[o.Spec.NodeName] = true, true
		if pv := o.Spec.Source.PersistentVolumeName; pv != nil {
			z.names[*pv] = true
		}
	case *corev1.Node:
		for _, handle := range z.model.ids.NodeHandles(o) {
			z.handles[handle] = true
		}
	case *storagev1.CSINode:
		z.nodeID[z.model.ids.NodeID(o)] = true
	case *coordinationv1.Lease:
		if node, ok := record.NodeOf(o); ok {
			z.names[node] = true
		}
	}
}

// check compares what the index says with a look at every object.
func (z *fuzzed) check(when string) {
	same := func(what string, got, want []string) {
		if !slices.Equal(got, want) && len(got)+len(want) > 0 {
			z.Fatalf("%s: %s: %q, want %q", when, what, got, want)
		}
	}
	for handle := range z.handles {
		same("Volumes of "+handle, z.index.Volumes(handle), z.model.volumesOf(handle))
		same("Attachments of "+handle, z.index.Attachments(handle), z.model.attachmentsOf(handle))
		same("NodesListing "+handle, z.index.NodesListing(handle), z.model.nodesListing(handle))
	}
	ids, byID := z.model.nodeIDs(), map[string][]string{}
	for name, id := range ids {
		byID[id] = append(byID[id], name)
	}
	same("NodeIDs", z.index.NodeIDs(), slices.Sorted(maps.Keys(byID)))
	for id := range z.nodeID {
		same("NodeNames of "+id, z.index.NodeNames(id), sorted(byID[id]))
	}
	same("Holding", z.index.Holding(), z.model.holding())
	for name := range z.names {
		if got := z.index.NodeID(name); got != ids[name] {
			z.Fatalf("%s: NodeID of %q: %q, want %q", when, name, got, ids[name])
		}
		if got, want := z.index.AttachmentsOn(name), z.model.attachmentsOn(name); got != want {
			z.Fatalf("%s: %d attachments on %q, want %d", when, got, name, want)
		}
		node, found := get[*corev1.Node](z.model, nodes, name)
		if found {
			node = node.DeepCopy()
			ready := fence.ReadyCondition(node) // the first one counts, and without a status none
			node.Status.Conditions = slices.DeleteFunc(slices.Clone(node.Status.Conditions), func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
			if ready != nil && ready.Status != "" {
				node.Status.Conditions = append(node.Status.Conditions, *ready)
			}
		}
		if shown := z.index.Node(name); (shown != nil) != found || found && !sameNode(z.model.ids, node, shown) {
			z.Fatalf("%s: Node %q: %+v, want %+v", when, name, shown, node)
		}
		pv, found := get[*corev1.PersistentVolume](z.model, volumes, name)
		if shown := z.index.Volume(name); (shown != nil) != found || found && z.model.volumeFacts(shown).handle != z.model.volumeFacts(pv).handle {
			z.Fatalf("%s: Volume %q: %+v, want %+v", when, name, shown, pv)
		}
		if name == "" {
			continue // no entry of a ledger names it
		}
		held, possible := z.index.HeldBy(name), z.model.heldBy(name)
		if len(held) != len(possible) {
			z.Fatalf("%s: %q holds %+v, want %+v", when, name, held, possible)
		}
		for _, h := range held {
			if p, ok := possible[h.Handle]; !ok || !slices.ContainsFunc(p, func(p Held) bool {
				return p.PV == h.PV && p.Attachment == h.Attachment && p.Detaching == h.Detaching && (p.Entry == nil) == (h.Entry == nil)
			}) {
				z.Fatalf("%s: %q holds %+v, want one of %+v", when, name, h, p)
			}
		}
	}
}

// Whatever the API server sends of any kind: the index names the volumes, nodes and node IDs that the
// objects name which are there, and no others; and of an object that is deleted nothing is left.
func FuzzIndex(f *testing.F) {
	m := &maker{Rand: rand.New(rand.NewPCG(1, 1)), driver: anyDriver}
	for range 8 {
		var all []byte
		for range maxSteps {
			kind := m.IntN(kinds)
			_, obj := m.make(kind, nil)
			all = append(all, step{Kind: kind, Gone: m.chance(5)}.text(obj)...)
		}
		f.Add(all, false)
	}
	var sources []byte
	for _, source := range []string{`{"inlineVolumeSpec":{}}`, `{"inlineVolumeSpec":{"csi":{"driver":"` + gceDriver + `","volumeHandle":""}}}`, `{"inlineVolumeSpec":{"gcePersistentDisk":{"pdName":""}}}`,
		`{"inlineVolumeSpec":{"gcePersistentDisk":{"pdName":"d"}}}`, `{"inlineVolumeSpec":{"gcePersistentDisk":{"pdName":"d"}},"persistentVolumeName":"pv"}`, `{"persistentVolumeName":""}`, `{}`, `null`} {
		sources = append(sources, step{Kind: attachments}.text(map[string]any{"metadata": map[string]any{"name": "va"},
			"spec": map[string]any{"attacher": gceDriver, "nodeName": "n1", "source": json.RawMessage(source)}})...)
	}
	f.Add(sources, true)
	f.Add([]byte(`{"kind":2,"object":{"metadata":{"name":"n1"},"status":{"volumesInUse":["","kubernetes.io/csi/","kubernetes.io/csi/d.example.com^","kubernetes.io/csi/d.example.com^^","x"],"volumesAttached":[{},{"name":"kubernetes.io/csi/d.example.com^^"}],"conditions":[{"type":"Ready"},{"type":"Ready","status":"x"}],"addresses":[{"type":"InternalIP","address":"]:"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":-1}}}}}`+
		`{"kind":1,"object":{"metadata":{"name":"n1"},"spec":{"drivers":[{"name":"d.example.com","nodeID":""},{"name":"d.example.com","nodeID":"i"}]}}}{"kind":2,"gone":true,"object":{"metadata":{"name":"n1"}}}`+
		`{"kind":5,"object":{"metadata":{"name":"x","annotations":{"csi-fencepost.io/record":"{"}}}}{"kind":0,"object":{"metadata":{"name":"n1"}}}{"kind":3,"object":null}`), false)
	f.Fuzz(func(t *testing.T, text []byte, gce bool) {
		driver := anyDriver
		if gce {
			driver = gceDriver
		}
		z, decoder := newFuzzed(t, driver), json.NewDecoder(bytes.NewReader(text))
		for range maxSteps {
			var s step
			if decoder.Decode(&s) != nil {
				break
			}
			if s.Kind < 0 || s.Kind >= kinds {
				continue
			}
			obj := empties[s.Kind]()
			if json.Unmarshal(s.Object, obj) != nil {
				continue
			}
			if s.Gone {
				z.drop(s.Kind, obj.(metav1.Object).GetName())
			} else {
				z.put(s.Kind, obj)
			}
			z.check(string(s.Object))
		}
		for kind := range kinds {
			for name := range z.model.objects[kind] {
				z.drop(kind, name)
				z.check("without " + name)
			}
		}
		(&rig{T: t}).checkEmpty(z.index.store)
	})
}
