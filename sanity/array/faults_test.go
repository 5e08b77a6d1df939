package array

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAFaultFailsSoManyTimesWithItsWords(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	fault := r.Inject(Fault{Method: Unpublish, Do: Fail, Times: 2, Code: codes.Unavailable, Message: "cannot reach VM"})
	for range 2 {
		err := r.unpublish("v", "n1")
		wantCode(t, err, codes.Unavailable)
		if status.Convert(err).Message() != "cannot reach VM" {
			t.Errorf("message: %v", err)
		}
		must(t, r.WaitAttached(r.ctx(), "v", "n1"))
	}
	must(t, r.unpublish("v", "n1"))
	must(t, r.WaitAttached(r.ctx(), "v"))
	if fault.Hits() != 2 {
		t.Errorf("hits: %d", fault.Hits())
	}
}

func TestAFaultLastsUntilItIsCleared(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	fault := r.Inject(Fault{Method: Publish, Do: Fail})
	for range 3 {
		wantCode(t, r.publish("v", "n1"), codes.Internal)
	}
	fault.Clear()
	fault.Clear()
	must(t, r.publish("v", "n1"))
}

func TestAFaultStrikesOnlyItsVolumeAndNode(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.volume("w")
	r.Inject(Fault{Method: Publish, Volume: "v", Node: "n1", Do: Fail, Code: codes.NotFound})
	must(t, r.publish("w", "n1"))
	must(t, r.publish("v", "n2"))
	must(t, r.unpublish("v", "n2"))
	wantCode(t, r.publish("v", "n1"), codes.NotFound)
	r.Inject(Fault{Method: "NodeStageVolume", Node: "n2", Do: Fail, Code: codes.Aborted})
	must(t, r.nodes["n1"].stageAs("w", single))
	wantCode(t, r.nodes["n2"].stageAs("w", single), codes.Aborted)
}

func TestAnUnpublishThatLiesLeavesTheDiskAttached(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	r.Inject(Fault{Method: Unpublish, Do: Lie})
	must(t, r.unpublish("v", "n1"))
	must(t, r.WaitAttached(r.ctx(), "v", "n1"))
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations() // nothing was taken
	r.ClearFaults()
	must(t, r.unpublish("v", "n1"))
	must(t, r.WaitAttached(r.ctx(), "v"))
}

func TestALieIsForPublishAndUnpublish(t *testing.T) {
	r := newRig(t, Options{})
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "NodeStageVolume") {
			t.Errorf("said %q", said)
		}
	}()
	r.Inject(Fault{Method: "NodeStageVolume", Do: Lie})
}

func TestAnAnswerThatGotLostHasDoneTheCall(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.Inject(Fault{Method: Publish, Do: DoThenFail, Code: codes.Unavailable})
	wantCode(t, r.publish("v", "n1"), codes.Unavailable)
	must(t, r.WaitAttached(r.ctx(), "v", "n1"))
}

func TestAnUnpublishHangsUntilTheCallerGivesUp(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	r.Inject(Fault{Method: Unpublish, Do: Hang})
	ctx, cancel := context.WithTimeout(r.ctx(), 100*time.Millisecond)
	defer cancel()
	wantCode(t, r.unpublishIn(ctx, "v", "n1"), codes.DeadlineExceeded)
	call, err := r.WaitCall(r.ctx(), "the end of the unpublish", func(c Call) bool { return c.Method == Unpublish && !c.End.IsZero() })
	must(t, err)
	if call.Code != codes.DeadlineExceeded && call.Code != codes.Canceled {
		t.Errorf("recorded as %v", call.Code)
	}
	must(t, r.WaitAttached(r.ctx(), "v", "n1"))
}

func TestAHangingUnpublishGoesOnWhenReleased(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	fault := r.Inject(Fault{Method: Unpublish, Do: Hang})
	answer := make(chan error, 1)
	go func() { answer <- r.unpublish("v", "n1") }()
	must(t, r.WaitFor(r.ctx(), "the fault to hit", func() bool { return fault.Hits() == 1 }))
	call := r.CallsOf(Unpublish, "v")[0]
	if !call.End.IsZero() {
		t.Error("a hanging call is recorded as ended")
	}
	fault.Clear()
	must(t, <-answer)
	must(t, r.WaitAttached(r.ctx(), "v"))
}

func TestAPublishThatTimedOutAttachesLater(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.Inject(Fault{Method: Publish, Do: HangThenDo, Delay: 50 * time.Millisecond, Times: 1})
	ctx, cancel := context.WithTimeout(r.ctx(), 100*time.Millisecond)
	defer cancel()
	wantCode(t, r.publishAs(ctx, "v", "n1", single), codes.DeadlineExceeded)
	if got := r.Attached("v"); len(got) > 0 {
		t.Errorf("attached to %q while the call hung", got)
	}
	must(t, r.WaitAttached(r.ctx(), "v", "n1"))
}

func TestADelayedCallWhoseCallerGaveUpIsNotDone(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.Inject(Fault{Method: Publish, Delay: time.Hour, Times: 1})
	ctx, cancel := context.WithTimeout(r.ctx(), 50*time.Millisecond)
	defer cancel()
	wantCode(t, r.publishAs(ctx, "v", "n1", single), codes.DeadlineExceeded)
	_, err := r.WaitCall(r.ctx(), "the end of the publish", func(c Call) bool { return c.Method == Publish && !c.End.IsZero() })
	must(t, err)
	if got := r.Attached("v"); len(got) > 0 {
		t.Errorf("attached to %q", got)
	}
	r.Inject(Fault{Method: Publish, Delay: 30 * time.Millisecond})
	must(t, r.publish("v", "n1"))
	if calls := r.CallsOf(Publish, "v"); calls[1].End.Sub(calls[1].Start) < 30*time.Millisecond {
		t.Errorf("no delay: %+v", calls[1])
	}
	if got := r.Attached("v"); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("attached to %q", got)
	}
}
