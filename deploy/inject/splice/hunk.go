package splice

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// The comments around a change. What was there before stands in the lines of
// was, byte for byte behind the bar.
const (
	mark  = "# csi-fencepost: "
	begin = mark + "begin"
	was   = mark + "was|"
	end   = mark + "end"
)

// A hunk replaces the lines [from, to) by the edits in them.
type hunk struct {
	from, to int
	edits    []edit
}

// hunks groups the edits by the lines that they touch.
func (s *Stream) hunks(edits []edit, spans [][2]int) ([]hunk, error) {
	sort.SliceStable(edits, func(i, j int) bool { return edits[i].start < edits[j].start })
	var found []hunk
	for i, e := range edits {
		if i > 0 && e.start < edits[i-1].end {
			return nil, &Error{Line: s.lineOf(e.start) + 1, Text: "two changes fall on the same place: an anchor, or a style that cannot be changed in part"}
		}
		h := s.linesOf(e)
		for _, span := range spans {
			h.widen(span)
		}
		if n := len(found); n > 0 && h.from <= found[n-1].to {
			found[n-1].to = max(found[n-1].to, h.to)
			found[n-1].from = min(found[n-1].from, h.from)
			found[n-1].edits = append(found[n-1].edits, e)
			continue
		}
		found = append(found, h)
	}
	return found, nil
}

// linesOf returns the lines of one edit. An insertion at the beginning of a line
// replaces none.
func (s *Stream) linesOf(e edit) hunk {
	h := hunk{from: s.lineOf(e.start), edits: []edit{e}}
	atStart := h.from >= len(s.lines) || s.lines[h.from].start == e.start
	switch {
	case e.start == e.end && atStart:
		h.to = h.from
	case e.end > e.start && e.end == s.lineStart(s.lineOf(e.end)):
		h.to = s.lineOf(e.end)
	default:
		h.to = s.lineOf(e.end) + 1
	}
	return h
}

// widen takes the whole of a scalar in whose middle the hunk begins or ends.
func (h *hunk) widen(span [2]int) {
	inside := func(boundary int) bool { return span[0] < boundary && boundary <= span[1] }
	if inside(h.from) || inside(h.to) {
		h.from, h.to = min(h.from, span[0]), max(h.to, span[1]+1)
	}
}

// write prints the text with all hunks carried out and marked.
func (s *Stream) write(hunks []hunk) string {
	var out strings.Builder
	at := 0 // line
	for _, h := range hunks {
		out.WriteString(s.text[s.lineStart(at):s.lineStart(h.from)])
		s.writeHunk(&out, h)
		at = h.to
	}
	out.WriteString(s.text[s.lineStart(at):])
	return out.String()
}

func (s *Stream) writeHunk(out *strings.Builder, h hunk) {
	text := s.carryOut(h)
	newline := s.newline(h.from)
	indent := leadingSpaces(text)
	if h.to > h.from && text == "" {
		indent = leadingSpaces(s.text[s.lineStart(h.from):])
	}
	if slices.ContainsFunc(h.edits, func(e edit) bool { return e.documents }) {
		indent = "" // the last document may end in a block scalar
	}
	out.WriteString(indent + begin + newline)
	open := false // the last line of the text has no break
	for _, l := range s.lines[h.from:h.to] {
		lineBreak := s.text[l.stop:l.end]
		if open = lineBreak == ""; open {
			lineBreak = newline
		}
		out.WriteString(indent + was + s.text[l.start:l.stop] + lineBreak)
	}
	out.WriteString(text)
	if text != "" && breakBehind(text) == 0 {
		out.WriteString(newline)
	}
	out.WriteString(indent + end)
	if !open {
		out.WriteString(newline)
	}
}

// carryOut returns the new text of the hunk's lines.
func (s *Stream) carryOut(h hunk) string {
	var out strings.Builder
	at := s.lineStart(h.from)
	for _, e := range h.edits {
		out.WriteString(s.text[at:e.start] + e.text)
		at = e.end
	}
	out.WriteString(s.text[at:s.lineStart(h.to)])
	return out.String()
}

func leadingSpaces(text string) string { return text[:len(text)-len(strings.TrimLeft(text, " "))] }

// breakBehind is the length of the line break at the text's end.
func breakBehind(text string) int {
	lines := splitLines(text)
	if len(lines) == 0 {
		return 0
	}
	last := lines[len(lines)-1]
	return last.end - last.stop
}

// Undo returns the text from before Apply, and whether that is another one. The
// error is an *Error for a hunk that has no end, or no beginning.
func Undo(text []byte) (before []byte, changed bool, err error) {
	var out strings.Builder
	if rest, has := bytes.CutPrefix(text, []byte(bom)); has { // it stays where it is
		out.WriteString(bom)
		text = rest
	}
	opened := 0 // line number of the beginning, 0 outside
	old := ""   // the lines before, inside
	for i, l := range splitLines(string(text)) {
		whole, content := string(text[l.start:l.end]), strings.TrimLeft(string(text[l.start:l.stop]), " ")
		switch {
		case content == begin && opened == 0:
			opened, old, changed = i+1, "", true
		case content == begin:
			return nil, false, &Error{Line: i + 1, Text: fmt.Sprintf("%q stands inside of the change that begins in line %d, which has no %q", begin, opened, end)}
		case content == end && opened == 0:
			return nil, false, &Error{Line: i + 1, Text: fmt.Sprintf("%q ends no change: its %q is missing", end, begin)}
		case content == end:
			if l.stop == l.end { // the last line of the text had no break
				old = old[:len(old)-breakBehind(old)]
			}
			out.WriteString(old)
			opened = 0
		case opened == 0:
			out.WriteString(whole)
		case strings.HasPrefix(content, was):
			old += content[len(was):] + string(text[l.stop:l.end])
		}
	}
	if opened > 0 {
		return nil, false, &Error{Line: opened, Text: fmt.Sprintf("the change that begins here has no %q", end)}
	}
	return []byte(out.String()), changed, nil
}
