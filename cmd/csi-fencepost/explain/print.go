package explain

import (
	"fmt"
	"io"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence"
)

// A page is what is printed of a volume or a node.
type page struct{ *cli.Printer }

// printExplanation writes an explanation for a person to read.
func printExplanation(w io.Writer, e *explanation, style cli.Style) {
	p := &page{cli.NewPrinter(w, style)}
	p.volume(e)
	for i := range e.Holders {
		p.Blank()
		p.holder(&e.Holders[i])
	}
	if len(e.Holders) == 0 {
		p.Blank()
		p.Heading(cli.Bold, "No node holds it.")
	}
	p.decisions(e)
	if len(e.Notes) > 0 || len(e.MissingRights) > 0 {
		p.Blank()
	}
	for _, right := range e.MissingRights {
		p.Paragraph(0, 2, "! Missing right: "+right)
	}
	for _, note := range e.Notes {
		p.Paragraph(0, 2, "* "+note)
	}
}

func (p *page) volume(e *explanation) {
	v := &e.Volume
	name := strings.Join(v.PersistentVolumes, ", ")
	if v.Claim != "" {
		name += " (claim " + v.Claim + ")"
	}
	p.Field(0, "Volume", name)
	p.Field(0, "Driver", v.Driver)
	p.Field(0, "Handle", v.Handle)
	guard := "guarded"
	if !v.Guarded {
		guard = "not guarded"
	}
	p.Field(0, "Writers", fmt.Sprintf("%s (%s): %s", v.Writers, strings.Join(v.AccessModes, ", "), guard))
	p.Field(0, "Ledger", ledgerWords(&e.Ledger))
	for _, aside := range e.Ledger.SetAside {
		p.Field(0, "", aside)
	}
}

func ledgerWords(l *ledgerView) string {
	switch l.State {
	case "garbled":
		return "GARBLED: " + l.Problem + ". To mend it: " + l.Mend
	case "missing":
		return "none yet: it is written at the next attach or detach"
	}
	if l.WrittenAt != "" {
		return "on PersistentVolume " + l.PV + ", last written " + cli.Ago(l.age)
	}
	return "on PersistentVolume " + l.PV
}

func (p *page) holder(h *holderView) {
	name := (&fence.Holder{NodeID: h.NodeID, NodeName: h.Node}).Describe()
	color := cli.Green
	if h.MayWrite {
		color = cli.Yellow
	}
	p.Heading(color, cli.UpperFirst(name)+" "+h.Why)
	var sources []string
	for _, s := range h.Sources {
		sources = append(sources, string(s))
	}
	p.Field(2, "named by", strings.Join(sources, ", "))
	if h.Ledger != nil {
		p.Field(2, "ledger", EntryWords(h.Ledger))
	}
	p.Field(2, "machine", machineWords(&h.Machine, h.Node))
	if h.InUse != nil {
		p.Field(2, "volume", fmt.Sprintf("%s by its kubelet (volumesInUse), %s by Kubernetes (volumesAttached)", cli.Either(*h.InUse, "in use", "not in use"), cli.Either(*h.ListedAttached, "listed attached", "not listed attached")))
	}
	if a := h.Attachment; a != nil {
		p.Field(2, "attachment", attachmentWords(a))
	}
	p.Field(2, "liveness", livenessWords(&h.Liveness))
	for i := range h.Evidence {
		label := ""
		if i == 0 {
			label = "evidence"
		}
		p.Field(2, label, evidenceWords(&h.Evidence[i]))
	}
	if len(h.Evidence) == 0 && h.MayWrite {
		p.Field(2, "evidence", "none was asked for or found that it is fenced")
	}
	if h.Record != "" {
		p.Field(2, "record", h.Record)
	}
	p.readings(2, h.Agents)
}

// EntryWords are a ledger entry's state, in words.
func EntryWords(e *EntryView) string {
	if e.Contested {
		return string(e.State) + ", contested (its kubelet's silence is not believed)"
	}
	return string(e.State)
}

// readings are what fence agents read.
func (p *page) readings(indent int, agents []cluster.ReadingView) {
	for i := range agents {
		label := ""
		if i == 0 {
			label = "fence agents"
		}
		a := &agents[i]
		p.Field(indent, label, fmt.Sprintf("%s (level %d) reads %s, in %s: %s", a.Agent, a.Level, a.State, a.Took, a.Words()))
	}
}

func machineWords(m *machineView, node string) string {
	switch m.State {
	case "same":
		if m.BootID == "" || m.LiveBootID == "" {
			return fmt.Sprintf("the same (node UID %s); no boot ID to compare", m.NodeUID)
		}
		return fmt.Sprintf("the same, not rebooted (node UID %s, boot ID %s)", m.NodeUID, m.BootID)
	case "rebooted":
		return fmt.Sprintf("rebooted since: boot ID %s now, %s when it got the volume (node UID %s)", m.LiveBootID, m.BootID, m.NodeUID)
	case "replaced":
		if m.perhaps {
			return fmt.Sprintf("perhaps not the one that is called %s now and has its Node (node UID %s): boot ID %s, and the live one has %s; no system UUID of its own tells", node, m.NodeUID, cli.OrNone(m.BootID), cli.OrNone(m.LiveBootID))
		}
		if m.NodeUID == m.LiveNodeUID {
			return fmt.Sprintf("not the one that is called %s now, which has taken over its Node (node UID %s): boot ID %s, and the live one has %s", node, m.NodeUID, cli.OrNone(m.BootID), cli.OrNone(m.LiveBootID))
		}
		return fmt.Sprintf("not the one that is called %s now: node UID %s, and the live Node has %s", node, m.NodeUID, m.LiveNodeUID)
	case "gone":
		if m.NodeUID == "" {
			return fmt.Sprintf("gone: there is no Node %s any more", node)
		}
		return fmt.Sprintf("gone: there is no Node %s any more (node UID was %s, boot ID %s)", node, m.NodeUID, cli.OrNone(m.BootID))
	case "unreadable":
		return "could not be read"
	}
	if m.LiveNodeUID != "" {
		return fmt.Sprintf("not known: nothing says that it is today's Node %s (node UID %s)", node, m.LiveNodeUID)
	}
	return "not known"
}

