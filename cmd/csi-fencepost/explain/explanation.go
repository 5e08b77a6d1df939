package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// An explanation is the output of `explain pv`. Its JSON is stable: fields are
// added, and not renamed or removed, within one apiVersion.
type explanation struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Volume     volumeView   `json:"volume"`
	Ledger     ledgerView   `json:"ledger"`
	Holders    []holderView `json:"holders"`
	// Waiting are the nodes for which the volume is asked.
	Waiting []waitingView `json:"waiting"`
	// Decision about the first publish that waits, or to any other node now.
	Decision decisionView `json:"decision"`
	// IfAlive and IfSilent: the decision if the holders that were not watched
	// for long enough are alive, or are not. Set where they differ.
	IfAlive  *decisionView `json:"ifAlive,omitempty"`
	IfSilent *decisionView `json:"ifSilent,omitempty"`
	// MissingRights, as "verb resource": what this look could not see.
	MissingRights []string `json:"missingRights"`
	Notes         []string `json:"notes"`
}

type volumeView struct {
	PersistentVolumes []string `json:"persistentVolumes"`
	Claim             string   `json:"claim,omitempty"` // namespace/name
	Driver            string   `json:"driver"`
	Handle            string   `json:"handle"`
	AccessModes       []string `json:"accessModes"`
	// Writers is single, multi or unknown; all but multi are guarded.
	Writers string `json:"writers"`
	Guarded bool   `json:"guarded"`
}

type ledgerView struct {
	// State is present, missing or garbled.
	State string `json:"state"`
	PV    string `json:"persistentVolume,omitempty"`
	// WrittenAt is when it was last written (RFC 3339, the API server's clock).
	WrittenAt string   `json:"writtenAt,omitempty"`
	SetAside  []string `json:"setAside,omitempty"`
	Problem   string   `json:"problem,omitempty"`
	Mend      string   `json:"mend,omitempty"`
	age       time.Duration
}

type holderView struct {
	Node    string         `json:"node,omitempty"`
	NodeID  string         `json:"nodeID,omitempty"`
	Sources []fence.Source `json:"sources"`
	Ledger  *EntryView     `json:"ledgerEntry,omitempty"`
	Machine machineView    `json:"machine"`
	// InUse (volumesInUse) and ListedAttached (volumesAttached) of the holder's
	// own machine; nil: it has no Node, or that could not be read.
	InUse          *bool           `json:"inUse,omitempty"`
	ListedAttached *bool           `json:"listedAttached,omitempty"`
	Attachment     *attachmentView `json:"volumeAttachment,omitempty"`
	Liveness       livenessView    `json:"liveness"`
	Evidence       []evidenceView  `json:"evidence"`
	// Record of the node, in short; Agents: what its fence agents read when they
	// were asked just now, which needs --config.
	Record string                `json:"record,omitempty"`
	Agents []cluster.ReadingView `json:"agents,omitempty"`
	// MayWrite tells that the holder stands in the way of a publish elsewhere.
	MayWrite bool         `json:"mayWrite"`
	Reason   fence.Reason `json:"reason,omitempty"`
	Why      string       `json:"why"`
}

// A waitingView is a node for which the volume is asked, and what its publish
// is answered now.
type waitingView struct {
	Node       string          `json:"node"`
	NodeID     string          `json:"nodeID,omitempty"`
	Attachment *attachmentView `json:"volumeAttachment"`
	Decision   decisionView    `json:"decision"`
	IfAlive    *decisionView   `json:"ifAlive,omitempty"`
	IfSilent   *decisionView   `json:"ifSilent,omitempty"`
}

type EntryView struct {
	State     fence.State `json:"state"`
	Contested bool        `json:"contested"`
}

type machineView struct {
	// State is same, rebooted, replaced (another machine has its name), gone, unknown, or
	// unreadable.
	State       string `json:"state"`
	NodeUID     string `json:"nodeUID,omitempty"`
	BootID      string `json:"bootID,omitempty"`
	LiveNodeUID string `json:"liveNodeUID,omitempty"`
	LiveBootID  string `json:"liveBootID,omitempty"`
	perhaps     bool   // replaced, or not: nothing tells
}

