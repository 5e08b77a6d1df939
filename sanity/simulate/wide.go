package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// The wide world (Setup.Wide) is the other one and more of everything. It is drawn by
// random numbers of its own, and none of its verbs is enabled elsewhere: what the
// schedules of the narrow world are stays as it was.
//
// A volume has several pods: of a Deployment that rolls out with surge, of Jobs, of
// whoever names the same claim. They wait on their nodes, whose kubelets list the
// volume in volumesInUse meanwhile, or run.

// morePods is how many pods a volume has besides the first, at most.
const morePods = 2

// RandomWide runs the schedule of the wide world that the seed stands for.
func RandomWide(t *testing.T, factory Factory, seed uint64) Result {
	r, setup := drawWide(seed)
	return play(t, factory, setup, seed, nil, func(w *World) { w.wander(r) })
}

// drawWide is its setup, and the random numbers for the rest.
func drawWide(seed uint64) (*rand.Rand, Setup) {
	r := rand.New(rand.NewPCG(seed, 11))
	setup := RandomSetup(r)
	setup.Wide = true
	setup.Twins = [...]string{"", "", "", "", "system", "boot", "system,boot", "id"}[r.IntN(8)]
	setup.Twins = joined(setup.Twins, [...]string{"", "", "", "machine", "netboot"}[rand.New(rand.NewPCG(seed, 16)).IntN(5)])
	setup.ByList = setup.Lists != Nothing && r.IntN(2) == 0
	setup.Skew = randomSkew(rand.New(rand.NewPCG(seed, 13)), setup.Nodes)
	setup.Versions = rand.New(rand.NewPCG(seed, 15)).IntN(4) == 0
	setup.Neighbour = rand.New(rand.NewPCG(seed, 14)).IntN(4) == 0
	return r, setup
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "," + b
}

// draw runs one of the campaign's schedules.
func (c *Campaign) draw(t *testing.T, seed uint64) Result {
	if c.Wide {
		return RandomWide(t, c.Factory, seed)
	}
	return Random(t, c.Factory, seed, c.Whole)
}

// wideLikelihood of each verb, in a schedule without a temper.
var wideLikelihood = map[string]int{
	AnotherPod: 15, DeleteOther: 15, EndOther: 200, ForceOther: 6, LandDetach: 20,
	Access: 2, Borrow: 1, Release: 15, Withdraw: 10, Heal: 8,
	Mode: 5, Backup: 4, Restore: 6, ListFails: 3, SlowLists: 6, ListWorks: 10,
	Away: 4, Back: 15, OldTaint: 40, SecondPV: 2, DropPV: 8,
}

// wideVerbs draws how much a schedule of the wide world likes each of its verbs.
func (t *temper) wideVerbs(s Setup, seed uint64) {
	if !s.Wide {
		return
	}
	r := rand.New(rand.NewPCG(seed, 12))
	var verbs []string
	for verb := range wideLikelihood {
		verbs = append(verbs, verb)
	}
	slices.Sort(verbs)
	for _, verb := range verbs {
		t.verbs[verb] = wideLikelihood[verb] * [...]int{0, 1, 1, 1, 2, 6}[r.IntN(6)]
	}
	t.incident = r.IntN(12) == 0
	for _, verb := range [...]string{EndOther, LandDetach} {
		t.verbs[verb] = wideLikelihood[verb]
	}
}

// pods of the volume, also where the first is nowhere.
func (v *volume) pods() []*pod { return append([]*pod{&v.pod}, v.more...) }

// podOn tells whether a pod of the volume is bound to the node.
func (v *volume) podOn(s *slot) bool {
	return v.pod.node == s || slices.ContainsFunc(v.more, func(p *pod) bool { return p.node == s })
}

// wants tells whether a pod of the volume is bound to the node, and is not terminating.
func (v *volume) wants(s *slot) bool {
	here := func(p *pod) bool { return p.node == s && !p.terminating }
	return here(&v.pod) || slices.ContainsFunc(v.more, here)
}

