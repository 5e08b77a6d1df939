package splice

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// end returns the offset behind a node's last byte. The parser tells only where
// a node begins.
func (s *Stream) end(n *yaml.Node) (int, error) {
	at, err := s.offset(n)
	if err != nil || empty(n) {
		return at, err
	}
	if n.Kind == yaml.AliasNode {
		return s.expect(n, at, "*"+n.Value)
	}
	switch {
	case n.Kind == yaml.ScalarNode:
		return s.scalarEnd(n, s.skipProperties(at))
	case n.Style&yaml.FlowStyle != 0:
		return s.flowEnd(n, s.skipProperties(at))
	case len(n.Content) == 0:
		return 0, lost(n)
	}
	return s.end(n.Content[len(n.Content)-1])
}

// empty tells whether nothing is written there, which means null.
func empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style&^yaml.TaggedStyle == 0 && n.Anchor == "" && n.Style&yaml.TaggedStyle == 0
}

func (s *Stream) expect(n *yaml.Node, at int, text string) (int, error) {
	if !strings.HasPrefix(s.text[at:], text) {
		return 0, lost(n)
	}
	return at + len(text), nil
}

// skipProperties skips an anchor and a tag, and the space behind them.
func (s *Stream) skipProperties(at int) int {
	for at < len(s.text) && (s.text[at] == '&' || s.text[at] == '!') {
		for at < len(s.text) && !isSpace(s.text[at]) {
			at++
		}
		at = s.skipSpace(at)
	}
	return at
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skipSpace skips spaces, line breaks and comments.
func (s *Stream) skipSpace(at int) int {
	for at < len(s.text) {
		switch c := s.text[at]; {
		case isSpace(c):
			at++
		case breakAt(s.text, at) > 0:
			at += breakAt(s.text, at)
		case c == '#' && (at == 0 || isSpace(s.text[at-1])):
			at = s.lines[s.lineOf(at)].stop
		default:
			return at
		}
	}
	return at
}

func (s *Stream) scalarEnd(n *yaml.Node, at int) (int, error) {
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return s.quotedEnd(n, at, '"')
	case n.Style&yaml.SingleQuotedStyle != 0:
		return s.quotedEnd(n, at, '\'')
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		header := s.lines[s.lineOf(at)].stop
		if strings.TrimSpace(n.Value) == "" {
			return header, nil
		}
		return s.consume(n, header)
	case n.Value == "": // only an anchor or a tag
		return at, nil
	}
	return s.consume(n, at)
}

// quotedEnd finds the closing quote. In single quotes two stand for one, in
// double quotes a backslash takes the next byte.
func (s *Stream) quotedEnd(n *yaml.Node, at int, quote byte) (int, error) {
	if at >= len(s.text) || s.text[at] != quote {
		return 0, lost(n)
	}
	for i := at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '\\' && quote == '"':
			i++
		case c == quote && quote == '\'' && i+1 < len(s.text) && s.text[i+1] == quote:
			i++
		case c == quote:
			return i + 1, nil
		}
	}
	return 0, lost(n)
}

// consume walks over the text of a scalar without escapes: line breaks and
// indentation apart, it is the value.
func (s *Stream) consume(n *yaml.Node, at int) (int, error) {
	for _, want := range n.Value {
		if unicode.IsSpace(want) {
			continue
		}
		for at < len(s.text) {
			got, size := utf8.DecodeRuneInString(s.text[at:])
			at += size
			if got == want {
				break
			} else if !unicode.IsSpace(got) || at >= len(s.text) {
				return 0, lost(n)
			}
		}
	}
	return at, nil
}

func (s *Stream) flowEnd(n *yaml.Node, at int) (int, error) {
	if at >= len(s.text) || s.text[at] != '[' && s.text[at] != '{' {
		return 0, lost(n)
	}
	at++
	for _, child := range n.Content {
		end, err := s.end(child)
		if err != nil {
			return 0, err
		}
		at = max(at, end)
	}
	for {
		at = s.skipSpace(at)
		if at >= len(s.text) {
			return 0, lost(n)
		}
		switch s.text[at] {
		case ']', '}':
			return at + 1, nil
		case ',', ':', '?':
			at++
		default:
			return 0, lost(n)
		}
	}
}

// lastLine is the index of the last line of a node. The empty lines that a
// block scalar keeps are its own.
func (s *Stream) lastLine(n *yaml.Node) (int, error) {
	end, err := s.end(n)
	if err != nil {
		return 0, err
	}
	last := s.lineOf(end)
	if end > 0 && last == s.lineOf(end-1)+1 {
		last-- // it ended with its line
	}
	leaf := n
	for len(leaf.Content) > 0 {
		leaf = leaf.Content[len(leaf.Content)-1]
	}
	if leaf.Kind == yaml.ScalarNode && leaf.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		for last+1 < len(s.lines) && strings.TrimSpace(s.text[s.lines[last+1].start:s.lines[last+1].stop]) == "" {
			last++
		}
	}
	return last, nil
}

// spans returns the first and the last line of every scalar of several lines: no
// comment can stand between these.
func (s *Stream) spans(n *yaml.Node, found [][2]int) ([][2]int, error) {
	if n == nil || n.Kind == yaml.AliasNode {
		return found, nil
	}
	if n.Kind == yaml.ScalarNode && !empty(n) {
		last, err := s.lastLine(n)
		if err != nil {
			return nil, err
		}
		if first := n.Line - 1; last > first {
			found = append(found, [2]int{first, last})
		}
	}
	for _, child := range n.Content {
		var err error
		if found, err = s.spans(child, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}
