package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// A fork is what becomes of a state if from then on something is different. One
// schedule is repeated by its script, so the state is copied by playing the script
// once more in a bubble of its own. Then the rest of the script's outside events
// follow, each at its own time, and everybody takes their course in between: with
// csi-fencepost, or without it.

const (
	// quietFor is how long after a publish no other machine may write (DESIGN.md).
	quietFor = 10 * time.Minute
	// tail is how long a fork goes on after the last outside event: Kubernetes' own
	// patience with a silent node, and then quietFor.
	tail = forceDetachAfter + 2*time.Minute + quietFor
	// briefly is the longest pause of an attacher in a fork. In a cluster csi-fencepost
	// wakes the calls that wait; here they are tried again.
	briefly = 5 * time.Second
)

// Branch is what one fork came to.
type Branch struct {
	// Rule and Violation of the guarded run; empty: none.
	Rule, Violation string
	// repeated tells that the script led to the refusal again.
	repeated bool
	// seen is what could be told of the state without its hidden facts.
	seen string
	// played are the outside events that happened, with their times after the refusal.
	played []played
	// volumes are in the world's order.
	volumes []course
	// cuts of power, in the fork.
	cuts int
}

type played struct {
	Event
	at time.Duration
}

// course is what became of one volume in a fork. All times are since the refusal.
type course struct {
	// had tells that some living pod that wanted it had it already.
	had bool
	// held are the node IDs to which it has been published since before the refusal.
	held map[string]bool
	// useful are the publishes to the node of a living pod whose machine wrote then.
	useful []*published
	// twice is when two machines could write first; less than 0: never.
	twice time.Duration
	// reached is when it was first published to the node of a living pod; less than 0:
	// never. missed is when it should have been, at the latest, and was not.
	reached, missed time.Duration
	// wanted tells that some living pod wants it at the end.
	wanted bool
	// stayed tells that where it was reached it had been published since before the refusal.
	stayed bool
	// torn tells that the driver took it from a machine that wrote; alive, that this machine's
	// kubelet was heard.
	torn, alive bool
	// held by whom, in the words of hidden, beside the nodes that want it.
	holders string
	// last are the outcomes of its calls that did not come to OK.
	last []string
}

// published is a publish to the node of a pod that lives.
type published struct {
	m  *machine
	at time.Duration
	// wrote tells that its machine has written since; spoiled, that another one has after that.
	wrote, spoiled bool
}

// owed is when a volume is to be published at the latest; it has an entry for each
// volume for which something is owed.
type owed map[string]time.Duration

// apart is what is watched in a fork.
type apart struct {
	w     *World
	bare  bool
	began time.Time
	// due is owed of the guarded run, and free until when nobody wanted the volume.
	due     owed
	free    map[string]time.Duration
	volumes []course
	played  []played
	// armed are the driver's faults that wait for the call that they are for.
	armed map[string]string
	power int
}

// fork plays the script up to the refusal, with one of its hidden facts exchanged if
// twin is not nil, and the rest with csi-fencepost or, if bare, without.
func fork(t *testing.T, factory Factory, p *point, twin *exchange, bare bool, due owed) (b Branch) {
	synctest.Test(t, func(t *testing.T) {
		setup := p.setup
		if twin != nil {
			setup.Lies = true // what was true of the machine that is exchanged is not of its twin
			setup.Single = cmp.Or(twin.single, setup.Single)
		}
		w := newWorld(setup, cmp.Or(p.seed, 1), factory)
		w.mu.Lock()
		w.settleDown()
		defer w.end()
		if !w.settle(w.calm, 5*time.Minute) {
			return
		}
		w.Stats = Stats{}
		before, rest := p.before, p.rest
		if twin != nil {
			before, rest = parted(twin.events)
		}
		for _, e := range before {
			if verb, forced := strings.CutPrefix(e.Verb, first); forced {
				e.Verb = verb
				w.perform(e)
				continue
			}
			if w.follow(e, p.lenient); w.Violation != "" {
				return
			}
		}
		b.seen = w.visible()
		b.repeated = (p.outcome == "" || w.last[p.key] == p.outcome) && (twin != nil || p.seen == "" || p.seen == b.seen)
		if !b.repeated || twin != nil && (b.seen != twin.seen || w.stands(twin.word) || w.atLimit()) {
			return
		}
		a := &apart{w: w, bare: bare, began: time.Now(), due: due, free: map[string]time.Duration{}, armed: map[string]string{}, power: w.Stats.PowerOffs}
		if bare {
			w.withoutUs()
		}
		a.watch()
		w.apart, w.meets = a, a.fails
		a.goOn(rest)
		b.Rule, b.Violation = w.Rule, w.Violation
		b.played, b.volumes, b.cuts = a.played, a.volumes, w.Stats.PowerOffs-a.power
		for i := range b.volumes {
			b.volumes[i].wanted = a.living(w.volumes[i]) != nil
			b.volumes[i].last = w.lastOf(w.volumes[i])
			b.volumes[i].holders = w.holdersOf(w.volumes[i])
		}
	})
	return b
}

