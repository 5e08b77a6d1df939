// Package nearest finds what a mistyped name may have meant.
package nearest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// most names are worth telling.
const most = 3

// Names are up to three of among that are at most within from name, the nearest
// first, those that are equally far by the alphabet. Of each only what stands before
// a space is compared.
func Names(name string, among []string, within int) []string {
	far := map[string]int{}
	for _, full := range among {
		bare, _, _ := strings.Cut(full, " ")
		if d := distance(name, bare); d <= within {
			far[full] = d
		}
	}
	near := slices.SortedFunc(maps.Keys(far), func(a, b string) int {
		return cmp.Or(cmp.Compare(far[a], far[b]), strings.Compare(a, b))
	})
	return near[:min(most, len(near))]
}

// distance is the number of bytes to change, to add or to take away (Levenshtein's).
// Of two names of which one contains the other it is 1 at most: much of the name was
// left out, or taken along. Two bytes are contained in too many names to count.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	if min(len(a), len(b)) > 2 && (strings.Contains(a, b) || strings.Contains(b, a)) {
		return min(row[len(b)], 1)
	}
	return row[len(b)]
}
