package waiting

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// refuser takes a second to refuse each call, for the same holder.
type refuser struct {
	waiting *Calls
	reason  fence.Reason
	judged  atomic.Int64
	// meanwhile is called when half of the second is over; says is what it answers in
	// the place of what it tells waiting. If allows, it lets all through to a driver
	// that fails.
	meanwhile func()
	says      string
	allows    bool
}

// holderOf is one node for all volumes but one.
func holderOf(volume string) string {
	if volume == "v7" {
		return "another"
	}
	return "dead"
}

func (r *refuser) refuse(call, volume, nodeID string) error {
	n := r.judged.Add(1)
	time.Sleep(500 * time.Millisecond)
	if r.meanwhile != nil {
		r.meanwhile()
	}
	time.Sleep(500 * time.Millisecond)
	if r.allows {
		r.waiting.Decided(guard.Decision{Call: call, Volume: volume, NodeID: nodeID, Action: fence.Allow})
		return status.Error(codes.Internal, "the driver's own error")
	}
	d := guard.Decision{Call: call, Volume: volume, NodeID: nodeID, Action: fence.Refuse, Reason: r.reason, Holder: &fence.Holder{NodeName: holderOf(volume)},
		Text: fmt.Sprintf("volume %s: judgement %d", volume, n)}
	r.waiting.Decided(d)
	if r.says != "" {
		return status.Error(codes.FailedPrecondition, guard.Clip(r.says))
	}
	return status.Error(guard.Code(d.Reason), guard.Clip(d.Text))
}

func (r *refuser) ControllerPublishVolume(_ context.Context, req *spec.ControllerPublishVolumeRequest, _ proxy.Driver) (*spec.ControllerPublishVolumeResponse, error) {
	return nil, r.refuse(guard.CallPublish, req.GetVolumeId(), req.GetNodeId())
}

func (r *refuser) ControllerUnpublishVolume(_ context.Context, req *spec.ControllerUnpublishVolumeRequest, _ proxy.Driver) (*spec.ControllerUnpublishVolumeResponse, error) {
	return nil, r.refuse(guard.CallUnpublish, req.GetVolumeId(), req.GetNodeId())
}

// tallied are the metrics of calls that come at once.
type tallied struct {
	counted
	mu sync.Mutex
}

func (m *tallied) Decisions(call, decision, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted.Decisions(call, decision, reason)
}

// crowd is how many volumes wait, and are asked for at once.
const crowd = 50

// spared is a guard of refused calls, before which stands what spares them.
type spared struct {
	*testing.T
	*refuser
	tallied
	guard proxy.Guard
}

func spareCrowd(t *testing.T, reason fence.Reason, test func(s *spared)) {
	synctest.Test(t, func(t *testing.T) {
		s := &spared{T: t}
		w := New(nil, nil, func(map[string]int) {})
		t.Cleanup(w.queue.ShutDown)
		s.refuser = &refuser{waiting: w, reason: reason}
		s.guard = Spare(s.refuser, w, &s.tallied, Rejudged)
		test(s)
	})
}

// round asks for all volumes at once, publishes and unpublishes, and tells how
// many were judged, what was answered, and how long all took together.
func (s *spared) round(ask func(volume, node string) error) (judged int, answers []string, together time.Duration) {
	s.Helper()
	before := s.judged.Load()
	answers = make([]string, crowd)
	var took atomic.Int64
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			begun := time.Now()
			err := ask(fmt.Sprint("v", i), "id")
			took.Add(int64(time.Since(begun)))
			if err == nil {
				s.Error("let through")
			}
			answers[i] = status.Code(err).String() + " " + status.Convert(err).Message()
		})
	}
	all.Wait()
	return int(s.judged.Load() - before), answers, time.Duration(took.Load())
}

func (s *spared) ask(volume, node string) error {
	if strings.HasSuffix(volume, "1") {
		_, err := s.guard.ControllerUnpublishVolume(s.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node}, nil)
		return err
	}
	_, err := s.guard.ControllerPublishVolume(s.Context(), guardrig.PublishOf(volume, node), nil)
	return err
}

// wantJudged asks once more, and fails unless so many were judged.
func (s *spared) wantJudged(when string, want int) {
	s.Helper()
	if judged, _, _ := s.round(s.ask); judged != want {
		s.Errorf("%s %d of %d were judged, want %d", when, judged, crowd, want)
	}
}

