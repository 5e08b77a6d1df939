package explain

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// recentReading is how old a reading of "on" in a node's record may be to be set
// against a claim here. The sidecar asks its agents again after 10 seconds; whoever
// explains cannot.
const recentReading = 10 * time.Minute

const voidOldReading = "it is the record's, and too old to say what the agent reads now"

// readBehind reads what is told beside the survey: the nodes' records, for the
// ages of what they claim, and the VolumeAttachments, for theirs.
func (l *looking) readBehind(ctx context.Context) error {
	k := l.look
	k.records, k.attachments = map[string]*record.Record{}, map[string]*storagev1.VolumeAttachment{}
	store := record.NewStore(l.client.CoordinationV1(), l.Config.Fencing.Namespace)
	for _, node := range nodesOf(k.Survey) {
		r, err := store.Get(ctx, node)
		if err != nil {
			k.notes = append(k.notes, cli.OneLineOf(err))
			continue
		}
		k.records[node] = r
	}
	for i := range k.Survey.Holders {
		a := k.Survey.Holders[i].Attachment
		if a == nil {
			continue
		}
		va, err := l.client.StorageV1().VolumeAttachments().Get(ctx, a.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("cannot read VolumeAttachment %s: %w", a.Name, err)
		default:
			k.attachments[a.Name] = va
		}
	}
	return nil
}

// recall adds, to every snapshot, the agents' readings of "on" that the records
// keep. Readings of "off" are in it already, as the records' fences.
// Where csi-fencepost failover reads the power, apart, what it answered last counts.
func (k *Look) recall(apart bool) {
	k.eachHolder(func(h *fence.Holder) {
		h.Evidence = append(h.Evidence, readingsOn(k.records[h.NodeName], h, k.now)...)
		if apart {
			h.Evidence = append(h.Evidence, answered(k.records[h.NodeName].QuestionOf(k.Driver), k.records[h.NodeName], h, k.now)...)
		}
	})
	if apart {
		k.notes = append(k.notes, "csi-fencepost failover reads the power of the nodes (fencing.apart). It was not asked: what it last answered in the nodes' records is shown. The sidecar asks it each time.")
	}
}

// answered is what the last question about the holder's machine came to, as evidence.
func answered(q *record.Question, r *record.Record, h *fence.Holder, now time.Time) []fence.Evidence {
	if q == nil || q.NodeUID != h.NodeUID {
		return nil
	}
	e := fence.Evidence{Kind: fence.PowerReading, NodeName: h.NodeName, NodeID: h.NodeID, NodeUID: q.NodeUID, BootID: q.BootID, LeaseRV: q.LeaseRV}
	machine := record.FencedMachine{NodeUID: q.NodeUID, BootID: q.BootID, LeaseRV: q.LeaseRV}
	void := func(agent string) string {
		if o := r.OverrideOf(agent, machine); o != nil {
			return "an operator says that this agent is wrong: " + o.Reason
		}
		return ""
	}
	if !r.Vouched(q) {
		e.Source, e.Unanswered, e.Void = fencer.FailoverAgent, true, void(fencer.FailoverAgent)
		e.Detail = "csi-fencepost failover has not said whether the machine is on: it was asked at " + q.At + ", and has not answered"
		return []fence.Evidence{e}
	}
	var found []fence.Evidence
	for _, name := range q.Answer.On {
		e.Source, e.On, e.Detail, e.Void = name, true, "answered at "+q.Answer.At+" by "+q.Answer.Actor, void(name)
		if at, ok := stamp(q.Answer.At); e.Void == "" && (!ok || now.Sub(at) > recentReading) {
			e.Void = voidOldReading
		}
		found = append(found, e)
	}
	return found
}

// eachHolder calls f for the holders of the survey and of each publish that
// waits: the same holder stands in several.
func (k *Look) eachHolder(f func(*fence.Holder)) {
	for i := range k.Survey.Holders {
		f(&k.Survey.Holders[i])
	}
	for i := range k.waiting {
		if s := k.waiting[i].snapshot; s != nil {
			for j := range s.Holders {
				f(&s.Holders[j])
			}
		}
	}
}

