package evidence

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// asker is a fencer whose agents say what the test wants.
type asker struct {
	power, storage bool // covered
	only           bool // by agents that read no power
	elsewhere      bool // another process reads the power
	nameless       bool // those of the storage, by now
	takes          time.Duration
	heard          []string // who has read on by the time that the caller has to go
	answer         fencer.Answer
	err            error
	asked          []fencer.Target
}

func (a *asker) Covers(string) bool        { return a.power || a.only || a.elsewhere }
func (a *asker) AsksPower(string) bool     { return a.power || a.elsewhere }
func (a *asker) CoversPower(string) bool   { return a.power }
func (a *asker) CoversStorage(string) bool { return a.storage }
func (a *asker) StorageAgents(string) []string {
	if a.nameless {
		return nil
	}
	return []string{"array"}
}
func (a *asker) Ask(ctx context.Context, t fencer.Target) (fencer.Answer, error) {
	a.asked = append(a.asked, t)
	select {
	case <-ctx.Done():
		return fencer.Answer{On: a.heard, Machine: record.FencedMachine{NodeUID: t.UID, BootID: t.BootID, LeaseRV: t.LeaseRV}}, cmp.Or(a.err, ctx.Err())
	case <-time.After(a.takes):
	}
	a.answer.Machine = record.FencedMachine{NodeUID: t.UID, BootID: t.BootID, LeaseRV: t.LeaseRV}
	return a.answer, a.err
}

// stale is a question about a holder that shows no life, with that record.
func stale(r *record.Record) Question {
	return Question{
		Holder: fence.Holder{NodeID: "id1", NodeName: "n1", NodeUID: "u1", BootID: "b1", SystemUUID: "s1", State: fence.Publishing, Liveness: fence.Stale,
			Node: &fence.Node{UID: "u1", BootID: "b1", InUse: true}},
		Volume: volume, Driver: driver, Node: machine("u1", "b1", "50"), LeaseRV: "70", Record: r,
	}
}

func withFence(kind fence.Kind, actor string) *record.Record {
	r := record.New("n1")
	f := record.Fence{ID: "f1", Kind: kind, Phase: record.Fenced, Actor: actor, Agents: []string{"bmc"},
		Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "70"}}
	if kind == fence.StorageFence {
		f.Driver = driver
	}
	r.PutFence(f, "Fenced")
	return r
}

