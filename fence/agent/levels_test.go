package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// device is an Agent in front of one machine. Its functions are called with the
// number of the call, from 1.
type device struct {
	name    string
	kind    fence.Kind
	lacks   string // a node that it does not cover
	status  func(ctx context.Context, n int) (Reading, error)
	off, on func(ctx context.Context, n int) error

	mu    sync.Mutex
	calls []string
	count map[string]int
}

func (d *device) Name() string            { return d.name }
func (d *device) Covers(node string) bool { return node != d.lacks }

func (d *device) Proves() fence.Kind {
	if d.kind == "" {
		return fence.PowerReading
	}
	return d.kind
}

func (d *device) called(action string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[string]int{}
	}
	d.calls = append(d.calls, action)
	d.count[action]++
	return d.count[action]
}

func (d *device) times(action string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count[action]
}

func (d *device) Status(ctx context.Context, _ Machine) (Reading, error) {
	return d.status(ctx, d.called("status"))
}

func (d *device) Off(ctx context.Context, _ Machine) (string, error) {
	return "sent off", call1(ctx, d.off, d.called("off"))
}

func (d *device) On(ctx context.Context, _ Machine) (string, error) {
	return "sent on", call1(ctx, d.on, d.called("on"))
}

func call1(ctx context.Context, f func(context.Context, int) error, n int) error {
	if f == nil {
		return nil
	}
	return f(ctx, n)
}

// reads answers the states in turn, the last one for ever.
func reads(states ...State) func(context.Context, int) (Reading, error) {
	return func(_ context.Context, n int) (Reading, error) {
		s := states[min(n, len(states))-1]
		if s == Unclear {
			return Reading{State: Off, Detail: "no answer"}, errors.New("connection refused")
		}
		return Reading{State: s, Detail: "reads " + known(s).String()}, nil
	}
}

// obeys reads off once it was sent off and not on since.
func obeys(d *device) *device {
	d.status = func(context.Context, int) (Reading, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for i := len(d.calls) - 1; i >= 0; i-- {
			switch d.calls[i] {
			case "off":
				return Reading{State: Off}, nil
			case "on":
				return Reading{State: On}, nil
			}
		}
		return Reading{State: On}, nil
	}
	return d
}

func level(devices ...*device) Level {
	var l Level
	for _, d := range devices {
		l = append(l, Bounded{Agent: d, Timeout: 10 * time.Second, Attempts: 2})
	}
	return l
}

var machine = Machine{Node: "n1"}

func permit(context.Context, Agent) error { return nil }

func want(t *testing.T, o Outcome, state State, level int, why string) {
	t.Helper()
	if o.State != state || o.Level != level || !strings.Contains(o.Why, why) {
		t.Errorf("%v at level %d (%s), want %v at level %d (%s)", o.State, o.Level, o.Why, state, level, why)
	}
}

