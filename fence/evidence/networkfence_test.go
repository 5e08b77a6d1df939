package evidence

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// says is a driver that answers as told.
type says struct {
	reading   agent.Reading
	err       error
	clients   map[string][]string // by node ID
	addresses error
	asked     int
}

func (s *says) Addresses(_ context.Context, m agent.Machine) ([]netip.Prefix, error) {
	s.asked++
	if s.addresses != nil {
		return nil, s.addresses
	}
	if own := s.clients[m.NodeID]; own != nil {
		return hostBlocks(own), nil
	}
	if len(m.Addresses) == 0 {
		return nil, errors.New("no known address")
	}
	return hostBlocks(m.Addresses), nil
}

func (s *says) Status(context.Context, agent.Machine) (agent.Reading, error) { return s.reading, s.err }

var listed = agent.Reading{State: agent.Off, Detail: "listed"}

func nf(name string, change func(spec, status map[string]any), cidrs ...string) map[string]any {
	spec := map[string]any{"driver": driver, "fenceState": "Fenced", "cidrs": cidrs}
	status := map[string]any{"result": "Succeeded", "message": "fencing operation successful"}
	if change != nil {
		change(spec, status)
	}
	return object(name, "uid-"+name, map[string]any{"spec": spec, "status": status})
}

func newFenceWorld(t *testing.T) (*world, *customs, *says, *NetworkFence) {
	w, c, d := newWorld(t), newCustoms(t), &says{reading: listed}
	w.node.Status.Addresses = []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, {Type: v1.NodeExternalIP, Address: "2001:db8::1"}, {Type: v1.NodeHostName, Address: "n1"},
	}
	return w, c, d, NetworkFences(driver, c, d)
}

func TestANetworkFenceInForceThatTheDriverListsIsEvidence(t *testing.T) {
	w, c, _, s := newFenceWorld(t)
	c.set(networkFences, nf("a", nil, "192.0.2.1/32", "2001:db8::1/128"))
	found := w.ask(s)
	want := fence.Evidence{Kind: fence.StorageFence, Source: "NetworkFence a", Detail: "listed", NodeName: "n1", NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "70"}
	if len(found) != 1 || found[0] != want {
		t.Fatalf("evidence %+v", found)
	}
	w.expect(s, true, "")
}

// Whoever may write Nodes' status says by an address that is cut off that a node that lives is.
func TestANetworkFenceOfAnAddressThatOnlyTheNodeSaysSaysSo(t *testing.T) {
	w, c, d, s := newFenceWorld(t)
	c.set(networkFences, nf("a", nil, "192.0.2.1/32", "2001:db8::1/128"))
	d.reading.OwnWord = true
	if found := w.ask(s); len(found) != 1 || !found[0].OwnWord || found[0].Void != "" {
		t.Fatalf("evidence %+v", found)
	}
	w.expect(s, true, "") // it is silent
}

func TestANetworkFenceAloneProvesNothing(t *testing.T) {
	tests := map[string]struct {
		reading agent.Reading
		err     error
		note    string
	}{
		"not listed":      {agent.Reading{State: agent.On, Detail: "not listed"}, nil, "not listed"},
		"a part listed":   {agent.Reading{Detail: "a part"}, nil, "a part"},
		"cannot be asked": {listed, errors.New("UNAVAILABLE"), "UNAVAILABLE"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, c, d, s := newFenceWorld(t)
			c.set(networkFences, nf("a", nil, "192.0.2.1/32", "2001:db8::1/128"))
			d.reading, d.err = tt.reading, tt.err
			w.expect(s, false, "the driver's list does not confirm it: "+tt.note)
		})
	}
}

