package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// bindingsOf answers for the ClusterRoleBindings, which the modelled API server does not have.
type bindingsOf struct {
	http.RoundTripper
	mu      sync.Mutex
	names   []string
	refuses bool
}

func (b *bindingsOf) set(names ...string) { b.mu.Lock(); b.names = names; b.mu.Unlock() }

func (b *bindingsOf) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/clusterrolebindings") {
		return b.RoundTripper.RoundTrip(r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list := rbacv1.ClusterRoleBindingList{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBindingList"}}
	for _, name := range append(b.names, "cluster-admin", deploy.EnforcingPrefix, deploy.EnforcingPrefix+"No Name") {
		list.Items = append(list.Items, rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	text, err := json.Marshal(list)
	code := http.StatusOK
	if b.refuses {
		code = http.StatusInternalServerError
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
}

// plug is the power switch of each node.
type plug struct {
	mu  sync.Mutex
	off map[string]bool
}

func (*plug) Name() string           { return "plug" }
func (*plug) Proves() fence.Kind     { return fence.PowerReading }
func (*plug) Covers(string) bool     { return true }
func (p *plug) is(n string) bool     { p.mu.Lock(); defer p.mu.Unlock(); return p.off[n] }
func (p *plug) put(n string, b bool) { p.mu.Lock(); defer p.mu.Unlock(); p.off[n] = b }
func (p *plug) Status(_ context.Context, m agent.Machine) (agent.Reading, error) {
	if p.is(m.Node) {
		return agent.Reading{State: agent.Off}, nil
	}
	return agent.Reading{State: agent.On}, nil
}
func (p *plug) Off(_ context.Context, m agent.Machine) (string, error) {
	p.put(m.Node, true)
	return "", nil
}
func (p *plug) On(_ context.Context, m agent.Machine) (string, error) {
	p.put(m.Node, false)
	return "", nil
}

// apartWorld is three nodes, n1 with a volume of each of two drivers, and failover apart.
type apartWorld struct {
	*testing.T
	client   kubernetes.Interface
	bindings *bindingsOf
	plug     plug
	apart    *Apart
	dead     sync.Map
}

// apartly plays a test of failover apart, by a clock of its own.
func apartly(t *testing.T, drivers []string, test func(w *apartWorld)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		server := apiserver.New(apiserver.Options{})
		for _, name := range []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, "csi-fencepost", "default"} {
			apiserver.Put(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		w := &apartWorld{T: t, client: kubernetes.NewForConfigOrDie(server.Config("test", nil)), bindings: &bindingsOf{}, plug: plug{off: map[string]bool{}}}
		for _, n := range []string{"n1", "n2", "n3"} {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID("uid-" + n)}}
			node.Status.NodeInfo.BootID = "boot-1"
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			apiserver.Put(server, node)
			apiserver.Put(server, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n, Namespace: corev1.NamespaceNodeLease}})
		}
		apiserver.Put(server, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "b.example", NodeID: "i-1"}, {Name: "c.example", NodeID: "x"}}}})
		for _, d := range []string{"a.example", "b.example"} {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + d}}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: d, VolumeHandle: "h"}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: d}
			apiserver.Put(server, pv)
			apiserver.Put(server, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: d}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv.Name}})
			apiserver.Put(server, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName("h", d, "n1")},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: d, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}})
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: d}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: d}}}}
			apiserver.Put(server, pod)
		}
		go w.beat(ctx)
		api := server.Config("failover", nil)
		api.Wrap(func(next http.RoundTripper) http.RoundTripper { w.bindings.RoundTripper = next; return w.bindings })
		w.begin(ctx, api, drivers)
		test(w)
	})
}

func (w *apartWorld) begin(ctx context.Context, api *rest.Config, drivers []string) {
	c := config.Default()
	c.Failover.Enabled, c.Fencing.FenceAfter.Duration = true, 50*time.Second
	var err error
	w.apart, err = NewApart(ctx, ApartOptions{Rest: api, Config: c, Drivers: drivers, Host: "h", Levels: agent.Levels{{{Agent: &w.plug, Timeout: time.Second, Attempts: 1}}}})
	if err != nil {
		w.Fatal(err)
	}
	go KeepRunning(ctx, w.apart.Run)
}

