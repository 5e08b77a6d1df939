package array

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestAKubeletFindsAndRegistersTheDriver(t *testing.T) {
	r := newRig(t, Options{})
	options := r.nodeOptions("n1")
	kubelet := registration.NewRegistrationClient(dial(t, filepath.Join(options.RegistrationDir, r.DriverName()+"-reg.sock")))
	info, err := kubelet.GetInfo(r.ctx(), &registration.InfoRequest{})
	must(t, err)
	if info.Type != registration.CSIPlugin || info.Name != r.DriverName() || !slices.Contains(info.SupportedVersions, "1.0.0") {
		t.Errorf("info: %v", info)
	}
	if want := filepath.Join(options.PluginDir, r.DriverName(), "csi.sock"); info.Endpoint != want {
		t.Errorf("endpoint %s, want %s", info.Endpoint, want)
	}
	node, err := spec.NewNodeClient(dial(t, info.Endpoint)).NodeGetInfo(r.ctx(), &spec.NodeGetInfoRequest{})
	must(t, err)
	if node.NodeId != "n1" {
		t.Errorf("node ID %q", node.NodeId)
	}
	notify := func(status *registration.RegistrationStatus) {
		_, err := kubelet.NotifyRegistrationStatus(r.ctx(), status)
		must(t, err)
	}
	notify(&registration.RegistrationStatus{Error: "wrong version"})
	short, cancel := context.WithTimeout(r.ctx(), 10*time.Millisecond)
	defer cancel()
	if err := r.served["n1"].WaitRegistered(short); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a refused driver counts as registered: %v", err)
	}
	notify(&registration.RegistrationStatus{PluginRegistered: true})
	must(t, r.served["n1"].WaitRegistered(r.ctx()))
	if n := r.served["n1"].Registrations(); n != 1 {
		t.Errorf("%d registrations", n)
	}
}

func TestAMachineRecreatedUnderItsNameHasANodeIDOfItsOwn(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	r.served["n1"].Kill() // the old machine writes on
	options := r.nodeOptions("n1")
	options.NodeID = "n1-new"
	n, err := r.ServeNode(r.ctx(), options)
	must(t, err)
	info, err := spec.NewNodeClient(dial(t, n.Socket())).NodeGetInfo(r.ctx(), &spec.NodeGetInfoRequest{})
	must(t, err)
	if info.NodeId != "n1-new" {
		t.Errorf("node ID %q", info.NodeId)
	}
	must(t, r.unpublish("v", "n1-new")) // the attacher's unpublish with the wrong ID
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations()
}

func TestNodeStageNeedsTheVolumeAttachedToThisNode(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	wantCode(t, r.nodes["n1"].stageAs("v", single), codes.FailedPrecondition)
	must(t, r.publish("v", "n2"))
	wantCode(t, r.nodes["n1"].stageAs("v", single), codes.FailedPrecondition)
	must(t, r.nodes["n2"].stageAs("v", single))
	must(t, r.nodes["n2"].stageAs("v", single))
	wantCode(t, r.nodes["n2"].stageAs("nope", single), codes.NotFound)
}

func TestNodePublishNeedsTheVolumeStaged(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	must(t, r.publish("v", "n1"))
	wantCode(t, r.nodes["n1"].runAs("v", single), codes.FailedPrecondition)
	r.mount("v", "n1", single)
	must(t, r.nodes["n1"].runAs("v", single))
	must(t, r.WaitPublished(r.ctx(), "v", "n1"))
}

func TestNodePublishMakesTheTargetAndUnpublishRemovesIt(t *testing.T) {
	r := newRig(t, Options{})
	n := r.nodes["n1"]
	must(t, r.CreateVolume("blk", VolumeOptions{Block: true}))
	must(t, r.Attach("blk", "n1"))
	block := &spec.VolumeCapability{
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: single},
		AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}},
	}
	_, err := n.NodeStageVolume(r.ctx(), &spec.NodeStageVolumeRequest{VolumeId: "blk", StagingTargetPath: n.staging("blk"), VolumeCapability: block})
	must(t, err)
	_, err = n.NodePublishVolume(r.ctx(), &spec.NodePublishVolumeRequest{
		VolumeId: "blk", StagingTargetPath: n.staging("blk"), TargetPath: n.target("blk"), VolumeCapability: block,
	})
	must(t, err)
	r.volume("fs")
	r.use("fs", "n1", single)
	for volume, isDir := range map[string]bool{"blk": false, "fs": true} {
		info, err := os.Stat(n.target(volume))
		must(t, err)
		if info.IsDir() != isDir {
			t.Errorf("%s: target has mode %v", volume, info.Mode())
		}
		r.letGo(volume, "n1")
		must(t, n.stop(volume))
		must(t, n.unstage(volume))
		if _, err := os.Stat(n.target(volume)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the target is still there: %v", volume, err)
		}
	}
}

func TestASingleWriterPathIsPublishedAtOnePathOnly(t *testing.T) {
	r := newRig(t, Options{})
	for mode, want := range map[spec.VolumeCapability_AccessMode_Mode]codes.Code{singlePath: codes.FailedPrecondition, single: codes.OK} {
		volume := mode.String()
		r.volume(volume)
		r.use(volume, "n1", mode)
		n := r.nodes["n1"]
		_, err := n.NodePublishVolume(r.ctx(), &spec.NodePublishVolumeRequest{
			VolumeId: volume, StagingTargetPath: n.staging(volume), TargetPath: n.target(volume) + "-2", VolumeCapability: mountCap(mode),
		})
		wantCode(t, err, want)
	}
}