func TestAskBelievesOnlyAWholeLevel(t *testing.T) {
	const power, storage = fence.PowerReading, fence.StorageFence
	type r struct {
		kind  fence.Kind
		state State
	}
	for name, c := range map[string]struct {
		levels [][]r
		state  State
		kind   fence.Kind
		level  int
		why    string
		asked  int // levels
	}{
		"off":                           {[][]r{{{power, Off}}, {{power, Off}}}, Off, power, 1, "every agent of level 1 reads off", 1},
		"both outlets off":              {[][]r{{{power, Off}, {power, Off}}}, Off, power, 1, "", 1},
		"one outlet on":                 {[][]r{{{power, Off}, {power, On}}}, On, power, 0, "agent a0.1 of level 1 reads on", 1},
		"one outlet silent":             {[][]r{{{power, Off}, {power, Unclear}}}, Unclear, "", 0, "no level confirms", 1},
		"on":                            {[][]r{{{power, On}}, {{power, Off}}}, On, power, 1, "level 1 reads on", 1},
		"second level":                  {[][]r{{{power, Unclear}}, {{power, Off}}}, Off, power, 2, "level 2", 2},
		"contradiction":                 {[][]r{{{power, On}, {power, Unclear}}, {{power, Off}}}, Unclear, "", 0, "agent a0.0 of level 1 reads on, but every agent of level 2 reads off", 2},
		"silence and on":                {[][]r{{{power, Unclear}}, {{power, On}}}, On, power, 2, "", 2},
		"off in part, on later":         {[][]r{{{power, Off}, {power, Unclear}}, {{power, On}}}, On, power, 0, "agent a0.0 of level 1 reads off", 2},
		"nothing but silence":           {[][]r{{{power, Unclear}}, {{storage, Unclear}}}, Unclear, "", 0, "no level confirms", 2},
		"open access says no power":     {[][]r{{{storage, On}}, {{power, Off}}}, Off, power, 2, "", 2},
		"power does not open an access": {[][]r{{{power, On}, {power, Unclear}}, {{storage, Off}}}, Off, storage, 2, "", 2},
		"open access":                   {[][]r{{{storage, On}}}, On, storage, 0, "", 1},
		"power and storage":             {[][]r{{{storage, Off}, {power, Off}}}, Off, power, 1, "", 1},
		"storage":                       {[][]r{{{storage, Off}}}, Off, storage, 1, "", 1},
		"storage contradicts storage":   {[][]r{{{storage, On}}, {{storage, Off}}}, Unclear, "", 0, "neither is believed", 2},
		"a state that was made up":      {[][]r{{{power, 7}}}, Unclear, "", 0, "unclear", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var levels Levels
			var devices [][]*device
			for i, agents := range c.levels {
				var ds []*device
				for j, a := range agents {
					ds = append(ds, &device{name: fmt.Sprintf("a%d.%d", i, j), kind: a.kind, status: reads(a.state)})
				}
				devices, levels = append(devices, ds), append(levels, level(ds...))
			}
			o := levels.Ask(t.Context(), machine)
			want(t, o, c.state, c.level, c.why)
			if o.Kind != c.kind {
				t.Errorf("kind %q, want %q", o.Kind, c.kind)
			}
			for i, ds := range devices {
				if got := ds[0].times("status"); (got > 0) != (i < c.asked) {
					t.Errorf("level %d was asked %d times, want %d levels asked", i+1, got, c.asked)
				}
			}
		})
	}
}

func TestALevelThatDoesNotCoverTheNodeIsPassedOver(t *testing.T) {
	first := &device{name: "bmc", lacks: "n1", status: reads(Off)}
	with := &device{name: "pdu", status: reads(Off)}
	levels := Levels{level(first, with), {}, level(with)}
	want(t, levels.Ask(t.Context(), machine), Off, 3, "level 3")
	if !levels.Covers("n1") || (Levels{level(first, with), {}}).Covers("n1") || (Levels{}).Covers("n1") {
		t.Error("Covers is wrong")
	}
	none := Levels{level(first), {}}
	for _, o := range []Outcome{none.Ask(t.Context(), machine), none.Off(t.Context(), machine, permit), none.On(t.Context(), machine)} {
		want(t, o, Unclear, 0, "no level of agents covers node n1")
	}
}

func TestAgentsOfOneLevelAreAskedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, _ int) (Reading, error) {
			sleep(ctx, 3*time.Second)
			return Reading{State: Off}, nil
		}
		started := time.Now()
		o := Levels{level(&device{name: "a", status: slow}, &device{name: "b", status: slow})}.Ask(t.Context(), machine)
		want(t, o, Off, 1, "")
		if took := time.Since(started); took != 3*time.Second {
			t.Errorf("took %v, want 3s", took)
		}
	})
}

func TestOffIsProvenByTheReadingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		liar := &device{name: "bmc", status: reads(On)}
		o := Levels{level(liar)}.Off(t.Context(), machine, permit)
		want(t, o, On, 0, "agent bmc of level 1 reads on")
		if liar.times("off") != 2 {
			t.Errorf("off was sent %d times, want 2 attempts", liar.times("off"))
		}
		slow := &device{name: "bmc", status: reads(On, On, Unclear, On, Off)}
		o = Levels{level(slow)}.Off(t.Context(), machine, permit)
		want(t, o, Off, 1, "")
		if slow.times("off") != 1 {
			t.Errorf("off was sent %d times, want once: the device only takes its time", slow.times("off"))
		}
		broken := &device{name: "bmc", status: reads(Off), off: func(context.Context, int) error { return errors.New("already off") }}
		want(t, Levels{level(broken)}.Off(t.Context(), machine, permit), Off, 1, "")
	})
}

func TestOffGoesToTheNextLevelWhereOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &device{name: "bmc", status: reads(Unclear), off: func(context.Context, int) error { return errors.New("no route to host") }}
		pdu1, pdu2 := obeys(&device{name: "pdu1"}), obeys(&device{name: "pdu2"})
		o := Levels{level(dead), level(pdu1, pdu2)}.Off(t.Context(), machine, permit)
		want(t, o, Off, 2, "every agent of level 2")
		var trail []string
		for _, s := range o.Steps {
			trail = append(trail, fmt.Sprint(s.Level, s.Attempt, s.Agent, s.Action, s.State))
		}
		got := strings.Join(trail, "; ")
		for _, part := range []string{"1 1bmcoffunclear; 1 1bmcstatusunclear; 1 2bmcoffunclear; 1 2bmcstatusunclear", "2 1pdu1statusoff", "2 1pdu2statusoff"} {
			if !strings.Contains(strings.ReplaceAll(got, " bmc", "bmc"), part) && !strings.Contains(got, part) {
				t.Errorf("trail %q lacks %q", got, part)
			}
		}
		if o.Steps[0].Err != "no route to host" || o.Outstanding != nil {
			t.Errorf("first step %+v", o.Steps[0])
		}
	})
}

func TestALevelConfirmsOnlyIfAllItsAgentsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first confirms at once, and its power is back when the second has
		// had its second attempt.
		first := &device{name: "pdu1", status: reads(Off, On)}
		second := &device{name: "pdu2", status: reads(Unclear, Off), off: func(_ context.Context, n int) error {
			if n == 1 {
				return errors.New("busy")
			}
			return nil
		}}
		o := Levels{level(first, second)}.Off(t.Context(), machine, permit)
		want(t, o, On, 0, "agent pdu1 of level 1 reads on")
	})
}

func TestAnAgentThatReadsOnContradictsALaterLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &device{name: "bmc", status: reads(On)}
		pdu := obeys(&device{name: "pdu"})
		o := Levels{level(broken), level(pdu)}.Off(t.Context(), machine, permit)
		want(t, o, Unclear, 0, "agent bmc of level 1 reads on, but every agent of level 2 reads off")
		if len(o.ReadOn) != 1 || o.ReadOn[0] != "bmc" || o.Kind != "" {
			t.Errorf("outcome %+v", o)
		}

		// Silence afterwards does not take it back; a reading of off does.
		pdu = obeys(&device{name: "pdu"})
		bmc := &device{name: "bmc"}
		for after, state := range map[State]State{Unclear: Unclear, Off: Off} {
			bmc.status = func(context.Context, int) (Reading, error) {
				if pdu.times("off") == 0 {
					return Reading{State: On}, nil
				}
				return reads(after)(nil, 1)
			}
			o = Levels{level(bmc), level(pdu)}.Off(t.Context(), machine, permit)
			if o.State != state {
				t.Errorf("bmc then reads %v: %v (%s)", after, o.State, o.Why)
			}
			pdu.count, pdu.calls = nil, nil
		}

		// A storage fence under which the machine lives.
		array := obeys(&device{name: "array", kind: fence.StorageFence})
		o = Levels{level(broken), level(array)}.Off(t.Context(), machine, permit)
		want(t, o, Off, 2, "")
		if o.Kind != fence.StorageFence {
			t.Errorf("kind %s", o.Kind)
		}
	})
}

