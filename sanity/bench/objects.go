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
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// cluster is one of so many nodes and attached volumes, as its API server shows
// it: objects of the size that real ones have, each volume held by one node, in
// whose status it stands, and in a ledger.
type cluster struct {
	driver         string
	nodes, volumes int
	// paged has the API server not stream lists, as before Kubernetes 1.32.
	paged bool
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

// The sizes that PersistentVolumes and VolumeAttachments have in real clusters, with
// what their writers leave in managedFields and a ledger of one holder.
const (
	volumeBytes, attachmentBytes = 2600, 1500
	// of each, most that these may differ
	sizeTolerance = 0.05
)

// wrote is one writer's part of managedFields.
func wrote(manager, subresource, apiVersion, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: apiVersion, Time: &metav1.Time{Time: time.Unix(1_700_000_000, 0)},
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource}
}

// What csi-provisioner, kube-controller-manager and csi-fencepost write of a PV,
// and kube-controller-manager and csi-attacher of a VolumeAttachment, whose
// attachmentMetadata is as long as a disk driver of a cloud makes it.
var volumeFields, attachmentFields = []metav1.ManagedFieldsEntry{
	wrote("csi-provisioner", "", "v1", `{"f:metadata":{"f:annotations":{".":{},"f:pv.kubernetes.io/provisioned-by":{},"f:volume.kubernetes.io/provisioner-deletion-secret-name":{},"f:volume.kubernetes.io/provisioner-deletion-secret-namespace":{}},`+
		`"f:finalizers":{".":{},"v:\"external-provisioner.volume.kubernetes.io/finalizer\"":{}}},"f:spec":{"f:accessModes":{},"f:capacity":{".":{},"f:storage":{}},"f:claimRef":{".":{},"f:apiVersion":{},"f:kind":{},"f:name":{},"f:namespace":{},"f:resourceVersion":{},"f:uid":{}},`+
		`"f:csi":{".":{},"f:driver":{},"f:fsType":{},"f:volumeAttributes":{".":{},"f:cachingmode":{},"f:kind":{},"f:requestedsizegib":{},"f:skuname":{},"f:storage.kubernetes.io/csiProvisionerIdentity":{}},"f:volumeHandle":{}},"f:nodeAffinity":{".":{},"f:required":{}},"f:persistentVolumeReclaimPolicy":{},"f:storageClassName":{},"f:volumeMode":{}}}`),
	wrote("kube-controller-manager", "status", "v1", `{"f:status":{"f:lastPhaseTransitionTime":{},"f:phase":{}}}`),
	wrote("csi-fencepost", "", "v1", `{"f:metadata":{"f:annotations":{"f:`+ledger.Annotation+`":{}}}}`),
}, []metav1.ManagedFieldsEntry{
	wrote("kube-controller-manager", "", storagev1.SchemeGroupVersion.String(), `{"f:spec":{"f:attacher":{},"f:nodeName":{},"f:source":{"f:persistentVolumeName":{}}}}`),
	wrote("csi-attacher", "", storagev1.SchemeGroupVersion.String(), `{"f:metadata":{"f:annotations":{".":{},"f:`+csi.NodeIDAnnotation+`":{}},"f:finalizers":{".":{},"v:\"external-attacher/bench\"":{}}}}`),
	wrote("csi-attacher", "status", storagev1.SchemeGroupVersion.String(), `{"f:status":{"f:attached":{},"f:attachmentMetadata":{".":{},"f:LUN":{},"f:cachingmode":{},"f:csi.storage.k8s.io/pv/name":{},"f:csi.storage.k8s.io/pvc/name":{},"f:csi.storage.k8s.io/pvc/namespace":{},`+
		`"f:fstype":{},"f:kind":{},"f:requestedsizegib":{},"f:skuname":{},"f:storage.kubernetes.io/csiProvisionerIdentity":{}}}}`),
}

func (c *cluster) volume(i int) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.pvName(i), UID: uid(1, i), ResourceVersion: "1", CreationTimestamp: metav1.Time{Time: time.Unix(1_700_000_000, 0)}, ManagedFields: volumeFields,
		Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection", "external-attacher/" + strings.ReplaceAll(c.driver, ".", "-")},
		Labels:     map[string]string{corev1.LabelTopologyZone: "us-east-1a", corev1.LabelTopologyRegion: "us-east-1"}}}
	node := i % c.nodes
	book := ledger.Ledger{Version: ledger.Version, Driver: c.driver, Handle: c.handle(i), Cluster: string(uid(7, 0)), PVUID: string(pv.UID),
		Holders: []ledger.Entry{{NodeID: nodeID(node), NodeName: nodeName(node), NodeUID: string(uid(3, node)), BootID: string(uid(4, node)), SystemUUID: string(uid(5, node)),
			ReadySince: "2026-01-01T00:00:00Z", Token: fmt.Sprintf("%016x", i), State: fence.Held}}}
	pv.Annotations = map[string]string{ledger.Annotation: book.String(), "pv.kubernetes.io/provisioned-by": c.driver,
		"volume.kubernetes.io/provisioner-deletion-secret-name": "", "volume.kubernetes.io/provisioner-deletion-secret-namespace": ""}
	mode := corev1.PersistentVolumeFilesystem
	pv.Spec = corev1.PersistentVolumeSpec{
		Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team", Name: fmt.Sprintf("data-db-%d", i), UID: uid(8, i),
			ResourceVersion: "1000"},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "bench", VolumeMode: &mode,
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"us-east-1a"}}}}}}},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: c.driver, VolumeHandle: c.handle(i), FSType: "ext4",
			VolumeAttributes: map[string]string{"cachingmode": "ReadOnly", "kind": "managed", "requestedsizegib": "10", "skuname": "Premium_LRS",
				"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-" + c.driver}}},
	}
	pv.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound, LastPhaseTransitionTime: &metav1.Time{Time: time.Unix(1_700_000_000, 0)}}
	return pv
}

func (c *cluster) attachment(i int) *storagev1.VolumeAttachment {
	node, pv := i%c.nodes, c.pvName(i)
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName(c.handle(i), c.driver, nodeName(node)), UID: uid(9, i), ResourceVersion: "1",
		CreationTimestamp: metav1.Time{Time: time.Unix(1_700_000_000, 0)}, ManagedFields: attachmentFields}}
	va.Annotations = map[string]string{csi.NodeIDAnnotation: nodeID(node)}
	va.Finalizers = []string{"external-attacher/" + strings.ReplaceAll(c.driver, ".", "-")}
	va.Spec = storagev1.VolumeAttachmentSpec{Attacher: c.driver, NodeName: nodeName(node), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}
	va.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"LUN": "3", "cachingmode": "ReadOnly", "csi.storage.k8s.io/pv/name": pv,
		"csi.storage.k8s.io/pvc/name": fmt.Sprintf("data-db-%d", i), "csi.storage.k8s.io/pvc/namespace": "team", "fstype": "ext4", "kind": "managed", "requestedsizegib": "10",
		"skuname": "Premium_LRS", "storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-" + c.driver}}
	return va
}
