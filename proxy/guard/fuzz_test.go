package guard_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// stays fails if the volume could be taken from old, whatever was done to the
// rig, or if a refusal is too long to be stored.
func stays(r *guardrig.Rig) {
	r.T.Helper()
	for call, err := range map[string]error{"publish elsewhere": r.PublishTo("next"), "unpublish": r.UnpublishFrom(guardrig.ID("old")), "unpublish from all": r.UnpublishFrom("")} {
		if err == nil {
			r.T.Errorf("%s was let through", call)
		}
		if text := status.Convert(err).Message(); len(text) > fence.MaxMessage {
			r.T.Errorf("%s: a refusal of %d bytes: %s", call, len(text), text)
		}
	}
	r.Called()
}

// Node and VolumeAttachment say that the volume is in use; no text in the
// ledger says otherwise.
func FuzzNoLedgerOpensTheGuard(f *testing.F) {
	for _, state := range []fence.State{fence.Publishing, fence.Held, fence.Leaving, fence.Released, fence.TakenOver} {
		l := &ledger.Ledger{Version: ledger.Version, Driver: guardrig.DriverName, Handle: guardrig.Handle, Cluster: guardrig.ClusterUID, PVUID: "uid-of-pv-1",
			Holders: []ledger.Entry{{NodeID: "id-old", NodeName: "old", NodeUID: "uid-of-old", BootID: "boot-of-old", Token: "t", State: state,
				Contest: &fence.Contest{BootID: "boot-0", SeenReadySince: "x"}, Unproven: true}}}
		f.Add(l.String())
		l.Holders[0].NodeUID, l.Holders[0].From = "another", fence.FromDriver
		f.Add(l.String())
	}
	f.Add("")
	f.Add(`{"version":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := guardrig.Held(t)
		r.Annotate(text)
		stays(r)
	})
}

// Nobody's record of a node that lives and uses the volume frees it: what is
// claimed there is vetoed.
func FuzzNoRecordOpensTheGuard(f *testing.F) {
	const machine = `{"nodeID":"id-old","nodeUID":"uid-of-old","bootID":"boot-of-old"}`
	f.Add(`{"version":1,"node":"old","confirmations":[{"id":"c","by":"a","reason":"b","at":"2026-01-02T03:04:05Z","machines":[` + machine + `]}]}`)
	f.Add(`{"version":1,"node":"old","releases":[{"id":"r","volume":"vol-1","driver":"disk.example.com","nodeID":"id-old","nodeUID":"uid-of-old","bootID":"boot-of-old","life":"living","token":"t","by":"a","reason":"b","at":"2026-01-02T03:04:05Z"}]}`)
	f.Add(`{"version":1,"node":"old","taints":{"node.kubernetes.io/out-of-service":{"nodeUID":"uid-of-old","bootID":"boot-of-old","boundAt":"2026-01-02T03:04:05Z"}}}`)
	f.Add(`{"version":1,`)
	f.Fuzz(func(t *testing.T, text string) {
		r := guardrig.Held(t)
		store := record.NewStore(r.Client.CoordinationV1(), "csi-fencepost")
		records := evidence.Records{Store: store, Actor: "fuzz"}
		r.Guard.Surveyor.Sources = []evidence.Source{evidence.Confirmations(records), evidence.Releases(records), evidence.OutOfServiceTaint(records)}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: record.LeaseName("old"), Namespace: store.Namespace(),
			Annotations: map[string]string{record.Annotation: text}}}
		_, err := r.Client.CoordinationV1().Leases(store.Namespace()).Create(t.Context(), lease, metav1.CreateOptions{})
		r.Must(err)
		stays(r)
	})
}

// wire is the whole path of a call: caller, proxy, guard, driver, with sockets
// in between.
type wire struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer

	guard  atomic.Pointer[guard.Guard]
	caller *grpc.ClientConn

	mu   sync.Mutex
	seen []proto.Message // by the driver
}

func newWire(f *testing.F) *wire {
	w := &wire{}
	dir, err := os.MkdirTemp("", "wire") // short: sockets are in it
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	edge, behind := filepath.Join(dir, "edge"), filepath.Join(dir, "driver")
	socket, err := net.Listen("unix", behind)
	if err != nil {
		f.Fatal(err)
	}
	driver := grpc.NewServer()
	spec.RegisterIdentityServer(driver, w)
	spec.RegisterControllerServer(driver, w)
	go driver.Serve(socket)
	f.Cleanup(driver.Stop)
	conn, err := proxy.Dial(f.Context(), behind)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	server, err := proxy.New(proxy.Options{Listen: edge, Driver: conn, Guard: w.judge()})
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	f.Cleanup(func() { stop(); <-ended })
	<-server.Serving()
	if w.caller, err = proxy.Dial(f.Context(), edge); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { w.caller.Close() })
	return w
}

// judge is the guard of the moment.
func (w *wire) judge() proxy.Guard { return moment{w} }

type moment struct{ *wire }

func (m moment) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest, driver proxy.Driver) (*spec.ControllerPublishVolumeResponse, error) {
	return m.guard.Load().ControllerPublishVolume(ctx, req, driver)
}

func (m moment) ControllerUnpublishVolume(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest, driver proxy.Driver) (*spec.ControllerUnpublishVolumeResponse, error) {
	return m.guard.Load().ControllerUnpublishVolume(ctx, req, driver)
}

func (w *wire) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}

func (w *wire) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: guardrig.DriverName}, nil
}

func (w *wire) ControllerPublishVolume(_ context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	w.note(req)
	return nil, quoting(req.GetSecrets())
}

func (w *wire) ControllerUnpublishVolume(_ context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	w.note(req)
	return nil, quoting(req.GetSecrets())
}

// quoting is the error of a driver that quotes its secrets.
func quoting(secrets map[string]string) error {
	return status.Error(codes.Internal, fmt.Sprintf("cannot log in with %v", secrets))
}

func (w *wire) note(m proto.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, m)
}

// call sends a request's bytes as they are, and returns what the driver saw.
func (w *wire) call(ctx context.Context, method string, request []byte) ([]proto.Message, error) {
	w.mu.Lock()
	w.seen = nil
	w.mu.Unlock()
	var answer []byte
	err := w.caller.Invoke(ctx, method, request, &answer, grpc.ForceCodecV2(asItIs{}))
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, err
}

// asItIs is a codec that sends and returns bytes.
type asItIs struct{}

func (asItIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (asItIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (asItIs) Name() string { return "proto" }

// Whatever bytes stand in a request: the volume is not taken from node old, which
// uses it, no refusal is too long, and no secret comes back.
func FuzzNoRequestOpensTheGuard(f *testing.F) {
	for _, mode := range []spec.VolumeCapability_AccessMode_Mode{0, 1, 2, 3, 4, 5, 6, 7, 99} {
		for _, readonly := range []bool{false, true} {
			f.Add(true, wired(f, &spec.ControllerPublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: "id-next", Readonly: readonly,
				Secrets: map[string]string{"password": "hunter22"}, VolumeContext: map[string]string{"k": strings.Repeat("v", 1000)},
				VolumeCapability: &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode}}}))
		}
	}
	f.Add(true, wired(f, &spec.ControllerPublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: "id-next"}))
	f.Add(true, wired(f, &spec.ControllerPublishVolumeRequest{VolumeId: strings.Repeat("\u2028", 300), NodeId: strings.Repeat("n", 300), VolumeCapability: &spec.VolumeCapability{}}))
	for _, node := range []string{"id-old", "", "id-next", "id-of-nobody"} {
		f.Add(false, wired(f, &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: node, Secrets: map[string]string{"password": "hunter22"}}))
	}
	w := newWire(f)
	f.Fuzz(func(t *testing.T, publish bool, request []byte) {
		r := guardrig.Held(t)
		r.Look()
		w.guard.Store(r.Guard)
		method := spec.Controller_ControllerUnpublishVolume_FullMethodName
		if publish {
			method = spec.Controller_ControllerPublishVolume_FullMethodName
		}
		seen, err := w.call(t.Context(), method, request)
		for _, m := range seen {
			if taken(m) {
				t.Errorf("the driver saw %T %v", m, m)
			}
		}
		said := status.Convert(err).Message()
		if strings.HasPrefix(said, fence.Mark) && len(said) > fence.MaxMessage {
			t.Errorf("a refusal of %d bytes: %s", len(said), said)
		}
		for _, secret := range secretsOf(publish, request) {
			if strings.Contains(said, secret) {
				t.Errorf("%q is in the answer: %s", secret, said)
			}
		}
	})
}

func wired(f *testing.F, m proto.Message) []byte {
	f.Helper()
	request, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return request
}

// taken tells whether a request that reached the driver takes the volume from
// node old. It does not ask the code under test which modes have one writer.
func taken(m proto.Message) bool {
	switch m := m.(type) {
	case *spec.ControllerUnpublishVolumeRequest:
		return m.GetVolumeId() == guardrig.Handle && (m.GetNodeId() == "" || m.GetNodeId() == "id-old")
	case *spec.ControllerPublishVolumeRequest:
		reads := m.GetReadonly() && m.GetVolumeCapability().GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
		return m.GetVolumeId() == guardrig.Handle && m.GetNodeId() != "id-old" && !reads
	}
	return true
}

// secretsOf are the secrets that an answer must not quote. What stands elsewhere
// in the request too, or in what takes a secret's place, is no secret.
func secretsOf(publish bool, request []byte) []string {
	var req interface {
		proto.Message
		GetSecrets() map[string]string
	} = &spec.ControllerUnpublishVolumeRequest{}
	if publish {
		req = &spec.ControllerPublishVolumeRequest{}
	}
	if proto.Unmarshal(request, req) != nil {
		return nil
	}
	var secrets []string
	for _, s := range req.GetSecrets() {
		if s != "" && !strings.ContainsAny(s, "*") && !strings.Contains("stripped", s) {
			secrets = append(secrets, s)
		}
	}
	return secrets
}

// Whatever a message says: what goes on is a status, and is short enough.
func FuzzClip(f *testing.F) {
	f.Add("no such volume")
	f.Add(strings.Repeat("\u2028é", 500))
	f.Fuzz(func(t *testing.T, said string) {
		clip := guard.Clip(said)
		if len(clip) > fence.MaxMessage || !strings.HasPrefix(printable.Line(said), strings.TrimSuffix(clip, "...")) && len(clip) > 3 {
			t.Errorf("%d bytes: %q", len(clip), clip)
		}
	})
}