// nextPod is what is there once the first pod is gone.
func (v *volume) nextPod() pod {
	if len(v.more) == 0 {
		return pod{}
	}
	next := v.more[0]
	v.more = v.more[1:]
	return *next
}

// moveMore takes the pods away, besides the first, that are terminating or on a machine
// that is off.
func (v *volume) moveMore() {
	v.more = slices.DeleteFunc(v.more, func(p *pod) bool { return p.terminating || !p.node.machine.power })
}

// mayEnd tells whether the pod's containers have ended, and nothing of it is mounted. Where another
// pod on its node uses the volume, that is so whenever they have ended.
func (w *World) mayEnd(v *volume, p *pod) bool {
	if !p.node.connected() {
		return false
	}
	m := p.node.machine
	if mount := m.mounts[v]; mount != nil && mount.unserved() {
		return true
	}
	return v.wants(p.node) || !m.kubelet.uses(v) && (m.mounts[v] == nil || m.keeps[v])
}

// other is the pod of the volume on the node, besides the first; nil: there is none.
func (v *volume) other(s *slot) *pod {
	i := slices.IndexFunc(v.more, func(p *pod) bool { return p.node == s })
	if i < 0 {
		return nil
	}
	return v.more[i]
}

// widePodEvents are what may happen to the pods of a volume besides the first.
func (w *World) widePodEvents(v *volume, emit func(Event)) {
	if !w.setup.Wide {
		return
	}
	if w.saysMany(v.name) {
		emit(Event{Verb: Access, A: v.name, B: "one"})
	} else {
		emit(Event{Verb: Access, A: v.name, B: "many"})
	}
	w.releaseEvents(v, emit)
	w.secondEvents(v, emit)
	for _, s := range w.slots {
		p := v.other(s)
		at := func(verb string) { emit(Event{Verb: verb, A: v.name, B: s.name}) }
		switch {
		case p == nil:
			n := w.peekNode(s.name)
			if !w.away && len(v.more) < morePods && v.pod.node != nil && !v.wants(s) && n != nil && readyStatus(n) == corev1.ConditionTrue && !tainted(n) {
				at(AnotherPod)
			}
			continue
		case !p.terminating:
			at(DeleteOther)
		case w.mayEnd(v, p):
			at(EndOther)
		}
		at(ForceOther)
	}
}

func (w *World) doWide(e Event) bool {
	switch v, s := w.volume(e.A), w.slot(e.B); e.Verb {
	case Access:
		w.changeAccess(v, e.B == "many")
	case Away:
		w.goAway()
	case Back:
		w.comeBack()
	case SecondPV:
		w.secondVolume(v, e.B, e.C == "many")
	case DropPV:
		w.dropSecond(v)
	case Release:
		w.releaseFrom(v, s)
	case Withdraw:
		w.withdraw(w.slot(e.A))
	case OldTaint:
		w.oldTaint(w.slot(e.A), e.B)
	case Heal:
		w.heal()
	case Mode:
		w.rollOut(e.A)
	case Backup:
		w.backup()
	case Restore:
		w.restore()
	case ListFails:
		w.unlisted = every
	case SlowLists:
		w.listTakes = slowList
	case ListWorks:
		w.unlisted, w.listTakes = none, 0
	case Borrow:
		w.borrow(w.slot(e.A), s.machine, e.C)
	case LandDetach:
		w.landDetach(v, e.B)
	case AnotherPod:
		v.more = append(v.more, &pod{node: s})
	case DeleteOther:
		v.other(s).terminating = true
	case EndOther, ForceOther:
		gone := v.other(s)
		v.more = slices.DeleteFunc(v.more, func(p *pod) bool { return p == gone })
	default:
		return false
	}
	return true
}

// lateDetach is the driver that fails an unpublish, and detaches later all the same,
// though the call was given up: at any time before the next call of the volume and that
// node is carried out, which a driver does in the order in which it was asked.
func (w *World) lateDetach(o *op, volume, id string) {
	w.seen(o)
	v := w.volume(volume)
	if !slices.Contains(v.leaving, id) {
		v.leaving = append(v.leaving, id)
	}
	w.fail(o, status.Error(codes.DeadlineExceeded, "the detach takes too long"))
}

