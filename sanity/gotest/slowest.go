package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// shown is how many of the slowest are shown.
const shown = 10

// slowest lists them, a line for each.
func slowest(all []took) string {
	all = slices.DeleteFunc(slices.Clone(all), func(t took) bool { return t.seconds == 0 })
	slices.SortFunc(all, func(a, b took) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), strings.Compare(a.name, b.name))
	})
	var out strings.Builder
	for _, t := range all[:min(shown, len(all))] {
		fmt.Fprintf(&out, "%8.1f s  %s\n", t.seconds, t.name)
	}
	return out.String()
}
