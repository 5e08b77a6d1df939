package simulate

import (
	"context"
	"net"
	"reflect"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// whole is what tier 2 has in the place of memory: an API server behind HTTP.
type whole struct{ server *apiserver.Server }

func newWhole() *whole {
	s := apiserver.New(apiserver.Options{})
	if _, err := apiserver.Change(s, "", metav1.NamespaceSystem, func(n *corev1.Namespace) { n.UID = ClusterUID }); err != nil {
		panic(err) // every server has it
	}
	// That of the nodes' records, which the installation makes: without it nothing is
	// fenced.
	apiserver.Put(s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: DefaultSetup().Configuration().Fencing.Namespace}})
	return &whole{server: s}
}

func (h *whole) objects() Objects {
	return Objects{Nodes: served[*corev1.Node]{h.server}, Leases: served[*coordinationv1.Lease]{h.server}, Volumes: served[*corev1.PersistentVolume]{h.server},
		Attachments: served[*storagev1.VolumeAttachment]{h.server}, CSINodes: served[*storagev1.CSINode]{h.server}}
}

// served is a Table of the API server.
type served[T apiserver.Object] struct{ s *apiserver.Server }

func split(name string) (namespace, rest string) {
	if ns, name, ok := strings.Cut(name, "/"); ok {
		return ns, name
	}
	return "", name
}

func (t served[T]) Get(name string) (T, bool) {
	ns, name := split(name)
	return apiserver.Find[T](t.s, ns, name)
}

func (t served[T]) List() []T { return apiserver.FindAll[T](t.s, "") }

func (t served[T]) Put(o T) {
	ns, name := o.GetNamespace(), o.GetName()
	if _, there := apiserver.Find[T](t.s, ns, name); !there {
		apiserver.Put(t.s, o)
		return
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		t.remove(ns, name)
		return
	}
	_, _ = apiserver.Change(t.s, ns, name, func(now T) {
		rv := now.GetResourceVersion()
		reflect.ValueOf(now).Elem().Set(reflect.ValueOf(o).Elem())
		now.SetResourceVersion(rv)
	})
}

func (t served[T]) Delete(name string) { t.remove(split(name)) }

// remove takes it away whatever its finalizers; what is gone already is gone.
func (t served[T]) remove(ns, name string) {
	_, _ = apiserver.Change(t.s, ns, name, func(o T) { o.SetFinalizers(nil) })
	_ = apiserver.Remove[T](t.s, ns, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
}

// gate is a process's way to the API server in tier 2.
type gate struct{ p *Process }

var kindWords = map[string]string{"nodes": "node", "persistentvolumes": "pv", "volumeattachments": "va", "csinodes": "csinode", "pods": "pod", "persistentvolumeclaims": "pvc"}

// Failover counts what failover's loop asked for, and was not refused on the way.
type Failover struct {
	// Fences are orders to a fence agent to take the power from a machine; Tainted, the writes of a
	// Node, which are its taint put on, changed or taken off, and its notes; Pods, those that it
	// deleted.
	Fences, Tainted, Pods int
}

func (f *Failover) add(o Failover) {
	f.Fences += o.Fences
	f.Tainted += o.Tainted
	f.Pods += o.Pods
}

// noteFailover counts what a process of tier 2 does to machines, Nodes and pods:
// nobody but failover's loop does any of it there.
func (w *World) noteFailover(action string) {
	if w.whole == nil {
		return
	}
	switch action {
	case "off":
		w.Stats.Failover.Fences++
	case "patch:node":
		w.Stats.Failover.Tainted++
	case "delete:pod":
		w.Stats.Failover.Pods++
	}
}

// key of a request as a script names it; ours: a scheduler decides about it.
// What only makes noise (Events, the probe of the API server, watches) is served
// at once.
func (g gate) key(r apiserver.Request) (key string, ours bool) {
	kind, name := kindWords[r.Resource], r.Name
	switch {
	case r.Resource == "leases" && r.Namespace == corev1.NamespaceNodeLease:
		kind = "lease"
	case r.Resource == "leases":
		kind = "record"
	case r.Resource == "volumeattachments":
		name = g.p.w.attachmentLabel(name)
	case kind == "":
		return "", false
	}
	if r.Verb == apiserver.Watch {
		return "", false
	}
	verb := string(r.Verb)
	if r.Verb == apiserver.Update {
		verb = "put"
	}
	if name == "" {
		return verb + ":" + kind, true
	}
	return verb + ":" + kind + "/" + name, true
}

func (g gate) Admit(ctx context.Context, r apiserver.Request) apiserver.Fate {
	p := g.p
	p.w.mu.Lock()
	cut, dead, up := p.noAPI, p.dead || p.w.over, p.side != nil
	key, ours := g.key(r)
	p.w.mu.Unlock()
	if dead || cut && !ours {
		return apiserver.Fate{How: apiserver.Fail, Err: apiserver.Refused}
	}
	if !ours || !up {
		return apiserver.Fate{} // a process that starts reads a lot
	}
	value, err := p.park(ctx, toAPI, key, r.Verb.Writes(), func() (any, error) {
		p.w.noteFailover(string(r.Verb) + ":" + kindWords[r.Resource])
		return apiserver.Fate{}, nil
	})
	switch {
	case err == errLost:
		return apiserver.Fate{How: apiserver.Lose, Err: apiserver.ErrBroken}
	case err != nil:
		return apiserver.Fate{How: apiserver.Fail, Err: apiserver.Refused}
	}
	return value.(apiserver.Fate)
}

var kindStalls = map[string]string{"nodes": StallNodes, "volumeattachments": StallVAs, "csinodes": StallCSI, "leases": StallLease, "persistentvolumes": StallPVs}

// Deliver holds the events of a watch back while its cache stalls or the process
// does not reach the API server.
func (g gate) Deliver(ctx context.Context, e apiserver.Event) apiserver.Passage {
	p := g.p
	for {
		p.w.mu.Lock()
		held := !p.dead && !p.w.over && (p.noAPI || p.stalled[kindStalls[e.Watch.Resource]])
		moved := p.moved
		p.w.mu.Unlock()
		if !held {
			return apiserver.Passage{}
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return apiserver.Passage{Cut: true}
		}
	}
}

// restOf is the rest.Config of a process in tier 2.
func (h *whole) restOf(p *Process) *rest.Config {
	c := &rest.Config{Host: "http://simulated", Transport: h.server.Transport(p.name, gate{p}), QPS: 50, Burst: 100}
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// wire is a driver of tier 2 on an in-memory listener: real gRPC, for one process.
type wire struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	p *Process
}

func (d *wire) ask(ctx context.Context, method string, req any) (any, error) {
	return d.p.w.drive(context.WithValue(ctx, processKey{}, d.p), method, req)
}

func (d *wire) GetPluginInfo(ctx context.Context, r *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return askAs[*spec.GetPluginInfoResponse](ctx, d, r)
}

func (d *wire) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}

