package sidecar

import (
	"flag"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/simulate"
)

var lasting = flag.Int("lasting", 0, "TestLiveness: how many schedules end with each fault that stays; 0: as many as a few seconds allow")

// smokeLiveness bounds what a test run has for it.
const smokeLiveness = 8 * time.Second

// TestLiveness: one fault stays for ever, and what does not touch it comes right
// (package simulate, liveness.go). What does not is counted: sanity/simulate/RESULTS.md.
func TestLiveness(t *testing.T) {
	until := time.Now().Add(smokeLiveness)
	for n := 0; *lasting > 0 && n < *lasting || *lasting == 0 && time.Now().Before(until); n++ {
		for _, fault := range simulate.Lastings {
			live := simulate.RandomLive(t, partsOfTier1, *firstSeed+uint64(n), fault)
			c := counted[fault]
			if c == nil {
				c = &lived{}
				counted[fault] = c
			}
			c.schedules++
			c.judged += live.Judged
			c.touched += live.Touched
			c.stuck += len(live.Stuck)
			if live.Rule != "" && live.Rule != "stuck" {
				t.Errorf("%s, seed %d: breaks %s: %s\n%s", fault, live.Seed, live.Rule, live.Violation, live.Script())
			}
			if live.Helped {
				c.helped++
			}
			if live.Rule == "stuck" {
				c.restless++
			}
			for _, text := range live.Stuck {
				t.Logf("%s, seed %d: %.400s", fault, live.Seed, text)
			}
		}
	}
	for _, fault := range simulate.Lastings {
		c := counted[fault]
		t.Logf("%s: %d schedules, %d volumes judged, %d touch it, %d do not come right, %d schedules need a person who deletes, reboots or releases, %d do not come to rest", fault, c.schedules, c.judged, c.touched, c.stuck, c.helped, c.restless)
		if c.judged == 0 {
			t.Errorf("%s: nothing was judged in %d schedules", fault, c.schedules)
		}
	}
}

// lived is what was counted of one fault.
type lived struct{ schedules, judged, touched, stuck, helped, restless int }

var counted = map[simulate.Lasting]*lived{}
