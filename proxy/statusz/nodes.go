package statusz

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

func (p *page) nodes(s *State) {
	p.raw(`<h2>Nodes</h2>`)
	if len(s.Nodes) == 0 {
		p.raw(`<p class="dim">No node is silent, and nothing is claimed of any.</p>`)
	}
	for i := range s.Nodes {
		p.node(&s.Nodes[i])
	}
	if s.Polling.Nodes > 0 {
		p.in(`<p class="dim">`, s.Polling.words(), `</p>`)
	}
}

func (p *Polling) words() string {
	text := count(p.Nodes, "node is", "nodes are") + " asked every " + took(p.PeriodMS) + " whether the power is on, whatever the lease says; the oldest answer is " + took(p.OldestMS) + " old."
	if p.Short {
		text += " That is less often than configured: fencing.pollsPerSecond does not do for all."
	}
	return text
}

func (p *page) node(n *Node) {
	class, word := nodeWord(n.State)
	p.in(`<div class="card"><div class="top"><h3>`, n.Name, `</h3><span class="w `)
	p.raw(class)
	p.in(`">`, string(word), `</span></div><dl>`)
	if n.SilentSeconds > 0 && n.State != Alive {
		p.row("silent for", duration.HumanDuration(time.Duration(n.SilentSeconds)*time.Second))
	}
	if n.Power.State != "" {
		text := n.Power.State + ", " + itoa(int64(n.Power.AgeSeconds)) + " s ago"
		if n.Power.Why != "" {
			text += ": " + n.Power.Why
		}
		p.row("power", text)
	}
	if n.Proof != "" {
		p.row("proven by", n.Proof)
	}
	if len(n.Volumes) > 0 {
		p.row("holds", strings.Join(n.Volumes, ", "))
	}
	p.raw(`</dl>`)
	if n.Awaited != "" {
		p.in(`<p><strong>Awaited:</strong> `, n.Awaited, `</p>`)
	}
	p.evidence(n.Evidence)
	p.audit(n.Audit)
	p.raw(`</div>`)
}

func nodeWord(state string) (class, word markup) {
	switch state {
	case Suspected:
		return "warn", "suspected"
	case Gone:
		return "warn", "no such Node"
	case Fencing:
		return "warn", "being fenced"
	case Fenced:
		return "bad", "fenced: no power"
	case StorageFenced:
		return "bad", "fenced: cut off from the storage"
	case Lifting:
		return "warn", "given its access back"
	case Confirmed:
		return "bad", "said to be off"
	case Alive:
		return "good", "alive"
	}
	return "quiet", "not watched for long enough"
}

func (p *page) evidence(all []Evidence) {
	if len(all) == 0 {
		return
	}
	p.raw(`<ul class="rows">`)
	for i := range all {
		e := &all[i]
		p.raw(`<li><span class="w `)
		p.raw(phaseClass(e.Phase))
		p.in(`">`, phaseWord(e.Phase), `</span> `)
		p.in(`<strong>`, e.Kind, `</strong> `)
		if e.Source != "" {
			p.text("by " + e.Source + ", ")
		}
		p.moment(e.At)
		if e.Detail != "" {
			p.in(`<p>`, e.Detail, `</p>`)
		}
		if e.Why != "" {
			p.in(`<p class="dim">`, e.Why, `</p>`)
		}
		p.steps(e.Steps)
		p.raw(`</li>`)
	}
	p.raw(`</ul>`)
}

func phaseClass(phase string) markup {
	switch phase {
	case "Counts":
		return "good"
	case "Fencing", "Failed", "Lifting":
		return "bad"
	}
	return "quiet"
}

func phaseWord(phase string) string {
	switch phase {
	case "Counts":
		return "counts"
	case "Fencing":
		return "under way"
	case "Failed":
		return "failed"
	case "Void":
		return "void"
	case "Lifting":
		return "being lifted"
	case "Lifted":
		return "lifted"
	}
	return phase
}

func (p *page) steps(all []Step) {
	if len(all) == 0 {
		return
	}
	p.in(`<details><summary>`, "What was asked and answered: "+count(len(all), "step", "steps"), `</summary><ol>`)
	for i := range all {
		st := &all[i]
		p.in(`<li><strong>`, st.Agent+" "+st.Action, `</strong> `)
		p.answer(st.State, st.Detail, st.Error, st.TookMS)
		p.raw(`<br>`)
		p.moment(st.At)
		p.raw(`</li>`)
	}
	p.raw(`</ol></details>`)
}

// answer writes what an agent said.
func (p *page) answer(state, detail, failure string, tookMS int64) {
	if state != "" && state != "error" {
		p.in(`→ <strong>`, state, `</strong>`)
	}
	p.text(" in " + took(tookMS))
	if detail != "" {
		p.text(": " + detail)
	}
	if failure != "" {
		p.in(` <span class="w bad">error</span> `, failure, ``)
	}
}

func took(ms int64) string {
	if ms < 10_000 {
		return itoa(ms) + " ms"
	}
	return duration.HumanDuration(time.Duration(ms) * time.Millisecond)
}

func (p *page) audit(all []Audit) {
	if len(all) == 0 {
		return
	}
	p.in(`<details><summary>`, "Audit trail: "+count(len(all), "entry", "entries"), `</summary><ol>`)
	for i := range all {
		a := &all[i]
		p.in(`<li><strong>`, a.Action, `</strong> by `)
		p.in(``, a.Actor, `<br>`)
		p.moment(a.At)
		if a.Detail != "" {
			p.in(`<p class="dim">`, a.Detail, `</p>`)
		}
		p.raw(`</li>`)
	}
	p.raw(`</ol></details>`)
}

func (p *page) agents(s *State) {
	p.raw(`<h2>Fence agents</h2>`)
	if len(s.Agents) == 0 {
		p.raw(`<p class="dim">None is configured.</p>`)
	}
	for i := range s.Agents {
		a := &s.Agents[i]
		class, word := agentWord(a.State)
		p.in(`<div class="card"><div class="top"><h3>`, a.Name, `</h3><span class="w `)
		p.raw(class)
		p.in(`">`, word, `</span></div>`)
		p.in(`<p class="dim">level `, itoa(int64(a.Level))+", proves "+a.Proves, `</p>`)
		if len(a.Last) > 0 {
			p.raw(`<ul class="rows">`)
			for j := range a.Last {
				p.asked(&a.Last[j])
			}
			p.raw(`</ul>`)
		}
		p.raw(`</div>`)
	}
}

func agentWord(state string) (class markup, word string) {
	switch state {
	case "Answers":
		return "good", "answers"
	case "Fails":
		return "bad", "does not answer"
	}
	return "quiet", "never asked"
}

func (p *page) asked(a *Asked) {
	p.in(`<li><div class="top"><span><strong>`, a.Node, `</strong> `)
	p.in(``, a.Action, ` `)
	p.answer(a.Result, a.Detail, a.Error, a.TookMS)
	p.raw(`</span>`)
	p.moment(a.At)
	p.raw(`</div></li>`)
}
