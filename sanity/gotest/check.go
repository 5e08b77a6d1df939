package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// rigs take longer than an edit loop has: whoever imports one, in its tests too,
// is left out. batch is how many packages go test is given at once.
var rigs = []string{"sanity/controlplane", "sanity/bed", "sanity/machine", "sanity/bmc", "sanity/model", "sanity/mutants", "sanity/kubeapi", "sanity/prove", "sanity/agents", "deploy/image"}

// despite import one, but start none.
var despite = []string{"fence/failover", "sanity/prove"}

// explored is left out of every package: it takes what time it is given.
const explored = "^TestSimulation"

const batch = 4

// check lints and tests what changed, and what imports it.
func check(ctx context.Context, out io.Writer, within time.Duration) error {
	began := time.Now()
	files, err := changedFiles(ctx)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	all, err := listed(ctx)
	if err != nil {
		return err
	}
	far := distances(all, root, files)
	if len(far) == 0 {
		fmt.Fprintln(out, "Nothing with Go in it has changed.")
		return nil
	}
	if err := lint(ctx, out, files, all, far); err != nil {
		return err
	}
	now, left := choose(all, far)
	r := newReport(out)
	for i := 0; i < len(now) && ctx.Err() == nil; i += batch {
		if far[modulePath+strings.TrimPrefix(now[i], "./")] > 0 && time.Since(began) > within {
			left = append(left, now[i:]...)
			break
		}
		words := append([]string{"-skip=" + explored}, now[i:min(i+batch, len(now))]...)
		err = errors.Join(err, r.goTest(ctx, words))
	}
	r.close()
	slices.Sort(left)
	if len(left) > 0 {
		fmt.Fprintf(out, "\nNOT TESTED, make test does: %s, and the simulation\n", strings.ReplaceAll(strings.Join(left, " "), "./", ""))
	}
	return err
}

// lint looks at the changed files, the changed packages, and at whether what
// imports them still compiles.
func lint(ctx context.Context, out io.Writer, files []string, all map[string]*pkg, far map[string]int) error {
	var ours []string
	for _, file := range files {
		if _, err := os.Stat(file); err == nil && strings.HasSuffix(file, ".go") {
			ours = append(ours, file)
		}
	}
	if len(ours) > 0 {
		unformatted, err := exec.CommandContext(ctx, "gofmt", append([]string{"-l"}, ours...)...).CombinedOutput()
		if err != nil || len(unformatted) > 0 {
			return fmt.Errorf("not formatted, run make fmt:\n%s", unformatted)
		}
	}
	changed, near := within(far, 0), within(far, 1<<10)
	for _, tool := range []string{"go vet", "bin/staticcheck"} {
		of := near
		if tool != "go vet" {
			of = changed
		}
		words := append(strings.Fields(tool), of...)
		command := exec.CommandContext(ctx, words[0], words[1:]...)
		command.Stdout, command.Stderr = out, out
		fmt.Fprintf(out, "+ %s, of %d packages\n", tool, len(of))
		if err := command.Run(); err != nil {
			return fmt.Errorf("%s: %w", tool, err)
		}
	}
	return nil
}

// within are the packages that are at most so far from what changed, the nearest
// first.
func within(far map[string]int, most int) (names []string) {
	for name, d := range far {
		if d <= most {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(far[a]-far[b], strings.Compare(a, b)) })
	return names
}

// choose parts the packages that have tests into those that are tested here, in
// that order, and those that are left out.
func choose(all map[string]*pkg, far map[string]int) (now, left []string) {
	for _, name := range within(far, 1<<10) {
		p := all[name]
		switch {
		case !p.tested():
		case slow(all, name):
			left = append(left, "./"+short(name))
		default:
			now = append(now, "./"+short(name))
		}
	}
	return now, left
}

// slow tells whether its tests are made of a rig.
func slow(all map[string]*pkg, name string) bool {
	if slices.Contains(despite, short(name)) {
		return false
	}
	seen := map[string]bool{}
	todo := slices.Concat([]string{name}, all[name].TestImports, all[name].XTestImports)
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		if slices.Contains(rigs, short(next)) {
			return true
		}
		if p := all[next]; p != nil && !seen[next] {
			seen[next] = true
			todo = append(todo, p.Imports...)
		}
	}
	return false
}