func ask(t *testing.T, s Source, q Question) []fence.Evidence {
	t.Helper()
	found, err := s.Evidence(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWhatTheAgentsReadAsOffIsEvidence(t *testing.T) {
	a := &asker{power: true, answer: fencer.Answer{State: agent.Off, Kind: fence.PowerReading, Agents: []string{"bmc", "pdu"}, Detail: "power:0"}}
	want := fence.Evidence{Kind: fence.PowerReading, Source: "bmc, pdu", Detail: "power:0", NodeName: "n1", NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "70"}
	if got := ask(t, Agents(a), stale(nil)); len(got) != 1 || got[0] != want {
		t.Fatalf("evidence %+v", got)
	}
	q := stale(nil)
	q.Node, want.BootID = machine("u1", "b2", "51"), "b2" // it has rebooted since it was published to
	if got := ask(t, Agents(a), q); len(got) != 1 || got[0] != want {
		t.Errorf("of a machine that has rebooted: evidence %+v", got)
	}
}

func TestWhoeverReadsOnContradictsUnlessAnOperatorSaysThatItIsWrong(t *testing.T) {
	a := &asker{power: true, answer: fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc", "pdu"}}}
	r := record.New("n1")
	r.AddOverride(record.Override{ID: "o", Agent: "bmc", By: "ann", Reason: "its board is broken", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "70"}})
	r.AddConfirmation(record.Confirmation{ID: "c", By: "ann", Reason: "unplugged", Machines: []record.Machine{off}})
	q := stale(r)

	judge := func() fence.Reason {
		h := q.Holder
		h.LeaseRV, h.Liveness = q.LeaseRV, fence.Stale
		h.Evidence = append(ask(t, Agents(a), q), ask(t, Confirmations(Records{ReadOnly: true}), q)...)
		return fence.JudgePublish(fence.Snapshot{Target: &fence.Holder{NodeID: "id2"}, Holders: []fence.Holder{h}}, "id2").Reason
	}
	if got := judge(); got != fence.EvidenceContradicted {
		t.Errorf("with the PDU reading on: %s", got)
	}
	a.answer.On = []string{"bmc"}
	if got := judge(); got != fence.HolderFenced {
		t.Errorf("with the BMC overridden: %s", got)
	}
	r.Overrides[0].Machine.LeaseRV = "60" // from before a sign of life
	if got := judge(); got != fence.EvidenceContradicted {
		t.Errorf("with an override of another time: %s", got)
	}
}

func TestAgentsAreAskedOnlyWhereTheirWordMatters(t *testing.T) {
	power, storage := withFence(fence.PowerReading, "other"), withFence(fence.StorageFence, "other")
	lifted := withFence(fence.StorageFence, "other")
	lifted.EndFence("f1", record.Lifted, "back", "other")
	tests := []struct {
		name      string
		change    func(*Question)
		asks, own bool // own: the storage alone
	}{
		{"stale", func(*Question) {}, true, false},
		{"unknown, the Node is gone", func(q *Question) { q.Holder.Liveness, q.Holder.Node, q.Node = fence.Unknown, nil, nil }, true, false},
		{"alive", func(q *Question) { q.Holder.Liveness = fence.Alive }, false, false},
		{"alive, fenced by another's word", func(q *Question) { q.Holder.Liveness, q.Record = fence.Alive, power }, false, false},
		{"alive, and read as off since its last renewal", func(q *Question) { q.Holder.Liveness, q.Record = fence.Alive, provenEarly() }, true, false},
		{"alive, renewed since", func(q *Question) { q.Holder.Liveness, q.Record, q.LeaseRV = fence.Alive, provenEarly(), "71" }, false, false},
		{"alive, booted since", func(q *Question) {
			q.Holder.Liveness, q.Record, q.Node = fence.Alive, provenEarly(), machine("u1", "b2", "51")
		}, false, false},
		{"unwatched, and read as off since its last renewal", func(q *Question) { q.Holder.Liveness, q.Record = fence.Unwatched, provenEarly() }, true, false},
		{"unwatched, read as off, and renewed since", func(q *Question) {
			q.Holder.Liveness, q.Record, q.LeaseRV = fence.Unwatched, provenEarly(), "71"
		}, false, false},
		{"alive under a storage fence", func(q *Question) { q.Holder.Liveness, q.Record = fence.Alive, storage }, true, true},
		{"silent under a storage fence, and reports no boot", func(q *Question) { q.Record, q.Node = storage, machine("u1", "", "51") }, true, true},
		{"silent under a storage fence", func(q *Question) { q.Record = storage }, true, false},
		{"alive, of another driver", func(q *Question) { q.Holder.Liveness, q.Record, q.Driver = fence.Alive, storage, "other" }, false, false},
		{"alive, lifted", func(q *Question) { q.Holder.Liveness, q.Record = fence.Alive, lifted }, false, false},
		{"unwatched", func(q *Question) { q.Holder.Liveness = fence.Unwatched }, false, false},
		{"unwatched, fenced by another's word", func(q *Question) { q.Holder.Liveness, q.Record = fence.Unwatched, power }, true, false},
		{"another machine of that name", func(q *Question) { q.Node = machine("u2", "b2", "51") }, false, false},
		{"released", func(q *Question) { q.Holder.State, q.Holder.Node.InUse = fence.Released, false }, false, false},
		{"released, but listed", func(q *Question) { q.Holder.State = fence.Released }, true, false},
		{"of no known machine", func(q *Question) { q.Holder.NodeUID = "" }, false, false},
		{"of no known machine, the Node is gone", func(q *Question) { q.Holder.NodeUID, q.Holder.Liveness, q.Node = "", fence.Unknown, nil }, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &asker{power: true, storage: true, answer: fencer.Answer{State: agent.Off, Kind: fence.StorageFence, Storage: agent.Off}}
			q := stale(nil)
			tt.change(&q)
			ask(t, Agents(a), q)
			if got := len(a.asked) == 1; got != tt.asks {
				t.Fatalf("asked: %v, want %v", got, tt.asks)
			}
			if tt.asks && a.asked[0].SystemUUID != "s1" {
				t.Errorf("asked of system %q", a.asked[0].SystemUUID)
			}
			if tt.asks && a.asked[0].StorageOnly != tt.own {
				t.Errorf("asked for the storage alone: %v", a.asked[0].StorageOnly)
			}
		})
	}
	if ask(t, Agents(&asker{}), stale(nil)) != nil {
		t.Error("evidence without an agent")
	}
}

func TestAgentsThatAreSlowGiveNoEvidenceYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{power: true, takes: time.Minute}
		begun := time.Now()
		if found := ask(t, Agents(a), stale(nil)); found != nil || time.Since(begun) != patience {
			t.Errorf("evidence %+v after %s", found, time.Since(begun))
		}
	})
}

