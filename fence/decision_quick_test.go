package fence

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// facts are one holder's situation in the words of the design, from which the
// answer is read off without any of the code under test: which machine stands
// there, what its kubelet says, what anybody says of it.
type facts struct {
	state    State
	unproven bool   // of a takenOver one: nothing proved it
	noted    bool   // its node is Ready since before the publish
	contest  string // "", "this boot", "earlier boot", "no boot", "seen", "seen, restarted"
	node     string // "gone", "same", "again" (new UID, same boot), "other"
	last     string // of a Node that is gone, or lists the volume in use, what it was once it was being detached: "" (nobody knows), "let go", "in use", "tainted"
	boot     string // of a same node: "same", "new" (since the publish), "empty"
	inUse    bool
	attached bool // in volumesAttached
	owns     bool // an other node carries the holder's node ID
	ready    bool
	va       string // "", "unattached", "attached", "deleted", and what came after that
	under    string // of one that was released while its VolumeAttachment was being deleted: "this" one, "another"
	waits    bool   // the Node's pods of the volume have never run
	process  bool   // its kubelet's is the one that ran before the publish
	life     Liveness
	evidence string
	policy   Policy
}

func (f facts) String() string {
	return fmt.Sprintf("state=%q unproven=%v noted=%v contest=%q node=%s last=%q boot=%s inUse=%v volumesAttached=%v ownsID=%v ready=%v va=%q releasedUnder=%q waits=%v process=%v life=%q evidence=%q policy=%+v",
		string(f.state), f.unproven, f.noted, f.contest, f.node, f.last, f.boot, f.inUse, f.attached, f.owns, f.ready, f.va, f.under, f.waits, f.process, f.life, f.evidence, f.policy)
}

// The obviously right version.

// lists: the Node that is the holder's machine, or has its node ID, names the
// volume.
func (f facts) lists() (inUse, attached bool) {
	if f.node == "same" || f.node == "again" || f.node == "other" && f.owns {
		return f.inUse, f.attached
	}
	return false, false
}

// lives is "alive", "dead" (stale, or there is no Node or lease of it) or "?".
func (f facts) lives() string {
	inUse, attached := f.lists()
	stranger := f.node == "other" && !inUse && !attached
	switch {
	case f.node == "gone":
		return "dead"
	case f.life == Unwatched:
		return "?"
	case stranger:
		return "dead" // its lease is not the holder's
	case f.life == Alive:
		return "alive"
	}
	return "dead"
}

// released by the kubelet's word, or by what the ledger wrote of it.
func (f facts) released() bool {
	inUse, attached := f.lists()
	switch {
	case f.forGood(), f.lastReleases():
		return true
	case inUse, attached && !(f.node == "same" && f.detaching()):
		return false
	}
	if f.node != "same" {
		// A contest that a reboot had ended before is kept with the release.
		return f.state == Released && f.va != "attached" && (f.contest == "" || f.contest == "earlier boot")
	}
	return !f.contested()
}

// lastReleases: its kubelet would be believed if its Node were still there as it was.
func (f facts) lastReleases() bool {
	was := f
	was.node, was.boot = "same", "same"
	return (f.node == "gone" || f.node == "same") && f.last == "let go" && (f.state == Publishing || f.state == Held) && f.detaching() && f.contest == "" && !was.contested()
}

func (f facts) detaching() bool { return strings.Contains(f.va, "deleted") }

// forGood: it was released, and to have it again takes another VolumeAttachment than that
// one, which nobody sees.
func (f facts) forGood() bool {
	inUse, attached := f.lists()
	switch {
	case f.under == "", f.state != Released && f.state != TakenOver:
		return false
	case f.under == "this" && f.detaching():
		return true
	case f.va != "" && f.va != "unattached":
		return false
	}
	return !inUse || f.waits && !attached
}