func TestOfManyRefusedCallsThatAreRepeatedFewTakeTheCallersTime(t *testing.T) {
	spareCrowd(t, fence.HolderStale, func(s *spared) {
		judged, first, together := s.round(s.ask)
		if judged != crowd || together != crowd*time.Second {
			t.Errorf("at first %d were judged, in %s", judged, together)
		}
		time.Sleep(time.Second)
		judged, again, together := s.round(s.ask)
		if judged != Rejudged || together != Rejudged*time.Second {
			t.Errorf("when they came again %d were judged, and all took %s together; want %d, a second each", judged, together, Rejudged)
		}
		same := 0
		for i := range again {
			if again[i] == first[i] {
				same++
			} else if !strings.HasPrefix(again[i], codes.FailedPrecondition.String()) {
				t.Error(again[i])
			}
		}
		if same != crowd-Rejudged {
			t.Errorf("%d were answered in the words of the last time, want %d", same, crowd-Rejudged)
		}
		if n := len(s.seen); n != crowd-Rejudged || slices.ContainsFunc(s.seen, func(d string) bool {
			return d != guard.CallPublish+" refuse HolderStale" && d != guard.CallUnpublish+" refuse HolderStale"
		}) {
			t.Errorf("%d decisions are counted: %v", n, s.seen)
		}
		s.wantJudged("and once more", Rejudged)
	})
}

func TestWhatWouldBeJudgedDifferentlyIsJudgedHoweverManyWait(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(s *spared)
		judged  int
	}{
		"nothing":                            {func(*spared) {}, Rejudged},
		"its last judgement is old":          {func(*spared) { time.Sleep(refusalHolds) }, crowd},
		"something that is looked at yet":    {func(s *spared) { s.waiting.Changed(observe.Change{Node: "dead", Volume: "v2"}) }, Rejudged},
		"a look finds it for one":            {func(s *spared) { s.found("v2") }, crowd - 1},
		"a look finds it for another holder": {func(s *spared) { s.found("v7") }, Rejudged + 1},
		"one of them goes through": {func(s *spared) {
			s.waiting.Decided(guard.Decision{Call: guard.CallPublish, Volume: "v2", NodeID: "id", Action: fence.Allow})
		}, crowd - 1},
	} {
		t.Run(name, func(t *testing.T) {
			spareCrowd(t, fence.HolderStale, func(s *spared) {
				s.round(s.ask)
				time.Sleep(time.Second)
				s.wantJudged("before", Rejudged)
				time.Sleep(time.Millisecond)
				tt.happens(s)
				time.Sleep(time.Millisecond)
				judged, _, _ := s.round(s.ask)
				// Whoever waits for another holder is judged only if it is among the first.
				if judged != tt.judged && (tt.judged != crowd-1 || judged != crowd) {
					s.Errorf("%d were judged, want %d", judged, tt.judged)
				}
			})
		})
	}
}

// found is what look does when it finds that the publish of a volume would be let
// through.
func (s *spared) found(volume string) { s.waiting.judgeNext(callKey(guard.CallPublish, volume, "id")) }

// The judgement may have read what was before.
func TestWhatIsFoundWhileACallIsJudgedIsNotOldWhenItComesAgain(t *testing.T) {
	spareCrowd(t, fence.HolderStale, func(s *spared) {
		s.round(s.ask)
		s.meanwhile = func() { s.found("v2"); s.found("v7") }
		time.Sleep(2 * refusalHolds)
		s.wantJudged("after a while", crowd)
		s.meanwhile = nil
		s.wantJudged("found while they were judged:", crowd)
		s.wantJudged("nothing was found since:", Rejudged)
	})
}

