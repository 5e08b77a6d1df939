package main

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

// A holding is a volume that a machine of the node's name may hold.
type holding struct {
	pv, driver, handle string
	nodeID             string
	nodeUID, bootID    string // empty: not known
	systemUUID         string // empty: not known
	claim              string // namespace/name; empty: not known
	// state of the ledger's entry; waiting: the ledger has none, and it is not
	// attached there yet.
	state   fence.State
	waiting bool
}

// holdings are what the ledgers and VolumeAttachments say of the node.
type holdings struct {
	all     []holding
	nodes   []string // every node name that is known of
	garbled []string // PVs whose ledger cannot be read
}

func readHoldings(ctx context.Context, client kubernetes.Interface, now *nodeNow) (*holdings, error) {
	uid, err := clusterIdentity(ctx, client)
	if err != nil {
		return nil, err
	}
	return listHoldings(ctx, client, now, func(*corev1.PersistentVolume) string { return uid })
}

// listHoldings lists what may name the node. clusterOf is the cluster whose
// ledger counts on a PersistentVolume.
func listHoldings(ctx context.Context, client kubernetes.Interface, now *nodeNow, clusterOf func(*corev1.PersistentVolume) string) (*holdings, error) {
	pvs, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list PersistentVolumes: %w", err)
	}
	attachments, err := client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list VolumeAttachments: %w", err)
	}
	h := &holdings{}
	for i := range pvs.Items {
		h.fromLedger(&pvs.Items[i], clusterOf(&pvs.Items[i]), now.name)
	}
	for i := range attachments.Items {
		h.fromAttachment(&attachments.Items[i], now)
	}
	return h, nil
}

func (h *holdings) fromLedger(pv *corev1.PersistentVolume, cluster, node string) {
	text, there := pv.Annotations[ledger.Annotation]
	if !there {
		return
	}
	l, err := ledger.Parse(text)
	if err != nil {
		h.garbled = append(h.garbled, pv.Name)
		return
	}
	if l.Cluster != cluster || l.PVUID != string(pv.UID) {
		return // another cluster's, or a backup's: it does not count
	}
	for _, e := range l.Holders {
		h.nodes = append(h.nodes, e.NodeName)
		if e.NodeName == node && e.State != fence.TakenOver {
			h.all = append(h.all, holding{pv: pv.Name, claim: claimOf(pv), driver: l.Driver, handle: l.Handle, nodeID: e.NodeID, nodeUID: e.NodeUID, bootID: e.BootID, systemUUID: e.SystemUUID, state: e.State})
		}
	}
}

func claimOf(pv *corev1.PersistentVolume) string {
	if claim := pv.Spec.ClaimRef; claim != nil {
		return claim.Namespace + "/" + claim.Name
	}
	return ""
}

// fromAttachment adds what no ledger names. Its machine is the live one if that
// carries the node ID, as the sidecar takes it; else it is not known.
func (h *holdings) fromAttachment(va *storagev1.VolumeAttachment, now *nodeNow) {
	node, driver := va.Spec.NodeName, va.Spec.Attacher
	h.nodes = append(h.nodes, node)
	if node != now.name || va.Spec.Source.PersistentVolumeName == nil {
		return
	}
	pv, id := *va.Spec.Source.PersistentVolumeName, csi.AttachmentNodeID(va)
	if id == "" {
		id = now.nodeID(driver)
	}
	if id == "" || slices.ContainsFunc(h.all, func(o holding) bool { return o.pv == pv && o.nodeID == id }) {
		return
	}
	add := holding{pv: pv, driver: driver, nodeID: id, waiting: !va.Status.Attached && va.DeletionTimestamp == nil}
	if now.node != nil && id == now.nodeID(driver) {
		add.nodeUID, add.bootID = now.uid(), now.bootID()
	}
	h.all = append(h.all, add)
}
