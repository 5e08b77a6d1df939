package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// perform lets one enabled event happen, and waits until everybody waits for the
// scheduler again. The world is locked, but while it waits.
func (w *World) perform(e Event) {
	w.steps++
	w.Stats.Steps++
	w.Trace = append(w.Trace, e)
	w.recent[w.steps%len(w.recent)] = e
	if w.tell != nil {
		w.tell(fmt.Sprintf("%8.1fs  %s", time.Since(w.began).Seconds(), e))
	}
	switch {
	case w.doOp(e), w.doProcess(e), w.doAttacher(e), w.doController(e), w.doPod(e), w.doKubelet(e), w.doMachine(e), w.doOther(e), w.doWide(e), w.doMoment(e):
	default:
		panic("simulate: nobody performs " + e.String())
	}
	w.settleDown()
	w.judge()
}

// settleDown waits until everybody is parked or waits for the clock.
func (w *World) settleDown() {
	w.mu.Unlock()
	synctest.Wait()
	w.mu.Lock()
}

func (w *World) doOp(e Event) bool {
	switch e.Verb {
	case Reads:
		w.reads(w.procs[e.A])
		return true
	case Serve, Fail, Lose, Drop, Lie, Late, Gone:
	default:
		return false
	}
	o := w.find(e.A, e.B)
	switch e.Verb {
	case Serve:
		w.noteTakeover(o)
		w.serve(o)
	case Fail:
		w.fail(o, o.failure())
	case Lose:
		w.lose(o)
	case Drop:
		w.remove(o)
	case Lie:
		w.lie(o)
	case Late:
		w.late(o)
	case Gone:
		w.seen(o)
		w.fail(o, status.Error(codes.NotFound, "the machine does not exist"))
	}
	return true
}

// noteTakeover counts publishes for which somebody else was unpublished.
func (w *World) noteTakeover(o *op) {
	if isPrefixed(o.key, "driver:unpublish/") && !o.orphan {
		for _, c := range w.calls {
			if c.p == o.from && c.publish && c.v.name == o.volume {
				w.Stats.Takeovers++
			}
		}
	}
}

func (o *op) failure() error {
	switch o.to {
	case toDriver:
		return status.Error(codes.Internal, "the driver failed")
	case toCaller:
		return errLost
	}
	return errRefused
}

// reads serves a process's reads until it waits for something else.
func (w *World) reads(p *Process) {
	for range 200 {
		i := slices.IndexFunc(w.parked, func(o *op) bool {
			return o.from == p && !o.write && !o.orphan && (o.to == toAPI || o.to == toKubelet) && o.reachable()
		})
		if i < 0 {
			return
		}
		w.serve(w.parked[i])
		w.settleDown()
		w.sortParked()
	}
}

func (w *World) doProcess(e Event) bool {
	p := w.procs[e.A]
	switch e.Verb {
	case Crash:
		w.crash(p)
	case Start:
		w.start(e.A)
	case CutAPI:
		p.noAPI = true
	case JoinAPI:
		p.noAPI = false
		p.leasesSeen()
		p.goOn()
	case CutDriver, JoinDrive:
		p.noDriver = e.Verb == CutDriver
	case CutAgent, JoinAgent:
		p.noAgent = e.Verb == CutAgent
	case Stall:
		p.stall(e.B)
	case Catch:
		delete(p.stalled, e.B)
		p.goOn()
		if e.B == StallLease {
			p.leasesSeen()
		}
	case Lead:
		w.leader = e.A
	case Sight:
		w.sight(p, e.B)
	case FenceOff:
		w.fenceOff(p, w.slot(e.B))
	default:
		return false
	}
	return true
}

func (w *World) doOther(e Event) bool {
	switch e.Verb {
	case Clock:
		d, err := time.ParseDuration(e.A)
		if err != nil {
			panic(err) // enabled ones can be read
		}
		w.pass(d)
	case SetClock:
		w.jump(e)
	case Land:
		w.landLate(w.volume(e.A), e.B)
	case StripVA:
		v, s := w.volume(e.A), w.slot(e.B)
		w.strip(v, s)
	case DeleteVA:
		w.deleteAttachment(w.volume(e.A), w.slot(e.B))
	case Keep:
		w.slot(e.B).machine.keeps = map[*volume]bool{w.volume(e.A): true}
	case Settle:
		w.settle(func() bool { return w.calm() }, time.Minute)
	case Expect:
		w.expect(e)
	default:
		return false
	}
	return true
}

// strip takes the VolumeAttachment away. Its machine may have lost its name to another
// by then, and go on.
func (w *World) strip(v *volume, s *slot) {
	id := w.nodeIDFor(s, nil)
	if va := w.va(v, s); va != nil && csi.AttachmentNodeID(va) != "" {
		id = csi.AttachmentNodeID(va)
	}
	v.stripped[s] = true
	if k := &s.machine.kubelet; k.verified[v] {
		k.bare[v] = true
	}
	for _, m := range w.machines {
		if mount := m.mounts[v]; mount != nil && m.slot == s && m.id == id {
			mount.stripped = true
		}
	}
	w.objects.Attachments.Delete(w.vaName(v, s))
}

// expect holds what a script says against the world.
func (w *World) expect(e Event) {
	v, s := w.volume(e.B), w.slot(e.C)
	ok, now := false, ""
	switch what, reason, _ := strings.Cut(e.A, ":"); what {
	case "mounted":
		ok = v.mayWrite(s.machine)
	case "unmounted":
		ok = !v.mayWrite(s.machine)
	case "attached":
		ok = v.attached[s.machine.id]
	case "detached":
		ok = !v.attached[s.machine.id]
	case "off":
		ok = !w.slot(e.B).machine.power
	case "publish", "unpublish":
		now = w.last[callKey{what, e.B, e.C}]
		ok = now == reason
	default:
		now = "nobody knows how to expect that"
	}
	if !ok {
		w.violation("story", fmt.Sprintf("not so: %s (%s)", e, now))
	}
}