type attachmentView struct {
	Name      string `json:"name"`
	Attached  bool   `json:"attached"`
	DeletedAt string `json:"deletedAt,omitempty"` // RFC 3339
	// CreatedAt is since when the volume is asked for there (RFC 3339, the API
	// server's clock).
	CreatedAt string `json:"createdAt,omitempty"`
	// Error is what the attacher was last answered, at ErrorAt (its clock).
	Error   string `json:"error,omitempty"`
	ErrorAt string `json:"errorAt,omitempty"`
	age     time.Duration
	failed  time.Duration
}

type livenessView struct {
	// State is alive, stale, unknown, unwatched, or unreadable.
	State string `json:"state"`
	// LeaseRenewedAt is on the node's own clock (RFC 3339). It is for people:
	// nothing is decided by it.
	LeaseRenewedAt string `json:"leaseRenewedAt,omitempty"`
	// NotReadySince is when Kubernetes last changed the Node's Ready condition,
	// of a Node that is not Ready (RFC 3339).
	NotReadySince string `json:"notReadySince,omitempty"`
	leaseAge      time.Duration
	notReady      time.Duration
	noLease       bool
}

type evidenceView struct {
	Kind   fence.Kind `json:"kind"`
	Source string     `json:"source,omitempty"`
	Detail string     `json:"detail,omitempty"`
	// Against tells that the source reads the machine as running.
	Against bool   `json:"against"`
	Counts  bool   `json:"counts"`
	Why     string `json:"why,omitempty"`
	// Since is when it was said or read, on the clock of who wrote it down (RFC
	// 3339); empty: nothing says so. From: record, of a node's record, or agent,
	// asked just now; empty: the Node itself.
	Since string `json:"since,omitempty"`
	From  string `json:"from,omitempty"`
	age   string
}

type decisionView struct {
	// Action is allow, refuse, pass (the volume is not guarded), depends (see ifAlive and ifSilent)
	// or unknown (a right is missing).
	Action string       `json:"action"`
	Reason fence.Reason `json:"reason,omitempty"`
	Why    string       `json:"why"`
	// UnpublishFirst are the holders that a publish unpublishes before.
	UnpublishFirst []string       `json:"unpublishFirst,omitempty"`
	Unblock        []fence.Remedy `json:"unblock"`
}

// Explain says what a look showed. It asks the decision itself, so that it
// cannot differ from the sidecar's.
func Explain(l *Look) *explanation {
	s := &l.Survey.Snapshot
	e := &explanation{APIVersion: config.APIVersion, Kind: "VolumeExplanation", Volume: viewVolume(l), Ledger: viewLedger(l),
		Holders: []holderView{}, Waiting: []waitingView{}, MissingRights: append([]string{}, l.Denied...), Notes: append([]string{}, l.notes...)}
	for i := range s.Holders {
		if h := &s.Holders[i]; !MerelyWaits(h) {
			e.Holders = append(e.Holders, viewHolder(l, h))
		}
	}
	e.decide(l)
	if l.observe && e.Volume.Guarded {
		e.Notes = append(e.Notes, "The mode is Observe: what would be refused is reported, and forwarded all the same.")
	}
	if e.IfAlive != nil && l.observed == 0 {
		e.Notes = append(e.Notes, "A single look cannot tell whether a node lives. Watch the leases: csi-fencepost explain pv "+printable.Word(l.Pv.Name)+" --observe=20s")
	}
	return e
}

func viewVolume(l *Look) volumeView {
	v := volumeView{Driver: l.Driver, Handle: l.Survey.Volume, Writers: l.Survey.Writers.String(), Guarded: l.Survey.Writers.Guarded(),
		PersistentVolumes: []string{}, AccessModes: []string{}}
	v.PersistentVolumes = append(v.PersistentVolumes, l.Survey.PVNames()...)
	for _, mode := range l.Pv.Spec.AccessModes {
		v.AccessModes = append(v.AccessModes, string(mode))
	}
	v.Claim = cluster.ClaimOf(l.Pv)
	return v
}

func viewLedger(l *Look) ledgerView {
	v := ledgerView{State: "present", PV: l.Survey.PV, SetAside: slices.Concat(l.Survey.Book.SetAside, l.aside)}
	if at := ledgerWritten(l.Pv); !at.IsZero() && l.Survey.PV == l.Pv.Name {
		v.WrittenAt, v.age = at.UTC().Format(time.RFC3339), l.now.Sub(at)
	}
	switch {
	case l.Garbled != nil:
		v.State, v.PV, v.Problem, v.Mend = "garbled", l.Garbled.PV, l.Garbled.Why(), l.Garbled.Unblock()
	case l.Survey.Book.Missing:
		v.State = "missing"
	}
	return v
}

