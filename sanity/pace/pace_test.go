package pace

import (
	"testing"
	"time"
)

func TestWhatLinuxSaysOfTheCPUs(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"some avg10=0.00 avg60=8.52 avg300=47.93 total=30720009124\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n": 30720009124 * time.Microsecond,
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n":                                                            0,
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n":                                                            0,
		"some avg10=0.00":               0,
		"some avg10=0.00 total=nothing": 0,
		"":                              0,
	} {
		if got := parse([]byte(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestOnlyTheTimeThatTheMachineHadCounts(t *testing.T) {
	for _, c := range []struct{ wall, stalled, want time.Duration }{
		{10 * time.Second, 0, 10 * time.Second},
		{10 * time.Second, 4 * time.Second, 6 * time.Second},
		{10 * time.Second, 9 * time.Second, 2500 * time.Millisecond},
		{10 * time.Second, 11 * time.Second, 2500 * time.Millisecond}, // a rounding of the kernel's
	} {
		if got := counted(c.wall, c.stalled); got != c.want {
			t.Errorf("%s of which %s were waited for a CPU count as %s, want %s", c.wall, c.stalled, got, c.want)
		}
	}
}

func TestASleepLastsAtLeastAsLong(t *testing.T) {
	began, w := time.Now(), Start()
	Sleep(50 * time.Millisecond)
	if counted, wall := w.Counted(), time.Since(began); wall < 50*time.Millisecond || counted > wall {
		t.Errorf("50 ms took %s, of which %s counted", wall, counted)
	}
}
