package fitness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/writer"
)

// onMachine is a writer's target: the container that the array's machine n1 runs,
// whose writes the array accepts or rejects.
type onMachine struct {
	b      *bench
	node   spec.NodeClient
	volume string
	dir    string
	// hangs: its writes have no answer any more.
	hangs *atomic.Bool
}

func (m onMachine) open(s writer.Start) (writer.Target, string, error) {
	m.volume = s.VolumeID
	capability := &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	}
	ctx := context.Background()
	_, err := m.node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: m.volume, StagingTargetPath: m.dir + "/s", VolumeCapability: capability})
	if err == nil {
		_, err = m.node.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{VolumeId: m.volume, StagingTargetPath: m.dir + "/s", TargetPath: m.dir + "/t", VolumeCapability: capability})
	}
	return m, "array", err
}

// Write is the machine's next write.
func (m onMachine) Write(uint64) error {
	before := m.writes()
	for {
		if now := m.writes(); m.hangs.Load() {
			time.Sleep(time.Millisecond)
		} else if now.Accepted > before.Accepted {
			return nil
		} else if now.Rejected > before.Rejected {
			return errors.New("input/output error")
		}
		time.Sleep(time.Millisecond)
	}
}

func (m onMachine) writes() array.NodeWrites {
	for _, w := range m.b.Writes(m.volume) {
		if w.Node == "n1" {
			return w
		}
	}
	return array.NodeWrites{}
}

func (m onMachine) Close() error {
	ctx := context.Background()
	_, err := m.node.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: m.volume, TargetPath: m.dir + "/t"})
	_, err2 := m.node.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: m.volume, StagingTargetPath: m.dir + "/s"})
	return errors.Join(err, err2)
}

// startWriter serves a writer on the machine n1, and returns its address.
func (b *bench) startWriter(t *testing.T, hangs *atomic.Bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	m := onMachine{b: b, node: b.node, dir: t.TempDir(), hangs: hangs}
	go func() { defer close(done); writer.Listen(ctx, listener, m.open) }()
	t.Cleanup(func() { hangs.Store(false); stop(); <-done })
	return listener.Addr().String()
}

// The array is the judge: it grants the open session, or it does not.
func TestOnlyAClientThatIsCutOffIsCalledRevoked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*array.Switches)
		hook   func(b *bench, hangs *atomic.Bool) hook
		answer Answer
		says   string
	}{
		"access is revoked":           {answer: Yes, says: `they fail with "input/output error"`},
		"the client holds on":         {change: func(s *array.Switches) { s.ClientHoldsOn = true }, answer: No, says: "which began after the answer of the unpublish, succeeded"},
		"unpublish is slow":           {change: func(s *array.Switches) { s.UnpublishTakes = 50 * time.Millisecond }, answer: Yes},
		"unpublish does nothing":      {hook: lyingUnpublish, answer: No, says: "succeeded"},
		"the writes hang":             {hook: hanging, answer: Unknown, says: "may still land"},
		"a publish elsewhere revives": {hook: reviving, answer: No, says: "after the publish to n2, succeeded"},
		"unpublish is refused":        {hook: refusingUnpublish, answer: No, says: "FAILED_PRECONDITION"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, array.Options{})
			if c.change != nil {
				b.Set(c.change)
			}
			var hangs atomic.Bool
			config := b.config()
			config.WriterAddress, config.Watch = b.startWriter(t, &hangs), 1500*time.Millisecond
			s := &Suite{config: &config, progress: testLog{t}}
			must(t, s.prepare(t.Context(), testLog{t}))
			if c.hook != nil {
				b.set(c.hook(b, &hangs))
			}
			o := s.ask(t.Context(), questionNamed(t, nameRevokes))
			if o.Answer != c.answer || !strings.Contains(o.Saw, c.says) {
				t.Errorf("%s: %s; want %s: …%s…", o.Answer, o.Saw, c.answer, c.says)
			}
			hangs.Store(false)
			b.set(nil)
			must(t, s.cleanUp(context.Background()))
			b.spotless(t)
		})
	}
}

func lyingUnpublish(*bench, *atomic.Bool) hook {
	return func(_ context.Context, method string, _ any, next func() (any, error)) (any, error) {
		if method == array.Unpublish {
			return &spec.ControllerUnpublishVolumeResponse{}, nil
		}
		return next()
	}
}