func viewHolder(l *Look, h *fence.Holder) holderView {
	v := holderView{Node: h.NodeName, NodeID: h.NodeID, Sources: h.Sources, Machine: viewMachine(l, h), Liveness: viewLiveness(l, h), Evidence: []evidenceView{}}
	if h.State != fence.NotInLedger {
		v.Ledger = &EntryView{State: h.State, Contested: h.Contest != nil}
	}
	if m := h.Node; m != nil && m.UID == h.NodeUID {
		v.InUse, v.ListedAttached = &m.InUse, &m.ListedAttached
	}
	v.Attachment = viewAttachment(l, h.Attachment)
	v.Record, v.Agents = cluster.RecordWords(l.records[h.NodeName]), l.readings[h.NodeName]
	for _, e := range h.Evidence {
		v.Evidence = append(v.Evidence, datedEvidence(l, h, e))
	}
	s := &l.Survey.Snapshot
	verdict, st, held := s.Alone(*h)
	v.MayWrite, v.Reason = held && !st.Gone(), st.Reason
	v.Why = whyHolder(s, verdict, st, held)
	if v.MayWrite && (v.Machine.State == "unreadable" || v.Liveness.State == "unreadable") {
		v.Reason, v.Why = fence.Undecided, "may hold it: whether it lives could not be read"
	}
	return v
}

// datedEvidence is a piece of evidence with its age, and where it was read.
func datedEvidence(l *Look, h *fence.Holder, e fence.Evidence) evidenceView {
	v := viewEvidence(&l.Survey.Snapshot, *h, e)
	if slices.Contains(l.asked, e) {
		v.Since, v.From, v.age = l.now.UTC().Format(time.RFC3339), "agent", "just now"
		return v
	}
	if v.Since = evidenceSince(l.records[h.NodeName], &e); v.Since != "" {
		v.From, v.age = "record", sinceWords(v.Since, l.now)
	}
	return v
}

func viewAttachment(l *Look, a *fence.Attachment) *attachmentView {
	if a == nil {
		return nil
	}
	v := &attachmentView{Name: a.Name, Attached: a.Attached}
	if !a.DeletedAt.IsZero() {
		v.DeletedAt = a.DeletedAt.UTC().Format(time.RFC3339)
	}
	va := l.attachments[a.Name]
	if va == nil {
		return v
	}
	if at := va.CreationTimestamp.Time; !at.IsZero() {
		v.CreatedAt, v.age = at.UTC().Format(time.RFC3339), l.now.Sub(at)
	}
	if message, at := attachError(va); message != "" {
		v.Error, v.ErrorAt, v.failed = message, at.UTC().Format(time.RFC3339), l.now.Sub(at)
	}
	return v
}

// whyHolder says in words how a holder stands, without naming it.
func whyHolder(s *fence.Snapshot, v fence.Verdict, st fence.Standing, held bool) string {
	switch {
	case !held:
		return "does not hold it"
	case st.Reason == fence.HolderReleased:
		return "has released it: it is free to move"
	case st.Reason == fence.HolderFenced:
		return fmt.Sprintf("is fenced (%s): it is free to move", st.Evidence)
	case st.Reason == fence.HolderRevoked:
		return "is not alive, and the driver is declared to revoke its access on unpublish: it is free to move"
	case st.Reason == fence.HolderUnwatched:
		return "may be alive: it was not watched for long enough to tell"
	}
	return strings.TrimPrefix(whyRefused(s, v), st.Holder.Describe()+" ")
}

// whyRefused is a refusal's message without its frame: the same words that
// `kubectl describe pod` shows.
func whyRefused(s *fence.Snapshot, v fence.Verdict) string {
	why, _, _ := strings.Cut(v.Message(s), " To unblock: ")
	name := s.PV
	if name == "" {
		name = s.Volume
	}
	why = strings.TrimPrefix(why, fence.Mark)
	return strings.TrimSuffix(strings.TrimPrefix(why, "volume "+name+": "), ".")
}