func TestADeviceThatHangsDoesNotHoldUpEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{power: true}
		s := Agents(a)
		for _, step := range []struct {
			what   string
			takes  time.Duration
			reads  agent.State
			waited time.Duration
		}{
			{"it hangs", time.Minute, agent.Unclear, patience},
			{"it hangs still", time.Minute, agent.Unclear, hurry},
			{"the question has ended without an answer", 0, agent.Unclear, 0},
			{"it hangs again", time.Minute, agent.Unclear, hurry},
			{"it answers in a hurry", 50 * time.Millisecond, agent.Off, 50 * time.Millisecond},
			{"it takes its time", 3 * time.Second, agent.Off, 3 * time.Second},
			{"it hangs once more", time.Minute, agent.Unclear, patience},
		} {
			a.takes, a.answer = step.takes, fencer.Answer{State: step.reads, Kind: fence.PowerReading}
			begun := time.Now()
			found := ask(t, s, stale(record.New("n1")))
			if time.Since(begun) != step.waited || (len(found) == 1) != (step.reads == agent.Off) {
				t.Errorf("%s: evidence %+v after %s, want it after %s", step.what, found, time.Since(begun), step.waited)
			}
		}
		tainted, claimed, confirmed := stale(nil), stale(record.New("n1")), stale(record.New("n1"))
		tainted.Node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown"}}
		gone, shutDown, void := stale(nil), stale(record.New("n1")), stale(record.New("n1"))
		gone.Node, gone.Holder.Node = nil, nil
		shutDown.Node.Spec.Taints = []corev1.Taint{{Key: shutdownTaint}}
		void.Record.AddConfirmation(record.Confirmation{ID: "c", By: "ann", Reason: "unplugged", Machines: []record.Machine{off}, Void: "it runs"})
		claimed.Record.Taints = map[string]record.TaintBinding{"node.cloudprovider.kubernetes.io/shutdown": {NodeUID: "u1"}}
		confirmed.Record.AddConfirmation(record.Confirmation{ID: "c", By: "ann", Reason: "unplugged", Machines: []record.Machine{off}})
		word := record.Release{ID: "r", Volume: volume, Driver: driver, NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "70", Token: "tok", Life: record.Silent, By: "ann", Reason: "looked"}
		withdrawn := word
		withdrawn.Void = "it runs"
		another := stale(record.New("n1"))
		another.Holder.Evidence = []fence.Evidence{{Kind: fence.SelfNodeRemediation}}
		released, over := stale(record.New("n1")), stale(record.New("n1"))
		released.Holder.Token = "tok"
		released.Record.AddRelease(word)
		over.Holder.Token = "tok"
		over.Record.AddRelease(withdrawn)
		for what, q := range map[string]Question{
			"another source says so, and nothing in the record": another, "an operator says that the volume is free of it": released, "it is tainted": tainted, "its Node is deleted": gone, "the cloud's taint is new": shutDown, "the cloud says that it is off": claimed, "an operator says that it is off": confirmed, "a minute has passed": stale(nil),
		} {
			if what == "a minute has passed" {
				time.Sleep(lateFor)
			}
			a.takes, a.answer = time.Second, fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}}
			if found := ask(t, s, q); len(found) != 1 || !found[0].On {
				t.Errorf("%s: the agents' contradiction is not waited for: %+v", what, found)
			}
			a.takes, a.answer = time.Minute, fencer.Answer{}
			ask(t, s, stale(nil)) // late again
		}
		contradicted := stale(record.New("n1"))
		contradicted.Holder.Evidence = []fence.Evidence{{Kind: fence.SelfNodeRemediation, Void: "it runs"}, {Kind: fence.PowerReading}, {Kind: fence.VolumeRelease, Living: true}}
		for _, q := range []Question{void, over, contradicted} {
			begun := time.Now()
			if ask(t, s, q); time.Since(begun) != hurry {
				t.Error("a word that does not count any more is worth the whole patience")
			}
		}
		other := stale(nil)
		other.Holder.NodeName, a.takes = "n2", 3*time.Second
		begun := time.Now()
		ask(t, s, other)
		if time.Since(begun) != a.takes {
			t.Error("another node's agents are not waited for")
		}
	})
}

