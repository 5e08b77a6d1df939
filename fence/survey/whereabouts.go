package survey

import (
	"context"
	"hash/maphash"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/pager"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// Whereabouts is what one reading of etcd shows of all the driver's volumes at once.
type Whereabouts struct {
	// Strange are volumes that a Node or a VolumeAttachment has somewhere where no ledger
	// has them: the names of those nodes, by handle.
	Strange map[string][]string
	// Many are those of which a PersistentVolume says that many nodes may write.
	Many []string
	// Nodes are the UIDs of all Nodes that there are.
	Nodes sets.Set[string]
	// Newest is the highest resourceVersion of the driver's PersistentVolumes.
	Newest uint64
	// Had are the UIDs of the PersistentVolumes that there were, the disks (Identity.Key) of them
	// and of what a Node lists or a VolumeAttachment has inline, and the names of the
	// PersistentVolumes of which a VolumeAttachment is left.
	Had *Names
}

// Names are a set of names of which it keeps the hashes: 100,000 are kept for as long as a seal
// is on.
type Names struct {
	hashes sets.Set[uint64]
	seed   maphash.Seed
}

// NewNames are none.
func NewNames() *Names { return &Names{sets.New[uint64](), maphash.MakeSeed()} }

// Add adds one.
func (n *Names) Add(name string) { n.hashes.Insert(maphash.String(n.seed, name)) }

// Has tells whether it was added, or may have been.
func (n *Names) Has(name string) bool { return n.hashes.Has(maphash.String(n.seed, name)) }

// place is where a Node or a VolumeAttachment has a volume.
type place struct {
	node               string
	machine            *fence.Machine // of a Node's word; nil: a VolumeAttachment's
	nodeID, attachment string
}

// knows tells whether the ledger has a holder there that is not over.
func (p place) knows(l *ledger.Ledger) bool {
	return slices.ContainsFunc(l.ByNodeName(p.node), func(e *ledger.Entry) bool {
		over := e.State == fence.TakenOver || e.State == fence.Released
		return !over && (p.machine == nil || e.Machine().Compare(*p.machine).OneNode()) && (p.nodeID == "" || p.nodeID == e.NodeID)
	})
}

// Whereabouts reads Nodes, VolumeAttachments and PersistentVolumes from etcd, in this order:
// a publish of ours is in the ledger before the others show it.
func (s *Surveyor) Whereabouts(ctx context.Context) (*Whereabouts, error) {
	w := &Whereabouts{Strange: map[string][]string{}, Nodes: sets.New[string](), Had: NewNames()}
	places := map[string][]place{} // by Identity.Key of the handle
	err := each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return s.Client.CoreV1().Nodes().List(ctx, o)
	},
		func(n *corev1.Node) {
			w.Nodes.Insert(string(n.UID))
			m := fence.MachineOf(n)
			m.SystemShared = true // as far as is known here: one of which that would tell is looked at
			for _, handle := range s.IDs.NodeHandles(n) {
				places[s.IDs.Key(handle)] = append(places[s.IDs.Key(handle)], place{node: n.Name, machine: &m})
			}
		})
	if err != nil {
		return nil, err
	}
	ofPV, stray := map[string][]place{}, map[string]place{} // by the name of the PersistentVolume, and of the VolumeAttachment
	err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return s.Client.StorageV1().VolumeAttachments().List(ctx, o)
	}, func(va *storagev1.VolumeAttachment) {
		p := place{node: va.Spec.NodeName, nodeID: csi.AttachmentNodeID(va), attachment: va.Name}
		if va.Spec.Attacher != s.IDs.Driver || p.nodeID == "" && !va.Status.Attached {
			return // without a node ID it was never published
		}
		if handle, inline := s.IDs.InlineHandle(va); inline {
			places[s.IDs.Key(handle)] = append(places[s.IDs.Key(handle)], p)
		}
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			ofPV[*pv] = append(ofPV[*pv], p)
		}
	})
	if err != nil {
		return nil, err
	}
	many, handles := sets.New[string](), sets.New[string]()
	strange := func(handle string, p place) {
		if !slices.Contains(w.Strange[handle], p.node) {
			w.Strange[handle] = append(w.Strange[handle], p.node)
		}
	}
	err = each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return s.Client.CoreV1().PersistentVolumes().List(ctx, o)
	}, func(pv *corev1.PersistentVolume) {
		handle, ours := s.IDs.PVHandle(pv)
		if !ours {
			return
		}
		handles.Insert(handle)
		w.Had.Add(string(pv.UID))
		w.Had.Add(s.IDs.Key(handle))
		if version, err := strconv.ParseUint(pv.ResourceVersion, 10, 64); err == nil {
			w.Newest = max(w.Newest, version)
		}
		if !s.IDs.PVWriters(pv).Guarded() {
			many.Insert(handle)
		}
		there := append(slices.Clone(places[s.IDs.Key(handle)]), ofPV[pv.Name]...)
		delete(ofPV, pv.Name)
		l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
		if err != nil || l.PVUID != string(pv.UID) {
			l = &ledger.Ledger{}
		}
		for _, p := range there {
			if !p.knows(l) {
				strange(handle, p)
			}
		}
	})
	for key := range places {
		w.Had.Add(key)
	}
	// The PersistentVolume of what is left is gone, and its disk may have another.
	nodes := sets.New[string]()
	for pv, left := range ofPV {
		w.Had.Add(pv)
		for _, p := range left {
			stray[p.attachment] = p
			nodes.Insert(p.node)
		}
	}
	for handle := range handles {
		for node := range nodes {
			if p, is := stray[csi.AttachmentName(handle, s.IDs.Driver, node)]; is {
				strange(handle, p)
			}
		}
	}
	w.Many = sets.List(many)
	return w, err
}

// each lists page by page, from etcd.
func each[T runtime.Object](ctx context.Context, list pager.ListPageFunc, do func(T)) error {
	p := pager.New(list)
	p.FullListIfExpired, p.PageBufferSize = false, 0 // one page at a time in memory
	return p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		do(o.(T))
		return nil
	})
}
