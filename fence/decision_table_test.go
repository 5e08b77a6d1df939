package fence

import (
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

var updateDecision = flag.Bool("update-decision", false, "TestTheDecisionAsATable writes what it finds into testdata/decision.txt")

// choice is one value of a fact, in the words of the table.
type choice struct {
	words string
	set   func(*facts)
}

// chapter is one part of the table: rows by the first two lists, columns by the third.
type chapter struct {
	title, given      string
	base              facts
	first, rows, cols []choice
}

var (
	ledgers = []choice{
		{"not in the ledger", func(f *facts) { f.state = NotInLedger }},
		{"published", func(f *facts) { f.state = Publishing }},
		{"adopted", func(f *facts) { f.state = Held }},
		{"an unpublish has begun", func(f *facts) { f.state = Leaving }},
		{"released", func(f *facts) { f.state = Released }},
		{"released for good", func(f *facts) { f.state, f.under = Released, "this" }},
		{"taken over", func(f *facts) { f.state = TakenOver }},
		{"taken over without proof", func(f *facts) { f.state, f.unproven = TakenOver, true }},
	}
	listings = []choice{
		{"nothing", func(*facts) {}},
		{"attached", func(f *facts) { f.attached = true }},
		{"in use", func(f *facts) { f.inUse = true }},
		{"both", func(f *facts) { f.inUse, f.attached = true, true }},
		{"in use: its pods wait", func(f *facts) { f.inUse, f.waits = true, true }},
	}
	volumeAttachments = []choice{
		{"none", func(f *facts) { f.va = "" }},
		{"not attached yet", func(f *facts) { f.va = "unattached" }},
		{"attached", func(f *facts) { f.va = "attached" }},
		{"being deleted", func(f *facts) { f.va = "deleted" }},
		{"being deleted, a kubelet's restart since", func(f *facts) { f.va = "deleted, then Ready" }},
	}
	lives = []choice{
		{"alive", func(f *facts) { f.life, f.ready = Alive, true }},
		{"not watched for long", func(f *facts) { f.life, f.ready = Unwatched, true }},
		{"silent", func(f *facts) { f.life = Stale }},
		{"no lease", func(f *facts) { f.life = Unknown }},
	}
	whoseNode = []choice{
		{"the holder's", func(f *facts) { f.node, f.boot = "same", "same" }},
		{"the holder's, booted since", func(f *facts) { f.node, f.boot = "same", "new" }},
		{"the holder's, without a boot ID", func(f *facts) { f.node, f.boot = "same", "empty" }},
		{"registered again in that boot", func(f *facts) { f.node, f.boot = "again", "" }},
		{"another machine's, its node ID", func(f *facts) { f.node, f.boot, f.owns = "other", "", true }},
		{"another machine's", func(f *facts) { f.node, f.boot, f.owns = "other", "", false }},
		{"none", func(f *facts) { f.node, f.boot, f.inUse, f.attached = "gone", "", false, false }},
	}
	doubts = []choice{
		{"none", func(f *facts) { f.contest = "" }},
		{"contested in this boot", func(f *facts) { f.contest = "this boot" }},
		{"contested in an earlier boot", func(f *facts) { f.contest = "earlier boot" }},
		{"contested, the boot is not known", func(f *facts) { f.contest = "no boot" }},
		{"contested, then seen to list it", func(f *facts) { f.contest = "seen" }},
		{"contested, and it never restarted", func(f *facts) { f.contest, f.process = "this boot", true }},
		{"contested, seen, restarted since", func(f *facts) { f.contest = "seen, restarted" }},
		{"forced, and its kubelet is silent", func(f *facts) { f.va = "deleted, then unsaid" }},
		{"forced, and restarted since", func(f *facts) { f.va = "deleted, then restarted" }},
		{"contested, forced, restarted", func(f *facts) { f.contest, f.va = "seen", "deleted, then restarted" }},
	}
	proofs = []choice{
		{"none", func(*facts) {}},
		{"somebody says it is off", func(f *facts) { f.evidence = "claim" }},
		{"somebody said so, its lease changed", func(f *facts) { f.evidence = "claim, lease changed" }},
		{"somebody says so, an agent reads on", func(f *facts) { f.evidence = "claim, reads on" }},
		{"an agent reads it as off", func(f *facts) { f.evidence = "power" }},
		{"one agent reads off, another on", func(f *facts) { f.evidence = "power, reads on" }},
		{"its access to the storage is cut", func(f *facts) { f.evidence = "storage" }},
		{"it was cut, and may be open", func(f *facts) { f.evidence = "storage, void" }},
		{"the volume was released", func(f *facts) { f.evidence = "release" }},
		{"released while the node lives", func(f *facts) { f.evidence = "release of a living node" }},
	}
	drivers = []choice{
		{"neither", func(f *facts) { f.policy = Policy{} }},
		{"unpublish revokes access", func(f *facts) { f.policy = revokes }},
		{"unfenced: Forward", func(f *facts) { f.policy = forward }},
	}
	own   = facts{node: "same", boot: "same", life: Alive, ready: true, state: Publishing}
	dying = facts{node: "same", boot: "same", life: Stale, state: Publishing, inUse: true, va: "deleted"}
)

// chapters of the table. What a chapter does not vary is given at its head.
var chapters = []chapter{
	{"What a living kubelet says", "The Node is the holder's and its kubelet lives; nobody has proven anything.\nRows: the ledger, what the Node lists. Columns: the VolumeAttachment.",
		own, ledgers, listings, volumeAttachments},
	{"What a silent kubelet said last", "The Node is the holder's, its lease was not renewed for suspectAfter, and nobody has proven anything.\nRows: the ledger, what the Node lists. Columns: the VolumeAttachment.",
		facts{node: "same", boot: "same", life: Stale, state: Publishing}, ledgers, listings, volumeAttachments},
	{"Whether its \"not in use\" is believed", "The volume was published there, its VolumeAttachment is being deleted, and the Node lists nothing.\nRows: the Node, the doubt. Columns: its life.",
		facts{state: Publishing, va: "deleted"}, whoseNode, doubts, lives},
	{"Whose Node it is", "The volume was published there and its VolumeAttachment is being deleted; nobody has proven anything.\nRows: the Node, what it lists. Columns: its life.",
		facts{state: Publishing, va: "deleted"}, whoseNode, listings, lives},
	{"What proves that it writes no more", "The volume was published there, its VolumeAttachment is being deleted, and the Node lists the volume in use.\nRows: the Node, the proof. Columns: its life.",
		dying, whoseNode, proofs, lives},
	{"A Node that still lists it as attached", "As in 5, and the Node lists it in volumesAttached, too.\nRows: the Node, the proof. Columns: its life.",
		facts{node: "same", boot: "same", state: Publishing, inUse: true, attached: true, va: "deleted"}, whoseNode[:1], proofs, lives},
	{"What the driver and the configuration add", "As in 5, the Node is the holder's.\nRows: the proof, its life. Columns: the driver, unpublish.unfenced.",
		dying, []choice{proofs[0], proofs[1], proofs[7]}, lives, drivers},
}

// row and group are lines of a chapter, those that say the same put together.
type (
	row struct {
		words []string
		cells string
	}
	group struct {
		words []string
		rows  []row
	}
)

func (c *chapter) groups() (all []group) {
	for _, first := range c.first {
		g := group{words: []string{first.words}}
		for _, r := range c.rows {
			var cells []string
			for _, col := range c.cols {
				f := c.base
				r.set(&f)
				col.set(&f)
				first.set(&f) // a Node that is gone lists nothing, whatever the row says
				cells = append(cells, cell(f))
			}
			g.rows = merge(g.rows, row{[]string{r.words}, strings.Join(cells, "\t")})
		}
		same := slices.IndexFunc(all, func(o group) bool { return reflect.DeepEqual(o.rows, g.rows) })
		if same < 0 {
			all = append(all, g)
		} else {
			all[same].words = append(all[same].words, first.words)
		}
	}
	return all
}

// print writes a line for each of the words, and the cells on the first.
func (g *group) print(w io.Writer) {
	firsts := alike(g.words)
	for _, r := range g.rows {
		cells := "\t" + r.cells
		for _, words := range alike(r.words) {
			label := ""
			if len(firsts) > 0 {
				label, firsts = firsts[0], firsts[1:]
			}
			fmt.Fprintln(w, label+"\t"+words+cells)
			cells = strings.Repeat("\t", strings.Count(cells, "\t")) // else the columns would end here
		}
	}
	for _, label := range firsts {
		fmt.Fprintln(w, label+"\t")
	}
}

// alike are the words of lines that say the same.
func alike(words []string) []string {
	out := slices.Clone(words)
	for i := range out[1:] {
		out[i+1] = "or " + out[i+1]
	}
	return out
}

func merge(rows []row, next row) []row {
	for i := range rows {
		if rows[i].cells == next.cells {
			rows[i].words = append(rows[i].words, next.words...)
			return rows
		}
	}
	return append(rows, next)
}

// cell is what both calls are answered: a publish to another node, and an unpublish here.
func cell(f facts) string {
	s := Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{f.holder()}, Policy: f.policy}
	publish, unpublish := JudgePublish(s, newNode), JudgeUnpublish(s, oldNode)
	moves, leaves := say(publish), say(unpublish)
	switch {
	case publish.Reason == NoOtherHolder: // it is passed over
		return leaves
	case moves == leaves:
		return moves
	}
	return moves + "; unpublish " + leaves
}

