package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

// maxWas is how much of the text that stood there is kept: a ledger of eight
// holders has half of it.
const maxWas = 4 << 10

const ledgerRepairHelp = `csi-fencepost ledger repair PV... rebuilds the ledger of these volumes, where it cannot be read, or lacks a node that
Kubernetes has the volume attached to. It is made from what VolumeAttachments and Nodes say, and from what can still be
read of it: a node that any of them names is kept as a holder. It shows what it would write, and writes it with --yes.
The driver's own list of published nodes cannot be asked here: the sidecar asks it at the next attach or detach. A ledger
that is set aside, because it is of another cluster or of another object, needs no repair: the sidecar writes a new one.`

type repairFlags struct {
	cluster          cluster.Flags
	yes, dryRun, all bool
	names            []string
}

func parseRepairFlags(args []string) (*repairFlags, error) {
	f, fs := &repairFlags{}, cli.NewFlags("ledger repair", ledgerRepairHelp)
	fs.BoolVar(&f.dryRun, "dry-run", true, "Show what would be written, and write nothing. --yes ends it.")
	fs.BoolVar(&f.yes, "yes", false, "Write it.")
	fs.BoolVar(&f.all, "all", false, "Every volume whose ledger cannot be read.")
	f.cluster.Register(fs)
	err := fs.Parse(args)
	f.names = fs.Args()
	switch {
	case err != nil:
		return nil, err
	case f.all == (len(f.names) > 0):
		return nil, fs.Wrong("name the PersistentVolumes, or give --all: csi-fencepost ledger repair PV")
	case f.yes && fs.Changed("dry-run") && f.dryRun:
		return nil, fs.Wrong("--yes writes, and --dry-run does not: take one of them off")
	case !f.yes && !f.dryRun:
		return nil, fs.Wrong("--dry-run=false writes nothing by itself: give --yes")
	}
	return f, nil
}

// runLedgerRepair is `csi-fencepost ledger repair`.
func runLedgerRepair(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parseRepairFlags(args)
	if err != nil {
		return err
	}
	c, err := f.cluster.Open("ledger repair")
	if err != nil {
		return err
	}
	names := f.names
	if f.all {
		if names, err = damaged(ctx, c); err != nil {
			return err
		}
		if len(names) == 0 {
			fmt.Fprintln(stdout, "Every ledger can be read: there is nothing to repair.")
			return nil
		}
	}
	var failed []error
	for i, name := range names {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		if err := repairOne(ctx, c, name, f.yes, stdout, stderr); err != nil {
			failed = append(failed, err)
		}
	}
	if !f.yes && len(failed) < len(names) {
		fmt.Fprintf(stdout, "\nNothing was written. To write it: csi-fencepost ledger repair %s --yes\n", repairArgs(f))
	}
	return errors.Join(failed...)
}

func repairArgs(f *repairFlags) string {
	if f.all {
		return "--all"
	}
	var words []string
	for _, name := range f.names {
		words = append(words, printable.Word(name))
	}
	return strings.Join(words, " ")
}

