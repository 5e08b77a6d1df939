package survey

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// key finds a holder: by its node ID, or, where nobody knows that, by its node's
// name. A holder without an ID can be judged by its Node, and never be
// unpublished (an empty node_id means all nodes).
func key(nodeID, nodeName string) string {
	if nodeID == "" {
		return "unknown ID of node " + nodeName
	}
	return nodeID
}

// add puts a holder under its node ID, or adds a source to it.
func (g *gathering) add(nodeID, nodeName string, from fence.Source, first func(*fence.Holder)) *fence.Holder {
	h := g.holders[key(nodeID, nodeName)]
	if h == nil {
		h = &fence.Holder{NodeID: nodeID, NodeName: nodeName}
		g.holders[key(nodeID, nodeName)] = h
		first(h)
	}
	if !h.From(from) {
		h.Sources = append(h.Sources, from)
	}
	return h
}

// sorted are the holders in the order of their keys: what is asked, and which of
// several is meant, does not depend on chance.
func (g *gathering) sorted() []*fence.Holder {
	holders := make([]*fence.Holder, 0, len(g.holders))
	for _, k := range slices.Sorted(maps.Keys(g.holders)) {
		holders = append(holders, g.holders[k])
	}
	return holders
}

// fromAttachments adds the nodes of the volume's VolumeAttachments. The node ID
// that the attacher noted on it is the one that it published with; the CSINode
// may be another machine's by now.
func (g *gathering) fromAttachments() {
	for _, va := range g.attachments {
		node := va.Spec.NodeName
		id := csi.AttachmentNodeID(va)
		if id == "" {
			id = g.Index.NodeID(node)
		}
		if id == "" && !va.Status.Attached {
			continue // without a node ID it was never published
		}
		h := g.add(id, node, fence.FromAttachment, func(*fence.Holder) {})
		if h.NodeName != node {
			continue // one ID under two names is one holder
		}
		if h.Attachment == nil || h.Detaching() {
			h.Attachment = g.attachmentOf(va) // of several one that is not being deleted
		}
	}
}

func (g *gathering) attachmentOf(va *storagev1.VolumeAttachment) *fence.Attachment {
	a := &fence.Attachment{Name: va.Name, UID: string(va.UID), Attached: va.Status.Attached,
		Finalized: slices.ContainsFunc(va.Finalizers, func(f string) bool { return strings.HasPrefix(f, attacherFinalizer) })}
	if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
		a.PV = *pv
	}
	if va.DeletionTimestamp != nil {
		a.DeletedAt, a.Turned = va.DeletionTimestamp.Time, g.Index.TurnedSince(va.Spec.NodeName, va.Name)
	}
	return a
}

// attacherFinalizer begins the name of external-attacher's finalizer
// (kubernetes-csi/external-attacher pkg/controller/util.go, GetFinalizerName).
const attacherFinalizer = "external-attacher/"

// attachmentOn is the volume's VolumeAttachment for the node of that name, if it is
// not of another node ID; nil: there is none.
func (g *gathering) attachmentOn(node, nodeID string) *fence.Attachment {
	var found *fence.Attachment
	for _, va := range g.attachments {
		if id := csi.AttachmentNodeID(va); va.Spec.NodeName == node && (id == "" || id == nodeID) && (found == nil || found.Deleting()) {
			found = g.attachmentOf(va)
		}
	}
	return found
}

