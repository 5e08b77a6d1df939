package array

import (
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// What scenarios meet is what they ask for: Kubernetes acts on a capability.
func TestOnlyAnArrayThatOffersEverythingHasMoreThanScenariosNeed(t *testing.T) {
	r := newRig(t, Options{})
	controller, err := r.controller.ControllerGetCapabilities(r.ctx(), &spec.ControllerGetCapabilitiesRequest{})
	must(t, err)
	for _, c := range controller.GetCapabilities() {
		if c.GetRpc().GetType() == spec.ControllerServiceCapability_RPC_EXPAND_VOLUME {
			t.Error("a controller that was not asked for everything expands volumes")
		}
	}
	plugin, err := r.identity.GetPluginCapabilities(r.ctx(), &spec.GetPluginCapabilitiesRequest{})
	must(t, err)
	if n := len(plugin.GetCapabilities()); n != 1 {
		t.Errorf("%d plugin capabilities, want CONTROLLER_SERVICE alone", n)
	}
	info, err := r.nodes["n1"].NodeGetInfo(r.ctx(), &spec.NodeGetInfoRequest{})
	must(t, err)
	if info.GetMaxVolumesPerNode() != 0 || info.GetAccessibleTopology() != nil {
		t.Errorf("a node with limits or topology: %v", info)
	}
	_, err = r.controller.CreateSnapshot(r.ctx(), &spec.CreateSnapshotRequest{Name: "s", SourceVolumeId: "v"})
	wantCode(t, err, codes.Unimplemented)

	r.Set(func(s *Switches) { s.Everything = true })
	_, err = r.controller.CreateSnapshot(r.ctx(), &spec.CreateSnapshotRequest{Name: "s", SourceVolumeId: "v"})
	wantCode(t, err, codes.NotFound)
}

func TestSnapshotsOfAGroupAreMadeAndDeletedTogether(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.Everything = true })
	r.volume("v1")
	r.volume("v2")
	socket := filepath.Join(r.dir, "all.sock")
	r.Stop()
	must(t, r.ServeAll(r.ctx(), socket, "n1"))
	conn := dial(t, socket)
	groups, controller := spec.NewGroupControllerClient(conn), spec.NewControllerClient(conn)

	made, err := groups.CreateVolumeGroupSnapshot(r.ctx(), &spec.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v2", "v1"}})
	must(t, err)
	id := made.GetGroupSnapshot().GetGroupSnapshotId()
	if n := len(made.GetGroupSnapshot().GetSnapshots()); n != 2 {
		t.Fatalf("%d snapshots, want 2", n)
	}
	again, err := groups.CreateVolumeGroupSnapshot(r.ctx(), &spec.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v1", "v2"}})
	must(t, err)
	if got := again.GetGroupSnapshot().GetGroupSnapshotId(); got != id {
		t.Errorf("the same request made another group: %s, not %s", got, id)
	}
	_, err = groups.CreateVolumeGroupSnapshot(r.ctx(), &spec.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v1"}})
	wantCode(t, err, codes.AlreadyExists)
	_, err = controller.DeleteSnapshot(r.ctx(), &spec.DeleteSnapshotRequest{SnapshotId: made.GetGroupSnapshot().GetSnapshots()[0].GetSnapshotId()})
	wantCode(t, err, codes.InvalidArgument)
	_, err = groups.DeleteVolumeGroupSnapshot(r.ctx(), &spec.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id})
	must(t, err)
	list, err := controller.ListSnapshots(r.ctx(), &spec.ListSnapshotsRequest{})
	must(t, err)
	if len(list.GetEntries()) != 0 {
		t.Errorf("snapshots are left: %v", list.GetEntries())
	}
}

func TestOneSocketServesTheWholeDriver(t *testing.T) {
	r := newRig(t, Options{})
	r.Stop()
	r.volume("v")
	socket := filepath.Join(r.dir, "all.sock")
	must(t, r.ServeAll(r.ctx(), socket, "n1"))
	conn := dial(t, socket)
	info, err := spec.NewNodeClient(conn).NodeGetInfo(r.ctx(), &spec.NodeGetInfoRequest{})
	must(t, err)
	_, err = spec.NewControllerClient(conn).ControllerPublishVolume(r.ctx(), &spec.ControllerPublishVolumeRequest{
		VolumeId: "v", NodeId: info.GetNodeId(), VolumeCapability: mountCap(single),
	})
	must(t, err)
	for method, want := range map[string]string{"NodeGetInfo": "n1", Publish: ControllerSocket} {
		if calls := r.CallsOf(method, ""); len(calls) != 1 || calls[0].Socket != want {
			t.Errorf("%s was recorded as %+v, want one call on %q", method, calls, want)
		}
	}
}
