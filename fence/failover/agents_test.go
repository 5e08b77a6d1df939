package failover

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func TestTheFenceThatAPassIsAbout(t *testing.T) {
	of := func(id string, kind fence.Kind, driver string, phase record.Phase) record.Fence {
		return record.Fence{ID: id, Kind: kind, Driver: driver, Phase: phase, Machine: record.FencedMachine{NodeUID: "u", BootID: id, LeaseRV: "5"}}
	}
	power, storage := fence.PowerReading, fence.StorageFence
	for name, c := range map[string]struct {
		fences []record.Fence
		boot   string // the ID of the fence wanted; empty: none
		void   bool
	}{
		"none":                                 {nil, "", false},
		"under way proves nothing":             {[]record.Fence{of("a", power, "", record.Fencing)}, "", false},
		"failed proves nothing":                {[]record.Fence{of("a", power, "", record.Failed)}, "", false},
		"power":                                {[]record.Fence{of("a", power, "", record.Fenced)}, "a", false},
		"power before storage":                 {[]record.Fence{of("s", storage, "d", record.Fenced), of("a", power, "", record.Fenced)}, "a", false},
		"storage once the power fence is void": {[]record.Fence{of("s", storage, "d", record.Fenced), of("a", power, "", record.Void)}, "s", false},
		"another driver's storage is not ours": {[]record.Fence{of("s", storage, "other", record.Fenced)}, "", false},
		"the latest void one, for the boot ID": {[]record.Fence{of("a", power, "", record.Void), of("b", power, "", record.Void)}, "b", true},
		"a lifted one is over":                 {[]record.Fence{of("s", storage, "d", record.Lifted)}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := latest(&record.Record{Node: "n1", Fences: c.fences}, "d")
			switch {
			case c.boot == "" && got != nil:
				t.Errorf("got %+v, want none", got)
			case c.boot != "" && (got == nil || got.BootID != c.boot || (got.Void != "") != c.void):
				t.Errorf("got %+v, want fence %s", got, c.boot)
			}
		})
	}
	if latest(nil, "d") != nil {
		t.Error("a node without a record has a fence")
	}
}

func TestOnlyAFenceThatWasSentCountsAsCut(t *testing.T) {
	found := record.Fence{Phase: record.Fenced, StartedAt: "2026-01-02T03:04:05Z", Steps: []record.FenceStep{{Action: "status", State: "off"}}}
	sent := record.Fence{Phase: record.Fenced, Steps: []record.FenceStep{{Action: "status"}, {Action: "off"}, {Action: "status"}}}
	if f := fenceOf("n1", &found); f.Cut || f.At.Year() != 2026 {
		t.Errorf("found off: %+v", f)
	}
	if !fenceOf("n1", &sent).Cut || !fenceOf("n1", &record.Fence{Phase: record.Fencing}).Cut {
		t.Error("a fence that was sent, or is under way, is not counted")
	}
}
