package sidecar

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// reads is an agent that reads every machine so.
type reads struct {
	agent.Agent
	state agent.State
}

func (r reads) Name() string         { return "bmc" }
func (r reads) Proves() fence.Kind   { return fence.PowerReading }
func (r reads) Covers(string) bool   { return true }
func (r reads) levels() agent.Levels { return agent.Levels{{{Agent: r, Timeout: time.Second}}} }
func (r reads) Status(context.Context, agent.Machine) (agent.Reading, error) {
	return agent.Reading{State: r.state}, nil
}

// apartOf is the fencing of a sidecar that has no agents for power.
func apartOf(t *testing.T, client kubernetes.Interface, records *record.Store, answered func(string)) (*fencing, Options) {
	t.Helper()
	c := config.Default()
	c.Fencing.Apart, c.Evidence.NetworkFence = true, false
	in := Options{Rest: &rest.Config{}, Driver: "other.example.com", Config: c, Host: "s"}.withDefaults()
	f, err := newFencing(t.Context(), in, client, records, answered)
	if err != nil {
		t.Fatal(err)
	}
	return f, in
}

// A sidecar with agents in its pod answers others' sidecars that have none.
func TestASidecarApartIsAnsweredByOneThatHasAgents(t *testing.T) {
	server := apiserver.New(apiserver.Options{})
	for _, ns := range []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, config.Default().Fencing.Namespace} {
		apiserver.Put(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.NodeInfo.BootID = "b1"
	apiserver.Put(server, n)
	apiserver.Put(server, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1"}})
	dir, err := os.MkdirTemp("", "apart") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	a := array.New(array.Options{})
	t.Cleanup(func() { a.Close(); os.RemoveAll(dir) })
	socket := filepath.Join(dir, "csi.sock")
	if err := a.Serve(t.Context(), socket); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, background, err := New(ctx, Options{Conn: conn, Rest: server.Config("failover", nil), Levels: reads{state: agent.On}.levels(), Host: "f"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); KeepRunning(ctx, background) }()
	defer func() { cancel(); <-ended }()

	client := kubernetes.NewForConfigOrDie(server.Config("sidecar", nil))
	node, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 10)
	f, _ := apartOf(t, client, record.NewStore(client.CoordinationV1(), config.Default().Fencing.Namespace), func(node string) { told <- node })
	limited, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	answer, err := f.asker().Ask(limited, fencer.Target{Node: "n1", UID: string(node.UID), BootID: "b1", LeaseRV: lease.ResourceVersion})
	if err != nil || answer.State != agent.On || strings.Join(answer.On, "") != "bmc" {
		t.Fatalf("%+v, %v", answer, err)
	}
	if node := <-told; node != "n1" {
		t.Errorf("what waits for %q is woken", node)
	}
	// What is asked once it answers is seen by its watch.
	if answer, err := f.asker().Ask(limited, fencer.Target{Node: "n1", UID: string(node.UID), BootID: "b2", LeaseRV: lease.ResourceVersion}); err != nil || answer.State != agent.Unclear {
		t.Errorf("of another boot: %+v, %v", answer, err)
	}
}

func TestWhoAnswersAndWhoAsks(t *testing.T) {
	f, in := apartOf(t, fake.NewClientset(), &record.Store{}, func(string) {})
	if _, is := f.asker().(*fencer.Apart); !is || f.answerer() != nil || !f.asker().AsksPower("n1") || f.fencer.AsksPower("n1") {
		t.Error("a sidecar apart does not ask, or answers, or goes by the record alone")
	}
	in.Levels = reads{}.levels()
	if _, err := newFencing(t.Context(), in, fake.NewClientset(), &record.Store{}, func(string) {}); err == nil || !strings.Contains(err.Error(), "fencing.apart") {
		t.Errorf("apart, with an agent for power: %v", err)
	}
	for mode, want := range map[config.Mode]bool{config.Enforce: true, config.Observe: false} {
		c := config.Default()
		c.Mode, c.Evidence.NetworkFence, in.Config = mode, false, c
		f, err := newFencing(t.Context(), in, fake.NewClientset(), &record.Store{}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, is := f.asker().(*fencer.Fencer); !is || (f.answerer() != nil) != want || !f.asker().AsksPower("n1") {
			t.Errorf("%s: it does not ask its own, or answers otherwise than %t", mode, want)
		}
	}
}
