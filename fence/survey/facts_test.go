package survey

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// storageFence says in a record that the node is cut off from that driver.
func storageFence(driver string) func(*record.Record) {
	return func(r *record.Record) {
		r.PutFence(record.Fence{ID: "f1", Kind: fence.StorageFence, Driver: driver, Phase: record.Fenced, Actor: "sidecar", Agents: []string{"array"},
			Machine: record.FencedMachine{NodeUID: "uid-old", BootID: "boot-old"}}, "Fenced")
	}
}

// readOff says in a record that the node was read as off with that version of its lease.
func readOff(leaseRV, missed string) func(*record.Record) {
	return func(r *record.Record) {
		r.PutFence(record.Fence{ID: "f1", Kind: fence.PowerReading, Missed: missed, Phase: record.Fenced, Actor: "sidecar", Agents: []string{"bmc"},
			Machine: record.FencedMachine{NodeUID: "uid-old", BootID: "boot-old", LeaseRV: leaseRV}}, "FencedByReading")
	}
}

// inUse is a world where the ledger's node old lives and uses the volume.
func inUse(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.node("old", listing)
	w.inLedger(entry("old"))
	return w
}

func TestEvidenceIsAskedForWhereItMatters(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world)
		asked  bool
	}{
		{"alive and in use", func(*world) {}, false},
		{"alive and attached", func(w *world) { w.node("old", listingAttached) }, false},
		{"alive and not in use", func(w *world) { w.node("old", nil) }, true},
		{"alive and contested", func(w *world) {
			e := entry("old")
			e.Contest = &fence.Contest{BootID: "boot-old"}
			w.inLedger(e)
		}, true},
		{"alive and tainted", func(w *world) {
			w.node("old", func(n *corev1.Node) { listing(n); n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}} })
		}, true},
		{"alive and cut off from the storage", func(w *world) { w.record("old", storageFence(liveDriver)) }, true},
		{"alive, and read as off since its last renewal", func(w *world) { w.record("old", readOff("70", "a renewal was due")) }, true},
		{"alive, and renewed since it was read as off", func(w *world) { w.record("old", readOff("69", "a renewal was due")) }, false},
		{"alive, and read as off with nothing missing", func(w *world) { w.record("old", readOff("70", "")) }, false},
		{"alive and cut off from another driver's storage", func(w *world) { w.record("old", storageFence("other.example.com")) }, false},
		{"alive, with a record that cannot be read", func(w *world) { w.garbled("old") }, false},
		{"another machine under its name lives", func(w *world) { w.node("old", func(n *corev1.Node) { listing(n); n.UID = "another" }) }, true},
		{"silent", func(w *world) { w.silent["old"] = "70" }, true},
		{"not watched for long", func(w *world) { w.unwatched = true }, true},
		{"gone", func(w *world) { w.gone("old") }, true},
		{"of an unknown node", func(w *world) {
			e := entry("old")
			e.NodeName, e.NodeID = "", "id-unknown"
			w.inLedger(e)
			w.gone("old")
		}, false},
		{"nobody could say anything", func(w *world) { w.silent["old"], w.Sources = "70", nil }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := inUse(t)
			tt.change(w)
			w.volume()
			if got := len(w.questions) == 1; got != tt.asked {
				t.Fatalf("asked %d times, want it asked: %v", len(w.questions), tt.asked)
			}
		})
	}
}

func TestAQuestionSaysAllThatWasReadLive(t *testing.T) {
	w := inUse(t)
	w.silent["old"] = "70"
	w.record("old", storageFence(liveDriver))
	w.found = []fence.Evidence{{Kind: fence.PowerReading, NodeUID: "uid-old"}}
	h := w.holder(w.publish("id-next"), "id-old")
	q := w.questions[0]
	if q.Volume != "vol-1" || q.Driver != liveDriver || q.Holder.NodeID != "id-old" || q.Node == nil || q.Node.UID != "uid-old" ||
		q.LeaseRV != "70" || !q.Record.StorageFenced(liveDriver) {
		t.Errorf("asked %+v", q)
	}
	if len(h.Evidence) != 1 || h.Liveness != fence.Stale || h.LeaseRV != "70" {
		t.Errorf("holder %+v", h)
	}
}