// damaged are the PersistentVolumes whose ledger cannot be read, by name. A ledger that
// is set aside is none: the sidecar replaces it, and asks the driver as it does.
func damaged(ctx context.Context, c *cluster.Cluster) ([]string, error) {
	export, err := exportLedgers(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range export.Items {
		if export.Items[i].State == "garbled" {
			names = append(names, export.Items[i].PV)
		}
	}
	return names, nil
}

func repairOne(ctx context.Context, c *cluster.Cluster, name string, yes bool, stdout, stderr io.Writer) error {
	p, err := planRepair(ctx, c, name, stderr)
	if err != nil {
		return err
	}
	p.print(stdout)
	if !yes {
		return nil
	}
	if err := p.write(ctx, c); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Repaired: the ledger of PersistentVolume %s is written, and annotation %s says by whom. The sidecar sees it by itself, and asks the driver for its list at the next attach or detach.\n", p.pvs[0].Name, ledger.RepairedAnnotation)
	return nil
}

// A repair is a ledger as it would be written.
type repair struct {
	look *explain.Look
	// pvs with the volume's handle as they were before the survey, in the order of
	// ledger.Sort. The first is to carry the ledger.
	pvs []*corev1.PersistentVolume
	// why each ledger that is there does not do, in words.
	why  []string
	want *ledger.Ledger
	// origins of the entries, by node ID, for people.
	origins map[string]string
	notes   []string
}

// planRepair is rebuild. It is an error if there is nothing to repair.
func planRepair(ctx context.Context, c *cluster.Cluster, name string, stderr io.Writer) (*repair, error) {
	p, err := rebuild(ctx, c, name, stderr)
	if err == nil && len(p.why) == 0 {
		return nil, p.nothingToRepair(name)
	}
	return p, err
}

// rebuild reads who holds the volume, as the sidecar does, and makes the ledger that
// says so. It is an error if not everything can be seen.
func rebuild(ctx context.Context, c *cluster.Cluster, name string, stderr io.Writer) (*repair, error) {
	// First the texts, which the patch tests, and then the survey: whatever is
	// written after the survey keeps the patch from being applied.
	pvs, err := readVolume(ctx, c, name)
	if err != nil {
		return nil, err
	}
	l, err := explain.LookAt(ctx, c, name, 0, stderr)
	switch {
	case err != nil:
		return nil, err
	case len(l.Denied) > 0:
		return nil, fmt.Errorf("a right is missing to see who holds PersistentVolume %s, and a ledger that lacks a holder lets it be attached twice: %s", name, strings.Join(l.Denied, ", "))
	case l.NoIdentity:
		return nil, fmt.Errorf("a right is missing to tell this cluster from another: get namespaces %s", metav1.NamespaceSystem)
	case !slices.EqualFunc(pvs, l.Survey.Book.PVs, sameLedger):
		return nil, fmt.Errorf("the ledger of PersistentVolume %s has changed meanwhile, and nothing was written: run it again", name)
	}
	p := &repair{look: l, pvs: pvs, want: l.Survey.Book.Ledger.Clone(), origins: map[string]string{}}
	garbled, err := p.garbled()
	if err != nil {
		return nil, err
	}
	p.adopt()
	for _, text := range garbled {
		p.salvage(text)
	}
	p.notes = append(p.notes, l.Survey.Book.SetAside...)
	return p, nil
}

// nothingToRepair says why, and who writes a ledger where there is none.
func (p *repair) nothingToRepair(name string) error {
	switch b := p.look.Survey.Book; {
	case len(b.SetAside) > 0 && b.Missing:
		return fmt.Errorf("%s; there is nothing to repair: at the next attach or detach the sidecar writes a new one by itself, from what VolumeAttachments, Nodes and the driver's own list name", strings.Join(b.SetAside, "; "))
	case b.Missing:
		return fmt.Errorf("PersistentVolume %s has no ledger: it is written at the next attach or detach, from the same sources that a repair has and the driver's own list; there is nothing to repair", name)
	}
	return fmt.Errorf("the ledger of PersistentVolume %s can be read, and names every node that the other sources name: there is nothing to repair; csi-fencepost explain pv %s shows it", name, printable.Word(name))
}

// readVolume reads the PersistentVolumes with the handle of the named one, by
// name, with their ledgers as they stand.
func readVolume(ctx context.Context, c *cluster.Cluster, name string) ([]*corev1.PersistentVolume, error) {
	named, driver, err := explain.FindPV(ctx, c, name)
	if err != nil {
		return nil, err
	}
	ids := &csi.Identity{Driver: driver}
	handle, _ := ids.PVHandle(named)
	all, err := listPVs(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(pv *corev1.PersistentVolume) bool {
		own, ok := ids.PVHandle(pv)
		return !ok || !ids.Same(own, handle)
	})
	ledger.Sort(all)
	return all, nil
}

// sameLedger tells whether the survey saw of that PersistentVolume the text that was read before
// it. A ledger that cannot be read is hidden from a survey: that it is still the same, only the
// patch can tell.
func sameLedger(read, surveyed *corev1.PersistentVolume) bool {
	text, there := read.Annotations[ledger.Annotation]
	if _, wrong := ledger.Parse(text); wrong != nil {
		text, there = "", false
	}
	now, still := surveyed.Annotations[ledger.Annotation]
	return read.Name == surveyed.Name && read.UID == surveyed.UID && there == still && text == now
}

// garbled are the texts that cannot be read and may be what is left of a ledger. It notes
// what is wrong with each text that cannot be read. A text that its PersistentVolume brought
// along is only taken off: whoever made that could name any node in it.
func (p *repair) garbled() (texts []string, err error) {
	for _, pv := range p.pvs {
		text, there := pv.Annotations[ledger.Annotation]
		if !there {
			continue
		}
		_, wrong := ledger.Parse(text)
		g := &ledger.GarbledError{PV: pv.Name, Err: wrong}
		switch {
		case wrong == nil:
		case !ledger.Own(pv, p.look.Survey.Book.Missing):
			p.why = append(p.why, g.Aside())
		case format.IsNewer(wrong):
			return nil, fmt.Errorf("the ledger of PersistentVolume %s was written by a newer csi-fencepost, which can read it: use that one's csi-fencepost ledger repair", pv.Name)
		default:
			texts = append(texts, text)
			p.why = append(p.why, g.Why())
		}
	}
	return texts, nil
}

// adopt adds the holders that only the other sources name, as the sidecar does
// where it finds no ledger.
func (p *repair) adopt() {
	s := p.look.Survey
	for i := range p.want.Holders {
		p.origins[p.want.Holders[i].NodeID] = "named by the ledger that can be read"
	}
	for i := range s.Holders {
		h := &s.Holders[i]
		var sources []string
		for _, from := range h.Sources {
			sources = append(sources, string(from))
		}
		named := strings.Join(sources, ", ")
		switch {
		case h.State != fence.NotInLedger:
			p.origins[h.NodeID] = "named by " + named
		case h.NodeID == "":
			p.notes = append(p.notes, fmt.Sprintf("Node %s is named by %s, and its node ID is not known, so that it cannot stand in the ledger. Those sources go on to name it.", h.NodeName, named))
		case h != s.Holder(h.NodeID):
			p.notes = append(p.notes, fmt.Sprintf("Node %s is named by %s under the node ID of %s, which has that ID's entry. Those sources go on to name it.", h.NodeName, named, s.Holder(h.NodeID).Describe()))
		default:
			p.want.Put(survey.EntryOf(h, fence.Held, s.NewToken()))
			p.origins[h.NodeID] = "named by " + named
			if !s.Book.Missing && !explain.MerelyWaits(h) {
				p.why = append(p.why, fmt.Sprintf("the ledger lacks %s, which %s names", h.Describe(), named))
			}
		}
	}
}

// salvage keeps every node that the text names and no other source does: it may
// have held the volume, and nothing says that it let go. A contest is kept too:
// its kubelet's silence is believed no more than before. A contest whose boot cannot be
// read stays without: with that of the entry, which the node may have left before
// the contest, it would count as ended.
func (p *repair) salvage(text string) {
	for _, e := range readable(text) {
		if there := p.want.Get(e.NodeID); there != nil {
			if there.Contest == nil {
				there.Contest = e.Contest
			}
			continue
		}
		e.State, e.Token = fence.Held, p.look.Survey.NewToken()
		p.want.Put(e)
		p.origins[e.NodeID] = "named only by the ledger that cannot be read: kept, since nothing says that it let go"
	}
}

func (p *repair) print(w io.Writer) {
	out := cli.NewPrinter(w, cli.StyleOf(w))
	l := p.look
	name := p.pvs[0].Name
	if claim := cluster.ClaimOf(l.Pv); claim != "" {
		name += " (claim " + claim + ")"
	}
	out.Heading(cli.Bold, "PersistentVolume "+name+", volume "+l.Survey.Volume+" of driver "+l.Driver)
	for _, why := range p.why {
		out.Paragraph(2, 2, "! "+cli.UpperFirst(why))
	}
	if len(p.want.Holders) == 0 {
		out.Paragraph(2, 2, "Nothing names a node that has it: the ledger would be empty, and any node may get it.")
	} else {
		out.Paragraph(2, 2, "As holders would stand there:")
	}
	for i := range p.want.Holders {
		e := &p.want.Holders[i]
		h := fence.Holder{NodeID: e.NodeID, NodeName: e.NodeName}
		out.Paragraph(2, 2, fmt.Sprintf("- %s, %s; %s", h.Describe(), explain.EntryWords(&explain.EntryView{State: e.State, Contested: e.Contest != nil}), p.origins[e.NodeID]))
	}
	for _, pv := range p.pvs[1:] {
		if p.inTheWay(pv) {
			out.Paragraph(2, 2, "The ledger on PersistentVolume "+pv.Name+", which has the same volume, would be taken off.")
		}
	}
	for _, note := range p.notes {
		out.Paragraph(2, 2, "* "+note)
	}
}

// write puts the ledger in the place of the very texts that were read. The
// first PersistentVolume comes first: while another's garbled text is there, the
// volume's calls are refused.
func (p *repair) write(ctx context.Context, c *cluster.Cluster) error {
	by := cluster.Operator(ctx, c.Client)
	text := p.want.String()
	if _, err := ledger.Parse(text); err != nil {
		return fmt.Errorf("the ledger as it was rebuilt could not be read again, so that nothing was written: %w", err)
	}
	for i, pv := range p.pvs {
		change := map[string]*string{}
		note := ledger.Repair{At: time.Now().UTC().Format(time.RFC3339), By: by, Was: clipped(pv.Annotations[ledger.Annotation])}
		switch {
		case i == 0:
			change[ledger.Annotation], note.Digest = &text, ledger.DigestOf(text)
		case p.inTheWay(pv):
			change[ledger.Annotation] = nil
		default:
			continue
		}
		line, err := json.Marshal(note)
		if err != nil {
			return err
		}
		audit := string(line)
		change[ledger.RepairedAnnotation] = &audit
		if err := exchangeAnnotations(ctx, c, pv, change); err != nil {
			return err
		}
	}
	return nil
}

// inTheWay tells whether that PersistentVolume has a ledger that cannot be read, or one that the
// new one has taken over. A ledger that is set aside is in nobody's way.
func (p *repair) inTheWay(pv *corev1.PersistentVolume) bool {
	text, there := pv.Annotations[ledger.Annotation]
	l, wrong := ledger.Parse(text)
	return there && (wrong != nil || l.Cluster == p.want.Cluster && l.Driver == p.want.Driver && l.PVUID == string(pv.UID))
}

func clipped(text string) string {
	if len(text) > maxWas {
		return strings.ToValidUTF8(text[:maxWas], "") + "…"
	}
	return text
}

// exchangeAnnotations changes annotations (nil: off) of the very object that was read, if
// nothing of it has changed since: neither its ledger, nor that nobody deletes it.
func exchangeAnnotations(ctx context.Context, c *cluster.Cluster, pv *corev1.PersistentVolume, change map[string]*string) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	at := func(key string) string { return "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1") }
	ops := []operation{{"test", "/metadata/uid", string(pv.UID)}, {"test", "/metadata/resourceVersion", pv.ResourceVersion}}
	if was := pv.Annotations[ledger.Annotation]; was != "" {
		ops = append(ops, operation{"test", at(ledger.Annotation), was})
	}
	if len(pv.Annotations) == 0 {
		ops = append(ops, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	for _, key := range []string{ledger.Annotation, ledger.RepairedAnnotation} {
		switch value, changes := change[key]; {
		case !changes:
		case value == nil:
			ops = append(ops, operation{Op: "remove", Path: at(key)})
		default:
			ops = append(ops, operation{"add", at(key), *value})
		}
	}
	body, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: "csi-fencepost"})
	switch {
	case apierrors.IsInvalid(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fmt.Errorf("PersistentVolume %s has changed since it was read, and nothing was written to it: run it again: %w", pv.Name, err)
	case err != nil:
		return fmt.Errorf("cannot write the ledger of PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}