func TestBeforeIsAskedRightBeforeEachOffAndStopsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		note := func(name string) func(context.Context, int) error {
			return func(context.Context, int) error { order = append(order, "off "+name); return nil }
		}
		a := &device{name: "a", status: reads(On), off: note("a")}
		b := &device{name: "b", status: reads(Off), off: note("b")}
		fine := errors.New("the lease was renewed")
		asked := 0
		o := Levels{level(a), level(b)}.Off(t.Context(), machine, func(_ context.Context, agent Agent) error {
			if asked++; asked == 3 {
				return fine
			}
			order = append(order, "before "+agent.Name())
			return nil
		})
		want(t, o, Unclear, 0, "before off by agent b: the lease was renewed")
		if got := strings.Join(order, ", "); got != "before a, off a, before a, off a" {
			t.Errorf("order: %s", got)
		}

		// What is under way on the same level is cancelled.
		cancelled := false
		slow := &device{name: "slow", status: reads(Off), off: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			cancelled = true
			return ctx.Err()
		}}
		started := time.Now()
		o = Levels{level(slow, b)}.Off(t.Context(), machine, func(_ context.Context, agent Agent) error {
			if agent.Name() == "b" {
				time.Sleep(time.Second) // the first is on its way
				return fine
			}
			return nil
		})
		want(t, o, Unclear, 0, "the lease was renewed")
		if !cancelled || time.Since(started) != time.Second || b.times("off") != 0 || slow.times("status") != 0 {
			t.Errorf("cancelled %v after %v, b was sent off %d times", cancelled, time.Since(started), b.times("off"))
		}
		hangs := func(context.Context, Agent) error { time.Sleep(time.Hour); return nil }
		want(t, Levels{level(b)}.Off(t.Context(), machine, hangs), Unclear, 0, "did not return in time")
		if b.times("off") != 0 {
			t.Error("off was sent although before did not answer")
		}
		time.Sleep(2 * time.Hour) // what hangs ends with the test
	})
}

func TestNoOffIsSentOnceTheCallerIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	deaf := obeys(&device{name: "deaf"})
	want(t, Levels{level(deaf)}.Off(ctx, machine, permit), Unclear, 0, "stopped")
	want(t, Levels{level(deaf)}.Ask(ctx, machine), Unclear, 0, "")
	want(t, Levels{level(deaf)}.On(ctx, machine), Unclear, 0, "")
	if len(deaf.calls) > 0 {
		t.Errorf("called: %v", deaf.calls)
	}
}

func TestAnAgentThatIgnoresItsDeadlineBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It says off, much too late.
		deaf := func(context.Context, int) (Reading, error) { time.Sleep(time.Hour); return Reading{State: Off}, nil }
		started := time.Now()
		o := Levels{level(&device{name: "bmc", status: deaf})}.Ask(t.Context(), machine)
		want(t, o, Unclear, 0, "no level confirms")
		if took := time.Since(started); took > 11*time.Second {
			t.Errorf("took %v with a time-out of 10s", took)
		}
		if o.Outstanding != nil {
			t.Error("a status that hangs changes nothing: nothing is outstanding")
		}
		if !strings.Contains(o.Steps[0].Err, "may still be under way") {
			t.Errorf("step %+v", o.Steps[0])
		}
		late := func(context.Context, int) (Reading, error) {
			time.Sleep(10*time.Second + time.Millisecond)
			return Reading{State: Off}, nil
		}
		want(t, Levels{level(&device{name: "bmc", status: late})}.Ask(t.Context(), machine), Unclear, 0, "")
		time.Sleep(2 * time.Hour) // what hangs ends with the test
	})
}

func TestAnOffThatMayStillLandIsOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bmc := &device{name: "bmc", status: reads(Unclear), off: func(context.Context, int) error {
			time.Sleep(5 * time.Minute)
			return nil
		}}
		pdu := obeys(&device{name: "pdu"})
		l := Levels{level(bmc), level(pdu)}
		l[0][0].Attempts = 1
		started := time.Now()
		o := l.Off(t.Context(), machine, permit)
		want(t, o, Off, 2, "")
		if took := time.Since(started); took > 12*time.Second {
			t.Errorf("took %v", took)
		}
		if o.Outstanding == nil {
			t.Fatal("a call is under way and nothing is outstanding")
		}
		select {
		case <-o.Outstanding:
			t.Error("it is said to have ended")
		default:
		}
		<-o.Outstanding
		if took := time.Since(started); took != 5*time.Minute {
			t.Errorf("it ended after %v, want 5m", took)
		}
	})
}

