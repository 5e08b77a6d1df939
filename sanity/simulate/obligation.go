package simulate

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

// R6's oracle: decision by decision, whether csi-fencepost keeps a volume from somebody
// whom Kubernetes alone would have served, and harmed nobody by it.
//
// At a refusal, or a call that was given up, the state is forked without csi-fencepost.
// If a volume is then published to the node of a living pod, whose machine writes, and
// no other machine writes after that until quietFor has passed since the publish, that
// is owed: the guarded fork has to publish it to any node of a living pod by then,
// and Bound. What is missed is an exception if a twin (twin.go) has two writers, and a
// defect otherwise.
//
// What keeps it from saying too much:
//
//   - a volume that some living pod has at the refusal is owed nothing;
//   - both forks have the same outside events at the same times after the refusal, and
//     neither has an operator who knows what nobody could;
//   - in the guarded fork the calls that wait are tried every few seconds.
//
// What it does not see: a twin that more than three exchanges make, and a twin's future
// that needs another event from outside than the script has. An exception says that a
// twin exists, not that csi-fencepost refused because of it.

// Bound is how much later than without csi-fencepost a volume may be published.
const Bound = time.Minute

// point is a refusal, as a place in a script.
type point struct {
	setup        Setup
	seed         uint64
	before, rest []Event
	// key and outcome of the call that was refused; an empty outcome: whichever.
	key     callKey
	outcome string
	// seen is what could be told of the state; empty: whatever it is.
	seen    string
	lenient bool
	// wait is the call, its reason and what was so, at the end of a schedule.
	wait string
}

// Verdict of a refusal.
type Verdict string

const (
	NothingOwed Verdict = "nothing is owed"
	Kept        Verdict = "kept"
	Void        Verdict = "void"
	Exception   Verdict = "exception"
	Defect      Verdict = "defect"
	// AgainstR2 is what is owed only against R2: without csi-fencepost the driver revokes the volume
	// of a machine that lives and writes. There are never two writers, and R2 forbids it all the
	// same.
	AgainstR2   Verdict = "owed against R2"
	NotRepeated Verdict = "not repeated"
)

// Judgement of one refusal.
type Judgement struct {
	Verdict Verdict
	// Refusal is the call and how it was answered; Volume what is owed, and when
	// after the refusal.
	Refusal, Volume string
	Owed            time.Duration
	// Why are the refusals that stood in the way when it was overdue, and Hidden the
	// fact that a twin exchanges.
	Why    string
	Hidden string
	// Holders says what was so of who had the volume then.
	Holders string
	// Torn tells that without csi-fencepost the driver took it from a machine that was writing,
	// which R2 forbids and R1 does not.
	Torn bool
	// Stayed tells that it was kept only since the volume had never been unpublished there.
	Stayed bool
	// Harmed tells that a machine lost its power that without csi-fencepost ran and had the volume
	// sooner.
	Harmed bool
	// Broken is a rule that the guarded fork broke.
	Broken string

	at point
}

// judge judges one refusal.
func (p *point) judge(t *testing.T, factory Factory) (j Judgement) {
	j = Judgement{Verdict: NothingOwed, Refusal: p.key.verb + " " + p.outcome, at: *p}
	alone := fork(t, factory, p, nil, true, nil)
	if !alone.repeated || alone.volumes == nil {
		j.Verdict, j.Why = NotRepeated, firstDifference(p.seen, alone.seen)
		return j
	}
	due := owed{}
	for i, c := range alone.volumes {
		if at, is := c.owes(); is {
			due[volumeName(i)] = at
		}
	}
	if len(due) == 0 {
		return j
	}
	guarded := fork(t, factory, p, nil, false, due)
	if !guarded.repeated || guarded.volumes == nil {
		j.Verdict, j.Why = NotRepeated, firstDifference(p.seen, guarded.seen)
		return j
	}
	if guarded.Violation != "" && guarded.Rule != "stuck" {
		j.Broken = guarded.Rule + ": " + guarded.Violation
	}
	j.Verdict = Void
	for i, c := range guarded.volumes {
		at, is := due[volumeName(i)]
		if !is {
			continue
		}
		one := j
		one.Volume, one.Owed, one.Why = volumeName(i), at, cmp.Or(strings.Join(c.last, ", "), "no refusal")
		one.Holders = c.holders
		one.Torn, one.Stayed = alone.volumes[i].torn, c.stayed
		one.Harmed = guarded.cuts > alone.cuts && (c.reached < 0 || c.reached > at)
		switch {
		case c.reached >= 0:
			one.Verdict = Kept
		case c.missed < 0:
			one.Verdict = Void // nobody wanted it for as long as that
		default:
			one.Verdict, one.Hidden = Defect, p.twin(t, factory, &alone, i)
			switch {
			case one.Hidden != "":
				one.Verdict = Exception
			case p.setup.Revokes && alone.volumes[i].alive:
				one.Verdict = AgainstR2
			}
		}
		if one.Verdict.worse(j.Verdict) {
			j = one
		}
	}
	return j
}

