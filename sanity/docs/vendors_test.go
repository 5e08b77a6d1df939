package main_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// The code of docs/vendors/embed.md. A test holds the page's blocks against this file.

// serveGuarded serves listen for external-attacher, in front of the driver's own
// socket, until ctx ends.
func serveGuarded(ctx context.Context, api *rest.Config, driver *grpc.ClientConn, listen string, own ...evidence.Source) error {
	guard, background, err := sidecar.New(ctx, sidecar.Options{Conn: driver, Rest: api, Sources: own})
	if err != nil {
		return err
	}
	// Of several replicas, only the one that leads may do this.
	go sidecar.KeepRunning(ctx, background)
	server, err := proxy.New(proxy.Options{Listen: listen, Driver: driver, Guard: guard})
	if err != nil {
		return err
	}
	return server.Serve(ctx)
}

// arraySays is a source of evidence: what the array itself knows of a client.
type arraySays struct {
	// cutOff asks the array whether it has ended every session of that client
	// and lets no new one in.
	cutOff func(ctx context.Context, nodeID string) (bool, error)
}

func (a arraySays) Name() string { return "MyArray" }

func (a arraySays) Evidence(ctx context.Context, q evidence.Question) ([]fence.Evidence, error) {
	cut, err := a.cutOff(ctx, q.Holder.NodeID)
	if err != nil || !cut {
		return nil, err // an error refuses: the attacher asks again
	}
	return []fence.Evidence{{
		Kind: fence.StorageFence, Source: a.Name(), Detail: "no session is open and none is let in",
		NodeName: q.Holder.NodeName, NodeID: q.Holder.NodeID,
		NodeUID: q.Holder.NodeUID, BootID: q.Holder.BootID, LeaseRV: q.LeaseRV,
	}}, nil
}

// outlets is a fence agent: a power strip with an interface of its own.
type outlets struct {
	byNode map[string]int
	read   func(ctx context.Context, outlet int) (on bool, err error)
	set    func(ctx context.Context, outlet int, on bool) error
}

func (o outlets) Name() string            { return "outlets" }
func (o outlets) Proves() fence.Kind      { return fence.PowerReading }
func (o outlets) Covers(node string) bool { _, ok := o.byNode[node]; return ok }

func (o outlets) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	on, err := o.read(ctx, o.byNode[m.Node])
	if err != nil {
		return agent.Reading{}, err // unclear proves nothing
	}
	if on {
		return agent.Reading{State: agent.On, Detail: "the outlet has power"}, nil
	}
	return agent.Reading{State: agent.Off, Detail: "the outlet has no power"}, nil
}

func (o outlets) Off(ctx context.Context, m agent.Machine) (string, error) {
	return "outlet switched off", o.set(ctx, o.byNode[m.Node], false)
}

func (o outlets) On(ctx context.Context, m agent.Machine) (string, error) {
	return "outlet switched on", o.set(ctx, o.byNode[m.Node], true)
}

// The judgement is a pure function, for a driver that wants nothing but that.
func Example_judge() {
	silent := fence.Holder{NodeName: "n1", NodeID: "id-1", NodeUID: "u1", BootID: "b1", State: fence.Held, Liveness: fence.Stale, LeaseRV: "7",
		Node: &fence.Node{UID: "u1", BootID: "b1", InUse: true}}
	asks := fence.Holder{NodeName: "n2", NodeID: "id-2", Node: &fence.Node{UID: "u2", BootID: "b2"}}
	snapshot := fence.Snapshot{Volume: "vol-1", PV: "pv-1", Target: &asks, Holders: []fence.Holder{silent}}
	fmt.Println(fence.JudgePublish(snapshot, "id-2").Reason)

	array := arraySays{func(context.Context, string) (bool, error) { return true, nil }}
	evidence, err := array.Evidence(context.Background(), evidence.Question{Holder: silent, Volume: "vol-1", LeaseRV: "7"})
	if err != nil {
		fmt.Println(err)
	}
	snapshot.Holders[0].Evidence = evidence
	fmt.Println(fence.JudgePublish(snapshot, "id-2").Reason)
	// Output:
	// HolderStale
	// HolderFenced
}

func Example_agent() {
	power := map[int]bool{3: true}
	strip := outlets{
		byNode: map[string]int{"n1": 3},
		read:   func(_ context.Context, outlet int) (bool, error) { return power[outlet], nil },
		set:    func(_ context.Context, outlet int, on bool) error { power[outlet] = on; return nil },
	}
	levels := agent.Levels{{{Agent: strip, Timeout: 5 * time.Second, Attempts: 2}}}
	machine := agent.Machine{Node: "n1"}
	fmt.Println(levels.Covers("n1"), levels.Covers("n2"))
	fmt.Println(levels.Ask(context.Background(), machine).State)
	// Before each off the caller makes sure that it still may.
	stillMay := func(context.Context, agent.Agent) error { return nil }
	fmt.Println(levels.Off(context.Background(), machine, stillMay).State)
	// Output:
	// true false
	// on
	// off
}