func attachmentWords(a *attachmentView) string {
	s := cli.Either(a.Attached, "attached", "not attached")
	if a.DeletedAt != "" {
		s += ", being deleted since " + a.DeletedAt
	}
	if a.CreatedAt != "" {
		s += ", asked for " + cli.Ago(a.age)
	}
	s += ": " + a.Name
	switch {
	case strings.Contains(a.Error, fence.Mark):
		s += "; refused last " + cli.Ago(a.failed)
	case a.Error != "":
		s += "; failed last " + cli.Ago(a.failed) + ": " + clippedTo(a.Error, 300)
	}
	return s
}

func clippedTo(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func livenessWords(l *livenessView) string {
	s := map[string]string{
		"alive":      "alive: its lease was seen to change",
		"stale":      "stale: its lease was watched and did not change",
		"unknown":    "unknown: it has no Node or lease of its own",
		"unwatched":  "not watched",
		"unreadable": "could not be read",
	}[l.State]
	if l.State == "alive" && l.noLease {
		s = "alive: its Node is Ready, and it has no lease yet"
	}
	if l.NotReadySince != "" {
		s += "; its Node turned NotReady " + cli.Ago(l.notReady)
	}
	if l.LeaseRenewedAt != "" {
		s += fmt.Sprintf("; by the node's own clock it renewed its lease %s", cli.Ago(l.leaseAge))
	}
	return s
}

func evidenceWords(e *evidenceView) string {
	s := string(e.Kind)
	if e.Source != "" {
		s += " by " + e.Source
		if e.Kind == fence.OutOfServiceTaint || e.Kind == fence.CloudShutdownTaint {
			s = string(e.Kind) + " with value " + e.Source
		}
	}
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	reading := e.Kind == fence.PowerReading || e.Kind == fence.StorageFence
	switch {
	case e.From == "agent":
		s += ", asked just now"
	case e.From == "record" && reading:
		s += ", read " + e.age + " and kept in the node's record; not asked again"
	case e.From == "record":
		s += ", " + e.age
	}
	switch {
	case e.Against:
		s += ": reads the machine as running"
	case e.Counts:
		s += ": counts"
	default:
		s += ": does not count"
	}
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

func (p *page) decisions(e *explanation) {
	for i := range e.Waiting {
		w := &e.Waiting[i]
		p.Blank()
		p.Heading(cli.Bold, "Waiting: "+(&fence.Holder{NodeID: w.NodeID, NodeName: w.Node}).Describe())
		p.Field(2, "attachment", attachmentWords(w.Attachment))
		p.Blank()
		p.cases("The publish to node "+w.Node+" now", &w.Decision, w.IfAlive, w.IfSilent)
	}
	if len(e.Waiting) == 0 {
		p.Blank()
		p.cases("A publish to another node now", &e.Decision, e.IfAlive, e.IfSilent)
	}
}

func (p *page) cases(what string, d, ifAlive, ifSilent *decisionView) {
	p.decision(what, d)
	if ifAlive != nil {
		p.Blank()
		p.decision("If alive", ifAlive)
		p.Blank()
		p.decision("If silent", ifSilent)
	}
}

func (p *page) decision(what string, d *decisionView) {
	word, color := map[string]string{"allow": "ALLOWED", "refuse": "REFUSED", "wait": "MUST WAIT", "pass": "PASSED THROUGH", "depends": "DEPENDS", "unknown": "CANNOT BE TOLD"}[d.Action], cli.Yellow
	switch d.Action {
	case "allow", "pass":
		color = cli.Green
	case "refuse", "wait":
		color = cli.Red
	}
	head := what + ": " + word
	if d.Reason != "" && d.Action != "depends" {
		head += " [" + string(d.Reason) + "]"
	}
	p.Heading(color, head)
	p.Paragraph(2, 0, cli.UpperFirst(d.Why)+".")
	for i := range d.Unblock {
		if i == 0 {
			p.Paragraph(2, 0, "To unblock it:")
		}
		p.remedy(&d.Unblock[i])
	}
}

// remedy prints commands whole: a wrapped one cannot be pasted.
func (p *page) remedy(r *fence.Remedy) {
	end := "."
	if len(r.Commands) > 0 {
		end = ":"
	}
	p.Paragraph(2, 2, "- "+r.What+end)
	for _, c := range r.Commands {
		fmt.Fprintf(p.W, "      %s\n", c)
	}
}