func TestOnlyAFinishedFenceOfThisDriverCounts(t *testing.T) {
	all := []string{"192.0.2.1/32", "2001:db8::1/128"}
	set := func(spec map[string]any, status map[string]any) func(map[string]any, map[string]any) {
		return func(s, st map[string]any) {
			for k, v := range spec {
				s[k] = v
			}
			for k, v := range status {
				st[k] = v
			}
		}
	}
	deleting := nf("a", nil, all...)
	deleting["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	tests := map[string]struct {
		objects []map[string]any
		note    string // "-": nothing is said, "": it counts
	}{
		"in force":             {[]map[string]any{nf("a", nil, all...)}, ""},
		"in two objects":       {[]map[string]any{nf("a", nil, all[0]), nf("b", nil, all[1])}, ""},
		"as a wider block":     {[]map[string]any{nf("a", nil, "192.0.2.0/24", all[1])}, ""},
		"of another driver":    {[]map[string]any{nf("a", set(map[string]any{"driver": "other"}, nil), all...)}, "-"},
		"of another node":      {[]map[string]any{nf("a", nil, "192.0.2.9/32")}, "-"},
		"none at all":          {nil, "-"},
		"not yet":              {[]map[string]any{nf("a", set(nil, map[string]any{"result": "", "message": ""}), all...)}, "not in force"},
		"failed":               {[]map[string]any{nf("a", set(nil, map[string]any{"result": "Failed"}), all...)}, "not in force"},
		"the last was unfence": {[]map[string]any{nf("a", set(nil, map[string]any{"message": "unfencing operation successful"}), all...)}, "not in force"},
		"unfenced":             {[]map[string]any{nf("a", set(map[string]any{"fenceState": "Unfenced"}, map[string]any{"message": "unfencing operation successful"}), all...)}, "not in force"},
		"being unfenced":       {[]map[string]any{nf("a", set(map[string]any{"fenceState": "Unfenced"}, nil), all...)}, `is being lifted: its fenceState is "Unfenced", not Fenced`},
		"another lifts it":     {[]map[string]any{nf("a", nil, all...), nf("b", set(map[string]any{"fenceState": "Unfenced"}, nil), all[1])}, "NetworkFence b is being lifted"},
		"another lifted it":    {[]map[string]any{nf("a", nil, all...), nf("b", set(map[string]any{"fenceState": "Unfenced"}, map[string]any{"message": "unfencing operation successful"}), all[1])}, ""},
		"being deleted":        {[]map[string]any{deleting}, "is being deleted"},
		"not all addresses":    {[]map[string]any{nf("a", nil, all[0])}, "no NetworkFence names the machine's address 2001:db8::1/128"},
		"garbage beside it":    {[]map[string]any{nf("a", nil, all[0], all[1], "garbage")}, ""},
		"only a part of one":   {[]map[string]any{nf("a", nil, all[0], "2001:db8::1/129")}, "no NetworkFence names"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, c, _, s := newFenceWorld(t)
			c.set(networkFences, tt.objects...)
			found := w.ask(s)
			switch {
			case tt.note == "-" && found != nil,
				tt.note == "" && (len(found) != 1 || found[0].Void != ""),
				tt.note != "-" && tt.note != "" && (len(found) != 1 || !strings.Contains(found[0].Void, tt.note)):
				t.Fatalf("evidence %+v, want %q", found, tt.note)
			}
			if allowed, _ := w.judge(s); allowed != (tt.note == "") {
				t.Fatalf("publish elsewhere allowed: %v", allowed)
			}
		})
	}
}

func TestAClassNamesTheDriver(t *testing.T) {
	w, c, _, s := newFenceWorld(t)
	inClass := func(spec, _ map[string]any) { spec["networkFenceClassName"], spec["driver"] = "gold", "" }
	c.set(networkFences, nf("a", inClass, "192.0.2.1/32", "2001:db8::1/128"))
	if found := w.ask(s); found != nil {
		t.Fatalf("the class is not there: %+v", found)
	}
	class := func(driver string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies[networkFenceClasses.path()+"/gold"] = map[string]any{"spec": map[string]any{"provisioner": driver}}
	}
	class("other")
	if found := w.ask(s); found != nil {
		t.Fatalf("of another driver: %+v", found)
	}
	class(driver)
	w.expect(s, true, "")
	c.mu.Lock()
	c.bodies[networkFenceClasses.path()+"/gold"] = "garbage"
	c.mu.Unlock()
	if found, err := s.Evidence(t.Context(), w.question()); err == nil || found != nil {
		t.Fatalf("of a class that cannot be read: got %+v, %v", found, err)
	}
}

func TestTheAddressesOfANewMachineUnderTheOldNameAreNotTheHolders(t *testing.T) {
	w, c, d, s := newFenceWorld(t)
	c.set(networkFences, nf("a", nil, "192.0.2.1/32", "2001:db8::1/128"))
	w.node.UID, w.node.Status.NodeInfo.BootID = "u2", "b2"
	if found := w.ask(s); found != nil {
		t.Fatalf("evidence %+v", found)
	}
	w.node = nil
	if found := w.ask(s); found != nil {
		t.Fatalf("evidence without a Node: %+v", found)
	}
	// The driver may know it by its node ID.
	d.clients = map[string][]string{"id1": {"192.0.2.1/32"}}
	if found := w.ask(s); len(found) != 1 || found[0].Void != "" || found[0].NodeUID != "u1" {
		t.Fatalf("evidence %+v", found)
	}
}

func TestADriverThatCannotBeAskedForAddressesVoidsTheFence(t *testing.T) {
	w, c, d, s := newFenceWorld(t)
	c.set(networkFences, nf("a", nil, "192.0.2.1/32", "2001:db8::1/128"))
	d.addresses = errors.New("driver x lacks NETWORK_FENCE")
	w.expect(s, false, "the addresses of the machine cannot be told: driver x lacks NETWORK_FENCE")
}

func TestNetworkFencesThatAreNotInstalledOrNotReadable(t *testing.T) {
	w, c, d, s := newFenceWorld(t)
	if found := w.ask(s); found != nil {
		t.Fatalf("evidence %+v", found)
	}
	c.set(networkFences, nf("a", func(spec, _ map[string]any) { spec["driver"] = "other" }, "192.0.2.1/32"))
	if found := w.ask(s); found != nil || d.asked != 0 {
		t.Fatalf("evidence %+v; the driver was asked %d times, about nothing", found, d.asked)
	}
	c.answer(403)
	if found := w.ask(s); len(found) != 1 || !strings.Contains(found[0].Void, "networkfences") {
		t.Fatalf("evidence %+v", found)
	}
	c.answer(500)
	if found, err := s.Evidence(t.Context(), w.question()); err == nil || found != nil {
		t.Fatalf("got %+v, %v", found, err)
	}
	c.answer(0)
	c.garble(networkFences)
	if found, err := s.Evidence(t.Context(), w.question()); err == nil || found != nil || !strings.Contains(err.Error(), "cannot understand NetworkFence") {
		t.Fatalf("got %+v, %v", found, err)
	}
}