// onlyWants: nothing but its list names it, and its pods have never run.
func (f facts) onlyWants() bool {
	inUse, attached := f.lists()
	return f.waits && inUse && !attached && f.state == NotInLedger && (f.va == "" || f.va == "unattached")
}

// contested, of the holder's own machine, which says that it is not in use.
func (f facts) contested() bool {
	if f.process {
		return false // it has forgotten nothing
	}
	switch f.contest {
	case "":
		return f.state != Released && (f.va == "deleted, seen to turn" || f.va == "deleted, then Ready" && !(f.noted && f.ready) || f.va == "deleted, then heard, then Unknown" || f.restarted())
	case "earlier boot":
		return f.boot == "empty"
	case "seen":
		return !f.ready || f.unknown() || f.restarted()
	}
	return true
}

// restarted: its kubelet's process says that it has, since the volume was taken by force, or does
// not say that it has not.
func (f facts) restarted() bool {
	return f.va == "deleted, then restarted" || f.va == "deleted, then unsaid"
}

func (f facts) memory() Memory {
	switch {
	case f.process:
		return MemoryWhole
	case f.va == "deleted, then restarted":
		return MemoryLost
	case f.va == "deleted, then unsaid":
		return MemoryUnsaid
	}
	return ""
}

// unknown: the controller has written that it does not hear the kubelet.
func (f facts) unknown() bool { return strings.HasSuffix(f.va, "Unknown") }

// said is what the evidence amounts to: "fenced", "no" (nothing, or void) or
// "contradiction".
func (f facts) said() string {
	inUse, attached := f.lists()
	switch f.evidence {
	case "storage":
		// What was read under a former Node may have been given back since.
		if f.node == "again" || f.node == "other" && (inUse || attached) {
			return "no"
		}
		return "fenced"
	case "release of a living node":
		switch {
		case !f.here(), f.boot == "empty", inUse, f.va == "unattached", f.va == "attached":
			return "no"
		case attached && !f.detaching():
			return "contradiction"
		}
		return "fenced"
	case "release, booted":
		if f.here() {
			return "no"
		}
	case "release", "release, reads on":
		if f.here() && f.boot == "empty" {
			return "no"
		}
	case "claim", "power", "claim, reads on", "power, reads on":
	case "power, booted":
		// Only a machine that is there can be seen to have booted.
		if f.node == "same" {
			return "no"
		}
	default:
		return "no"
	}
	bound := f.releases() || f.node == "gone" || f.node == "same" && f.boot != "empty" || f.node == "other" && !inUse && !attached
	switch {
	case !bound:
		return "no"
	case f.lives() == "alive", f.evidence == "claim, reads on", f.evidence == "power, reads on", f.evidence == "release, reads on":
		return "contradiction"
	case (f.evidence == "claim" || f.releases()) && f.lives() == "?":
		return "contradiction" // it has to wait; nothing else may overrule it
	}
	return "fenced"
}

// here: the Node that is there is that of the holder's machine, or stands for it.
func (f facts) here() bool {
	inUse, attached := f.lists()
	return f.node == "same" || f.node == "again" || f.node == "other" && (f.owns || inUse || attached)
}

func (f facts) releases() bool { return strings.HasPrefix(f.evidence, "release") }

// mayWrite tells whether the node may still write to the volume after an
// unpublish of it, as far as the facts prove.
func (f facts) mayWrite() bool { return !f.released() && f.uncut() }

// uncut: nothing but what its kubelet said keeps the node from writing.
func (f facts) uncut() bool {
	_, attached := f.lists()
	if f.said() == "fenced" && (!attached || f.releases() && !f.wantedThere()) {
		return false
	}
	return !(f.policy.UnpublishRevokesAccess && f.lives() == "dead" && f.said() != "contradiction")
}

// wantedThere: Kubernetes attaches, or has attached, it there and has not asked
// for it back.
func (f facts) wantedThere() bool {
	return f.va == "attached" || f.va == "unattached" && f.state == Publishing
}

