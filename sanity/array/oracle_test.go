package array

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

func TestTwoWritersAtOnceAreADoubleWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", single)
	r.use("v", "n2", single)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations(DoubleWrite, CouldDoubleWrite)
	i := slices.IndexFunc(r.Violations(), func(v Violation) bool { return v.Kind == DoubleWrite })
	v := r.Violations()[i]
	if v.Volume != "v" || !slices.Equal(v.Nodes, []string{"n1", "n2"}) || v.Count < 2 || !v.Last.After(v.Time) {
		t.Errorf("the violation does not tell what happened: %+v", v)
	}
	if n := r.kinds()[DoubleWrite]; n != 1 {
		t.Errorf("one pair of writers is one DoubleWrite, not %d", n)
	}
}

func TestAWriterThatLetGoAndComesBackIsNoDoubleWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	for _, node := range []string{"n1", "n2", "n1", "n2"} {
		r.use("v", node, single)
		r.letGo("v", node)
		must(t, r.unpublish("v", node))
	}
	r.wantViolations()
}

func TestTwoWritersOfAMultiWriterVolumeAreNoViolation(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", multi)
	r.use("v", "n2", multi)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	must(t, r.unpublish("v", "n1")) // live migration ends before the unmount
	r.wantViolations()
}

func TestAMultiWriterBesideASingleWriterIsADoubleWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", multi)
	r.use("v", "n2", single)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations(DoubleWrite, CouldDoubleWrite)
}

func TestOneWriterAndManyReadersAreNoViolation(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("v")
	r.use("v", "n1", oneWriter)
	r.use("v", "n2", readers)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	must(t, r.unpublish("v", "n2"))
	r.wantViolations()
	if n := r.accepted("v", "n2"); n != 0 {
		t.Errorf("a reader wrote %d times", n)
	}
}

func TestAStagedVolumeWhileAnotherNodeWritesCouldBeADoubleWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.publish("v", "n2"))
	r.wantViolations() // attached alone is not mounted
	must(t, r.nodes["n2"].stageAs("v", single))
	r.wantViolations(CouldDoubleWrite)
}

func TestAVolumeStagedTwiceIsNoViolationUntilItIsPublished(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	for _, node := range []string{"n1", "n2"} {
		must(t, r.publish("v", node))
		must(t, r.nodes[node].stageAs("v", single))
	}
	r.wantViolations()
	must(t, r.nodes["n2"].runAs("v", single))
	r.wantViolations(CouldDoubleWrite)
}

func TestAMountWithoutAccessCouldWriteOnlyOnceItIsAttachedAgain(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.unpublish("v", "n1"))
	r.use("v", "n2", single)
	r.wantViolations(TakenInUse)
	must(t, r.publish("v", "n1")) // the attacher's ListVolumes reconcile
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations(TakenInUse, CouldDoubleWrite, DoubleWrite)
}

func TestAClientThatHoldsOnBesideAnotherWriterIsADoubleWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.ClientHoldsOn = true })
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.unpublish("v", "n1"))
	r.use("v", "n2", single)
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations(TakenInUse, CouldDoubleWrite, DoubleWrite)
}

func TestAPausedMachineCouldStillWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.PauseMachine("n1"))
	r.use("v", "n2", single)
	r.wantViolations(CouldDoubleWrite)
	must(t, r.ResumeMachine("n1"))
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations(CouldDoubleWrite, DoubleWrite)
}

func TestAMachineWithoutPowerCannotWrite(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.PowerOff("n1"))
	r.use("v", "n2", single)
	must(t, r.PowerOn("n1"))
	must(t, r.WaitWrites(r.ctx(), "v", "n2", 3))
	r.wantViolations()
}

func TestAnUnpublishOfAVolumeInUseIsTakenInUse(t *testing.T) {
	for _, published := range []bool{true, false} {
		r := newRig(t, Options{})
		r.volume("v")
		r.use("v", "n1", single)
		if !published {
			must(t, r.nodes["n1"].stop("v"))
		}
		must(t, r.unpublish("v", "n1"))
		must(t, r.unpublish("v", "n1")) // nothing is taken twice
		r.wantViolations(TakenInUse)
		v := r.Violations()
		if len(v) != 1 || !slices.Equal(v[0].Nodes, []string{"n1"}) || !strings.Contains(v[0].Text, Unpublish) {
			t.Errorf("published %v: %+v", published, v)
		}
	}
}

