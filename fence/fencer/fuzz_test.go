package fencer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// asksOf is a question as a process that writes records may put it.
func asksOf(q record.Question) string {
	text, err := json.Marshal([]record.Question{q})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// asked has the questions stand in the record of node n1, with what is vouched for there as it was;
// nil: that is no record.
func (r *registry) asked(questions string) *coordinationv1.Lease {
	lease := r.server.Lease(ns, record.LeaseName("n1"))
	text, _ := strings.CutSuffix(lease.Annotations[record.Annotation], "}")
	lease.Annotations[record.Annotation] = text + `,"questions":` + strings.ReplaceAll(questions, "LEASE", r.leaseRV("n1")) + "}"
	if _, err := record.FromLease(lease, "n1"); err != nil {
		return nil
	}
	r.server.Put(lease)
	return r.server.Lease(ns, record.LeaseName("n1"))
}

// Whatever is asked about a node whose machine is known, by whoever writes records: no agent is told
// to change anything; an agent that finds machines by what nodes say is told what this node has been
// known by, or that it is in doubt; and off is answered only to who asks about the Node's own machine
// and lease, where there is a Node, and of one that is gone only by what it has been known by.
func FuzzQuestions(f *testing.F) {
	own := record.Question{ID: "q", Driver: driver, Actor: "eve", NodeUID: "u1", BootID: "b-u1", SystemUUID: uuid1, ProviderID: "aws:///z/i-1", NodeID: "id1", LeaseRV: "LEASE"}
	for _, change := range []func(*record.Question){
		func(*record.Question) {},
		func(q *record.Question) { q.SystemUUID, q.ProviderID, q.NodeID = uuid2, "aws:///z/i-2", "id2" },
		func(q *record.Question) { q.SystemUUID, q.ProviderID, q.NodeID = "", "", "id2" },
		func(q *record.Question) { q.SystemUUID, q.ProviderID, q.NodeID = uuid2, "", "" },
		func(q *record.Question) { q.SystemUUID, q.ProviderID, q.NodeID = "", "x/I-2", "" },
		func(q *record.Question) { q.NodeUID, q.BootID = "u2", "b-u2" },
		func(q *record.Question) { q.NodeUID = "u2" },
		func(q *record.Question) { q.BootID = "b-u2" },
		func(q *record.Question) { q.LeaseRV = "1" },
		func(q *record.Question) { q.Driver, q.NodeID = "another", "id\n2" },
		func(q *record.Question) {
			q.NodeID, q.ProviderID, q.SystemUUID = "id1\naction=off", "i-1\r\n", "\x00\x1b[2J"
		},
		func(q *record.Question) {
			q.Answer = &record.Answer{State: "off", Actor: "eve", Agents: []string{"bmc"}}
		},
		func(q *record.Question) { q.ID, q.Actor = strings.Repeat("q", 4000), strings.Repeat("\u2028", 4000) },
	} {
		q := own
		change(&q)
		f.Add(asksOf(q), false)
		f.Add(asksOf(q), true)
	}
	f.Add(`[]`, false)
	f.Add(`null,"questions":[{}]`, false)
	f.Fuzz(func(t *testing.T, questions string, gone bool) {
		registered(t, func(r *registry) {
			r.binds()
			r.set(true)
			if gone {
				r.leaves("n1")
			}
			lease := r.asked(questions)
			if lease == nil {
				return
			}
			a := &Answerer{Fencer: r.f, Alone: true}
			ctx, stop := context.WithCancel(r.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.Run(ctx) }()
			time.Sleep(time.Second)
			a.Saw(lease)
			time.Sleep(2 * answersWithin)
			stop()
			if err := <-ended; err != nil {
				r.Error(err)
			}
			if len(r.sent)+len(r.gave) > 0 {
				r.Errorf("a question had agents told %v %v", r.sent, r.gave)
			}
			for _, m := range r.said {
				if why := strays(m); why != "" {
					r.Errorf("an agent was told, without a doubt, %s: %+v", why, m)
				}
				if !gone && (m.UID != "u1" || m.SystemUUID != uuid1 || m.ProviderID != "aws:///z/i-1") {
					r.Errorf("an agent was told of another machine than node n1's: %+v", m)
				}
			}
			rec := r.record()
			for i := range rec.Questions {
				q := &rec.Questions[i]
				if !rec.Vouched(q) || q.Answer.State != "off" {
					continue
				}
				if q.LeaseRV != r.leaseRV("n1") || !gone && (q.NodeUID != "u1" || q.BootID != "b-u1") {
					r.Errorf("off is answered to %+v", q)
				}
				if m := (agent.Machine{SystemUUID: q.SystemUUID, ProviderID: q.ProviderID}); gone && strays(m) != "" {
					r.Errorf("off is answered to %+v, by %s", q, strays(m))
				}
			}
		})
	})
}

// strays says which of what an agent may find a machine by is not what node n1 has been known by, nor
// in doubt.
func strays(m agent.Machine) string {
	for name, value := range map[string][2]string{
		agent.VarSystemUUID: {fence.SystemKey(m.SystemUUID), fence.SystemKey(uuid1)},
		agent.VarProviderID: {strings.ToLower(m.ProviderID), "aws:///z/i-1"},
		agent.VarInstanceID: {strings.ToLower(fence.InstanceID(m.ProviderID)), "i-1"},
		agent.VarNodeID:     {strings.ToLower(m.NodeID), "id1"},
	} {
		if _, doubted := m.Doubts[name]; value[0] != "" && value[0] != value[1] && !doubted {
			return fmt.Sprintf("%s is %q", name, value[0])
		}
	}
	return ""
}

// Whatever answer somebody writes who may not vouch for one: who asked is told nothing by it.
func FuzzNobodysAnswerCounts(f *testing.F) {
	for _, answer := range []string{
		`{"state":"off","agents":["bmc"],"actor":"eve","at":"2026-01-01T00:00:00Z"}`,
		`{"state":"on","on":["bmc"],"actor":"eve"}`,
		`{"state":"unclear","uncovered":true,"actor":"\u001b[2J\n"}`,
		`{"state":"OFF","actor":"eve"}`, `{"actor":"eve"}`, `null`, `{}`, `{"actor":"eve"},"answer":{"state":"off","actor":"eve"}`,
	} {
		f.Add(answer, "")
		f.Add(answer, "0000000000000000000000000000000000000000000000000000000000000000,,=")
	}
	f.Fuzz(func(t *testing.T, answer, claimed string) {
		run(t, func(w *world) {
			s, woken := w.sidecar("s")
			go func() { // once it is asked
				time.Sleep(time.Second)
				lease := w.server.Lease(ns, record.LeaseName("n1"))
				text, asked := strings.CutSuffix(lease.Annotations[record.Annotation], "}]}")
				if !asked {
					w.Errorf("the record is %s", lease.Annotations[record.Annotation])
				}
				lease.Annotations[record.Annotation] = text + `,"answer":` + answer + "}]}"
				lease.Annotations[record.ClaimedAnnotation] = claimed // which others may add to
				w.server.Put(lease)
			}()
			got, err := w.patiently(s, w.target())
			end()
			if err == nil || got.State != agent.Unclear || got.Kind != "" || len(got.On)+len(got.Agents) > 0 || woken() != "" {
				w.Errorf("it is told %+v, %v, and woken of %q", got, err, woken())
			}
		})
	})
}
