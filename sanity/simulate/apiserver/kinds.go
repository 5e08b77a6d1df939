package apiserver

import (
	"fmt"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kind is what is particular to one kind of objects. The rules are those of
// Kubernetes' pkg/registry and pkg/apis/*/validation.
type kind struct {
	id         int
	group      string
	plural     string
	kind       string
	namespaced bool
	empty      func() Object

	unconditional  bool // a PUT without a resourceVersion overwrites
	createOnUpdate bool // a PUT of what is not there creates it
	status         bool // has the subresource status
	statusMeta     bool // which leaves the metadata alone
	graceful       bool // is deleted in two steps
	returnsDeleted bool // DELETE answers the object, not a Status
	lateDefaults   bool // etcd has less than is read: the first update is a write in any case

	// defaults, create and the others may be nil. now is the server's time.
	defaults       func(o Object)
	create         func(o Object, now metav1.Time)
	update         func(o, old Object)
	updateStatus   func(o, old Object, now metav1.Time)
	validate       func(o Object) field.ErrorList
	validateUpdate func(o, old Object) field.ErrorList
	// fields are what a field selector may name, beside metadata.
	fields func(o Object) fields.Set
}

func (k *kind) apiVersion() string {
	if k.group == "" {
		return "v1"
	}
	return k.group + "/v1"
}

func (k *kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.plural}
}

func (k *kind) groupKind() schema.GroupKind { return schema.GroupKind{Group: k.group, Kind: k.kind} }

// kinds are all that are modelled.
var kinds = []*kind{
	{plural: "namespaces", kind: "Namespace", empty: func() Object { return new(corev1.Namespace) }, unconditional: true, status: true,
		defaults: defaultNamespace, create: createNamespace, update: updateNamespace, updateStatus: updateNamespaceStatus, fields: namespaceFields},
	{plural: "nodes", kind: "Node", empty: func() Object { return new(corev1.Node) }, unconditional: true, status: true,
		defaults: defaultNode, update: updateNode, updateStatus: updateNodeStatus, validate: validateNode, validateUpdate: validateNodeUpdate, fields: nodeFields},
	{plural: "pods", kind: "Pod", namespaced: true, empty: func() Object { return new(corev1.Pod) }, unconditional: true, status: true, graceful: true, returnsDeleted: true,
		defaults: defaultPod, create: createPod, update: updatePod, updateStatus: updatePodStatus, validate: validatePod, validateUpdate: validatePodUpdate, fields: podFields},
	{plural: "persistentvolumes", kind: "PersistentVolume", empty: func() Object { return new(corev1.PersistentVolume) }, unconditional: true, status: true, returnsDeleted: true,
		defaults: defaultVolume, create: createVolume, update: updateVolume, updateStatus: updateVolumeStatus, validate: validateVolume, validateUpdate: validateVolumeUpdate},
	{plural: "persistentvolumeclaims", kind: "PersistentVolumeClaim", namespaced: true, empty: func() Object { return new(corev1.PersistentVolumeClaim) }, unconditional: true, status: true, returnsDeleted: true, lateDefaults: true,
		defaults: defaultClaim, create: createClaim, update: updateClaim, updateStatus: updateClaimStatus, validateUpdate: validateClaimUpdate},
	{plural: "events", kind: "Event", namespaced: true, empty: func() Object { return new(corev1.Event) }, unconditional: true, createOnUpdate: true,
		validate: validateEvent, fields: eventFields},
	{group: "coordination.k8s.io", plural: "leases", kind: "Lease", namespaced: true, empty: func() Object { return new(coordinationv1.Lease) }, createOnUpdate: true,
		validate: validateLease},
	{group: "storage.k8s.io", plural: "volumeattachments", kind: "VolumeAttachment", empty: func() Object { return new(storagev1.VolumeAttachment) }, status: true, statusMeta: true, returnsDeleted: true,
		create: createAttachment, update: updateAttachment, updateStatus: updateAttachmentStatus, validate: validateAttachment, validateUpdate: validateAttachmentUpdate},
	{group: "storage.k8s.io", plural: "csinodes", kind: "CSINode", empty: func() Object { return new(storagev1.CSINode) }, returnsDeleted: true,
		validate: validateCSINode, validateUpdate: validateCSINodeUpdate},
	{group: "storage.k8s.io", plural: "csidrivers", kind: "CSIDriver", empty: func() Object { return new(storagev1.CSIDriver) }, returnsDeleted: true,
		defaults: defaultDriver, update: updateDriver, validateUpdate: validateDriverUpdate},
}

var (
	kindsByPath = map[string]*kind{} // group/plural
	kindsByType = map[reflect.Type]*kind{}
)

func init() {
	for i, k := range kinds {
		k.id = i
		kindsByPath[k.group+"/"+k.plural] = k
		kindsByType[reflect.TypeOf(k.empty())] = k
	}
}

// kindOf is the kind of a Go type. Another type than those modelled is a mistake
// in the test's own code.
func kindOf(o Object) *kind {
	k := kindsByType[reflect.TypeOf(o)]
	if k == nil {
		panic(fmt.Sprintf("%T is not modelled", o))
	}
	return k
}

// selectable are the fields of an object that a field selector may name.
func (k *kind) selectable(o Object) fields.Set {
	set := fields.Set{}
	if k.fields != nil {
		set = k.fields(o)
	}
	set["metadata.name"] = o.GetName()
	if k.namespaced {
		set["metadata.namespace"] = o.GetNamespace()
	}
	return set
}

// knows tells whether a field selector may name that field.
func (k *kind) knows(name string) bool {
	if name == "metadata.namespace" {
		return true
	}
	_, ok := k.selectable(k.empty())[name]
	return ok
}
