package array

import (
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestEnforceSingleAttachRefusesAndNamesTheNode(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	err := r.publish("v", "n2")
	wantCode(t, err, codes.FailedPrecondition)
	if !strings.Contains(err.Error(), `"n1"`) {
		t.Errorf("the message does not name the node: %v", err)
	}
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	must(t, r.publish("v", "n2"))
	must(t, r.WaitAttached(r.ctx(), "v", "n1", "n2"))
}

func TestEnforceSingleAttachLetsMultiNodeModesShare(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publishAs(r.ctx(), "v", "n1", multi))
	must(t, r.publishAs(r.ctx(), "v", "n2", multi))
}

func TestSwitchesOfAVolumeAreItsOwn(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.volume("w")
	must(t, r.SetVolume("v", func(s *Switches) { s.EnforceSingleAttach = false }))
	for _, volume := range []string{"v", "w"} {
		must(t, r.publish(volume, "n1"))
	}
	must(t, r.publish("v", "n2"))
	wantCode(t, r.publish("w", "n2"), codes.FailedPrecondition)
	if r.SetVolume("nope", func(*Switches) {}) == nil {
		t.Error("switches of an unknown volume were set")
	}
}

func TestUnpublishRevokesAtOnce(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.unpublish("v", "n1"))
	before := r.accepted("v", "n1")
	must(t, r.WaitFor(r.ctx(), "rejected writes", func() bool { return r.Writes("v")[0].Rejected > 3 }))
	if after := r.accepted("v", "n1"); after != before {
		t.Errorf("%d writes were accepted after the unpublish", after-before)
	}
}

func TestAClientThatHoldsOnWritesUntilItUnmountsOrLosesPower(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"unmount":    func(r *rig) { r.letGo("v", "n1") },
		"power":      func(r *rig) { must(r.t, r.PowerOff("n1")) },
		"by hand":    func(r *rig) { must(r.t, r.Detach("v", "n1")) },
		"reboot":     func(r *rig) { must(r.t, r.Reboot("n1")) },
		"terminated": func(r *rig) { must(r.t, r.RemoveMachine("n1")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.Set(func(s *Switches) { s.ClientHoldsOn = true })
			r.volume("v")
			r.use("v", "n1", single)
			must(t, r.unpublish("v", "n1"))
			must(t, r.WaitAttached(r.ctx(), "v"))
			must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
			end(r)
			before := r.accepted("v", "n1")
			r.use("v", "n2", single)
			if after := r.accepted("v", "n1"); after != before {
				t.Errorf("%d writes were accepted after the end", after-before)
			}
		})
	}
}

func TestPublishMovesOnlyOnExclusiveVolumes(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.PublishMoves = true })
	r.volume("v")
	must(t, r.publish("v", "n1"))
	must(t, r.publish("v", "n2"))
	must(t, r.WaitAttached(r.ctx(), "v", "n2"))
	r.volume("w")
	must(t, r.publishAs(r.ctx(), "w", "n1", multi))
	must(t, r.publishAs(r.ctx(), "w", "n2", multi))
	must(t, r.WaitAttached(r.ctx(), "w", "n1", "n2"))
}

func TestPublishAndUnpublishTakeTheirTime(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.PublishTakes, s.UnpublishTakes = 50*time.Millisecond, 70*time.Millisecond })
	r.volume("v")
	must(t, r.publish("v", "n1"))
	must(t, r.unpublish("v", "n1"))
	for method, takes := range map[string]time.Duration{Publish: 50 * time.Millisecond, Unpublish: 70 * time.Millisecond} {
		if c := r.CallsOf(method, "v")[0]; c.End.Sub(c.Start) < takes {
			t.Errorf("%s took %v", method, c.End.Sub(c.Start))
		}
	}
}

func TestPublishedNodesAreListedIfSwitchedOn(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publish("v", "n2"))
	must(t, r.Attach("v", "n1"))
	for _, on := range []bool{true, false} {
		r.Set(func(s *Switches) { s.ListPublishedNodes = on })
		var want []string
		if on {
			want = []string{"n1", "n2"}
		}
		list, err := r.controller.ListVolumes(r.ctx(), &spec.ListVolumesRequest{})
		must(t, err)
		if got := list.Entries[0].GetStatus().GetPublishedNodeIds(); !slices.Equal(got, want) {
			t.Errorf("on %v: ListVolumes: %q", on, got)
		}
		one, err := r.controller.ControllerGetVolume(r.ctx(), &spec.ControllerGetVolumeRequest{VolumeId: "v"})
		must(t, err)
		if got := one.GetStatus().GetPublishedNodeIds(); !slices.Equal(got, want) {
			t.Errorf("on %v: ControllerGetVolume: %q", on, got)
		}
		if r.has(spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES) != on {
			t.Errorf("on %v: the capability says otherwise", on)
		}
	}
}

func TestListVolumesAndGetVolumeAreOfferedIfSwitchedOn(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	for _, on := range []bool{false, true} {
		r.Set(func(s *Switches) { s.ListVolumes, s.GetVolume = on, on })
		want := codes.OK
		if !on {
			want = codes.Unimplemented
		}
		_, err := r.controller.ListVolumes(r.ctx(), &spec.ListVolumesRequest{})
		wantCode(t, err, want)
		_, err = r.controller.ControllerGetVolume(r.ctx(), &spec.ControllerGetVolumeRequest{VolumeId: "v"})
		wantCode(t, err, want)
		for _, c := range []spec.ControllerServiceCapability_RPC_Type{
			spec.ControllerServiceCapability_RPC_LIST_VOLUMES, spec.ControllerServiceCapability_RPC_GET_VOLUME,
		} {
			if r.has(c) != on {
				t.Errorf("on %v: capability %v says otherwise", on, c)
			}
		}
	}
}

func (r *rig) has(want spec.ControllerServiceCapability_RPC_Type) bool {
	r.t.Helper()
	response, err := r.controller.ControllerGetCapabilities(r.ctx(), &spec.ControllerGetCapabilitiesRequest{})
	must(r.t, err)
	return slices.ContainsFunc(response.Capabilities, func(c *spec.ControllerServiceCapability) bool {
		return c.GetRpc().GetType() == want
	})
}
