package survey

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// kubelets answer by node, once what happens meanwhile has.
type kubelets struct {
	answers   map[string]*fence.Process
	asked     []*corev1.Node
	meanwhile func()
}

func (k *kubelets) Seen(node, uid, bootID string) *fence.Process {
	if uid != "uid-"+node || bootID != "boot-"+node {
		return nil
	}
	return k.answers[node]
}

func (k *kubelets) Ask(_ context.Context, n *corev1.Node, key string) (*fence.Process, error) {
	if key != before.Key {
		return nil, errors.New("another key was asked for")
	}
	k.asked = append(k.asked, n)
	if k.meanwhile != nil {
		k.meanwhile()
	}
	if p := k.answers[n.Name]; p != nil {
		return p, nil
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
	if !h.Node.Remembers {
		t.Error("it is not believed")
	}
}

func TestWhoDoesNotAnswerOrIsAnotherIsNotBelieved(t *testing.T) {
	for name, answer := range map[string]*fence.Process{"nobody": nil, "another": {Start: 2000, CPU: 7, Key: "key"}} {
		w, k := contestedWorld(t)
		k.answers["old"] = answer
		if s := w.unpublish("id-old"); w.holder(s, "id-old").Node.Remembers || len(k.asked) != 1 {
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
	if s := w.publish("id-next"); w.holder(s, "id-old").Node.Remembers || s.Target.Kubelet != nil {
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
