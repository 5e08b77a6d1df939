package main

import (
	"flag"
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
		for _, part := range []string{"**You see**\n\n- ", "**It means**", "**Do**", "**Do not**"} {
			if !strings.Contains(text, part) {
				t.Errorf("the section of %s lacks %s", r, part)
			}
		}
	}
}

var update = flag.Bool("update", false, "rewrite what the runbook says under \"You see\"")

var youSee = regexp.MustCompile(`(?s)### (\w+)\n\n\*\*You see\*\*\n\n.*?(\*\*It means\*\*)`)

// What the runbook shows under "You see" is why, in each refusal of that reason.
func TestTheRunbookShowsTheRealTexts(t *testing.T) {
	whys := whys(t)
	for _, r := range refusing(t) {
		if len(whys[r]) == 0 {
			t.Errorf("no refusal for %s is seen here", r)
		}
	}
	now := mustRead(t, runbookPage).text
	want := youSee.ReplaceAllStringFunc(now, func(old string) string {
		m := youSee.FindStringSubmatch(old)
		return "### " + m[1] + "\n\n**You see**\n\n" + bullets(whys[fence.Reason(m[1])]) + "\n" + m[2]
	})
	if *update {
		if err := os.WriteFile(filepath.Join(root, runbookPage), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if now != want {
		t.Errorf("%s does not show what the program says: run the command that it names, and read the diff", runbookPage)
	}
}

// bullets are the lines of a list, each without the phrases that it begins with like the one above.
func bullets(lines []string) string {
	var out strings.Builder
	last := ""
	for _, l := range lines {
		same := 0
		for _, at := range phrase.FindAllStringIndex(l, -1) {
			if strings.HasPrefix(last, l[:at[1]]) {
				same = at[1]
			}
		}
		dots := ""
		if same > 0 {
			dots = "… "
		}
		out.WriteString("- " + dots + l[same:] + "\n")
		last = l
	}
	return out.String()
}

var phrase = regexp.MustCompile(`[,;:] `)

var refusal = regexp.MustCompile(`csi-fencepost: volume \S+: (.+)\. To unblock: .+\. \[(\w+)\] (\S+)$`)

// whys is what refusals say between the name of the volume and what would unblock it: those
// of the decision as package fence prints them, and those of the guard as it answers.
func whys(t *testing.T) map[fence.Reason][]string {
	t.Helper()
	all := map[fence.Reason][]string{}
	for _, text := range append(strings.Split(read(t, "fence/testdata/messages.txt"), "\n"), guardSays(t)...) {
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		m := refusal.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no refusal: %s", text)
		}
		r := fence.Reason(m[2])
		if m[3] != r.Section() {
			t.Errorf("%s links to %s", r, m[3])
		}
		if !slices.Contains(all[r], m[1]) {
			all[r] = append(all[r], m[1])
		}
	}
	return all
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
