package kubeapi

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/pace"
)

const (
	// callTimeout is what we advise for external-attacher. With its own, of 15 s, a call that
	// hangs until others are done has ended before them on a busy machine.
	callTimeout = 60 * time.Second
	// suspectAfter is the shortest that the configuration takes.
	suspectAfter = 12 * time.Second
	// watchLag is more than a watch needs to show a change.
	watchLag = 500 * time.Millisecond

	secretKey, secretValue = "token", "s3cr3t-of-the-array"
)

// rig is a driver, a csi-fencepost in front of it, and whoever calls that.
type rig struct {
	*bed.Stage
	t      *testing.T
	proxy  spec.ControllerClient
	direct spec.ControllerClient
}

// newRig sets up a driver of that name with a csi-fencepost. The array does not
// enforce single attach unless the options say so: the guard stands alone.
func newRig(t *testing.T, name string, o bed.StageOptions) *rig {
	t.Helper()
	r := newRigWithout(t, name, o)
	r.start("fp", o.Env...)
	r.proxy = r.dial("fp")
	return r
}

// newRigWithout leaves csi-fencepost to be started.
func newRigWithout(t *testing.T, name string, o bed.StageOptions) *rig {
	t.Helper()
	return newRigOn(t, common, name, o)
}

// newRigOn is newRigWithout on that API server.
func newRigOn(t *testing.T, server *server, name string, o bed.StageOptions) *rig {
	t.Helper()
	return newRigAfter(t, func() {}, server, name, o)
}

// newRigThatAnswers is newRigOn on the server with the policies, of a driver that may vouch for what its
// agents read.
func newRigThatAnswers(t *testing.T, name string, o bed.StageOptions) *rig {
	t.Helper()
	return newRigAfter(t, func() { answering.RLock(); t.Cleanup(answering.RUnlock) }, policed, name, o)
}

func newRigAfter(t *testing.T, before func(), server *server, name string, o bed.StageOptions) *rig {
	t.Helper()
	staged.takeAfter(t, before)
	o.Nodes, o.Manual = -1, true
	if !strings.Contains(o.Config, "fencing:") {
		// Other tests' dead nodes are no storm.
		o.Config += "\nfencing: {maxUnhealthy: 100%, suspectAfter: 12s}"
	}
	change := o.Array
	o.Array = func(s *array.Switches) {
		s.EnforceSingleAttach = false
		if change != nil {
			change(s)
		}
	}
	r := &rig{t: t, Stage: server.use(t).Stage(t, name, o)}
	r.direct = r.dial("csi")
	return r
}

// in is the rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	stage := *r.Stage
	stage.T = t
	out := *r
	out.t, out.Stage = t, &stage
	return &out
}

// start starts a csi-fencepost on the socket NAME.sock. It must neither race nor
// let a secret out.
func (r *rig) start(name string, env ...string) *controlplane.Process {
	r.t.Helper()
	p := r.ExtraFencepost(name, env...)
	r.t.Cleanup(func() {
		p.Stop(5 * time.Second)
		log, err := os.ReadFile(p.LogFile())
		switch text := string(log); {
		case err != nil:
			r.t.Error(err)
		case strings.Contains(text, "DATA RACE"):
			r.t.Errorf("csi-fencepost has a data race:\n%s", text[strings.Index(text, "DATA RACE"):])
		case strings.Contains(text, secretValue):
			r.t.Error("a secret is in csi-fencepost's log")
		case r.t.Failed() && testing.Verbose():
			r.t.Logf("csi-fencepost's log:\n%s", text)
		}
	})
	return p
}

func (r *rig) dial(name string) spec.ControllerClient {
	r.t.Helper()
	conn, err := grpc.NewClient("unix:"+r.Socket(name+".sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	r.must(err)
	r.t.Cleanup(func() { conn.Close() })
	return spec.NewControllerClient(conn)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) ctx() context.Context { return r.t.Context() }

func (r *rig) records() *record.Store {
	return record.NewStore(r.Client.CoordinationV1(), "csi-fencepost")
}

// settle gives the watches the time to show what was just written.
func (r *rig) settle() { pace.Sleep(watchLag) }

// publishRequest is what external-attacher sends for a ReadWriteOnce volume.
func (r *rig) publishRequest(handle string, n *node) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: n.id, VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), Secrets: r.secrets()}
}