// stands tells whether a false word of the node's machine stands as the design binds it, or nobody
// has looked at it yet.
func (w *World) stands(node string) bool {
	s := w.slot(node)
	if s == nil {
		return false
	}
	bound := func(m *machine) bool { return m.slot == s && w.believed(m) }
	rec := w.record(s)
	return slices.ContainsFunc(w.machines, bound) || tainted(w.peekNode(node)) && (rec == nil || len(rec.Taints) == 0)
}

// atLimit tells whether a mount is at a limit that docs/design/architecture.md names. The guard
// lets such a mount through, and so it excuses no refusal.
func (w *World) atLimit() bool {
	for _, v := range w.volumes {
		if slices.ContainsFunc(w.machines, func(m *machine) bool { return w.limit(v, m) != nil }) {
			return true
		}
	}
	return false
}

// parted is what leads to the refusal, and what follows.
func parted(events []Event) (before, rest []Event) {
	at := slices.IndexFunc(events, func(e Event) bool { return e.Verb == owedLine })
	if at < 0 {
		return events, nil
	}
	return events[:at:at], events[at+1:]
}

// direct is the driver's own socket, as Kubernetes without csi-fencepost has it.
type direct struct{ driver spec.ControllerClient }

func (d direct) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return d.driver.ControllerPublishVolume(ctx, r)
}

func (d direct) ControllerUnpublishVolume(ctx context.Context, r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return d.driver.ControllerUnpublishVolume(ctx, r)
}

func (direct) Sight(context.Context, *corev1.Node) error            { return nil }
func (direct) FenceOff(context.Context, *corev1.Node, string) error { return nil }
func (direct) LeaseSeen(string, string)                             {}
func (direct) Beat(bool)                                            {}

// Directly is the Factory of no csi-fencepost at all.
func Directly(_ context.Context, p Parts) (Sidecar, error) {
	return direct{spec.NewControllerClient(p.Driver)}, nil
}

// withoutUs takes csi-fencepost away: the attachers go on, their ways are as they were,
// and what it had sent to the driver is under way.
func (w *World) withoutUs() {
	w.factory = Directly
	for _, name := range w.replicas {
		old := w.procs[name]
		if old.ended() {
			continue
		}
		w.crash(old)
		w.start(name)
		w.procs[name].noAPI, w.procs[name].noDriver = old.noAPI, old.noDriver
	}
	for _, o := range slices.Clone(w.parked) {
		if o.orphan && o.to != toDriver {
			w.remove(o) // what it would have written of its own, nobody misses
		}
	}
	w.settleDown()
}

// unjudged tells whether nothing guards this world, so that it breaks no rule.
func (a *apart) unjudged() bool { return a != nil && a.bare }

// took notes that the driver takes the volume from a machine.
func (a *apart) took(v *volume, m *machine) {
	if m != nil && v.writes(m) {
		c := &a.volumes[slices.Index(a.w.volumes, v)]
		c.torn, c.alive = true, c.alive || !m.severed && m.slot.connected()
	}
}

// absent tells whether the attacher beside the process does not reach the API server. While
// everything is under attack the schedule says when it calls.
func (a *apart) absent(p *Process) bool { return a != nil && p.noAPI }

// forUs are the verbs of what is done to csi-fencepost or said to it alone.
func forUs(verb string) bool {
	switch verb {
	case ConfirmOff, FenceOff, Sight, Release, Withdraw:
		return true
	}
	return false
}

