package main

import "fmt"

// A goal is what this project set out to reach, and what came of it.
type goal struct {
	What, Wanted, Measured string
	Reached                bool
}

// limit is a goal that is reached by staying at it or below.
func (b *bench) limit(what string, most, measured float64, unit string) {
	b.goals = append(b.goals, goal{What: what, Wanted: fmt.Sprintf("at most %.4g %s", most, unit), Measured: fmt.Sprintf("%.1f %s", measured, unit), Reached: measured <= most})
}

// least is a goal that is reached by being at it or above.
func (b *bench) least(what string, least, measured float64, unit string) {
	b.goals = append(b.goals, goal{What: what, Wanted: fmt.Sprintf("at least %.4g %s", least, unit), Measured: fmt.Sprintf("%.1f %s", measured, unit), Reached: measured >= least})
}

var goalColumns = []string{"section", "goal", "wanted", "measured", "reached"}

// goalRows are those of all sections, for the top of the page.
func goalRows(all []result) (rows [][]string) {
	for _, r := range all {
		for _, g := range r.Goals {
			reached := "**no**"
			if g.Reached {
				reached = "yes"
			}
			rows = append(rows, []string{fmt.Sprintf("[%s](#%s)", r.Section, r.Section), g.What, g.Wanted, g.Measured, reached})
		}
	}
	return rows
}
