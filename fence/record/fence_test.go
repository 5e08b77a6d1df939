package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

func fenceOf(id string, kind fence.Kind, driver string, phase Phase) Fence {
	return Fence{ID: id, Kind: kind, Driver: driver, Phase: phase, Actor: "sidecar", StartedAt: "2026-01-02T03:04:05Z", Machine: FencedMachine{NodeUID: "u1"}}
}

func phases(r *Record) string {
	var all []string
	for _, f := range r.Fences {
		all = append(all, f.ID+":"+string(f.Phase))
	}
	return strings.Join(all, " ")
}

func TestTheStoredFormatOfFencesIsStable(t *testing.T) {
	const format = `{"version":1,"node":"n1","fences":[{"id":"f1","kind":"StorageFence","driver":"d","what":"10.0.0.1/32",` +
		`"machine":{"nodeUID":"u1","bootID":"b1","leaseRV":"5","systemUUID":"s","nodeIDs":{"d":"id1"}},"phase":"Fenced","actor":"sidecar","reason":"stale",` +
		`"forced":true,"agents":["array"],"startedAt":"2026-01-02T03:04:05Z","endedAt":"2026-01-02T03:04:06Z","why":"w",` +
		`"steps":[{"agent":"array","action":"off","attempt":1,"state":"unclear","detail":"ok","err":"e","at":"2026-01-02T03:04:05Z","tookMS":12}]}],` +
		`"overrides":[{"id":"o1","agent":"bmc","by":"ann","reason":"broken","at":"2026-01-02T03:04:05Z","machine":{"nodeUID":"u1","bootID":"b1","leaseRV":"5"}}]}`
	r, err := Parse(format)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := r.encode(); err != nil || text != format {
		t.Errorf("encoded:\n%s\nwant:\n%s\n%v", text, format, err)
	}
}

func TestARecordHasOneCurrentPowerFenceAndOneStorageFenceOfEachDriver(t *testing.T) {
	r := New("n1")
	r.PutFence(fenceOf("p1", fence.PowerReading, "", Fencing), "Fence")
	r.PutFence(fenceOf("s1", fence.StorageFence, "d1", Fenced), "Fenced")
	r.PutFence(fenceOf("s2", fence.StorageFence, "d2", Fenced), "Fenced")
	r.PutFence(fenceOf("p1", fence.PowerReading, "", Fenced), "Fenced") // the same one
	if got := phases(r); got != "p1:Fenced s1:Fenced s2:Fenced" {
		t.Fatal(got)
	}
	r.PutFence(fenceOf("p2", fence.PowerReading, "", Fencing), "Fence")
	r.PutFence(fenceOf("p3", fence.PowerReading, "", Fenced), "Fenced")
	if got := phases(r); got != "p1:Void s1:Fenced s2:Fenced p2:Failed p3:Fenced" {
		t.Fatal(got)
	}
	if err := r.validate(); err != nil {
		t.Error(err)
	}
	if r.Fence(fence.PowerReading, "any").ID != "p3" || r.Fence(fence.StorageFence, "d2").ID != "s2" || r.Fence(fence.StorageFence, "d3") != nil {
		t.Error("the wrong fence is current")
	}
	if !r.StorageFenced("d1") || r.StorageFenced("d3") {
		t.Error("StorageFenced")
	}
	r.EndFence("s1", Lifted, "back", "sidecar")
	if r.StorageFenced("d1") || r.EndFence("s1", Void, "again", "sidecar") {
		t.Error("a lifted fence is current")
	}
	var actions []string
	for _, a := range r.Audit {
		actions = append(actions, a.Action)
	}
	if got := strings.Join(actions, " "); got != "Fence Fenced Fenced Fenced EndFence Fence EndFence Fenced LiftedFence" {
		t.Errorf("audit trail: %s", got)
	}
}

func TestParseRefusesFencesThatSayTooLittle(t *testing.T) {
	tests := map[string]struct {
		spoil func(*Record)
		says  string
	}{
		"no id":                   {func(r *Record) { r.Fences[0].ID = "" }, "no id"},
		"another kind":            {func(r *Record) { r.Fences[0].Kind = "NodeDeleted" }, "kind"},
		"a driver's power fence":  {func(r *Record) { r.Fences[0].Driver = "d" }, "of one driver"},
		"nobody's storage fence":  {func(r *Record) { r.Fences[1].Driver = "" }, "of one driver"},
		"of no machine":           {func(r *Record) { r.Fences[0].Machine.NodeUID = "" }, "nodeUID"},
		"by nobody":               {func(r *Record) { r.Fences[0].Actor = "" }, "by whom"},
		"unknown phase":           {func(r *Record) { r.Fences[0].Phase = "Done" }, "phase"},
		"two are current":         {func(r *Record) { r.Fences = append(r.Fences, fenceOf("x", fence.PowerReading, "", Fenced)) }, "both current"},
		"override of no agent":    {func(r *Record) { r.Overrides[0].Agent = "" }, "no agent"},
		"override by nobody":      {func(r *Record) { r.Overrides[0].By = "" }, "by whom"},
		"override of no machine":  {func(r *Record) { r.Overrides[0].Machine.NodeUID = "" }, "nodeUID"},
		"override without reason": {func(r *Record) { r.Overrides[0].Reason = "" }, "why"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := New("n1")
			r.PutFence(fenceOf("p", fence.PowerReading, "", Fenced), "Fenced")
			r.PutFence(fenceOf("s", fence.StorageFence, "d", Fenced), "Fenced")
			r.Overrides = []Override{{ID: "o", Agent: "bmc", By: "ann", Reason: "x", Machine: Machine{NodeUID: "u1"}}}
			tt.spoil(r)
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(string(text)); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestFencesAreBoundedAndACurrentOneIsNeverDropped(t *testing.T) {
	r := New("n1")
	r.PutFence(fenceOf("s", fence.StorageFence, "d", Fenced), "Fenced")
	long := strings.Repeat("x", 5000)
	for i := range 200 {
		f := fenceOf(fmt.Sprint("p", i), fence.PowerReading, "", Fenced)
		f.What, f.Reason = long, long
		for range 100 {
			f.Steps = append(f.Steps, FenceStep{Agent: "a", Action: "status", Detail: long, Err: long, At: "2026-01-02T03:04:05Z"})
		}
		r.PutFence(f, "Fenced")
		r.Releases = append(r.Releases, Release{ID: fmt.Sprint(i), Volume: long, Driver: "d", NodeID: "i", By: "ann", Reason: "y"})
	}
	text, err := r.encode()
	if err != nil || len(text) > maxBytes {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	back, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if !back.StorageFenced("d") || back.Fence(fence.PowerReading, "").ID != "p199" || len(back.Fence(fence.PowerReading, "").Steps) == 0 {
		t.Errorf("left: %s", phases(back))
	}
	if len(back.Fences) != 2+maxSettled {
		t.Errorf("%d fences", len(back.Fences))
	}
}