// taken over, and nothing says that the node has it again.
func (f facts) taken() bool {
	inUse, attached := f.lists()
	again := f.under != "" && f.va != "" && f.va != "unattached" && !(f.under == "this" && (f.detaching() || f.va == "attached"))
	back := attached || again || f.under != "" && inUse || f.unproven && inUse && f.lives() != "dead"
	return f.state == TakenOver && (f.forGood() || !back)
}

func (f facts) publish() Action {
	switch {
	case f.taken(), f.onlyWants():
		return Allow
	case f.mayWrite(), f.wantedThere() && f.lives() != "dead":
		return Refuse
	case f.node == "same" && f.wantedThere() && f.uncut():
		return Refuse // what a silent kubelet said last: heard again, it mounts
	}
	return Allow
}

func (f facts) unpublish() (a Action, contest bool) {
	switch {
	case f.taken():
		return Answer, false
	case f.onlyWants():
		return Allow, false
	case !f.mayWrite() && f.wantedThere():
		return Refuse, false
	case !f.mayWrite():
		return Allow, false
	case f.policy.ForwardUnfenced && f.lives() == "dead" && f.said() != "contradiction":
		return Allow, false
	}
	return Refuse, f.node == "gone" || f.memory() != MemoryUnsaid // it is asked again
}

// The facts as the code under test sees them.

const readySince = "2025-11-21T08:00:00Z"

var attachments = map[string]*Attachment{
	"unattached":              {Name: "csi-1", UID: "va-1"},
	"attached":                {Name: "csi-1", UID: "va-1", Attached: true},
	"deleted":                 {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt},
	"deleted, seen to turn":   {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt, Turned: true},
	"deleted, then restarted": {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt},
	"deleted, then unsaid":    {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt},
	"deleted, then Ready":     {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt.Add(-2 * time.Hour)},

	"deleted, then Unknown":             {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt},
	"deleted, then heard, then Unknown": {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt.Add(-2 * time.Hour)},

	"let go, deleted, then Ready":               {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt.Add(-2 * time.Hour)},
	"let go, deleted, then heard, then Unknown": {Name: "csi-1", UID: "va-1", Attached: true, DeletedAt: deletedAt.Add(-2 * time.Hour)},
}

func (f facts) holder() Holder {
	h := Holder{NodeID: oldNode, NodeName: "n1", NodeUID: "uid-1", BootID: "boot-1", State: f.state, Token: "t1",
		Liveness: f.life, Attachment: attachments[f.va], Sources: []Source{FromLedger}, Unproven: f.unproven}
	if f.noted {
		h.ReadySince = readySince
	}
	h.ReleasedUnder = map[string]string{"this": "va-1", "another": "va-0"}[f.under]
	f.addNode(&h)
	f.addContest(&h)
	h.Evidence = f.evidenceOf(&h)
	return h
}

func (f facts) addNode(h *Holder) {
	n := &Node{UID: "uid-1", BootID: "boot-1", Ready: f.ready, ReadySince: readySince, ReadyAt: deletedAt.Add(-time.Hour),
		InUse: f.inUse, ListedAttached: f.attached, Waits: f.waits, Memory: f.memory(), LetGo: strings.HasPrefix(f.va, "let go")}
	if f.unknown() {
		n.Ready, n.ReadyUnknown, n.HeardAt = false, true, n.ReadyAt
	}
	if f.last != "" {
		was := *n
		was.InUse, was.ListedAttached, was.OutOfService = f.last == "in use", false, f.last == "tainted"
		h.AtDetach = &was
	}
	if f.node == "gone" {
		return
	}
	h.LeaseRV = "100"
	switch {
	case f.node == "again":
		n.UID = "uid-2"
	case f.node == "other":
		n.UID, n.BootID = "uid-2", "boot-9"
	case f.boot == "new":
		n.BootID = "boot-2"
	case f.boot == "empty":
		n.BootID = ""
	}
	n.NodeID = h.NodeID
	if f.node == "other" && !f.owns {
		n.NodeID = "id-9"
	} else {
		if f.inUse {
			h.Sources = append(h.Sources, FromVolumesInUse)
		}
		if f.attached {
			h.Sources = append(h.Sources, FromVolumesAttached)
		}
	}
	h.Node = n
}

