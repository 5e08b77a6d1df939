package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// leavingUnder: an unpublish of node n was begun, in a call that had so many seconds, and n asks for the
// volume by a VolumeAttachment that was made anew after a person had stripped the one that was being deleted.
func leavingUnder(t *testing.T, seconds int) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Must(r.PublishTo("n"))
	r.Change(func(l *ledger.Ledger) {
		l.Get(guardrig.ID("n")).State, l.Get(guardrig.ID("n")).LeavingSeconds = fence.Leaving, seconds
	})
	r.Attachment("n", time.Time{})
	return r
}

// An unpublish that another process has under way lands at the driver whenever it likes:
// until its deadline is past, its node is not published to again.
func TestAPendingUnpublishIsNotAbandonedBeforeTheDeadlineOfTheCallThatBeganIt(t *testing.T) {
	for name, tt := range map[string]struct {
		had  int // seconds
		wait time.Duration
	}{
		"an older version did not say": {0, 2 * time.Minute},
		"a quarter of a minute":        {15, 2 * time.Minute},
		"a minute":                     {60, 2 * time.Minute},
		"five minutes":                 {300, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := leavingUnder(t, tt.had)
				began := time.Now()
				for time.Since(began) < tt.wait {
					r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
					time.Sleep(10 * time.Second)
				}
				r.Must(r.PublishTo("n"))
				r.Called("publish id-n", "unpublish id-n", "publish id-n")
				if e := r.Ledger().Get(guardrig.ID("n")); e.State != fence.Publishing || e.LeavingSeconds != 0 {
					t.Errorf("the ledger says %+v", e)
				}
			})
		})
	}
}

// Another one may have been made and stripped meanwhile, and its unpublish be under way.
func TestAPendingUnpublishIsAsOldAsTheVolumeAttachmentThatWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leavingUnder(t, 0)
		refused := func(wait time.Duration) {
			t.Helper()
			r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
			time.Sleep(wait)
		}
		refused(119 * time.Second)
		r.MadeAnew("n")
		refused(119 * time.Second)
		refused(2 * time.Second)
		r.Must(r.PublishTo("n"))
		r.Called("publish id-n", "unpublish id-n", "publish id-n")
	})
}

// A publish finishes an abandoned unpublish with an unpublish of its own. If that gets no answer in its
// time it may still land at the driver, so its node waits as long again. If the driver refuses it, it is over.
func TestAnUnpublishThatFinishesAnotherAndIsGivenUpIsWaitedForAsWell(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		wait time.Duration
	}{
		"given up":          {status.Error(codes.DeadlineExceeded, "it takes long"), 2 * time.Minute},
		"not to be reached": {status.Error(codes.Unavailable, "no connection"), 2 * time.Minute},
		"refused":           {guardrig.ErrThrottled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := leavingUnder(t, 0)
				r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
				time.Sleep(2 * time.Minute)
				r.UnpublishErr = tt.err
				if err := r.PublishTo("n"); err == nil {
					t.Fatal("it is published, and the driver has not unpublished it")
				}
				r.UnpublishErr = nil
				for began := time.Now(); time.Since(began) < tt.wait; time.Sleep(10 * time.Second) {
					r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
				}
				r.Must(r.PublishTo("n"))
				r.Called("publish id-n", "unpublish id-n", "unpublish id-n", "publish id-n")
			})
		})
	}
}

// The same of the unpublish with which another node's publish takes the volume over.
func TestAnUnpublishOfATakeoverThatIsGivenUpIsWaitedForAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leavingUnder(t, 0)
		r.Node("m", guardrig.HourAgo)
		r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		time.Sleep(100 * time.Second)
		r.Attachment("m", time.Time{})
		r.UnpublishErr = status.Error(codes.DeadlineExceeded, "it takes long")
		if err := r.PublishTo("m"); err == nil {
			t.Fatal("it is published, and the driver has not unpublished it")
		}
		r.UnpublishErr = nil
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(10 * time.Second) {
			r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		}
		r.Must(r.PublishTo("n"))
		r.Called("publish id-n", "unpublish id-n", "unpublish id-n", "unpublish id-m", "publish id-n")
	})
}

