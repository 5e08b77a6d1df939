package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// A place is a driver on a node.
type place struct{ driver, node string }

// holdings are which single-writer volumes are where, and how many pods that move use them.
type holdings struct {
	pvs     map[place]map[string]bool
	pods    map[place]int
	total   map[string]int // volumes by driver
	garbled []string       // PVs whose ledger cannot be read
}

// held counts once what the ledgers, the VolumeAttachments and the pods say.
func (f *facts) held() *holdings {
	h := &holdings{map[place]map[string]bool{}, map[place]int{}, map[string]int{}, nil}
	guarded, claims := map[string]string{}, map[string]string{} // the driver by PV, by claim
	add := func(driver, node, pv string) {
		at := place{driver, node}
		if h.pvs[at] == nil {
			h.pvs[at] = map[string]bool{}
		}
		h.pvs[at][pv] = true
	}
	for _, pv := range f.pvs {
		driver := explain.DriverOf(pv)
		if driver == "" || !(&csi.Identity{Driver: driver}).PVWriters(pv).Guarded() {
			continue
		}
		guarded[pv.Name] = driver
		h.total[driver]++
		if claim := cluster.ClaimOf(pv); claim != "" {
			claims[claim] = driver
		}
		text, there := pv.Annotations[ledger.Annotation]
		if !there {
			continue
		}
		l, err := ledger.Parse(text)
		switch {
		case err != nil:
			h.garbled = append(h.garbled, pv.Name)
		case l.PVUID == string(pv.UID) && (l.Cluster == f.uid || f.uid == ""):
			for _, e := range l.Holders {
				if e.State != fence.TakenOver && e.NodeName != "" {
					add(driver, e.NodeName, pv.Name)
				}
			}
		}
	}
	for _, va := range f.attachments {
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil && va.Status.Attached && guarded[*pv] != "" {
			add(guarded[*pv], va.Spec.NodeName, *pv)
		}
	}
	for _, u := range f.users {
		of := map[string]bool{}
		for _, claim := range u.claims {
			of[claims[claim]] = true
			u.stays = u.stays || f.kept[claim]
		}
		for driver := range of {
			if !u.stays {
				h.pods[place{driver, u.node}]++
			}
		}
	}
	return h
}

// lookAtNodes says what would happen to each driver's volumes on each node, and puts nodes alike
// together; only: of that node alone.
func (d *doctoring) lookAtNodes(only string) {
	shared := map[string]int{}
	for _, n := range d.nodes {
		shared[fence.SystemKey(n.Status.NodeInfo.SystemUUID)]++
	}
	for i := range d.Drivers {
		v, alike := &d.Drivers[i], map[string]*Fate{}
		var fates []*Fate
		for _, name := range sorted(d.nodes) {
			n, at := d.nodes[name], place{v.Name, name}
			id, held := d.ids[name][v.Name], d.holdings.pvs[at]
			if only != "" && name != only || id == "" && len(held) == 0 {
				continue
			}
			one := d.fateOf(v, n, id, shared[fence.SystemKey(n.Status.NodeInfo.SystemUUID)] > 1)
			key := masked(one.What+"\n"+one.Next, name)
			f := alike[key]
			if f == nil {
				f = &one
				alike[key], fates, f.Driver, f.first = f, append(fates, f), v.Name, name
			}
			f.Nodes, f.Volumes, f.Pods = append(f.Nodes, name), f.Volumes+len(held), f.Pods+d.holdings.pods[at]
			if only != "" {
				f.PVs = sorted(held)
			}
		}
		slices.SortStableFunc(fates, func(a, b *Fate) int {
			return cmp.Or(a.Outcome.rank()-b.Outcome.rank(), len(b.Nodes)-len(a.Nodes))
		})
		for _, f := range fates {
			if slices.SortFunc(f.Nodes, byNumber); len(f.Nodes) > 1 {
				f.What, f.Next = masked(f.What, f.first), masked(f.Next, f.first)
			}
			if f.Outcome == Waits {
				d.add(LookAt, v.Name, fmt.Sprintf("on %s (%s), were it to die, %s", cli.Count(len(f.Nodes), "node"), few(f.Nodes), f.What), f.Next)
			}
			d.Fates = append(d.Fates, *f)
		}
	}
}

