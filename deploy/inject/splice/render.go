package splice

import (
	"bytes"
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// first are the keys that people expect at the beginning, in that order.
var first = []string{"apiVersion", "kind", "metadata", "name", "image", "imagePullPolicy", "command", "args", "env", "ports", "mountPath"}

// block prints a value in block style, each line after the first indented by so
// many spaces; without the last line break.
func block(value any, indent int, newline string) (string, error) {
	n, err := node(value)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(n); err != nil {
		return "", err
	}
	text := strings.TrimSuffix(out.String(), "\n")
	return strings.ReplaceAll(text, "\n", newline+strings.Repeat(" ", indent)), nil
}

// node orders the keys of maps.
func node(value any) (*yaml.Node, error) {
	switch v := value.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range keys(v) {
			child, err := node(v[key])
			if err != nil {
				return nil, err
			}
			var name yaml.Node
			if err := name.Encode(key); err != nil {
				return nil, err
			}
			n.Content = append(n.Content, &name, child)
		}
		return n, nil
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			child, err := node(item)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	}
	n := new(yaml.Node)
	return n, n.Encode(value)
}

func keys(m map[string]any) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	place := func(name string) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	sort.Slice(names, func(i, j int) bool {
		if a, b := place(names[i]), place(names[j]); a != b {
			return a < b
		}
		return names[i] < names[j]
	})
	return names
}

// flow prints a value on one line, as JSON, which is YAML in flow style too.
func flow(value any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// scalar prints a value in the quotes of the node that it replaces.
func scalar(value any, like *yaml.Node, inFlow bool) (string, error) {
	text, isText := value.(string)
	quotes := like.Style & (yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle)
	if like.Kind != yaml.ScalarNode {
		quotes = 0
	}
	switch {
	case isText && quotes != 0:
		return inline(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: quotes})
	case inFlow:
		return flow(value)
	}
	return inline(value)
}

func inline(value any) (string, error) {
	out, err := yaml.Marshal(value)
	return strings.TrimSuffix(string(out), "\n"), err
}