// inTheCourse are the verbs of what happens by itself, or to one call of csi-fencepost.
func inTheCourse(e Event) bool {
	switch e.Verb {
	case Reads, Fail, Lose, Lie, Late, Gone, Republish, Expect:
		return true
	case Stall, Catch, CutAgent, JoinAgent, ListFails, ListWorks:
		return true // after the refusal nothing is broken that only csi-fencepost needs
	case Mode:
		return true // it is judged as one that goes on guarding
	}
	return ordinary(e.Verb) && e.Verb != Schedule
}

// goOn plays what comes from outside after the refusal. Whatever verbs a world has
// besides those that are named above comes from outside.
func (a *apart) goOn(rest []Event) {
	w := a.w
	a.unstall()
	for _, e := range rest {
		e.Verb = strings.TrimPrefix(e.Verb, "?")
		if verb, now := strings.CutPrefix(e.Verb, first); now {
			e.Verb = verb
			if w.possible(e) {
				w.quietly(e)
			}
			continue
		}
		if w.Violation != "" || a.decided() {
			return
		}
		if d, err := time.ParseDuration(e.A); e.Verb == Clock && err == nil {
			a.pass(d, false)
			continue
		}
		if strings.HasPrefix(e.B, "driver:") && (e.Verb == Fail || e.Verb == Lose || e.Verb == Lie || e.Verb == Late || e.Verb == Gone) {
			a.armed[e.B] = e.Verb
		}
		if inTheCourse(e) || e.Verb == Settle || a.bare && forUs(e.Verb) {
			continue
		}
		a.rest()
		if !w.possible(e) {
			continue
		}
		if e.Verb == Heal {
			a.mended()
			continue
		}
		w.perform(e)
		if !forUs(e.Verb) {
			a.played = append(a.played, played{e, time.Since(a.began)})
		}
	}
	a.heal()
	a.pass(tail, true)
}

// fails has the driver's next call of that key come to what the script says.
func (a *apart) fails(e Event) (met, done bool) {
	verb, armed := a.armed[e.B]
	if !armed || e.Verb != Serve || a.w.find(e.A, e.B) == nil {
		return false, false
	}
	delete(a.armed, e.B)
	a.w.enabled(func(other Event) { met = met || other == Event{Verb: verb, A: e.A, B: e.B} })
	if met {
		a.w.quietly(Event{Verb: verb, A: e.A, B: e.B})
	}
	return met, met
}

// heal ends what would keep the attachers or the controller from doing anything at all.
// Machines and kubelets stay as they are.
func (a *apart) heal() {
	clear(a.armed)
	for _, name := range a.w.replicas {
		p := a.w.procs[name]
		p.noAPI, p.noDriver = false, false
	}
	a.w.noADC = false
	a.unstall()
}

// mended is World.heal without its operator, who knows what nobody could.
func (a *apart) mended() {
	a.heal()
	a.played = append(a.played, played{Event{Verb: Heal}, time.Since(a.began)})
	for _, s := range a.w.slots {
		s.cut = false
		s.machine.resume()
	}
	a.pass(3*time.Minute, false)
}

// unstall ends what is broken of that which only csi-fencepost needs: its watches, and
// its way to the agents. It is not owed what it could not know. Of a volume that nobody
// ever had there is nothing to know: that the list fails is no reason.
func (a *apart) unstall() {
	if a.w.unlisted == every {
		a.w.unlisted = unpublished
	}
	for _, name := range a.w.replicas {
		p := a.w.procs[name]
		p.noAgent = false
		clear(p.stalled)
		if p.up() && !p.noAPI {
			p.leasesSeen()
		}
		p.goOn()
	}
	a.w.settleDown()
}

// rest lets everybody do what they do at once.
func (a *apart) rest() {
	for range restless {
		for _, p := range a.w.patience {
			p.pause = min(p.pause, briefly)
		}
		if a.w.Violation != "" || !a.w.round() {
			return
		}
	}
	a.w.violation("stuck", "nothing comes to rest after a refusal, last "+a.w.latest())
}

