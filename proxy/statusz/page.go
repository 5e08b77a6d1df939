package statusz

import (
	"bytes"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// markup is HTML that somebody wrote into this package. Constants alone become
// markup by themselves; no code converts to it (a test looks).
type markup string

// page is an HTML document that grows.
type page struct {
	bytes.Buffer
	now time.Time
}

// raw writes markup.
func (p *page) raw(m markup) { p.WriteString(string(m)) }

// text writes what is not markup: the body of an element, or of a quoted
// attribute.
func (p *page) text(s string) {
	for _, r := range printable.Line(s) {
		switch r {
		case '<':
			p.WriteString("&lt;")
		case '>':
			p.WriteString("&gt;")
		case '&':
			p.WriteString("&amp;")
		case '"':
			p.WriteString("&#34;")
		case '\'':
			p.WriteString("&#39;")
		default:
			p.WriteRune(r)
		}
	}
}

// in writes a text inside of an element: open, text, shut.
func (p *page) in(open markup, s string, shut markup) {
	p.raw(open)
	p.text(s)
	p.raw(shut)
}

// moment writes how long ago a time was, and the time.
func (p *page) moment(t time.Time) {
	if t.IsZero() {
		p.text("at an unknown time")
		return
	}
	p.in(`<time datetime="`, t.UTC().Format(time.RFC3339), `">`)
	p.in(``, ago(p.now.Sub(t)), ` <small>`)
	p.in(``, t.UTC().Format("2006-01-02 15:04:05 UTC"), `</small></time>`)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// ago is a duration until now in words.
func ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return duration.HumanDuration(d) + " ago"
}