// Agents wait longer where a source before them claims something.
func TestASourceIsToldWhatThoseBeforeItSay(t *testing.T) {
	w := inUse(t)
	w.silent["old"] = "70"
	w.Sources = []evidence.Source{w, w}
	w.found = []fence.Evidence{{Kind: fence.SelfNodeRemediation, NodeUID: "uid-old"}}
	if h := w.holder(w.publish("id-next"), "id-old"); len(h.Evidence) != 2 {
		t.Errorf("evidence %+v", h.Evidence)
	}
	if first, second := w.questions[0].Holder.Evidence, w.questions[1].Holder.Evidence; len(first) != 0 || len(second) != 1 || second[0] != w.found[0] {
		t.Errorf("the first is told of %+v, the second of %+v", first, second)
	}
}

func TestARenewalWhileEvidenceIsGatheredIsASignOfLife(t *testing.T) {
	power := []fence.Evidence{{Kind: fence.PowerReading, NodeUID: "uid-old"}}
	for name, change := range map[string]func(*world){
		"watched in silence, and read as off":       func(w *world) { w.found = power },
		"watched in silence":                        func(*world) {},
		"silent, and claimed to be off":             func(w *world) { tainted(w); w.found = power },
		"silent by the read alone, and read as off": func(w *world) { w.unwatched, w.found = true, power },
	} {
		t.Run(name, func(t *testing.T) {
			w := inUse(t)
			w.silent["old"] = "70"
			change(w)
			w.meanwhile = func() { w.lease("old", "71"); w.unwatched = false }
			if h := w.holder(w.publish("id-next"), "id-old"); h.LeaseRV != "71" || h.Liveness != fence.Alive {
				t.Errorf("it is %s at lease %s", h.Liveness, h.LeaseRV)
			}
		})
	}
}

func tainted(w *world) {
	w.node("old", func(n *corev1.Node) { listing(n); n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}} })
}

// What is bound to the lease at its first sight must be bound to the lease as it
// is, not as it was watched.
func TestTheLeaseOfANodeThatSomebodyClaimsToBeOffIsReadBeforeItsTaintIsBound(t *testing.T) {
	w := inUse(t)
	w.silent["old"] = "70"
	tainted(w)
	w.lease("old", "71")
	w.publish("id-next")
	if q := w.questions[0]; q.LeaseRV != "71" || q.Holder.Liveness != fence.Alive {
		t.Errorf("asked at lease %s, %s", q.LeaseRV, q.Holder.Liveness)
	}
}

func TestALivingNodeTakesOneReadOfItsLease(t *testing.T) {
	w := inUse(t)
	w.node("old", nil) // asked for evidence, of which there is none
	w.publish("id-next")
	reads := 0
	for _, a := range w.client.Actions() {
		if get, ok := a.(clienttesting.GetAction); ok && a.Matches("get", "leases") && get.GetNamespace() == corev1.NamespaceNodeLease {
			reads++
		}
	}
	if reads != 1 {
		t.Errorf("%d reads", reads)
	}
}