func say(v Verdict) string {
	if v.Action == Allow || v.Action == Answer {
		return "free: " + string(v.Reason)
	}
	return string(v.Reason)
}

// TestTheDecisionAsATable prints the decision, to be read: what stands in the way of a
// publish to another node, and what becomes of an unpublish.
func TestTheDecisionAsATable(t *testing.T) {
	var b strings.Builder
	b.WriteString(`What one holder of a volume amounts to, made by fence/decision_table_test.go.

A cell is the answer to a publish of the volume to another node, and to an unpublish here. A
reason alone refuses both; "free" lets both through (AlreadyTakenOver: the unpublish is
answered without a call). Where they differ the unpublish comes after the semicolon. Reasons:
fence/reason.go. Every holder is judged so by itself; a publish goes through if all are free,
after their unpublishes. A line that begins with "or" says the same as the one above it.
`)
	for i, c := range chapters {
		fmt.Fprintf(&b, "\n%d. %s\n\n%s\n\n", i+1, c.title, c.given)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprint(w, "\t")
		for _, col := range c.cols {
			fmt.Fprint(w, "\t"+col.words)
		}
		fmt.Fprintln(w)
		for _, g := range c.groups() {
			g.print(w)
		}
		w.Flush()
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	text := strings.Join(lines, "\n") + "\n"
	const path = "testdata/decision.txt"
	if *updateDecision {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the decision is not as in %s; if that is wanted: go test ./fence -run TestTheDecisionAsATable -update-decision, and read the difference\n%s", path, text)
	}
}
