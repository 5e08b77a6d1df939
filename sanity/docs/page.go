package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// A page is a Markdown file of the repository.
type page struct {
	path   string // from the repository's root
	text   string
	prose  []line // what is not in a code block
	blocks []block
}

type line struct {
	number int
	text   string
}

// A block is fenced code.
type block struct {
	line     int // of its first line of code
	language string
	text     string
}

func readPage(root, path string) (*page, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	p := &page{path: path, text: string(text)}
	var open *block
	var indent string
	for i, l := range strings.Split(p.text, "\n") {
		trimmed := strings.TrimLeft(l, " ")
		marker := strings.HasPrefix(trimmed, "```")
		switch {
		case marker && open == nil:
			indent = l[:len(l)-len(trimmed)]
			open = &block{line: i + 2, language: strings.TrimSpace(trimmed[3:])}
		case marker:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(l, indent) + "\n"
		default:
			p.prose = append(p.prose, line{i + 1, l})
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: a code block is not closed", path, open.line)
	}
	return p, nil
}

var heading = regexp.MustCompile(`^(#{1,6}) (.*)$`)

// headings are the titles of the page's sections.
func (p *page) headings() (titles []string) {
	for _, l := range p.prose {
		if m := heading.FindStringSubmatch(l.text); m != nil {
			titles = append(titles, m[2])
		}
	}
	return titles
}

// anchors are those that GitHub makes of the headings.
func (p *page) anchors() map[string]bool {
	anchors := map[string]bool{}
	for _, title := range p.headings() {
		name := slug(title)
		for n := 1; anchors[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug(title), n)
		}
		anchors[name] = true
	}
	return anchors
}

// section is the text under a heading, until the next of its level or above.
func (p *page) section(title string) string {
	level, out := 0, []string{}
	inCode := false
	for l := range strings.SplitSeq(p.text, "\n") {
		if strings.HasPrefix(l, "```") {
			inCode = !inCode
		}
		if m := heading.FindStringSubmatch(l); m != nil && !inCode {
			if level > 0 && len(m[1]) <= level {
				break
			}
			if m[2] == title {
				level = len(m[1])
				continue
			}
		}
		if level > 0 {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

var linkInTitle = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// slug is the anchor that GitHub gives a heading: lower case, punctuation taken
// away, spaces turned to dashes.
func slug(title string) string {
	title = linkInTitle.ReplaceAllString(title, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
