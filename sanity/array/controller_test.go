package array

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestAPublishWithoutItsArgumentsIsInvalid(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.CreateVolume("fs", VolumeOptions{}))
	block := &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: single},
		AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}},
	}
	for name, change := range map[string]func(*spec.ControllerPublishVolumeRequest){
		"no volume":      func(q *spec.ControllerPublishVolumeRequest) { q.VolumeId = "" },
		"no node":        func(q *spec.ControllerPublishVolumeRequest) { q.NodeId = "" },
		"no capability":  func(q *spec.ControllerPublishVolumeRequest) { q.VolumeCapability = nil },
		"no access type": func(q *spec.ControllerPublishVolumeRequest) { q.VolumeCapability.AccessType = nil },
		"no access mode": func(q *spec.ControllerPublishVolumeRequest) { q.VolumeCapability.AccessMode = nil },
		"block":          func(q *spec.ControllerPublishVolumeRequest) { q.VolumeCapability = block },
		"multi-writer": func(q *spec.ControllerPublishVolumeRequest) {
			q.VolumeId, q.VolumeCapability = "fs", mountCap(multi)
		},
	} {
		req := &spec.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n1", VolumeCapability: mountCap(single)}
		change(req)
		if _, err := r.controller.ControllerPublishVolume(r.ctx(), req); err == nil || !strings.Contains(err.Error(), codes.InvalidArgument.String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantCode(t, r.unpublish("", "n1"), codes.InvalidArgument)
}

func TestAPublishOfAnUnknownVolumeOrNodeIsNotFound(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	wantCode(t, r.publish("nope", "n1"), codes.NotFound)
	wantCode(t, r.publish("v", "nope"), codes.NotFound)
	must(t, r.RemoveMachine("n2"))
	wantCode(t, r.publish("v", "n2"), codes.NotFound)
}

func TestPublishAndUnpublishAreIdempotent(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	must(t, r.publish("v", "n1"))
	wantCode(t, r.publishAs(r.ctx(), "v", "n1", readers), codes.AlreadyExists)
	wantCode(t, r.publishAs(r.ctx(), "v", "n1", singlePath), codes.AlreadyExists)
	must(t, r.unpublish("v", "n1"))
	must(t, r.unpublish("v", "n1"))
	must(t, r.unpublish("nope", "n1"))
	must(t, r.unpublish("v", "nope"))
}

func TestAnUnpublishWithoutANodeIsForAllNodes(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publishAs(r.ctx(), "v", "n1", multi))
	must(t, r.publishAs(r.ctx(), "v", "n2", multi))
	must(t, r.unpublish("v", ""))
	must(t, r.WaitAttached(r.ctx(), "v"))
}

func TestAnOrphanAttachmentExcludesOthersAndIsAdopted(t *testing.T) {
	r := newRig(t, Options{})
	must(t, r.CreateVolume("v", VolumeOptions{}))
	must(t, r.Attach("v", "n1"))
	wantCode(t, r.publish("v", "n2"), codes.FailedPrecondition)
	must(t, r.publish("v", "n1"))
	must(t, r.Detach("v", "n1"))
	must(t, r.publish("v", "n2"))
	for _, err := range []error{r.Attach("nope", "n1"), r.Attach("v", "nope"), r.Detach("nope", "n1")} {
		if err == nil || !strings.Contains(err.Error(), `"nope"`) {
			t.Errorf("got %v", err)
		}
	}
}

func TestSecretsAreRequiredForPublishAndUnpublish(t *testing.T) {
	const password = "s3cr3t-value"
	r := newRig(t, Options{RequireSecrets: map[string]string{"password": password}})
	r.volume("v")
	for _, secrets := range []map[string]string{nil, {"password": "wrong"}, {"other": password}} {
		_, err := r.controller.ControllerPublishVolume(r.ctx(), &spec.ControllerPublishVolumeRequest{
			VolumeId: "v", NodeId: "n1", VolumeCapability: mountCap(single), Secrets: secrets,
		})
		wantCode(t, err, codes.Unauthenticated)
		must(t, r.Attach("v", "n1"))
		_, err = r.controller.ControllerUnpublishVolume(r.ctx(), &spec.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "n1", Secrets: secrets})
		wantCode(t, err, codes.Unauthenticated)
		must(t, r.WaitAttached(r.ctx(), "v", "n1"))
		must(t, r.Detach("v", "n1"))
	}
	right := map[string]string{"password": password, "user": "u"}
	_, err := r.controller.ControllerPublishVolume(r.ctx(), &spec.ControllerPublishVolumeRequest{
		VolumeId: "v", NodeId: "n1", VolumeCapability: mountCap(single), Secrets: right,
	})
	must(t, err)
	_, err = r.controller.ControllerUnpublishVolume(r.ctx(), &spec.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "n1", Secrets: right})
	must(t, err)
	must(t, r.WaitAttached(r.ctx(), "v"))
	if all := fmt.Sprintf("%+v %+v", r.Calls(), r.Timeline()); strings.Contains(all, password) {
		t.Error("a secret's value was kept")
	}
}