// firstDifference is the first line in which two states differ.
func firstDifference(was, is string) string {
	others := strings.Split(is, "\n")
	for i, line := range strings.Split(was, "\n") {
		if i >= len(others) || others[i] != line {
			return fmt.Sprintf("it was %s, and is %s", line, strings.Join(others[min(i, len(others)):min(i+1, len(others))], ""))
		}
	}
	return "the state is the same, and the refusal is not"
}

// worse orders what is said of a refusal with more than one volume.
func (v Verdict) worse(than Verdict) bool {
	order := []Verdict{Void, Kept, AgainstR2, Exception, Defect}
	return slices.Index(order, v) > slices.Index(order, than)
}

func volumeName(i int) string { return fmt.Sprintf("v%d", i+1) }

// owes is when the volume was first published for good, if that is not so from the
// start.
func (c *course) owes() (at time.Duration, is bool) {
	if c.had {
		return 0, false
	}
	for _, p := range c.useful {
		if p.wrote && !p.spoiled {
			return p.at, true
		}
	}
	return 0, false
}

// twin is the hidden fact of a twin that excuses the refusal; empty: none was found.
// The state is its own twin where a machine that is paused may go on.
func (p *point) twin(t *testing.T, factory Factory, alone *Branch, i int) string {
	if alone.volumes[i].twice >= 0 {
		return string(runs)
	}
	for _, x := range exchanges(slices.Concat(p.before, []Event{{Verb: owedLine}}, p.rest), volumeName(i), p.setup) {
		x.seen = alone.seen
		b := fork(t, factory, p, &x, true, nil)
		if b.repeated && b.volumes != nil && breaks(&b, alone, i) {
			return string(x.fact)
		}
	}
	return ""
}

// Obligations is a sample of the refusals of many schedules, judged.
type Obligations struct {
	Factory Factory
	// Wide plays the wide world.
	Wide bool
	// Waits judges, in the place of refusals on the way, those at the end of a schedule of the wide
	// world that stand once everything has healed.
	Waits bool
	// From is the first seed, Refusals how many are judged, within so much time.
	From     uint64
	Refusals int
	Within   time.Duration
	Progress func(string)

	mu     sync.Mutex
	states map[string]bool
	// Schedules, Seen, Distinct and Judged are the denominators.
	Schedules, Seen, Distinct, Judged int
	// Broken are the schedules that broke R1 or R2 before anything was forked.
	Broken     map[string]int
	Judgements []Judgement
}

// perSchedule is how many refusals of one schedule are judged, at most.
const perSchedule = 2

// Run judges.
func (o *Obligations) Run(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(spare))
	o.states, o.Broken = map[string]bool{}, map[string]int{}
	began := time.Now()
	var next atomic.Uint64
	over := func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.Judged >= o.Refusals || o.Within > 0 && time.Since(began) > o.Within
	}
	told := began
	t.Run("refusals", func(t *testing.T) {
		for core := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprintf("core%d", core), func(t *testing.T) {
				t.Parallel()
				for !over() {
					seed := o.From + next.Add(1) - 1
					points, rule := o.sample(t, seed)
					for _, p := range points {
						if over() {
							break
						}
						o.note(p.judge(t, o.Factory))
					}
					o.mu.Lock()
					o.Schedules++
					if rule != "" {
						o.Broken[rule]++
					}
					if o.Progress != nil && time.Since(told) > 10*time.Second {
						told = time.Now()
						o.Progress(fmt.Sprintf("%d schedules, %d refusals, %d states, %d judged", o.Schedules, o.Seen, o.Distinct, o.Judged))
					}
					o.mu.Unlock()
				}
			})
		}
	})
}

