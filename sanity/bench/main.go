package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

func main() {
	tool.Main("bench", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

// section is a part of the table that can be asked for alone.
type section struct {
	name, about string
	run         func(*bench, context.Context) error
}

var sections = []section{
	{"pass", "calls that pass through", (*bench).passThrough},
	{"publish", "intercepted calls, forwarded unjudged (proxy.Pass)", (*bench).intercepted},
	{"list", "a large ListVolumes", (*bench).list},
	{"guard", "intercepted calls, judged and allowed", (*bench).guarded},
	{"cycle", "whole attach cycles", (*bench).attachCycles},
	{"memory", "resident memory", (*bench).memory},
	{"scale", "resident memory and start in large clusters", (*bench).scale},
	{"failover", "a node of many volumes loses power", (*bench).failover},
	{"storm", "a rack loses power", (*bench).storms},
	{"backoff", "volumes that were refused for long", (*bench).backoff},
}

// options are the command line's.
type options struct {
	output string
	kept   string
	// rewrite the page, and measure nothing.
	rewrite bool
	only    []string
	also    []binary
	rounds  int
	each    time.Duration
	cycles  int
	// failovers is how often a node loses power, volumes what it has; manager are
	// flags for kube-controller-manager, kinds those of the failovers, beside how
	// many have Kubernetes alone.
	failovers, volumes, beside int
	manager, kinds             []string
	stormOptions
	waitOptions
}

func parse(args []string) (*options, error) {
	o := &options{kinds: kindKeys()}
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.StringVar(&o.output, "o", "", "write the page to this `file` as well, with the sections that were measured before")
	set.StringVar(&o.kept, "results", "sanity/bench/results.json", "with -o, where the `file` with all sections' results is")
	set.IntVar(&o.rounds, "rounds", 21, "how often every path is measured")
	set.DurationVar(&o.each, "each", 200*time.Millisecond, "how long one measurement takes")
	set.IntVar(&o.cycles, "cycles", 11, "how many attach cycles are measured on each side")
	o.failoverFlags(set)
	o.waitFlags(set)
	o.stormFlags(set)
	set.BoolVar(&o.rewrite, "rewrite", false, "measure nothing: write the page of what was measured")
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	set.Func("only", "measure only these `sections`, separated by commas: "+strings.Join(names, ", "), func(text string) error {
		o.only = strings.Split(text, ",")
		for _, name := range o.only {
			if !slices.Contains(names, name) {
				return fmt.Errorf("there is no section %q", name)
			}
		}
		return nil
	})
	set.Func("also", "measure another csi-fencepost beside this one, `name=path`; may be given again", func(text string) error {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" || path == "" {
			return fmt.Errorf("%q is not name=path", text)
		}
		o.also = append(o.also, binary{name, path})
		return nil
	})
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case o.rewrite && o.output == "":
		return nil, errors.New("-rewrite writes a page: name it with -o")
	case set.NArg() > 0:
		return nil, fmt.Errorf("%q is not a flag; bench takes nothing else", set.Arg(0))
	case o.rounds < 1 || o.cycles < 1 || o.each <= 0 || o.failovers < 1:
		return nil, errors.New("-rounds, -cycles, -each and -failovers have to be more than 0")
	case o.volumes < 1 || o.volumes > maxVolumes:
		return nil, fmt.Errorf("-volumes has to be 1 to %d: a kubelet takes 110 pods", maxVolumes)
	}
	return o, o.validStorm()
}

func (o *options) wants(name string) bool { return len(o.only) == 0 || slices.Contains(o.only, name) }

func run(ctx context.Context, args []string) error {
	if isRole, err := runRole(ctx, args); isRole {
		return err
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := o.present(); err != nil {
		return err
	}
	if o.rewrite {
		return o.writePage(nil)
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer b.close()
	if err := controlplane.BuildFencepost(ctx, os.Stderr, b.fencepost[0].path, controlplane.FencepostBuild{}); err != nil {
		return canceled(ctx, err)
	}
	for _, s := range sections {
		if !o.wants(s.name) {
			continue
		}
		b.progress("%s", s.about)
		if err := b.measure(ctx, s); err != nil {
			return err
		}
	}
	fmt.Print(page(b.results))
	return o.writePage(b.results)
}

// writePage writes what was measured now and before, if a page is asked for.
func (o *options) writePage(now []result) error {
	if o.output == "" {
		return nil
	}
	old, err := readResults(o.kept)
	if err != nil {
		return err
	}
	all := merged(old, now)
	return errors.Join(writeResults(o.kept, all), os.WriteFile(o.output, []byte(page(all)), 0o644))
}

// measure runs one section, and notes what it found.
func (b *bench) measure(ctx context.Context, s section) error {
	b.rows, b.notes, b.versions, b.goals = nil, nil, nil, nil
	began, load := time.Now(), tool.LoadAverage()
	if err := s.run(b, ctx); err != nil {
		return canceled(ctx, fmt.Errorf("%s: %w", s.about, err))
	}
	r := result{Section: s.name, Command: b.command(s.name), When: began.UTC().Truncate(time.Second), Took: time.Since(began).Round(time.Second).String(),
		Machine: tool.Machine(), Load: load + ", after " + tool.LoadAverage(), Versions: append([]string{versions(ctx)}, b.versions...), Notes: b.notes, Goals: b.goals}
	for _, row := range b.rows {
		r.Rows = append(r.Rows, row.cells())
	}
	b.results = append(b.results, r)
	return nil
}

func canceled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Canceled
	}
	return err
}

// binary is a csi-fencepost to measure.
type binary struct{ name, path string }

// bench is one run.
type bench struct {
	*options
	folder    string // temporary; sockets, logs, the binary
	scratch   *tempdir.Folder
	fencepost []binary
	started   time.Time
	results   []result
	// Of the section that is measured.
	rows     []row
	notes    []string
	goals    []goal
	versions []string // of what was only known on the way
}

func newBench(o *options) (*bench, error) {
	scratch, err := tempdir.New()
	if err != nil {
		return nil, err
	}
	first := binary{"csi-fencepost", filepath.Join(scratch.Path, "csi-fencepost")}
	return &bench{options: o, scratch: scratch, folder: scratch.Path, fencepost: append([]binary{first}, o.also...), started: time.Now()}, nil
}

func (b *bench) close() { _ = b.scratch.Remove(false) }

// progress says what is being done.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}