func TestWhatCannotBeReadIsAnErrorAndNoSurvey(t *testing.T) {
	down := errors.New("connection refused")
	for name, change := range map[string]func(*world){
		"the Node":                                   func(w *world) { w.broken["get nodes"] = down },
		"the lease":                                  func(w *world) { w.broken["get leases/old"] = down },
		"the lease after the evidence":               func(w *world) { w.silent["old"] = "70"; w.meanwhile = func() { w.broken["get leases/old"] = down } },
		"the record of a living node":                func(w *world) { w.broken["get leases/node-old"] = down },
		"the record of a silent node":                func(w *world) { w.silent["old"], w.broken["get leases/node-old"] = "70", down },
		"the CSINode of a machine that has rebooted": func(w *world) { w.broken["get csinodes"] = down },
		"a source":                                   func(w *world) { w.silent["old"], w.foundErr = "70", down },
		"the VolumeAttachment":                       func(w *world) { w.broken["get volumeattachments"] = down },
		"the PersistentVolume":                       func(w *world) { w.broken["get persistentvolumes"] = down },
		"where the driver lists it":                  func(w *world) { w.put(livePV("pv-1", liveDriver, "vol-1")); w.listErr = down },
	} {
		t.Run(name, func(t *testing.T) {
			for _, lists := range []func(*corev1.Node){listing, func(*corev1.Node) {}} {
				w := newWorld(t)
				w.node("old", func(n *corev1.Node) { lists(n); n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-2"} })
				w.inLedger(entry("old"))
				w.attachment("old", "id-old", nil)
				w.look()
				change(w)
				for what, survey := range map[string]func() (*Survey, error){
					"publish":   func() (*Survey, error) { return w.Publish(t.Context(), "vol-1", "id-old", nil) },
					"elsewhere": func() (*Survey, error) { return w.Publish(t.Context(), "vol-1", "id-next", nil) },
					"unpublish": func() (*Survey, error) { return w.Unpublish(t.Context(), "vol-1", "id-old") },
					"volume":    func() (*Survey, error) { return w.Volume(t.Context(), "vol-1") },
				} {
					if what == "publish" && strings.HasPrefix(name, "the CSINode") {
						continue // the node that asks is its live machine, whichever that is
					}
					if s, err := survey(); !errors.Is(err, down) || s != nil {
						t.Errorf("%s: got %+v, %v", what, s, err)
					}
				}
			}
		})
	}
}

func TestANodeIDThatTheIndexLacksIsLookedUpLive(t *testing.T) {
	w := inUse(t)
	w.look()
	w.node("next", nil)
	down := errors.New("connection refused")
	w.broken["list csinodes"] = down
	if s, err := w.Publish(t.Context(), "vol-1", "id-next", nil); !errors.Is(err, down) || s != nil {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := w.Publish(t.Context(), "vol-1", "id-old", nil); err != nil {
		t.Errorf("one that the index has is looked up: %v", err)
	}
}

func TestANodeWithoutALeaseIsNotTakenForSilent(t *testing.T) {
	w := inUse(t)
	w.must(w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.Context(), "old", metav1.DeleteOptions{}))
	if h := w.holder(w.publish("id-next"), "id-old"); h.Liveness != fence.Unknown || h.LeaseRV != "" || h.Node == nil {
		t.Errorf("holder %+v", h)
	}
}

func TestARecordThatCannotBeReadHidesNoStorageFence(t *testing.T) {
	for name, lives := range map[string]bool{"living": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			w := inUse(t)
			w.garbled("old")
			if !lives {
				w.silent["old"] = "70"
			}
			h := w.holder(w.publish("id-next"), "id-old")
			if !lives && (len(h.Evidence) != 1 || !strings.Contains(h.Evidence[0].Void, "cannot be read") || h.Evidence[0].NodeUID != "uid-old") {
				t.Errorf("evidence %+v", h.Evidence)
			}
			if len(w.questions) > 0 {
				t.Error("a source is asked although the record that it needs cannot be read")
			}
			w.CutsStorage = true
			var garbled *record.GarbledError
			if s, err := w.Publish(t.Context(), "vol-1", "id-next", nil); !errors.As(err, &garbled) || s != nil {
				t.Errorf("with agents that cut nodes off: got %+v, %v", s, err)
			}
		})
	}
}

func TestWhoseMachineAHolderIs(t *testing.T) {
	bare := func(change func(*ledger.Entry)) func(*world) {
		return func(w *world) {
			e := entry("old")
			change(&e)
			w.inLedger(e)
		}
	}
	tests := []struct {
		name            string
		change          func(w *world)
		id              string
		uid, boot, uuid string
	}{
		{"the VolumeAttachment alone names it", func(w *world) { w.attachment("old", "id-old", nil) }, "id-old", "uid-old", "boot-old", "system-old"},
		{"the VolumeAttachment names another node ID", func(w *world) { w.attachment("old", "id-before", nil) }, "id-before", "", "", ""},
		{"its driver has not registered", func(w *world) {
			w.put(liveCSINode("old", "other.example.com", "x"))
			w.attachment("old", "", func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
		}, "", "uid-old", "boot-old", "system-old"},
		{"the ledger names a machine", bare(func(e *ledger.Entry) { e.NodeUID, e.BootID, e.SystemUUID = "uid-0", "boot-0", "system-0" }), "id-old", "uid-0", "boot-0", "system-0"},
		{"the ledger names none", bare(func(e *ledger.Entry) { e.NodeUID, e.BootID, e.SystemUUID = "", "", "" }), "id-old", "", "", ""},
		{"the ledger knows no boot", bare(func(e *ledger.Entry) { e.BootID, e.SystemUUID = "", "" }), "id-old", "uid-old", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("old", nil)
			tt.change(w)
			h := w.holder(w.publish("id-next"), tt.id)
			if h.NodeUID != tt.uid || h.BootID != tt.boot || h.SystemUUID != tt.uuid {
				t.Errorf("holder %+v, want machine %s, boot %s, system %s", h, tt.uid, tt.boot, tt.uuid)
			}
		})
	}
}

