package survey

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// kubelets answer by node, once what happens meanwhile has.
type kubelets struct {
	answers   map[string]*fence.Process
	age       time.Duration // of each, when it answers
	asked     []*corev1.Node
	meanwhile func()
	seen      *fence.Process // nil: what answers
	fails     error          // of one that does not answer; nil: its port refuses
}

func (k *kubelets) Seen(node, uid, bootID string) *fence.Process {
	if uid != "uid-"+node || bootID != "boot-"+node {
		return nil
	}
	if k.seen != nil {
		return k.seen
	}
	return k.answers[node]
}

func (k *kubelets) Ask(_ context.Context, n *corev1.Node, key string) (*kubelet.Answer, error) {
	if key != before.Key {
		return nil, errors.New("another key was asked for")
	}
	k.asked = append(k.asked, n)
	if k.meanwhile != nil {
		k.meanwhile()
	}
	if p := k.answers[n.Name]; p != nil {
		return &kubelet.Answer{Process: *p, Age: k.age}, nil
	}
	if k.fails != nil {
		return nil, k.fails
	}
	return nil, errors.New("connection refused")
}

var before = fence.Process{Start: 1000, CPU: 1, Key: "key"}

// contestedEntry is of a node whose kubelet was seen before the publish, and contested since.
func contestedWorld(t *testing.T) (*world, *kubelets) {
	w, k := newWorld(t), &kubelets{answers: map[string]*fence.Process{"old": {Start: 1000, CPU: 7, Key: "key"}}}
	w.Kubelets = k
	w.node("old", nil)
	w.node("next", nil)
	w.attachment("old", "id-old", deleted)
	e := entry("old")
	e.Contest, e.Kubelet = &fence.Contest{BootID: "boot-old"}, &before
	w.inLedger(e)
	w.look()
	return w, k
}

func TestAContestedHolderIsAskedAboutAfterItsNodeWasRead(t *testing.T) {
	w, k := contestedWorld(t)
	h := w.holder(w.unpublish("id-old"), "id-old")
	if len(k.asked) != 1 || k.asked[0].Name != "old" || string(k.asked[0].UID) != h.Node.UID {
		t.Errorf("asked were %+v", k.asked)
	}
	if h.Node.Memory != fence.MemoryWhole {
		t.Error("it is not believed")
	}
}

func TestWhoDoesNotAnswerOrIsAnotherIsNotBelieved(t *testing.T) {
	for name, answer := range map[string]*fence.Process{"nobody": nil, "another": {Start: 2000, CPU: 7, Key: "key"}} {
		w, k := contestedWorld(t)
		k.answers["old"] = answer
		if s := w.unpublish("id-old"); w.holder(s, "id-old").Node.Memory != "" || len(k.asked) != 1 {
			t.Errorf("%s: believed, or %d were asked", name, len(k.asked))
		}
	}
}

func TestOfANodeThatWasRenamedNothingIsKnownThatRanBefore(t *testing.T) {
	w, k := contestedWorld(t)
	w.gone("old")
	w.node("heir", func(n *corev1.Node) {
		n.Status.NodeInfo.SystemUUID = "system-old"
		listing(n)
	})
	w.put(liveCSINode("heir", liveDriver, "id-old"))
	w.look()
	s := w.unpublish("id-old")
	if h := w.holder(s, "id-old"); h.NodeName != "heir" || h.Kubelet != nil || len(k.asked) > 0 {
		t.Errorf("it is %+v, and %d were asked", h, len(k.asked))
	}
}

func TestWithoutKubeletsNobodyIsAsked(t *testing.T) {
	w, _ := contestedWorld(t)
	w.Kubelets = nil
	if s := w.publish("id-next"); w.holder(s, "id-old").Node.Memory != "" || s.Target.Kubelet != nil {
		t.Error("something is known")
	}
	if s := w.publish("id-old"); s.Target.Kubelet != nil {
		t.Errorf("of the holder that asks it is %v", s.Target.Kubelet)
	}
}

