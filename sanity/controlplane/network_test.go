package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestAPartitionedKubeletWorksOnUnheardUntilThePartitionHeals(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	n, err := c.AddNode(t.Context(), "n1", NodeOptions{Network: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call does nothing
		if err := n.Partition(); err != nil {
			t.Fatal(err)
		}
	}
	silent, before := leaseOf(t, n), len(logOf(t, n))
	time.Sleep(23 * time.Second) // a kubelet renews every 10 s
	if leaseOf(t, n) != silent {
		t.Error("a partitioned kubelet renewed its lease")
	}
	said := logOf(t, n)[before:]
	if !strings.Contains(said, "Failed to update lease") {
		t.Errorf("a partitioned kubelet does not work on; it says: %s", said)
	}
	if strings.Contains(said, "connection refused") || strings.Contains(said, "connection reset") {
		t.Errorf("a partitioned kubelet was told that nobody is there: %s", said)
	}
	if !answers(t, n) {
		t.Error("a partitioned node's container runtime does not answer")
	}
	if err := n.Heal(); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	eventually(t, time.Minute, "the lease is renewed", func() (bool, string) { return leaseOf(t, n) != silent, silent })
	t.Logf("the lease was renewed %s after the partition healed", time.Since(healed))

	network := n.network
	if !exists(t, network) {
		t.Error("the node's network is not there")
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if exists(t, network) {
		t.Error("the node's network outlives its cluster")
	}
}

func leaseOf(t *testing.T, n *Node) string {
	t.Helper()
	r, err := n.report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.lease
}

func logOf(t *testing.T, n *Node) string {
	t.Helper()
	text, err := os.ReadFile(n.Kubelet().LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// answers says whether the container runtime answers a call.
func answers(t *testing.T, n *Node) bool {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+n.runtimeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var version emptypb.Empty // its fields are kept, unknown
	err = conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &version)
	return err == nil && len(version.ProtoReflect().GetUnknown()) > 0
}

func exists(t *testing.T, n *network) bool {
	t.Helper()
	_, namespace := os.Stat(filepath.Join(networkFolder, n.name))
	_, cable := os.Stat(filepath.Join("/sys/class/net", n.name))
	if (namespace == nil) != (cable == nil) {
		t.Fatalf("network %s is half there: namespace %v, cable %v", n.name, namespace, cable)
	}
	return namespace == nil
}

func TestANetworkGoesWithItsOwnerAndStaysWhileThatLives(t *testing.T) {
	var networks []*network
	for range 3 {
		n, err := newNetwork("127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.remove() })
		networks = append(networks, n)
	}
	mine, orphan, ended := networks[0], networks[1], networks[2]
	if mine.name == orphan.name || mine.host == orphan.host {
		t.Fatalf("two networks are one: %s %s", mine.name, mine.host)
	}
	if err := ended.remove(); err != nil {
		t.Fatal(err)
	}
	// What the kernel does to a process that is killed: the sockets are closed.
	orphan.forward.close()
	orphan.lock.Close()
	removeOrphanNetworks()
	for n, want := range map[*network]bool{mine: true, orphan: false, ended: false} {
		if got := exists(t, n); got != want {
			t.Errorf("%s is there: %v, want %v", n.name, got, want)
		}
	}
}

func TestANodeWithoutANetworkOfItsOwnCannotBePartitioned(t *testing.T) {
	n := &Node{name: "n1"}
	for _, err := range []error{n.Partition(), n.Heal()} {
		if err == nil || !strings.Contains(err.Error(), "NodeOptions.Network") {
			t.Errorf("got %v, want an error that names NodeOptions.Network", err)
		}
	}
}