func TestWhatTheAgentsCannotTellBecauseOfTheAPIServerIsAnError(t *testing.T) {
	for _, err := range []error{errors.New("connection refused"), context.DeadlineExceeded} {
		if _, got := Agents(&asker{power: true, err: err}).Evidence(t.Context(), stale(nil)); !errors.Is(got, err) {
			t.Errorf("error %v, want %v", got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Agents(&asker{power: true, takes: time.Hour}).Evidence(ctx, stale(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Agents that cannot tell say nothing against a person who can.
func TestAPersonIsHeardWhereAgentsCannotTellWhetherTheStorageIsCut(t *testing.T) {
	for name, tt := range map[string]struct {
		answer fencer.Answer
		want   fence.Reason
	}{
		"they cannot":   {fencer.Answer{}, fence.HolderFenced},
		"they read on":  {fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}}, fence.EvidenceContradicted},
		"nobody claims": {fencer.Answer{}, fence.EvidenceVoid},
	} {
		r := withFence(fence.StorageFence, "sidecar")
		if name != "nobody claims" {
			r.AddConfirmation(record.Confirmation{ID: "c", By: "ann", Reason: "unplugged", Machines: []record.Machine{off}})
		}
		q := stale(r)
		h := q.Holder
		h.LeaseRV = q.LeaseRV
		h.Evidence = append(ask(t, Agents(&asker{power: true, storage: true, answer: tt.answer}), q), ask(t, Confirmations(Records{ReadOnly: true}), q)...)
		if got := fence.JudgePublish(fence.Snapshot{Target: &fence.Holder{NodeID: "id2"}, Holders: []fence.Holder{h}}, "id2").Reason; got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestAFenceThatIsBeingLiftedIsNoEvidence(t *testing.T) {
	cut := fencer.Answer{State: agent.Off, Kind: fence.StorageFence, Storage: agent.Off}
	for name, a := range map[string]*asker{"cut": {storage: true, answer: cut}, "unclear": {storage: true}, "overridden": {storage: true}, "no agents": nil} {
		r := withFence(fence.StorageFence, "sidecar")
		r.Fences[0].Lift("back")
		if name == "overridden" {
			r.AddOverride(record.Override{ID: "o", Agent: "array", By: "ann", Reason: "down", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "70"}})
		}
		var sources []Source
		if a == nil {
			sources = []Source{Fences(nil)}
		} else {
			sources = []Source{Agents(a), Fences(a)}
		}
		q := stale(r)
		h := q.Holder
		for _, s := range sources {
			h.Evidence = append(h.Evidence, ask(t, s, q)...)
		}
		v := fence.JudgeUnpublish(fence.Snapshot{Holders: []fence.Holder{h}}, "id1")
		if v.Reason != fence.EvidenceVoid || v.Blocking.Note != fence.VoidLifting {
			t.Errorf("%s: %s %s: %+v", name, v.Action, v.Reason, h.Evidence)
		}
	}
	r := withFence(fence.StorageFence, "sidecar")
	r.Fences[0].Lift("back")
	open := &asker{storage: true, answer: fencer.Answer{State: agent.On, Kind: fence.StorageFence, Storage: agent.On}}
	if found := ask(t, Agents(open), stale(r)); found != nil {
		t.Errorf("open: %+v", found)
	}
	off := &asker{power: true, storage: true, answer: fencer.Answer{State: agent.Off, Kind: fence.PowerReading}}
	if found := ask(t, Agents(off), stale(r)); len(found) != 1 || found[0].Kind != fence.PowerReading || found[0].Void != "" {
		t.Errorf("off: %+v", found)
	}
}

// Its kubelet has registered it under another Node: it runs, or may.
func TestAMachineThatHasRegisteredAnewIsCutOffOnlyIfItIsReadSo(t *testing.T) {
	const system = "11111111-2222-3333-4444-555555555555"
	cut, open := fencer.Answer{State: agent.Off, Kind: fence.StorageFence, Storage: agent.Off}, fencer.Answer{State: agent.On, Kind: fence.StorageFence, Storage: agent.On}
	for name, tt := range map[string]struct {
		boot, system string
		asker        *asker
		asked        bool
		want         fence.Reason // empty: an error
	}{
		"read as cut":           {"b1", "", &asker{storage: true, answer: cut}, true, fence.HolderFenced},
		"read as open":          {"b1", "", &asker{storage: true, answer: open}, true, fence.HolderAlive},
		"unclear":               {"b1", "", &asker{storage: true}, true, ""},
		"no agents":             {"b1", "", nil, false, fence.HolderAlive},
		"booted, read as cut":   {"b2", system, &asker{storage: true, answer: cut}, true, fence.HolderFenced},
		"booted, read as open":  {"b2", system, &asker{storage: true, answer: open}, true, fence.HolderAlive},
		"booted, no agents":     {"b2", system, nil, false, fence.HolderAlive},
		"perhaps another":       {"b2", "", &asker{storage: true, answer: cut}, false, fence.HolderAlive},
		"perhaps, and no agent": {"b2", "", nil, false, fence.HolderAlive},
	} {
		q := stale(withFence(fence.StorageFence, "sidecar"))
		q.Node = machine("u2", tt.boot, "51")
		q.Node.Status.NodeInfo.SystemUUID = tt.system
		q.Holder.SystemUUID, q.Holder.Liveness = system, fence.Alive
		q.Holder.Node = &fence.Node{UID: "u2", BootID: tt.boot, SystemUUID: tt.system, InUse: true, Ready: true}
		q.Holder.Sources = []fence.Source{fence.FromLedger, fence.FromVolumesInUse}
		sources := []Source{Fences(nil)}
		if tt.asker != nil {
			sources = []Source{Agents(tt.asker), Fences(tt.asker)}
		}
		h := q.Holder
		var failed error
		for _, s := range sources {
			found, err := s.Evidence(t.Context(), q)
			h.Evidence, failed = append(h.Evidence, found...), errors.Join(failed, err)
		}
		if v := fence.JudgeUnpublish(fence.Snapshot{Holders: []fence.Holder{h}}, "id1"); (failed != nil) != (tt.want == "") || failed == nil && v.Reason != tt.want {
			t.Errorf("%s: %s %s: %+v, %v", name, v.Action, v.Reason, h.Evidence, failed)
		}
		if tt.asker == nil {
			continue
		}
		if (len(tt.asker.asked) == 1) != tt.asked || tt.asked && (tt.asker.asked[0].UID != "u2" || tt.asker.asked[0].BootID != tt.boot || !tt.asker.asked[0].StorageOnly) {
			t.Errorf("%s: asked %+v", name, tt.asker.asked)
		}
	}
}

func TestANodeCutOffFromTheStorageIsNotTakenForOpenWhenNobodyCanTell(t *testing.T) {
	tests := map[string]*asker{
		"unclear":                 {storage: true},
		"slow":                    {storage: true, takes: time.Hour},
		"only the power was read": {storage: true, power: true, answer: fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}}},
	}
	for name, a := range tests {
		for _, alive := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				q := stale(withFence(fence.StorageFence, "sidecar"))
				if alive {
					q.Holder.Liveness, q.Holder.Node.InUse = fence.Alive, false
				}
				found, err := Agents(a).Evidence(t.Context(), q)
				how := map[bool]string{true: "have not said in time", false: "do not say clearly"}[name == "slow"]
				doubt := slices.IndexFunc(found, func(e fence.Evidence) bool { return e.Kind == fence.StorageFence })
				if err != nil || doubt < 0 || !strings.Contains(found[doubt].Void, how) {
					t.Errorf("%s, alive: %v: evidence %+v, error %v", name, alive, found, err)
				}
				if on := slices.ContainsFunc(found, func(e fence.Evidence) bool { return e.On }); on != (a.answer.On != nil) {
					t.Errorf("%s: evidence %+v, without what reads on", name, found)
				}
				// It may be the one that asks for the volume.
				q.Holder.State = fence.NotInLedger
				found, err = Agents(a).Evidence(t.Context(), q)
				if err == nil || !strings.Contains(err.Error(), "fence f1") || !strings.Contains(err.Error(), how) || !strings.Contains(err.Error(), "fence withdraw n1 --id f1 ") {
					t.Errorf("%s, not in the ledger: evidence %+v, error %v", name, found, err)
				}
			})
		}
	}
	t.Run("overridden", func(t *testing.T) {
		tests := map[string]struct {
			change func(*Question, *asker)
			counts bool // the record's word
		}{
			"as it is now":                      {func(*Question, *asker) {}, true},
			"the Node is gone":                  {func(q *Question, _ *asker) { q.Node, q.Holder.Node, q.Holder.Liveness = nil, nil, fence.Unknown }, true},
			"rebooted since":                    {func(q *Question, _ *asker) { q.Node = machine("u1", "b2", "51") }, false},
			"in a later boot than the ledger's": {func(q *Question, _ *asker) { q.Holder.BootID = "b0" }, true},
			"the fence is another machine's":    {func(q *Question, _ *asker) { q.Record.Fences[0].Machine.NodeUID = "u0" }, false},
			"the agents are taken away by now":  {func(_ *Question, a *asker) { a.nameless = true }, false},
			"nobody vouches for the fence":      {func(q *Question, _ *asker) { q.Record.Fences[0].Actor = "x" }, false},
		}
		for name, tt := range tests {
			r := withFence(fence.StorageFence, "sidecar")
			r.AddOverride(record.Override{ID: "o", Agent: "array", By: "ann", Reason: "down", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "70"}})
			q, a := stale(r), &asker{storage: true}
			tt.change(&q, a)
			found, err := Agents(a).Evidence(t.Context(), q)
			if counts := len(found) == 1 && found[0].Kind == fence.StorageFence && found[0].Void == ""; counts != tt.counts || err != nil {
				t.Errorf("%s: evidence %+v, error %v; should the record's word count: %v", name, found, err, tt.counts)
			}
		}
	})
	t.Run("open", func(t *testing.T) {
		open := &asker{storage: true, answer: fencer.Answer{State: agent.On, Kind: fence.StorageFence, Storage: agent.On}}
		if found := ask(t, Agents(open), stale(withFence(fence.StorageFence, "sidecar"))); found != nil {
			t.Errorf("evidence %+v", found)
		}
	})
}

