package program

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// secrets are struck out of a program's output, the longest first: one may be
// part of another.
type secrets []string

func (p parameters) secrets() secrets {
	var all secrets
	for _, one := range p {
		if one.showing == harmless || boolean(one.value) || one.showing == hidden && len(one.value) < minHidden {
			continue
		}
		quoted := strconv.Quote(one.value)
		all = append(all, one.value, url.QueryEscape(one.value), url.PathEscape(one.value),
			quoted[1:len(quoted)-1], base64.StdEncoding.EncodeToString([]byte(one.value)))
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(all)
}

// minHidden is how long a value has to be that may be a secret: a separator or a
// number of retries, struck out of everything, would leave no message.
const minHidden = 4

// boolean values are no secrets, whatever their parameter is called, and
// striking them out would take every "on" away.
func boolean(value string) bool {
	return slices.Contains([]string{"", "0", "1", "on", "off", "yes", "no", "true", "false"}, strings.ToLower(value))
}

func (s secrets) strike(text string) string {
	for _, secret := range s {
		text = csi.Redact(text, map[string]string{"": secret})
	}
	return text
}

// detail of a result, for the audit trail: exit code and words, without
// secrets, on one line of at most 512 bytes.
func (s secrets) detail(res result) string {
	text := "exit " + strconv.Itoa(res.code)
	for _, stream := range []output{res.out, res.errs} {
		words := s.strike(stream.text)
		if stream.cut {
			// A secret may have been cut in two at the end.
			longest := 0
			if len(s) > 0 {
				longest = len(s[0])
			}
			words = words[:max(0, len(words)-longest)]
		}
		// And once more, since a control character that has become a blank may make it one.
		if words = s.strike(oneLine(words)); words != "" {
			text += ": " + words
		}
	}
	return middle(text, maxDetail)
}

const maxDetail = 512

func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return strings.Join(strings.Fields(text), " ")
}

// middle leaves a long text's middle out: the start says what, the end why.
func middle(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const gap = " … "
	head := (limit - len(gap)) / 3
	tail := len(text) - (limit - len(gap) - head)
	for !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + gap + text[tail:]
}