func (o *Obligations) note(j Judgement) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Judged++
	o.Judgements = append(o.Judgements, j)
}

// seenAt is a refusal of a schedule: after so many of its events.
type seenAt struct {
	at      int
	key     callKey
	outcome string
	seen    string
	wait    string
}

// refusal is a call that came to nothing.
type refusal struct {
	c       *call
	outcome string
}

// tellRefusals tells of the calls that came to nothing in the last line of a schedule, and
// not to anything else since: of them a script leads to the same state again.
func (w *World) tellRefusals() {
	for _, r := range w.refusals {
		if w.refused != nil && w.last[r.c.key()] == r.outcome {
			w.refused(r.c, r.outcome)
		}
	}
	w.refusals = nil
}

// sample runs a schedule, and chooses among its refusals those whose state is new.
func (o *Obligations) sample(t *testing.T, seed uint64) (chosen []*point, rule string) {
	var fresh []seenAt
	var trace []Event
	var setup Setup
	watch := func(w *World) {
		setup = w.setup
		w.refused = func(c *call, outcome string) {
			if !ours(outcome) || !w.guards() {
				return
			}
			if o.isNew(w.likeness(c, outcome)) {
				fresh = append(fresh, seenAt{at: len(w.Trace), key: c.key(), outcome: outcome, seen: w.visible()})
			}
		}
	}
	var ends func(*World)
	if o.Waits {
		ends = func(w *World) {
			w.eachWait(func(wait Wait, v *volume, s *slot) {
				o.isNew(fmt.Sprint(seed, wait, v.name, s.name))
				fresh = append(fresh, seenAt{at: len(w.Trace), key: callKey{wait.Call, v.name, s.name}, outcome: wait.Reason, seen: w.visible(), wait: wait.String()})
			})
		}
		watch = func(w *World) { setup = w.setup }
	}
	r := randomUntilEnd(t, o.Factory, seed, o.Wide, watch, ends)
	trace, rule = r.Trace, r.Rule
	for i, one := range fresh {
		if len(fresh) > perSchedule && i%(len(fresh)/perSchedule) != 0 || len(chosen) >= perSchedule {
			continue
		}
		chosen = append(chosen, &point{setup: setup, seed: seed, before: trace[:one.at:one.at], rest: trace[one.at:], key: one.key, outcome: one.outcome, seen: one.seen, wait: one.wait})
	}
	return chosen, rule
}

// isNew counts a refusal, and tells whether none was seen in such a state before.
func (o *Obligations) isNew(state string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Seen++
	if o.states[state] {
		return false
	}
	o.states[state] = true
	o.Distinct++
	return true
}

// randomUntilEnd is Random, or RandomWide, without the end after all faults.
func randomUntilEnd(t *testing.T, factory Factory, seed uint64, wide bool, watch, ends func(*World)) Result {
	draw := drawNarrow
	if wide {
		draw = drawWide
	}
	r, setup := draw(seed)
	rule := ""
	result := play(t, factory, setup, seed, nil, func(w *World) {
		watch(w)
		w.wander(r)
		if heal := (Event{Verb: Heal}); ends != nil && w.Violation == "" && w.possible(heal) {
			if w.perform(heal); w.Violation == "" && w.guards() {
				ends(w)
			}
		}
		if w.Violation == "" {
			w.violation(unfinished, "it is not judged how it ends")
		}
		w.refused, rule = nil, w.Rule
	})
	if result.Rule = rule; rule == unfinished {
		result.Rule, result.Violation = "", ""
	}
	return result
}

// unfinished is the rule that a schedule breaks of which only the middle is wanted.
const unfinished = "unfinished"

// ours tells whether csi-fencepost itself refused, or let the call wait until it was given up. What
// the driver answered is not.
func ours(outcome string) bool {
	switch outcome {
	case "Aborted", "Unavailable", "Canceled", "DeadlineExceeded":
		return true
	case "OK", "Internal", "NotFound", "FailedPrecondition", "Unknown":
		return false
	}
	return true // a reason
}