func TestANodeOfTheSameUIDMayBeAnotherMachineByNow(t *testing.T) {
	as := func(uid, boot, system string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			listing(n)
			n.UID = "uid-old"
			if uid != "" {
				n.UID = "uid-new"
			}
			n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: boot, SystemUUID: system}
		}
	}
	installed := func(system string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			as("", "boot-new", system)(n)
			n.Status.NodeInfo.MachineID = "machine-new"
		}
	}
	csiNode := func(id string) func(w *world) { return func(w *world) { w.put(liveCSINode("old", liveDriver, id)) } }
	tests := []struct {
		name     string
		node     func(*corev1.Node)
		then     func(w *world)
		replaced bool
	}{
		{"the same boot, whatever its driver's ID", as("", "boot-old", "system-old"), csiNode("id-new"), false},
		{"rebooted", as("", "boot-new", "system-old"), csiNode("id-old"), false},
		{"rebooted with another system UUID", as("", "boot-new", "system-new"), csiNode("id-old"), true},
		{"rebooted with another node ID", as("", "boot-new", "system-old"), csiNode("id-new"), false},
		{"rebooted with another node ID, no system UUID", as("", "boot-new", ""), csiNode("id-new"), true},
		{"rebooted with the same node ID, no system UUID", as("", "boot-new", ""), csiNode("id-old"), false},
		{"rebooted, the driver has not registered", as("", "boot-new", ""), func(w *world) { w.put(liveCSINode("old", "other.example.com", "x")) }, false},
		{"rebooted, the CSINode is gone", as("", "boot-new", ""), func(w *world) {
			w.must(w.client.StorageV1().CSINodes().Delete(w.t.Context(), "old", metav1.DeleteOptions{}))
		}, false},
		{"rebooted with another node ID, and another Node reports its system UUID", as("", "boot-new", "system-old"), func(w *world) {
			csiNode("id-new")(w)
			w.node("next", func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "SYSTEM-OLD" })
		}, true},
		{"installed anew", installed("system-old"), csiNode("id-old"), false},
		{"installed anew, and its node ID with it", installed("system-old"), csiNode("id-new"), false},
		{"installed anew, without a system UUID", installed(""), csiNode("id-old"), false},
		{"installed anew, and another Node reports its system UUID", installed("system-old"), func(w *world) {
			w.node("next", func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "SYSTEM-OLD" })
		}, true},
		{"rebooted with another node ID, and another Node reported its system UUID when it got the volume", as("", "boot-new", "system-old"), func(w *world) {
			csiNode("id-new")(w)
			e := entry("old")
			e.SystemShared = true
			w.inLedger(e)
		}, true},
		{"another UID", as("new", "boot-new", "system-new"), csiNode("id-new"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := inUse(t)
			w.node("old", tt.node)
			tt.then(w)
			if h := w.holder(w.publish("id-next"), "id-old"); h.Node == nil || h.NodeUID == h.Node.UID && h.OwnNode() == tt.replaced {
				t.Errorf("live Node %+v, want replaced: %v", h.Node, tt.replaced)
			}
		})
	}
}

