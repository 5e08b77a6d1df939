package record_test

import (
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

// cut is a record with fence f1, for which an off was sent.
func cut(t *testing.T) (*leasetest.Server, *record.Store) {
	t.Helper()
	server, s := serve(t)
	update(t, s, func(r *record.Record) {
		f := powerFence("f1")
		f.Machine.NodeIDs = map[string]string{"d": "id1", "e": "id2"}
		f.Steps = []record.FenceStep{{Agent: "bmc", Action: "status", At: f.StartedAt}, {Agent: "bmc", Action: "off", At: f.StartedAt}}
		r.PutFence(f, "Fenced")
	})
	return server, s
}

func timed(t *testing.T, s *record.Store) bool {
	t.Helper()
	r := get(t, s, "n1")
	return r.Vouched(r.FenceByID("f1").Cutting())
}

// The brakes count for an hour what was cut, however soon the node is back: by whoever sees it
// back, who may not be one who vouches.
func TestThatAndWhenAFenceCutStaysVouchedForWhenItHasEnded(t *testing.T) {
	for _, end := range []record.Phase{record.Void, record.Failed, record.Lifted} {
		_, s := cut(t)
		if update(t, s, func(r *record.Record) { r.EndFence("f1", end, "back", "b") }); !timed(t, s) {
			t.Errorf("%s: nobody vouches any more for when it cut", end)
		}
		if vouched(t, s) {
			t.Errorf("%s: it is vouched for still", end)
		}
		// Nor is it of a fence that somebody takes up again.
		update(t, s, func(r *record.Record) { r.Fences[0].Phase = record.Fenced })
		if vouched(t, s) {
			t.Errorf("%s: taken up again it is vouched for", end)
		}
	}
}

func TestWhenAFenceCutCannotBeForged(t *testing.T) {
	for name, forge := range map[string]func(f *record.Fence){
		"when it began":       func(f *record.Fence) { f.StartedAt = "2026-01-02T09:00:00Z" },
		"when its off was":    func(f *record.Fence) { f.Steps[1].At = "2026-01-02T09:00:00Z" },
		"that it was sent":    func(f *record.Fence) { f.Steps = f.Steps[:1] },
		"that it was refused": func(f *record.Fence) { f.Steps[1].Err = "busy" },
		"that more were":      func(f *record.Fence) { f.Steps = append(f.Steps, f.Steps[1]) },
		"another Node":        func(f *record.Fence) { f.Machine.NodeUID = "u2" },
		"another system UUID": func(f *record.Fence) { f.Machine.SystemUUID = "s2" },
		"another node ID":     func(f *record.Fence) { f.Machine.NodeIDs["d"] = "id3" },
		"node IDs changed":    func(f *record.Fence) { f.Machine.NodeIDs["d"], f.Machine.NodeIDs["e"] = "id2", "id1" },
		"a node ID less":      func(f *record.Fence) { delete(f.Machine.NodeIDs, "d") },
		"another actor":       func(f *record.Fence) { f.Actor = "b" },
		"that it cut storage": func(f *record.Fence) { f.Kind, f.Driver = fence.StorageFence, "d" },
		"under another ID":    func(f *record.Fence) { f.ID = "f2" },
	} {
		_, s := cut(t)
		update(t, s, func(r *record.Record) { forge(&r.Fences[0]) })
		if r := get(t, s, "n1"); r.Vouched(r.Fences[0].Cutting()) {
			t.Errorf("%s: it is vouched for", name)
		}
	}
	_, s := vouching(t)
	if timed(t, s) {
		t.Error("a machine that was found off is vouched for as cut off")
	}
}

// The version before knows no digest of it, takes it for one of what has ended, and takes it away.
func TestAFenceIsVouchedForWithoutWhenItCut(t *testing.T) {
	server, s := cut(t)
	withoutTime(t, server, s)
	if !vouched(t, s) || timed(t, s) {
		t.Fatalf("vouched for %v, when it cut %v", vouched(t, s), timed(t, s))
	}
	update(t, s, func(r *record.Record) { f := &r.Fences[0]; r.Still(f, func() bool { f.EndedAt = "x"; return true }) })
	if !vouched(t, s) || timed(t, s) {
		t.Error("what nobody vouches for is vouched for by the next write")
	}
}

// withoutTime takes away what vouches for when f1 cut.
func withoutTime(t *testing.T, server *leasetest.Server, s *record.Store) {
	t.Helper()
	lease := server.Lease(ns, record.LeaseName("n1"))
	for _, d := range strings.Split(vouchOn(server), ",") {
		lease.Annotations[record.FencedAnnotation] = d
		if server.Put(lease); vouched(t, s) {
			return
		}
	}
	t.Fatal("no digest vouches for the fence")
}

// Who goes on with a fence vouches for when it began, and may not take that from somebody who wrote
// it into the past: the brakes would not count it.
func TestAFenceOfWhichNobodyVouchesForTheBeginningBeginsNow(t *testing.T) {
	const past = "2026-01-02T01:00:00Z"
	for name, c := range map[string]struct {
		phase  record.Phase
		forged bool
		kept   bool
		timed  bool
	}{
		"as it was written":                {record.Fenced, false, true, true},
		"forged":                           {record.Fenced, true, false, true},
		"forged, while it is being lifted": {record.Lifting, true, true, false},
	} {
		_, s := cut(t)
		if c.forged {
			update(t, s, func(r *record.Record) { r.Fences[0].StartedAt = past })
		}
		var was string
		update(t, s, func(r *record.Record) {
			f := r.Fences[0]
			was, f.Phase = f.StartedAt, c.phase
			r.PutFence(f, "Fenced")
		})
		if now := get(t, s, "n1").FenceByID("f1").StartedAt; (now == was) != c.kept || timed(t, s) != c.timed {
			t.Errorf("%s: it began at %s and not at %s, and somebody vouches for that: %v", name, now, was, timed(t, s))
		}
	}
}

func TestWhenAStorageFenceCutIsVouchedForInTheNameOfItsDriver(t *testing.T) {
	server, s := serve(t)
	update(t, s, func(r *record.Record) {
		f := powerFence("f1")
		f.Kind, f.Driver, f.Phase = fence.StorageFence, "d", record.Fencing
		r.PutFence(f, "Fence")
	})
	all := strings.Split(vouchOn(server), ",")
	if len(all) != 2 || !strings.HasPrefix(all[0], "d=") || !strings.HasPrefix(all[1], "d=") || !timed(t, s) {
		t.Errorf("vouched for are %v", all)
	}
}
