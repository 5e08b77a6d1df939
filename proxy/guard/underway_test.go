package guard

import (
	"slices"
	"testing"
)

func TestVolumesUnderWayAreListedInOrder(t *testing.T) {
	g := New(Options{})
	want := []string{"a", "b", "c", "d", "e"}
	for _, volume := range want {
		g.lock(volume, CallPublish)
	}
	for range 20 { // not by chance
		if got := g.UnderWay(); !slices.Equal(got, want) {
			t.Fatalf("under way: %q, want %q", got, want)
		}
	}
}

// What is judged has not been written down yet.
func TestAPublishForManyWaitsForOneThatIsJudgedAndForNoUnpublish(t *testing.T) {
	g := New(Options{})
	g.lock("a", CallPublish)
	g.lock("b", CallUnpublish)
	if g.lockShared("a") || !g.lockShared("b") {
		t.Error("want it to wait for the publish alone")
	}
}
