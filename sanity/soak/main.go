package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

func main() {
	tool.Main("soak", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

// options are the command line's.
type options struct {
	// duration of everything but the start; warmUp of it is not judged.
	duration, warmUp time.Duration
	// look is the pause between two looks, say that between two lines, write that
	// between two pages.
	look, say, write time.Duration
	// failing lanes have a node that loses power in each loop, calm ones only
	// attach, move and detach.
	failing, calm int
	// fencepost is another binary to soak; empty: built from this checkout.
	fencepost string
	// page is the file that the verdict is written to as well, and meanwhile what it
	// would be so far; empty: none.
	page string
	out  io.Writer
}

func parse(args []string) (*options, error) {
	o := &options{out: os.Stdout, say: 30 * time.Second, write: 5 * time.Minute}
	set := flag.NewFlagSet("soak", flag.ContinueOnError)
	set.DurationVar(&o.duration, "duration", 2*time.Hour, "how long it takes, the start not counted")
	set.DurationVar(&o.warmUp, "warmup", 0, "how long of it is not judged; 0: a sixth")
	set.DurationVar(&o.look, "look", 5*time.Second, "pause between two looks")
	set.IntVar(&o.failing, "failing", 8, "how many volumes have a node that loses power")
	set.IntVar(&o.calm, "calm", 2, "how many volumes are only attached, moved and detached")
	set.StringVar(&o.fencepost, "fencepost", "", "soak this `binary` instead of this checkout's")
	set.StringVar(&o.page, "o", "", "write the verdict to this `file` as well, as a page; every five minutes what it would be so far")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if o.warmUp == 0 {
		o.warmUp = o.duration / 6
	}
	switch {
	case set.NArg() > 0:
		return nil, fmt.Errorf("%q is not a flag; soak takes nothing else", set.Arg(0))
	case o.failing < 1 || o.calm < 1 || o.look <= 0:
		return nil, errors.New("-failing, -calm and -look have to be more than 0")
	case o.duration-o.warmUp < 3*loopTakes || o.warmUp < loopTakes:
		return nil, fmt.Errorf("-duration %s with -warmup %s is too short: a loop with a node that loses power takes about %s; give it one to warm up and three to be judged",
			o.duration, o.warmUp, loopTakes)
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	t := bed.NewRun(ctx, nil)
	begun := time.Now()
	load := tool.LoadAverage()
	write := func(v *verdict) error {
		if o.page == "" {
			return nil
		}
		return os.WriteFile(o.page, v.page(ctx, o, begun, load), 0o644)
	}
	var v *verdict
	if err := t.Do(func() error { v, err = soak(t, o, write, os.Stderr); return err }); err != nil {
		return err
	}
	v.print(o.out)
	return errors.Join(write(v), v.err())
}

// soak runs the loops on a control plane of its own, and judges what was seen.
// soFar is given now and then what that would be by then: a soak takes hours, and
// one that is ended before has shown something too.
func soak(t bed.T, o *options, soFar func(*verdict) error, progress *os.File) (*verdict, error) {
	scratch, err := tempdir.New()
	if err != nil {
		return nil, err
	}
	defer scratch.Remove(false)
	g, err := newGround(t, o, scratch.Path, progress)
	if err != nil {
		return nil, err
	}
	return g.soak(t.Context(), o, soFar)
}

// build returns what the control plane and the sidecar are run from. The sidecar
// is the one that is shipped: without crash points.
func build(ctx context.Context, o *options, folder string, progress *os.File) (bed.Programs, error) {
	binaries, err := controlplane.Build(ctx, progress)
	if err != nil {
		return bed.Programs{}, err
	}
	p := bed.Programs{ControlPlane: binaries, Fencepost: o.fencepost}
	if p.Fencepost != "" {
		return p, nil
	}
	p.Fencepost = folder + "/csi-fencepost"
	return p, controlplane.BuildFencepost(ctx, progress, p.Fencepost, controlplane.FencepostBuild{})
}
