package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
)

// Index says which objects to read for a volume.
type Index interface {
	// Volumes names the PersistentVolumes with that handle.
	Volumes(handle string) []string
	// Attachments names the VolumeAttachments of that volume.
	Attachments(handle string) []string
	// NodesListing names the Nodes whose volumesInUse or volumesAttached name it.
	NodesListing(handle string) []string
	// NodeNames names the nodes that carry that node ID of this driver.
	NodeNames(nodeID string) []string
	// NodeID is this driver's node ID on a node; empty: none.
	NodeID(nodeName string) string
	// NodeIDs are all node IDs of this driver.
	NodeIDs() []string
	// SystemShared tells whether another Node reports that system UUID (fence.SystemKey).
	SystemShared(node, systemUUID string) bool
	// CaughtPV and CaughtAttachment tell whether the index has seen that very
	// object.
	CaughtPV(name, uid string) bool
	CaughtAttachment(name, uid string) bool
	// TurnedSince tells whether the kubelet of a node was seen to change its word
	// of its readiness after that VolumeAttachment was seen to be deleted (package
	// observe, Order).
	TurnedSince(node, attachment string) bool
	// Forced tells when the volume of that very VolumeAttachment was seen to be taken by force,
	// in that boot, from a kubelet that listed it in use; nil: it was not, or nobody here saw it.
	Forced(attachment, uid, bootID string) *fence.Forced
	// Synced tells whether the Node of that UID was watched being Ready since then, in that boot,
	// for so long that what it lists is this kubelet's word (package observe, Order).
	Synced(node, uid, bootID, readySince string) bool
	// DeletedVersion is the resourceVersion at which that very VolumeAttachment was first seen being
	// deleted (package observe, Order); empty: it was not.
	DeletedVersion(attachment, uid string) string
	// BootedSince takes note that a VolumeAttachment was read being deleted, and then this Node. It
	// returns the boot in which that was first read so, if that is another one, and whether this one
	// began since the deletion (package observe, Order). heard: the API server's stamps say that the
	// Node's kubelet was heard since, or so shortly before that it cannot have booted in between;
	// silent: its lease shows that nobody runs there.
	BootedSince(attachment, uid string, node *corev1.Node, heard, silent bool) (before string, since bool)
}

// Lives judges whether a node lives (package observe).
type Lives interface {
	Judge(node string, lease *coordinationv1.Lease, nodeExists, nodeReady bool) fence.Liveness
	// Silent tells whether the node's lease was watched unchanged for so long that
	// the node is stale, and which version of it that is.
	Silent(node string) (leaseRV string, silent bool)
	// Steady tells whether the node's lease was seen to be renewed without a longer
	// break for at least so long.
	Steady(node string, least time.Duration) bool
	// Storm tells whether so many nodes are stale at once that the fault is
	// more likely ours or the network's.
	Storm() (bool, string)
}

// Published asks the driver where a volume is published; listed is false when
// it cannot tell.
type Published interface {
	PublishedNodes(ctx context.Context, volume string) (nodes []string, listed bool, err error)
}

// Kubelets tell of the processes of kubelets (package kubelet).
type Kubelets interface {
	// Seen is the process that was last seen to run on the Node of that UID in that boot; nil:
	// none was.
	Seen(node, uid, bootID string) *fence.Process
	// Ask asks the Node's kubelet for its process. Who serves by another key is told nothing, and
	// is an error.
	Ask(ctx context.Context, node *corev1.Node, key string) (*kubelet.Answer, error)
}

// Seal tells of what no ledger can have missed (package guard).
type Seal interface {
	// Covers tells whether the volume's ledger would name that Node, if the machine may
	// have the volume at all.
	Covers(ctx context.Context, volume string, node *corev1.Node) bool
	// Records tells whether the volume's ledger would name a node of that name, of which a
	// VolumeAttachment is all that is left, if its machine may have the volume. unsure: it would,
	// but that cannot be made sure of now.
	Records(ctx context.Context, volume, node string) (recorded, unsure bool)
	// Doubt takes note that a Node lists the volume, is in no ledger, and is not known to wait.
	Doubt(volume, node, uid string)
	// MadeSince tells whether the volume was made, with its PersistentVolume, after the ledgers
	// were sealed, so that nobody can have had it before; as far as this process knows, or for
	// sure.
	MadeSince(ctx context.Context, pv *corev1.PersistentVolume, sure bool) bool
}

