package main

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/csi/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// cluster is one of so many nodes and attached volumes, as its API server shows
// it: objects of the size that real ones have, each volume held by one node, in
// whose status it stands, and in a ledger.
type cluster struct {
	driver         string
	nodes, volumes int
}

func uid(kind, i int) types.UID {
	return types.UID(fmt.Sprintf("0b7ab4c8-3a3b-4a44-%04x-%012x", kind, i))
}

// padded has managedFields, so that an object has about that size.
func padded(name string, id types.UID, version, bytes int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: id, ResourceVersion: fmt.Sprint(version), CreationTimestamp: metav1.Time{Time: time.Unix(1, 0)},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"` + strings.Repeat("f", bytes) + `":{}}}`)}}}
}

func (c *cluster) pvName(i int) string { return "pvc-" + string(uid(1, i)) }
func (c *cluster) handle(i int) string { return fmt.Sprintf("vol-%017x", i) }

// lease, node, csiNode, volume and attachment are the i-th of each.
func (c *cluster) lease(i, version int) *coordinationv1.Lease {
	holder, seconds := nodeName(i), int32(40)
	l := &coordinationv1.Lease{ObjectMeta: padded(holder, uid(2, i), version, 200)}
	l.Namespace = corev1.NamespaceNodeLease
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}}
	return l
}

func (c *cluster) node(i, version int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: padded(nodeName(i), uid(3, i), version, 3000)}
	n.Spec.ProviderID = "aws:///us-east-1a/" + nodeID(i)
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: string(uid(4, i)), SystemUUID: string(uid(5, i))}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Time{Time: time.Unix(1, 0)}}}
	for image := range 50 { // as many as a kubelet lists
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 100 << 20,
			Names: []string{fmt.Sprintf("registry.example.com/team/image-%d@sha256:%064d", image, image), fmt.Sprintf("registry.example.com/team/image-%d:v1.2.3", image)}})
	}
	ids := csi.Identity{Driver: c.driver}
	for v := i; v < c.volumes; v += c.nodes {
		name := ids.UniqueName(c.handle(v))
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, name)
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: name, DevicePath: "/dev/xvdba"})
	}
	return n
}

func (c *cluster) csiNode(i int) *storagev1.CSINode {
	n := &storagev1.CSINode{ObjectMeta: padded(nodeName(i), uid(6, i), 1, 300)}
	n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: c.driver, NodeID: nodeID(i)}, {Name: "other.example.com", NodeID: nodeName(i)}}
	return n
}

func (c *cluster) volume(i int) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: padded(c.pvName(i), uid(1, i), 1, 1100)}
	node := i % c.nodes
	book := ledger.Ledger{Version: ledger.Version, Driver: c.driver, Handle: c.handle(i), Cluster: string(uid(7, 0)), PVUID: string(pv.UID),
		Holders: []ledger.Entry{{NodeID: nodeID(node), NodeName: nodeName(node), NodeUID: string(uid(3, node)), BootID: string(uid(4, node)), SystemUUID: string(uid(5, node)),
			ReadySince: "2026-01-01T00:00:00Z", Token: fmt.Sprintf("%016x", i), State: fence.Held}}}
	pv.Annotations = map[string]string{ledger.Annotation: book.String(), "pv.kubernetes.io/provisioned-by": c.driver}
	pv.Spec = corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "team", Name: fmt.Sprintf("data-db-%d", i), UID: uid(8, i)},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "bench",
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: c.driver, VolumeHandle: c.handle(i), FSType: "ext4",
			VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-" + c.driver}}},
	}
	return pv
}

func (c *cluster) attachment(i int) *storagev1.VolumeAttachment {
	node, pv := i%c.nodes, c.pvName(i)
	va := &storagev1.VolumeAttachment{ObjectMeta: padded(csi.AttachmentName(c.handle(i), c.driver, nodeName(node)), uid(9, i), 1, 900)}
	va.Annotations = map[string]string{csi.NodeIDAnnotation: nodeID(node)}
	va.Finalizers = []string{"external-attacher/" + strings.ReplaceAll(c.driver, ".", "-")}
	va.Spec = storagev1.VolumeAttachmentSpec{Attacher: c.driver, NodeName: nodeName(node), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}
	va.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"devicePath": "/dev/xvdba"}}
	return va
}
