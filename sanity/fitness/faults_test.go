package fitness

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// A fault is something that drivers do, and what the suite has to say of it.
type fault struct {
	name string
	// make puts the fault in; config changes what the suite is told.
	make    func(t *testing.T, b *bench, c *Config)
	verdict Verdict
	// question, with its answer and effect, is the one that finds it.
	question string
	answer   Answer
	effect   Effect
	// says is in what was seen, configures in the configuration.
	says       string
	configures []string
}

func switches(change func(*array.Switches)) func(*testing.T, *bench, *Config) {
	return func(_ *testing.T, b *bench, _ *Config) { b.Set(change) }
}

func inject(f array.Fault) func(*testing.T, *bench, *Config) {
	return func(_ *testing.T, b *bench, _ *Config) { b.Inject(f) }
}

// meddle makes a fault of a hook.
func meddle(h func(b *bench) hook) func(*testing.T, *bench, *Config) {
	return func(_ *testing.T, b *bench, _ *Config) { b.set(h(b)) }
}

func unlisted(s *array.Switches) {
	s.ListVolumes, s.ListPublishedNodes, s.GetVolume = false, false, false
}

var guarded = []string{"mode: Enforce", "unfenced: Refuse", "unpublishRevokesAccess: false"}

var faults = []fault{
	{name: "none", make: switches(func(*array.Switches) {}), verdict: FitForTakeover,
		question: nameListed, answer: Yes, effect: Fine, configures: []string{"unpublishRevokesAccess: false"}},
	{name: "published nodes are not listed", make: switches(unlisted), verdict: FitForTakeover,
		question: nameListed, answer: Unknown, effect: Open, says: "LIST_VOLUMES_PUBLISHED_NODES"},
	{name: "published nodes are told by ControllerGetVolume alone", verdict: FitForTakeover,
		make:     switches(func(s *array.Switches) { s.ListVolumes = false }),
		question: nameListed, answer: Yes, effect: Fine},
	{name: "publish moves the volume", make: switches(func(s *array.Switches) { s.PublishMoves = true }), verdict: FitWithSettings,
		question: "publish elsewhere", answer: No, effect: Setting, says: "moves the volume", configures: guarded},
	{name: "publish attaches to both", make: switches(func(s *array.Switches) { s.EnforceSingleAttach = false }), verdict: FitWithSettings,
		question: "publish elsewhere", answer: No, effect: Setting, says: "to both, n1 and n2", configures: guarded},
	{name: "publish moves the volume, and nobody can see it", verdict: CannotTell,
		make:     switches(func(s *array.Switches) { unlisted(s); s.PublishMoves = true }),
		question: "late unpublish", answer: Unknown, effect: Missing, says: "nobody can see"},
	{name: "unpublish answers OK and does nothing", make: inject(array.Fault{Method: array.Unpublish, Node: "n1", Do: array.Lie, Times: 1}), verdict: NotFit,
		question: nameListed, answer: No, effect: Unfit, says: "still names n1"},
	{name: "publish answers OK and does nothing", make: inject(array.Fault{Method: array.Publish, Node: "n1", Do: array.Lie}), verdict: NotFit,
		question: nameListed, answer: No, effect: Unfit, says: "names no node"},
	{name: "publish elsewhere answers OK and does nothing", make: inject(array.Fault{Method: array.Publish, Node: "n2", Do: array.Lie}), verdict: NotFit,
		question: "publish elsewhere", answer: No, effect: Unfit, says: "answers OK, and the volume is at n1"},
	{name: "unpublish of the never published fails", make: inject(array.Fault{Method: array.Unpublish, Node: "n3", Do: array.Fail}), verdict: NotFit,
		question: "unpublish, never published", answer: No, effect: Unfit, says: "INTERNAL"},
	{name: "unpublish answers NOT_FOUND where there is nothing to do", make: meddle(notFoundTwice), verdict: FitForTakeover,
		question: "unpublish twice", answer: Yes, effect: Fine, says: "NOT_FOUND"},
	{name: "the second unpublish fails", make: meddle(failTwice), verdict: NotFit,
		question: "unpublish twice", answer: No, effect: Unfit, says: "INTERNAL (it is not attached)"},
	{name: "unpublish never succeeds", make: inject(array.Fault{Method: array.Unpublish, Node: "n1", Do: array.Fail, Message: "cannot reach VM"}), verdict: NotFit,
		question: nameListed, answer: No, effect: Unfit, says: "cannot reach VM"},
	{name: "the unpublish of an unknown node fails", make: meddle(func(*bench) hook { return unknownNode(codes.Internal) }), verdict: NotFit,
		question: "unpublish, unknown node", answer: No, effect: Unfit, says: "INTERNAL"},
	{name: "a made-up node ID is malformed", make: meddle(func(*bench) hook { return unknownNode(codes.InvalidArgument) }), verdict: FitForTakeover,
		question: "unpublish, unknown node", answer: Unknown, effect: Open, says: "--unknown-node-id"},
	{name: "the unpublish of an unknown node is one of all", make: meddle(unknownIsAll), verdict: NotFit,
		question: "unpublish, unknown node", answer: No, effect: Unfit, says: "the volume is at no node, not at n1"},
	{name: "a late unpublish detaches the new node", make: meddle(lateDetachesAll), verdict: NotFit,
		question: "late unpublish", answer: No, effect: Unfit, says: "the volume is at no node, not at n2"},
	{name: "a late unpublish detaches the new node, which only a publish shows", verdict: NotFit,
		make:     func(t *testing.T, b *bench, c *Config) { b.Set(unlisted); b.set(lateDetachesAll(b)) },
		question: "late unpublish", answer: No, effect: Unfit, says: "which was refused while another node had the volume, succeeds"},
	{name: "the second publish to the same node fails", make: meddle(failAgain), verdict: NotFit,
		question: "publish again", answer: No, effect: Unfit, says: "ALREADY_EXISTS"},
	{name: "the second publish leads elsewhere", make: meddle(otherContext), verdict: FitForTakeover,
		question: "publish again", answer: No, effect: Remark, says: "another publish_context"},
	{name: "publish elsewhere answers another error", make: meddle(elsewhereInternal), verdict: FitForTakeover,
		question: "publish elsewhere", answer: No, effect: Remark, says: "INTERNAL"},
	{name: "publish elsewhere is refused, and moves the volume all the same", make: meddle(refuseAndMove), verdict: NotFit,
		question: "publish elsewhere", answer: No, effect: Unfit, says: "then the volume is at n2, not at n1"},
	{name: "published nodes are told wrongly: none", make: meddle(func(*bench) hook { return listing(func([]string) []string { return nil }) }), verdict: NotFit,
		question: nameListed, answer: No, effect: Unfit, says: "names no node"},
	{name: "published nodes are told wrongly: another", make: meddle(func(*bench) hook { return listing(func(n []string) []string { return append(n, "n7") }) }), verdict: NotFit,
		question: nameListed, answer: No, effect: Unfit, says: "before any publish it names n7"},
	{name: "published nodes are told for ever", make: meddle(remembering), verdict: NotFit,
		question: nameListed, answer: No, effect: Unfit, says: "still names n1"},
	{name: "published nodes are told late", make: meddle(lateListing), verdict: FitForTakeover,
		question: nameListed, answer: Yes, effect: Fine},
	{name: "two publishes at once both succeed", make: meddle(racing), verdict: FitWithSettings,
		question: "concurrent publishes", answer: No, effect: Setting, says: "both answer OK in", configures: guarded},
	{name: "one of two publishes at once fails, and attaches all the same", make: meddle(racingSilently), verdict: FitWithSettings,
		question: "concurrent publishes", answer: No, effect: Setting, says: "and the volume is at n1 and n2", configures: guarded},
	{name: "a pending operation answers ABORTED", make: meddle(aborting), verdict: FitForTakeover,
		question: "operation pending", answer: Yes, effect: Fine, says: "ABORTED"},
	{name: "a pending operation answers another error", make: meddle(abortingOddly), verdict: FitForTakeover,
		question: "operation pending", answer: No, effect: Remark, says: "another FAILED_PRECONDITION (busy)"},
	{name: "an abandoned publish is cancelled", make: switches(func(s *array.Switches) { s.PublishTakes = 20 * time.Millisecond }), verdict: FitForTakeover,
		question: "abandoned publish", answer: Yes, effect: Fine, says: "publishes were abandoned"},
	{name: "an abandoned publish goes on after its unpublish", make: meddle(orphaning), verdict: NotFit,
		question: "abandoned publish", answer: No, effect: Unfit, says: "the volume is attached to n1"},
	{name: "a node that is gone is unpublished", make: gone(func(b *bench) error { return nil }), verdict: FitForTakeover,
		question: "unpublish, gone node", answer: Yes, effect: Fine, says: "the volume then goes to n1"},
	{name: "a node that is gone is not found", make: gone(func(*bench) error { return status.Error(codes.NotFound, "no such VM") }), verdict: FitForTakeover,
		question: "unpublish, gone node", answer: Yes, effect: Fine},
	{name: "a node that is gone cannot be unpublished", make: gone(func(*bench) error { return status.Error(codes.Internal, "cannot reach VM") }), verdict: NotFit,
		question: "unpublish, gone node", answer: No, effect: Unfit, says: "cannot reach VM"},
	{name: "a node that was named as gone cannot be unpublished", verdict: NotFit,
		make: func(_ *testing.T, b *bench, c *Config) {
			c.GoneNodeID = "n9"
			b.Inject(array.Fault{Method: array.Unpublish, Node: "n9", Do: array.Fail, Message: "cannot reach VM"})
		},
		question: "unpublish, gone node", answer: No, effect: Unfit, says: "cannot reach VM"},
	{name: "volumes are not published at all", make: meddle(withoutPublish), verdict: NotFit,
		question: nameOffers, answer: No, effect: Unfit, says: "PUBLISH_UNPUBLISH_VOLUME"},
}

