// Package printable is the one way of a text that is not ours to somebody's eyes: to
// a terminal, a page, an Event, a gRPC message or a line of a log.
//
// Names, IDs, readings and reasons are written by kubelets, tenants, drivers, devices
// and people. A terminal that is shown them raw does what they say: it moves, clears,
// types into the clipboard, or turns the direction of a line round.
//
// What leaves the program passes here at the outermost place that it has: the writers
// of the subcommands (cmd/csi-fencepost/cli), the messages of refusals (fence), the
// gRPC statuses (proxy/guard), the recorder of Events and the checks of /readyz
// (proxy/sidecar), the page (proxy/statusz), and the stream of the log
// (cmd/csi-fencepost/run).
//
// # Guarantees
//
// Nothing that [Line], [Text], [JSON] and [Writer] give holds a character that does not
// print, but for the line breaks and tabs that Text and Writer keep. It is valid UTF-8.
// A shell takes what [Word] gives as one word and runs none of it, also within the
// single quotes in which a sentence shows a command.
//
// # Non-guarantees
//
// A text may still lie. Letters that look like others are not told apart.
package printable

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line is s as one line: each character that does not print becomes a space.
func Line(s string) string { return strings.Map(inLine, s) }

// Text is s with its line breaks and tabs; of the rest it is as a Line.
func Text(s string) string { return strings.Map(inText, s) }

// inLine keeps what unicode.IsPrint does: letters, marks, numbers, punctuation,
// symbols and the plain space. So no control character comes through, nor what turns
// the direction of a line.
func inLine(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

func inText(r rune) rune {
	if r == '\n' || r == '\t' {
		return r
	}
	return inLine(r)
}

// A Writer passes on the Text of what is written to it. Each write is looked at by
// itself: a character that two writes share is taken for none.
type Writer struct{ To io.Writer }

// Write implements io.Writer.
func (w Writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.To, Text(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// JSON is a JSON document in which what does not print is escaped. It says the same:
// outside of its strings JSON has no such character but breaks and tabs.
func JSON(document []byte) []byte {
	out := make([]byte, 0, len(document))
	for rest := document; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case inText(r) == r:
			out = utf8.AppendRune(out, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = appendEscape(appendEscape(out, high), low)
		default:
			out = appendEscape(out, r)
		}
		rest = rest[size:]
	}
	return out
}

func appendEscape(to []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(to, '\\', 'u', hex[r>>12&0xF], hex[r>>8&0xF], hex[r>>4&0xF], hex[r&0xF])
}

// Word makes one word of s for a shell. A name as people give them stays as it is. In
// any other, each character that may mean something is behind a backslash; quotes would
// end those that a sentence has put around the command.
func Word(s string) string {
	if s == "" {
		return "''"
	}
	if strings.IndexFunc(s, meansSomething) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range Line(s) {
		if meansSomething(r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// meansSomething tells whether a shell might read the character as more than itself.
func meansSomething(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("_./:@%+=,-", r)
}
