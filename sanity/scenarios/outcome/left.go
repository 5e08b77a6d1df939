package outcome

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AtCommit are the outcomes that were played at one commit, of those that the page
// shows.
type AtCommit struct {
	Commit      string
	First, Last time.Time
	Outcomes    int
}

// String says which commit and when: "1b7d84f, 2026-11-21".
func (a AtCommit) String() string {
	first, last := a.First.UTC().Format(time.DateOnly), a.Last.UTC().Format(time.DateOnly)
	if first != last {
		first += " to " + last
	}
	return a.Commit + ", " + first
}

// Commits are those that the page's outcomes were played at, the one that was played
// first ahead.
func (p Page) Commits(b *Book) []AtCommit {
	var all []AtCommit
	for _, o := range p.shown(b) {
		i := slices.IndexFunc(all, func(a AtCommit) bool { return a.Commit == o.Commit })
		if i < 0 {
			i, all = len(all), append(all, AtCommit{Commit: o.Commit, First: o.Began, Last: o.Began})
		}
		a := &all[i]
		a.Outcomes++
		if o.Began.Before(a.First) {
			a.First = o.Began
		}
		if o.Began.After(a.Last) {
			a.Last = o.Began
		}
	}
	slices.SortFunc(all, func(x, y AtCommit) int {
		return cmp.Or(x.First.Compare(y.First), strings.Compare(x.Commit, y.Commit))
	})
	return all
}

// shown are the outcomes that the page shows.
func (p Page) shown(b *Book) (all []Outcome) {
	for _, version := range p.Versions() {
		for _, s := range p.stories() {
			for _, alone := range []bool{false, true} {
				if o, ok := b.Find(s.Name, alone, version); ok && !(alone && s.GuardedOnly) {
					all = append(all, o)
				}
			}
		}
	}
	return all
}

// Versions of Kubernetes that the page has tables of, in their order.
func (p Page) Versions() []string {
	all := []string{p.Measured}
	for _, v := range p.Others {
		all = append(all, v.Kubernetes)
	}
	return all
}

func (p Page) stories() (all []Story) {
	for _, c := range p.Chapters {
		all = append(all, c.Stories...)
	}
	return all
}

// Left says what the outcomes do not show: which are of older commits than others,
// and what was not played.
func (p Page) Left(b *Book) (left []string) {
	if all := p.Commits(b); len(all) > 0 {
		oldest := all[0]
		newest := slices.MaxFunc(all, func(x, y AtCommit) int { return x.Last.Compare(y.Last) })
		left = append(left, fmt.Sprintf("each outcome holds for the commit that was played (\"+\": with changes that were not committed), the oldest for %s, the newest for %s; what has changed since then was not played",
			oldest.first(), newest.last()))
	}
	if known := p.knownNames(); len(known) > 0 {
		left = append(left, fmt.Sprintf("%d stories are known to fail with csi-fencepost, each stuck for the reason in its row: %s", len(known), strings.Join(known, ", ")))
	}
	if c := p.Count(b, p.Measured); len(c.Missing) > 0 {
		left = append(left, fmt.Sprintf("%d plays on Kubernetes %s are still to come: %s", len(c.Missing), p.Measured, strings.Join(c.Missing, ", ")))
	}
	for _, v := range p.Others {
		if c := p.Count(b, v.Kubernetes); len(c.Missing) > 0 {
			left = append(left, fmt.Sprintf("on Kubernetes %s %d of %d stories were played with csi-fencepost (%s), and %d of %d with Kubernetes alone (%s); what is true of the others there is not known",
				v.Kubernetes, c.Guarded.Played, c.Stories, p.playedOn(b, v.Kubernetes, false), c.Alone.Played, c.Stories-c.GuardedOnly, p.playedOn(b, v.Kubernetes, true)))
		}
	}
	return left
}

func (a AtCommit) first() string { return a.Commit + " of " + a.First.UTC().Format(time.DateOnly) }
func (a AtCommit) last() string  { return a.Commit + " of " + a.Last.UTC().Format(time.DateOnly) }

// playedOn names the stories that were.
func (p Page) playedOn(b *Book, version string, alone bool) string {
	var names []string
	for _, s := range p.stories() {
		if _, ok := b.Find(s.Name, alone, version); ok && !(alone && s.GuardedOnly) {
			names = append(names, s.Name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