func viewMachine(l *Look, h *fence.Holder) machineView {
	v := machineView{NodeUID: h.NodeUID, BootID: h.BootID}
	if h.Node != nil {
		v.LiveNodeUID, v.LiveBootID = h.Node.UID, h.Node.BootID
	}
	switch {
	case h.NodeName == "":
		v.State = "unknown"
	case h.Node == nil && slices.Contains(l.Denied, "get nodes"):
		v.State = "unreadable"
	case h.Node == nil:
		v.State = "gone"
	case h.NodeUID == "":
		v.State = "unknown"
	case !h.OwnNode():
		v.State, v.perhaps = "replaced", h.Perhaps()
	case h.BootID != "" && h.Node.BootID != "" && h.BootID != h.Node.BootID:
		v.State = "rebooted"
	default:
		v.State = "same"
	}
	return v
}

func viewLiveness(l *Look, h *fence.Holder) livenessView {
	v := livenessView{State: h.Liveness.String(), noLease: h.LeaseRV == ""}
	own := h.OwnNode()
	switch {
	case slices.Contains(l.Denied, "get leases in namespace kube-node-lease"), h.Node == nil && slices.Contains(l.Denied, "get nodes"):
		v.State = "unreadable"
	case !own:
		// The lease of a node of that name says nothing of another machine.
		v.State = "unknown"
	case h.Liveness == fence.Unwatched:
		v.State = "unwatched"
	}
	if n := h.Node; own && n != nil && !n.Ready {
		if at, ok := stamp(n.ReadySince); ok {
			v.NotReadySince, v.notReady = n.ReadySince, l.now.Sub(at)
		}
	}
	if at, ok := l.leases[h.NodeName]; ok && own {
		v.LeaseRenewedAt, v.leaseAge = at.UTC().Format(time.RFC3339), l.now.Sub(at)
	}
	return v
}

// viewEvidence asks the decision itself whether a piece of evidence counts.
func viewEvidence(s *fence.Snapshot, h fence.Holder, e fence.Evidence) evidenceView {
	v := evidenceView{Kind: e.Kind, Source: e.Source, Detail: e.Detail, Against: e.On}
	alone := *s
	alone.Policy = fence.Policy{}
	h.Evidence = []fence.Evidence{e}
	_, st, _ := alone.Alone(h)
	if st.Evidence != nil {
		v.Counts, v.Why = st.Gone() || st.Reason == fence.HolderListed, st.Note
		if st.Reason == fence.HolderUnwatched {
			v.Why = "it counts once the node was watched and shows no life"
		}
		return v
	}
	lives := h.MayLive()
	// Something else decides about the holder. Ask of one that is silent and
	// uses the volume, so that nothing else can.
	h.State, h.Liveness = fence.Held, fence.Stale
	if h.Node != nil {
		node := *h.Node
		node.InUse = true
		h.Node = &node
	}
	_, st, _ = alone.Alone(h)
	switch {
	case (e.On || e.Unanswered) && e.Void != "":
		v.Why = e.Void
	case e.Unanswered:
		v.Why = "no claim that the node is off counts until it has said"
	case e.On:
		v.Why = "it speaks against any claim that the node is off"
	case st.Note != "":
		v.Why = st.Note
	case e.OwnWord && lives:
		v.Why = fence.VoidOwnWord
	default:
		v.Why = "nothing is wrong with it, but another reason goes before it"
	}
	return v
}

// decide judges the publishes that wait; where none does, one to another node.
func (e *explanation) decide(l *Look) {
	for i := range l.waiting {
		w := &l.waiting[i]
		v := waitingView{Node: w.holder.NodeName, NodeID: w.holder.NodeID, Attachment: viewAttachment(l, w.holder.Attachment)}
		v.Decision, v.IfAlive, v.IfSilent = e.judge(l, w.snapshot, w.holder.NodeID)
		e.Waiting = append(e.Waiting, v)
	}
	if len(e.Waiting) > 0 {
		first := &e.Waiting[0]
		e.Decision, e.IfAlive, e.IfSilent = first.Decision, first.IfAlive, first.IfSilent
		return
	}
	asked := l.Survey.Snapshot.ToAnyOther()
	e.Decision, e.IfAlive, e.IfSilent = e.judge(l, &asked, fence.AnyOther)
}