// That nobody can tell whether a living node is cut off does not say that it writes.
func TestALivingNodeIsNotSaidToWriteWhereTheAgentsCannotTell(t *testing.T) {
	cut := fencer.Answer{State: agent.Off, Kind: fence.StorageFence, Storage: agent.Off}
	release := record.Release{ID: "r", Volume: volume, Driver: driver, NodeID: "id1", NodeUID: "u1", BootID: "b1", Token: "tok", Life: record.Living, By: "ann", Reason: "looked"}
	for name, tt := range map[string]struct {
		asker  *asker
		change func(*Question)
		want   fence.Reason // empty: an error
	}{
		"they cannot tell":     {&asker{storage: true}, func(*Question) {}, ""},
		"it is being lifted":   {&asker{storage: true, answer: cut}, func(q *Question) { q.Record.Fences[0].Lift("back") }, ""},
		"without agents":       {nil, func(q *Question) { q.Record.Fences[0].Lift("back") }, ""},
		"the volume is listed": {&asker{storage: true}, func(q *Question) { q.Holder.Node.InUse, q.Holder.Node.ListedAttached = false, true }, ""},
		"another volume is released": {&asker{storage: true}, func(q *Question) {
			q.Record.AddRelease(release)
			q.Record.Releases[0].Volume = "other"
		}, ""},
		"its kubelet has let go": {&asker{storage: true}, func(q *Question) { q.Holder.Node.InUse = false }, fence.HolderReleased},
		"it is silent":           {&asker{storage: true}, func(q *Question) { q.Holder.Liveness = fence.Stale }, fence.EvidenceVoid},
		"a person released the volume": {&asker{storage: true}, func(q *Question) {
			q.Holder.Node.InUse, q.Holder.Node.ListedAttached = false, true
			q.Record.AddRelease(release)
		}, fence.EvidenceContradicted},
		"a person released the volume, and it is listed since": {&asker{storage: true}, func(q *Question) { q.Record.AddRelease(release) }, ""},
		"they read it as cut": {&asker{storage: true, answer: cut}, func(*Question) {}, fence.HolderFenced},
	} {
		q := stale(withFence(fence.StorageFence, "sidecar"))
		q.Holder.Liveness, q.Holder.Token = fence.Alive, "tok"
		tt.change(&q)
		sources := []Source{Fences(nil), Releases(Records{ReadOnly: true})}
		if tt.asker != nil {
			sources = []Source{Agents(tt.asker), Fences(tt.asker), Releases(Records{ReadOnly: true})}
		}
		h := q.Holder
		var failed error
		for _, s := range sources {
			found, err := s.Evidence(t.Context(), q)
			h.Evidence, failed = append(h.Evidence, found...), errors.Join(failed, err)
		}
		if tt.want == "" {
			if failed == nil || !strings.Contains(failed.Error(), "fence withdraw n1 --id f1 ") {
				t.Errorf("%s: %+v, error %v", name, h.Evidence, failed)
			}
			continue
		}
		if v := fence.JudgeUnpublish(fence.Snapshot{Holders: []fence.Holder{h}}, "id1"); failed != nil || v.Reason != tt.want {
			t.Errorf("%s: %s %s, error %v", name, v.Action, v.Reason, failed)
		}
	}
}

// What was taken over, and what the driver lists there all the same, is asked of the agents.
func TestATakenOverNodeIsSettledUntilTheDriverListsIt(t *testing.T) {
	h := fence.Holder{State: fence.TakenOver, Sources: []fence.Source{fence.FromLedger}}
	if !settled(&h) {
		t.Error("evidence is asked of a node that holds nothing")
	}
	if h.Sources = append(h.Sources, fence.FromDriver); settled(&h) {
		t.Error("nothing is asked of a node that the driver lists again")
	}
}