// likeness is what two refusals have in common that need not both be judged: the same
// call and reason, in worlds of one kind, where each node is in the same state.
func (w *World) likeness(c *call, outcome string) string {
	var nodes []string
	target := ""
	for _, s := range w.slots {
		m, n := s.machine, w.peekNode(s.name)
		word := fmt.Sprint(m.power, m.paused, s.cut, n == nil, c.v.writes(m), c.v.attached[m.id], c.v.wants(s), time.Since(s.renewed) >= suspectAfter)
		if n != nil {
			word += fmt.Sprint(readyStatus(n), tainted(n), inUse(n, c.v), volumesAttachedHas(n, c.v), n.Status.NodeInfo.BootID == m.boot())
		}
		if va := w.vaOf(c.v, s); va != nil {
			word += fmt.Sprint(va.DeletionTimestamp != nil, va.Status.Attached, len(w.young(c.v, s)) > 0)
		}
		if s == c.s {
			target = word
		} else {
			nodes = append(nodes, word)
		}
	}
	slices.Sort(nodes)
	var holders []string
	for _, e := range w.ledger(c.v) {
		holders = append(holders, fmt.Sprint(e.NodeName == c.s.name, e.State, e.Contest != nil))
	}
	slices.Sort(holders)
	kind := fmt.Sprint(w.setup.Agents, w.setup.Revokes, w.setup.Single, w.setup.Lists)
	return strings.Join(slices.Concat([]string{c.key().verb, outcome, kind, target}, nodes, holders), "|")
}

// Count is how many judgements there are of each verdict.
func (o *Obligations) Count(v Verdict) (n int) {
	for _, j := range o.Judgements {
		if j.Verdict == v {
			n++
		}
	}
	return n
}

// Owed is how many of the judged had something owed.
func (o *Obligations) Owed() int {
	return o.Count(Kept) + o.Count(Void) + o.Count(AgainstR2) + o.Count(Exception) + o.Count(Defect)
}

// By counts the judgements of one verdict, by what stood in the way and the hidden fact.
func (o *Obligations) By(v Verdict) map[string]int {
	by := map[string]int{}
	for _, j := range o.Judgements {
		if j.Verdict == v {
			name := j.Why
			if j.Torn {
				name += " (the driver takes it from who writes)"
			}
			if j.Hidden != "" {
				name += " (" + j.Hidden + ")"
			}
			by[name]++
		}
	}
	return by
}

// Kinds counts the judgements of one verdict by what stood in the way and what was so of
// who had the volume, the most frequent first.
func (o *Obligations) Kinds(v Verdict) (lines []string) {
	by := map[string]int{}
	for _, j := range o.Judgements {
		if j.Verdict == v {
			by[j.kind()]++
		}
	}
	for name, n := range by {
		lines = append(lines, fmt.Sprintf("%6d  %s", n, name))
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(strings.Compare(b[:6], a[:6]), strings.Compare(a, b)) })
	return lines
}

// WaitsBy counts the judgements of what the ends waited for, by the call, its reason and what
// was so, and by the verdict.
func (o *Obligations) WaitsBy() (lines []string) {
	by, sum := map[string]map[string]int{}, map[string]int{}
	for _, j := range o.Judgements {
		verdict := string(j.Verdict)
		if j.Hidden != "" {
			verdict += " (" + j.Hidden + ")"
		}
		if by[j.at.wait] == nil {
			by[j.at.wait] = map[string]int{}
		}
		by[j.at.wait][verdict]++
		sum[j.at.wait]++
	}
	for wait, verdicts := range by {
		lines = append(lines, fmt.Sprintf("%6d  %s: %v", sum[wait], wait, verdicts))
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(strings.Compare(b[:6], a[:6]), strings.Compare(a, b)) })
	return lines
}

func (j *Judgement) kind() string {
	text := j.Why + ": " + j.Holders
	if j.Torn {
		text += "; the driver takes it from who writes"
	}
	if j.Hidden != "" {
		text += "; hidden: " + j.Hidden
	}
	return text
}

