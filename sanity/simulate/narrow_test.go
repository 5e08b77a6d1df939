package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// TestNarrowSeedsDrawWhatTheyDrew: what the wide world is given changes no schedule of the
// narrow one, which the proof counts by its seeds.
func TestNarrowSeedsDrawWhatTheyDrew(t *testing.T) {
	sum := sha256.New()
	for seed := range uint64(60) {
		r := Random(t, withoutGuard, seed, false)
		sum.Write([]byte(r.Script()))
	}
	const want = "6186d27b4ca062e1"
	if got := hex.EncodeToString(sum.Sum(nil))[:16]; got != want {
		t.Errorf("the first 60 seeds draw schedules of the sum %s, which was %s", got, want)
	}
}