func TestOnUndoesWithTheAgentsThatReadOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		made := func(name string, off bool) *device {
			d := obeys(&device{name: name, on: func(context.Context, int) error { order = append(order, name); return nil }})
			if off {
				d.called("off")
			}
			return d
		}
		bmc, pdu, array := made("bmc", true), made("pdu", true), made("array", false)
		o := Levels{level(bmc), level(pdu), level(array)}.On(t.Context(), machine)
		want(t, o, On, 0, "agent bmc of level 1 reads on")
		if got := strings.Join(order, ", "); got != "pdu, bmc" {
			t.Errorf("switched on: %s; want pdu before bmc, and not what reads on", got)
		}
		stuck := &device{name: "bmc", status: reads(Off)}
		want(t, Levels{level(stuck)}.On(t.Context(), machine), Off, 0, "reads off")
		if stuck.times("on") != 2 {
			t.Errorf("on was sent %d times, want 2 attempts", stuck.times("on"))
		}
		want(t, Levels{level(&device{name: "x", status: reads(Unclear)}, made("y", true))}.On(t.Context(), machine), Unclear, 0, "agent x of level 1 reads unclear")
	})
}

// A fence that is lifted by half, or of addresses that the machine has left, is
// neither on nor off.
func TestAStorageFenceThatReadsUnclearIsLiftedWhereItIsKnownWhatItCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			kind   fence.Kind
			fenced []string
			sent   int
		}{
			"its blocks are known": {fence.StorageFence, []string{"192.0.2.1/32"}, 2},
			"nothing is known":     {fence.StorageFence, nil, 0},
			"the power":            {fence.PowerReading, []string{"192.0.2.1/32"}, 0},
		} {
			d, m := &device{name: "array", kind: tt.kind, status: reads(Unclear)}, machine
			m.Fenced = tt.fenced
			want(t, Levels{level(d)}.On(t.Context(), m), Unclear, 0, "reads unclear")
			if got := d.times("on"); got != tt.sent {
				t.Errorf("%s: on was sent %d times, want %d", name, got, tt.sent)
			}
		}
		d, m := &device{name: "array", kind: fence.StorageFence, status: reads(Unclear, On)}, machine
		m.Fenced = []string{"192.0.2.1/32"}
		want(t, Levels{level(d)}.On(t.Context(), m), On, 0, "reads on")
	})
}

func TestTheTrailIsBoundedJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chatty := &device{name: "bmc", off: func(context.Context, int) error { return errors.New(strings.Repeat("é", 1000)) },
			status: func(context.Context, int) (Reading, error) {
				return Reading{State: On, Detail: strings.Repeat("€", 1000) + "\xff"}, nil
			}}
		o := Levels{level(chatty)}.Off(t.Context(), machine, permit)
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var back Outcome
		if err := json.Unmarshal(text, &back); err != nil || back.State != o.State || len(back.Steps) != 4 {
			t.Errorf("%v: %s", err, text)
		}
		for _, s := range back.Steps {
			if len(s.Detail) > maxDetail || len(s.Err) > 512 || s.Started.IsZero() {
				t.Errorf("step %+v", s)
			}
		}
		if !strings.Contains(string(text), `"state":"on"`) {
			t.Errorf("no state in words: %s", text)
		}
		if err := new(State).UnmarshalText([]byte("maybe")); err == nil {
			t.Error("a made-up state is read")
		}
	})
}

// checked is a device that can be checked.
type checked struct {
	*device
	check func(Machine) (string, []error)
}

func (c checked) Check(_ context.Context, m Machine) (string, []error) { return c.check(m) }

