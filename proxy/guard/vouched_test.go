package guard_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// readsOn is a fence agent, called bmc, that reads every machine's power as on.
type readsOn struct{}

func (readsOn) Covers(string) bool            { return true }
func (readsOn) CoversPower(string) bool       { return true }
func (readsOn) AsksPower(string) bool         { return true }
func (readsOn) CoversStorage(string) bool     { return false }
func (readsOn) StorageAgents(string) []string { return nil }
func (readsOn) Ask(_ context.Context, t fencer.Target) (fencer.Answer, error) {
	return fencer.Answer{State: agent.On, Kind: fence.PowerReading, On: []string{"bmc"}, Machine: record.FencedMachine{NodeUID: t.UID, BootID: t.BootID, LeaseRV: t.LeaseRV}}, nil
}

// A sidecar of any driver writes what it likes into the records of all nodes. Without the annotations that
// vouch for it, it moves no volume and frees none, the refusal says so, and a claim that has ended does not count
// because it is written back.
func TestWhatStandsInARecordAloneMovesNoVolume(t *testing.T) {
	const lease = "7"
	machine := record.Machine{NodeID: guardrig.ID("old"), NodeUID: "uid-of-old", BootID: "boot-of-old", LeaseRV: lease}
	fenced := func(kind fence.Kind, driver string) func(*guardrig.Rig, *record.Record) {
		return func(_ *guardrig.Rig, rec *record.Record) {
			rec.PutFence(record.Fence{ID: "x", Kind: kind, Driver: driver, Phase: record.Fenced, Actor: "x", Agents: []string{"x"},
				Machine: record.FencedMachine{NodeUID: machine.NodeUID, BootID: machine.BootID, LeaseRV: lease}}, "Fenced")
		}
	}
	confirmed := func(_ *guardrig.Rig, rec *record.Record) {
		rec.Confirmations = nil
		rec.AddConfirmation(record.Confirmation{ID: "c", By: "x", Reason: "x", Machines: []record.Machine{machine}})
	}
	for name, c := range map[string]struct {
		claim, before func(*guardrig.Rig, *record.Record) // before is what somebody has vouched for; nil: nothing
		says          []string
	}{
		"power":     {fenced(fence.PowerReading, ""), nil, []string{"[" + string(fence.EvidenceVoid) + "]", "nobody who may fence vouches for it"}},
		"storage":   {fenced(fence.StorageFence, guardrig.DriverName), nil, []string{"[" + string(fence.EvidenceVoid) + "]", "nobody who may fence vouches for it"}},
		"confirmed": {confirmed, nil, []string{"[" + string(fence.EvidenceVoid) + "]", "nobody who may say so vouches for it"}},
		"released": {func(r *guardrig.Rig, rec *record.Record) {
			rec.Releases = nil
			rec.AddRelease(record.Release{ID: "x", Volume: guardrig.Handle, Driver: guardrig.DriverName, NodeID: machine.NodeID, NodeUID: machine.NodeUID,
				BootID: machine.BootID, LeaseRV: lease, Token: r.Ledger().Get(machine.NodeID).Token, Life: record.Silent, By: "x", Reason: "x"})
		}, nil, []string{"[" + string(fence.EvidenceVoid) + "]", "nobody who may say so vouches for it"}},
		"overridden": {func(_ *guardrig.Rig, rec *record.Record) {
			rec.Overrides = nil
			rec.AddOverride(record.Override{ID: "x", Agent: "bmc", By: "x", Reason: "x", Machine: machine})
		}, confirmed, []string{"[" + string(fence.EvidenceContradicted) + "]", "bmc"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := guardrig.Held(t)
			r.Attachment("old", guardrig.Now)
			r.Lists("old", true, false)
			r.Lease("old", lease)
			r.Lives["old"], r.Watched, r.Calls = fence.Stale, lease, nil
			store := record.NewStore(r.Client.CoordinationV1(), "csi-fencepost")
			records := evidence.Records{Store: store, Actor: "x"}
			r.Guard.Surveyor.Sources = []evidence.Source{evidence.Fences(nil), evidence.Confirmations(records), evidence.Releases(records)}
			if c.before != nil {
				r.Guard.Surveyor.Sources = append(r.Guard.Surveyor.Sources, evidence.Agents(readsOn{}))
			}
			write := func(change func(*guardrig.Rig, *record.Record)) {
				t.Helper()
				_, err := store.Update(t.Context(), "old", func(rec *record.Record) (bool, error) { change(r, rec); return true, nil })
				r.Must(err)
			}
			refused := func() {
				t.Helper()
				r.Refused(r.PublishTo("next"), codes.FailedPrecondition, c.says...)
				if r.UnpublishFrom(machine.NodeID) == nil {
					t.Error("it is unpublished")
				}
				r.Called()
			}
			// alone is what the Lease says, with what vouches for it as it was before.
			leases := r.Client.CoordinationV1().Leases("csi-fencepost")
			alone := func(claims string, vouches map[string]string) {
				t.Helper()
				l, err := leases.Get(t.Context(), record.LeaseName("old"), metav1.GetOptions{})
				r.Must(err)
				l.Annotations[record.Annotation] = claims
				for _, of := range []string{record.FencedAnnotation, record.ClaimedAnnotation} {
					delete(l.Annotations, of)
					if was, is := vouches[of]; is {
						l.Annotations[of] = was
					}
				}
				_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
				r.Must(err)
			}
			annotations := func() map[string]string {
				t.Helper()
				l, err := leases.Get(t.Context(), record.LeaseName("old"), metav1.GetOptions{})
				r.Must(err)
				return l.Annotations
			}
			before := map[string]string{}
			if c.before != nil {
				write(c.before)
				before = annotations()
			}
			write(c.claim)
			claimed := annotations()[record.Annotation]
			alone(claimed, before)
			refused()

			write(c.claim)
			write(func(_ *guardrig.Rig, rec *record.Record) {
				rec.EndFence("x", record.Void, "seen", "x")
				for i := range rec.Confirmations {
					if c.before == nil {
						rec.Confirmations[i].Machines[0].Void = "seen"
					}
				}
				for i := range rec.Releases {
					rec.Releases[i].Void = "seen"
				}
				for i := range rec.Overrides {
					rec.Overrides[i].Machine.Void = "seen"
				}
			})
			alone(claimed, annotations())
			refused()

			write(c.claim)
			r.Must(r.PublishTo("next"))
		})
	}
}