// judge asks what is answered to a publish to target. s is nil where its node ID
// is not known.
func (e *explanation) judge(l *Look, s *fence.Snapshot, target string) (d decisionView, ifAlive, ifSilent *decisionView) {
	switch {
	case l.Garbled != nil:
		return decisionView{Action: "refuse", Reason: fence.LedgerUnreadable, Why: l.Garbled.Why(),
			Unblock: remediesOfLedger(l.Garbled)}, nil, nil
	case l.Survey.Writers == csi.Multi:
		return decisionView{Action: "pass", Why: fmt.Sprintf("its access modes (%s) let several nodes have it: csi-fencepost passes its calls through", strings.Join(e.Volume.AccessModes, ", ")), Unblock: []fence.Remedy{}}, nil, nil
	case len(l.Denied) > 0:
		return decisionView{Action: "unknown", Why: "a right is missing to see what the sidecar sees: " + strings.Join(l.Denied, ", "), Unblock: []fence.Remedy{}}, nil, nil
	case s == nil:
		return decisionView{Action: "unknown", Why: "the driver has not told the node's ID yet (there is no CSINode that has it), and the attacher waits for that", Unblock: []fence.Remedy{}}, nil, nil
	}
	names := unwatched(s, target)
	if names == "" {
		return decision(s, target), nil, nil
	}
	alive, silent := decision(suppose(s, fence.Alive), target), decision(suppose(s, fence.Stale), target)
	if alive.Action == silent.Action && alive.Reason == silent.Reason {
		return silent, nil, nil // whose words are true of either
	}
	return decisionView{Action: "depends", Reason: fence.HolderUnwatched, Why: "it depends on whether " + names + " alive, and that was not watched for long enough to tell", Unblock: []fence.Remedy{}}, &alive, &silent
}

// suppose is the snapshot as it would be if the unwatched nodes were so.
func suppose(s *fence.Snapshot, l fence.Liveness) *fence.Snapshot {
	out := *s
	out.Holders = slices.Clone(s.Holders)
	for i := range out.Holders {
		if h := &out.Holders[i]; h.Liveness == fence.Unwatched {
			h.Liveness = l
		}
	}
	return &out
}

// unwatched names the unwatched holders but target; empty: there are none.
func unwatched(s *fence.Snapshot, target string) string {
	var names []string
	for i := range s.Holders {
		if h := &s.Holders[i]; h.Liveness == fence.Unwatched && h.NodeID != target && !slices.Contains(names, h.NodeName) {
			names = append(names, h.NodeName)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "node " + names[0] + " is"
	}
	return "nodes " + strings.Join(names, ", ") + " are"
}

// decision asks what would be answered to a publish to target, and collects
// what every holder that blocks it needs.
func decision(s *fence.Snapshot, target string) decisionView {
	v := fence.JudgePublish(*s, target)
	d := decisionView{Action: v.Action.String(), Reason: v.Reason, Unblock: []fence.Remedy{}}
	switch {
	case v.Action != fence.Allow:
		d.Why = whyRefused(s, v)
	case len(v.Unpublish) == 0:
		d.Why = "no other node holds it"
	default:
		for _, st := range v.Unpublish {
			d.UnpublishFirst = append(d.UnpublishFirst, st.Holder.Describe())
		}
		d.Why = "nothing stands in its way; in the same call it is first unpublished from " + strings.Join(d.UnpublishFirst, ", ")
	}
	if (v.Reason == fence.TargetFenced || v.Reason == fence.TargetGone || v.Reason == fence.TargetLeaving) && v.Blocking != nil {
		d.Unblock = append(d.Unblock, v.Blocking.Remedies(s)...)
	}
	for i := range s.Holders {
		if s.Holders[i].NodeID == target {
			continue
		}
		if _, st, held := s.Alone(s.Holders[i]); held && !st.Gone() {
			d.Unblock = append(d.Unblock, st.Remedies(s)...)
		}
	}
	return d
}

// waits tells whether Kubernetes asks for the volume there, and has not got it yet.
func waits(h *fence.Holder) bool {
	a := h.Attachment
	return a != nil && !a.Attached && a.DeletedAt.IsZero() && !h.State.Pending()
}

// MerelyWaits tells whether a holder waits and nothing says that it ever got it. Its kubelet says "in use"
// all the same: it does before the volume comes.
func MerelyWaits(h *fence.Holder) bool {
	listed := h.Node != nil && h.Node.ListedAttached
	return waits(h) && (h.State == fence.NotInLedger || h.State == fence.TakenOver) && !listed && !h.From(fence.FromDriver)
}