func TestEachFaultOfADriverGetsItsVerdict(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, array.Options{})
			c := b.config()
			f.make(t, b, &c)
			s := &Suite{config: &c, progress: testLog{t}}
			must(t, s.prepare(t.Context(), testLog{t}))
			for _, q := range questions {
				s.ask(t.Context(), q)
			}
			b.ClearFaults()
			b.set(nil)
			must(t, s.cleanUp(context.Background()))
			f.check(t, s.Report())
			b.spotless(t)
		})
	}
}

func (f fault) check(t *testing.T, r *Report) {
	t.Helper()
	if r.Verdict != f.verdict {
		t.Errorf("verdict %q, want %q: %s", r.Verdict, f.verdict, r.Reasons)
	}
	o := r.outcome(t, f.question)
	if o.Answer != f.answer || o.Effect != f.effect || !strings.Contains(o.Saw, f.says) {
		t.Errorf("%s: %s, %s: %s; want %s, %s: …%s…", o.Question, o.Answer, o.Effect, o.Saw, f.answer, f.effect, f.says)
	}
	if f.verdict != FitForTakeover && !strings.Contains(strings.Join(r.Reasons, "\n"), o.Saw) {
		t.Errorf("the verdict's reasons do not name it: %s", r.Reasons)
	}
	for _, line := range f.configures {
		if !strings.Contains(r.Configuration, line) {
			t.Errorf("the configuration lacks %q:\n%s", line, r.Configuration)
		}
	}
	if r.Configuration != "" {
		if _, err := config.Parse([]byte(r.Configuration)); err != nil {
			t.Errorf("the configuration is not accepted: %v", err)
		}
	}
}