// A renewal while a kubelet is asked is a sign of life of whoever is proven off.
func TestWhatIsProvenIsHeldAgainstTheLeaseOnceMoreAfterAKubeletWasAsked(t *testing.T) {
	w, k := contestedWorld(t)
	w.node("off", listing)
	w.silent["off"] = "70"
	w.found = []fence.Evidence{{Kind: fence.PowerReading, NodeName: "off", NodeUID: "uid-off", BootID: "boot-off", LeaseRV: "70"}}
	e := entry("old")
	e.Contest, e.Kubelet = &fence.Contest{BootID: "boot-old"}, &before
	w.inLedger(e, entry("off"))
	w.look()
	k.meanwhile = func() { w.lease("off", "71") }
	if h := w.holder(w.publish("id-next"), "id-off"); h.LeaseRV != "71" || h.Liveness != fence.Alive {
		t.Errorf("off is %s at lease %s", h.Liveness, h.LeaseRV)
	}
}

func TestATargetHasWhatWasSeenInItsBoot(t *testing.T) {
	w, k := contestedWorld(t)
	k.answers["next"] = &before
	if s := w.publish("id-next"); s.Target.Kubelet != &before {
		t.Errorf("it is %v", s.Target.Kubelet)
	}
	w.node("next", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })
	if s := w.publish("id-next"); s.Target.Kubelet != nil {
		t.Errorf("after a boot it is %v", s.Target.Kubelet)
	}
}

// forcing is an index that has seen the volume of VolumeAttachment va-old, of UID uid-va-old, taken
// from node old by force in boot-old, so long ago.
type forcing struct {
	Index
	ago, back time.Duration // back: 0: it was not put back
}

func (i forcing) Forced(attachment, uid, bootID string) *fence.Forced {
	if attachment == "va-old" && uid == "uid-va-old" && bootID == "boot-old" {
		f := &fence.Forced{Taken: time.Now().Add(-i.ago)}
		if i.back > 0 {
			f.Back = time.Now().Add(-i.back)
		}
		return f
	}
	return nil
}

// forcedWorld has node old, whose volume was taken by force five minutes ago and is let go since; its
// kubelet was sighted, and runs for longer than that.
func forcedWorld(t *testing.T, changes ...func(*storagev1.VolumeAttachment, *ledger.Entry)) (*world, *kubelets) {
	w, k := newWorld(t), &kubelets{answers: map[string]*fence.Process{"old": {Start: 2000, CPU: 7, Key: "key"}}, age: 5*time.Minute + fence.RestartSlack + time.Second}
	w.Kubelets = k
	w.node("old", readyLongAgo)
	w.node("next", nil)
	e := entry("old")
	e.ReadySince = detachedAt.Format(time.RFC3339)
	w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) {
		va.Name, va.UID = "va-old", "uid-va-old"
		deleted(va)
		for _, change := range changes {
			change(va, &e)
		}
	})
	w.inLedger(e)
	w.look()
	w.Index = forcing{w.Index, 5 * time.Minute, 0}
	return w, k
}

// readyLongAgo: it is Ready since before the publish.
func readyLongAgo(n *corev1.Node) {
	n.Status.Conditions[0].LastTransitionTime.Time = detachedAt
}