func TestTheNodeThatAsksIsItsLiveMachine(t *testing.T) {
	ready := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fresh := func(n *corev1.Node) {
		n.UID, n.Status.NodeInfo = "uid-new", corev1.NodeSystemInfo{BootID: "boot-new", SystemUUID: "system-new"}
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(ready)
	}
	t.Run("that the index does not know yet", func(t *testing.T) {
		w := newWorld(t)
		w.look()
		w.node("old", fresh)
		s, err := w.Publish(t.Context(), "vol-1", "id-old", nil)
		w.must(err)
		if g := s.Target; g.NodeName != "old" || g.NodeUID != "uid-new" || g.BootID != "boot-new" || g.SystemUUID != "system-new" || g.ReadySince != "2026-01-02T03:04:05Z" {
			t.Errorf("target %+v", g)
		}
	})
	t.Run("that the ledger names another machine of", func(t *testing.T) {
		w := newWorld(t)
		w.inLedger(entry("old"))
		w.node("old", fresh)
		s := w.publish("id-old")
		if g := s.Target; g.NodeUID != "uid-new" || g.BootID != "boot-new" || g.SystemUUID != "system-new" || g.State != fence.NotInLedger {
			t.Errorf("target %+v", g)
		}
		if h := w.holder(s, "id-old"); h.NodeUID != "uid-old" || h.BootID != "boot-old" || h.SystemUUID != "system-old" || h.Node == nil || h.State != fence.Publishing {
			t.Errorf("holder %+v", h)
		}
	})
	t.Run("that the ledger names in an earlier boot", func(t *testing.T) {
		w := newWorld(t)
		e := entry("old")
		e.Contest = &fence.Contest{BootID: "boot-old"}
		w.inLedger(e)
		w.node("old", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-new" })
		s := w.publish("id-old")
		if s.Target.Contest == nil {
			t.Errorf("target %+v is not contested as it was", s.Target)
		}
		if h := w.holder(s, "id-old"); s.Target.BootID != "boot-new" || h.BootID != "boot-old" || h.LeaseRV != "70" || h.Liveness != fence.Alive {
			t.Errorf("target %+v, holder %+v", s.Target, h)
		}
	})
	t.Run("that its VolumeAttachment alone names as a holder", func(t *testing.T) {
		w := newWorld(t)
		w.node("old", fresh)
		w.attachment("old", "id-old", nil)
		s := w.publish("id-old")
		if h := w.holder(s, "id-old"); h.NodeUID != "uid-new" || h.BootID != "boot-new" || h.SystemUUID != "system-new" {
			t.Errorf("holder %+v", h)
		}
	})
	t.Run("that is not Ready", func(t *testing.T) {
		w := newWorld(t)
		e := entry("old")
		e.ReadySince = "2025-01-01T00:00:00Z"
		w.inLedger(e)
		w.node("old", func(n *corev1.Node) { fresh(n); n.Status.Conditions[0].Status = corev1.ConditionFalse })
		if g := w.publish("id-old").Target; g.ReadySince != "" || g.Node.ReadySince == "" {
			t.Errorf("target %+v", g)
		}
	})
}

func TestWhatANodeSaysOfItsReadiness(t *testing.T) {
	since, heard, stamped := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 4, 0, 30, 0, time.UTC)
	field := func(change func(*metav1.ManagedFieldsEntry)) []metav1.ManagedFieldsEntry {
		at := metav1.NewTime(stamped)
		f := metav1.ManagedFieldsEntry{Manager: "kubelet", Subresource: "status", Time: &at,
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`)}
		change(&f)
		return []metav1.ManagedFieldsEntry{{Manager: "somebody", Subresource: "status", Time: &metav1.Time{}}, f}
	}
	tests := []struct {
		name  string
		entry func(*metav1.ManagedFieldsEntry)
		heard bool
	}{
		{"stamped by the API server", func(*metav1.ManagedFieldsEntry) {}, true},
		{"written past the status", func(f *metav1.ManagedFieldsEntry) { f.Subresource = "" }, false},
		{"without a time", func(f *metav1.ManagedFieldsEntry) { f.Time = nil }, false},
		{"without fields", func(f *metav1.ManagedFieldsEntry) { f.FieldsV1 = nil }, false},
		{"of another condition", func(f *metav1.ManagedFieldsEntry) {
			f.FieldsV1 = metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"DiskPressure\"}":{"f:lastHeartbeatTime":{}}}}}`)
		}, false},
		{"of the status alone", func(f *metav1.ManagedFieldsEntry) {
			f.FieldsV1 = metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}}}`)
		}, false},
		{"of fields that cannot be read", func(f *metav1.ManagedFieldsEntry) { f.FieldsV1 = metav1.NewFieldsV1(`{`) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: field(tt.entry)}}
			node.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.NewTime(heard)},
			}
			n := nodeFacts(node)
			if !n.Ready || n.ReadyUnknown || n.ReadySince != "2026-01-02T03:00:00Z" {
				t.Errorf("read as %+v", n)
			}
			var at, readyAt time.Time
			if tt.heard {
				at, readyAt = stamped, since.Add(stamped.Sub(heard)) // the kubelet's clock is that much behind
			}
			if !n.HeardAt.Equal(at) || !n.ReadyAt.Equal(readyAt) {
				t.Errorf("heard at %s, want %s; ready at %s, want %s", n.HeardAt, at, n.ReadyAt, readyAt)
			}
		})
	}
}