func notFoundTwice(b *bench) hook {
	return notAttached(b, status.Error(codes.NotFound, "it is not attached"))
}
func failTwice(b *bench) hook {
	return notAttached(b, status.Error(codes.Internal, "it is not attached"))
}

// notAttached answers an error where there is nothing to unpublish, for nodes that
// exist.
func notAttached(b *bench, answer error) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		r, is := req.(*spec.ControllerUnpublishVolumeRequest)
		if is && r.GetNodeId() == "n1" && !attached(b, r.GetVolumeId(), r.GetNodeId()) {
			return nil, answer
		}
		return next()
	}
}

func unknownNode(code codes.Code) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		if r, is := req.(*spec.ControllerUnpublishVolumeRequest); is && len(r.GetNodeId()) > 2 {
			return nil, status.Error(code, "no such instance")
		}
		return next()
	}
}

func unknownIsAll(b *bench) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		if r, is := req.(*spec.ControllerUnpublishVolumeRequest); is && len(r.GetNodeId()) > 2 {
			r.NodeId = ""
		}
		return next()
	}
}

func lateDetachesAll(b *bench) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		r, is := req.(*spec.ControllerUnpublishVolumeRequest)
		if is && r.GetNodeId() == "n1" && attached(b, r.GetVolumeId(), "n2") {
			r.NodeId = ""
		}
		return next()
	}
}

