package statusz

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// HTML is the page. A refresh of 0 has the browser leave it as it is.
func HTML(s *State, refresh int) []byte {
	p := &page{now: s.At}
	p.head(s, refresh)
	p.summary(s)
	p.notes(s)
	p.brakes(s)
	p.waiting(s)
	p.nodes(s)
	p.agents(s)
	p.decisions(s)
	p.about(s)
	p.raw("</main></body></html>\n")
	return p.Bytes()
}

func (p *page) head(s *State, refresh int) {
	p.raw(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">`)
	if refresh > 0 {
		p.in(`<meta http-equiv="refresh" content="`, strconv.Itoa(refresh), `">`)
	}
	p.in(`<title>`, headline(s), ` · csi-fencepost</title><style>`)
	p.raw(style)
	p.raw(`</style></head><body><main><header class="top"><h1>csi-fencepost</h1>`)
	p.in(`<span class="dim">`, driverWords(s), `</span></header>`)
	p.raw(`<nav><a href="?">Refresh</a>`)
	if refresh == 0 {
		p.raw(`<a href="?refresh=10">Refresh every 10 s</a>`)
	} else {
		p.raw(`<a href="?">Stop refreshing</a>`)
	}
	p.raw(`<a href="?format=json">JSON</a></nav>`)
}

func driverWords(s *State) string {
	if s.Driver == "" {
		return "its driver has not told its name yet"
	}
	return s.Driver + " · mode " + s.Mode
}

// headline is the page in a few words, for a tab's title too.
func headline(s *State) string {
	var parts []string
	add := func(n int, one, many string) {
		if n > 0 {
			parts = append(parts, count(n, one, many))
		}
	}
	suspected, fenced, said := 0, 0, 0
	for i := range s.Nodes {
		switch {
		case suspects(&s.Nodes[i]):
			suspected++
		case s.Nodes[i].State == Confirmed:
			said++
		case fences(s.Nodes[i].State):
			fenced++
		}
	}
	add(len(s.Waiting), "call waits", "calls wait")
	add(suspected, "node suspected", "nodes suspected")
	add(fenced, "node fenced", "nodes fenced")
	add(said, "node said to be off", "nodes said to be off")
	add(len(s.Brakes), "brake holds", "brakes hold")
	if len(parts) == 0 {
		return "Nothing waits"
	}
	return strings.Join(parts, ", ")
}

// suspects tells whether somebody may wait for that node.
func suspects(n *Node) bool {
	return n.State == Suspected || n.State == Fencing || n.State == Gone && len(n.Volumes) > 0
}

func fences(state string) bool {
	return state == Fenced || state == StorageFenced
}

// summary says in a line whether somebody has to look.
func (p *page) summary(s *State) {
	switch {
	case !s.Ready:
		p.raw(`<p class="sum bad"><strong>Not ready.</strong> `)
		for _, c := range s.Checks {
			if c.Why != "" {
				p.text(c.Name + ": " + c.Why + ". ")
			}
		}
	case s.Mode == "None":
		p.raw(`<p class="sum bad"><strong>Nothing is guarded:</strong> it runs with --no-kubernetes and forwards every call.`)
	case len(s.Waiting) > 0 || len(s.Brakes) > 0:
		p.in(`<p class="sum warn"><strong>`, headline(s), `.</strong> Each says below what it waits for and what would unblock it.`)
	case headline(s) != "Nothing waits":
		p.in(`<p class="sum warn"><strong>`, headline(s), `.</strong> No call waits.`)
	default:
		p.raw(`<p class="sum good"><strong>Nothing waits.</strong> No node is suspected, and no call is refused.`)
	}
	p.raw(`</p>`)
	if s.Mode == "Observe" {
		p.raw(`<p class="sum quiet"><strong>Mode Observe:</strong> every call is forwarded; the decisions below say what Enforce would have done.</p>`)
	}
}

func (p *page) notes(s *State) {
	for _, n := range s.Notes {
		p.in(`<p class="sum quiet"><strong>Note:</strong> `, n, `</p>`)
	}
}

func (p *page) brakes(s *State) {
	if len(s.Brakes) == 0 {
		return
	}
	p.raw(`<h2>Brakes that hold</h2>`)
	for _, b := range s.Brakes {
		p.in(`<div class="card"><div class="top"><h3>`, b.Node, `</h3>`)
		p.in(`<span class="w warn">not fenced: `, b.Reason, `</span></div>`)
		p.in(`<p>`, b.Text, `</p></div>`)
	}
}

func (p *page) waiting(s *State) {
	p.raw(`<h2>Waiting calls</h2>`)
	if len(s.Waiting) == 0 {
		p.raw(`<p class="dim">None.</p>`)
	}
	for i := range s.Waiting {
		w := &s.Waiting[i]
		p.in(`<div class="card"><div class="top"><h3>`, either(w.PV, w.Volume), `</h3>`)
		p.in(`<span class="w warn">`, "waits: "+either(w.Reason, "refused before a restart"), `</span></div><dl>`)
		p.row("wants", verb(w.Call)+" "+either(w.Node, w.NodeID))
		if w.Holder != "" {
			p.row("held by", w.Holder)
		}
		p.row("refused", count(w.Times, "time", "times"))
		p.raw(`<dt>since</dt><dd>`)
		p.moment(w.Since)
		p.raw(`</dd></dl>`)
		p.refusal(w.Text, w.Runbook)
		p.raw(`</div>`)
	}
	if len(s.UnderWay) > 0 {
		p.raw(`<p class="dim">Under way now: `)
		for i, v := range s.UnderWay {
			if i > 0 {
				p.text(", ")
			}
			p.in(`<code>`, v, `</code>`)
		}
		p.raw(`</p>`)
	}
}

// refusal writes a refusal's text in its parts: why, and what would unblock it.
func (p *page) refusal(text, runbook string) {
	if text == "" {
		return
	}
	_, text, _ = strings.Cut(text, fence.Mark)
	text, _, _ = cutLast(text, " [")
	why, unblock, found := strings.Cut(text, " To unblock: ")
	p.in(`<p>`, why, `</p>`)
	if found {
		p.in(`<p><strong>To unblock:</strong> `, unblock, `</p>`)
	}
	if strings.HasPrefix(runbook, "https://") {
		p.in(`<p><a href="`, runbook, `" rel="noreferrer">Runbook</a></p>`)
	}
}

// cutLast cuts around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (p *page) row(name markup, value string) {
	p.raw(`<dt>`)
	p.raw(name)
	p.in(`</dt><dd>`, value, `</dd>`)
}