func TestACallIsRecordedAsItCameAndEnded(t *testing.T) {
	r := newRig(t, Options{})
	_, err := r.controller.ControllerUnpublishVolume(r.ctx(), &spec.ControllerUnpublishVolumeRequest{
		VolumeId: "v", NodeId: "n1", Secrets: map[string]string{"a": "b"},
	})
	must(t, err)
	wantCode(t, r.publish("v", "n2"), codes.NotFound)
	wantCode(t, r.nodes["n1"].stageAs("v", single), codes.NotFound)
	want := []Call{
		{Socket: ControllerSocket, Method: Unpublish, Volume: "v", Node: "n1", Secrets: true},
		{Socket: ControllerSocket, Method: Publish, Volume: "v", Node: "n2", Code: codes.NotFound, Message: `volume "v" does not exist`},
		{Socket: "n1", Method: "NodeStageVolume", Volume: "v", Node: "n1", Code: codes.NotFound, Message: `volume "v" does not exist`},
	}
	got := r.Calls()
	for i := range got {
		if got[i].Start.IsZero() || got[i].End.Before(got[i].Start) {
			t.Errorf("call %d has no time: %+v", i, got[i])
		}
		got[i].Start, got[i].End = want[0].Start, want[0].End
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestCreateVolumeIsIdempotentByName(t *testing.T) {
	r := newRig(t, Options{Capacity: 10 << 30})
	create := func(name string, size, limit int64) (*spec.CreateVolumeResponse, error) {
		return r.controller.CreateVolume(r.ctx(), &spec.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*spec.VolumeCapability{mountCap(single)},
			CapacityRange: &spec.CapacityRange{RequiredBytes: size, LimitBytes: limit},
		})
	}
	first, err := create("a", 4<<30, 0)
	must(t, err)
	again, err := create("a", 4<<30, 0)
	must(t, err)
	if first.Volume.VolumeId != again.Volume.VolumeId {
		t.Errorf("two volumes for one name: %v, %v", first, again)
	}
	for name, want := range map[string]struct {
		volume      string
		size, limit int64
		code        codes.Code
	}{
		"bigger":    {"a", 5 << 30, 0, codes.AlreadyExists},
		"smaller":   {"a", 1 << 30, 2 << 30, codes.AlreadyExists},
		"no room":   {"b", 7 << 30, 0, codes.OutOfRange},
		"no range":  {"b", 2, 1, codes.OutOfRange},
		"negative":  {"b", -1, 0, codes.OutOfRange},
		"no name":   {"", 1, 0, codes.InvalidArgument},
		"small one": {"c", 0, 1 << 20, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(want.volume, want.size, want.limit)
			wantCode(t, err, want.code)
		})
	}
	capacity, err := r.controller.GetCapacity(r.ctx(), &spec.GetCapacityRequest{})
	must(t, err)
	if want := int64(6<<30 - 1<<20); capacity.AvailableCapacity != want {
		t.Errorf("free: %d, want %d", capacity.AvailableCapacity, want)
	}
}

func TestDeleteVolumeSparesAVolumeInUse(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	remove := func() error {
		_, err := r.controller.DeleteVolume(r.ctx(), &spec.DeleteVolumeRequest{VolumeId: "v"})
		return err
	}
	wantCode(t, remove(), codes.FailedPrecondition)
	must(t, r.unpublish("v", "n1"))
	wantCode(t, remove(), codes.FailedPrecondition) // still mounted
	r.letGo("v", "n1")
	must(t, remove())
	must(t, remove())
	wantCode(t, r.publish("v", "n1"), codes.NotFound)
}