func (f facts) addContest(h *Holder) {
	if f.contest == "" {
		return
	}
	c := Contest{BootID: "boot-1"}
	if h.Node != nil && f.node != "other" {
		c.BootID = h.Node.BootID
	}
	switch f.contest {
	case "earlier boot":
		c.BootID = "boot-0"
	case "no boot":
		c.BootID = ""
	case "seen":
		c.SeenReadySince = readySince
	case "seen, restarted":
		c.SeenReadySince = "2025-11-21T07:00:00Z"
	}
	h.Contest = &c
}

var on = Evidence{Kind: PowerReading, Source: "bmc", On: true}

func (f facts) evidenceOf(h *Holder) []Evidence {
	bind := func(e Evidence) Evidence {
		e.NodeID, e.NodeUID, e.BootID, e.LeaseRV = h.NodeID, h.NodeUID, "boot-1", h.LeaseRV
		if h.Node != nil {
			e.BootID = h.Node.BootID
		}
		return e
	}
	void := func(k Kind) []Evidence { return []Evidence{bind(Evidence{Kind: k, Void: "a test says so"})} }
	switch f.evidence {
	case "claim":
		return []Evidence{bind(Evidence{Kind: OutOfServiceTaint})}
	case "claim, lease changed":
		e := bind(Evidence{Kind: OperatorConfirmation})
		e.LeaseRV = "99"
		return []Evidence{e}
	case "power, booted":
		e := bind(Evidence{Kind: PowerReading})
		e.BootID = "boot-0"
		return []Evidence{e}
	case "claim, reads on":
		return []Evidence{bind(on), bind(Evidence{Kind: OperatorConfirmation})}
	case "power":
		return []Evidence{bind(Evidence{Kind: PowerReading})}
	case "power, reads on":
		return []Evidence{bind(Evidence{Kind: PowerReading}), bind(on)}
	case "reads on":
		return []Evidence{bind(on)}
	case "storage":
		return []Evidence{bind(Evidence{Kind: StorageFence})}
	case "storage, void":
		return void(StorageFence)
	case "release":
		return []Evidence{bind(Evidence{Kind: VolumeRelease})}
	case "release, reads on":
		return []Evidence{bind(on), bind(Evidence{Kind: VolumeRelease})}
	case "release, booted":
		e := bind(Evidence{Kind: VolumeRelease})
		e.BootID = "boot-0"
		return []Evidence{e}
	case "release of a living node":
		return []Evidence{bind(Evidence{Kind: VolumeRelease, Living: true, Attachment: "va-1"})}
	case "release, void":
		return void(VolumeRelease)
	}
	return nil
}

var evidences = []string{"", "claim", "claim, lease changed", "claim, reads on", "power", "power, booted", "power, reads on", "reads on",
	"storage", "storage, void", "release", "release, void", "release, reads on", "release, booted", "release of a living node"}

var policies = []Policy{{}, revokes, forward, {UnpublishRevokesAccess: true, ForwardUnfenced: true}}

// undered are the fates of a VolumeAttachment that are played with what was released under it.
var undered = map[string]bool{"": true, "unattached": true, "attached": true, "deleted": true, "deleted, seen to turn": true}