func failAgain(b *bench) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		if r, is := req.(*spec.ControllerPublishVolumeRequest); is && attached(b, r.GetVolumeId(), r.GetNodeId()) {
			return nil, status.Error(codes.AlreadyExists, "it is published")
		}
		return next()
	}
}

func otherContext(b *bench) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		r, is := req.(*spec.ControllerPublishVolumeRequest)
		again := is && attached(b, r.GetVolumeId(), r.GetNodeId())
		answer, err := next()
		if again && err == nil {
			answer.(*spec.ControllerPublishVolumeResponse).PublishContext = map[string]string{"device": "/dev/other"}
		}
		return answer, err
	}
}

func elsewhereInternal(*bench) hook {
	return func(_ context.Context, _ string, _ any, next func() (any, error)) (any, error) {
		answer, err := next()
		if status.Code(err) == codes.FailedPrecondition {
			err = status.Error(codes.Internal, status.Convert(err).Message())
		}
		return answer, err
	}
}

func refuseAndMove(b *bench) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		r, is := req.(*spec.ControllerPublishVolumeRequest)
		answer, err := next()
		if is && status.Code(err) == codes.FailedPrecondition {
			for _, n := range b.Attached(r.GetVolumeId()) {
				b.Detach(r.GetVolumeId(), n)
			}
			b.Attach(r.GetVolumeId(), r.GetNodeId())
		}
		return answer, err
	}
}

// listing changes what the driver tells of published nodes.
func listing(change func([]string) []string) hook {
	return func(_ context.Context, _ string, _ any, next func() (any, error)) (any, error) {
		answer, err := next()
		switch a := answer.(type) {
		case *spec.ControllerGetVolumeResponse:
			if a != nil && a.Status != nil {
				a.Status.PublishedNodeIds = change(a.Status.PublishedNodeIds)
			}
		case *spec.ListVolumesResponse:
			for _, e := range a.GetEntries() {
				e.Status.PublishedNodeIds = change(e.Status.PublishedNodeIds)
			}
		}
		return answer, err
	}
}

func remembering(*bench) hook {
	var mu sync.Mutex
	var all []string
	return listing(func(now []string) []string {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range now {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
		return slices.Clone(all)
	})
}

// lateListing tells what was 100 ms ago.
func lateListing(*bench) hook {
	type saw struct {
		at    time.Time
		nodes []string
	}
	var mu sync.Mutex
	var seen []saw
	return listing(func(now []string) []string {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, saw{time.Now(), now})
		var old []string
		for _, s := range seen {
			if time.Since(s.at) >= 100*time.Millisecond {
				old = s.nodes
			}
		}
		return old
	})
}