// Timeout of a survey, for whoever asks for one: an API server that does not answer
// is told as such before the caller of a call gives up by itself.
const Timeout = 10 * time.Second

// Surveyor gathers surveys. All fields are required but Driver, which may be
// nil where there is none to ask (explain), Kubelets, Seal and Limit.
type Surveyor struct {
	Client  kubernetes.Interface
	IDs     *csi.Identity
	Index   Index
	Ledgers *ledger.Store
	Records *record.Store
	Sources []evidence.Source
	Lives   Lives
	Driver  Published
	Policy  fence.Policy
	// Kubelets; nil: nobody asks them.
	Kubelets Kubelets
	// Seal; nil: any ledger may have missed a holder.
	Seal Seal
	// CutsStorage tells that agents of ours cut nodes off from the driver's storage, so that a
	// node's record that cannot be read may hide it.
	CutsStorage bool
	// Limit is Client's limit on requests, so that a read that it holds back can
	// be shared; nil: reads are only shared while they are under way.
	Limit *throttle.Limiter

	// Many volumes ask about few nodes.
	nodes   sharedReads[*corev1.Node]
	leases  sharedReads[*coordinationv1.Lease]
	records sharedReads[*record.Record]
	pasts   sharedReads[[]*corev1.Node]
	pods    sharedReads[*corev1.PodList]
	asked   sharedReads[*kubelet.Answer]
}

// Survey is a Snapshot with what is needed to act on it.
type Survey struct {
	fence.Snapshot
	// Began is when it did. Nothing of it is older, but for what is watched.
	Began time.Time
	// Book is the ledger as it was read; a write is held against it.
	Book *ledger.Book
	// Writers is what the PVs' access modes say, for a call without a
	// capability.
	Writers csi.Writers
	// Subject of an unpublish: the node ID that the call is really about.
	Subject string
	// Targets are the node names of a publish's node ID.
	Targets []string
	// NewToken makes a token for a ledger entry.
	NewToken func() string

	// PodsUnread tells that the pods could not be read that would tell whether a holder only waits.
	PodsUnread bool
	// SealUnused tells that the seal holds, and could not be used to tell whether a node that is
	// gone only asked for the volume.
	SealUnused bool

	// many are the PVs that say that many may write.
	many []string
	// attachments of the volume, in any state.
	attachments []*storagev1.VolumeAttachment
	// delisted are ledger entries that count no more: only the driver's list
	// ever named them, and it does not any more.
	delisted []ledger.Entry
}

// PVNames of the volume.
func (s *Survey) PVNames() []string {
	var names []string
	for _, pv := range s.Book.PVs {
		names = append(names, pv.Name)
	}
	return names
}

// KeepRecorded leaves of the holders those that stand in the way of a publish of what many
// nodes may have at once: whom the ledger names, or the one that the PersistentVolume had
// before it was created again, and whom the driver alone names, which is asked but once.
// The node that asks stays.
func (s *Survey) KeepRecorded() {
	s.Holders = slices.DeleteFunc(s.Holders, func(h fence.Holder) bool {
		asks := h.NodeID == s.Target.NodeID && h.NodeName == s.Target.NodeName
		return h.State == fence.NotInLedger && !slices.Contains(s.Book.Before, h.NodeID) && !onlyTheDriver(&h) && !asks
	})
}

// OneOfMany tells whether the node has the volume by a PersistentVolume that says that many
// may write, and no ledger names it: it is one of many, whatever another PersistentVolume
// of the disk says.
func (s *Survey) OneOfMany(h *fence.Holder) bool {
	if h == nil || h.State != fence.NotInLedger || h.Attachment == nil {
		return false
	}
	return slices.Contains(s.many, h.Attachment.PV)
}

// NowCalled is the node ID by which the driver knows the holder's machine now, if that is
// another than it had when the volume was published, as after an upgrade of the driver, and
// nobody else has it; empty: it is not so. A Node's kubelet says what ID its driver has.
func (s *Surveyor) NowCalled(sv *Survey, h *fence.Holder) string {
	id := s.Index.NodeID(h.NodeName)
	if id == "" || h.NodeID == "" || id == h.NodeID || !h.OwnNode() || len(s.Index.NodeNames(id)) != 1 {
		return ""
	}
	for i := range sv.Holders {
		if other := &sv.Holders[i]; other.NodeID == "" || other.NodeID == id && (other.NodeName != h.NodeName || other.State != fence.NotInLedger) {
			return ""
		}
	}
	return id
}