// every calls yield with each combination of facts under one policy.
func every(p Policy, yield func(facts)) {
	bools := []bool{false, true}
	for _, m := range machines() {
		f := m
		f.policy = p
		for _, f.state = range []State{NotInLedger, Publishing, Held, Leaving, Released, TakenOver} {
			for _, f.contest = range []string{"", "this boot", "earlier boot", "no boot", "seen", "seen, restarted"} {
				for _, f.va = range []string{"", "unattached", "attached", "deleted", "deleted, seen to turn", "deleted, then restarted", "deleted, then unsaid", "deleted, then Ready", "deleted, then Unknown", "deleted, then heard, then Unknown", "let go, deleted, then Ready", "let go, deleted, then heard, then Unknown"} {
					for _, f.life = range []Liveness{Unwatched, Alive, Stale, Unknown} {
						for _, f.evidence = range evidences {
							if f.node == "gone" {
								yield(f)
								for _, f.last = range []string{"let go", "in use", "tainted"} {
									if f.life != Unknown {
										break // of a Node that is gone it says nothing
									}
									for _, f.ready = range bools {
										yield(f)
										f.noted = f.va == "deleted, then Ready"
										yield(f)
										f.noted = false
									}
								}
								f.last, f.ready = "", false
								continue
							}
							for _, f.ready = range bools {
								yield(f)
								f.noted, f.unproven = f.va == "deleted, then Ready", f.state == TakenOver
								if f.noted || f.unproven {
									yield(f)
								}
								f.noted, f.unproven = false, false
								if f.node == "same" && !f.inUse && (f.evidence == "" || f.evidence == "power" || f.releases()) {
									f.process = true
									yield(f)
									f.process = false
								}
								if f.inUse && f.evidence == "" {
									for _, f.last = range []string{"let go", "in use", "tainted"} {
										yield(f)
									}
									f.last = ""
								}
								if f.ready && f.inUse && f.state != Publishing && f.state != Held && undered[f.va] {
									f.waits = true
									yield(f)
									f.waits = false
								}
								if over := f.state == Released || f.state == TakenOver; over && f.ready && undered[f.va] {
									for _, f.under = range []string{"this", "another"} {
										yield(f)
										f.waits = true
										yield(f)
										f.waits = false
									}
									f.under = ""
								}
							}
						}
					}
				}
			}
		}
	}
}

// machines are the ways in which a Node can stand there and list the volume.
func machines() []facts {
	out := []facts{{node: "gone"}}
	for i := range 4 {
		f := facts{inUse: i&1 != 0, attached: i&2 != 0}
		for _, f.boot = range []string{"same", "new", "empty"} {
			f.node = "same"
			out = append(out, f)
		}
		f.boot, f.node = "", "again"
		out = append(out, f)
		for _, f.owns = range []bool{false, true} {
			f.node = "other"
			out = append(out, f)
		}
	}
	return out
}

func TestDecisionAgreesWithTheObviousVersion(t *testing.T) {
	for _, p := range policies {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			judged, differ := 0, 0
			every(p, func(f facts) {
				judged++
				if differ < 10 && !agrees(t, f) {
					differ++
				}
			})
			t.Logf("%d combinations of facts, both calls", judged)
			if judged < 100_000 {
				t.Errorf("only %d combinations of facts were judged", judged)
			}
		})
	}
}

// agrees holds both calls against the obvious version.
func agrees(t *testing.T, f facts) bool {
	s := Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{f.holder()}, Policy: f.policy}
	ok := true
	publish := JudgePublish(s, newNode)
	if want := f.publish(); publish.Action != want {
		t.Errorf("publish elsewhere: %v for %q, and the obvious version says %v: %v", publish.Action, publish.Reason, want, f)
		ok = false
	}
	unpublish := JudgeUnpublish(s, oldNode)
	if want, contest := f.unpublish(); unpublish.Action != want || unpublish.Contest != contest {
		t.Errorf("unpublish: %v for %q, contest %v, and the obvious version says %v, contest %v: %v",
			unpublish.Action, unpublish.Reason, unpublish.Contest, want, contest, f)
		ok = false
	}
	// R1 rests on R2: a publish passes only over holders that it unpublishes.
	if publish.Action == Allow && len(publish.Unpublish) == 0 && unpublish.Action != Answer && !f.onlyWants() {
		t.Errorf("publish elsewhere without an unpublish: %v", f)
		ok = false
	}
	return ok
}

