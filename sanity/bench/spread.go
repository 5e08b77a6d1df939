package main

import (
	"fmt"
	"slices"
)

// spread is what several rounds found of one figure. Half of the rounds lie
// between low and high.
type spread struct{ median, least, low, high, most float64 }

func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return spread{median: (sorted[(n-1)/2] + sorted[n/2]) / 2, least: sorted[0], low: sorted[(n-1)/4], high: sorted[n-1-(n-1)/4], most: sorted[n-1]}
}

// tooWide is how many times its low its high may be before a figure says
// nothing. Least and most do not decide: on a shared machine a single round can
// stand still.
const tooWide = 1.5

// worthless tells whether the rounds disagree so much that the median means
// nothing.
func (s spread) worthless() bool { return s.high > tooWide*s.low }

// text writes the figure with its spread, marked where it is worthless.
func (s spread) text(digits int) string {
	mark := ""
	if s.worthless() {
		mark = " " + worthlessMark
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)%s", digits, s.median, digits, s.least, digits, s.most, mark)
}

const worthlessMark = "⚠"

// alternate measures every path once in each round, and begins each round with
// another one. found[i] are path i's samples, one of each round.
func alternate[P, S any](rounds int, paths []P, measure func(P) (S, error)) (found [][]S, err error) {
	found = make([][]S, len(paths))
	for round := range rounds {
		for k := range paths {
			i := (round + k) % len(paths)
			s, err := measure(paths[i])
			if err != nil {
				return nil, err
			}
			found[i] = append(found[i], s)
		}
	}
	return found, nil
}

// figures takes one figure of each sample.
func figures[S any](samples []S, of func(S) float64) spread {
	var list []float64
	for _, s := range samples {
		list = append(list, of(s))
	}
	return spreadOf(list)
}

// ratios takes one figure of each sample in proportion to that of another path's
// sample of the same round.
func ratios[S any](samples, base []S, of func(S) float64) spread {
	var list []float64
	for round, s := range samples {
		list = append(list, of(s)/of(base[round]))
	}
	return spreadOf(list)
}

// differences takes what one figure of each sample is more than that of another
// path's sample of the same round.
func differences[S any](samples, base []S, of func(S) float64) spread {
	var list []float64
	for round, s := range samples {
		list = append(list, of(s)-of(base[round]))
	}
	return spreadOf(list)
}