// timed is a driver that notes, as an unpublish reaches it, how long the ledger says that
// the call has.
type timed struct {
	*guardrig.Rig
	says []int
	left []time.Duration
}

func (d *timed) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	deadline, _ := ctx.Deadline()
	d.left = append(d.left, time.Until(deadline))
	d.says = append(d.says, d.Ledger().Get(req.GetNodeId()).LeavingSeconds)
	return d.Rig.Unpublish(ctx, req)
}

func TestWhoUnpublishesSaysBeforehandHowLongTheCallHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.New(t, fence.Policy{})
		r.Node("n", guardrig.HourAgo)
		r.Attachment("n", time.Time{})
		r.Must(r.PublishTo("n"))
		r.Attachment("n", guardrig.Now)
		r.UnpublishErr = guardrig.ErrThrottled
		d := &timed{Rig: r}
		call := func(within time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			if within > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), within)
			}
			defer cancel()
			r.Look()
			_, err := r.Guard.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID("n")}, d)
			r.Refused(err, codes.Internal)
		}
		// The longest of those that may be under way; what has no deadline gets one.
		for i, tt := range []struct {
			within time.Duration
			says   int
		}{{15 * time.Second, 15}, {90*time.Second + time.Millisecond, 91}, {15 * time.Second, 91}, {0, 600}} {
			call(tt.within)
			if d.says[i] != tt.says {
				t.Errorf("call %d, within %s: the ledger says %d s, want %d", i, tt.within, d.says[i], tt.says)
			}
			if left := d.left[i]; left > time.Duration(tt.says)*time.Second {
				t.Errorf("call %d has %s at the driver, and the ledger says %d s", i, left, tt.says)
			}
		}
	})
}

// The same of one that another process begins meanwhile: it has its own deadline.
func TestAnUnpublishThatAnotherProcessBeginsMeanwhileIsWaitedForAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leavingUnder(t, 15)
		r.Pod("p", corev1.PodPending, guardrig.ByClaim(guardrig.Claim))
		r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		time.Sleep(100 * time.Second)
		r.UnpublishErr = status.Error(codes.DeadlineExceeded, "it takes long")
		r.Refused(byAnother(r, func() error { return r.UnpublishFrom(guardrig.ID("n")) }), codes.DeadlineExceeded)
		r.UnpublishErr = nil
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(10 * time.Second) {
			r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		}
	})
}

// A volume is published to a node that the ledger names already, as at a retry. Whoever judged before that
// that the node has let it go does not act on it any more.
func TestWhoJudgedBeforeAPublishDoesNotUnpublishAfterIt(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Attachment("old", guardrig.Now)
	meanwhile(t, "before:leaving", func() {
		r.Stripped("old")
		r.Attachment("old", time.Time{})
		r.Must(byAnother(r, func() error { return r.PublishTo("old") }))
		r.SaysAttached("old")
	})
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	r.Called("publish id-old", "publish id-old")
}

func TestWhoJudgedBeforeAPublishDoesNotPublishElsewhereAfterIt(t *testing.T) {
	r := movedPastUs(t, fence.Policy{ListsPublishedNodes: true})
	r.Node("a", guardrig.HourAgo)
	meanwhile(t, "before:record", func() {
		r.Attachment("a", time.Time{})
		r.Must(byAnother(r, func() error { return r.PublishTo("a") }))
		r.SaysAttached("a")
		r.Lists("a", true, true)
	})
	r.Refused(r.PublishTo("b"), codes.FailedPrecondition)
	r.Called("unpublish id-b", "publish id-a") // b only asked
}