// OnlyAttachment tells whether there is no other VolumeAttachment of the volume for the holder's
// node, or for its node ID, than the holder's.
func (s *Survey) OnlyAttachment(h *fence.Holder) bool {
	return h.Attachment != nil && !slices.ContainsFunc(s.attachments, func(va *storagev1.VolumeAttachment) bool {
		return string(va.UID) != h.Attachment.UID && (va.Spec.NodeName == h.NodeName || csi.AttachmentNodeID(va) == h.NodeID)
	})
}

// Ledger is a copy of the ledger that an action starts from: what was read,
// and, where there was none or a repair wrote it, the holders that the other
// sources know. Those that only the driver lists are among them: once the guard
// has written the ledger, the driver is not asked again.
func (s *Survey) Ledger() *ledger.Ledger {
	l := s.Book.Ledger.Clone()
	for _, e := range s.delisted {
		if l.Cut(e.NodeID, e.Token) {
			l.Forced(ledger.AnyBoot) // by the driver's word, and the next publish gives it back
		}
	}
	for i := range s.Holders {
		h := &s.Holders[i]
		if e := l.Get(h.NodeID); e != nil && e.From == fence.FromDriver && !onlyTheDriver(h) {
			e.From = ""
		}
	}
	for i := range s.Holders {
		// What was kept for its listing goes with that.
		if h := &s.Holders[i]; h.State == fence.TakenOver && h.ReleasedUnder != "" && h.Attachment == nil && h.OwnNode() && !h.Node.Lists() {
			l.Cut(h.NodeID, h.Token)
		}
	}
	if !s.Book.Unasked() {
		return l
	}
	for i := range s.Holders {
		if h := &s.Holders[i]; h.State == fence.NotInLedger && h.NodeID != "" && h == s.Holder(h.NodeID) && !s.OneOfMany(h) && !h.OnlyWants() {
			l.Put(EntryOf(h, fence.Held, s.NewToken()))
		}
	}
	return l
}

// EntryOf is the ledger entry of a holder.
func EntryOf(h *fence.Holder, state fence.State, token string) ledger.Entry {
	e := ledger.Entry{NodeID: h.NodeID, NodeName: h.NodeName, NodeUID: h.NodeUID, BootID: h.BootID,
		SystemUUID: h.SystemUUID, ProviderID: h.ProviderID, MachineID: h.MachineID, SystemShared: h.SystemShared,
		ReadySince: h.ReadySince, State: state, Token: token, Contest: h.Contest}
	if state == fence.Held && onlyTheDriver(h) {
		e.From = fence.FromDriver
	}
	return e
}

// Publish surveys a volume that node ID target asks for. suspects are node IDs
// that the driver itself has pointed at.
func (s *Surveyor) Publish(ctx context.Context, volume, target string, suspects []string) (*Survey, error) {
	names, err := s.namesOf(ctx, target)
	if err != nil {
		return nil, err
	}
	g, err := s.begin(ctx, volume, names)
	if err != nil {
		return nil, err
	}
	g.survey.Targets = names
	if err := g.fromDriver(ctx, suspects); err != nil {
		return nil, err
	}
	g.recheckDriver(ctx)
	g.name(target)
	asks := g.asker(target)
	// Of the node that asks all is learned as target. The leases of the others are
	// read last: what they prove has to hold until the driver is called.
	itself := func(h *fence.Holder) bool { return h == g.holders[target] && h.NodeName == asks }
	if err := g.target(ctx, target, asks, itself); err != nil {
		return nil, err
	}
	// What it waits for may be an unpublish of its own, which this call finishes.
	g.wants(ctx, func(h *fence.Holder) bool { return itself(h) && h.State.Pending() })
	if err := g.learn(ctx, func(h *fence.Holder) bool { return !itself(h) }); err != nil {
		return nil, err
	}
	return g.finish(), nil
}

