package simulate

import (
	"context"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	storage "k8s.io/client-go/kubernetes/typed/storage/v1"
)

// client is the API server of tier 1 as one process sees it: typed, without
// HTTP, each request parked until the scheduler decides what becomes of it. What
// it does not model is a nil interface, and panics.
type client struct {
	kubernetes.Interface
	p *Process
	// aside tells that what is read is not what the call goes by.
	aside bool
}

func (c *client) CoreV1() core.CoreV1Interface          { return &coreClient{p: c.p, aside: c.aside} }
func (c *client) StorageV1() storage.StorageV1Interface { return &storageClient{p: c.p} }
func (c *client) CoordinationV1() coordination.CoordinationV1Interface {
	return &coordinationClient{p: c.p}
}

type coreClient struct {
	core.CoreV1Interface
	p     *Process
	aside bool
}

type storageClient struct {
	storage.StorageV1Interface
	p *Process
}

type coordinationClient struct {
	coordination.CoordinationV1Interface
	p *Process
}

func (c *coreClient) PersistentVolumes() core.PersistentVolumeInterface { return &pvClient{p: c.p} }
func (c *coreClient) Nodes() core.NodeInterface {
	return &nodeClient{p: c.p, aside: c.aside}
}
func (c *coreClient) Pods(string) core.PodInterface { return &podClient{p: c.p} }
func (c *storageClient) VolumeAttachments() storage.VolumeAttachmentInterface {
	return &vaClient{p: c.p}
}
func (c *storageClient) CSINodes() storage.CSINodeInterface { return &csiNodeClient{p: c.p} }
func (c *coordinationClient) Leases(namespace string) coordination.LeaseInterface {
	return &leaseClient{p: c.p, namespace: namespace}
}

type pvClient struct {
	core.PersistentVolumeInterface
	p *Process
}

func (c *pvClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolume, error) {
	return request(ctx, c.p, "get:pv/"+name, false, func() (*corev1.PersistentVolume, error) { return c.p.w.memory.volumes.read(name) })
}

func (c *pvClient) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, sub ...string) (*corev1.PersistentVolume, error) {
	if pt != types.JSONPatchType || len(sub) > 0 {
		panic("simulate: not modelled: patch of a PersistentVolume of type " + string(pt))
	}
	return request(ctx, c.p, "patch:pv/"+name, true, func() (*corev1.PersistentVolume, error) {
		pv, err := c.p.w.memory.volumes.patchAnnotations(name, c.p.inItsVersion(name, data))
		if err == nil {
			c.p.w.judgeFormat(pv)
		}
		return pv, err
	})
}

func (c *pvClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.PersistentVolumeList, error) {
	if !all(o) {
		panic("simulate: not modelled: a list of some PersistentVolumes")
	}
	return request(ctx, c.p, "list:pvs", false, func() (*corev1.PersistentVolumeList, error) {
		list := &corev1.PersistentVolumeList{}
		for _, pv := range c.p.w.memory.volumes.List() {
			list.Items = append(list.Items, *pv)
		}
		return list, nil
	})
}

type nodeClient struct {
	core.NodeInterface
	p     *Process
	aside bool
}

func (c *nodeClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	if c.aside {
		ctx = context.WithValue(ctx, readsKey{}, c.p.reads)
	}
	return request(ctx, c.p, "get:node/"+name, false, func() (*corev1.Node, error) { return c.p.w.memory.nodes.read(name) })
}

// List reads all Nodes, or what one was.
func (c *nodeClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	if all(o) {
		return request(ctx, c.p, "list:nodes", false, func() (*corev1.NodeList, error) {
			list := &corev1.NodeList{}
			for _, n := range c.p.w.memory.nodes.List() {
				list.Items = append(list.Items, *n)
			}
			return list, nil
		})
	}
	name, of := strings.CutPrefix(o.FieldSelector, "metadata.name=")
	version, err := strconv.Atoi(o.ResourceVersion)
	if !of || err != nil || o.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
		panic("simulate: not modelled: a list of Nodes, but for one at an exact resourceVersion")
	}
	return request(ctx, c.p, "past:node/"+name, false, func() (*corev1.NodeList, error) {
		list := &corev1.NodeList{}
		was, err := c.p.w.memory.nodes.at(name, version)
		if was != nil {
			list.Items = append(list.Items, *was)
		}
		return list, err
	})
}

type podClient struct {
	core.PodInterface
	p *Process
}