// byNumber has n9 before n10.
func byNumber(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }

// rank of what needs a person most.
func (o Outcome) rank() int {
	return slices.Index([]Outcome{NotGuarded, Waits, Braked, Asked, Forwarded, Revoked, Fenced}, o)
}

// masked has NODE where the node's name stands as a word, so that what is said of two nodes is the
// same.
func masked(text, node string) string {
	if !strings.Contains(text, node) {
		return text
	}
	return regexp.MustCompile(`(^|[\s'"])`+regexp.QuoteMeta(node)+`($|[\s'",;:])`).ReplaceAllString(text, "${1}NODE${2}")
}

// fateOf is what would become of a driver's volumes on a node that fell silent now and stayed so.
func (d *doctoring) fateOf(v *Driver, n *corev1.Node, id string, shared bool) Fate {
	own := d.own[v.Name]
	const alone = "Kubernetes takes its volumes after 6 minutes, and nobody asks whether it still writes"
	switch {
	case v.Guarded == "unknown":
		return Fate{Outcome: NotGuarded, What: "not known: no external-attacher of the driver was seen"}
	case own == nil || v.Guarded != "yes":
		return Fate{Outcome: NotGuarded, What: alone}
	case own.config.Mode == config.Observe:
		return Fate{Outcome: NotGuarded, What: alone + " (mode Observe only reports it)"}
	}
	if n.UID == "" { // only ledgers and VolumeAttachments name it
		brake, words := failover.OfNode(nil, false, false, "")
		return Fate{Outcome: Waits, Brake: brake, What: words, Next: confirmation(n.Name)}
	}
	m := fence.MachineOf(n)
	m.NodeID, m.SystemShared = id, shared
	h := fence.User(m, m.Live(), fence.Stale, "a lease")
	why, _ := h.Unprovable()
	if _, st, _ := (fence.Snapshot{Policy: own.config.Policy()}).Alone(h); st.Gone() {
		return Fate{Outcome: Revoked, What: "its volumes move once Kubernetes detaches them: the driver cuts off whom it unpublishes"}
	}
	waits := Fate{Outcome: Waits, What: "its volumes wait for a person: no fence agent covers it", Next: confirmation(n.Name)}
	processes := []*process{own}
	if own.config.Fencing.Apart {
		if d.apart == nil {
			waits.What = "its volumes wait for a person: csi-fencepost failover, which has the fence agents, was not seen"
		} else {
			processes = append(processes, d.apart)
		}
	}
	moves := slices.ContainsFunc(processes, func(p *process) bool { return p.config.Failover.Enabled }) && !failover.OptedOut(n.Annotations)
	then := cli.Either(moves, "its pods move", "its volumes may move, its pods wait for a person")
	for _, p := range processes {
		if p.fencer.Covers(n.Name) {
			return d.fenced(p, n, id, shared, why != "", then)
		}
	}
	switch {
	case own.config.Unpublish.Unfenced == config.Forward:
		return Fate{Outcome: Forwarded, What: "Kubernetes takes its volumes after 6 minutes, fenced or not (unpublish.unfenced: Forward)"}
	case why != "":
		waits.What += ", and no proof could count: " + why
	}
	return waits
}

// confirmation is how a person says that a node is off.
func confirmation(node string) string {
	return "csi-fencepost fence confirm " + printable.Word(node) + " --reason 'WHY YOU ARE SURE'"
}