// racing looks whether the volume is free, and attaches it some time later.
func racing(b *bench) hook { return race(b, nil) }

// racingSilently does the same, and answers n2 an error.
func racingSilently(b *bench) hook { return race(b, status.Error(codes.Internal, "lost")) }

func race(b *bench, answer error) hook {
	b.Set(func(s *array.Switches) { s.EnforceSingleAttach = false })
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		r, is := req.(*spec.ControllerPublishVolumeRequest)
		if !is {
			return next()
		}
		for _, n := range b.Attached(r.GetVolumeId()) {
			if n != r.GetNodeId() {
				return nil, status.Errorf(codes.FailedPrecondition, "it is attached to %s", n)
			}
		}
		time.Sleep(20 * time.Millisecond)
		ok, err := next()
		if answer != nil && len(b.Attached(r.GetVolumeId())) > 1 && r.GetNodeId() == "n2" {
			return nil, answer
		}
		return ok, err
	}
}

// aborting does one publish or unpublish at a time.
func aborting(*bench) hook { return oneAtATime(status.Error(codes.Aborted, "pending")) }

// abortingOddly answers another code than the specification has for it. What is
// busy once is free soon, so that the suite's own calls get through.
func abortingOddly(*bench) hook { return oneAtATime(status.Error(codes.FailedPrecondition, "busy")) }

func oneAtATime(answer error) hook {
	var busy sync.Mutex
	return func(_ context.Context, method string, _ any, next func() (any, error)) (any, error) {
		if method != array.Publish && method != array.Unpublish {
			return next()
		}
		if !busy.TryLock() {
			return nil, answer
		}
		defer busy.Unlock()
		time.Sleep(5 * time.Millisecond)
		return next()
	}
}

// orphaning goes on with a publish whose caller gave up, after a while.
func orphaning(b *bench) hook {
	return func(ctx context.Context, _ string, req any, next func() (any, error)) (any, error) {
		r, is := req.(*spec.ControllerPublishVolumeRequest)
		if !is {
			return next()
		}
		select {
		case <-time.After(30 * time.Millisecond):
			return next()
		case <-ctx.Done():
			time.AfterFunc(60*time.Millisecond, func() { b.Attach(r.GetVolumeId(), r.GetNodeId()) })
			return nil, ctx.Err()
		}
	}
}

// gone has a program that removes n3, whose unpublish then answers so.
func gone(answer func(*bench) error) func(*testing.T, *bench, *Config) {
	return func(t *testing.T, b *bench, c *Config) {
		file := filepath.Join(t.TempDir(), "gone")
		c.RemoveNodeExec = `echo "$NODE_ID" > ` + file
		b.set(func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
			r, is := req.(*spec.ControllerUnpublishVolumeRequest)
			text, err := os.ReadFile(file)
			if !is || err != nil || r.GetNodeId() != strings.TrimSpace(string(text)) {
				return next()
			}
			if slices.Contains(b.Machines(), r.GetNodeId()) {
				if err := b.RemoveMachine(r.GetNodeId()); err != nil {
					return nil, err
				}
			}
			if err := answer(b); err != nil {
				return nil, err
			}
			return next()
		})
	}
}

func withoutPublish(*bench) hook {
	return func(_ context.Context, _ string, _ any, next func() (any, error)) (any, error) {
		answer, err := next()
		if a, is := answer.(*spec.ControllerGetCapabilitiesResponse); is {
			a.Capabilities = slices.DeleteFunc(a.Capabilities, func(c *spec.ControllerServiceCapability) bool {
				return c.GetRpc().GetType() == spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
			})
		}
		return answer, err
	}
}
