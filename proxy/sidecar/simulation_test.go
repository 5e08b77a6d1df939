package sidecar

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/kubelet"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate"
)

var (
	schedules   = flag.Int("schedules", 0, "TestSimulation: how many schedules; 0: the first 400")
	firstSeed   = flag.Uint64("seed", 1, "TestSimulation: the first schedule's seed")
	replay      = flag.String("replay", "", "TestSimulation: replay this script alone, and say what happens")
	throughGRPC = flag.Int("schedules-grpc", -1, "TestSimulation: how many schedules of the whole program, over gRPC and HTTP; -1: a hundredth of -schedules, or the first few")
	atMost      = flag.Duration("simulate-for", 0, "TestSimulation: end it after this long; 0: never")
	failures    = flag.Int("failures", 3, "TestSimulation: end it after so many")
	outcomeTo   = flag.String("result", "", "TestSimulation: write a sanity/prove/result.Result to this file")
)

// smoke bounds what a test run has for the schedules that nobody asked for.
const smoke = 25 * time.Second

// bound is the whole of such a bound, or, under -short, a fifth: make test looks for races
// with that, and explores without the race detector, which makes schedules six times slower.
func bound(whole time.Duration) time.Duration {
	if testing.Short() {
		return whole / 5
	}
	return whole
}

// smokeWhole bounds those of the whole program, of which one core runs four a second.
const smokeWhole = 12 * time.Second

