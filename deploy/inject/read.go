package inject

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject/splice"
)

// A manifest is one object in a file, perhaps in a List.
type manifest struct {
	file, document, item int // item -1: the document itself
	where                string
	node                 *yaml.Node
	Document             // Text is empty
}

// A stream is a file that was read.
type stream struct {
	File
	*splice.Stream
}

// readFiles parses the files and finds the objects in them. An error names the
// file and the line.
func readFiles(files []File) (streams []stream, found []manifest, err error) {
	for i, f := range files {
		s, err := splice.Parse(f.Text)
		if err != nil {
			return nil, nil, explain(f, err)
		}
		streams = append(streams, stream{f, s})
		for j, root := range s.Roots() {
			found = append(found, manifests(f.Name, i, j, root)...)
		}
	}
	return streams, found, nil
}

// explain adds the file to an error of splice. A template that is left in is the
// usual reason for what is no YAML, and is said instead.
func explain(f File, err error) error {
	for i, line := range strings.Split(string(f.Text), "\n") {
		if at := strings.Index(line, "{{"); at >= 0 && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			return templateError(f.Name, i+1, strings.TrimSpace(line[at:]))
		}
	}
	return locate(f.Name, err, "it is no YAML: ")
}

// locate puts file and line before an error of splice.
func locate(file string, err error, what string) error {
	var at *splice.Error
	if errors.As(err, &at) && at.Line > 0 {
		return fmt.Errorf("%s:%d: %s%s", file, at.Line, what, at.Text)
	}
	return fmt.Errorf("%s: %s%w", file, what, err)
}

// manifests in a document. What has no kind is none.
func manifests(file string, i, j int, root *yaml.Node) (found []manifest) {
	m := manifest{file: i, document: j, item: -1, node: root}
	if root == nil || !m.readHead(file) {
		return nil
	}
	items := field(root, "items")
	if !strings.HasSuffix(m.Kind, "List") || items == nil || items.Kind != yaml.SequenceNode {
		return []manifest{m}
	}
	for k, n := range items.Content {
		item := manifest{file: i, document: j, item: k, node: n}
		if item.readHead(file) {
			found = append(found, item)
		}
	}
	return found
}

// readHead reads what an object is called.
func (m *manifest) readHead(file string) bool {
	text := func(n *yaml.Node) string {
		if n == nil || n.Kind != yaml.ScalarNode {
			return ""
		}
		return n.Value
	}
	m.where = fmt.Sprintf("%s:%d", file, m.node.Line)
	m.APIVersion, m.Kind = text(field(m.node, "apiVersion")), text(field(m.node, "kind"))
	metadata := field(m.node, "metadata")
	m.Name, m.Namespace = text(field(metadata, "name")), text(field(metadata, "namespace"))
	return m.Kind != ""
}

// field of a mapping; nil if it is none, or lacks it.
func field(n *yaml.Node, name string) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// decode returns the object, whole.
func (m *manifest) decode() (object, error) {
	value, err := splice.Decode(m.node)
	if err != nil {
		return nil, decodeError(m.inFile(), m.node, err)
	}
	o, ok := value.(object)
	if !ok {
		return nil, fmt.Errorf("%s: it is no object of Kubernetes", m.where)
	}
	return o, nil
}

// inFile is the name of the manifest's file.
func (m *manifest) inFile() string { return m.where[:strings.LastIndexByte(m.where, ':')] }

// decodeError is what is wrong with a node; a template that is left in is said
// instead of what YAML makes of it.
func decodeError(file string, n *yaml.Node, err error) error {
	if line, template := templateIn(n); line > 0 {
		return templateError(file, line, template)
	}
	return locate(file, err, "")
}

func templateError(file string, line int, template string) error {
	return fmt.Errorf("%s:%d: a template is left in it (%s): render it first (helm template …, kustomize build …, envsubst) and give inject the result", file, line, template)
}

// changes collects what is to become of the documents of each file.
type changes struct {
	streams []stream
	values  []map[int]any
	removed []map[int]bool
}

func newChanges(streams []stream) *changes {
	c := &changes{streams: streams}
	for range streams {
		c.values = append(c.values, map[int]any{})
		c.removed = append(c.removed, map[int]bool{})
	}
	return c
}

// object returns the manifest's object out of the document as it is to become.
// What the caller changes in it is changed in the file.
func (c *changes) object(m *manifest) (object, error) {
	root, ok := c.values[m.file][m.document]
	if !ok {
		var err error
		node := c.streams[m.file].Roots()[m.document]
		if root, err = splice.Decode(node); err != nil {
			return nil, decodeError(m.inFile(), node, err)
		}
		c.values[m.file][m.document] = root
	}
	o, _ := root.(object)
	if m.item >= 0 {
		items, _ := o["items"].([]any)
		o, _ = items[m.item].(object)
	}
	if o == nil {
		return nil, fmt.Errorf("%s: it is no object of Kubernetes", m.where)
	}
	return o, nil
}

// write carries the changes out; documents are appended to one file.
func (c *changes) write(appendTo int, documents []string, bare bool) (files []File, err error) {
	for i, s := range c.streams {
		change := splice.Change{Values: c.values[i], Removed: c.removed[i], Bare: bare}
		if i == appendTo {
			change.Append = documents
		}
		text := s.Text
		if len(change.Values)+len(change.Removed)+len(change.Append) > 0 {
			if text, err = s.Apply(change); err != nil {
				return nil, locate(s.Name, err, "")
			}
		}
		files = append(files, File{s.Name, text})
	}
	return files, nil
}
