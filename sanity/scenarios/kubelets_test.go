package scenarios

import (
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/facts"
)

var writeAnswers = flag.Bool("answers", false, "TestKubelets: write down what kubelets do now")

const answersFile = "../realnode/facts/answers.json"

// TestKubelets asks real and hollow kubelets what package facts has written down of
// them. Nothing of csi-fencepost is there.
func TestKubelets(t *testing.T) {
	if !*beyond {
		t.Skip("make test has no time for these: make real")
	}
	recorded, err := facts.Recorded()
	if err != nil && !*writeAnswers {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now := facts.Answers{Kubernetes: shared.programs.ControlPlane.Version, Real: maps.Clone(recorded.Real), Hollow: maps.Clone(recorded.Hollow)}
	t.Run("ask", func(t *testing.T) {
		for _, f := range facts.Kubelet {
			ask := situations[f.Name]
			if ask == nil {
				t.Errorf("nobody knows how to bring about %q", f.Name)
				continue
			}
			for _, kind := range []struct {
				name       string
				options    bed.StageOptions
				said, says map[string]facts.State
			}{
				{"real", bed.StageOptions{Real: true}, recorded.Real, now.Real},
				{"hollow", bed.StageOptions{Networks: true}, recorded.Hollow, now.Hollow},
			} {
				t.Run(f.Name+"/"+kind.name, func(t *testing.T) {
					t.Parallel()
					o := kind.options
					o.Alone, o.Nodes, o.Array, o.GivesDeviceBack = true, 1, holding, f.Name == "gone-held"
					p := &play{Stage: sharedBed(t).Stage(t, "k"+kind.name[:1]+"-"+f.Name, o), t: t}
					got := p.ask(ask)
					t.Logf("a kubelet that %s: %s", f.Situation, got)
					mu.Lock()
					defer mu.Unlock()
					kind.says[f.Name] = got
					if was := kind.said[f.Name]; got != was && !*writeAnswers {
						t.Errorf("%s, and it is written down that it is %s", got, was)
					}
				})
			}
		}
	})
	if !*writeAnswers || t.Failed() {
		return
	}
	text, err := json.MarshalIndent(now, "", " ")
	if err == nil {
		err = os.WriteFile(answersFile, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// situations bring about what a fact is of.
var situations = map[string]func(p *play, v *bed.Volume, db *bed.Pod, n *bed.Node){
	"killed": func(_ *play, _ *bed.Volume, _ *bed.Pod, n *bed.Node) { n.KillKubelet() },
	"back": func(_ *play, _ *bed.Volume, _ *bed.Pod, n *bed.Node) {
		n.KillKubelet()
		n.StartKubelet()
	},
	"back-unlisted": func(_ *play, v *bed.Volume, _ *bed.Pod, n *bed.Node) {
		n.KillKubelet()
		n.Unlist(v)
		n.StartKubelet()
	},
	"back-deleted": func(p *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		n.KillKubelet()
		n.Unlist(v)
		n.StartKubelet()
		p.WaitFor(30*time.Second, "it lists the volume", func() bool { inUse, _ := n.Lists(v); return inUse })
		p.settled(n)
		db.Terminate()
	},
	"gone": func(_ *play, _ *bed.Volume, db *bed.Pod, n *bed.Node) {
		n.KillKubelet()
		db.ForceDelete()
		n.StartKubelet()
	},
	"gone-hung": func(p *play, _ *bed.Volume, db *bed.Pod, n *bed.Node) { p.outlived(db, n) },
	"gone-held": func(p *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		if !n.Real() {
			v.Staged(n)
		}
		p.outlived(db, n)
	},
	"lost": func(_ *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		n.KillKubelet()
		db.ForceDelete()
		n.StartKubeletForgetting(v)
	},
	"lost-stuck": func(_ *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		v.Busy(n)
		n.KillKubelet()
		db.ForceDelete()
		n.StartKubeletForgetting(v)
	},
	"deleted": func(_ *play, _ *bed.Volume, db *bed.Pod, _ *bed.Node) { db.Terminate() },
	"forced":  func(_ *play, _ *bed.Volume, db *bed.Pod, _ *bed.Node) { db.ForceDelete() },
	"stuck": func(_ *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		v.Busy(n)
		db.ForceDelete()
	},
	"staged": func(_ *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		began := time.Now()
		v.Staged(n)
		db.Terminate()
		v.WaitCalled("NodeUnstageVolume", n, began, 60*time.Second)
		n.KillKubelet()
		n.StartKubelet()
	},
	"back-detach": func(p *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		p.StopAttacher() // so that the detach is not over
		db.Terminate()
		v.WaitDetaching(n, 90*time.Second)
		n.ListAttached(v)
		p.Pod("back", n, v)
	},
	"boot-detach": func(p *play, v *bed.Volume, db *bed.Pod, n *bed.Node) {
		p.StopAttacher()
		v.DeleteAttachment(n)
		n.PowerOff()
		n.Boot()
	},
	"partitioned": func(_ *play, _ *bed.Volume, db *bed.Pod, n *bed.Node) {
		n.Partition()
		db.ForceDelete()
	},
	"healed": func(p *play, _ *bed.Volume, db *bed.Pod, n *bed.Node) {
		p.partition(n)
		db.ForceDelete()
		p.heals(n)
	},
	"rebooted": func(_ *play, _ *bed.Volume, _ *bed.Pod, n *bed.Node) {
		n.PowerOff()
		n.Boot()
	},
	"rebooted-gone": func(_ *play, _ *bed.Volume, db *bed.Pod, n *bed.Node) {
		n.PowerOff()
		db.ForceDelete()
		n.Boot()
	},
}

// ask brings a situation about and says what is so when it has settled.
func (p *play) ask(situation func(*play, *bed.Volume, *bed.Pod, *bed.Node)) (now facts.State) {
	p.t.Helper()
	v, n := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0]
	db := p.Pod("db", n, v)
	db.WaitRunning(90 * time.Second)
	p.mustWriteOn(v, n)
	p.settled(n)
	ctx, settled := context.WithCancel(p.t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			now.InUse, _ = n.Lists(v) // first: what is mounted after that was then, too
			now.Mounted = v.MountedOn(n)
			now.Forgotten = now.Forgotten || now.Mounted && !now.InUse
		}
	})
	situation(p, v, db, n)
	time.Sleep(30 * time.Second) // a kubelet writes its status every 10 s at the latest
	settled()
	watching.Wait()
	now.Writes = v.Writing(n) || n.Real() && v.Told(n)
	return now
}