// apart is an asker whose agents for power are another process's.
func apart(err error) *asker { return &asker{elsewhere: true, err: err} }

var silence = &fencer.UnansweredError{Node: "n1", Why: "it does not answer", Err: context.DeadlineExceeded}

// claiming is a record in which a person says that n1 is off.
func claiming() *record.Record {
	r := record.New("n1")
	r.AddConfirmation(record.Confirmation{ID: "c", By: "ann", Reason: "unplugged", Machines: []record.Machine{off}})
	return r
}

// judged is what a publish elsewhere is answered, by these sources after the person's word.
func judged(t *testing.T, q Question, a Asker) fence.Verdict {
	t.Helper()
	h := q.Holder
	h.LeaseRV, h.Liveness = q.LeaseRV, fence.Stale
	for _, s := range []Source{Confirmations(Records{ReadOnly: true}), NodeDeleted{}, Agents(a), Fences(a)} {
		q.Holder.Evidence = h.Evidence
		h.Evidence = append(h.Evidence, ask(t, s, q)...)
	}
	return fence.JudgePublish(fence.Snapshot{Target: &fence.Holder{NodeID: "id2"}, Holders: []fence.Holder{h}}, "id2")
}

func TestAClaimCountsOnlyWhereWhoReadsThePowerHasAnswered(t *testing.T) {
	on := fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}}
	for name, c := range map[string]struct {
		answer fencer.Answer
		err    error
		want   fence.Reason
	}{
		"on":        {on, nil, fence.EvidenceContradicted},
		"off":       {fencer.Answer{State: agent.Off, Kind: fence.PowerReading, Agents: []string{"bmc"}}, nil, fence.HolderFenced},
		"unclear":   {fencer.Answer{Why: "bmc does not answer"}, nil, fence.HolderFenced},
		"uncovered": {fencer.Answer{Why: "no fence agent reads its power"}, nil, fence.HolderFenced},
		"none":      {fencer.Answer{}, silence, fence.EvidenceContradicted},
		"not asked": {fencer.Answer{}, &fencer.UnansweredError{Node: "n1", Why: "it cannot be asked"}, fence.EvidenceContradicted},
	} {
		t.Run(name, func(t *testing.T) {
			a := apart(c.err)
			a.answer = c.answer
			v := judged(t, stale(claiming()), a)
			if v.Reason != c.want || len(a.asked) != 1 {
				t.Errorf("%s, asked %d times", v.Reason, len(a.asked))
			}
			if c.err == nil {
				return
			}
			text := v.Message(&fence.Snapshot{Volume: "vol", Target: &fence.Holder{NodeID: "id2"}})
			for _, words := range []string{"csi-fencepost failover has not said whether the machine is on: it", "kubectl get pods -n csi-fencepost-failover", "fence confirm n1 --reason", "--override-agent"} {
				if !strings.Contains(text, words) {
					t.Errorf("%q does not say %q", text, words)
				}
			}
		})
	}
}

// external-attacher has few workers, and a claim counts no sooner because one of them stays.
func TestNoCallStaysTwiceForAnAnswerThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := apart(silence)
		a.takes = time.Minute
		s := Agents(a)
		for _, want := range []time.Duration{patience, hurry, hurry} {
			begun := time.Now()
			if found := ask(t, s, stale(claiming())); len(found) != 1 || !found[0].Unanswered || time.Since(begun) != want {
				t.Errorf("%+v after %s, want it after %s", found, time.Since(begun), want)
			}
		}
	})
}

// A silent node that nobody says to be off is asked for as long as an answer takes that can tell.
func TestWithoutAClaimNoCallStaysToHearThatNobodyCanTell(t *testing.T) {
	if hurry >= glance || glance >= patience {
		t.Errorf("a glance of %s is not between %s and %s", glance, hurry, patience)
	}
	synctest.Test(t, func(t *testing.T) {
		a := apart(nil)
		a.takes = 3 * time.Second
		s := Agents(a)
		for _, want := range []time.Duration{glance, hurry} {
			begun := time.Now()
			if ask(t, s, stale(nil)); time.Since(begun) != want {
				t.Errorf("it took %s, want %s", time.Since(begun), want)
			}
		}
		// The call before went without an answer, and had no claim. It does not shorten the wait of
		// the next call, which has one.
		begun := time.Now()
		if ask(t, s, stale(claiming())); time.Since(begun) != a.takes || !a.asked[2].Claimed || a.asked[0].Claimed {
			t.Errorf("with a claim it took %s, asked %+v", time.Since(begun), a.asked)
		}
	})
}

// Of a node that renewed its lease a moment ago only the answer counts that comes.
func TestACallStaysForTheAnswerThatAMachineProvenEarlyIsOffStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := apart(nil)
		a.takes = 3 * time.Second
		a.answer = fencer.Answer{State: agent.Off, Kind: fence.PowerReading, Agents: []string{"bmc"}}
		for _, life := range []fence.Liveness{fence.Alive, fence.Unwatched} {
			q := stale(provenEarly())
			q.Holder.Liveness = life
			begun := time.Now()
			if found := ask(t, Agents(a), q); len(found) != 1 || found[0].Missed == "" || time.Since(begun) != a.takes {
				t.Errorf("%+v after %s", found, time.Since(begun))
			}
		}
	})
}

