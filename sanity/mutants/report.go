package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

// report puts the figures, and the survivors with their reasons, into a result.
func report(r *result.Result, chosen []target, runs []kept, reasons map[string]string) {
	all := kept{Fates: map[fate]int{}}
	for _, k := range runs {
		for f, n := range k.Fates {
			all.Fates[f] += n
		}
		all.Survivors = append(all.Survivors, k.Survivors...)
	}
	r.Seconds = time.Since(r.Began).Seconds()
	r.Add("mutants that compile", float64(all.compiled()), "mutants")
	r.Add("killed by a test", float64(all.Fates[killed]), "mutants")
	r.Add("killed by a time limit", float64(all.Fates[endless]), "mutants")
	r.Add("survived", float64(all.Fates[survived]), "mutants")
	r.Add("proposed, but do not compile", float64(all.Fates[unbuilt]), "mutants")
	for i, t := range chosen {
		when := ""
		if runs[i].Reused {
			when = " (tried " + runs[i].When.Format("2006-01-02 15:04") + " UTC, nothing has changed since)"
		}
		r.Add(t.Folder+", mutants"+when, float64(runs[i].compiled()), "mutants")
		r.Add(t.Folder+", left", float64(runs[i].Fates[survived]), "mutants")
	}
	for _, o := range all.Survivors {
		if reason := reasons[o.key()]; reason != "" {
			r.Left = append(r.Left, fmt.Sprintf("%s, %s, %s: `%s`%s: %s", folderOf(o.File), o.Func, o.Operator, o.Of, o.nth(), reason))
		}
	}
	for _, t := range targets {
		was := slices.ContainsFunc(chosen, func(c target) bool { return c.Folder == t.Folder })
		if was && !t.Guards {
			r.Left = append(r.Left, fmt.Sprintf("package %s: only its operators were changed, no guard was taken out", t.Folder))
		}
		if !was {
			r.Left = append(r.Left, fmt.Sprintf("package %s was not mutated (`go run ./sanity/mutants -only=%s`)", t.Folder, t.Folder))
		}
	}
}

// notMutated says which packages no target names.
func notMutated(packages []string, targets []target) (left []string) {
	for _, folder := range packages {
		if !slices.ContainsFunc(targets, func(t target) bool { return t.Folder == folder }) {
			left = append(left, fmt.Sprintf("package %s is not mutated at all: sanity/mutants/target.go does not name it", folder))
		}
	}
	return left
}

// heldAgainst says whose tests have to notice a mutant.
func heldAgainst(targets []target) string {
	var all []string
	for _, t := range targets {
		if slices.Contains(folders(append(slices.Clone(t.Tests), t.Then...)), simulated) {
			all = append(all, t.Folder)
		}
	}
	return "mutants are held against the unit tests of the packages that target.go names for each, and not against model or scenarios; held against the simulation: " +
		cmp.Or(strings.Join(all, ", "), "none")
}

// writeAll writes what became of each mutant, for who wants to look.
func writeAll(path string, outcomes []outcome) error {
	var text strings.Builder
	for _, o := range outcomes {
		fmt.Fprintf(&text, "%s %s (%.1f s): %s\n", o.Fate, o.By, o.Seconds, o.mutant)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

// conclude prints the figures and fails if anything is wrong.
func conclude(out io.Writer, r result.Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range r.Figures {
		fmt.Fprintf(table, "%s\t%.0f\n", f.Name, f.Value)
	}
	table.Flush()
	fmt.Fprintf(out, "%.0f s\n", r.Seconds)
	if len(r.Failures) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(r.Failures), strings.Join(r.Failures, "\n"))
	}
	return nil
}