// beat renews the leases of the nodes that live.
func (w *apartWorld) beat(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range []string{"n1", "n2", "n3"} {
			if _, dead := w.dead.Load(n); !dead {
				_, _ = w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, n, types.MergePatchType, []byte(`{"spec":{"renewTime":"`+time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")+`"}}`), metav1.PatchOptions{})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
}

func (w *apartWorld) within(limit time.Duration, what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			w.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// watched are the drivers of the set.
func (w *apartWorld) watched() []string {
	w.apart.mu.Lock()
	defer w.apart.mu.Unlock()
	if w.apart.set == nil {
		return nil
	}
	return w.apart.set.drivers
}

func (w *apartWorld) pods() (names []string) {
	list, err := w.client.CoreV1().Pods("default").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

func (w *apartWorld) tainted() bool {
	n, err := w.client.CoreV1().Nodes().Get(w.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return slices.ContainsFunc(n.Spec.Taints, evidence.IsOurTaint)
}

// reboots has n1 back in another boot.
func (w *apartWorld) reboots() {
	n, err := w.client.CoreV1().Nodes().Get(w.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	n.Status.NodeInfo.BootID = "boot-2"
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(w.Context(), n, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.plug.put("n1", false)
	w.dead.Delete("n1")
}

func bindings(drivers ...string) (names []string) {
	for _, d := range drivers {
		names = append(names, deploy.EnforcingPrefix+d)
	}
	return names
}

func TestOneProcessMovesThePodsOfAllDriversThatGuard(t *testing.T) {
	apartly(t, nil, func(w *apartWorld) {
		w.within(10*time.Second, "it says that there is nothing to do", func() bool { return w.apart.ready() == nil })
		if got := w.watched(); got != nil {
			t.Fatalf("watched before any driver guards: %v", got)
		}
		w.bindings.set(bindings("b.example", "a.example")...)
		w.within(10*time.Second, "both drivers are watched", func() bool { return slices.Equal(w.watched(), []string{"a.example", "b.example"}) })
		if ids := w.apart.nodeIDs("n1"); len(ids) != 1 || ids[0] != (noderecord.Identifier{Kind: noderecord.NodeID("b.example"), Value: "i-1"}) {
			t.Errorf("the drivers call n1 %+v", ids)
		}
		for _, m := range w.apart.machines() {
			if m.NodeID != "" || m.NodeUID != "uid-"+m.NodeName {
				t.Errorf("a machine of no driver: %+v", m)
			}
		}
		time.Sleep(time.Minute)
		w.dead.Store("n1", true)
		w.within(2*time.Minute, "the pods of both are gone", func() bool { return len(w.pods()) == 0 })
		if !w.plug.is("n1") || w.plug.is("n2") || w.plug.is("n3") || !w.tainted() {
			t.Errorf("off: %v; tainted: %v", w.plug.off, w.tainted())
		}
		// The drivers are gone before the node is back: who takes the taint off?
		w.bindings.set()
		time.Sleep(3 * time.Minute)
		if got := w.watched(); len(got) != 2 {
			t.Fatalf("under our taint, drivers %v are watched", got)
		}
		w.reboots()
		w.within(time.Minute, "the taint is off again", func() bool { return !w.tainted() })
		w.within(3*time.Minute, "nothing is watched any more", func() bool { return w.watched() == nil })
	})
}

func TestOnlyTheDriversThatAreNamedAreMoved(t *testing.T) {
	apartly(t, []string{"b.example"}, func(w *apartWorld) {
		w.bindings.set(bindings("a.example")...)
		w.within(10*time.Second, "it is watched", func() bool { return slices.Equal(w.watched(), []string{"b.example"}) })
		time.Sleep(time.Minute)
		w.dead.Store("n1", true)
		w.within(2*time.Minute, "its pod is gone", func() bool { return !slices.Contains(w.pods(), "b.example") })
		if !slices.Contains(w.pods(), "a.example") {
			t.Error("so is the pod of a driver that nobody named")
		}
	})
}

// What is known goes on while the API server does not say which drivers guard.
func TestDriversGoOnBeingWatchedWhileTheyCannotBeListed(t *testing.T) {
	apartly(t, nil, func(w *apartWorld) {
		w.bindings.set(bindings("a.example")...)
		w.within(10*time.Second, "it is watched", func() bool { return len(w.watched()) == 1 })
		w.bindings.mu.Lock()
		w.bindings.refuses, w.bindings.names = true, nil
		w.bindings.mu.Unlock()
		time.Sleep(5 * time.Minute)
		if len(w.watched()) != 1 || w.apart.ready() != nil {
			t.Errorf("watched: %v, ready: %v", w.watched(), w.apart.ready())
		}
	})
}