// What is asked of the storage alone says nothing of who reads the power.
func TestAnAnswerOfTheStorageDoesNotHaveCallsStayForThatOfThePower(t *testing.T) {
	s := Agents(&asker{elsewhere: true, storage: true})
	s.late["n1"] = lateness{time.Now(), true}
	q := stale(withFence(fence.StorageFence, "other"))
	q.Holder.Liveness = fence.Alive
	if _, err := s.Evidence(t.Context(), q); err == nil || !s.late["n1"].unsaid {
		t.Errorf("error %v, late %+v", err, s.late)
	}
}

// Nobody says of a living node that is cut off from its storage that it is off.
func TestACallDoesNotStayForAWordAboutALivingNodeThatNobodySaysToBeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{elsewhere: true, storage: true, takes: time.Minute}
		q := stale(withFence(fence.StorageFence, "other"))
		q.Holder.Liveness = fence.Alive
		begun := time.Now()
		if _, err := Agents(a).Evidence(t.Context(), q); err == nil || time.Since(begun) != glance {
			t.Errorf("error %v after %s", err, time.Since(begun))
		}
	})
}

// One outlet that is on is enough for a machine to run, whatever the device of the other one says
// once it answers.
func TestWhoHasReadOnIsHeardWhileAnotherAgentHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{power: true, takes: time.Minute}
		if v := judged(t, stale(claiming()), a); v.Reason != fence.HolderFenced {
			t.Errorf("nobody has read on: %s", v.Reason)
		}
		a.heard = []string{"pdu-b"}
		if v := judged(t, stale(claiming()), a); v.Reason != fence.EvidenceContradicted {
			t.Errorf("one has: %s", v.Reason)
		}
	})
}

// What there is no claim of waits for the answer, as it does for agents that are slow.
func TestWithoutAClaimAnAnswerThatIsMissingChangesNothing(t *testing.T) {
	if v := judged(t, stale(nil), apart(silence)); v.Reason != fence.HolderStale {
		t.Error(v.Reason)
	}
	// Nor does it speak against what somebody has measured.
	r := claiming()
	r.PutFence(withFence(fence.PowerReading, "other").Fences[0], "Fenced")
	r.Fences[0].Machine.SystemUUID = "s1"
	r.PutFence(r.Fences[0], "Fenced")
	a := apart(silence)
	if v := judged(t, stale(r), a); v.Reason != fence.HolderFenced || len(a.asked) != 1 {
		t.Errorf("%s, asked %d times", v.Reason, len(a.asked))
	}
	r.Fences[0].Machine.LeaseRV = "60" // a sign of life since
	r.PutFence(r.Fences[0], "Fenced")
	if v := judged(t, stale(r), a); v.Reason != fence.EvidenceContradicted || len(a.asked) != 2 {
		t.Errorf("of another time: %s, asked %d times", v.Reason, len(a.asked))
	}
}

// Somebody may have switched it on by hand since it was fenced, and its kubelet has not been heard
// yet. Who reads the power is asked before each move, as agents of our own are.
func TestARecordedFenceOfThePowerIsHeldAgainstWhatIsReadNow(t *testing.T) {
	on := fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}}
	for name, c := range map[string]struct {
		asker  *asker
		answer fencer.Answer
		asks   int
		want   fence.Reason
	}{
		"on":                      {apart(nil), on, 1, fence.EvidenceContradicted},
		"off":                     {apart(nil), fencer.Answer{State: agent.Off, Kind: fence.PowerReading, Agents: []string{"bmc"}}, 1, fence.HolderFenced},
		"unclear":                 {apart(nil), fencer.Answer{Why: "bmc does not answer"}, 1, fence.HolderFenced},
		"no answer":               {apart(silence), fencer.Answer{}, 1, fence.HolderFenced},
		"there is nobody to ask":  {&asker{}, on, 0, fence.HolderFenced},
		"agents only cut storage": {&asker{only: true}, on, 0, fence.HolderFenced},
		"agents of our own: on":   {&asker{power: true}, on, 1, fence.HolderStale},
		"agents of our own: mute": {&asker{power: true}, fencer.Answer{}, 1, fence.HolderStale},
	} {
		t.Run(name, func(t *testing.T) {
			r := record.New("n1")
			f := withFence(fence.PowerReading, "other").Fences[0]
			f.Machine.SystemUUID = "s1"
			r.PutFence(f, "Fenced")
			c.asker.answer = c.answer
			if v := judged(t, stale(r), c.asker); v.Reason != c.want || len(c.asker.asked) != c.asks {
				t.Errorf("%s, asked %d times", v.Reason, len(c.asker.asked))
			}
		})
	}
}

func TestADeletedNodeIsOffOnlyOnceWhoReadsThePowerHasAnswered(t *testing.T) {
	q := stale(nil)
	q.Node, q.Holder.Node, q.Holder.Liveness, q.LeaseRV = nil, nil, fence.Unknown, ""
	if v := judged(t, q, apart(silence)); v.Reason != fence.EvidenceContradicted {
		t.Error("without an answer:", v.Reason)
	}
	if v := judged(t, q, apart(nil)); v.Reason != fence.HolderFenced {
		t.Error("where no agent covers it:", v.Reason)
	}
}

func TestAnOperatorOverridesWhoDoesNotAnswer(t *testing.T) {
	r := claiming()
	r.AddOverride(record.Override{ID: "o", Agent: fencer.FailoverAgent, By: "ann", Reason: "uninstalled", Machine: record.Machine{NodeUID: "u1", BootID: "b1", LeaseRV: "70"}})
	if v := judged(t, stale(r), apart(silence)); v.Reason != fence.HolderFenced {
		t.Error(v.Reason)
	}
	r.Overrides[0].Machine.LeaseRV = "60" // from before a sign of life
	if v := judged(t, stale(r), apart(silence)); v.Reason != fence.EvidenceContradicted {
		t.Error("of another time:", v.Reason)
	}
}