// Both versions could be wrong in the same way. What no rule of any kind may
// allow is said once more, without a rule.
func TestNoFactsTakeAVolumeFromALivingNodeThatUsesIt(t *testing.T) {
	for _, p := range policies {
		every(p, func(f facts) {
			inUse, _ := f.lists()
			if !inUse || f.life != Alive || f.node == "gone" || f.evidence == "storage" || f.state == TakenOver && !f.unproven || f.forGood() || f.lastReleases() || f.onlyWants() {
				return
			}
			s := Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{f.holder()}, Policy: p}
			if v := JudgeUnpublish(s, oldNode); v.Action == Allow {
				t.Fatalf("unpublished for %q: %v", v.Reason, f)
			}
			if v := JudgePublish(s, newNode); v.Action == Allow {
				t.Fatalf("published elsewhere for %q: %v", v.Reason, f)
			}
		})
	}
}

func TestEachHolderBlocksByItself(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, p := range policies {
		var sample []Holder
		every(p, func(f facts) {
			if r.IntN(500) == 0 {
				sample = append(sample, f.holder())
			}
		})
		for range 20_000 {
			a, b := sample[r.IntN(len(sample))], sample[r.IntN(len(sample))]
			b.NodeID = "id-3"
			for i := range b.Evidence {
				b.Evidence[i].NodeID = "id-3"
			}
			one := func(h Holder) Verdict {
				return JudgePublish(Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{h}, Policy: p}, newNode)
			}
			va, vb := one(a), one(b)
			both := JudgePublish(Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{a, b}, Policy: p}, newNode)
			if (both.Action == Allow) != (va.Action == Allow && vb.Action == Allow) {
				t.Fatalf("alone %v (%s) and %v (%s), together %v (%s): %+v %+v", va.Action, va.Reason, vb.Action, vb.Reason, both.Action, both.Reason, a, b)
			}
			if both.Action == Allow && len(both.Unpublish) != len(va.Unpublish)+len(vb.Unpublish) {
				t.Fatalf("together %d are unpublished, alone %d and %d", len(both.Unpublish), len(va.Unpublish), len(vb.Unpublish))
			}
		}
	}
}

// Sources answer in any order; the verdict is the same.
func TestOrderOfEvidenceDoesNotMatter(t *testing.T) {
	for _, m := range machines() {
		for _, life := range []Liveness{Unwatched, Alive, Stale, Unknown} {
			for _, first := range evidences {
				for _, second := range evidences {
					m.life, m.ready, m.va = life, true, "deleted"
					m.evidence = first
					h := m.holder()
					a := h.Evidence
					m.evidence = second
					b := m.holder().Evidence
					checkOrder(t, h, a, b)
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

func checkOrder(t *testing.T, h Holder, a, b []Evidence) {
	t.Helper()
	judge := func(e []Evidence) (Action, Action, Action) {
		h.Evidence = e
		s := Snapshot{Target: &Holder{NodeID: newNode}, Holders: []Holder{h}}
		return JudgePublish(s, newNode).Action, JudgeUnpublish(s, oldNode).Action, JudgePublish(Snapshot{Target: &h}, oldNode).Action
	}
	ab := append(append([]Evidence{}, a...), b...)
	ba := append(append([]Evidence{}, b...), a...)
	p1, u1, t1 := judge(ab)
	p2, u2, t2 := judge(ba)
	if p1 != p2 || u1 != u2 || t1 != t2 {
		t.Errorf("%+v: publish %v or %v, unpublish %v or %v, as target %v or %v", ab, p1, p2, u1, u2, t1, t2)
	}
}