// namesOf are the names of the nodes with that ID. The attacher may have seen a
// CSINode that the index has not: an ID that it does not know is looked up live,
// so that no holder is written down without its machine.
func (s *Surveyor) namesOf(ctx context.Context, nodeID string) ([]string, error) {
	if names := s.Index.NodeNames(nodeID); len(names) > 0 {
		return names, nil
	}
	all, err := s.Client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all.Items {
		if s.IDs.NodeID(&all.Items[i]) == nodeID {
			names = append(names, all.Items[i].Name)
		}
	}
	return names, nil
}

// Unpublish surveys a volume that is to be unpublished from node ID nodeID. An
// empty nodeID stands for all nodes.
func (s *Surveyor) Unpublish(ctx context.Context, volume, nodeID string) (*Survey, error) {
	names := s.Index.NodeNames(nodeID)
	g, err := s.begin(ctx, volume, names)
	if err != nil {
		return nil, err
	}
	// Where there is no ledger yet, or a repair's, all holders are about to be
	// written into one: with those that the driver lists, which is not asked again
	// then, and with their machines, or no later word of their kubelets could
	// release them.
	adopts := g.survey.Book.Unasked() && g.survey.Writers.Guarded()
	if adopts {
		if err := g.fromDriver(ctx, nil); err != nil {
			return nil, err
		}
		g.forgetStrangers(nodeID)
	}
	subject := g.subject(nodeID, names)
	matters := func(h *fence.Holder) bool { return adopts || subject == "" || h.NodeID == subject }
	if err := g.learn(ctx, matters); err != nil {
		return nil, err
	}
	survey := g.finish()
	survey.Subject = subject
	return survey, nil
}

// Volume surveys a volume for nobody in particular.
func (s *Surveyor) Volume(ctx context.Context, volume string) (*Survey, error) {
	return s.VolumeBy(ctx, volume, s.Driver)
}

// VolumeBy is Volume by the word of that driver; nil: it is not asked.
func (s *Surveyor) VolumeBy(ctx context.Context, volume string, driver Published) (*Survey, error) {
	g, err := s.begin(ctx, volume, nil)
	if err != nil {
		return nil, err
	}
	g.driver = driver
	if err := g.fromDriver(ctx, nil); err != nil {
		return nil, err
	}
	g.recheckDriver(ctx)
	if err := g.learn(ctx, func(*fence.Holder) bool { return true }); err != nil {
		return nil, err
	}
	return g.finish(), nil
}

// gathering is a survey under way.
type gathering struct {
	*Surveyor
	volume      string
	driver      Published // nil: nobody is asked
	survey      *Survey
	holders     map[string]*fence.Holder
	attachments []*storagev1.VolumeAttachment
	known       map[string]*corev1.Node          // by name, read for this survey; nil: there is none
	pulses      map[string]*coordinationv1.Lease // by node, as last read; nil: there is none
}

// begin reads the ledger, the VolumeAttachments and the Nodes that list the
// volume, and collects the holders that they name. The ledger comes first: every
// write is held against it, so nothing that is read later is judged together with
// a ledger that is newer.
func (s *Surveyor) begin(ctx context.Context, volume string, nodeNames []string) (*gathering, error) {
	g := &gathering{Surveyor: s, volume: volume, driver: s.Driver, holders: map[string]*fence.Holder{}, known: map[string]*corev1.Node{}, pulses: map[string]*coordinationv1.Lease{},
		survey: &Survey{Began: time.Now(), NewToken: s.Ledgers.NewToken, Snapshot: fence.Snapshot{Volume: volume, Policy: s.Policy}}}
	book, err := g.readLedger(ctx, nodeNames)
	if err != nil {
		return nil, err
	}
	g.survey.Book, g.survey.attachments = book, g.attachments
	if pv := book.Canonical(); pv != nil {
		g.survey.PV = pv.Name
	}
	for _, pv := range book.PVs {
		if err := caught(ctx, "PersistentVolume "+pv.Name, func() bool { return s.Index.CaughtPV(pv.Name, string(pv.UID)) }); err != nil {
			return nil, err
		}
	}
	g.survey.Writers = g.writers(book.PVs)
	for _, e := range book.Ledger.Holders {
		g.add(e.NodeID, e.NodeName, fence.FromLedger, func(h *fence.Holder) {
			h.Take(e.Machine())
			h.ReadySince, h.Kubelet = e.ReadySince, e.Kubelet
			h.State, h.Token, h.Call, h.Contest, h.Unproven, h.ReleasedUnder, h.OnlyUnder = e.State, e.Token, e.Call, e.Contest, e.Unproven, e.ReleasedUnder, e.OnlyUnder
		})
		// A holder that had neither Node nor CSINode when it was published to may have
		// them again; without a name no operator could speak of it.
		g.name(e.NodeID)
	}
	g.fromAttachments()
	return g, g.fromNodes(ctx)
}

