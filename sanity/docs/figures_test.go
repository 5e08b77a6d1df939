package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// measured are the pages of prose that tell what was measured, and the pages that the
// measurements wrote, of which they have it.
var measured = map[string][]string{
	"docs/bench.md": {"sanity/bench/RESULTS.md", "sanity/soak/RESULTS.md"},
	"docs/proof.md": {"sanity/prove/RESULTS.md", "sanity/prove/results/real-nodes.json", "sanity/prove/results/fuzzing.json", "sanity/prove/results/catalogue.json", "sanity/simulate/RESULTS.md", "sanity/README.md"},
}

var (
	number = regexp.MustCompile(`\b[0-9][0-9,]*(?:\.[0-9]+)?\b`)
	date   = regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}`)
)

// numbers of a text, thousands not set apart, dates left out.
func numbers(text string) (all []string) {
	for _, n := range number.FindAllString(date.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(n, ",", ""))
	}
	return all
}

// made are the figures of a page that are in none of the others: nobody measured them, or
// something else was measured since.
func made(t *testing.T, page string, sources []string) (all []string) {
	t.Helper()
	var there []string
	for _, s := range sources {
		there = append(there, numbers(read(t, s))...)
	}
	for _, l := range mustRead(t, page).prose {
		for _, n := range numbers(markdownLink.ReplaceAllString(l.text, "")) {
			if !slices.Contains(there, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

func TestEachFigureOfAPageWasMeasured(t *testing.T) {
	for page, sources := range measured {
		if len(numbers(read(t, page))) < 10 {
			t.Errorf("%s has hardly a figure", page)
		}
		for _, n := range made(t, page, sources) {
			t.Errorf("%s says %s, and none of %v does", page, n, sources)
		}
	}
}

// Against a page of something else few figures hold.
func TestTheCheckOfFiguresFindsWhatNobodyMeasured(t *testing.T) {
	for page := range measured {
		if got, all := made(t, page, []string{"docs/use/runbook.md"}), numbers(read(t, page)); len(got) < len(all)/3 {
			t.Errorf("of %d figures of %s the runbook lacks only %q", len(all), page, got)
		}
	}
}