func (r *rig) secrets() map[string]string { return r.Options.Secrets }

func mount(mode spec.VolumeCapability_AccessMode_Mode) *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
	}
}

// publish calls csi-fencepost as external-attacher does.
func (r *rig) publish(handle string, n *node) error { return r.publishBy(r.proxy, handle, n) }

func (r *rig) publishBy(client spec.ControllerClient, handle string, n *node) error {
	ctx, cancel := context.WithTimeout(r.ctx(), callTimeout)
	defer cancel()
	_, err := client.ControllerPublishVolume(ctx, r.publishRequest(handle, n))
	return err
}

func (r *rig) unpublish(handle string, n *node) error { return r.unpublishBy(r.proxy, handle, n) }

func (r *rig) unpublishBy(client spec.ControllerClient, handle string, n *node) error {
	return r.unpublishUntil(r.ctx(), client, handle, n)
}

func (r *rig) unpublishUntil(ctx context.Context, client spec.ControllerClient, handle string, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := client.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: n.id, Secrets: r.secrets()})
	return err
}

// retry is what external-attacher does after it hung up: it calls until its first
// call, which may still be on its way out of csi-fencepost, is no longer under way.
func (r *rig) retry(call func() error) error {
	for end := time.Now().Add(callTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := call()
		if !strings.Contains(status.Convert(err).Message(), "["+string(fence.OperationPending)+"]") || time.Now().After(end) {
			return err
		}
	}
}

// wantRefused fails unless err is a refusal for that reason whose text has all
// of parts. It returns the text.
func (r *rig) wantRefused(err error, reason fence.Reason, parts ...string) string {
	r.t.Helper()
	return r.wantError(err, codes.FailedPrecondition, append(parts, "["+string(reason)+"]", "To unblock: ")...)
}

func (r *rig) wantError(err error, code codes.Code, parts ...string) string {
	r.t.Helper()
	text := status.Convert(err).Message()
	if status.Code(err) != code {
		r.t.Fatalf("the answer is %s %q, want %s with %q", status.Code(err), text, code, parts)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			r.t.Fatalf("the answer %q lacks %q", text, part)
		}
	}
	if len(text) > fence.MaxMessage {
		r.t.Fatalf("the answer has %d bytes: %s", len(text), text)
	}
	if strings.Contains(text, secretValue) {
		r.t.Fatalf("a secret is in the answer %q", text)
	}
	return text
}

// wantCalls fails unless the driver has seen exactly these publishes and
// unpublishes of the volume, in this order, each as "publish ID".
func (r *rig) wantCalls(handle string, want ...string) {
	r.t.Helper()
	if got := r.calls(handle); strings.Join(got, ", ") != strings.Join(want, ", ") {
		r.t.Fatalf("the driver was called for %s with %q, want %q", handle, got, want)
	}
}

func (r *rig) calls(handle string) []string {
	var out []string
	for _, c := range r.Array.Calls() {
		switch {
		case c.Volume != handle:
		case c.Method == array.Publish:
			out = append(out, "publish "+c.Node)
		case c.Method == array.Unpublish:
			out = append(out, "unpublish "+c.Node)
		}
	}
	return out
}

// wantAttached fails unless the array has the volume attached to exactly these.
func (r *rig) wantAttached(handle string, nodes ...*node) {
	r.t.Helper()
	want := map[string]bool{}
	for _, n := range nodes {
		want[n.id] = true
	}
	got := r.Array.Attached(handle)
	for _, id := range got {
		if !want[id] {
			r.t.Fatalf("%s is attached to %q, want only %v", handle, got, want)
		}
	}
	if len(got) != len(want) {
		r.t.Fatalf("%s is attached to %q, want %v", handle, got, want)
	}
}

// waitHit waits until an injected fault holds a call.
func (r *rig) waitHit(i *array.Injection) {
	r.t.Helper()
	r.WaitFor(10*time.Second, "the driver has the call", func() bool { return i.Hits() > 0 })
}

func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}
