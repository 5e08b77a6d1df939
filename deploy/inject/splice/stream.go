package splice

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const bom = "\ufeff"

// A Stream is a text and the YAML documents in it.
type Stream struct {
	text  string
	bom   bool
	lines []line
	roots []*yaml.Node // without the document nodes; nil where one is empty
}

// A line is [start, end) with its break, [start, stop) without.
type line struct{ start, stop, end int }

// An Error is what is wrong with a text, and where: Line counts from 1, 0 is
// nowhere.
type Error struct {
	Line int
	Text string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Text)
}

// Parse reads all documents of a text. The error is an *Error.
func Parse(text []byte) (*Stream, error) {
	if !utf8.Valid(text) {
		return nil, &Error{Text: "it is not UTF-8, and so no YAML that could be changed"}
	}
	s := &Stream{text: strings.TrimPrefix(string(text), bom)}
	s.bom = len(s.text) != len(text)
	s.lines = splitLines(s.text)
	if err := s.parse(); err != nil {
		return nil, err
	}
	return s, nil
}

// parse never panics, whatever the parser below does.
func (s *Stream) parse() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Error{Text: fmt.Sprintf("it cannot be read as YAML: %v", r)}
		}
	}()
	decoder := yaml.NewDecoder(strings.NewReader(s.text))
	for {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return yamlError(err)
		case len(document.Content) == 1:
			s.roots = append(s.roots, document.Content[0])
		default:
			s.roots = append(s.roots, nil)
		}
	}
}

var atLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// yamlError takes the line out of the parser's message; of several faults it is the
// first one's.
func yamlError(err error) *Error {
	text := err.Error()
	if several := (*yaml.TypeError)(nil); errors.As(err, &several) && len(several.Errors) > 0 {
		text = several.Errors[0]
	}
	if m := atLine.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		return &Error{Line: n, Text: text[len(m[0]):]}
	}
	return &Error{Text: strings.TrimPrefix(text, "yaml: ")}
}

// Roots are the documents' root nodes, in order; nil stands for an empty one.
// They are not to be changed.
func (s *Stream) Roots() []*yaml.Node { return s.roots }

// Decode returns the value of a node, as yaml decodes it into any.
func Decode(n *yaml.Node) (value any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Error{Line: n.Line, Text: fmt.Sprintf("it cannot be decoded: %v", r)}
		}
	}()
	if err := n.Decode(&value); err != nil {
		what := yamlError(err)
		if what.Line == 0 {
			what.Line = n.Line
		}
		return nil, what
	}
	return value, nil
}

// splitLines cuts where YAML does: a CR, the NEL, the LS and the PS end a line
// too.
func splitLines(text string) (lines []line) {
	start := 0
	for i := 0; i < len(text); {
		n := breakAt(text, i)
		if n == 0 {
			i++
			continue
		}
		lines = append(lines, line{start, i, i + n})
		i += n
		start = i
	}
	if start < len(text) {
		lines = append(lines, line{start, len(text), len(text)})
	}
	return lines
}

// breakAt returns the length of the line break at i, 0 if there is none.
func breakAt(text string, i int) int {
	switch rest := text[i:]; {
	case strings.HasPrefix(rest, "\r\n"):
		return 2
	case rest[0] == '\n', rest[0] == '\r':
		return 1
	case strings.HasPrefix(rest, "\u0085"):
		return 2
	case strings.HasPrefix(rest, "\u2028"), strings.HasPrefix(rest, "\u2029"):
		return 3
	}
	return 0
}

// offset of a node's first byte. Columns count runes.
func (s *Stream) offset(n *yaml.Node) (int, error) {
	if n.Line < 1 || n.Line > len(s.lines)+1 {
		return 0, lost(n)
	}
	if n.Line == len(s.lines)+1 {
		return len(s.text), nil
	}
	at := s.lines[n.Line-1].start
	for range n.Column - 1 {
		if at >= len(s.text) {
			return 0, lost(n)
		}
		_, size := utf8.DecodeRuneInString(s.text[at:])
		at += size
	}
	return at, nil
}

func lost(n *yaml.Node) error {
	return &Error{Line: n.Line, Text: "this place cannot be found in the text again: write it in a simpler way"}
}

// lineOf returns the index of the line that holds the byte at offset, or that
// ends there at the end of the text.
func (s *Stream) lineOf(offset int) int {
	low, high := 0, len(s.lines)
	for low < high {
		if middle := (low + high) / 2; s.lines[middle].end <= offset {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(s.lines) && low > 0 && s.lines[low-1].stop == s.lines[low-1].end {
		return low - 1 // the last line has no break
	}
	return low
}

// lineStart of a line, also of the one after the last.
func (s *Stream) lineStart(i int) int {
	if i < len(s.lines) {
		return s.lines[i].start
	}
	return len(s.text)
}

// newline is the break of the lines around line i: CRLF or LF.
func (s *Stream) newline(i int) string {
	for ; i >= 0; i-- {
		if i < len(s.lines) && s.lines[i].end > s.lines[i].stop {
			if s.text[s.lines[i].stop:s.lines[i].end] == "\r\n" {
				return "\r\n"
			}
			return "\n"
		}
	}
	return "\n"
}
