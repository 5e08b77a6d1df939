// Package pace tells a slow machine from a slow program.
//
// A dozen stories at once, each with kubelets and controllers of its own, on a machine that
// others use as well: what takes a second there may take ten, and no promise was broken. A
// limit that is generous enough for that no longer finds what is slow by itself. So what is
// waited for is measured by the time that the machine had for it: Linux says how long some
// program that could have run had to wait for a CPU (Documentation/accounting/psi.rst in its
// sources, "some"), and that time does not count.
package pace

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// crawl bounds what is taken for the machine's: of four seconds one counts, whatever the
// pressure is, so that what never comes is given up.
const crawl = 4

// A Stopwatch counts from Start.
type Stopwatch struct {
	began   time.Time
	stalled time.Duration
}

// Start begins to count.
func Start() Stopwatch { return Stopwatch{time.Now(), stalled()} }

// Counted is the time since Start, less that in which some program waited for a CPU, and at
// least a quarter of it. Where Linux does not tell, it is all the time since Start.
func (w Stopwatch) Counted() time.Duration {
	return counted(time.Since(w.began), stalled()-w.stalled)
}

func counted(wall, stalled time.Duration) time.Duration {
	return max(wall-stalled, wall/crawl)
}

// Sleep returns once d has been counted.
func Sleep(d time.Duration) {
	for w := Start(); ; {
		left := d - w.Counted()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// stalled is how long, since the machine was started, some program that could run had to
// wait for a CPU; zero where Linux does not tell.
func stalled() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	return parse(text)
}

// parse reads "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS", the first line.
func parse(text []byte) time.Duration {
	var micros int64
	some, _, _ := bytes.Cut(text, []byte("\n"))
	if _, total, found := bytes.Cut(some, []byte(" total=")); !found || !bytes.HasPrefix(some, []byte("some ")) {
		return 0
	} else if _, err := fmt.Sscan(string(total), &micros); err != nil {
		return 0
	}
	return time.Duration(micros) * time.Microsecond
}
