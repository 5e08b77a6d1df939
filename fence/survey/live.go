package survey

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Live is an Index for a command that runs for seconds: what one live list of
// each kind showed. A process that runs on needs package watch.
type Live struct {
	ids         *csi.Identity
	volumes     []corev1.PersistentVolume
	attachments []storagev1.VolumeAttachment
	nodes       []corev1.Node
	csiNodes    []storagev1.CSINode
}

var _ Index = (*Live)(nil)

// ListLive lists PersistentVolumes, VolumeAttachments, Nodes and CSINodes from
// etcd. An error is the API server's and names the kind. known are PVs that the
// caller has read already; they are taken as listed.
func ListLive(ctx context.Context, client kubernetes.Interface, ids *csi.Identity, known ...*corev1.PersistentVolume) (*Live, error) {
	l := &Live{ids: ids}
	// No resourceVersion: a list from etcd, not from a cache.
	all := metav1.ListOptions{}
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("cannot list PersistentVolumes: %w", err)
	}
	attachments, err := client.StorageV1().VolumeAttachments().List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("cannot list VolumeAttachments: %w", err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("cannot list Nodes: %w", err)
	}
	csiNodes, err := client.StorageV1().CSINodes().List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("cannot list CSINodes: %w", err)
	}
	l.volumes, l.attachments, l.nodes, l.csiNodes = volumes.Items, attachments.Items, nodes.Items, csiNodes.Items
	for _, pv := range known {
		if l.volume(pv.Name) == nil {
			l.volumes = append(l.volumes, *pv)
		}
	}
	return l, nil
}

// Volumes implements Index.
func (l *Live) Volumes(handle string) []string {
	names := sets.New[string]()
	for i := range l.volumes {
		if own, ok := l.ids.PVHandle(&l.volumes[i]); ok && l.ids.Key(own) == l.ids.Key(handle) {
			names.Insert(l.volumes[i].Name)
		}
	}
	return sets.List(names)
}

// Attachments implements Index: those that refer to one of the volume's PVs,
// those that carry it inline, and those whose name is made from it although the
// PV that they refer to is gone.
func (l *Live) Attachments(handle string) []string {
	pvs, names := sets.New(l.Volumes(handle)...), sets.New[string]()
	for i := range l.attachments {
		va := &l.attachments[i]
		if va.Spec.Attacher != l.ids.Driver {
			continue
		}
		inline, isInline := l.ids.InlineHandle(va)
		pv := va.Spec.Source.PersistentVolumeName
		switch {
		case isInline && l.ids.Key(inline) == l.ids.Key(handle),
			pv != nil && pvs.Has(*pv),
			va.Name == csi.AttachmentName(handle, l.ids.Driver, va.Spec.NodeName):
			names.Insert(va.Name)
		}
	}
	return sets.List(names)
}

// NodesListing implements Index.
func (l *Live) NodesListing(handle string) []string {
	names := sets.New[string]()
	for i := range l.nodes {
		for _, listed := range l.ids.NodeHandles(&l.nodes[i]) {
			if l.ids.Key(listed) == l.ids.Key(handle) {
				names.Insert(l.nodes[i].Name)
			}
		}
	}
	return sets.List(names)
}

// NodeNames implements Index.
func (l *Live) NodeNames(nodeID string) []string {
	names := sets.New[string]()
	for i := range l.csiNodes {
		if id := l.ids.NodeID(&l.csiNodes[i]); id != "" && id == nodeID {
			names.Insert(l.csiNodes[i].Name)
		}
	}
	return sets.List(names)
}

// NodeID implements Index.
func (l *Live) NodeID(nodeName string) string {
	for i := range l.csiNodes {
		if l.csiNodes[i].Name == nodeName {
			return l.ids.NodeID(&l.csiNodes[i])
		}
	}
	return ""
}

// NodeIDs implements Index.
func (l *Live) NodeIDs() []string {
	ids := sets.New[string]()
	for i := range l.csiNodes {
		if id := l.ids.NodeID(&l.csiNodes[i]); id != "" {
			ids.Insert(id)
		}
	}
	return sets.List(ids)
}

// SystemShared implements Index.
func (l *Live) SystemShared(nodeName, systemUUID string) bool {
	return slices.ContainsFunc(l.nodes, func(n corev1.Node) bool {
		return n.Name != nodeName && fence.SystemKey(n.Status.NodeInfo.SystemUUID) == fence.SystemKey(systemUUID)
	})
}

// CaughtPV implements Index. What was created since the lists is not caught: a
// survey fails on it, and the command is to be run again.
func (l *Live) CaughtPV(name, uid string) bool {
	pv := l.volume(name)
	return pv != nil && string(pv.UID) == uid
}

// Synced implements Index. Who looks once has not watched.
func (l *Live) Synced(_, _, _, _ string) bool { return false }

// BootedSince implements Index. Who looks once has not looked before.
func (l *Live) BootedSince(_, _ string, _ *corev1.Node, _, _ bool) (string, bool) { return "", false }

// DeletedVersion implements Index. Who looks once has not seen the deletion.
func (l *Live) DeletedVersion(_, _ string) string { return "" }

// TurnedSince implements Index. Who looks once sees no order.
func (l *Live) TurnedSince(_, _ string) bool { return false }

// Forced implements Index. Who looks once has not seen it.
func (l *Live) Forced(_, _, _ string) *fence.Forced { return nil }

// CaughtAttachment implements Index.
func (l *Live) CaughtAttachment(name, uid string) bool {
	for i := range l.attachments {
		if l.attachments[i].Name == name {
			return string(l.attachments[i].UID) == uid
		}
	}
	return false
}

func (l *Live) volume(name string) *corev1.PersistentVolume {
	for i := range l.volumes {
		if l.volumes[i].Name == name {
			return &l.volumes[i]
		}
	}
	return nil
}