// TestMain keeps the log of ten thousand sidecars out of the tests'. For all of them: what
// one test has begun may still look at the logger when the next one begins.
func TestMain(m *testing.M) {
	klog.StopFlushDaemon()
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestSimulation explores schedules of everything that may go wrong around the
// guard, the ledger, the evidence and the takeover, and holds R1, R2 and the rule
// that nothing stays stuck against each (package simulate).
func TestSimulation(t *testing.T) {
	if *replay != "" {
		replayScript(t, *replay)
		return
	}
	if *wide {
		t.Skip("-wide: TestSimulationWide explores the wide world")
	}
	c := simulate.Campaign{Factory: partsOfTier1, Enough: *failures, From: *firstSeed, Schedules: *schedules, Progress: func(text string) { fmt.Println("simulation:", text) }}
	if c.Schedules == 0 {
		c.Schedules, c.Within, c.Progress = 400, bound(2*smoke), nil
	}
	if *atMost > 0 {
		c.Schedules, c.Within = 1_000_000, *atMost
	}
	began := time.Now()
	c.Run(t)
	r := result.Result{Part: "simulation", Left: left, Began: began, Seconds: time.Since(began).Seconds(),
		Command: fmt.Sprintf("go test ./proxy/sidecar -run TestSimulation -schedules=%d -seed=%d -timeout 0 -result=%s", *schedules, *firstSeed, *outcomeTo)}
	c.Figures(&r, "tier 1: ")
	failed, short := c.Failures, c.Shortfalls()
	if *schedules > 0 {
		began, two := time.Now(), simulate.DefaultSetup()
		two.Replicas = 2
		told, broken := simulate.Exhaustive(t, partsOfTier1, two, time.Time{})
		for _, story := range told {
			r.Add("every crash of the story "+story.Story+": schedules", float64(story.Ran), "schedules")
		}
		r.Add("every crash of a move and three takeovers: time", time.Since(began).Seconds(), "s")
		failed = append(failed, broken...)
	}
	if n := tier2Schedules(); n > 0 {
		whole := simulate.Campaign{Factory: wholeProgram, Whole: true, Enough: *failures, From: *firstSeed, Schedules: n, Within: *atMost, Progress: c.Progress}
		if *schedules == 0 && whole.Within == 0 {
			whole.Within = bound(smokeWhole)
		}
		whole.Run(t)
		whole.Figures(&r, "tier 2: ")
		failed, short = append(failed, whole.Failures...), append(short, whole.Shortfalls()...)
		r.Seconds = time.Since(began).Seconds()
	}
	for _, f := range failed {
		factory := simulate.Factory(partsOfTier1)
		if f.Setup.Whole {
			factory = wholeProgram
		}
		fmt.Printf("simulation: seed %d breaks %s: %s; now it is shrunk\n", f.Seed, f.Rule, f.Violation)
		small := simulate.Shrink(t, factory, f)
		path := filepath.Join(os.TempDir(), fmt.Sprintf("simulation-%s-%d.txt", small.Rule, f.Seed))
		if err := os.WriteFile(path, []byte(small.Script()), 0o644); err != nil {
			t.Error(err)
		}
		t.Errorf("seed %d breaks %s: %s\nshrunk from %d events to %d, in %s:\n%s", f.Seed, f.Rule, f.Violation, len(f.Trace), len(small.Trace), path, small.Script())
		r.Failures = append(r.Failures, fmt.Sprintf("seed %d breaks %s: %s", f.Seed, f.Rule, f.Violation))
	}
	for _, text := range short {
		t.Error(text)
		r.Failures = append(r.Failures, text)
	}
	for _, f := range r.Figures {
		t.Logf("%s: %.0f %s", f.Name, f.Value, f.Unit)
	}
	if *outcomeTo != "" {
		if err := r.Write(*outcomeTo); err != nil {
			t.Fatal(err)
		}
	}
}

// left is what the simulation does not attack.
var left = []string{
	"a process that stops between its last write to the ledger and the driver call that follows, for longer than another process takes for a whole operation: the driver cannot tell an old call from a new one",
	"a driver that carries out an unpublish after later calls for the same volume were answered",
	"a publish to a node whose name another machine has taken over while the one of before goes on, cut off, before the driver on the new one has registered: the CSINode names the machine of before",
	"a volume whose VolumeAttachment a person stripped while it was mounted, whose pod is gone, and whose kubelet restarted before it had unmounted: nothing in Kubernetes tells of the mount",
	"the same after a false out-of-service taint that was put on and taken off while no csi-fencepost looked",
	"an attach-detach controller that stops for more than a second between its two writes of a detach",
	"an attach-detach controller, or an attacher, whose cache is behind while its writes arrive",
	"the wall clock of csi-fencepost itself: it decides nothing; package observe has the tests of a jump",
	"a clock that is set back by exactly as long as it takes until a kubelet's Ready condition changes again: its lastTransitionTime is what it was",
	"storage fences, NetworkFence, medik8s, in-tree volumes, access modes other than ReadWriteOnce: the scenarios have them",
	"fence agents that read a machine with power as off",
	"tier 1: the loops of liveness at their own pace (a tick every half second, a probe every two), HTTP, client-go's informers, wake-ups, Events, the throttle, the proxy and failover's loop; tier 2 has them",
}

// firstWhole are the schedules of the whole program that a test run has, if smokeWhole
// lets it.
const firstWhole = 50

func tier2Schedules() int {
	if *throughGRPC >= 0 {
		return *throughGRPC
	}
	if *schedules == 0 {
		return firstWhole
	}
	return *schedules / 100
}

func replayScript(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	setup, events, err := simulate.ParseScript(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	tell := func(text string) { fmt.Println(text) }
	if !testing.Verbose() {
		tell = nil
	}
	factory := simulate.Factory(partsOfTier1)
	if setup.Whole {
		factory = wholeProgram
	}
	if r := simulate.Narrate(t, factory, setup, events, tell); r.Violation != "" {
		t.Errorf("%s: breaks %s: %s", path, r.Rule, r.Violation)
	}
}

// TestTheSameSeedGivesTheSameTrace: what is found is found again. One seed of the
// forty may differ: the pauses after a conflict have a jitter of Go's own random
// numbers, which no seed reaches, and seldom it decides which call comes first.
func TestTheSameSeedGivesTheSameTrace(t *testing.T) {
	var differ []string
	for seed := range uint64(40) {
		a, b := simulate.Random(t, partsOfTier1, seed, false), simulate.Random(t, partsOfTier1, seed, false)
		if a.Script() != b.Script() || a.Stats != b.Stats {
			differ = append(differ, fmt.Sprintf("seed %d: two traces, of %d and %d events, counts %+v and %+v", seed, len(a.Trace), len(b.Trace), a.Stats, b.Stats))
		}
	}
	if len(differ) > 1 {
		t.Error(strings.Join(differ, "\n"))
	}
}

// TestEveryCrashOfAMove goes through a move and three takeovers with each fault at
// each write, each pair of faults, and each fault followed by each of the events
// that could come next. The time that a test run has bounds it, and each story has its
// share of that.
func TestEveryCrashOfAMove(t *testing.T) {
	setup := simulate.DefaultSetup()
	setup.Replicas = 2
	until := time.Now().Add(bound(smoke))
	if *schedules > 0 {
		until = time.Time{}
	}
	told, failed := simulate.Exhaustive(t, partsOfTier1, setup, until)
	for _, story := range told {
		t.Logf("%s: %d schedules of %d", story.Story, story.Ran, story.Of)
		if story.Of < 100 {
			t.Errorf("the story %s has %d schedules: it does not take the course that it should", story.Story, story.Of)
		}
		if behind := story.Ran + 1; behind < told[0].Ran && story.Ran < story.Of {
			t.Errorf("the story %s was told %d times of %d, and %s %d times", story.Story, story.Ran, story.Of, told[0].Story, told[0].Ran)
		}
	}
	if len(told) != 4 {
		t.Errorf("%d stories, there are four", len(told))
	}
	for _, f := range failed {
		t.Errorf("breaks %s: %s\n%s", f.Rule, f.Violation, f.Script())
	}
}

// TestStories replays the golden scripts: a fault that was found once, or that
// somebody asked about, is one file.
func TestStories(t *testing.T) {
	scripts, err := filepath.Glob("../../sanity/simulate/testdata/*.txt")
	if err != nil || len(scripts) < 12 {
		t.Fatalf("%d stories (%v), there have to be twelve", len(scripts), err)
	}
	for _, path := range scripts {
		t.Run(filepath.Base(path), func(t *testing.T) { replayScript(t, path) })
	}
}

// partsOfTier1 is the sidecar's own core (newCore) and guard: survey, ledger,
// decision, sources, records, fencer, agents' levels and liveness. HTTP, watches,
// wake-ups, Events and the failover's loop are those of tier 2.
func partsOfTier1(ctx context.Context, p simulate.Parts) (simulate.Sidecar, error) {
	driver, err := csi.NewDriver(ctx, p.Driver)
	if err != nil {
		return nil, err
	}
	tracker := observe.NewTracker(p.Config.Fencing.SuspectAfter.Duration, p.Config.Fencing.MaxUnhealthy.Share())
	kubelets := kubelet.NewSightings(p.Kubelets)
	c, err := newCore(ctx, Options{Driver: simulate.DriverName, Conn: p.Driver, Config: p.Config, Levels: p.Agents, Host: p.Name, Metrics: uncounted, Board: unseen},
		ground{client: p.Client, vital: p.Aside, cluster: simulate.ClusterUID, driver: driver, index: p.Index, tracker: tracker, kubelets: kubelets, random: p.Random, answered: func(string) {}})
	if err != nil {
		return nil, err
	}
	return &tier1{Guard: c.guard(nobody{}), core: c, kubelets: kubelets, driver: directDriver{spec.NewControllerClient(p.Driver)}, client: p}, nil
}

// The figures and the page of tier 1, which nobody reads: one of each for all of
// its processes.
var (
	uncounted = NewMetrics()
	unseen    = NewBoard("simulated", nil, false, &Readiness{})
)

// tier1 is a process of tier 1.
type tier1 struct {
	*guard.Guard
	*core
	kubelets *kubelet.Sightings
	driver   directDriver
	client   simulate.Parts
}

func (s *tier1) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return s.Guard.ControllerPublishVolume(ctx, req, s.driver)
}

func (s *tier1) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return s.Guard.ControllerUnpublishVolume(ctx, req, s.driver)
}

