package guard

import (
	"slices"
	"testing"
)

func TestVolumesUnderWayAreListedInOrder(t *testing.T) {
	g := New(Options{})
	want := []string{"a", "b", "c", "d", "e"}
	for _, volume := range want {
		g.lock(volume)
	}
	for range 20 { // not by chance
		if got := g.UnderWay(); !slices.Equal(got, want) {
			t.Fatalf("under way: %q, want %q", got, want)
		}
	}
}