func TestAnUnpublishOfAVolumeThatNobodyUsesIsNoViolation(t *testing.T) {
	r := newRig(t, Options{})
	r.volume("let-go")
	r.use("let-go", "n1", single)
	r.letGo("let-go", "n1")
	must(t, r.unpublish("let-go", "n1"))
	r.volume("off")
	r.use("off", "n2", single)
	must(t, r.PowerOff("n2"))
	must(t, r.unpublish("off", "n2"))
	r.wantViolations()
}

func TestAPublishThatMovesAVolumeInUseTakesIt(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.PublishMoves = true })
	r.volume("v")
	r.use("v", "n1", single)
	must(t, r.publish("v", "n2"))
	r.wantViolations(TakenInUse)
	if got := r.Attached("v"); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("attached to %q", got)
	}
}

func TestAForgottenViolationThatLastsIsFoundAnew(t *testing.T) {
	r := newRig(t, Options{})
	r.Set(func(s *Switches) { s.EnforceSingleAttach = false })
	r.volume("v")
	r.use("v", "n1", single)
	r.use("v", "n2", single)
	r.ForgetViolations()
	if len(r.ViolationsOf("v")) == 0 {
		t.Error("a state that lasts was forgotten")
	}
	r.letGo("v", "n2")
	r.ForgetViolations()
	must(t, r.WaitWrites(r.ctx(), "v", "n1", 3))
	r.wantViolations()
}

// Without sockets, in a bubble: the machine's calls in no time at all.
func TestACouldDoubleWriteShorterThanAnySampleIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{WriteEvery: time.Hour})
		defer a.Close()
		a.Set(func(s *Switches) { s.EnforceSingleAttach = false })
		must(t, a.CreateVolume("v", VolumeOptions{}))
		useDirectly(t, a, "n1")
		useDirectly(t, a, "n2")
		must(t, a.PowerOff("n1")) // the same instant
		found := a.Violations()
		if len(found) != 1 || found[0].Kind != CouldDoubleWrite || !found[0].Time.Equal(found[0].Last) {
			t.Errorf("found %+v", found)
		}
	})
}

func TestACouldDoubleWriteLastsUntilItsLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{WriteEvery: 10 * time.Millisecond})
		defer a.Close()
		a.Set(func(s *Switches) { s.EnforceSingleAttach = false })
		must(t, a.CreateVolume("v", VolumeOptions{}))
		useDirectly(t, a, "n1")
		useDirectly(t, a, "n2")
		time.Sleep(1005 * time.Millisecond)
		must(t, a.PowerOff("n2"))
		time.Sleep(time.Second)
		for _, v := range a.Violations() {
			if lasted := v.Last.Sub(v.Time); v.Kind == CouldDoubleWrite && (lasted != 1005*time.Millisecond || v.Count != 101) {
				t.Errorf("lasted %v, %d samples", lasted, v.Count)
			}
		}
		w := a.Writes("v")
		if len(w) != 2 || w[0].Node != "n1" || w[0].Accepted != 200 || w[1].Accepted != 100 {
			t.Errorf("writes: %+v", w)
		}
	})
}

func useDirectly(t *testing.T, a *Array, nodeID string) {
	t.Helper()
	must(t, a.AddMachine(nodeID))
	ctx, c, n := context.Background(), &controller{array: a}, &nodeService{array: a, nodeID: nodeID}
	dir := t.TempDir()
	_, err := c.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: nodeID, VolumeCapability: mountCap(single)})
	must(t, err)
	_, err = n.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: dir, VolumeCapability: mountCap(single)})
	must(t, err)
	_, err = n.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{
		VolumeId: "v", StagingTargetPath: dir, TargetPath: dir + "/pod", VolumeCapability: mountCap(single),
	})
	must(t, err)
}