// List is of the pods of one node.
func (c *podClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	node, of := strings.CutPrefix(o.FieldSelector, "spec.nodeName=")
	if !of || o.ResourceVersion != "" {
		panic("simulate: not modelled: a list of pods, but for those of one node, live")
	}
	return request(ctx, c.p, "list:pods/"+node, false, func() (*corev1.PodList, error) {
		list := &corev1.PodList{}
		for _, v := range c.p.w.volumes {
			for _, p := range v.pods() {
				if p.node != nil && p.node.name == node {
					list.Items = append(list.Items, p.objects(v)...)
				}
			}
		}
		return list, nil
	})
}

// objects are the pod as it is if its claim is that of either PersistentVolume of the
// volume: which one it is decides nothing.
func (p *pod) objects(v *volume) (all []corev1.Pod) {
	seconds := v.seconds()
	for _, claim := range append(seconds[:], v.name) {
		o := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault}}
		o.Spec.NodeName = p.node.name
		o.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		if o.Status.Phase = corev1.PodPending; p.shown {
			o.Status.Phase = corev1.PodRunning
		}
		all = append(all, o)
	}
	return all
}

type vaClient struct {
	storage.VolumeAttachmentInterface
	p *Process
}

func (c *vaClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*storagev1.VolumeAttachment, error) {
	return request(ctx, c.p, "get:va/"+c.p.w.attachmentLabel(name), false, func() (*storagev1.VolumeAttachment, error) {
		return c.p.w.memory.vas.read(name)
	})
}

func (c *vaClient) List(ctx context.Context, o metav1.ListOptions) (*storagev1.VolumeAttachmentList, error) {
	if !all(o) {
		panic("simulate: not modelled: a list of some VolumeAttachments")
	}
	return request(ctx, c.p, "list:vas", false, func() (*storagev1.VolumeAttachmentList, error) {
		list := &storagev1.VolumeAttachmentList{}
		for _, va := range c.p.w.memory.vas.List() {
			list.Items = append(list.Items, *va)
		}
		return list, nil
	})
}

// all tells whether it is a list of all objects of the kind, from etcd. They fit on one page.
func all(o metav1.ListOptions) bool {
	return o.FieldSelector == "" && o.LabelSelector == "" && o.ResourceVersion == "" && o.Continue == ""
}

type csiNodeClient struct {
	storage.CSINodeInterface
	p *Process
}

func (c *csiNodeClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*storagev1.CSINode, error) {
	return request(ctx, c.p, "get:csinode/"+name, false, func() (*storagev1.CSINode, error) { return c.p.w.memory.csi.read(name) })
}

func (c *csiNodeClient) List(ctx context.Context, _ metav1.ListOptions) (*storagev1.CSINodeList, error) {
	return request(ctx, c.p, "list:csinodes", false, func() (*storagev1.CSINodeList, error) {
		list := &storagev1.CSINodeList{}
		for _, n := range c.p.w.memory.csi.List() {
			list.Items = append(list.Items, *n)
		}
		return list, nil
	})
}

type leaseClient struct {
	coordination.LeaseInterface
	p         *Process
	namespace string
}

// key tells a kubelet's lease from a node's record.
func (c *leaseClient) key(verb, name string) string {
	if c.namespace == corev1.NamespaceNodeLease {
		return verb + ":lease/" + name
	}
	return verb + ":record/" + name
}

// request is one of the API server's; the seal's are served at once, unless the process is cut
// off: two of one process, or two processes, write it by compare-and-swap, and nothing else
// goes by it but they.
func (c *leaseClient) request(ctx context.Context, verb, name string, write bool, effect func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	if !strings.HasPrefix(name, "seal-") {
		return request(ctx, c.p, c.key(verb, name), write, effect)
	}
	c.p.w.mu.Lock()
	defer c.p.w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case c.p.dead || c.p.w.over:
		return nil, errDead
	case c.p.noAPI:
		return nil, errRefused
	}
	return effect()
}

func (c *leaseClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.request(ctx, "get", name, false, func() (*coordinationv1.Lease, error) {
		return c.p.w.memory.leases.read(c.namespace + "/" + name)
	})
}

func (c *leaseClient) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l = l.DeepCopy()
	l.Namespace = c.namespace
	return c.request(ctx, "create", l.Name, true, func() (*coordinationv1.Lease, error) { return c.p.w.memory.leases.create(l) })
}

func (c *leaseClient) Update(ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l = l.DeepCopy()
	return c.request(ctx, "put", l.Name, true, func() (*coordinationv1.Lease, error) { return c.p.w.memory.leases.update(l) })
}

// request is one request to the API server.
func request[T any](ctx context.Context, p *Process, key string, write bool, effect func() (T, error)) (T, error) {
	value, err := p.park(ctx, toAPI, key, write, func() (any, error) { return effect() })
	if err != nil {
		var none T
		return none, err
	}
	return value.(T), nil
}
