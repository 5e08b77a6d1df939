package sidecar

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// What a vendor writes by hand is held to what a configuration file is held to: a
// node is not fenced before Kubernetes itself takes it for NotReady.
func TestAConfigurationThatNoFileCouldHaveIsRefused(t *testing.T) {
	conn, err := grpc.NewClient("unix:///nowhere.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hasty := config.Default()
	hasty.Failover.Enabled, hasty.Fencing.FenceAfter.Duration = true, 5*time.Second
	_, _, err = New(t.Context(), Options{Conn: conn, Rest: &rest.Config{Host: "http://127.0.0.1:1"}, Config: hasty})
	if err == nil || !strings.Contains(err.Error(), "fencing.fenceAfter") {
		t.Errorf("error %v", err)
	}
	among := config.Default()
	among.Fencing.Namespace = "kube-system"
	over, cancel := context.WithCancel(t.Context())
	cancel() // it would wait for the API server otherwise
	_, _, err = New(over, Options{Conn: conn, Rest: &rest.Config{Host: "http://127.0.0.1:1"}, Config: among})
	if err == nil || !strings.Contains(err.Error(), "fencing.namespace") {
		t.Errorf("records among the Leases of others: error %v", err)
	}
}

// Fence agents that a vendor brings are agents, whatever the configuration names.
func TestAgentsFromOutsideAreAgents(t *testing.T) {
	conn, err := grpc.NewClient("unix:///nowhere.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := config.Default()
	c.Failover.Enabled, c.Fencing.FenceAfter.Duration = true, time.Minute
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, given := range []struct {
		levels agent.Levels
		says   string
	}{
		{nil, "fencing.fenceAfter"}, {agent.Levels{}, "fencing.fenceAfter"}, {agent.Levels{{{}}}, "the identity of the cluster"},
	} {
		_, _, err := New(over, Options{Conn: conn, Rest: &rest.Config{Host: "http://127.0.0.1:1"}, Config: c, Levels: given.levels})
		if err == nil || !strings.Contains(err.Error(), given.says) {
			t.Errorf("%d levels: error %v, want one about %s", len(given.levels), err, given.says)
		}
	}
}

// What fences waits behind no call: each client has a limit of its own.
func TestARateLimiterOfTheCallersIsNotShared(t *testing.T) {
	given := &rest.Config{RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	o := Options{Rest: given}.withDefaults()
	if o.Rest.RateLimiter != nil || given.RateLimiter == nil {
		t.Error("it is used, or taken from its owner")
	}
	if o.Rest.QPS != defaultQPS || o.Rest.Burst != defaultBurst || o.Config == nil || o.Metrics == nil || o.Board == nil || o.Rejudged <= 0 || o.Timeout <= 0 {
		t.Errorf("left out: %+v", o)
	}
	if o := (Options{Rest: &rest.Config{QPS: -1}}).withDefaults(); o.Rest.QPS != -1 {
		t.Errorf("no bound became %v", o.Rest.QPS)
	}
}
