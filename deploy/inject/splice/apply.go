package splice

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Change is what is to become of a text.
type Change struct {
	// Values by the index of the document: what Decode is to return of it. Each
	// element of it has a type that Decode returns.
	Values map[int]any
	// Removed documents, by their index.
	Removed map[int]bool
	// Append are documents, put behind the last one; each ends in a newline.
	Append []string
	// Bare leaves the marks out: what is written cannot be undone.
	Bare bool
}

// Apply returns the text with the change carried out. An error says at which
// line the text is of a form that cannot be changed and undone safely.
func (s *Stream) Apply(c Change) ([]byte, error) {
	e := &editor{Stream: s}
	var spans [][2]int
	for i, root := range s.roots {
		var err error
		if want, changed := c.Values[i]; changed && root != nil {
			err = e.value(root, want, -1, false)
		}
		if err == nil && c.Removed[i] {
			err = e.removeDocument(i)
		}
		if err == nil {
			spans, err = s.spans(root, spans)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(e.edits)+len(c.Append) == 0 {
		return s.whole(s.text), nil
	}
	e.appendDocuments(c.Append)
	if !c.Bare {
		e.leaveJSON()
	}
	text, err := e.assemble(c.Bare, spans)
	if err != nil {
		return nil, err
	}
	return s.whole(text), s.check(text, c)
}

func (e *editor) assemble(bare bool, spans [][2]int) (string, error) {
	hunks, err := e.hunks(e.edits, spans)
	if err != nil {
		return "", err
	}
	if bare {
		return e.carryOut(hunk{0, len(e.lines), e.edits}), nil
	}
	return e.write(hunks), nil
}

// whole puts the byte order mark back.
func (s *Stream) whole(text string) []byte {
	if s.bom {
		text = bom + text
	}
	return []byte(text)
}

func (e *editor) appendDocuments(documents []string) {
	if len(documents) == 0 {
		return
	}
	newline := e.newline(len(e.lines) - 1)
	var text strings.Builder
	for i, document := range documents {
		if i > 0 || len(e.roots) > 0 {
			text.WriteString("---\n")
		}
		text.WriteString(document)
	}
	e.insertAfter(len(e.lines)-1, strings.ReplaceAll(strings.TrimSuffix(text.String(), "\n"), "\n", newline))
	e.edits[len(e.edits)-1].documents = true
}

// leaveJSON begins a text that is JSON with a comment: what begins with a brace
// is taken for JSON, in which the marks would be errors.
func (e *editor) leaveJSON() {
	if trimmed := strings.TrimSpace(e.text); len(e.edits) > 0 && (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) {
		e.replaceBytes(0, 0, "# YAML, for the comments below: JSON has none."+e.newline(0))
	}
}

// removeDocument takes out the lines of a document, from the separator before it
// to the one behind it.
func (e *editor) removeDocument(i int) error {
	first, last := e.extent(i)
	if first < 0 {
		return &Error{Line: e.roots[i].Line, Text: "this document cannot be taken out: it does not begin its line"}
	}
	e.replaceBytes(e.lineStart(first), e.lineStart(last), "")
	return nil
}

// extent of a document: its lines [first, last), with the separator before it.
func (e *editor) extent(i int) (first, last int) {
	at := e.roots[i].Line - 1
	if e.roots[i].Column != 1 {
		return -1, -1
	}
	separator := func(line int) bool { return strings.HasPrefix(e.text[e.lines[line].start:], "---") }
	for first = at; first > 0 && !separator(first); first-- {
	}
	for last = at + 1; last < len(e.lines) && !separator(last); last++ {
	}
	if first == 0 && !separator(0) && last < len(e.lines) {
		last++ // the first document has no separator before it
	}
	return first, last
}

// check holds the new text against what was asked for.
func (s *Stream) check(text string, c Change) error {
	after, err := Parse([]byte(text))
	if err != nil {
		return unsafe(0, "the changed text is no YAML any more: "+err.Error())
	}
	if !c.Bare {
		if before, _, err := Undo([]byte(text)); err != nil || string(before) != s.text {
			return unsafe(0, "the change could not be undone")
		}
	}
	rest := full(after.roots)
	for i, root := range s.roots {
		if root == nil || c.Removed[i] {
			continue
		}
		if len(rest) == 0 {
			return unsafe(root.Line, "a document would be lost")
		}
		if err := sameDocument(root, rest[0], c.Values[i]); err != nil {
			return err
		}
		rest = rest[1:]
	}
	return sameAppended(rest, c.Append)
}

// sameAppended is an error unless the last documents are those that were to be appended.
func sameAppended(rest []*yaml.Node, documents []string) error {
	for _, document := range documents {
		want, err := Parse([]byte(document))
		if err != nil {
			return err
		}
		if len(rest) == 0 || len(want.roots) != 1 || want.roots[0] == nil || !same(want.roots[0], rest[0]) {
			return unsafe(0, "what is appended would not stay as it is")
		}
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return unsafe(0, "there would be more documents than before")
	}
	return nil
}

// sameDocument is an error unless the new root has the values that are wanted, or, where none are,
// is the old one.
func sameDocument(before, after *yaml.Node, want any) error {
	if want == nil {
		if !same(before, after) {
			return unsafe(before.Line, "another document would change with it")
		}
		return nil
	}
	got, err := Decode(after)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(got, want) {
		return unsafe(before.Line, "more than the change would change: an anchor, or a scalar of several lines, stands in the way")
	}
	return nil
}

func unsafe(line int, text string) error {
	return &Error{Line: line, Text: text + "; nothing is changed. Write this part in plain block style, and it can be"}
}

// full are the roots that are not empty.
func full(roots []*yaml.Node) (rest []*yaml.Node) {
	for _, root := range roots {
		if root != nil {
			rest = append(rest, root)
		}
	}
	return rest
}

// same compares nodes but for their places and comments.
func same(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || a.Anchor != b.Anchor || a.Style != b.Style || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !same(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}