// readLedger reads the ledger and then the VolumeAttachments, both again where
// these name a PV that the index does not know yet.
func (g *gathering) readLedger(ctx context.Context, nodeNames []string) (*ledger.Book, error) {
	for pvs := sets.New(g.Index.Volumes(g.volume)...); ; {
		book, err := g.Ledgers.Read(ctx, g.volume, sets.List(pvs))
		if err != nil {
			return nil, err
		}
		named, err := g.readAttachments(ctx, book.Ledger, nodeNames)
		if err != nil {
			return nil, err
		}
		if pvs.IsSuperset(named) {
			return book, nil
		}
		pvs = pvs.Union(named)
	}
}

// readAttachments reads the volume's VolumeAttachments live, and the one of
// each node in nodeNames and in the ledger even if the index does not know it yet. It
// returns the names of the PVs that they refer to.
func (g *gathering) readAttachments(ctx context.Context, l *ledger.Ledger, nodeNames []string) (sets.Set[string], error) {
	names := sets.New(g.Index.Attachments(g.volume)...)
	for _, e := range l.Holders {
		if e.State != fence.TakenOver {
			names.Insert(csi.AttachmentName(g.volume, g.IDs.Driver, e.NodeName))
		}
	}
	asked := sets.New[string]()
	for _, node := range nodeNames {
		asked.Insert(csi.AttachmentName(g.volume, g.IDs.Driver, node))
	}
	pvs := sets.New[string]()
	g.attachments = nil
	for _, name := range sets.List(names.Union(asked)) {
		va, err := g.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if va.Spec.Attacher != g.IDs.Driver {
			continue
		}
		if asked.Has(name) {
			if err := caught(ctx, "VolumeAttachment "+name, func() bool { return g.Index.CaughtAttachment(name, string(va.UID)) }); err != nil {
				return nil, err
			}
		}
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil {
			pvs.Insert(*pv)
		}
		g.attachments = append(g.attachments, va)
	}
	return pvs, nil
}

// caught waits a moment for the index to have seen an object that was read live.
func caught(ctx context.Context, what string, seen func() bool) error {
	const patience, step = 2 * time.Second, 5 * time.Millisecond
	for waited := time.Duration(0); !seen(); waited += step {
		if waited >= patience {
			return fmt.Errorf("%s was read from the API server, but the watch has not shown it within %s: what is watched is behind", what, patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
	}
	return nil
}

// writers are many only where every PV with that handle says so.
func (g *gathering) writers(pvs []*corev1.PersistentVolume) csi.Writers {
	all := csi.Unknown
	for i, pv := range pvs {
		w := g.IDs.PVWriters(pv)
		if i == 0 || w != csi.Multi {
			all = w
		}
		if w == csi.Multi {
			g.survey.many = append(g.survey.many, pv.Name)
		}
	}
	return all
}

func (g *gathering) finish() *Survey {
	if storm, _ := g.Lives.Storm(); storm {
		// In a storm nothing is taken from anybody on the word of a silent
		// lease alone.
		g.survey.Policy.UnpublishRevokesAccess = false
	}
	if g.survey.Book.Moved {
		// What the driver does by this handle may be done to another disk, which the holders
		// do not have.
		g.survey.Policy.UnpublishRevokesAccess = false
	}
	for _, h := range g.sorted() {
		if h.OnlyUnder != "" && !g.survey.OnlyAttachment(h) {
			h.OnlyUnder = "" // it may have it by another
		}
		h.Heir, h.Former = g.heir(h), g.former(h)
		h.Shared = h.Heir != "" || h.NodeUID != "" && h.OwnsID() && !h.Machine().Compare(h.Node.Machine(h.NodeName)).OneMachine()
		g.survey.Holders = append(g.survey.Holders, *h)
	}
	slices.SortStableFunc(g.survey.Holders, func(a, b fence.Holder) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return g.survey
}