// Figures adds the denominators to a result.
func (o *Obligations) Figures(r *result.Result) {
	harmed := 0
	for _, j := range o.Judgements {
		if j.Harmed {
			harmed++
		}
	}
	add := func(name string, n int) { r.Add("obligations: "+name, float64(n), "refusals") }
	r.Add("obligations: schedules", float64(o.Schedules), "schedules")
	add("refusals and delays seen", o.Seen)
	add("of them in distinct states", o.Distinct)
	add("judged", o.Judged)
	add("not repeated by their script", o.Count(NotRepeated))
	add("where something is owed", o.Owed())
	add("kept", o.Count(Kept))
	add("void", o.Count(Void))
	add("owed against R2: the driver revokes it of a machine that lives and writes", o.Count(AgainstR2))
	for _, v := range []Verdict{Exception, Defect} {
		add(string(v)+"s", o.Count(v))
		by := o.By(v)
		var names []string
		for name := range by {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(by[b]-by[a], strings.Compare(a, b)) })
		for _, name := range names {
			add(string(v)+": "+name, by[name])
		}
	}
	add("harm: a machine that lost its power", harmed)
}

// Script of a judgement: the setup, what led to the refusal, the line owed, and the rest.
func (j *Judgement) Script() string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s: after %s, %s is owed %s later, and %s.\n# What stands in the way then: %s.\n# What is so then: %s.\n", j.Verdict, j.Refusal, j.Volume, j.Owed.Round(time.Second), Bound, j.Why, j.Holders)
	if j.Hidden != "" {
		fmt.Fprintf(&text, "# Hidden: %s.\n", j.Hidden)
	}
	fmt.Fprintln(&text, j.at.setup)
	for _, e := range j.at.before {
		fmt.Fprintln(&text, e)
	}
	fmt.Fprintln(&text, owedLine)
	for _, e := range j.at.rest {
		fmt.Fprintln(&text, e)
	}
	return text.String()
}

// owedLine parts what led to a refusal from what follows.
const owedLine = "owed"

// JudgeScript judges the refusal of such a script.
func JudgeScript(t *testing.T, factory Factory, text string) (Judgement, error) {
	setup, events, err := ParseScript(text)
	if err != nil {
		return Judgement{}, err
	}
	if !slices.Contains(events, Event{Verb: owedLine}) {
		return Judgement{}, fmt.Errorf("there is no line %q", owedLine)
	}
	p := &point{setup: setup}
	p.before, p.rest = parted(events)
	return p.judge(t, factory), nil
}

// Shrink removes events as long as the same verdict is given for the same reasons. What
// is left is a script whose every event can happen.
func (j *Judgement) Shrink(t *testing.T, factory Factory, until time.Time) Judgement {
	same := func(p point) (Judgement, bool) {
		p.outcome = ""
		got := p.judge(t, factory)
		got.Refusal = j.Refusal
		return got, got.Verdict == j.Verdict && got.Why == j.Why && got.Hidden == j.Hidden
	}
	best, ok := same(j.at)
	if !ok {
		return *j
	}
	for _, part := range []func(*point) *[]Event{func(p *point) *[]Event { return &p.rest }, func(p *point) *[]Event { return &p.before }} {
		for size := max(len(*part(&best.at))/2, 1); size > 0; {
			shorter := false
			for at := 0; at < len(*part(&best.at)) && time.Now().Before(until); {
				p := best.at
				events := *part(&p)
				*part(&p) = slices.Concat(events[:at:at], events[min(at+size, len(events)):])
				if got, ok := same(p); ok {
					best, shorter = got, true
				} else {
					at += size
				}
			}
			if !shorter {
				size /= 2
			}
		}
	}
	for _, change := range []func(*Setup){
		func(s *Setup) { s.Replicas = 1 }, func(s *Setup) { s.Volumes = 1 }, func(s *Setup) { s.Nodes = 2 }, func(s *Setup) { s.Lies = false },
		func(s *Setup) { s.Agents = false }, func(s *Setup) { s.NamedIDs = false }, func(s *Setup) { s.Lists = Nothing },
		func(s *Setup) { s.Skew = "" }, func(s *Setup) { s.Single = Allows }, func(s *Setup) { s.Revokes = false },
	} {
		p := best.at
		if change(&p.setup); p.setup == best.at.setup || time.Now().After(until) {
			continue
		}
		if got, ok := same(p); ok {
			best = got
		}
	}
	return best
}
