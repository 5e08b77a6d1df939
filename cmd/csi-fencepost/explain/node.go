package explain

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// A nodeExplanation is the output of `explain node`; its JSON is stable as an
// explanation's is.
type nodeExplanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	cluster.NodeStatus
	NodeUID string `json:"nodeUID,omitempty"`
	BootID  string `json:"bootID,omitempty"`
	// Evidence that its record keeps, of the machine that has the name now.
	Evidence []evidenceView `json:"evidence"`
	Volumes  []holdingView  `json:"volumes"`
	// MissingRights, as "verb resource": what this look could not see.
	MissingRights []string `json:"missingRights"`
	Notes         []string `json:"notes"`
}

// A holdingView is a volume that a machine of the node's name may hold.
type holdingView struct {
	PV     string `json:"persistentVolume"`
	Claim  string `json:"claim,omitempty"`
	Driver string `json:"driver"`
	NodeID string `json:"nodeID"`
	// State of the ledger's entry; waiting: it is asked for there; attached:
	// the ledger does not have it.
	State string `json:"state"`
	// Older tells that it is another machine than the one that has the name now.
	Older bool `json:"older"`
}

// node explains which volumes a node holds, and what is known of it. It reads
// on where a right is missing, and names it.
func (x *explaining) node(ctx context.Context) (*nodeExplanation, error) {
	client := &forgiving{Interface: x.c.Client}
	now, err := cluster.ReadNode(ctx, client, x.name)
	if err != nil {
		return nil, err
	}
	held, err := x.holdings(ctx, client, now)
	if err != nil {
		return nil, err
	}
	r, err := record.NewStore(client.CoordinationV1(), x.c.Config.Fencing.Namespace).Get(ctx, x.name)
	if err == nil && now.Node == nil && r == nil && len(held.All) == 0 && len(client.denied) == 0 {
		return nil, x.noNode(ctx, held)
	}
	e := &nodeExplanation{APIVersion: config.APIVersion, Kind: "NodeExplanation", NodeUID: now.UID(), BootID: now.BootID(),
		NodeStatus: cluster.NodeStatus{Node: x.name, Liveness: now.Liveness(), Record: cluster.RecordWords(r), Agents: []cluster.ReadingView{}},
		Volumes:    []holdingView{}, Evidence: []evidenceView{}, MissingRights: append([]string{}, client.denied...), Notes: []string{}}
	if !client.may("get nodes") {
		e.Liveness = "could not be read"
	}
	if err != nil {
		e.Notes = append(e.Notes, err.Error())
	}
	if client.noIdentity {
		e.Notes = append(e.Notes, "The identity of the cluster could not be read (missing right: get namespaces kube-system): whether the ledgers were written in this cluster was not checked.")
	}
	e.Evidence = append(e.Evidence, NodeEvidence(r, now)...)
	for _, h := range held.All {
		e.Volumes = append(e.Volumes, viewHolding(h, now))
	}
	slices.SortFunc(e.Volumes, func(a, b holdingView) int { return strings.Compare(a.PV, b.PV) })
	for _, pv := range held.Garbled {
		e.Notes = append(e.Notes, "The ledger of PersistentVolume "+pv+" cannot be read, so it may be missing here: csi-fencepost explain pv "+printable.Word(pv))
	}
	if x.asked != nil {
		e.Agents = cluster.ReadAgents(ctx, x.asked, x.c.Doubted(ctx, x.asked, cluster.MachineOf(x.name, now.Node, now.NodeID(x.asked.Driver))))
		e.Notes = append(e.Notes, x.agentNotes()...)
	}
	return e, nil
}

// holdings is readHoldings with what may be read. Where the cluster's identity
// may not, every ledger is taken to be of this one.
func (x *explaining) holdings(ctx context.Context, client *forgiving, now *cluster.Node) (*cluster.Holdings, error) {
	uid, err := cluster.Identity(ctx, x.c.Client)
	switch {
	case apierrors.IsForbidden(err):
		client.noIdentity = true
	case err != nil:
		return nil, err
	}
	return cluster.ListHoldings(ctx, client, now, func(pv *corev1.PersistentVolume) string {
		if l, err := ledger.Parse(pv.Annotations[ledger.Annotation]); err == nil && client.noIdentity {
			return l.Cluster
		}
		return uid
	})
}

// noNode names the nodes that come nearest, those that only a ledger names too.
func (x *explaining) noNode(ctx context.Context, held *cluster.Holdings) error {
	names := slices.Clone(held.Nodes)
	list, err := x.c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return fmt.Errorf("nothing is known of a node %s%s", x.name, cli.DidYouMean(x.name, slices.Compact(names)))
}

