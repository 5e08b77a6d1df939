package splice

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An edit replaces the bytes [start, end) by text.
type edit struct {
	start, end int
	text       string
	documents  bool // whole documents, which begin at the margin
}

// An editor collects the edits that turn the values of nodes into others.
type editor struct {
	*Stream
	edits []edit
}

func (e *editor) replaceBytes(start, end int, text string) {
	e.edits = append(e.edits, edit{start: start, end: end, text: text})
}

// value makes a node's value the one that is wanted. indent is the column of the
// key or dash that it belongs to, -1 at the root; inFlow, that it stands inside
// of a flow collection.
func (e *editor) value(n *yaml.Node, want any, indent int, inFlow bool) error {
	have, err := Decode(n)
	if err != nil {
		return err
	}
	if reflect.DeepEqual(have, want) {
		return nil
	}
	if m, ok := want.(map[string]any); ok && n.Kind == yaml.MappingNode && len(m) > 0 && len(n.Content) > 0 {
		return e.mapping(n, have, m)
	}
	if l, ok := want.([]any); ok && n.Kind == yaml.SequenceNode && len(l) > 0 && len(n.Content) > 0 {
		return e.sequence(n, l, indent, inFlow)
	}
	return e.replace(n, want, indent, inFlow)
}

// replace writes a node anew.
func (e *editor) replace(n *yaml.Node, want any, indent int, inFlow bool) error {
	start, err := e.offset(n)
	if err != nil {
		return err
	}
	end, err := e.end(n)
	if err != nil {
		return err
	}
	text, err := e.print(n, want, indent, inFlow)
	if err != nil {
		return err
	}
	if empty(n) && !strings.HasPrefix(text, "\n") && !strings.HasPrefix(text, "\r\n") {
		text = " " + text // behind a colon or a dash
	}
	e.replaceBytes(start, end, text)
	return nil
}

func (e *editor) print(n *yaml.Node, want any, indent int, inFlow bool) (string, error) {
	newline := e.newline(n.Line - 1)
	size := 0
	switch v := want.(type) {
	case map[string]any:
		size = len(v)
	case []any:
		size = len(v)
	default:
		return scalar(want, n, inFlow)
	}
	if inFlow || size == 0 || n.Style&yaml.FlowStyle != 0 {
		return flow(want)
	}
	if n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode && n.Style&yaml.FlowStyle == 0 {
		return block(want, n.Column-1, newline) // in the place of the old block
	}
	text, err := block(want, indent+2, newline)
	return newline + strings.Repeat(" ", indent+2) + text, err
}

// insertAfter puts whole lines, without the last break, behind line i.
func (e *editor) insertAfter(i int, text string) {
	newline := e.newline(i)
	if i >= 0 && i < len(e.lines) && e.lines[i].end == e.lines[i].stop {
		e.replaceBytes(e.lines[i].end, e.lines[i].end, newline+text)
		return
	}
	at := e.lineStart(i + 1)
	e.replaceBytes(at, at, text+newline)
}

// removeLines takes the lines from that of offset start to line last off, if
// nothing but spaces stands before start on its line.
func (e *editor) removeLines(start, last int) bool {
	from := e.lines[e.lineOf(start)].start
	if strings.Trim(e.text[from:start], " ") != "" {
		return false
	}
	e.replaceBytes(from, e.lineStart(last+1), "")
	return true
}