func (v *volume) lateDetachEvents(emit func(Event)) {
	for _, id := range v.leaving {
		emit(Event{Verb: LandDetach, A: v.name, B: id})
	}
}

// landDetach keeps the promise of lateDetach.
func (w *World) landDetach(v *volume, id string) {
	v.leaving = slices.DeleteFunc(v.leaving, func(other string) bool { return other == id })
	w.taken(v, id, "detached late")
	v.detach(w.machineOf(id), id, !w.setup.Revokes)
}

// landFirst ends what was asked of the volume and that node before.
func (w *World) landFirst(v *volume, id string) {
	if slices.Contains(v.leaving, id) {
		w.landDetach(v, id)
	}
}

// runs tells whether a pod of the volume has on that node what it needs.
func (v *volume) runs(s *slot) bool {
	return v.wants(s) && s.connected() && v.attached[s.machine.id] && s.machine.serves(v)
}

// calmWith tells whether one of the volume's pods runs, none is terminating, and it is being
// attached only where one waits.
func (w *World) calmWith(v *volume) bool {
	terminating := func(p *pod) bool { return p.terminating }
	if v.pod.terminating || slices.ContainsFunc(v.more, terminating) || !slices.ContainsFunc(w.slots, v.runs) {
		return false
	}
	for s := range v.adc {
		if !v.podOn(s) {
			return false
		}
	}
	return true
}

// nextInLine deletes, of a volume with several pods, the one that runs, once everything has come
// right; the next of those that wait has to run. It tells whether there was one.
func (w *World) nextInLine() bool {
	if w.Violation != "" {
		return false
	}
	found := false
	for _, v := range w.volumes {
		if len(v.more) == 0 {
			continue
		}
		found = true
		if s := v.pod.node; s != nil && v.runs(s) {
			v.pod.terminating = true
			continue
		}
		i := slices.IndexFunc(v.more, func(p *pod) bool { return v.runs(p.node) })
		if i < 0 {
			v.pod.terminating = true // the one that runs is of a volume that several have by now
			continue
		}
		v.more[i].terminating = true
	}
	if found {
		ended := func() bool {
			return !slices.ContainsFunc(w.volumes, func(v *volume) bool {
				return v.pod.terminating || slices.ContainsFunc(v.more, func(p *pod) bool { return p.terminating })
			})
		}
		w.settle(ended, time.Minute)
	}
	return found && w.Violation == ""
}

func (v *volume) moreWords() string {
	text := ""
	for _, p := range v.more {
		text += " and " + p.node.name
	}
	return text
}

// Wait is what a schedule's end waits for a person for, though all that an honest
// operator knows of machines that are off was said: a call, the reason of its refusal,
// and what is true of those who were in the way and what nobody in Kubernetes need know.
type Wait struct{ Call, Reason, Hidden string }

func (w Wait) String() string { return w.Call + " " + w.Reason + ": " + w.Hidden }

// noteWaits writes down what the end waits for, once each.
func (w *World) noteWaits() {
	if !w.setup.Wide || w.Violation != "" {
		return
	}
	w.eachWait(func(wait Wait, _ *volume, _ *slot) {
		if !slices.Contains(w.Waits, wait) {
			w.Waits = append(w.Waits, wait)
		}
	})
}

// eachWait tells of each call that waits.
func (w *World) eachWait(tell func(Wait, *volume, *slot)) {
	for _, v := range w.volumes {
		running := slices.ContainsFunc(w.slots, v.runs)
		for _, s := range w.slots {
			va := w.va(v, s)
			if va == nil {
				continue
			}
			what, who := Publish, []*machine{}
			if va.DeletionTimestamp != nil {
				what, who = Unpublish, append(who, s.machine)
			} else if running || va.Status.Attached {
				continue
			} else {
				for _, m := range w.machines {
					if m != s.machine {
						who = append(who, m)
					}
				}
			}
			reason := w.last[callKey{what, v.name, s.name}]
			if reason == "" || reason == "OK" {
				reason = "not called"
			}
			tell(Wait{what, reason, w.hidden(v, who)}, v, s)
		}
	}
}