func TestAKubeletThatIsYoungerThanTheForcedDetachIsNotBelieved(t *testing.T) {
	young := func(_ *world, k *kubelets) { k.age = 0 }
	for name, tt := range map[string]struct {
		world  func(*world, *kubelets)
		entry  func(*storagev1.VolumeAttachment, *ledger.Entry)
		asked  int
		memory fence.Memory
	}{
		"older":                    {asked: 1},
		"younger":                  {world: func(_ *world, k *kubelets) { k.age -= 2 * time.Second }, asked: 1, memory: fence.MemoryLost},
		"it has only just started": {world: young, asked: 1, memory: fence.MemoryLost},
		"its clock was set back":   {world: func(_ *world, k *kubelets) { k.age = -time.Hour }, asked: 1, memory: fence.MemoryLost},
		"it does not answer":       {world: func(_ *world, k *kubelets) { k.seen = k.answers["old"]; clear(k.answers) }, asked: 1, memory: fence.MemoryUnsaid},
		"it has found it put back, and not listed it yet": {world: func(w *world, k *kubelets) {
			w.Index, k.age = forcing{w.Index, 5 * time.Minute, 4 * time.Minute}, 74*time.Second
		}, asked: 1, memory: fence.MemoryUnsaid},
		"it has found it put back": {world: func(w *world, k *kubelets) {
			w.Index, k.age = forcing{w.Index, 5 * time.Minute, 4 * time.Minute}, 75*time.Second
		}, asked: 1},
		"it was never sighted": {world: func(w *world, k *kubelets) { w.Kubelets, k.age = unseen{k}, 0 }},
		"nobody saw it forced": {world: func(w *world, k *kubelets) { w.look(); k.age = 0 }},
		"in another boot": {world: func(w *world, k *kubelets) {
			w.node("old", func(n *corev1.Node) { readyLongAgo(n); n.Status.NodeInfo.BootID = "boot-2" })
			w.Kubelets, k.age = anywhere{k}, 0
		}},
		"another detach was forced": {entry: func(va *storagev1.VolumeAttachment, _ *ledger.Entry) { va.UID = "another" }, world: young},
		"nothing is being detached": {entry: func(va *storagev1.VolumeAttachment, _ *ledger.Entry) { va.DeletionTimestamp = nil }, world: young},
		"its word is written down":  {entry: func(_ *storagev1.VolumeAttachment, e *ledger.Entry) { e.State = fence.Released }, world: young},
		"it ran before the publish": {entry: func(_ *storagev1.VolumeAttachment, e *ledger.Entry) {
			e.Kubelet = &fence.Process{Start: 2000, CPU: 1, Key: "key"}
		}, world: young, asked: 1, memory: fence.MemoryWhole},
		"another ran before the publish": {entry: func(_ *storagev1.VolumeAttachment, e *ledger.Entry) { e.Kubelet = &before }, world: young, asked: 1, memory: fence.MemoryLost},
		"its key is another than before the publish": {entry: func(_ *storagev1.VolumeAttachment, e *ledger.Entry) {
			e.Kubelet = &fence.Process{Start: 2000, CPU: 1, Key: "key of last year"}
		}, world: young, asked: 1, memory: fence.MemoryLost},
		"seen to let go, in a contest":                {entry: seenInContest, asked: 1},
		"seen to let go, in a contest, and restarted": {entry: seenInContest, world: young, asked: 1, memory: fence.MemoryLost},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*storagev1.VolumeAttachment, *ledger.Entry)
			if tt.entry != nil {
				changes = append(changes, tt.entry)
			}
			w, k := forcedWorld(t, changes...)
			if tt.world != nil {
				tt.world(w, k)
			}
			s, err := w.Unpublish(t.Context(), "vol-1", "id-old")
			w.must(err)
			h := w.holder(s, "id-old")
			if len(k.asked) != tt.asked || h.Node.Memory != tt.memory {
				t.Errorf("%d were asked, and it is %+v", len(k.asked), h.Node)
			}
			if refuses := fence.JudgeUnpublish(s.Snapshot, "id-old").Action == fence.Refuse; refuses != tt.memory.Doubted() && name != "nothing is being detached" {
				t.Errorf("it is refused: %t", refuses)
			}
		})
	}
}

// What we fail at ourselves is no word of a kubelet's, and is tried again.
func TestWhatStopsTheQuestionIsNotTakenForAnAnswer(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) (*world, *kubelets){
		"contested": contestedWorld,
		"forced":    func(t *testing.T) (*world, *kubelets) { return forcedWorld(t) },
	} {
		silent := func() (*world, *kubelets) {
			w, k := begin(t)
			k.seen = k.answers["old"]
			clear(k.answers)
			return w, k
		}
		w, k := silent() // which is asked for longer than the call lasts
		ctx, cancel := context.WithCancel(t.Context())
		k.meanwhile = cancel
		if _, err := w.Unpublish(ctx, "vol-1", "id-old"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, and its time is over: %v", name, err)
		}
		w, k = silent()
		k.fails = kubelet.ErrNoToken
		s, err := w.Unpublish(t.Context(), "vol-1", "id-old")
		switch {
		case name == "forced" && !errors.Is(err, kubelet.ErrNoToken):
			t.Errorf("%s, without a token: %v", name, err)
		case name == "contested" && (err != nil || w.holder(s, "id-old").Node.Memory != ""): // as if nobody could be asked
			t.Errorf("%s, without a token: %v", name, err)
		}
	}
}

// unseen kubelets answer, and were not sighted.
type unseen struct{ *kubelets }

func (unseen) Seen(_, _, _ string) *fence.Process { return nil }

// anywhere was sighted in every boot.
type anywhere struct{ *kubelets }

func (a anywhere) Seen(node, _, _ string) *fence.Process { return a.answers[node] }

// seenInContest: the kubelet was seen to list the volume since its unpublish was refused.
func seenInContest(_ *storagev1.VolumeAttachment, e *ledger.Entry) {
	e.Contest = &fence.Contest{BootID: "boot-old", SeenReadySince: detachedAt.Format(time.RFC3339)}
}
