package main

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/code"
)

const runbookPage = "docs/use/runbook.md"

// allowing are the reasons for which a call is let through.
var allowing = []fence.Reason{fence.Undecided, fence.NoOtherHolder, fence.HolderReleased, fence.HolderWaits, fence.HolderFenced, fence.HolderRevoked,
	fence.NotAHolder, fence.AlreadyTaken, fence.UnfencedForward, fence.HolderRenamed}

// refusing are all others that package fence declares.
func refusing(t *testing.T) (reasons []fence.Reason) {
	t.Helper()
	for _, file := range openPackage(t, "fence").Files {
		for n := range ast.Preorder(file.AST) {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type == nil || code.Print(spec.Type) != "Reason" {
				continue
			}
			for _, v := range spec.Values {
				text, err := strconv.Unquote(code.Print(v))
				if err != nil {
					t.Fatal(err)
				}
				if r := fence.Reason(text); !slices.Contains(allowing, r) {
					reasons = append(reasons, r)
				}
			}
		}
	}
	if len(reasons) < 15 {
		t.Fatalf("only %d reasons found", len(reasons))
	}
	return reasons
}

func openPackage(t *testing.T, folder string) *code.Package {
	t.Helper()
	p, err := code.Open(root, folder)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// below are the headings one level under a section.
func below(p *page, title string) (titles []string) {
	for l := range strings.SplitSeq(p.section(title), "\n") {
		if name, ok := strings.CutPrefix(l, "### "); ok {
			titles = append(titles, name)
		}
	}
	return titles
}

func TestEveryReasonOfARefusalHasASectionAndNoSectionIsForNone(t *testing.T) {
	p := mustRead(t, runbookPage)
	sections := below(p, "Reasons")
	for _, r := range refusing(t) {
		if !slices.Contains(sections, string(r)) {
			t.Errorf("%s has no section for %s", runbookPage, r)
		}
		if anchor := strings.TrimPrefix(r.Section(), fence.Runbook+"#"); !p.anchors()[anchor] {
			t.Errorf("the text of %s links to #%s, which is not there", r, anchor)
		}
	}
	for _, s := range sections {
		if !slices.Contains(refusing(t), fence.Reason(s)) {
			t.Errorf("section %s is about no reason that a call is refused for", s)
		}
	}
}

func TestEveryReasonsSectionAnswersWhatAPersonAsks(t *testing.T) {
	p := mustRead(t, runbookPage)
	for _, r := range refusing(t) {
		text := p.section(string(r))
		for _, part := range []string{"**You see**", "```text\ncsi-fencepost: ", "**It means**", "**Why it is right**", "**Check**", "**Unblock**", "**Do not**"} {
			if !strings.Contains(text, part) {
				t.Errorf("the section of %s lacks %s", r, part)
			}
		}
	}
}

// The texts that the runbook shows are those that people see.
func TestTheRunbookShowsTheRealTexts(t *testing.T) {
	golden := oneLine(read(t, "fence/testdata/messages.txt"))
	var sources string
	for _, folder := range []string{"proxy/guard", "fence/ledger"} {
		for _, file := range openPackage(t, folder).Files {
			sources += oneLine(file.Text)
		}
	}
	p := mustRead(t, runbookPage)
	for _, r := range refusing(t) {
		for _, text := range shown(p.section(string(r))) {
			if !strings.HasSuffix(text, "["+string(r)+"] "+r.Section()) {
				t.Errorf("%s: a text does not end in the reason and its link: %s", r, text)
			}
			_, unblock, _ := strings.Cut(text, " To unblock: ")
			unblock, _, _ = strings.Cut(unblock, ". [")
			fromDecision := strings.Contains(golden, "["+string(r)+"]")
			switch {
			case fromDecision && !strings.Contains(golden, text):
				t.Errorf("%s: fence/testdata/messages.txt has no such text: %s", r, text)
			case r == fence.UnpublishEveryone && !strings.Contains(golden, strings.TrimSuffix(text, " ["+string(r)+"] "+r.Section())):
				t.Errorf("%s: it is not the text of a holder: %s", r, text)
			case !fromDecision && r != fence.UnpublishEveryone && !strings.Contains(sources, literal(unblock)):
				t.Errorf("%s: what would unblock is nowhere in the code: %s", r, unblock)
			}
		}
	}
}

// literal is what a format has before the first name in it.
func literal(text string) string {
	before, _, _ := strings.Cut(text, "kubectl annotate pv ")
	return before
}

var textBlock = regexp.MustCompile("(?s)```text\n(.*?)```")

func shown(section string) (texts []string) {
	for _, m := range textBlock.FindAllStringSubmatch(section, -1) {
		texts = append(texts, oneLine(m[1]))
	}
	return texts
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alertRules are what Prometheus loads.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `json:"alert"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestEveryAlertHasASectionAndLinksToIt(t *testing.T) {
	var rules alertRules
	if err := yaml.Unmarshal([]byte(read(t, "deploy/monitoring/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	p := mustRead(t, runbookPage)
	sections, alerts := below(p, "Alerts"), []string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			title := "Alert " + r.Alert
			alerts = append(alerts, title)
			if !slices.Contains(sections, title) {
				t.Errorf("%s has no section %q", runbookPage, title)
			}
			if want := fence.Runbook + "#" + slug(title); r.Annotations["runbook_url"] != want {
				t.Errorf("alert %s: runbook_url is %q, want %s", r.Alert, r.Annotations["runbook_url"], want)
			}
		}
	}
	for _, s := range sections {
		if !slices.Contains(alerts, s) {
			t.Errorf("section %q is about no alert", s)
		}
	}
	if len(alerts) < 4 {
		t.Errorf("only %d alerts found", len(alerts))
	}
}