func TestCheckFindsWhatWouldKeepANodeFromBeingFenced(t *testing.T) {
	bmc := checked{&device{name: "bmc", lacks: "n3"}, func(m Machine) (string, []error) {
		if m.Node == "n2" {
			return "10.0.0.1", []error{errors.New("wrong password"), errors.New("no privilege")}
		}
		return "10.0.0.1", nil
	}}
	pdu := checked{&device{name: "pdu"}, func(m Machine) (string, []error) { return "outlet of " + m.Node, nil }}
	mute := &device{name: "mute", lacks: "n3", status: reads(Unclear)}
	levels := Levels{
		{{Agent: bmc}, {Agent: mute}},
		{{Agent: bmc}, {Agent: pdu}},
	}
	var got []string
	for _, f := range levels.Check(t.Context(), []Machine{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}}) {
		got = append(got, f.String())
	}
	want := []string{
		"node n1: agent bmc (level 1): it would act on node n2 too: both have the device 10.0.0.1",
		"node n1: agent mute (level 1): its status cannot be read: connection refused",
		"node n2: agent bmc (level 1): it would act on node n1 too: both have the device 10.0.0.1",
		"node n2: agent bmc (level 1): no privilege",
		"node n2: agent bmc (level 1): wrong password",
		"node n2: agent mute (level 1): its status cannot be read: connection refused",
		"node n3: level 2 is passed over: agent bmc does not cover it",
		"node n3: no level covers it: it cannot be fenced",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckIsBoundedByTheAgentsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := checked{&device{name: "bmc"}, func(Machine) (string, []error) { time.Sleep(time.Hour); return "", nil }}
		started := time.Now()
		faults := Levels{{{Agent: hangs, Timeout: 5 * time.Second}}}.Check(t.Context(), []Machine{machine})
		if len(faults) != 1 || !strings.Contains(faults[0].Text, "did not return") || time.Since(started) > 6*time.Second {
			t.Errorf("after %v: %v", time.Since(started), faults)
		}
		time.Sleep(2 * time.Hour) // what hangs ends with the test
	})
}

func TestALevelIsPolledAsAWholeAndOnlyForThePower(t *testing.T) {
	bounded := func(poll time.Duration, kind fence.Kind) Bounded {
		return Bounded{Agent: &device{name: "d", kind: kind, lacks: "bare"}, Poll: poll}
	}
	for name, c := range map[string]struct {
		levels Levels
		node   string
		every  time.Duration
		level  int // from 1; 0: none
	}{
		"one":                              {Levels{{bounded(2*time.Second, "")}}, "n", 2 * time.Second, 1},
		"the one that is asked less often": {Levels{{bounded(2*time.Second, ""), bounded(5*time.Second, "")}}, "n", 5 * time.Second, 1},
		"none":                             {Levels{{bounded(0, "")}}, "n", 0, 0},
		"one of two outlets":               {Levels{{bounded(2*time.Second, ""), bounded(0, "")}}, "n", 0, 0},
		"the second level, after one that may always read off": {Levels{{bounded(0, "")}, {bounded(2*time.Second, "")}}, "n", 0, 0},
		"the second level, the first that covers the node":     {Levels{{Bounded{Agent: &device{name: "o", lacks: "n"}}}, {bounded(2*time.Second, "")}}, "n", 2 * time.Second, 2},
		"a node that it does not cover":                        {Levels{{bounded(2*time.Second, "")}}, "bare", 0, 0},
		"what cuts storage":                                    {Levels{{bounded(2*time.Second, fence.StorageFence)}}, "n", 0, 0},
		"an empty level":                                       {Levels{{}}, "n", 0, 0},
		"power, beside what cuts the storage":                  {Levels{{bounded(2*time.Second, ""), bounded(2*time.Second, fence.StorageFence)}}, "n", 0, 0},
	} {
		level, every := c.levels.Polled(c.node)
		if every != c.every || (level == nil) != (c.level == 0) || c.level > 0 && &level[0] != &c.levels[c.level-1] {
			t.Errorf("%s: every %s by %v", name, every, level)
		}
	}
}
