package csi

import (
	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"
)

// SingleWriter tells whether a publish with that capability makes its node the
// only one that may write. readonly is the publish request's flag. What is not
// known (no capability, UNKNOWN, a mode newer than this program) is guarded.
func SingleWriter(capability *spec.VolumeCapability, readonly bool) bool {
	switch capability.GetAccessMode().GetMode() {
	case spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return false
	case spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:
		return !readonly
	}
	return true
}

// BesideAWriter tells whether a publish with that capability may be one beside a node
// that writes ("Can be published at multiple nodes simultaneously. Only one of the node
// can be used as read/write. The rest will be readonly.", CSI spec, AccessMode).
func BesideAWriter(capability *spec.VolumeCapability) bool {
	return capability.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
}

// Writers is how many nodes may write to a volume at once, as far as its
// PersistentVolume tells.
type Writers int

const (
	// Unknown is the zero value; such a volume is guarded as a Single one is.
	Unknown Writers = iota
	// Single means that one node may have the volume.
	Single
	// Multi means that several nodes may have the volume, or that none may write.
	Multi
)

// Guarded tells whether the volume's calls are to be judged.
func (w Writers) Guarded() bool { return w != Multi }

func (w Writers) String() string {
	switch w {
	case Single:
		return "single"
	case Multi:
		return "multi"
	}
	return "unknown"
}

// PVSingleWriter tells it from a PersistentVolume's access modes, for an
// unpublish, which carries no capability. It maps them as external-attacher
// does before a publish (csi-lib-utils accessmodes); a combination that the
// attacher would not publish is Unknown. The modes of an in-tree PV have to be
// translated first: use Identity.PVWriters.
func PVSingleWriter(modes []corev1.PersistentVolumeAccessMode) Writers {
	// The driver's SINGLE_NODE_MULTI_WRITER capability picks between modes
	// that are both SINGLE_NODE_*, so it makes no difference here.
	mode, err := accessmodes.ToCSIAccessMode(modes, false)
	if err != nil {
		return Unknown
	}
	capability := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode}}
	if SingleWriter(capability, false) {
		return Single
	}
	return Multi
}