// pass lets everything take its course for so long. At the end of a script whoever made
// a pod makes it anew, and the scheduler takes the first node that may have it.
func (a *apart) pass(d time.Duration, scheduled bool) {
	w := a.w
	for end := time.Now().Add(d); w.Violation == "" && !a.decided(); {
		a.rest()
		if scheduled {
			for _, v := range w.volumes {
				if v.pod.node == nil {
					a.schedule(v)
				}
			}
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		w.pass(min(left, 2*time.Second))
		w.settleDown()
	}
}

func (a *apart) schedule(v *volume) {
	var first Event
	a.w.podEvents(v, func(e Event) {
		if e.Verb == Schedule && first.Verb == "" {
			first = e
		}
	})
	if first.Verb != "" {
		a.w.quietly(first)
	}
}

// living is a node where a living pod needs the volume, one that has it if there is
// such a one; nil: there is none.
func (a *apart) living(v *volume) (found *slot) {
	for _, s := range a.w.slots {
		if v.wants(s) && s.connected() {
			if a.w.usable(v, s) {
				return s
			}
			found = s
		}
	}
	return found
}

// usable tells whether the driver has published the volume to the node, and Kubernetes says so or
// the node has it mounted. Where the VolumeAttachment is being deleted, a pod waits.
func (w *World) usable(v *volume, s *slot) bool {
	va := w.vaOf(v, s)
	return v.attached[s.machine.id] && (s.machine.mounts[v] != nil || va != nil && va.DeletionTimestamp == nil && va.Status.Attached)
}

// writes tells whether a container of the machine writes, or its kubelet is about to let one,
// whatever anybody believes of it. A machine that is paused does not write, but may.
func (v *volume) writes(m *machine) bool {
	return m.power && v.access(m) && (m.mounts[v] != nil || m.kubelet.verified[v])
}

// clash tells whether two of these machines write, one of which was promised that it writes alone.
func (v *volume) clash(able []*machine) bool {
	alone := func(m *machine) bool { return !v.shared[m.id] }
	return len(able) > 1 && slices.ContainsFunc(able, alone)
}

// watch begins.
func (a *apart) watch() {
	a.volumes = make([]course, len(a.w.volumes))
	for i, v := range a.w.volumes {
		a.volumes[i] = course{twice: -1, reached: -1, missed: -1, held: maps.Clone(v.attached)}
		s := a.living(v)
		a.volumes[i].had = s != nil && a.w.usable(v, s)
	}
	a.look()
}

// look is called after each step and as time passes.
func (a *apart) look() {
	now := time.Since(a.began)
	for i, v := range a.w.volumes {
		c := &a.volumes[i]
		for id := range c.held {
			if !v.attached[id] {
				delete(c.held, id)
			}
		}
		if s := a.living(v); s != nil && a.w.usable(v, s) {
			if c.reached < 0 {
				c.reached, c.stayed = now, c.held[s.machine.id]
			}
			if !c.held[s.machine.id] && !s.machine.hostile && !slices.ContainsFunc(c.useful, func(p *published) bool { return p.m == s.machine }) {
				c.useful = append(c.useful, &published{m: s.machine, at: now})
			}
		}
		var able []*machine
		for _, m := range a.w.machines {
			if v.writes(m) {
				able = append(able, m)
			}
		}
		if c.twice < 0 && v.clash(able) {
			c.twice = now
		}
		for _, p := range c.useful {
			for _, m := range able {
				switch {
				case m.paused || now > p.at+quietFor:
				case m == p.m:
					p.wrote = true
				}
			}
			for _, m := range able {
				if m != p.m && !(v.shared[m.id] && v.shared[p.m.id]) && !m.paused && p.wrote && now <= p.at+quietFor {
					p.spoiled = true
				}
			}
		}
		a.lookDue(v, c, now)
	}
}

// lookDue holds what is owed against the guarded run.
func (a *apart) lookDue(v *volume, c *course, now time.Duration) {
	due, is := a.due[v.name]
	if !is || c.reached >= 0 || c.missed >= 0 {
		return
	}
	if a.living(v) == nil {
		a.free[v.name] = now
		return
	}
	if latest := max(due, a.free[v.name]) + Bound; now > latest {
		c.missed = latest
	}
}

// decided tells whether everything that is owed came, or is overdue.
func (a *apart) decided() bool {
	if a.due == nil {
		return false
	}
	for i, v := range a.w.volumes {
		if _, is := a.due[v.name]; is && a.volumes[i].reached < 0 && a.volumes[i].missed < 0 {
			return false
		}
	}
	return true
}

// lastOf are the refusals that stand in the way of the volume.
func (w *World) lastOf(v *volume) (words []string) {
	for _, s := range w.slots {
		va := w.vaOf(v, s)
		if va == nil {
			continue
		}
		verb := Publish
		if va.DeletionTimestamp != nil {
			verb = Unpublish
		}
		if last := w.last[callKey{verb, v.name, s.name}]; last != "" && last != "OK" {
			words = append(words, verb+" "+last)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// holdersOf says what is so of the machines that have, or had, to do with the volume, and
// whether a kubelet is hostile.
func (w *World) holdersOf(v *volume) string {
	words := w.hidden(v, w.machines)
	if slices.ContainsFunc(w.machines, func(m *machine) bool { return m.hostile }) {
		words += "; a kubelet is hostile"
	}
	return words
}

// settled puts those from whom the volume was taken over first in its ledger, by their
// node IDs: in which order two such holders were written down decides nothing, and seldom
// differs between two plays of one script.
func (w *World) settled(pv *corev1.PersistentVolume) {
	l, err := ledger.Parse(pv.Annotations[ledger.Annotation])
	if err != nil {
		return // none, or a spoiled one: as it is
	}
	slices.SortStableFunc(l.Holders, func(a, b ledger.Entry) int {
		switch gone, too := a.State == fence.TakenOver, b.State == fence.TakenOver; {
		case gone && too:
			return cmp.Compare(a.NodeID, b.NodeID)
		case gone:
			return -1
		case too:
			return 1
		}
		return 0
	})
	w.showProcesses(l)
	pv.Annotations[ledger.Annotation] = l.String()
}

// visible is all that can be told of the state: what the API server has; where the driver
// says that each volume is, if it says so at all; what the agents read; which calls are
// under way. Versions, UIDs and tokens are numbered in the order in which they appear: that
// two are one can be told, and their values mean nothing.
func (w *World) visible() string {
	var text strings.Builder
	add := func(what any) {
		line, err := json.Marshal(what)
		if err != nil {
			panic(err) // objects of Kubernetes, and strings
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	plain := func(o metav1.Object) {
		o.SetResourceVersion("")
		o.SetUID("")
		o.SetManagedFields(nil)
		o.SetCreationTimestamp(metav1.Time{})
	}
	for _, n := range w.objects.Nodes.List() {
		plain(n)
		add(n)
	}
	for _, l := range w.objects.Leases.List() {
		plain(l)
		add(l)
	}
	for _, va := range w.objects.Attachments.List() {
		plain(va)
		add(va)
	}
	for _, n := range w.objects.CSINodes.List() {
		plain(n)
		add(n)
	}
	for _, pv := range w.objects.Volumes.List() {
		plain(pv)
		w.settled(pv)
		add(pv)
	}
	for _, v := range w.volumes {
		add([]any{v.name, w.listed(v), v.wantedWords(w)})
		for _, s := range w.slots {
			add(w.young(v, s))
		}
		for _, p := range v.pods() {
			add(p.shown)
		}
	}
	if w.setup.Agents {
		for _, m := range w.machines {
			add([]any{m.system, m.power})
		}
	}
	for _, c := range w.calls {
		add([]any{c.p.name, c.name()})
	}
	numbers := map[string]string{}
	return arbitrary.ReplaceAllStringFunc(text.String(), func(value string) string {
		value = strings.Trim(value, `\"`)
		if _, known := numbers[value]; !known {
			numbers[value] = fmt.Sprintf("#%d", len(numbers))
		}
		return numbers[value]
	})
}

// arbitrary are UUIDs, the model's UIDs and names of words, and quoted versions.
var arbitrary = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}|uid-[0-9]+|word-[0-9]+|release-[0-9]+|\\*"[0-9]{3,}\\*"`)

// wantedWords are the nodes that the API says a pod of the volume is bound to, and whether
// it runs there, if its kubelet can say so.
func (v *volume) wantedWords(w *World) (words []string) {
	for _, s := range w.slots {
		switch {
		case v.wants(s) && v.runs(s):
			words = append(words, s.name+" runs")
		case v.wants(s):
			words = append(words, s.name)
		}
	}
	return words
}
