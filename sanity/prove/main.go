package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

func main() {
	tool.Main("prove", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

type options struct {
	only         []string
	quick, reuse bool
	fuzztime     time.Duration
	page         string
	// kept is where results are, from one run to the next, keptQuick where those of
	// quick runs are.
	kept, keptQuick string
}

// resultsIn is in the repository: a part takes up to an hour, and what it found
// is good for every checkout of the same sources.
const resultsIn = "sanity/prove/results"

// quickIn is not: what took minutes is never mistaken for what took hours, nor put in
// its place.
const quickIn = "bin/prove/quick"

const (
	pageFile = "sanity/prove/RESULTS.md"
	fuzzFor  = 30 * time.Second
)

func parse(args []string, out io.Writer) (options, error) {
	o := options{kept: resultsIn, keptQuick: quickIn}
	flags := flag.NewFlagSet("prove", flag.ContinueOnError)
	flags.SetOutput(out)
	only := flags.String("only", "", "run these parts only, separated by commas: "+strings.Join(names(), ", "))
	flags.BoolVar(&o.quick, "quick", false, "each part as small as it still says something: minutes instead of hours; the table says so, and no page is written unless -page names it")
	flags.BoolVar(&o.reuse, "reuse", false, "use the results of an earlier run where the command is the same and no source file that they are made of has changed since; the table says so")
	flags.DurationVar(&o.fuzztime, "fuzztime", fuzzFor, "how long each fuzz target runs")
	flags.StringVar(&o.page, "page", pageFile, "the page to write, if every part has a result; empty: none")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	named := false
	flags.Visit(func(f *flag.Flag) { named = named || f.Name == "page" })
	if o.quick && !named {
		o.page = ""
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return o, fmt.Errorf("-only: there is no part %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	here, err := whereAndWhat(ctx)
	if err != nil {
		return err
	}
	var all []outcome
	for _, p := range parts {
		if len(o.only) > 0 && !o.reuse && !slices.Contains(o.only, p.name) {
			continue
		}
		all = append(all, p.prove(ctx, o, here, out))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := printTable(out, here, all); err != nil {
		return err
	}
	if err := writePage(o, here, all, out); err != nil {
		return err
	}
	if !o.quick {
		if err := writeSummary(proofPage, o.kept); err != nil {
			return err
		}
	}
	return verdict(all)
}

// writePage writes the page if each part has a result, and says why it does not.
func writePage(o options, here place, all []outcome, out io.Writer) error {
	switch {
	case o.quick && o.page == "":
		fmt.Fprintf(out, "\nNo page was written: of a quick run only if -page names it.\n")
	case o.page == "":
	case len(all) < len(parts) || slices.ContainsFunc(all, func(o outcome) bool { return o.result == nil }):
		fmt.Fprintf(out, "\n%s was not written: a part has no result.\n", o.page)
	default:
		if err := os.WriteFile(o.page, page(here, all), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "\nWritten to %s.\n", o.page)
	}
	return nil
}

// verdict is an error that names each part that failed or is missing.
func verdict(all []outcome) error {
	var bad []string
	for _, o := range all {
		if o.fault() != "" {
			bad = append(bad, o.part.name+": "+o.fault())
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("the case does not hold:\n%s", strings.Join(bad, "\n"))
	}
	return nil
}