// fenced is the fate of a node that agents of the process cover.
func (d *doctoring) fenced(p *process, n *corev1.Node, id string, shared, unprovable bool, then string) Fate {
	m := cluster.MachineOf(n.Name, n, id)
	if p.fencer.Seeks(n.Name) {
		m.Doubts = fencer.Doubts(d.records[n.Name], p.driver, m, false, false)
	}
	storage := p.fencer.StorageOnly(n.Name) || unprovable && p.fencer.CoversStorage(n.Name)
	withheld := ""
	if !storage {
		withheld = p.fencer.Levels.Withheld(m)
	}
	brake, words := failover.OfNode(n, shared, storage, withheld)
	agents, after, next := p.fencer.Agents(n.Name), p.config.Fencing.FenceAfter, confirmation(n.Name)
	switch {
	case brake == failover.BrakeNoProof:
		return Fate{Outcome: Waits, Brake: brake, What: "its volumes wait for a person: " + words, Next: next}
	case brake != failover.NoBrake:
		return Fate{Outcome: Braked, Brake: brake, What: fmt.Sprintf("%s asked; if it is off, its volumes may move; if it is on, it stays on and a person is waited for: %s", agents, words), Next: next}
	case after.Duration == 0:
		return Fate{Outcome: Asked, What: fmt.Sprintf("%s asked; if it is off, %s; if it is on, a person is waited for (no fenceAfter)", agents, then), Next: next}
	}
	silent := after.String()
	if whole, is := strings.CutSuffix(silent, "m0s"); is {
		silent = whole + "m"
	}
	return Fate{Outcome: Fenced, What: fmt.Sprintf("%s by %s after %s of silence; then %s", cli.Either(storage, "cut off from the storage", "turned off"), agents, silent, then)}
}

// lookAtState finds what is wrong with nodes, records and ledgers now.
func (d *doctoring) lookAtState() {
	silent, gone, volumes, lost := map[string]bool{}, map[string]bool{}, 0, 0
	for at, pvs := range d.holdings.pvs {
		switch n := d.nodes[at.node]; {
		case n == nil && d.sees("nodes"):
			gone[at.node], lost = true, lost+len(pvs)
		case n != nil && !fence.NodeReady(n):
			silent[at.node], volumes = true, volumes+len(pvs)
		}
	}
	hold := func(nodes map[string]bool, what string, volumes int) {
		if names := sorted(nodes); len(names) > 0 {
			d.add(LookAt, "nodes", fmt.Sprintf("%s, and they hold %s: %s", what, cli.Count(volumes, "volume"), few(names)), "csi-fencepost explain node "+printable.Word(names[0]))
		}
	}
	hold(silent, "not Ready", volumes)
	hold(gone, "no Node any more", lost)
	var unvouched []string
	for _, name := range sorted(d.records) {
		r := d.records[name]
		doubted := slices.ContainsFunc(r.Confirmations, func(c record.Confirmation) bool {
			return slices.ContainsFunc(c.Machines, func(m record.Machine) bool {
				return r.Doubt(c.Of(&m)) == fence.VoidUnclaimed
			})
		})
		for i := range r.Fences {
			doubted = doubted || r.Fences[i].Standing() && r.Doubt(&r.Fences[i]) == fence.VoidUnvouched
		}
		if doubted {
			unvouched = append(unvouched, name)
		}
	}
	if len(unvouched) > 0 {
		d.add(LookAt, "records", "nobody who may vouches for a fence or a confirmation, so that it proves nothing: "+few(unvouched), "csi-fencepost fence status "+printable.Word(unvouched[0]))
	}
	for _, g := range d.garbled {
		d.add(Broken, "records", g.Error(), "csi-fencepost fence status "+printable.Word(g.Node))
	}
	if pvs := d.holdings.garbled; len(pvs) > 0 {
		slices.Sort(pvs)
		d.add(Broken, "ledgers", "cannot be read, so that their volumes wait: "+few(pvs), "csi-fencepost ledger repair "+printable.Word(pvs[0]))
	}
	for _, name := range append(sorted(d.own), "") {
		p := cmp.Or(d.own[name], d.apart)
		if p == nil || !d.sees("nodes") {
			continue
		}
		strange := slices.DeleteFunc(cluster.Configured(p.config), func(node string) bool { return d.nodes[node] != nil })
		if len(strange) > 0 {
			d.add(LookAt, cmp.Or(p.driver, failoverName), "its fence agents are configured for nodes that do not exist: "+few(strange), "kubectl get nodes")
		}
	}
}

// few names of many.
func few(names []string) string {
	const shown = 3
	if len(names) <= shown+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