func TestNodeCallsWithoutTheirArgumentsAreInvalid(t *testing.T) {
	r := newRig(t, Options{})
	n, ctx := r.nodes["n1"], r.ctx()
	for name, call := range map[string]func() error{
		"stage volume": func() error {
			_, err := n.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{StagingTargetPath: "/x", VolumeCapability: mountCap(single)})
			return err
		},
		"stage path": func() error {
			_, err := n.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: "v", VolumeCapability: mountCap(single)})
			return err
		},
		"stage capability": func() error {
			_, err := n.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/x"})
			return err
		},
		"publish path": func() error {
			_, err := n.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{VolumeId: "v", VolumeCapability: mountCap(single)})
			return err
		},
		"publish capability": func() error {
			_, err := n.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{VolumeId: "v", TargetPath: "/x"})
			return err
		},
		"unstage": func() error {
			_, err := n.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: "v"})
			return err
		},
		"unpublish": func() error {
			_, err := n.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: "v"})
			return err
		},
		"stats": func() error {
			_, err := n.NodeGetVolumeStats(ctx, &spec.NodeGetVolumeStatsRequest{VolumeId: "v"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, call(), codes.InvalidArgument) })
	}
}

func TestVolumeStatsAreOfAPathWhereTheVolumeIs(t *testing.T) {
	r := newRig(t, Options{})
	must(t, r.CreateVolume("v", VolumeOptions{Bytes: 1234}))
	r.use("v", "n1", single)
	n := r.nodes["n1"]
	stats := func(volume, path string) (*spec.NodeGetVolumeStatsResponse, error) {
		return n.NodeGetVolumeStats(r.ctx(), &spec.NodeGetVolumeStatsRequest{VolumeId: volume, VolumePath: path})
	}
	for _, path := range []string{n.target("v"), n.staging("v")} {
		got, err := stats("v", path)
		must(t, err)
		if got.Usage[0].Total != 1234 {
			t.Errorf("stats %v", got)
		}
	}
	_, err := stats("v", "/elsewhere")
	wantCode(t, err, codes.NotFound)
	_, err = stats("nope", n.target("v"))
	wantCode(t, err, codes.NotFound)
}

func TestAMachineWithoutPowerAnswersNothingAndBootsEmpty(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.PowerOff("n1"))
	if r.Powered("n1") || len(r.InUse("v")) > 0 {
		t.Errorf("powered %v, in use on %q", r.Powered("n1"), r.InUse("v"))
	}
	wantCode(t, r.nodes["n1"].stageAs("v", single), codes.Unavailable)
	wantCode(t, r.nodes["n1"].unstage("v"), codes.Unavailable)
	if got := r.Attached("v"); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("power off changed the array: attached to %q", got)
	}
	written := r.accepted("v", "n1")
	must(t, r.PowerOn("n1"))
	wantCode(t, r.nodes["n1"].runAs("v", single), codes.FailedPrecondition)
	must(t, r.nodes["n1"].unstage("v"))
	if again := r.accepted("v", "n1"); again != written {
		t.Errorf("%d writes without power or mount", again-written)
	}
	r.mount("v", "n1", single)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 1))
}

func TestAPausedMachineAnswersAndWritesWhenResumed(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.PauseMachine("n1"))
	written := r.accepted("v", "n1")
	answer := make(chan error, 1)
	go func() { answer <- r.nodes["n1"].stageAs("v", single) }()
	_, err := r.WaitCall(r.ctx(), "the call to arrive", func(c Call) bool { return c.Method == "NodeStageVolume" && c.End.IsZero() })
	must(t, err)
	select {
	case err := <-answer:
		t.Fatalf("a paused machine answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if again := r.accepted("v", "n1"); again != written {
		t.Errorf("a paused machine wrote %d times", again-written)
	}
	must(t, r.ResumeMachine("n1"))
	must(t, <-answer)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
}

func TestAnUnknownMachineIsNamed(t *testing.T) {
	r := newRig(t, Options{})
	for name, do := range map[string]func(string) error{
		"PowerOff": r.PowerOff, "PowerOn": r.PowerOn, "Reboot": r.Reboot,
		"Pause": r.PauseMachine, "Resume": r.ResumeMachine, "Remove": r.RemoveMachine,
	} {
		if do("nope") == nil {
			t.Errorf("%s of an unknown machine did something", name)
		}
	}
	if got := r.Machines(); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("machines: %q", got)
	}
}

func TestAMachineThatIsRenamedGoesOnWithWhatItHas(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", single)
	r.served["n1"].Stop()
	must(t, r.RenameMachine("n1", "uuid1"))
	r.addNode("uuid1")
	if got := [][]string{r.Attached("v"), r.InUse("v")}; !slices.Equal(got[0], []string{"uuid1"}) || !slices.Equal(got[1], []string{"uuid1"}) {
		t.Errorf("attached to and used by %q, want uuid1", got)
	}
	must(t, r.WaitWrites(r.ctx(), "v", "uuid1", 3))
	wantCode(t, r.publish("v", "n1"), codes.NotFound)
	info, err := r.nodes["uuid1"].NodeGetInfo(r.ctx(), &spec.NodeGetInfoRequest{})
	must(t, err)
	if info.NodeId != "uuid1" {
		t.Errorf("the node says that it is %q", info.NodeId)
	}
	for _, bad := range []error{r.RenameMachine("n1", "n3"), r.RenameMachine("n2", "uuid1"), r.RenameMachine("n2", "")} {
		if bad == nil {
			t.Error("renamed what is nobody, or to what somebody is")
		}
	}
	must(t, r.unpublish("v", "uuid1"))
	r.wantViolations(TakenInUse)
}