// Two that are about to do the same with the same ledger write each its own.
func TestOfTwoThatUnpublishByOneLedgerOneJudgesAgain(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Attachment("old", guardrig.Now)
	meanwhile(t, "before:leaving", func() {
		r.Refused(byAnother(r, func() error { return r.UnpublishFrom(guardrig.ID("old")) }), codes.DeadlineExceeded)
		r.UnpublishErr = nil
		r.Stripped("old")
		r.Attachment("old", time.Time{})
		r.SaysAttached("old")
	})
	r.UnpublishErr = status.Error(codes.DeadlineExceeded, "it takes long")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
	r.Called("publish id-old", "unpublish id-old")
}

// A process that stands still, or its machine, goes on with what it was about to do. Meanwhile another one
// has done it, and the pod is back.
func TestWhatWasJudgedBeforeAProcessStoodStillIsJudgedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		at    string
		begin func(*guardrig.Rig) error
		other func(*guardrig.Rig)
		want  []string
	}{
		"an unpublish": {"before:unpublish", func(r *guardrig.Rig) error { return r.UnpublishFrom(guardrig.ID("old")) }, func(r *guardrig.Rig) {
			r.Must(r.UnpublishFrom(guardrig.ID("old")))
		}, []string{"unpublish id-old", "unpublish id-next", "publish id-old"}}, // next only asked
		"that of a takeover": {"before:unpublish", func(r *guardrig.Rig) error { return r.PublishTo("next") }, func(r *guardrig.Rig) {
			r.Must(r.UnpublishFrom(guardrig.ID("old")))
		}, []string{"unpublish id-old", "unpublish id-next", "publish id-old"}}, // next only asked
		"an unpublish of everyone": {"after:leaving", func(r *guardrig.Rig) error { return r.UnpublishFrom("") }, func(r *guardrig.Rig) {
			r.Must(r.UnpublishFrom(guardrig.ID("old")))
		}, []string{"unpublish id-old", "unpublish id-next", "publish id-old"}},
		"a publish": {"before:publish", func(r *guardrig.Rig) error { return r.PublishTo("next") }, func(r *guardrig.Rig) { r.Stripped("next") },
			[]string{"unpublish id-old", "unpublish id-next", "publish id-old"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := guardrig.Published(t, fence.Policy{})
				r.Attachment("old", guardrig.Now)
				r.Attachment("next", time.Time{})
				r.Calls = nil
				meanwhile(t, tt.at, func() {
					time.Sleep(31 * time.Second)
					r.Must(byAnother(r, func() error {
						tt.other(r)
						r.Stripped("old")
						r.Attachment("old", time.Time{})
						return r.PublishTo("old")
					}))
					r.SaysAttached("old")
				})
				r.Refused(tt.begin(r), codes.FailedPrecondition, "its VolumeAttachment", "is not being deleted")
				r.Called(tt.want...)
			})
		})
	}
}

// A survey and a write that take as long as they may make no judgement old: else a slow API server would have
// every call judged for ever.
func TestASlowAPIServerHasNothingJudgedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.Published(t, fence.Policy{})
		r.Attachment("old", guardrig.Now)
		r.Calls = nil
		meanwhile(t, "before:unpublish", func() { time.Sleep(survey.Timeout + guard.WriteTimeout) })
		r.Must(r.UnpublishFrom(guardrig.ID("old")))
		r.Called("unpublish id-old")
		if n := len(r.Reads("persistentvolumes")); n > 3 {
			t.Errorf("the ledger was read %d times", n)
		}
	})
}

// meanwhile has f done, once, at that point of the call that the test makes next.
func meanwhile(t *testing.T, point string, f func()) {
	done := false
	guard.SetEffectHook(func(at string) {
		if at == point && !done {
			done = true
			f()
		}
	})
	t.Cleanup(func() { guard.SetEffectHook(nil) })
}

// byAnother has a call made by another process.
func byAnother(r *guardrig.Rig, call func() error) error {
	here := r.Guard
	defer func() { r.Guard = here }()
	r.Guard = guard.New(here.Options)
	return call()
}