// readingsOn are the agents that read the holder's machine as on when they were
// last asked, as evidence bound to what they were asked of.
func readingsOn(r *record.Record, h *fence.Holder, now time.Time) []fence.Evidence {
	if r == nil || h.NodeUID == "" {
		return nil
	}
	var found []fence.Evidence
	asked := map[string]bool{}
	for i := len(r.Fences) - 1; i >= 0; i-- { // the newest is last
		f := &r.Fences[i]
		if f.Kind != fence.PowerReading || f.Machine.NodeUID != h.NodeUID {
			continue
		}
		for j := len(f.Steps) - 1; j >= 0; j-- {
			step := &f.Steps[j]
			if step.Action != "status" || asked[step.Agent] {
				continue
			}
			asked[step.Agent] = true
			if step.State != agent.On.String() {
				continue
			}
			e := fence.Evidence{Kind: fence.PowerReading, Source: step.Agent, Detail: step.Detail, On: true, NodeName: h.NodeName, NodeID: h.NodeID,
				NodeUID: f.Machine.NodeUID, BootID: f.Machine.BootID, LeaseRV: f.Machine.LeaseRV}
			if o := r.OverrideOf(step.Agent, f.Machine); o != nil {
				e.Void = "an operator says that this agent is wrong: " + o.Reason
			} else if at, ok := stamp(step.At); !ok || now.Sub(at) > recentReading {
				e.Void = voidOldReading
			}
			found = append(found, e)
		}
	}
	return found
}

func stamp(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil && !at.IsZero()
}

// evidenceSince finds, in the node's record, since when a piece of evidence is
// there; empty: nothing says so.
func evidenceSince(r *record.Record, e *fence.Evidence) string {
	if r == nil {
		return ""
	}
	switch e.Kind {
	case fence.OutOfServiceTaint, fence.CloudShutdownTaint:
		for key, b := range r.Taints {
			if (key == corev1.TaintNodeOutOfService) == (e.Kind == fence.OutOfServiceTaint) && b.Value == e.Source && b.NodeUID == e.NodeUID {
				return b.BoundAt
			}
		}
	case fence.OperatorConfirmation:
		for _, c := range r.Confirmations {
			if c.By == e.Source && c.Reason == e.Detail && slices.ContainsFunc(c.Machines, func(m record.Machine) bool { return m.NodeUID == e.NodeUID && m.LeaseRV == e.LeaseRV }) {
				return c.At
			}
		}
	case fence.VolumeRelease:
		for _, rel := range r.Releases {
			if rel.By == e.Source && rel.Reason == e.Detail && rel.NodeUID == e.NodeUID {
				return rel.At
			}
		}
	case fence.PowerReading, fence.StorageFence:
		return fenceSince(r, e)
	}
	return ""
}

// fenceSince is when the agents read what the evidence says.
func fenceSince(r *record.Record, e *fence.Evidence) string {
	for i := len(r.Fences) - 1; i >= 0; i-- {
		f := &r.Fences[i]
		if f.Kind != e.Kind || f.Machine.NodeUID != e.NodeUID || f.Machine.LeaseRV != e.LeaseRV {
			continue
		}
		for j := len(f.Steps) - 1; j >= 0; j-- {
			step := &f.Steps[j]
			if step.Action == "status" && (!e.On || step.Agent == e.Source) {
				return step.At
			}
		}
		if !e.On && f.EndedAt != "" {
			return f.EndedAt
		}
		if !e.On {
			return f.StartedAt
		}
	}
	return ""
}

// ledgerWritten is when the annotation's manager last wrote to the
// PersistentVolume, on the API server's clock; zero: it is not known.
func ledgerWritten(pv *corev1.PersistentVolume) time.Time {
	var last time.Time
	for _, m := range pv.ManagedFields {
		if m.FieldsV1 == nil || m.Time == nil || !bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:`+ledger.Annotation+`"`)) {
			continue
		}
		if m.Time.After(last) {
			last = m.Time.Time
		}
	}
	return last
}

// sinceWords is a time that is written down, and how long ago it is.
func sinceWords(at string, now time.Time) string {
	t, ok := stamp(at)
	if !ok {
		return at
	}
	return cli.Ago(now.Sub(t))
}

// attachError is what the attacher was last told, shortened.
func attachError(va *storagev1.VolumeAttachment) (message string, at time.Time) {
	e := va.Status.AttachError
	if va.DeletionTimestamp != nil {
		e = va.Status.DetachError
	}
	if e == nil {
		return "", time.Time{}
	}
	return printable.Line(e.Message), e.Time.Time
}