// asker names the node that a publish for that node ID is for. Usually one node
// has the ID: the holder, or one that was renamed or given its ID. Of several it is
// one whose VolumeAttachment is there and is not being deleted.
func (g *gathering) asker(nodeID string) string {
	names := slices.Clone(g.survey.Targets)
	if h := g.holders[nodeID]; h != nil && (len(names) == 0 || slices.Contains(names, h.NodeName)) {
		names = append([]string{h.NodeName}, names...)
	}
	for _, name := range names {
		if a := g.attachmentOn(name, nodeID); a != nil && a.DeletedAt.IsZero() {
			return name
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// heir is another node that has the holder's node ID now; empty: none has.
func (g *gathering) heir(h *fence.Holder) string {
	if h.NodeID == "" || h.NodeName == "" {
		return ""
	}
	for _, name := range g.Index.NodeNames(h.NodeID) {
		if name != h.NodeName {
			return name
		}
	}
	return ""
}

// former is another node whose VolumeAttachment for the holder's node ID is being
// deleted; empty: there is none.
func (g *gathering) former(h *fence.Holder) string {
	for _, va := range g.attachments {
		if h.NodeID != "" && csi.AttachmentNodeID(va) == h.NodeID && va.Spec.NodeName != h.NodeName && va.DeletionTimestamp != nil {
			return va.Spec.NodeName
		}
	}
	return ""
}

// fromNodes adds the nodes whose status names the volume.
func (g *gathering) fromNodes(ctx context.Context) error {
	for _, name := range g.Index.NodesListing(g.volume) {
		node, err := g.node(ctx, name)
		if err != nil {
			return err
		}
		if node == nil {
			continue
		}
		inUse, attached := g.lists(node)
		if !inUse && !attached {
			continue
		}
		h, err := g.ofMachine(ctx, node)
		if err != nil {
			return err
		}
		if h != nil {
			addListed(h, inUse, attached)
		}
	}
	return nil
}

// lists tells whether a Node's status names the volume, by any handle that it can have had
// (ledger.Book.Moved): a kubelet goes on with that of when the pod came.
func (g *gathering) lists(node *corev1.Node) (inUse, attached bool) {
	return g.IDs.NodeLists(node, g.Ledgers.Disk(g.survey.Book))
}

// addListed adds to the holder's sources what its Node lists.
func addListed(h *fence.Holder, inUse, attached bool) {
	if inUse && !h.From(fence.FromVolumesInUse) {
		h.Sources = append(h.Sources, fence.FromVolumesInUse)
	}
	if attached && !h.From(fence.FromVolumesAttached) {
		h.Sources = append(h.Sources, fence.FromVolumesAttached)
	}
}

// ofMachine finds the holder that a Node's status speaks of: the ledger's for
// that very machine, else the one with the node ID that its CSINode carries, else, if
// that is another machine's, one besides.
func (g *gathering) ofMachine(ctx context.Context, node *corev1.Node) (*fence.Holder, error) {
	name, uid := node.Name, string(node.UID)
	for _, h := range g.sorted() {
		if h.NodeName != name || h.NodeUID != uid || h.State == fence.TakenOver {
			continue
		}
		now, err := g.tell(ctx, h.Machine(), g.live(node).Machine(name))
		if err != nil || h.Machine().Compare(now).OneNode() {
			return h, err
		}
	}
	id := g.Index.NodeID(name)
	if id == "" {
		if h := g.unplaced(name); h != nil {
			return h, nil
		}
	}
	h := g.holders[key(id, name)]
	if h == nil {
		h = &fence.Holder{}
		g.holders[key(id, name)] = h
	}
	switch {
	case h.NodeName == name:
		return h, nil
	case h.NodeID == "" || h.State == fence.Released || h.State == fence.TakenOver:
		// What the ledger says to be over was on a node of another name, which had
		// this ID before. Here it is in use.
		*h = fence.Holder{NodeID: id, NodeName: name, NodeUID: uid, Sources: h.Sources}
		return h, nil
	}
	moved, err := g.movedTo(ctx, h, node)
	if err != nil {
		return nil, err
	}
	if !moved {
		return g.besides(h, node), nil
	}
	// Its silence under the name that is gone frees nobody from the Node that lists it.
	// Nothing that is known of that one's boot and kubelet is known of this one's; what is
	// proven has to be of the system that the ledger names.
	h.FormerBoot = h.BootID
	h.NodeName, h.ReadySince, h.Kubelet = name, "", nil
	h.Take(fence.Machine{NodeUID: uid, SystemUUID: h.SystemUUID})
	h.Attachment = g.attachmentOn(name, id)
	return h, nil
}

// movedTo tells whether the holder's Node is gone, and its machine is known to be the one of this
// Node, which was renamed. While a Node of the holder's name is there that may be its machine,
// registered anew or not, the machine is that one's, whatever another's kubelet says of itself.
func (g *gathering) movedTo(ctx context.Context, h *fence.Holder, node *corev1.Node) (bool, error) {
	if h.NodeName != "" {
		own, err := g.node(ctx, h.NodeName)
		if err != nil || own != nil && h.Machine().Compare(g.live(own).Machine(own.Name)) != fence.Other {
			return false, err
		}
	}
	is := h.Machine().Compare(g.live(node).Machine(node.Name))
	return is.OneMachine() || h.NodeName == "" && is != fence.Other, nil
}

// besides is a holder of its own for a Node that lists the volume under the node ID of
// a holder that it is not known to be. The ledger has one entry for each ID, which is
// that one's.
func (g *gathering) besides(h *fence.Holder, node *corev1.Node) *fence.Holder {
	k := h.NodeID + "\x00" + node.Name // sorted after h
	if g.holders[k] == nil {
		g.holders[k] = &fence.Holder{NodeID: h.NodeID, NodeName: node.Name, NodeUID: string(node.UID), Attachment: g.attachmentOn(node.Name, h.NodeID)}
	}
	return g.holders[k]
}

// unplaced is the holder on a node of that name of whose machine nothing is
// known: while the node's driver registers anew, its CSINode lacks the ID that
// would tell. What the Node lists counts against it all the same.
func (g *gathering) unplaced(name string) *fence.Holder {
	for _, h := range g.sorted() {
		if h.NodeName == name && h.NodeID != "" && h.NodeUID == "" && h.State == fence.NotInLedger {
			return h
		}
	}
	return nil
}

// fromDriver adds the nodes that the driver says the volume is published to,
// where what the ledger says was never compared with it (there is none yet, or a
// repair wrote it) or it has pointed at somebody itself. A driver that does not answer holds
// nobody up who asks for a new volume.
func (g *gathering) fromDriver(ctx context.Context, suspects []string) error {
	ids := suspects
	if g.driver != nil && (g.survey.Book.Unasked() || suspects != nil) {
		asked, cancel := ctx, func() {}
		if g.isNew(ctx, false) {
			asked, cancel = half(ctx)
		}
		listed, ok, err := g.driver.PublishedNodes(asked, g.volume)
		cancel()
		if err != nil && !g.isNew(ctx, true) {
			return err
		}
		if ok {
			ids = append(ids[:len(ids):len(ids)], listed...)
		}
	}
	for _, id := range ids {
		if h := g.holders[id]; suspects == nil && h != nil && h.State == fence.TakenOver {
			continue // a list may name too many, and this one was over
		}
		if id != "" {
			g.name(g.add(id, "", fence.FromDriver, func(*fence.Holder) {}).NodeID)
		}
	}
	return nil
}

// half is a context that ends when half of the time is over that ctx has left, so that what
// comes after has the other half.
func half(ctx context.Context) (context.Context, func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

func (g *gathering) isNew(ctx context.Context, sure bool) bool {
	return g.Seal != nil && IsNew(ctx, g.Seal, g.survey.Book, sure)
}

// IsNew tells whether the volume was made after the ledgers were sealed, and none was written for
// it, so that nobody had it; as far as this process knows, or for sure.
func IsNew(ctx context.Context, seal Seal, book *ledger.Book, sure bool) bool {
	return book.Missing && len(book.SetAside) == 0 && len(book.PVs) == 1 && seal.MadeSince(ctx, book.PVs[0], sure)
}

// recheckTimeout bounds the question of recheckDriver, which a publish can do
// without.
const recheckTimeout = 3 * time.Second

// recheckDriver drops the holders that nothing but the driver's list ever named,
// if it does not name them any more: the list may name too many, and nobody can
// release a volume on a node that only the storage knows. Where the list is declared to be
// the whole truth it drops those, too, that only the ledger names: they gave the volume away
// while nobody of ours was there. A driver that does not answer leaves them where they are.
func (g *gathering) recheckDriver(ctx context.Context) {
	var doubtful []ledger.Entry
	whole := g.survey.Policy.ListsPublishedNodes
	for _, e := range g.survey.Book.Ledger.Holders {
		had := e.State == fence.Held || e.State == fence.Publishing
		if h := g.holders[e.NodeID]; had && (whole || e.State == fence.Held && e.From == fence.FromDriver) && onlyTheDriver(h) {
			doubtful = append(doubtful, e)
		}
	}
	if len(doubtful) == 0 || g.driver == nil || g.survey.Book.Moved {
		return // what it lists by this handle may be another disk
	}
	// What an older list does not name may have come since.
	anew, cancel := context.WithTimeout(csi.Anew(ctx), recheckTimeout)
	defer cancel()
	listed, ok, err := g.driver.PublishedNodes(anew, g.volume)
	if err != nil || !ok {
		return
	}
	if whole {
		// Whoever it names and nobody knows may be who is doubted, by another ID.
		for _, id := range listed {
			if id != "" && g.holders[id] == nil {
				g.name(g.add(id, "", fence.FromDriver, func(*fence.Holder) {}).NodeID)
			}
		}
	}
	for _, e := range doubtful {
		if !slices.Contains(listed, e.NodeID) && !g.holders[e.NodeID].From(fence.FromDriver) && !g.shows(ctx, e.NodeName) {
			g.survey.delisted = append(g.survey.delisted, e)
			delete(g.holders, e.NodeID)
		}
	}
}

// shows tells whether the status of the Node of that name lists the volume, or its VolumeAttachment
// is there, of which the index may not know yet. What cannot be read may be there.
func (g *gathering) shows(ctx context.Context, name string) bool {
	if name == "" {
		return false
	}
	node, err := g.node(ctx, name)
	if err != nil {
		return true
	}
	if node != nil {
		if inUse, attached := g.lists(node); inUse || attached {
			return true
		}
	}
	_, err = g.Client.StorageV1().VolumeAttachments().Get(ctx, csi.AttachmentName(g.volume, g.IDs.Driver, name), metav1.GetOptions{})
	return !apierrors.IsNotFound(err)
}

// onlyTheDriver tells whether no source names the holder but the driver's list, and the ledger,
// which may have taken it from there.
func onlyTheDriver(h *fence.Holder) bool {
	for _, from := range h.Sources {
		if from != fence.FromDriver && from != fence.FromLedger {
			return false
		}
	}
	return true
}

// forgetStrangers drops the holder nodeID (empty: all) of an unpublish if only
// the driver names it, under an ID that no CSINode has. No kubelet uses the
// volume there. It stands in the way of a publish, not of its own unpublish,
// which is idempotent.
func (g *gathering) forgetStrangers(nodeID string) {
	for k, h := range g.holders {
		if h.State == fence.NotInLedger && h.NodeName == "" && len(h.Sources) == 1 && h.From(fence.FromDriver) && (nodeID == "" || h.NodeID == nodeID) {
			delete(g.holders, k)
		}
	}
}

// name gives a holder that is known by its ID alone the name of its node.
func (g *gathering) name(nodeID string) {
	h := g.holders[nodeID]
	if h == nil || h.NodeName != "" {
		return
	}
	if names := g.Index.NodeNames(nodeID); len(names) > 0 {
		h.NodeName = names[0]
	}
}

// subject is the node ID that an unpublish is about. A node name that maps to
// an entry under another node ID (a machine replaced under the same name; the
// attacher takes the ID from the new machine's CSINode) stands for that entry. Where
// the ID's own entry is over it does so only if the node's VolumeAttachment that is
// being deleted was published under the other: else it is that entry's late
// unpublish.
func (g *gathering) subject(nodeID string, names []string) string {
	known := g.holders[nodeID]
	over := known != nil && known.State == fence.TakenOver
	if nodeID == "" || known != nil && known.State != fence.NotInLedger && !over {
		return nodeID
	}
	for _, name := range names {
		for _, h := range g.sorted() {
			if h.NodeName == name && h.State != fence.NotInLedger && h.State != fence.TakenOver && (!over || g.detaches(name, h.NodeID)) {
				return h.NodeID
			}
		}
	}
	return nodeID
}

// detaches tells whether the node's VolumeAttachment was published under that node ID, and is being
// deleted.
func (g *gathering) detaches(node, nodeID string) bool {
	return slices.ContainsFunc(g.attachments, func(va *storagev1.VolumeAttachment) bool {
		return va.Spec.NodeName == node && va.DeletionTimestamp != nil && csi.AttachmentNodeID(va) == nodeID
	})
}

// node reads a Node live, once for a survey; nil: there is none.
func (g *gathering) node(ctx context.Context, name string) (*corev1.Node, error) {
	if node, ok := g.known[name]; ok {
		return node, nil
	}
	node, err := g.nodes.get(ctx, g.Limit, name, func(ctx context.Context) (*corev1.Node, error) {
		return g.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err == nil {
		g.known[name] = node
	}
	return node, err
}