func TestOnlyAHoldersRefusalIsGivenAgain(t *testing.T) {
	for _, reason := range []fence.Reason{fence.HolderAlive, fence.HolderWanted, fence.HolderContested, fence.HolderStale, fence.HolderUnknown,
		fence.HolderListed, fence.EvidenceVoid, fence.EvidenceContradicted} {
		spareCrowd(t, reason, func(s *spared) {
			s.round(s.ask)
			time.Sleep(time.Second)
			s.wantJudged(string(reason), Rejudged)
		})
	}
	for _, reason := range []fence.Reason{fence.HolderUnwatched, fence.TargetLeaving, fence.TargetFenced, fence.TargetGone, fence.UnpublishFailed, fence.APIUnavailable, fence.LedgerUnreadable, fence.LostRace} {
		spareCrowd(t, reason, func(s *spared) {
			s.round(s.ask)
			time.Sleep(time.Second)
			s.wantJudged(string(reason), crowd)
		})
	}
	spareCrowd(t, fence.HolderStale, func(s *spared) {
		s.says = "the driver's own words"
		s.round(s.ask)
		time.Sleep(time.Second)
		s.wantJudged("the driver's answers:", crowd)
	})
	spareCrowd(t, fence.HolderStale, func(s *spared) {
		s.allows = true
		s.round(s.ask)
		s.wantJudged("the driver's errors:", crowd)
	})
	spareCrowd(t, fence.HolderStale, func(s *spared) {
		_ = s.ask("v", "id")
		s.reason = fence.TargetLeaving
		time.Sleep(time.Second)
		_ = s.ask("v", "id")
		s.guard.(*spare).free.TryAcquire(Rejudged)
		time.Sleep(time.Second)
		if _ = s.ask("v", "id"); s.judged.Load() != 3 {
			t.Error("what was refused for another reason since is refused again for the first")
		}
	})
	for name, ask := range map[string]func(s *spared, volume, node string) error{
		"many may write": func(s *spared, volume, node string) error {
			req := guardrig.PublishOf(volume, node)
			req.VolumeCapability.AccessMode.Mode = spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
			_, err := s.guard.ControllerPublishVolume(s.Context(), req, nil)
			return err
		},
		"another node asks": func(s *spared, volume, _ string) error { return s.ask(volume, "other") },
		"the other call": func(s *spared, volume, node string) error {
			if strings.HasSuffix(volume, "1") {
				_, err := s.guard.ControllerPublishVolume(s.Context(), guardrig.PublishOf(volume, node), nil)
				return err
			}
			_, err := s.guard.ControllerUnpublishVolume(s.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node}, nil)
			return err
		},
	} {
		spareCrowd(t, fence.HolderStale, func(s *spared) {
			s.round(s.ask)
			time.Sleep(time.Second)
			if judged, _, _ := s.round(func(volume, node string) error { return ask(s, volume, node) }); judged != crowd {
				t.Errorf("%s: %d were judged, want all", name, judged)
			}
		})
	}
}

// A call whose reason is gone is woken, and goes through, while others that wait
// take all that is given to them.
func TestAWokenCallGoesThroughWhileManyWait(t *testing.T) {
	for name, tell := range map[string]func(w *Calls){
		"by a change": func(w *Calls) { w.Changed(observe.Change{Node: "old"}) },
		"by a look":   func(w *Calls) { w.queue.Add(callKey(guard.CallPublish, guardrig.Handle, guardrig.ID("next"))) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { wokenInACrowd(t, tell) }) })
	}
}

func wokenInACrowd(t *testing.T, tell func(*Calls)) {
	w := inUse(t)
	g := Spare(w.Guard, w.w, w.counted, Rejudged).(*spare)
	publish := func() error {
		w.Look()
		_, err := g.ControllerPublishVolume(t.Context(), guardrig.PublishOf(guardrig.Handle, guardrig.ID("next")), w)
		return err
	}
	if publish() == nil {
		t.Fatal("published elsewhere")
	}
	if !g.free.TryAcquire(Rejudged) {
		t.Fatal("something is left under way")
	}
	time.Sleep(time.Second)
	if w.Lists("old", false, false); publish() == nil {
		t.Fatal("judged, as long as nobody has told of the change")
	}
	w.Attachment("old", time.Now())
	w.Look()
	tell(w.w)
	synctest.Wait()
	if w.touched("next") == "" {
		t.Fatal("not woken")
	}
	w.Must(publish())
	w.waits()
}

// A kubelet that restarts after the reboot would be believed that the volume is not
// in use.
func TestARebootIsWrittenDownWhileManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Held(t)
		r.Attachment("old", time.Now())
		w := newWaiting(t, r)
		g := Spare(r.Guard, w.w, w.counted, Rejudged).(*spare)
		unpublish := func() error {
			r.Look()
			_, err := g.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID("old")}, r)
			return err
		}
		r.Refused(unpublish(), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		if !g.free.TryAcquire(Rejudged) {
			t.Fatal("something is left under way")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.Reboot("old", "boot-2")
		r.Lists("old", true, false)
		r.Look()
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		r.Refused(unpublish(), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.Status("old", func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() })
		r.Lists("old", false, false)
		r.Look()
		w.w.Changed(observe.Change{Node: "old"})
		synctest.Wait()
		r.Refused(unpublish(), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	})
}