// Whatever becomes of a call of its own, it does not speak for one that another process has begun, of
// which this one has not known. One that it carried out is over, whether that could be written down or not.
func TestOnlyTheOwnCallIsOverWithItsAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		another bool // process has begun one
		own     bool // unpublish it is, and not another node's publish
		err     error
		broken  bool // the API server is away once it is carried out
		wait    time.Duration
	}{
		"refused":                              {err: guardrig.ErrThrottled},
		"refused, and another's is under way":  {another: true, err: guardrig.ErrThrottled, wait: 2 * time.Minute},
		"carried out, which cannot be written": {broken: true},
		"its own, which cannot be written":     {own: true, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := leavingUnder(t, 15)
				r.Node("m", guardrig.HourAgo)
				r.Attachment("m", time.Time{})
				r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
				time.Sleep(2 * time.Minute)
				if tt.another {
					r.UnpublishErr = status.Error(codes.DeadlineExceeded, "it takes long")
					r.Refused(byAnother(r, func() error { return r.UnpublishFrom(guardrig.ID("n")) }), codes.DeadlineExceeded)
				}
				mended := !tt.broken
				if r.UnpublishErr = tt.err; tt.broken {
					meanwhile(t, map[bool]string{false: "before:record", true: "before:cut"}[tt.own], func() {
						r.Client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
							return !mended, nil, guardrig.ErrThrottled
						})
					})
				}
				if err := r.PublishTo(map[bool]string{false: "m", true: "n"}[tt.own]); err == nil {
					t.Fatal("it is published")
				}
				r.UnpublishErr, mended = nil, true
				for began := time.Now(); time.Since(began) < tt.wait; time.Sleep(10 * time.Second) {
					r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
				}
				r.Must(r.PublishTo("n"))
			})
		})
	}
}

func TestEitherClockTellsThatAJudgementIsOld(t *testing.T) {
	for _, c := range []struct {
		monotonic, wall time.Duration
		old             bool
	}{
		{29 * time.Second, 29 * time.Second, false},
		{31 * time.Second, -time.Hour, true}, // stopped while the wall clock was set back
		{0, 31 * time.Second, true},          // a machine that was suspended
		{0, -time.Hour, false},
	} {
		if old := guard.Old(c.monotonic, c.wall); old != c.old {
			t.Errorf("%s by the one, %s by the other: %t", c.monotonic, c.wall, old)
		}
	}
}

// Another process begins a call while the own one is under way. What the own one amounts to does not end that.
func TestACallOfAnotherProcessIsNotForgottenWithTheOwnOne(t *testing.T) {
	for name, tt := range map[string]struct {
		at  string
		own func(*guardrig.Rig) error
	}{
		"an unpublish":             {"before:cut", func(r *guardrig.Rig) error { return r.UnpublishFrom(guardrig.ID("old")) }},
		"an unpublish of everyone": {"before:cut", func(r *guardrig.Rig) error { return r.UnpublishFrom("") }},
		"that of a takeover":       {"after:unpublish", func(r *guardrig.Rig) error { return r.PublishTo("next") }},
	} {
		t.Run(name, func(t *testing.T) {
			r := guardrig.Published(t, fence.Policy{})
			r.Attachment("old", guardrig.Now)
			r.Attachment("next", time.Time{})
			again := false
			meanwhile(t, tt.at, func() {
				r.UnpublishErr = status.Error(codes.DeadlineExceeded, "it takes long")
				r.Refused(byAnother(r, func() error { return r.UnpublishFrom(guardrig.ID("old")) }), codes.DeadlineExceeded)
				again = len(r.Calls) > 0
				r.UnpublishErr = guardrig.ErrThrottled
			})
			_ = tt.own(r)
			if s := r.State("old"); !again || !s.Pending() {
				t.Errorf("the ledger says %q of it", s)
			}
		})
	}
}

