package scenarios

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// TestReal plays what needs real nodes: Kubernetes' own kubelet, containerd, containers
// that write a database, and ext4. They need root, and what `make deps` installs.
func TestReal(t *testing.T) { playAll(t, realsOfMakeTest) }

// TestRealBeyond plays those that make test has no time for.
func TestRealBeyond(t *testing.T) {
	if !*beyond {
		t.Skip("make test has no time for these: make real")
	}
	playAll(t, realsBeyond)
}

var beyond = flag.Bool("beyond", false, "TestRealBeyond: play them")

// holdingOn plays a story on an array whose clients hold on to a disk that was detached,
// as those of most drivers do: no driver's source shows that unpublish revokes their access.
func holdingOn(s scenario) scenario {
	s.options.Array = func(s *array.Switches) { s.EnforceSingleAttach, s.ClientHoldsOn = false, true }
	return s
}

// reals: the verdict is that of e2fsck and of the database itself.
var reals = slices.Concat(realsOfMakeTest, realsBeyond)

var (
	// What a kubelet forgets and what two mounts do is what hollow nodes cannot show.
	realsOfMakeTest = []scenario{
		holdingOn(onRealNodes("real-part", "partition")),
		onRealNodes("real-move", "move"),
		onRealNodes("real-forget", "kubelet-forget"),
		onRealNodes("real-quick", "kubelet-quick"),
	}
	realsBeyond = []scenario{
		onRealNodes("real-again", "kubelet-again"),
		onRealNodes("real-drain", "drain"),
		onRealNodes("real-heals", "part-heals"),
		onRealNodes("real-returns", "part-returns"),
	}
)

// onRealNodes is a story with real nodes, and a judgement of its volumes at its end.
func onRealNodes(name, of string) scenario {
	i := slices.IndexFunc(hollow, func(s scenario) bool { return s.name == of })
	s := hollow[i]
	story := s.story
	s.name, s.stage, s.options.Real, s.options.Networks = name, "", true, false
	s.story = func(p *play) {
		story(p)
		p.judged()
	}
	return s
}

// hollow are the stories that can be played on real nodes, too.
var hollow = slices.Concat(everyday, life, kubelets, cutNetworks)

// judged switches the nodes off, and says what is left on each volume. With csi-fencepost
// nothing is missing. With Kubernetes alone the next node's pod has time to begin.
func (p *play) judged() {
	p.t.Helper()
	if p.guarded() {
		time.Sleep(2 * time.Second) // a hundred commits of whoever has it now
	} else {
		time.Sleep(20 * time.Second)
	}
	for name, verdict := range p.Judge() {
		p.outcome("%s", verdict)
		if p.guarded() && (!verdict.Sound() || len(verdict.Database.Writers) == 0) {
			p.t.Errorf("%s: %s\n%s", name, verdict, verdict.Damage)
		}
	}
}
