package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// The name begins as those of all tests that need ipmi_sim (see sanity/skip.sh).
func TestFailoversInALoopLeaveNothingBehind(t *testing.T) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := controlplane.NoteSources(); err != nil {
		t.Fatal(err)
	}
	o := &options{duration: 66 * time.Second, warmUp: 22 * time.Second, look: time.Second, say: 10 * time.Second, write: 10 * time.Second, failing: 8, calm: 2}
	var soFar []time.Duration
	var looks []int // a look that came late is followed by one in time
	v, err := soak(t, o, func(v *verdict) error {
		soFar, looks = append(soFar, v.ran), append(looks, len(v.looks))
		return nil
	}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if len(soFar) < 2 || looks[0] < 3*minThird || soFar[0] < o.warmUp || soFar[0] > 50*time.Second || v.ran != o.duration {
		t.Errorf("judged after %s, with %d looks, and %s: want it every %s once there are %d looks, and at the end", soFar, looks, v.ran, o.write, 3*minThird)
	}
	var table strings.Builder
	v.print(&table)
	t.Log("\n" + table.String())
	if err := v.err(); err != nil {
		t.Error(err)
	}
}

// thirtyLooks, a second apart, at a soak that goes on.
func thirtyLooks(value func(i int) map[quantity]float64) (looks []look) {
	began := time.Unix(0, 0)
	for i := range 30 {
		k := look{at: began.Add(time.Duration(i) * time.Second), calm: int64(i), failovers: int64(i), events: float64(i), values: map[quantity]float64{}}
		for q, v := range value(i) {
			k.values[q] = v
		}
		looks = append(looks, k)
	}
	return looks
}

func TestWhatIsKeptGrewAndWhatBreathesDidNot(t *testing.T) {
	for _, c := range []struct {
		name  string
		value func(i int) map[quantity]float64
		grew  string
	}{
		{"nothing moves", func(int) map[quantity]float64 { return map[quantity]float64{goroutines: 90, leases: 4} }, ""},
		{"calls under way come and go", func(i int) map[quantity]float64 { return map[quantity]float64{goroutines: 90 + float64(i%3)*20} }, ""},
		{"memory is collected now and then", func(i int) map[quantity]float64 { return map[quantity]float64{heap: 10 + float64(i%10)} }, ""},
		{"a goroutine is left by each loop", func(i int) map[quantity]float64 {
			return map[quantity]float64{goroutines: 90 + float64(i%3)*20 + float64(i)}
		}, "goroutines"},
		{"a Lease for each machine, in time", func(i int) map[quantity]float64 { return map[quantity]float64{leases: float64(i / 7)} }, ""},
		{"one Lease more", func(i int) map[quantity]float64 { return map[quantity]float64{leases: 5 + float64(i/25)} }, "Leases"},
		{"an annotation more than there are volumes", func(i int) map[quantity]float64 { return map[quantity]float64{pvNotes: 3 + float64(i/29)} }, "PersistentVolumes"},
		{"the heap's floor rises", func(i int) map[quantity]float64 { return map[quantity]float64{heap: 10 + float64(i%10) + float64(i)/2} }, "heap"},
		{"a record within its limit", func(i int) map[quantity]float64 { return map[quantity]float64{recordBytes: 500 * float64(i)} }, ""},
		{"a record past its limit", func(i int) map[quantity]float64 { return map[quantity]float64{recordBytes: 2000 * float64(i)} }, "record"},
	} {
		v := newVerdict(thirtyLooks(c.value), 4, 3)
		switch err := v.err(); {
		case c.grew == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.grew != "" && (err == nil || !strings.Contains(err.Error(), c.grew) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: error %v, want one about %s alone", c.name, err, c.grew)
		}
	}
}

func TestEventsThatComeEverFasterGrew(t *testing.T) {
	looks := thirtyLooks(func(int) map[quantity]float64 { return nil })
	if err := newVerdict(looks, 4, 3).err(); err != nil {
		t.Errorf("one each second: %v", err)
	}
	for i := range looks {
		looks[i].events = float64(i * i)
	}
	if err := newVerdict(looks, 4, 3).err(); err == nil || !strings.Contains(err.Error(), "Events") {
		t.Errorf("ever more: error %v", err)
	}
	for i := range looks {
		looks[i].events = float64(500 - i) // the API server drops them after an hour
	}
	if err := newVerdict(looks, 4, 3).err(); err != nil {
		t.Errorf("fewer: %v", err)
	}
}

func TestASoakInWhichNothingHappenedShowsNothing(t *testing.T) {
	looks := thirtyLooks(func(int) map[quantity]float64 { return map[quantity]float64{goroutines: 90} })
	for i := range looks {
		looks[i].failovers = min(looks[i].failovers, 12)
	}
	if err := newVerdict(looks, 4, 3).err(); err == nil || !strings.Contains(err.Error(), "last third") {
		t.Errorf("no failover in the last third: error %v", err)
	}
	if err := newVerdict(looks[:14], 4, 3).err(); err == nil || !strings.Contains(err.Error(), "too few") {
		t.Errorf("14 looks: error %v", err)
	}
}

func TestASoakThatIsTooShortToJudgeIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-duration=1m"}, {"-duration=1m", "-warmup=20s"}} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), "too short") {
			t.Errorf("%s: error %v", args, err)
		}
	}
	o, err := parse([]string{"-duration=3h"})
	if err != nil || o.warmUp != 30*time.Minute {
		t.Errorf("%+v, %v: want a warm-up of half an hour", o, err)
	}
}

func TestThePageSaysWhatGrew(t *testing.T) {
	o := &options{duration: 2 * time.Hour, warmUp: 20 * time.Minute, failing: 8, calm: 2}
	ran := o.duration
	page := func(value func(i int) map[quantity]float64) string {
		v := newVerdict(thirtyLooks(value), 4, 3)
		v.ran, v.kubernetes = ran, "v1.36.3"
		return string(v.page(t.Context(), o, time.Unix(0, 0), "0.50"))
	}
	calm := page(func(int) map[quantity]float64 { return map[quantity]float64{goroutines: 90, heap: 6.69531} })
	for _, want := range []string{"Nothing grew.", "-duration=2h0m0s -warmup=20m0s -failing=8 -calm=2", "1970-01-01 00:00 UTC", "Kubernetes v1.36.3", "load average 0.50", "| goroutines | 90 | 90 | 105 |  |", "| heap in use, MiB | 6.7 | 6.7 |"} {
		if !strings.Contains(calm, want) {
			t.Errorf("a page of nothing that grew lacks %q:\n%s", want, calm)
		}
	}
	leaking := page(func(i int) map[quantity]float64 { return map[quantity]float64{goroutines: 90 + float64(i)} })
	if strings.Contains(leaking, "Nothing grew") || !strings.Contains(leaking, "**It failed:**") || !strings.Contains(leaking, "GREW") {
		t.Errorf("a page of what grew:\n%s", leaking)
	}
	ran = 90*time.Minute + 400*time.Millisecond
	if cut := page(func(int) map[quantity]float64 { return map[quantity]float64{goroutines: 90} }); !strings.Contains(cut, "Nothing grew **so far**: this was written after 1h30m0s of 2h0m0s.") {
		t.Errorf("a page of one that is under way:\n%s", cut)
	}
}
