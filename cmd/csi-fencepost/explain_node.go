package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// A nodeExplanation is the output of `explain node`; its JSON is stable as an
// explanation's is.
type nodeExplanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	nodeStatus
	NodeUID string        `json:"nodeUID,omitempty"`
	BootID  string        `json:"bootID,omitempty"`
	Volumes []holdingView `json:"volumes"`
	Notes   []string      `json:"notes"`
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
	// Older: another machine than the one that has the name now.
	Older bool `json:"older"`
}

// node explains which volumes a node holds, and what is known of it.
func (x *explaining) node(ctx context.Context) (*nodeExplanation, error) {
	now, err := readNode(ctx, x.c.client, x.name)
	if err != nil {
		return nil, err
	}
	held, err := readHoldings(ctx, x.c.client, now)
	if err != nil {
		return nil, err
	}
	r, err := x.c.records().Get(ctx, x.name)
	if err == nil && now.node == nil && r == nil && len(held.all) == 0 {
		return nil, fmt.Errorf("nothing is known of a node %s%s", x.name, didYouMean(x.name, slices.Compact(slices.Sorted(slices.Values(held.nodes)))))
	}
	e := &nodeExplanation{APIVersion: config.APIVersion, Kind: "NodeExplanation", NodeUID: now.uid(), BootID: now.bootID(),
		nodeStatus: nodeStatus{Node: x.name, Liveness: now.liveness(), Record: recordWords(r), Agents: []readingView{}},
		Volumes:    []holdingView{}, Notes: []string{}}
	if err != nil {
		e.Notes = append(e.Notes, err.Error())
	}
	for _, h := range held.all {
		e.Volumes = append(e.Volumes, viewHolding(h, now))
	}
	slices.SortFunc(e.Volumes, func(a, b holdingView) int { return strings.Compare(a.PV, b.PV) })
	for _, pv := range held.garbled {
		e.Notes = append(e.Notes, "The ledger of PersistentVolume "+pv+" cannot be read, so it may be missing here: csi-fencepost explain pv "+shellQuote(pv))
	}
	if x.asked != nil {
		e.Agents = x.asked.read(ctx, machineOf(x.name, now.node, now.nodeID(x.asked.driver)))
		e.Notes = append(e.Notes, x.agentNotes()...)
	}
	return e, nil
}

func viewHolding(h holding, now *nodeNow) holdingView {
	v := holdingView{PV: h.pv, Claim: h.claim, Driver: h.driver, NodeID: h.nodeID, State: string(h.state), Older: now.isOlder(h)}
	switch {
	case h.waiting:
		v.State = "waiting"
	case v.State == "":
		v.State = "attached"
	}
	return v
}

func printNode(w io.Writer, e *nodeExplanation, style textStyle) {
	p := &printer{w: w, textStyle: style}
	p.field(0, "Node", e.Node)
	p.field(0, "Liveness", e.Liveness)
	if e.NodeUID != "" {
		p.field(0, "Machine", "node UID "+e.NodeUID+", boot ID "+orNone(e.BootID))
	}
	p.field(0, "Record", orNone(e.Record))
	p.readings(0, e.Agents)
	p.blank()
	if len(e.Volumes) == 0 {
		p.heading(bold, "It holds no volume that csi-fencepost knows of.")
	} else {
		rows := make([][]string, len(e.Volumes))
		for i, v := range e.Volumes {
			state := v.State
			if v.Older {
				state += ", on an older machine of that name"
			}
			rows[i] = []string{v.PV, orDash(v.Claim), v.Driver, v.NodeID, state}
		}
		newTables(w).print([]string{"VOLUME", "CLAIM", "DRIVER", "NODE ID", "STATE"}, rows)
		p.blank()
		p.paragraph(0, 2, "What stands in the way of one of them: csi-fencepost explain pv NAME")
	}
	for _, note := range e.Notes {
		p.paragraph(0, 2, "* "+note)
	}
}