// NodeEvidence is what the record keeps of the live Node's machine, judged as
// the sidecar does for a volume that the node uses, if it is silent.
func NodeEvidence(r *record.Record, now *cluster.Node) []evidenceView {
	if r == nil || now.Node == nil {
		return nil
	}
	m := fence.MachineOf(now.Node)
	live := m.Live()
	m.NodeID = "any" // of one without an ID nothing is unpublished
	h := fence.User(m, live, fence.Stale, now.LeaseRV())
	found := readingsOn(r, &h, time.Now())
	for i := range r.Fences {
		if f := &r.Fences[i]; f.Standing() {
			e := fence.Evidence{Kind: f.Kind, Source: strings.Join(f.Agents, ", "), Detail: f.What,
				NodeUID: f.Machine.NodeUID, BootID: f.Machine.BootID, SystemUUID: f.Machine.SystemUUID, LeaseRV: f.Machine.LeaseRV, Void: r.Doubt(f)}
			found = append(found, e)
		}
	}
	for _, c := range r.Confirmations {
		for _, m := range c.Machines {
			e := fence.Evidence{Kind: fence.OperatorConfirmation, Source: c.By, Detail: c.Reason, NodeUID: m.NodeUID, BootID: m.BootID, SystemUUID: m.SystemUUID, LeaseRV: m.LeaseRV, Void: r.Doubt(c.Of(&m))}
			found = append(found, e)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Taints)) {
		b, kind := r.Taints[key], fence.CloudShutdownTaint
		if key == corev1.TaintNodeOutOfService {
			kind = fence.OutOfServiceTaint
		}
		if b.NodeUID == now.UID() {
			found = append(found, fence.Evidence{Kind: kind, Source: b.Value, Detail: b.Wrote(), NodeUID: b.NodeUID, BootID: b.BootID, SystemUUID: b.SystemUUID, LeaseRV: b.LeaseRV, Void: b.Void})
		}
	}
	views := make([]evidenceView, len(found))
	for i := range found {
		views[i] = viewEvidence(&fence.Snapshot{}, h, found[i])
		if views[i].Since = evidenceSince(r, &found[i]); views[i].Since != "" {
			views[i].From, views[i].age = "record", sinceWords(views[i].Since, time.Now())
		}
	}
	return views
}

// Get is forgiven its rights, as List is.
func (c forgivingCSINodes) Get(ctx context.Context, name string, o metav1.GetOptions) (*storagev1.CSINode, error) {
	n, err := c.CSINodeInterface.Get(ctx, name, o)
	return n, c.f.forgive("get", "csinodes", "", name, err)
}

func viewHolding(h cluster.Holding, now *cluster.Node) holdingView {
	v := holdingView{PV: h.PV, Claim: h.Claim, Driver: h.Driver, NodeID: h.NodeID, State: string(h.State), Older: now.IsOlder(h)}
	switch {
	case h.Waiting:
		v.State = "waiting"
	case v.State == "":
		v.State = "attached"
	}
	return v
}

func printNode(w io.Writer, e *nodeExplanation, style cli.Style) {
	p := &page{cli.NewPrinter(w, style)}
	p.Field(0, "Node", e.Node)
	p.Field(0, "Liveness", e.Liveness)
	if e.NodeUID != "" {
		p.Field(0, "Machine", "node UID "+e.NodeUID+", boot ID "+cli.OrNone(e.BootID))
	}
	p.Field(0, "Record", cli.OrNone(e.Record))
	p.readings(0, e.Agents)
	for i := range e.Evidence {
		p.Field(0, cli.Either(i == 0, "Evidence", ""), evidenceWords(&e.Evidence[i]))
	}
	p.Blank()
	if len(e.Volumes) == 0 {
		p.Heading(cli.Bold, "It holds no volume that csi-fencepost knows of.")
	} else {
		rows := make([][]string, len(e.Volumes))
		for i, v := range e.Volumes {
			state := v.State
			if v.Older {
				state += ", on an older machine of that name"
			}
			rows[i] = []string{v.PV, cli.OrDash(v.Claim), v.Driver, v.NodeID, state}
		}
		cli.NewTables(w).Print([]string{"VOLUME", "CLAIM", "DRIVER", "NODE ID", "STATE"}, rows)
		p.Blank()
		p.Paragraph(0, 2, "What stands in the way of one of them: csi-fencepost explain pv NAME")
	}
	for _, right := range e.MissingRights {
		p.Paragraph(0, 2, "! Missing right: "+right)
	}
	for _, note := range e.Notes {
		p.Paragraph(0, 2, "* "+note)
	}
}
