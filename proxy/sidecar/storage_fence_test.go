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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
)

// fencingOf makes the agents of a configuration with that csiAddons agent, whose
// driver is the reference array.
func fencingOf(t *testing.T, csiAddons string) *fencing {
	t.Helper()
	dir, err := os.MkdirTemp("", "fence") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	a := array.New(array.Options{})
	t.Cleanup(func() { a.Close(); os.RemoveAll(dir) })
	a.Set(func(s *array.Switches) { s.NetworkFence = true })
	socket := filepath.Join(dir, "csi.sock")
	if err := a.Serve(t.Context(), socket); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c, err := config.Parse([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind +
		"\nfencing: {levels: [{agents: [{name: array, csiAddons: " + csiAddons + "}]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	in := Options{Rest: &rest.Config{}, Conn: conn, Driver: a.DriverName(), Config: c, Timeout: 10 * time.Second}.withDefaults()
	f, err := newFencing(t.Context(), in, fake.NewClientset(), &record.Store{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The agent and the source of evidence NetworkFence go by the same addresses: what
// other programs cut off counts only if it is where the node reaches the storage from.
func TestDeclaredAddressesOfTheStorageNetworkReachWhoeverAsksTheDriver(t *testing.T) {
	m := agent.Machine{Node: "n1", UID: "u1", NodeID: "id1", Addresses: []string{"192.0.2.1"}}
	for _, tt := range []struct{ csiAddons, reads, fails string }{
		{"{}", "192.0.2.1/32", ""},
		{"{nodes: {n1: [10.20.0.11]}}", "10.20.0.11/32", ""},
		{"{addresses: DriverOnly}", "", "csiAddons.addresses: DriverOnly"},
	} {
		f := fencingOf(t, tt.csiAddons)
		for who, status := range map[string]func(context.Context, agent.Machine) (agent.Reading, error){
			"the agent": f.fencer.Levels[0][0].Agent.Status, "NetworkFence": f.storage.Status,
		} {
			got, err := status(t.Context(), m)
			if tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) || tt.fails == "" && err != nil || !strings.Contains(got.Detail, tt.reads) {
				t.Errorf("%s with %s: %+v, %v", who, tt.csiAddons, got, err)
			}
		}
	}
	_, err := fencingOf(t, "{allowedSubnets: [10.20.0.0/16]}").fencer.Levels[0][0].Agent.Off(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1/32 (addresses of Node n1) is outside csiAddons.allowedSubnets") {
		t.Errorf("outside the allowed subnets: %v", err)
	}
	if levels := fencingOf(t, "{nodes: {n1: [10.20.0.11]}}").fencer.Levels; !levels.Covers("n1") || levels.Covers("n2") {
		t.Error("nodes without a declared address are covered")
	}
}