// The storage's own agents are asked here, and what they say counts without the power.
func TestTheStoragesWordCountsWithoutThePowers(t *testing.T) {
	a := apart(silence)
	a.storage, a.answer = true, fencer.Answer{State: agent.Off, Kind: fence.StorageFence, Storage: agent.Off, Agents: []string{"array"}}
	r := withFence(fence.StorageFence, "other")
	r.AddConfirmation(claiming().Confirmations[0])
	if v := judged(t, stale(r), a); v.Reason != fence.HolderFenced {
		t.Error(v.Reason)
	}
	a.answer = fencer.Answer{}
	if v := judged(t, stale(r), a); v.Reason != fence.EvidenceContradicted {
		t.Error("where it is not clear:", v.Reason)
	}
}

// Failover acts on a person's word where it has no agents that read power, too.
func TestWhoActsOnAClaimIsToldWhatSpeaksAgainstIt(t *testing.T) {
	claim := fence.Evidence{Kind: fence.OperatorConfirmation, NodeUID: "u1"}
	void := claim
	void.Void = "the node has booted since"
	on := fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}}
	for name, c := range map[string]struct {
		before         []fence.Evidence
		answer         fencer.Answer
		err            error
		asks           int
		on, unanswered bool
	}{
		"nobody claims anything": {nil, on, nil, 0, false, false},
		"a claim is void":        {[]fence.Evidence{void}, on, nil, 0, false, false},
		"on":                     {[]fence.Evidence{claim}, on, nil, 1, true, false},
		"off":                    {[]fence.Evidence{claim}, fencer.Answer{State: agent.Off, Kind: fence.PowerReading}, nil, 1, false, false},
		"unclear":                {[]fence.Evidence{claim}, fencer.Answer{}, nil, 1, false, false},
		"no answer":              {[]fence.Evidence{claim}, fencer.Answer{}, silence, 1, false, true},
	} {
		a := apart(c.err)
		a.answer = c.answer
		q := stale(claiming())
		q.Holder.Evidence = c.before
		found := ask(t, against(a), q)
		if len(a.asked) != c.asks || (len(found) == 1) != (c.on || c.unanswered) || len(found) == 1 && (found[0].On != c.on || found[0].Unanswered != c.unanswered) {
			t.Errorf("%s: asked %d times, %+v", name, len(a.asked), found)
		}
	}
}

// provenEarly is a record whose power fence was proven before the lease was silent.
func provenEarly() *record.Record {
	r := withFence(fence.PowerReading, "other")
	r.PutMissed("f1", "a renewal of its lease was due")
	return r
}

// A guard that has just started does not know whether the lease is silent by now.
func TestAGuardThatHasJustStartedDoesNotGoByTheRecordOfAnEarlyFence(t *testing.T) {
	for name, c := range map[string]struct {
		record *record.Record
		life   fence.Liveness
		want   int
	}{
		"unwatched":                      {provenEarly(), fence.Unwatched, 0},
		"silent":                         {provenEarly(), fence.Stale, 1},
		"unwatched, of a lease that was": {withFence(fence.PowerReading, "other"), fence.Unwatched, 1},
	} {
		q := stale(c.record)
		q.Holder.Liveness = c.life
		if found := ask(t, Fences(apart(nil)), q); len(found) != c.want {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// What is missing stands in the record, and that the machine is off is read once more.
func TestAMachineThatWasProvenOffEarlyIsReadOnceMore(t *testing.T) {
	for name, c := range map[string]struct {
		record *record.Record
		answer fencer.Answer
		want   fence.Reason
	}{
		"off":                 {provenEarly(), fencer.Answer{State: agent.Off, Kind: fence.PowerReading, Agents: []string{"bmc"}}, fence.HolderFenced},
		"on by now":           {provenEarly(), fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}}, fence.HolderAlive},
		"nobody can tell":     {provenEarly(), fencer.Answer{}, fence.HolderAlive},
		"nothing was missing": {withFence(fence.PowerReading, "other"), fencer.Answer{State: agent.Off, Kind: fence.PowerReading}, fence.HolderAlive},
		"nobody vouches for it": {func() *record.Record {
			r := withFence(fence.PowerReading, "other")
			r.Fences[0].Missed = "somebody writes so"
			return r
		}(), fencer.Answer{State: agent.Off, Kind: fence.PowerReading}, fence.HolderAlive},
	} {
		q := stale(c.record)
		q.Holder.Liveness = fence.Alive
		h := q.Holder
		h.LeaseRV = q.LeaseRV
		h.Evidence = ask(t, Agents(&asker{power: true, answer: c.answer}), q)
		if got := fence.JudgePublish(fence.Snapshot{Target: &fence.Holder{NodeID: "id2"}, Holders: []fence.Holder{h}}, "id2").Reason; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		// Where nobody answers, the record alone proves nothing before the lease is silent.
		h.Evidence = ask(t, Fences(nil), q)
		if got := fence.JudgePublish(fence.Snapshot{Target: &fence.Holder{NodeID: "id2"}, Holders: []fence.Holder{h}}, "id2").Reason; got != fence.EvidenceContradicted {
			t.Errorf("%s, by the record alone: %s", name, got)
		}
	}
}