func (p *page) decisions(s *State) {
	p.raw(`<h2>Last decisions</h2>`)
	if len(s.Decisions) == 0 {
		p.raw(`<p class="dim">None since it started.</p>`)
		return
	}
	p.raw(`<ol class="rows">`)
	for i := range s.Decisions {
		d := &s.Decisions[i]
		p.raw(`<li><div class="top"><span><span class="w `)
		p.raw(verdictClass(d.Verdict))
		p.in(`">`, d.Verdict, `</span> `)
		p.text(verb(d.Call) + " " + either(d.Node, d.NodeID) + ": ")
		p.in(`<strong>`, either(d.PV, d.Volume), `</strong> <span class="dim">`)
		p.in(``, d.Reason, `</span></span>`)
		p.moment(d.Last)
		p.raw(`</div>`)
		if len(d.From) > 0 {
			p.in(`<p>taken from `, strings.Join(d.From, ", "), `</p>`)
		}
		if d.Times > 1 {
			p.in(`<p class="dim">`, count(d.Times, "time", "times")+" in "+duration.HumanDuration(d.Last.Sub(d.First)), `</p>`)
		}
		if d.Text != "" {
			p.raw(`<details><summary>Why, and what would unblock it</summary>`)
			p.refusal(d.Text, "")
			p.raw(`</details>`)
		}
		p.raw(`</li>`)
	}
	p.raw(`</ol>`)
}

func verdictClass(verdict string) markup {
	switch verdict {
	case "allow", "answer":
		return "quiet"
	case "took over":
		return "good"
	}
	return "warn"
}

func (p *page) about(s *State) {
	p.raw(`<h2>This csi-fencepost</h2><dl>`)
	p.row("version", s.Version)
	p.row("runs on", either(s.Host, "unknown host"))
	p.row("up for", duration.HumanDuration(s.At.Sub(s.Started)))
	p.row("background work", leaderWords(s.Leader))
	p.row("leases watched", count(s.Watched, "node", "nodes"))
	for _, c := range s.Checks {
		p.in(`<dt>check `, c.Name, `</dt><dd>`)
		if c.Why == "" {
			p.raw(`passes`)
		} else {
			p.in(`<span class="w bad">fails</span> `, c.Why, ``)
		}
		p.raw(`</dd>`)
	}
	p.raw(`</dl><p class="dim">As of `)
	p.in(`<time>`, s.At.UTC().Format("2006-01-02 15:04:05 UTC"), `</time>.</p>`)
}

func leaderWords(leader string) string {
	switch leader {
	case "Leading":
		return "here: this replica leads"
	case "Standby":
		return "on another replica; this one serves calls and stands by"
	}
	return "here, without leader election"
}

// verb is what a call does to a volume and a node.
func verb(call string) string {
	switch call {
	case "ControllerPublishVolume":
		return "publish to"
	case "ControllerUnpublishVolume":
		return "unpublish from"
	}
	return call
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
