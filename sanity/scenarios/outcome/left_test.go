package outcome

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// played at a commit, so many days after the first day.
func at(commit string, days int, more func(*Outcome)) func(*Outcome) {
	return func(o *Outcome) {
		o.Commit, o.Began = commit, day.AddDate(0, 0, days)
		if more != nil {
			more(o)
		}
	}
}

func TestTheCommitsOfTheOutcomesAreCounted(t *testing.T) {
	b := book(t,
		of("one", at("bbb", 3, nil)),
		of("one", at("bbb", 5, func(o *Outcome) { o.Alone = true })),
		of("three", at("aaa+", 1, nil)),
		of("one", at("ccc", 4, func(o *Outcome) { o.Kubernetes = "v0.9.0" })),
		// What the page does not show does not count.
		of("one", at("ddd", 0, func(o *Outcome) { o.Clocks = Short })),
		of("one", at("eee", 9, func(o *Outcome) { o.Kubernetes = "v1.0.0" })),
		of("two", at("fff", 9, func(o *Outcome) { o.Alone = true })))
	var got []string
	for _, c := range page().Commits(b) {
		got = append(got, fmt.Sprint(c, ": ", c.Outcomes))
	}
	if want := "aaa+, 2026-03-05: 1; bbb, 2026-03-07 to 2026-03-09: 2; ccc, 2026-03-08: 1"; strings.Join(got, "; ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "; "), want)
	}
	if left := page().Left(b)[0]; !strings.Contains(left, "the oldest for aaa+ of 2026-03-05, the newest for bbb of 2026-03-09; ") {
		t.Errorf("it says %s", left)
	}
	if got := (AtCommit{Commit: "a", First: day, Last: day.Add(time.Hour)}).String(); got != "a, 2026-03-04" {
		t.Errorf("one day is %s", got)
	}
}

func TestWhatWasNotPlayedIsLeftOnEachOtherKubernetesToo(t *testing.T) {
	var everything []Outcome
	for _, version := range page().Versions() {
		for _, story := range []string{"one", "two", "three"} {
			for _, alone := range []bool{false, true} {
				if !alone || story != "two" {
					everything = append(everything, of(story, func(o *Outcome) { o.Kubernetes, o.Alone = version, alone }))
				}
			}
		}
	}
	if left := page().Left(book(t, everything...)); len(left) != 1 {
		t.Errorf("everything was played, and left are %q", left)
	}
	some := book(t, of("one", nil), of("two", func(o *Outcome) { o.Kubernetes = "v0.9.0" }), of("three", func(o *Outcome) { o.Kubernetes = "v0.9.0" }))
	left := strings.Join(page().Left(some), "\n")
	for _, want := range []string{
		"4 plays on Kubernetes v1.2.3 are still to come: one (alone), two, three, three (alone)",
		"on Kubernetes v1.3.0 0 of 3 stories were played with csi-fencepost (none), and 0 of 2 with Kubernetes alone (none); ",
		"on Kubernetes v0.9.0 2 of 3 stories were played with csi-fencepost (two, three), and 0 of 2 with Kubernetes alone (none); ",
	} {
		if !strings.Contains(left, want) {
			t.Errorf("it does not say %q:\n%s", want, left)
		}
	}
}
