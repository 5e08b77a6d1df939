package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/bench/blackout"
)

const (
	databases = 20
	// What is promised, from the power's end on. The lease alone takes up to 15 s
	// to tell; the rest is room for a slow machine.
	promisedPublished = 30 * time.Second
	promisedRunning   = 60 * time.Second
	// How much longer Kubernetes alone is watched, and how long in all.
	watchAlone, watchInAll = 2 * time.Minute, 3 * time.Minute
	quickWatchAlone        = 30 * time.Second
)

// race is one telling of the story: databases on a node of their own.
type race struct {
	lane  lane
	stage *bed.Stage
	dbs   *blackout.Databases
	told  map[string]bool
	// when is what has happened so far, found what the oracle saw in all.
	when  blackout.Moments
	found []array.Violation
}

// powerOff tells what happens when the node of 20 databases loses power, and
// nobody gets up. Each telling has machines of its own: the taint that
// csi-fencepost puts on its dead node would help Kubernetes alone as well.
func powerOff(n *bed.Run, b *bed.Bed) error {
	t := newTimeline(os.Stdout)
	races := setUpRaces(n, b)
	t.head()
	for _, r := range races {
		t.say(r.lane, plain, "%d databases (a StatefulSet) run on %s, each with a ReadWriteOnce disk", databases, r.dbs.Old.Name)
	}
	time.Sleep(12 * time.Second) // a lease or two, so that the nodes are known to live

	t.step("Both nodes lose power. Nobody is there, nobody is called.")
	for _, r := range races {
		r.dbs.PowerOff()
	}
	alone, guarded := races[0], races[1]
	follow := func(until func() bool) {
		for !until() {
			if n.Context().Err() != nil {
				n.Fatalf("stopped")
			}
			for _, r := range races {
				r.look(t)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	gone := func() time.Duration { return time.Since(guarded.when.PowerOff) }
	guarded.when = guarded.dbs.Moments()
	follow(func() bool { return len(guarded.when.Running) >= databases || gone() > watchInAll })
	if event := guarded.event(); event != "" {
		t.say(guarded.lane, yellow, "kubectl describe pod %s-0 says of the old one: %s", blackout.Name, event)
	}
	longer := watchAlone
	if b.Clocks == bed.ShortClocks {
		longer = quickWatchAlone
	}
	end := min(gone()+longer, watchInAll)
	follow(func() bool { return gone() > end })
	return raceVerdict(t, alone, guarded)
}

// setUpRaces puts each driver on three machines: with a third of the nodes dead
// the brake maxUnhealthy is as shipped and does not hold.
func setUpRaces(n *bed.Run, b *bed.Bed) []*race {
	var races []*race
	for i, name := range []string{"alone", "guarded"} {
		s := b.Stage(n, name, bed.StageOptions{Alone: name == "alone", Nodes: 3, Failover: true, AttacherArgs: []string{"--worker-threads=100", "--timeout=60s"}})
		fmt.Fprintf(os.Stderr, "%s: 3 kubelets are Ready\n", name)
		levels := ""
		if !s.Options.Alone {
			levels = s.BMCs()
		}
		s.StartFailover(levels, fmt.Sprintf("maxUnhealthy: %d%%", config.Default().Fencing.MaxUnhealthy))
		races = append(races, &race{lane: lane(i + 1), stage: s, told: map[string]bool{}})
	}
	for _, r := range races {
		fmt.Fprintf(os.Stderr, "%s: starting %d databases\n", r.stage.Name, databases)
		r.dbs = blackout.New(r.stage, databases)
	}
	return races
}

// look tells what is new.
func (r *race) look(t *timeline) {
	m := r.dbs.Moments()
	r.when = m
	old := r.dbs.Old.Name
	suspectAfter := observe.SuspectAfter(config.Default().Fencing.SuspectAfter.Duration, nil)
	silent := time.Since(m.LastLease) >= suspectAfter
	if r.lane == guarded {
		r.once(t, "suspected", yellow, silent || !m.Proven.IsZero(), "%s is suspected: its lease is unchanged for %.0f s. Its BMC is asked", old, suspectAfter.Seconds())
		r.once(t, "proven", green, !m.Proven.IsZero(), "PROOF: the BMC of %s reads off%s", old, r.since(m.Proven))
	} else {
		r.once(t, "suspected", dim, silent, "%s has not renewed its lease for %.0f s; Kubernetes waits", old, suspectAfter.Seconds())
	}
	r.once(t, "notready", plain, !m.NotReady.IsZero(), "Kubernetes notices: %s is NotReady%s", old, r.since(m.NotReady))
	r.once(t, "tainted", plain, !m.Tainted.IsZero(), "%s is tainted as out of service", old)
	r.all(t, "deleted", plain, m.Deleted, "pods of the dead node deleted by force: no kubelet can confirm their end")
	r.once(t, "first", green, len(m.Published) > 0, "the first disk is published to another node%s", r.since(earliest(m.Published)))
	r.all(t, "published", green, m.Published, "disks are published elsewhere")
	r.all(t, "running", green, m.Running, "databases run again")
	if r.lane == alone {
		r.stillWaiting(t)
	}
}

// stillWaiting says now and then that nothing has moved.
func (r *race) stillWaiting(t *timeline) {
	gone := time.Since(r.when.PowerOff)
	for at := 30 * time.Second; at <= gone; at += 30 * time.Second {
		key := "waiting " + at.String()
		r.once(t, key, dim, !r.told[key] && len(r.when.Published) == 0, "… %.0f s without power: %d of %d disks still attached to %s, %d databases run elsewhere",
			gone.Seconds(), r.dbs.Attached(), databases, r.dbs.Old.Name, len(r.when.Running))
	}
}

// once says something once.
func (r *race) once(t *timeline, key string, s style, now bool, format string, args ...any) {
	if !now || r.told[key] {
		return
	}
	r.told[key] = true
	t.say(r.lane, s, format, args...)
}

// all says that something has happened to all.
func (r *race) all(t *timeline, key string, s style, at []time.Time, what string) {
	if len(at) >= databases {
		r.once(t, key, s, true, "all %d %s%s", databases, what, r.since(at[databases-1]))
	}
}

func (r *race) since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return fmt.Sprintf(", %.1f s after the power went", at.Sub(r.when.PowerOff).Seconds())
}

// event is what csi-fencepost said on the first database's pod.
func (r *race) event() string {
	for _, e := range r.stage.Events("Pod", blackout.Name+"-0") {
		if text, ok := strings.CutPrefix(e, "FencepostFenced: "); ok {
			return text
		}
	}
	return ""
}

func earliest(at []time.Time) time.Time {
	if len(at) == 0 {
		return time.Time{}
	}
	return at[0]
}

// raceVerdict prints what came of it, and fails if it is not as promised.
func raceVerdict(t *timeline, alone, guarded *race) error {
	for _, r := range []*race{alone, guarded} {
		r.when, r.found = r.dbs.Moments(), r.stage.Array.Violations()
	}
	if len(alone.when.Published) == 0 {
		t.say(alone.lane, red, "after %.0f s nothing has moved, and nothing would after 6 minutes: 5 minutes after NotReady the pods are marked for deletion, "+
			"but only the dead kubelet could confirm that they are gone. A person has to come.", time.Since(alone.when.PowerOff).Seconds())
	}
	t.verdict([][3]string{
		{"", "Kubernetes alone", "with csi-fencepost"},
		{"the node is proven dead", "-", guarded.after([]time.Time{guarded.when.Proven}, 1)},
		{"first disk published elsewhere", alone.after(alone.when.Published, 1), guarded.after(guarded.when.Published, 1)},
		{fmt.Sprintf("all %d disks", databases), alone.after(alone.when.Published, databases), guarded.after(guarded.when.Published, databases)},
		{fmt.Sprintf("all %d databases run", databases), alone.after(alone.when.Running, databases), guarded.after(guarded.when.Running, databases)},
		{"volumes in danger (the oracle)", fmt.Sprint(len(alone.found)), fmt.Sprint(len(guarded.found))},
		{"who had to get up", "somebody, still", "nobody"},
	})
	if wrong := judgeRace(alone, guarded); wrong != nil {
		fmt.Fprintf(t.out, "\n %s\n", t.paint(red, "NOT AS PROMISED"))
		return wrong
	}
	fmt.Fprintf(t.out, "\n %s Proven dead by its own BMC, then moved: pods, disks and all, in seconds,\n and no disk was ever open on two nodes.\n", t.paint(green, "AS PROMISED."))
	return nil
}

// judgeRace holds what happened against what is promised.
func judgeRace(alone, guarded *race) error {
	var wrong []error
	promised := func(what string, at []time.Time, within time.Duration) {
		switch {
		case len(at) < databases:
			wrong = append(wrong, fmt.Errorf("with csi-fencepost only %d of %d %s", len(at), databases, what))
		case at[databases-1].Sub(guarded.when.PowerOff) > within:
			wrong = append(wrong, fmt.Errorf("with csi-fencepost all %d %s, but only%s; promised were %s",
				databases, what, guarded.since(at[databases-1]), within))
		}
	}
	promised("disks were published elsewhere", guarded.when.Published, promisedPublished)
	promised("databases ran again", guarded.when.Running, promisedRunning)
	if len(guarded.found) > 0 {
		wrong = append(wrong, fmt.Errorf("with csi-fencepost the oracle saw %v", guarded.found))
	}
	if guarded.when.Proven.IsZero() || len(guarded.when.Published) > 0 && guarded.when.Published[0].Before(guarded.when.Proven) {
		wrong = append(wrong, errors.New("with csi-fencepost a disk moved before its node was proven dead"))
	}
	if len(alone.when.Published) > 0 || alone.when.NotReady.IsZero() {
		wrong = append(wrong, errors.New("alone, Kubernetes did not notice, or it moved a disk, so this run compares nothing"))
	}
	return errors.Join(wrong...)
}

func (r *race) after(at []time.Time, n int) string {
	if len(at) < n || at[n-1].IsZero() {
		return "never"
	}
	return fmt.Sprintf("%.1f s", at[n-1].Sub(r.when.PowerOff).Seconds())
}