// Of several that a publish takes the volume from the first fails. The others, which were not called, are no
// longer waited for than before.
func TestWhatATakeoverHasNotCalledIsNotWaitedForAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leavingUnder(t, 15)
		r.Node("a", guardrig.HourAgo)
		r.Node("m", guardrig.HourAgo)
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: guardrig.ID("a"), NodeName: "a", NodeUID: "uid-of-a", BootID: "boot-of-a", SystemUUID: "system-a", Token: "a", State: fence.Leaving})
		})
		r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.TargetLeaving)+"]")
		time.Sleep(100 * time.Second)
		r.Attachment("m", time.Time{})
		r.UnpublishErrOf = map[string]error{guardrig.ID("a"): guardrig.ErrThrottled}
		if err := r.PublishTo("m"); err == nil {
			t.Fatal("it is published")
		}
		r.UnpublishErrOf = nil
		time.Sleep(20 * time.Second)
		r.Must(r.PublishTo("n"))
	})
}

// The same of what is written down of a call that failed.
func TestWhatIsWrittenOfAFailedCallLeavesAnothersAlone(t *testing.T) {
	called := func(r *guardrig.Rig, id string) func() {
		return func() { r.Change(func(l *ledger.Ledger) { l.Get(id).Call += "another's" }) }
	}
	t.Run("the unpublish of what was taken over", func(t *testing.T) {
		r := relisted(t)
		r.UnpublishErr = status.Error(codes.Internal, "no such machine")
		meanwhile(t, "before:cut", called(r, guardrig.ID("old")))
		if err := r.PublishTo("next"); err == nil || r.State("old") != fence.Leaving {
			t.Errorf("%v, and the ledger says %s", err, r.State("old"))
		}
	})
	t.Run("a publish that is taken back", func(t *testing.T) {
		r := guardrig.New(t, fence.Policy{})
		r.Node("next", guardrig.HourAgo)
		meanwhile(t, "before:cut", called(r, guardrig.ID("next")))
		err := acting{Rig: r, publish: func() error {
			r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) })
			return nil
		}}.PublishTo("next")
		if r.Refused(err, codes.Aborted); r.State("next") != fence.Leaving {
			t.Errorf("the ledger says %q", r.State("next"))
		}
	})
	for name, tt := range map[string]struct {
		at      string
		refusal error
	}{
		"a first publish that is refused":     {"before:cut", guardrig.ErrThrottled},
		"a first publish that takes too long": {"before:cut", tookTooLong},
		"one before which a process stood":    {"before:publish", guardrig.ErrThrottled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := neverAttached(t)
				r.Sealing()
				r.Attachment("a", time.Time{})
				r.PublishErr = tt.refusal
				meanwhile(t, tt.at, func() { time.Sleep(31 * time.Second); called(r, "id-a")() })
				err := r.PublishTo("a")
				if e := r.Ledger().Get("id-a"); err == nil || e == nil || e.State != fence.Publishing || e.OnlyUnder != "" {
					t.Errorf("%v, and the ledger says %+v", err, e)
				}
			})
		})
	}
}

// It is judged again between the two as well.
func TestAMachineIsNotUnpublishedByItsSecondIDByAJudgementOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renamedByItsDriver(t)
		r.Attachment("a", guardrig.Now)
		d := slow{r, func() {
			r.Must(byAnother(r, func() error { return r.UnpublishFrom("uuid-a") }))
			r.Stripped("a")
			r.AttachmentWith("a", "uuid-a", time.Time{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := guard.New(r.Guard.Options).ControllerPublishVolume(ctx, guardrig.PublishOf(guardrig.Handle, "uuid-a"), r)
			r.Must(err)
			r.SaysAttached("a")
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		r.Look()
		_, err := r.Guard.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: "uuid-a"}, &d)
		r.Refused(err, codes.FailedPrecondition, "["+string(fence.HolderWanted)+"]")
		r.Called("unpublish id-a", "unpublish id-a", "unpublish uuid-a", "publish uuid-a")
	})
}

// slow is a driver whose first unpublish takes long, and does something meanwhile.
type slow struct {
	*guardrig.Rig
	meanwhile func()
}

func (d *slow) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	resp, err := d.Rig.Unpublish(ctx, req)
	if f := d.meanwhile; f != nil {
		d.meanwhile = nil
		time.Sleep(31 * time.Second)
		f()
	}
	return resp, err
}