func hanging(_ *bench, hangs *atomic.Bool) hook {
	return func(_ context.Context, method string, _ any, next func() (any, error)) (any, error) {
		if method == array.Unpublish {
			hangs.Store(true)
		}
		return next()
	}
}

// reviving gives the old node its access back when another one gets the volume.
func reviving(b *bench, _ *atomic.Bool) hook {
	return func(_ context.Context, _ string, req any, next func() (any, error)) (any, error) {
		answer, err := next()
		if r, is := req.(*spec.ControllerPublishVolumeRequest); is && r.GetNodeId() == "n2" {
			b.Attach(r.GetVolumeId(), "n1")
		}
		return answer, err
	}
}

func refusingUnpublish(*bench, *atomic.Bool) hook {
	return func(_ context.Context, method string, _ any, next func() (any, error)) (any, error) {
		if method == array.Unpublish {
			return nil, status.Error(codes.FailedPrecondition, "it is mounted")
		}
		return next()
	}
}

func questionNamed(t *testing.T, name string) question {
	t.Helper()
	for _, q := range questions {
		if q.name == name {
			return q
		}
	}
	t.Fatalf("there is no question %q", name)
	return question{}
}

func TestAWriterThatWasSeenCutOffIsTheConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	config := b.config()
	var hangs atomic.Bool
	config.WriterAddress, config.Watch = b.startWriter(t, &hangs), 250*time.Millisecond
	r := askAll(t, config)
	if r.Verdict != FitForTakeover || !strings.Contains(r.Configuration, "unpublishRevokesAccess: true") {
		t.Errorf("%s %s\n%s", r.Verdict, r.Reasons, r.Configuration)
	}
	b.spotless(t)
}

func TestAVolumeOfOthersIsTakenOnlyWhenItIsFree(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	must(t, b.CreateVolume("theirs", array.VolumeOptions{}))
	must(t, b.Attach("theirs", "n3"))
	c := b.config()
	c.VolumeHandle = "theirs"
	r := askAll(t, c)
	if r.Verdict != CannotTell || !strings.Contains(strings.Join(r.Reasons, ""), "is published to n3") {
		t.Errorf("%s: %s", r.Verdict, r.Reasons)
	}
	if !attached(b, "theirs", "n3") || len(b.CallsOf(array.Publish, ""))+len(b.CallsOf(array.Unpublish, "")) > 0 {
		t.Errorf("it was touched: it is at %s", b.Attached("theirs"))
	}
	must(t, b.Detach("theirs", "n3"))
	if r = askAll(t, c); r.Verdict != FitForTakeover || r.Volume != "theirs" {
		t.Errorf("%s: %s", r.Verdict, r.Reasons)
	}
	if calls := b.CallsOf("DeleteVolume", ""); len(calls) > 0 {
		t.Errorf("a volume that the suite did not create was deleted: %v", calls)
	}
	if at := b.Attached("theirs"); len(at) > 0 {
		t.Errorf("it was left at %s", at)
	}
}

func TestNoOtherVolumeIsEverNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	must(t, b.CreateVolume("theirs", array.VolumeOptions{}))
	must(t, b.Attach("theirs", "n1"))
	askAll(t, b.config())
	for _, c := range b.Calls() {
		if c.Volume == "theirs" {
			t.Errorf("%s of a volume that is not the suite's", c.Method)
		}
		if c.Method == array.Unpublish && c.Node == "" {
			t.Error("an unpublish from all nodes was sent")
		}
	}
}

func TestSecretsAreSentAndShownNowhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{RequireSecrets: map[string]string{"password": "hunter2"}})
	if r := askAll(t, b.config()); r.Verdict != CannotTell || !strings.Contains(strings.Join(r.Reasons, ""), "UNAUTHENTICATED") {
		t.Errorf("without them: %s, %s", r.Verdict, r.Reasons)
	}
	c := b.config()
	c.Secrets = setup.Secrets{Publish: map[string]string{"password": "hunter2"}, Unpublish: map[string]string{"password": "hunter2"}}
	log := &recorder{}
	s := &Suite{config: &c, progress: log}
	must(t, s.prepare(t.Context(), log))
	for _, q := range questions {
		s.ask(t.Context(), q)
	}
	must(t, s.cleanUp(context.Background()))
	r := s.Report()
	text, err := r.JSON()
	must(t, err)
	if r.Verdict != FitForTakeover {
		t.Errorf("with them: %s, %s", r.Verdict, r.Reasons)
	}
	if strings.Contains(log.text.String()+string(text), "hunter2") {
		t.Error("a secret is shown")
	}
}

func TestWhatIsMissingIsSaidBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no driver":     {func(c *Config) { c.Address = b.socket + ".nobody" }, "no CSI driver answers at --csi-address"},
		"one node":      {func(c *Config) { c.NodeIDs = nil }, "--node-ids is missing: a takeover needs the IDs of two nodes that exist, and the driver tells of one, n1"},
		"a wrong Check": {func(c *Config) { c.Rounds = 0 }, "--rounds is 0"},
	} {
		config := b.config()
		c.change(&config)
		r := askAll(t, config)
		if r.Verdict != CannotTell || !strings.Contains(strings.Join(r.Reasons, ""), c.says) {
			t.Errorf("%s: %s, %s", name, r.Verdict, r.Reasons)
		}
	}
	b.set(func(_ context.Context, method string, _ any, next func() (any, error)) (any, error) {
		if method == "ControllerGetCapabilities" {
			return &spec.ControllerGetCapabilitiesResponse{Capabilities: []*spec.ControllerServiceCapability{{
				Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}}}}}, nil
		}
		return next()
	})
	if r := askAll(t, b.config()); !strings.Contains(strings.Join(r.Reasons, ""), "--volume-handle") {
		t.Errorf("a driver that creates no volumes: %s", r.Reasons)
	}
	if calls := b.CallsOf("CreateVolume", ""); len(calls) > 0 {
		t.Errorf("a volume was created: %v", calls)
	}
}

func TestWhatCouldNotBeCleanedIsSaid(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	c := b.config()
	c.Timeout = 200 * time.Millisecond
	s := &Suite{config: &c, progress: testLog{t}}
	must(t, s.prepare(t.Context(), testLog{t}))
	s.ask(t.Context(), questionNamed(t, "publish again"))
	b.Inject(array.Fault{Method: array.Unpublish, Do: array.Fail, Message: "cannot reach VM"})
	err := s.cleanUp(context.Background())
	var text strings.Builder
	s.Report().Text(&text)
	for _, want := range []string{s.report.Volume + " on node n1", "cannot reach VM", "DeleteVolume answered FAILED_PRECONDITION"} {
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(text.String(), want) {
			t.Errorf("%q is not said: %v\n%s", want, err, text.String())
		}
	}
}

// The answer of CreateVolume got lost: there may be a volume that nobody knows.
func TestAVolumeWhoseCreationHadNoAnswerIsDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	b.Inject(array.Fault{Method: "CreateVolume", Do: array.DoThenFail, Times: 1})
	if r := askAll(t, b.config()); r.Verdict != CannotTell || len(r.Left) > 0 {
		t.Errorf("%s, %s", r.Verdict, r.Left)
	}
	b.spotless(t)
	if calls := b.CallsOf("DeleteVolume", ""); len(calls) != 1 {
		t.Errorf("DeleteVolume: %v", calls)
	}
}

func TestAnInterruptEndsTheQuestionAtOnceAndIsNoVerdict(t *testing.T) {
	t.Parallel()
	b := newBench(t, array.Options{})
	c := b.config()
	c.Timeout = time.Minute
	s := &Suite{config: &c, progress: testLog{t}}
	must(t, s.prepare(t.Context(), testLog{t}))
	b.Inject(array.Fault{Method: array.Publish, Do: array.Hang, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		b.WaitCall(ctx, "a publish", func(c array.Call) bool { return c.Method == array.Publish })
		cancel()
	}()
	began := time.Now()
	o := s.ask(ctx, questionNamed(t, "publish again"))
	if took := time.Since(began); took > 10*time.Second || o.Answer != Unknown {
		t.Errorf("after %s: %s, %s", took, o.Answer, o.Saw)
	}
	must(t, s.cleanUp(context.Background()))
	if r := s.Report(); r.Verdict != CannotTell || !strings.Contains(strings.Join(r.Reasons, ""), "interrupted") {
		t.Errorf("%s: %s", r.Verdict, r.Reasons)
	}
	b.spotless(t)
}

// recorder is a log that is read afterwards.
type recorder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *recorder) Printf(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }
