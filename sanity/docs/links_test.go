package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

var markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// home is where the pages are read on the web.
var home = strings.TrimSuffix(fence.Runbook, "docs/use/runbook.md")

func TestEveryRelativeLinkAndAnchorLeadsSomewhere(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		for _, l := range p.prose {
			for _, m := range markdownLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(l.text, "``"), -1) {
				count++
				if fault := wrongLink(t, p, m[1]); fault != "" {
					t.Errorf("%s:%d: %s: %s", p.path, l.number, m[1], fault)
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d links were found", count)
	}
}

func wrongLink(t *testing.T, p *page, link string) string {
	t.Helper()
	target, anchor, _ := strings.Cut(link, "#")
	file := filepath.Join(filepath.Dir(p.path), target)
	switch {
	case strings.HasPrefix(target, home):
		file = strings.TrimPrefix(target, home)
	case strings.Contains(target, "://"), strings.HasPrefix(target, "mailto:"):
		return ""
	case target == "":
		file = p.path
	}
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		return err.Error()
	}
	if anchor == "" {
		return ""
	}
	if !strings.HasSuffix(file, ".md") {
		return "an anchor in what is no page"
	}
	if !mustRead(t, file).anchors()[anchor] {
		return "there is no such section"
	}
	return ""
}

func TestTheCheckOfLinksFindsWhatIsWrong(t *testing.T) {
	p := mustRead(t, "docs/use/runbook.md")
	for link, right := range map[string]bool{
		"#holderalive": true, "configure.md#fields": true, "../../README.md": true, "https://example.com/x#y": true,
		home + "docs/use/runbook.md#holderstale": true,
		"#holderalife":                           false, "CONFIG.md": false, "configure.md#feelds": false, home + "docs/use/runbook.md#nothing": false,
	} {
		if fault := wrongLink(t, p, link); (fault == "") != right {
			t.Errorf("%s: %q", link, fault)
		}
	}
}

// Every page can be found by someone who begins at the README.
func TestEveryPageIsLinked(t *testing.T) {
	linked := map[string]bool{"README.md": true}
	for _, p := range pages(t) {
		for _, m := range markdownLink.FindAllStringSubmatch(p.text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			linked[filepath.Join(filepath.Dir(p.path), target)] = true
		}
	}
	for _, p := range pages(t) {
		if !linked[p.path] {
			t.Errorf("no page links to %s", p.path)
		}
	}
}
