package splice

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sequence changes, removes and appends items. Items with a name, or with a
// mountPath, of their own are matched by it; others by their place.
func (e *editor) sequence(n *yaml.Node, want []any, indent int, inFlow bool) error {
	value, err := Decode(n)
	if err != nil {
		return err
	}
	have, _ := value.([]any)
	for _, field := range []string{"mountPath", "name"} {
		a, b := identities(have, field), identities(want, field)
		if a != nil && b != nil {
			// In a flow style commas come and go; and what is new goes to the end.
			if n.Style&yaml.FlowStyle != 0 && len(common(a, b)) < len(a) || !slices.Equal(common(a, b), b[:len(common(a, b))]) {
				return e.replace(n, want, indent, inFlow)
			}
			return e.named(n, a, b, want)
		}
	}
	if len(want) < len(have) {
		return e.replace(n, want, indent, inFlow)
	}
	return e.byPlace(n, want)
}

// common are those of a that are in b, in a's order.
func common(a, b []string) (kept []string) {
	for _, s := range a {
		if slices.Contains(b, s) {
			kept = append(kept, s)
		}
	}
	return kept
}

func (e *editor) byPlace(n *yaml.Node, want []any) error {
	inFlow := n.Style&yaml.FlowStyle != 0
	column, err := e.dashColumn(n, inFlow)
	if err != nil {
		return err
	}
	for i, item := range n.Content {
		if err := e.value(item, want[i], column, inFlow); err != nil {
			return err
		}
	}
	return e.appendItems(n, want[len(n.Content):], column, inFlow)
}

// named writes a sequence of which the identities of the items before and after are known.
func (e *editor) named(n *yaml.Node, have, wanted []string, want []any) error {
	inFlow := n.Style&yaml.FlowStyle != 0
	column, err := e.dashColumn(n, inFlow)
	if err != nil {
		return err
	}
	place := map[string]int{}
	for i, name := range wanted {
		place[name] = i
	}
	kept := map[string]bool{}
	for i, name := range have {
		if j, stays := place[name]; stays {
			kept[name] = true
			err = e.value(n.Content[i], want[j], column, inFlow)
		} else {
			err = e.removeItem(n, i, column)
		}
		if err != nil {
			return err
		}
	}
	var added []any
	for i, name := range wanted {
		if !kept[name] {
			added = append(added, want[i])
		}
	}
	return e.appendItems(n, added, column, inFlow)
}

// identities of items by a field; nil if one lacks it, or two have the same.
func identities(items []any, field string) []string {
	names, seen := make([]string, 0, len(items)), map[string]bool{}
	for _, item := range items {
		m, _ := item.(map[string]any)
		name, ok := m[field].(string)
		if !ok || seen[name] {
			return nil
		}
		seen[name] = true
		names = append(names, name)
	}
	return names
}

func (e *editor) appendItems(n *yaml.Node, items []any, column int, inFlow bool) error {
	if len(items) == 0 {
		return nil
	}
	if inFlow {
		for _, item := range items {
			text, err := flow(item)
			if err != nil {
				return err
			}
			if err := e.addInFlow(n, text); err != nil {
				return err
			}
		}
		return nil
	}
	last, err := e.lastLine(n)
	if err != nil {
		return err
	}
	newline := e.newline(last)
	var lines []string
	for _, item := range items {
		text, err := block(item, column+2, newline)
		if err != nil {
			return err
		}
		lines = append(lines, strings.Repeat(" ", column)+"- "+text)
	}
	e.insertAfter(last, strings.Join(lines, newline))
	return nil
}

// dashColumn is where the dashes of a block sequence stand.
func (e *editor) dashColumn(n *yaml.Node, inFlow bool) (int, error) {
	if inFlow {
		return n.Column - 1, nil
	}
	dash, err := e.dash(n, 0)
	if err != nil {
		return 0, err
	}
	return dash - e.lines[e.lineOf(dash)].start, nil
}

// dash finds the dash of an item: only spaces, line breaks and comments lie
// between the two.
func (e *editor) dash(n *yaml.Node, index int) (int, error) {
	start, err := e.offset(n.Content[index])
	if err != nil {
		return 0, err
	}
	from, err := e.offset(n)
	if err != nil {
		return 0, err
	}
	if from = e.skipProperties(from); index > 0 {
		if from, err = e.end(n.Content[index-1]); err != nil {
			return 0, err
		}
	}
	if at := e.skipSpace(from); at < len(e.text) && e.text[at] == '-' && at <= start {
		return at, nil
	}
	return 0, lost(n.Content[index])
}

func (e *editor) removeItem(n *yaml.Node, index, column int) error {
	dash, err := e.dash(n, index)
	if err != nil {
		return err
	}
	last, err := e.lastLine(n.Content[index])
	if err != nil {
		return err
	}
	if !e.removeLines(dash, last) {
		return &Error{Line: n.Content[index].Line, Text: "the item cannot be taken out: its dash does not begin its line"}
	}
	return nil
}