// Sight is what sighting does with a Node that changed, and the rounds to its kubelet.
func (s *tier1) Sight(ctx context.Context, node *corev1.Node) error {
	one := &sighting{client: s.client.Client, sources: s.sources, remedied: map[string]bool{}}
	if err := one.sight(ctx, node); err != nil {
		return err
	}
	_, _ = s.kubelets.Sight(ctx, node) // one that does not answer is nobody's fault
	return nil
}

func (s *tier1) FenceOff(ctx context.Context, n *corev1.Node, leaseRV string) error {
	t := fencer.Target{Node: n.Name, UID: string(n.UID), BootID: n.Status.NodeInfo.BootID, NodeID: s.client.Index.NodeID(n.Name), LeaseRV: leaseRV}
	_, err := s.fencing.fencer.Off(ctx, t, "a person said so", false)
	return err
}

func (s *tier1) LeaseSeen(node, version string) {
	if version == "" {
		s.tracker.Absent(node)
		return
	}
	s.tracker.Observe(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: version}})
}

// once is a context that is over: what runs until then does what it does, once.
var once = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Beat is a round of the tracker's loops: they run at the scheduler's pace, not at
// a tick every half second, which is most of what a schedule costs.
func (s *tier1) Beat(answers bool) {
	s.tracker.Run(once)
	if answers {
		s.tracker.Probe(once, nil)
	}
}

// directDriver is the driver without the proxy before it.
type directDriver struct{ client spec.ControllerClient }

func (d directDriver) Publish(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return d.client.ControllerPublishVolume(ctx, req)
}

func (d directDriver) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return d.client.ControllerUnpublishVolume(ctx, req)
}

// nobody listens to what was decided.
type nobody struct{}

func (nobody) Decided(guard.Decision)                                 {}
func (nobody) TookOver(guard.Decision, []fence.Holder, time.Duration) {}
func (nobody) SetAside(string, string)                                {}
func (nobody) TurnedAway(_, _, _ string)                              {}
func (nobody) LedgerWriteFailed()                                     {}