func TestValidateVolumeCapabilitiesConfirmsWhatTheVolumeCanDo(t *testing.T) {
	r := newRig(t, Options{})
	must(t, r.CreateVolume("v", VolumeOptions{}))
	ask := func(volume string, caps ...*spec.VolumeCapability) (*spec.ValidateVolumeCapabilitiesResponse, error) {
		return r.controller.ValidateVolumeCapabilities(r.ctx(), &spec.ValidateVolumeCapabilitiesRequest{VolumeId: volume, VolumeCapabilities: caps})
	}
	yes, err := ask("v", mountCap(single))
	must(t, err)
	no, err := ask("v", mountCap(single), mountCap(multi))
	must(t, err)
	if yes.Confirmed == nil || no.Confirmed != nil || no.Message == "" {
		t.Errorf("yes: %v, no: %v", yes, no)
	}
	_, err = ask("nope", mountCap(single))
	wantCode(t, err, codes.NotFound)
	_, err = ask("v")
	wantCode(t, err, codes.InvalidArgument)
	_, err = ask("", mountCap(single))
	wantCode(t, err, codes.InvalidArgument)
}

func TestListVolumesPagesSurviveCreationAndDeletion(t *testing.T) {
	r := newRig(t, Options{})
	for _, id := range []string{"d", "c", "b", "a"} {
		r.volume(id)
	}
	page := func(token string, most int32) ([]string, string) {
		list, err := r.controller.ListVolumes(r.ctx(), &spec.ListVolumesRequest{StartingToken: token, MaxEntries: most})
		must(t, err)
		var ids []string
		for _, e := range list.Entries {
			ids = append(ids, e.Volume.VolumeId)
		}
		return ids, list.NextToken
	}
	first, token := page("", 2)
	_, err := r.controller.DeleteVolume(r.ctx(), &spec.DeleteVolumeRequest{VolumeId: "c"})
	must(t, err)
	r.volume("0")
	rest, end := page(token, 0)
	if got := append(first, rest...); !slices.Equal(got, []string{"d", "c", "b", "a", "0"}) || token == "" || end != "" {
		t.Errorf("got %q, tokens %q and %q", got, token, end)
	}
	r.Set(func(s *Switches) { s.PageSize = 3 })
	if ids, token := page("", 0); len(ids) != 3 || token == "" {
		t.Errorf("PageSize 3 gave %q, token %q", ids, token)
	}
	_, err = r.controller.ListVolumes(r.ctx(), &spec.ListVolumesRequest{StartingToken: "nonsense"})
	wantCode(t, err, codes.Aborted)
	_, err = r.controller.ListVolumes(r.ctx(), &spec.ListVolumesRequest{MaxEntries: -1})
	wantCode(t, err, codes.InvalidArgument)
}

func TestTheDriverSaysWhoItIs(t *testing.T) {
	r := newRig(t, Options{DriverName: "other.example.com"})
	info, err := r.identity.GetPluginInfo(r.ctx(), &spec.GetPluginInfoRequest{})
	must(t, err)
	capabilities, err := r.identity.GetPluginCapabilities(r.ctx(), &spec.GetPluginCapabilitiesRequest{})
	must(t, err)
	// csi-sanity learns on the node socket that volumes have to be published.
	onNode, err := spec.NewIdentityClient(dial(t, r.served["n1"].Socket())).GetPluginCapabilities(r.ctx(), &spec.GetPluginCapabilitiesRequest{})
	must(t, err)
	probe, err := r.identity.Probe(r.ctx(), &spec.ProbeRequest{})
	must(t, err)
	if info.Name != "other.example.com" || len(capabilities.Capabilities) != 1 || len(onNode.Capabilities) != 1 || !probe.Ready.GetValue() {
		t.Errorf("%v %v %v", info, capabilities, probe)
	}
	if name := New(Options{}); name.DriverName() != "array.csi-fencepost.io" {
		t.Errorf("default name %q", name.DriverName())
	} else {
		name.Close()
	}
}

func TestAWaitThatEndsInVainSaysWhatItWaitedFor(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.Attach("v", "n1"))
	ctx, cancel := context.WithCancel(r.ctx())
	cancel()
	for _, err := range []error{
		r.WaitAttached(ctx, "v", "n2"), r.WaitPublished(ctx, "v", "n2"), r.WaitWrites(ctx, "v", "n2", 1),
	} {
		if err == nil || !strings.Contains(err.Error(), "volume v") || !strings.Contains(err.Error(), "n2") {
			t.Errorf("said %v", err)
		}
	}
}
