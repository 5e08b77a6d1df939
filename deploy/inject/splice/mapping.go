package splice

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mapping changes, removes and adds keys. What comes in by a merge key is
// overridden where it is to change.
func (e *editor) mapping(n *yaml.Node, have any, want map[string]any) error {
	inFlow := n.Style&yaml.FlowStyle != 0
	own := map[string]bool{}
	column := n.Content[0].Column - 1
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			continue
		}
		own[key.Value] = true
		wanted, stays := want[key.Value]
		var err error
		switch {
		case stays:
			err = e.value(value, wanted, column, inFlow)
		case inFlow:
			err = e.removeInFlow(n, i, 2)
		default:
			err = e.removePair(n, key, value)
		}
		if err != nil {
			return err
		}
	}
	merged, _ := have.(map[string]any)
	added := map[string]any{}
	for key, value := range want {
		if old, ok := merged[key]; !own[key] && (!ok || !reflect.DeepEqual(old, value)) {
			added[key] = value
		}
	}
	if len(added) == 0 {
		return nil
	}
	if inFlow {
		return e.addPairsInFlow(n, added)
	}
	return e.addPairs(n, added, column)
}

func (e *editor) addPairs(n *yaml.Node, added map[string]any, column int) error {
	last, err := e.lastLine(n)
	if err != nil {
		return err
	}
	text, err := block(added, column, e.newline(last))
	if err != nil {
		return err
	}
	e.insertAfter(last, strings.Repeat(" ", column)+text)
	return nil
}

func (e *editor) addPairsInFlow(n *yaml.Node, added map[string]any) error {
	for _, key := range keys(added) {
		name, err := flow(key)
		if err != nil {
			return err
		}
		value, err := flow(added[key])
		if err != nil {
			return err
		}
		if err := e.addInFlow(n, name+": "+value); err != nil {
			return err
		}
	}
	return nil
}

func (e *editor) removePair(n, key, value *yaml.Node) error {
	start, err := e.offset(key)
	if err != nil {
		return err
	}
	last, err := e.lastLine(value)
	if err != nil {
		return err
	}
	if !e.removeLines(start, last) {
		return &Error{Line: key.Line, Text: "key " + key.Value + " cannot be taken out: it does not begin its line"}
	}
	return nil
}

// addInFlow puts an element behind the last one of a flow collection, on a line
// of its own if that one has its own.
func (e *editor) addInFlow(n *yaml.Node, text string) error {
	lastChild := n.Content[len(n.Content)-1]
	head := lastChild
	if n.Kind == yaml.MappingNode {
		head = n.Content[len(n.Content)-2]
	}
	end, err := e.end(lastChild)
	if err != nil {
		return err
	}
	start, err := e.offset(head)
	if err != nil {
		return err
	}
	from := e.lines[e.lineOf(start)].start
	before := e.text[from:start]
	if strings.Trim(before, " \t") == "" {
		text = "," + e.newline(head.Line-1) + before + text
	} else {
		text = ", " + text
	}
	e.replaceBytes(end, end, text)
	return nil
}

// removeInFlow takes size nodes from index on, and the comma before or behind.
func (e *editor) removeInFlow(n *yaml.Node, index, size int) error {
	start, err := e.offset(n.Content[index])
	if err != nil {
		return err
	}
	end, err := e.end(n.Content[index+size-1])
	if err != nil {
		return err
	}
	switch {
	case index > 0:
		if start, err = e.end(n.Content[index-1]); err != nil {
			return err
		}
	case index+size < len(n.Content):
		if end, err = e.offset(n.Content[index+size]); err != nil {
			return err
		}
	}
	e.replaceBytes(start, end, "")
	return nil
}
