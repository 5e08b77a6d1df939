package scenarios

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
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

var (
	beyond = flag.Bool("beyond", false, "TestRealBeyond, TestKubelets: play and ask what make test has no time for")
	times  = flag.Int("times", 0, "TestRealAgain: how often each story on real nodes is played")
)

// TestRealAgain plays every story on real nodes so many times: whether a container writes
// for a moment longer, and what the kernel has not yet written, is a matter of chance.
func TestRealAgain(t *testing.T) {
	if *times == 0 {
		t.Skip("make test has no time for this: make prove")
	}
	began := time.Now()
	var mu sync.Mutex
	var passed int
	var failures []string
	t.Run("play", func(t *testing.T) {
		for _, s := range reals {
			for i := range *times {
				t.Run(fmt.Sprintf("%s/%d", s.name, i+1), func(t *testing.T) {
					t.Parallel()
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						if t.Failed() {
							failures = append(failures, t.Name())
						} else {
							passed++
						}
						fmt.Printf("real-nodes: %d of %d plays, after %s\n", passed+len(failures), len(reals)**times, time.Since(began).Round(time.Second))
					}()
					again := s
					again.stage = fmt.Sprintf("%s-%d", s.stageName(), i+1)
					t.Logf("outcome: %s", runScenario(t, again, false))
				})
			}
		}
	})
	if *resultFlag == "" {
		return
	}
	r := result.Result{Part: "real-nodes", Began: began, Seconds: time.Since(began).Seconds(), Failures: failures,
		Command: fmt.Sprintf("go test ./sanity/scenarios -run TestRealAgain -times=%d", *times),
		Left:    []string{"a kernel of its own for each node, and clocks that differ: the nodes share this machine's", "other file systems than ext4, other databases than one of checksummed pages"}}
	r.Add("stories on real nodes, on Kubernetes "+shared.programs.ControlPlane.Version, float64(len(reals)), "stories")
	r.Add("plays, each judged by e2fsck and by the database's own check", float64(len(reals)**times), "plays")
	r.Add("of them as promised, with nothing damaged or lost", float64(passed), "plays")
	if err := r.Write(*resultFlag); err != nil {
		t.Fatal(err)
	}
}

// holdingOn plays a story on an array whose clients hold on to a disk that was detached,
// as those of most drivers do: no driver's source shows that unpublish revokes their access.
func holdingOn(s scenario) scenario {
	s.options.Array = holding
	return s
}

func holding(s *array.Switches) { s.EnforceSingleAttach, s.ClientHoldsOn = false, true }

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
	realsBeyond = slices.Concat([]scenario{
		onRealNodes("real-again", "kubelet-again"),
		onRealNodes("real-drain", "drain"),
		onRealNodes("real-heals", "part-heals"),
		onRealNodes("real-returns", "part-returns"),
		onRealNodes("real-rollout", "recreate"),
		onRealNodes("real-fenced", "storage-fence"),
		onRealNodes("real-fenced-b", "storage-boot"),
	}, judged(realStories))
)

// onRealNodes is a story with real nodes, and a judgement of its volumes at its end.
func onRealNodes(name, of string) scenario {
	i := slices.IndexFunc(hollow, func(s scenario) bool { return s.name == of })
	s := hollow[i]
	s.name, s.stage, s.options.Real, s.options.Networks = name, "", true, false
	return judged([]scenario{s})[0]
}

// judged are stories that end with a judgement of their volumes.
func judged(stories []scenario) []scenario {
	stories = slices.Clone(stories)
	for i, s := range stories {
		stories[i].story = func(p *play) {
			s.story(p)
			p.judged()
		}
	}
	return stories
}

// hollow are the stories that can be played on real nodes, too.
var hollow = slices.Concat(everyday, life, kubelets, cutNetworks, cutClients)

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
