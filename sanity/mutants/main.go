package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/mutants/guards"
	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

const (
	listName   = "sanity/mutants/survivors.txt"
	configName = "sanity/mutants/gremlins/gremlins.yaml"
)

func main() {
	tool.Main("mutants", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

type options struct {
	root, result, all string
	only, guard       string
	match             *regexp.Regexp
	workers           int
	reuse             bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.result, "result", "bin/prove/mutants.json", "where the result goes")
	flags.StringVar(&o.all, "all", "bin/prove/mutants.txt", "where what became of each mutant that was tried now goes")
	flags.StringVar(&o.only, "only", "", "mutate these packages only, by folder, separated by commas; empty: those whose survivors are sorted")
	match := flags.String("match", "", "only mutants in whose text this regular expression is found; then the list of survivors is not held against what is not tried")
	flags.StringVar(&o.guard, "guard", "", "mutate nothing, but play these stories in a copy, each with its guard taken out (sanity/mutants/guards/GUARDS.md), separated by commas")
	flags.IntVar(&o.workers, "workers", 2, "how many mutants are tried at once")
	flags.BoolVar(&o.reuse, "reuse", false, "use what an earlier run made of a package where nothing that it and its tests are made of has changed since; the result says so")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if o.match, err = regexp.Compile(*match); err != nil {
		return fmt.Errorf("-match: %w", err)
	}
	if o.root, err = os.Getwd(); err != nil {
		return err
	}
	if o.guard != "" {
		return playWithout(ctx, o.root, strings.Split(o.guard, ","), out)
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	reasons, err := readSurvivors(filepath.Join(o.root, listName))
	if err != nil {
		return err
	}
	r := result.Result{Part: "mutants", Command: strings.TrimSpace("go run ./sanity/mutants " + strings.Join(args, " ")), Began: time.Now().UTC()}
	runs, err := mutateAll(ctx, o, chosen, out)
	if err != nil {
		return err
	}
	var tried, survivors []outcome
	for _, k := range runs {
		tried, survivors = append(tried, k.tried...), append(survivors, k.Survivors...)
	}
	var whole []string
	if *match == "" {
		for _, t := range chosen {
			whole = append(whole, t.Folder)
		}
	}
	r.Failures = compare(survivors, reasons, whole)
	report(&r, chosen, runs, reasons)
	packages, err := productPackages(o.root)
	if err != nil {
		return err
	}
	r.Left = append(r.Left, notMutated(packages, targets)...)
	r.Left = append(r.Left, heldAgainst(targets))
	if err := writeAll(o.all, tried); err != nil {
		return err
	}
	if err := r.Write(o.result); err != nil {
		return err
	}
	return conclude(out, r)
}

// playWithout plays each story without its guard, one after the other.
func playWithout(ctx context.Context, root string, names []string, out io.Writer) error {
	var all []guards.Guard
	for _, name := range names {
		g, err := guards.Find(name)
		if err != nil {
			return fmt.Errorf("-guard: %w", err)
		}
		all = append(all, g)
	}
	var faults []error
	for _, g := range all {
		if err := g.Play(ctx, root, out); err != nil {
			faults = append(faults, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(faults...)
}

func choose(only string) ([]target, error) {
	var chosen []target
	if only == "" {
		return slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return t.Unsorted }), nil
	}
	for _, folder := range strings.Split(only, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.Folder == strings.Trim(folder, "./") })
		if i < 0 {
			return nil, fmt.Errorf("-only: %s is none of the packages that are mutated (sanity/mutants/target.go)", folder)
		}
		chosen = append(chosen, targets[i])
	}
	return chosen, nil
}

// mutateAll tries the mutants of one target after the other, and keeps what became
// of each target's.
func mutateAll(ctx context.Context, o options, chosen []target, progress io.Writer) ([]kept, error) {
	scratch, err := tempdir.New()
	if err != nil {
		return nil, err
	}
	defer scratch.Remove(false)
	gremlins := filepath.Join(o.root, "bin/gremlins")
	if err := buildGremlins(ctx, o.root, gremlins, progress); err != nil {
		return nil, err
	}
	var all []kept
	for _, t := range chosen {
		c, err := newScratch(ctx, o.root, filepath.Join(scratch.Path, strings.ReplaceAll(t.Folder, "/", "-")), t)
		if err != nil {
			return nil, err
		}
		k, err := mutateOrReuse(ctx, o, c, gremlins, progress)
		if err != nil {
			return nil, err
		}
		all = append(all, *k)
	}
	return all, nil
}

func mutateOrReuse(ctx context.Context, o options, c *scratch, gremlins string, progress io.Writer) (*kept, error) {
	sources, err := c.digest()
	if err != nil {
		return nil, err
	}
	whole, file := o.match.String() == "", keptFile(o.result, c.target)
	if o.reuse && whole {
		if k := readKept(file, sources); k != nil {
			fmt.Fprintf(progress, "%s: as on %s UTC, nothing has changed since\n", c.target.Folder, k.When.Format("2006-01-02 15:04"))
			k.Reused = true
			return k, nil
		}
	}
	began := time.Now().UTC()
	outcomes, err := mutate(ctx, o, c, gremlins, progress)
	if err != nil {
		return nil, err
	}
	k := count(outcomes)
	k.Sources, k.When = sources, began
	if !whole {
		return k, nil
	}
	return k, k.write(file)
}

func mutate(ctx context.Context, o options, c *scratch, gremlins string, progress io.Writer) ([]outcome, error) {
	mutants, err := c.mutants(ctx, gremlins, filepath.Join(o.root, configName))
	if err != nil {
		return nil, err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !o.match.MatchString(m.String()) })
	crew, err := assemble(ctx, c, mutants, o.workers, progress)
	if err != nil {
		return nil, err
	}
	if err := crew.baseline(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%s: %d mutants; the tests take %.1f s\n", c.target.Folder, len(mutants), (crew.limit.tests-slack).Seconds()/3)
	return crew.tryAll(ctx, mutants, progress)
}

// assemble makes the copies that the mutants are tried in.
func assemble(ctx context.Context, c *scratch, mutants []mutant, workers int, progress io.Writer) (*crew, error) {
	all := &crew{plain: []*scratch{c}}
	for i := 1; i < workers; i++ {
		more, err := c.again(fmt.Sprintf("%s-%d", c.folder, i))
		if err != nil {
			return nil, err
		}
		all.plain = append(all.plain, more)
	}
	built, err := c.again(c.folder + "-switched")
	if err != nil {
		return nil, err
	}
	if all.switched, err = built.switchAll(mutants); err != nil {
		return nil, err
	}
	if err := built.buildTests(ctx); err != nil {
		if ctx.Err() == nil {
			fmt.Fprintf(progress, "%s: each mutant is built by itself, which takes longer: %v\n", c.target.Folder, err)
		}
		return all, ctx.Err()
	}
	all.built = built
	return all, nil
}

// tryAll hands the mutants to the workers.
func (c *crew) tryAll(ctx context.Context, mutants []mutant, progress io.Writer) ([]outcome, error) {
	var (
		mu       sync.Mutex
		next     int
		outcomes = make([]outcome, len(mutants))
		errs     = make([]error, len(c.plain))
		done     sync.WaitGroup
	)
	take := func() int { mu.Lock(); defer mu.Unlock(); next++; return next - 1 }
	for w := range c.plain {
		done.Go(func() {
			for i := take(); i < len(mutants) && errs[w] == nil; i = take() {
				outcomes[i], errs[w] = c.try(ctx, w, i+1, mutants[i])
				mu.Lock()
				say(progress, i+1, len(mutants), outcomes[i])
				mu.Unlock()
			}
		})
	}
	done.Wait()
	return outcomes, errors.Join(errs...)
}

// say tells survivors at once, and every so often how far it is.
func say(progress io.Writer, n, of int, o outcome) {
	switch {
	case o.Fate == survived:
		fmt.Fprintf(progress, "  %d/%d survived: %s\n", n, of, o.mutant)
	case n%25 == 0:
		fmt.Fprintf(progress, "  %d/%d\n", n, of)
	}
}
