package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
)

// tally counts outcomes by fate.
type tally map[fate]int

func (t tally) add(o outcome) { t[o.Fate]++ }

// tried are the mutants that can be run at all.
func (t tally) tried() int {
	return t[killed] + t[endless] + t[survived]
}

// report puts the figures, and the survivors with their reasons, into a result.
func report(r *result.Result, chosen []target, runs []kept, reasons map[string]string) {
	all, each := tally{}, map[string]tally{}
	var outcomes []outcome
	for _, k := range runs {
		outcomes = append(outcomes, k.Outcomes...)
	}
	for _, o := range outcomes {
		all.add(o)
		folder := folderOf(o.File)
		if each[folder] == nil {
			each[folder] = tally{}
		}
		each[folder].add(o)
	}
	r.Seconds = time.Since(r.Began).Seconds()
	r.Add("mutants that compile", float64(all.tried()), "mutants")
	r.Add("killed by a test", float64(all[killed]), "mutants")
	r.Add("killed by a time limit", float64(all[endless]), "mutants")
	r.Add("survived", float64(all[survived]), "mutants")
	r.Add("proposed, but do not compile", float64(all[unbuilt]), "mutants")
	for i, t := range chosen {
		n, when := each[t.Folder], ""
		if runs[i].Reused {
			when = " (tried " + runs[i].When.Format("2006-01-02 15:04") + " UTC, nothing has changed since)"
		}
		r.Add(t.Folder+", mutants"+when, float64(n.tried()), "mutants")
		r.Add(t.Folder+", left", float64(n[survived]), "mutants")
	}
	said := map[string]bool{}
	for _, o := range outcomes {
		if reason := reasons[o.key()]; o.Fate == survived && reason != "" && !said[o.key()] {
			said[o.key()] = true
			r.Left = append(r.Left, fmt.Sprintf("%s, %s: `%s` as `%s`: %s", o.File, o.Func, o.Old, o.New, reason))
		}
	}
	for _, t := range targets {
		if each[t.Folder] != nil && !t.Guards {
			r.Left = append(r.Left, fmt.Sprintf("package %s: only its operators were changed, no guard was taken out", t.Folder))
		}
		if each[t.Folder] == nil {
			r.Left = append(r.Left, fmt.Sprintf("package %s was not mutated (`go run ./sanity/mutants -only=%s`)", t.Folder, t.Folder))
		}
	}
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
