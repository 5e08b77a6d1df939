package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// A Holding is a volume that a machine of the node's name may hold.
type Holding struct {
	PV, Driver, Handle string
	// Machine that may hold it.
	fence.Machine
	Claim string // namespace/name; empty: not known
	// State of the ledger's entry; waiting: the ledger has none, and it is not
	// attached there yet.
	State   fence.State
	Waiting bool
}

// Holdings are what the ledgers and VolumeAttachments say of the node.
type Holdings struct {
	All     []Holding
	Nodes   []string // every node name that is known of
	Garbled []string // PVs whose ledger cannot be read
}

// ReadHoldings lists what may name the node, by the ledgers of this cluster.
func ReadHoldings(ctx context.Context, client kubernetes.Interface, now *Node) (*Holdings, error) {
	uid, err := Identity(ctx, client)
	if err != nil {
		return nil, err
	}
	return ListHoldings(ctx, client, now, func(*corev1.PersistentVolume) string { return uid })
}

// ListHoldings lists what may name the node. clusterOf is the cluster whose
// ledger counts on a PersistentVolume.
func ListHoldings(ctx context.Context, client kubernetes.Interface, now *Node, clusterOf func(*corev1.PersistentVolume) string) (*Holdings, error) {
	pvs, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list PersistentVolumes: %w", err)
	}
	attachments, err := client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list VolumeAttachments: %w", err)
	}
	h := &Holdings{}
	for i := range pvs.Items {
		h.fromLedger(&pvs.Items[i], clusterOf(&pvs.Items[i]), now.Name)
	}
	for i := range attachments.Items {
		h.fromAttachment(&attachments.Items[i], now)
	}
	return h, now.askShared(ctx, client, h.All)
}

func (h *Holdings) fromLedger(pv *corev1.PersistentVolume, cluster, node string) {
	text, there := pv.Annotations[ledger.Annotation]
	if !there {
		return
	}
	l, err := ledger.Parse(text)
	if err != nil {
		h.Garbled = append(h.Garbled, pv.Name)
		return
	}
	if l.Cluster != cluster || l.PVUID != string(pv.UID) {
		return // another cluster's, or a backup's: it does not count
	}
	for _, e := range l.Holders {
		h.Nodes = append(h.Nodes, e.NodeName)
		if e.NodeName == node && e.State != fence.TakenOver {
			h.All = append(h.All, Holding{PV: pv.Name, Claim: ClaimOf(pv), Driver: l.Driver, Handle: l.Handle, Machine: e.Machine(), State: e.State})
		}
	}
}

// ClaimOf is the claim of a PersistentVolume, as namespace/name; empty: none.
func ClaimOf(pv *corev1.PersistentVolume) string {
	if claim := pv.Spec.ClaimRef; claim != nil {
		return claim.Namespace + "/" + claim.Name
	}
	return ""
}

// fromAttachment adds what no ledger names. Its machine is the live one if that
// carries the node ID, as the sidecar takes it; else it is not known.
func (h *Holdings) fromAttachment(va *storagev1.VolumeAttachment, now *Node) {
	node, driver := va.Spec.NodeName, va.Spec.Attacher
	h.Nodes = append(h.Nodes, node)
	if node != now.Name || va.Spec.Source.PersistentVolumeName == nil {
		return
	}
	pv, id := *va.Spec.Source.PersistentVolumeName, csi.AttachmentNodeID(va)
	if id == "" {
		id = now.NodeID(driver)
	}
	if id == "" || slices.ContainsFunc(h.All, func(o Holding) bool { return o.PV == pv && o.NodeID == id }) {
		return
	}
	add := Holding{PV: pv, Driver: driver, Machine: fence.Machine{NodeID: id}, Waiting: !va.Status.Attached && va.DeletionTimestamp == nil}
	if now.Node != nil && id == now.NodeID(driver) {
		add.NodeUID, add.BootID = now.UID(), now.BootID()
	}
	h.All = append(h.All, add)
}

// IsOlder tells whether the holding is of another machine than the live Node's, or of it
// under another Node before it booted: the same machine may register again under a new UID,
// but not with another boot ID without a reboot. Where only the node ID is another one it may
// be either: a person says which machine he means by that.
func (n *Node) IsOlder(h Holding) bool {
	is := h.Machine.Compare(n.Machine(h.Driver))
	switch {
	case n.Node == nil || h.NodeUID == "" || h.BootID == "" || n.BootID() == "":
		return false
	case is == fence.Other:
		return true
	}
	id := n.NodeID(h.Driver)
	return h.BootID != n.BootID() && (!is.OneNode() || id != "" && id != h.NodeID)
}

// HasAnew tells whether the holding's machine is the live Node's, and was another Node's.
func (n *Node) HasAnew(h Holding) bool {
	return n.Node != nil && h.NodeUID != n.UID() && (h.MayRunOn(n.Machine(h.Driver)) || h.MayHaveReturned(n.Machine(h.Driver)))
}

// IDs are all node IDs that are known of the node.
func (n *Node) IDs(held *Holdings) []string {
	var ids []string
	for _, h := range held.All {
		ids = append(ids, h.NodeID)
	}
	if n.CSINode != nil {
		for _, d := range n.CSINode.Spec.Drivers {
			ids = append(ids, d.NodeID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
