package main

import (
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func TestAFenceThatFailedLastIsToldInShort(t *testing.T) {
	failed := record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: testDriver, Phase: record.Failed, EndedAt: "2025-11-21T08:00:00Z",
		Why: "agent array did not cut it off: a fence would also cut off node n2"}
	r := &record.Record{Node: "n1", Fences: []record.Fence{failed}}
	const words = "fencing it failed at 2025-11-21T08:00:00Z: agent array did not cut it off: a fence would also cut off node n2"
	if got := recordWords(r); got != words {
		t.Errorf("got %q, want %q", got, words)
	}
	fenced := failed
	fenced.ID, fenced.Phase = "f2", record.Fenced
	r.Fences = append(r.Fences, fenced)
	if got, want := recordWords(r), fenceWords(&fenced); got != want {
		t.Errorf("once it is fenced: got %q, want %q", got, want)
	}
}