// hidden is what is true of the machines, and of the volume on them: nothing of those
// that have nothing to do with it.
func (w *World) hidden(v *volume, who []*machine) string {
	var facts []string
	for _, m := range who {
		fact := ""
		waits := m.slot.machine == m && m.kubelet.desired[v]
		switch {
		case v.mayWrite(m):
			fact = "writes"
		case !m.power:
			if v.attached[m.id] || w.held(v, m) {
				fact = "is off"
			}
		case waits && v.attached[m.id]:
			fact = "waits, attached"
		case waits:
			fact = "only waits"
		case v.attached[m.id]:
			fact = "attached and not in use"
		case w.held(v, m):
			fact = "in the ledger alone"
		}
		if fact == "" || slices.Contains(facts, fact) {
			continue
		}
		if n := w.peekNode(m.slot.name); n == nil {
			fact += " (no Node)"
		}
		facts = append(facts, fact)
	}
	slices.Sort(facts)
	return cmp.Or(strings.Join(facts, ", "), "nobody holds it")
}

// held tells whether the ledger names the machine's node ID.
func (w *World) held(v *volume, m *machine) bool {
	for _, e := range w.ledger(v) {
		if e.NodeID == m.id {
			return true
		}
	}
	return false
}

func (c *Campaign) noteWaits(waits []Wait) {
	if c.waits == nil {
		c.waits = map[Wait]int{}
	}
	for _, wait := range waits {
		c.waits[wait]++
	}
}

// Waits are how many schedules waited for a person at their end for what, the most
// frequent first.
func (c *Campaign) Waits() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Wait
	for wait := range c.waits {
		all = append(all, wait)
	}
	slices.SortFunc(all, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(c.waits[b], c.waits[a]), cmp.Compare(a.String(), b.String()))
	})
	for _, wait := range all {
		lines = append(lines, fmt.Sprintf("%6d  %s", c.waits[wait], wait))
	}
	return lines
}

// shareable is the capability of a volume of many writers.
var shareable = &spec.VolumeCapability{
	AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
}

func isShared(c *spec.VolumeCapability) bool {
	return c.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

// capability is what the attacher asks for: it goes by the PersistentVolume.
func (c *call) capability() *spec.VolumeCapability {
	if c.many {
		return shareable
	}
	return capability
}

// manyKey of a context is whether the driver is called for many writers.
type manyKey struct{}

func (v *volume) share(id string, shared bool) {
	if v.shared == nil {
		v.shared = map[string]bool{}
	}
	v.shared[id] = shared
}

// changeAccess is a person who edits the PersistentVolume.
func (w *World) changeAccess(v *volume, many bool) {
	pv, ok := w.objects.Volumes.Get(v.name)
	if !ok {
		return
	}
	pv.Spec.AccessModes = accessModes(many)
	w.objects.Volumes.Put(pv)
}

// judgeWide is R1 of the wide world: of each two machines that may write.
func (w *World) judgeWide(v *volume) {
	var writers []*machine
	for _, m := range w.machines {
		if v.mayWrite(m) {
			writers = append(writers, m)
		}
	}
	for i, m := range writers {
		for _, other := range writers[:i] {
			if w.allowed(v, m, other) || w.unguardedPair(v, m, other) || w.excuse(v, other) || w.excuse(v, m) || w.forgottenHolder(v, other, m) || w.forgottenHolder(v, m, other) {
				continue
			}
			w.violation("R1", fmt.Sprintf("%s and %s both have power, access and volume %s mounted or about to be", describe(other), describe(m), v.name))
		}
	}
}

// allowed tells whether nobody promised either of the two that it writes alone, or a hostile
// machine is one of them, which writes to any disk that it has access to, whatever it says.
func (w *World) allowed(v *volume, m, other *machine) bool {
	return other != nil && (v.shared[m.id] && v.shared[other.id] || m.hostile || other.hostile)
}