func (d *wire) ControllerGetCapabilities(ctx context.Context, r *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	return askAs[*spec.ControllerGetCapabilitiesResponse](ctx, d, r)
}

func (d *wire) ControllerGetVolume(ctx context.Context, r *spec.ControllerGetVolumeRequest) (*spec.ControllerGetVolumeResponse, error) {
	return askAs[*spec.ControllerGetVolumeResponse](ctx, d, r)
}

func (d *wire) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return askAs[*spec.ControllerPublishVolumeResponse](ctx, d, r)
}

func (d *wire) ControllerUnpublishVolume(ctx context.Context, r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return askAs[*spec.ControllerUnpublishVolumeResponse](ctx, d, r)
}

func askAs[T any](ctx context.Context, d *wire, r any) (T, error) {
	answer, err := d.ask(ctx, "", r)
	if err != nil {
		var none T
		return none, err
	}
	out, ok := answer.(T)
	if !ok {
		return out, status.Errorf(codes.Internal, "simulate: %T is not the answer", answer)
	}
	return out, nil
}

// driverWire serves the driver to one process, until its ctx ends, and connects.
func (w *World) driverWire(p *Process) (*grpc.ClientConn, error) {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	d := &wire{p: p}
	spec.RegisterIdentityServer(server, d)
	spec.RegisterControllerServer(server, d)
	w.work.Go(func() { _ = server.Serve(listener) })
	conn, err := DialListener(listener)
	if err != nil {
		server.Stop()
		return nil, err
	}
	context.AfterFunc(p.ctx, func() {
		conn.Close()
		server.Stop()
	})
	return conn, nil
}

// DialListener connects to an in-memory listener.
func DialListener(l *bufconn.Listener) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
}

// podObject is the pod of a volume as failover finds it.
func podObject(v *volume) *corev1.Pod {
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "pod-" + v.name}}
	o.Spec.NodeName = v.pod.node.name
	o.Spec.Containers = []corev1.Container{{Name: "c", Image: "c"}}
	o.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.name}}}}
	o.Status.Phase = corev1.PodRunning
	return o
}

// mirrorPod has the API server show what became of the pod of a volume.
func (w *World) mirrorPod(v *volume) {
	if w.whole == nil {
		return
	}
	pods := served[*corev1.Pod]{w.whole.server}
	name := metav1.NamespaceDefault + "/pod-" + v.name
	o, there := pods.Get(name)
	switch {
	case v.pod.node == nil:
		if there {
			pods.Delete(name)
		}
	case !there || o.Spec.NodeName != v.pod.node.name:
		if there {
			pods.Delete(name)
		}
		pods.Put(podObject(v))
	case v.pod.terminating && o.DeletionTimestamp == nil:
		_ = apiserver.Remove[*corev1.Pod](w.whole.server, metav1.NamespaceDefault, o.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(30))})
	}
}

// followPods sees the pods that failover has deleted.
func (w *World) followPods() {
	if w.whole == nil {
		return
	}
	for _, v := range w.volumes {
		if v.pod.node == nil {
			continue
		}
		if _, there := apiserver.Find[*corev1.Pod](w.whole.server, metav1.NamespaceDefault, "pod-"+v.name); !there {
			v.pod = pod{}
		}
	}
}

// claims makes the claims of the volumes.
func (w *World) claims() {
	for _, v := range w.volumes {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: v.name}}
		c.Spec.VolumeName = v.name
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		apiserver.Put(w.whole.server, c)
	}
}
