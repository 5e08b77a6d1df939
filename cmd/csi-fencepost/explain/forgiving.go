package explain

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// forgiving is a client that reads on where a right is missing: what may not be
// read is as if it were not there, and is remembered. A ledger that is garbled
// is remembered and hidden likewise, so that what the other sources say can be
// shown. For people only: nothing may be allowed on what it says.
type forgiving struct {
	kubernetes.Interface
	// denied are the missing rights, as "verb resource"; garbled the
	// PersistentVolumes whose ledger cannot be read, as they were first read.
	denied  []string
	garbled []*corev1.PersistentVolume
	// noIdentity tells that the cluster's identity may not be read.
	noIdentity bool
}

// may tells whether a right was not found missing.
func (f *forgiving) may(right string) bool { return !slices.Contains(f.denied, right) }

// forgive turns Forbidden into "not there" and remembers the right.
func (f *forgiving) forgive(verb, resource, namespace, name string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	right := verb + " " + resource
	if namespace != "" {
		right += " in namespace " + namespace
	}
	if f.may(right) {
		f.denied = append(f.denied, right)
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (f *forgiving) CoreV1() coreclient.CoreV1Interface {
	return forgivingCore{f.Interface.CoreV1(), f}
}

func (f *forgiving) StorageV1() storageclient.StorageV1Interface {
	return forgivingStorage{f.Interface.StorageV1(), f}
}

func (f *forgiving) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return forgivingCoordination{f.Interface.CoordinationV1(), f}
}

type forgivingCore struct {
	coreclient.CoreV1Interface
	f *forgiving
}

func (c forgivingCore) Nodes() coreclient.NodeInterface {
	return forgivingNodes{c.CoreV1Interface.Nodes(), c.f}
}

func (c forgivingCore) PersistentVolumes() coreclient.PersistentVolumeInterface {
	return forgivingPVs{c.CoreV1Interface.PersistentVolumes(), c.f}
}

type forgivingNodes struct {
	coreclient.NodeInterface
	f *forgiving
}

func (n forgivingNodes) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Node, error) {
	node, err := n.NodeInterface.Get(ctx, name, o)
	return node, n.f.forgive("get", "nodes", "", name, err)
}

func (n forgivingNodes) List(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	list, err := n.NodeInterface.List(ctx, o)
	return forgiveList(n.f, "nodes", "", list, &corev1.NodeList{}, err)
}

type forgivingPVs struct {
	coreclient.PersistentVolumeInterface
	f *forgiving
}

func (p forgivingPVs) List(ctx context.Context, o metav1.ListOptions) (*corev1.PersistentVolumeList, error) {
	list, err := p.PersistentVolumeInterface.List(ctx, o)
	return forgiveList(p.f, "persistentvolumes", "", list, &corev1.PersistentVolumeList{}, err)
}

// Get is not forgiven its rights: without the PersistentVolume there is nothing
// to explain.
func (p forgivingPVs) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.PersistentVolume, error) {
	pv, err := p.PersistentVolumeInterface.Get(ctx, name, o)
	if err != nil {
		return nil, err
	}
	text, there := pv.Annotations[ledger.Annotation]
	if !there {
		return pv, nil
	}
	if _, wrong := ledger.Parse(text); wrong != nil {
		if !slices.ContainsFunc(p.f.garbled, func(read *corev1.PersistentVolume) bool { return read.Name == name }) {
			p.f.garbled = append(p.f.garbled, pv)
		}
		pv = pv.DeepCopy()
		delete(pv.Annotations, ledger.Annotation)
	}
	return pv, nil
}

type forgivingStorage struct {
	storageclient.StorageV1Interface
	f *forgiving
}

func (s forgivingStorage) VolumeAttachments() storageclient.VolumeAttachmentInterface {
	return forgivingAttachments{s.StorageV1Interface.VolumeAttachments(), s.f}
}

func (s forgivingStorage) CSINodes() storageclient.CSINodeInterface {
	return forgivingCSINodes{s.StorageV1Interface.CSINodes(), s.f}
}

type forgivingAttachments struct {
	storageclient.VolumeAttachmentInterface
	f *forgiving
}

func (a forgivingAttachments) Get(ctx context.Context, name string, o metav1.GetOptions) (*storagev1.VolumeAttachment, error) {
	va, err := a.VolumeAttachmentInterface.Get(ctx, name, o)
	return va, a.f.forgive("get", "volumeattachments", "", name, err)
}

func (a forgivingAttachments) List(ctx context.Context, o metav1.ListOptions) (*storagev1.VolumeAttachmentList, error) {
	list, err := a.VolumeAttachmentInterface.List(ctx, o)
	return forgiveList(a.f, "volumeattachments", "", list, &storagev1.VolumeAttachmentList{}, err)
}

type forgivingCSINodes struct {
	storageclient.CSINodeInterface
	f *forgiving
}

func (c forgivingCSINodes) List(ctx context.Context, o metav1.ListOptions) (*storagev1.CSINodeList, error) {
	list, err := c.CSINodeInterface.List(ctx, o)
	return forgiveList(c.f, "csinodes", "", list, &storagev1.CSINodeList{}, err)
}

type forgivingCoordination struct {
	coordinationclient.CoordinationV1Interface
	f *forgiving
}

func (c forgivingCoordination) Leases(namespace string) coordinationclient.LeaseInterface {
	return forgivingLeases{c.CoordinationV1Interface.Leases(namespace), c.f, namespace}
}

type forgivingLeases struct {
	coordinationclient.LeaseInterface
	f         *forgiving
	namespace string
}

func (l forgivingLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Get(ctx, name, o)
	return lease, l.f.forgive("get", "leases", l.namespace, name, err)
}

// unreadable is the first text that is no ledger and has the volume's calls refused; aside
// says of each of the others, in words, that it does not count. missing is the Book's, of
// what can be read.
func (f *forgiving) unreadable(missing bool) (own *ledger.GarbledError, aside []string) {
	for _, pv := range f.garbled {
		_, err := ledger.Parse(pv.Annotations[ledger.Annotation])
		g := &ledger.GarbledError{PV: pv.Name, Err: err}
		switch {
		case !ledger.Own(pv, missing):
			aside = append(aside, g.Aside())
		case own == nil:
			own = g
		}
	}
	return own, aside
}

// forgiveList is forgive for lists: empty where it may not be read.
func forgiveList[T any](f *forgiving, resource, namespace string, list, empty *T, err error) (*T, error) {
	if err = f.forgive("list", resource, namespace, "", err); apierrors.IsNotFound(err) {
		return empty, nil
	}
	return list, err
}

// identity is the cluster's; where it may not be read, the one that the ledger
// was written in is believed.
func (f *forgiving) identity(ctx context.Context, pv *corev1.PersistentVolume) (string, error) {
	uid, err := cluster.Identity(ctx, f.Interface)
	if !apierrors.IsForbidden(err) {
		return uid, err
	}
	f.noIdentity = true
	if l, err := ledger.Parse(pv.Annotations[ledger.Annotation]); err == nil {
		return l.Cluster, nil
	}
	return "unknown", nil
}
