package main

import (
	"testing"
	"time"
)

func TestClockShiftMovesOnlyTheNamedTimes(t *testing.T) {
	lease := `{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","resourceVersion":"12345678901234567"},` +
		`"spec":{"leaseDurationSeconds":40,"renewTime":"2026-01-01T10:00:00.000001Z"}}`
	got, err := shiftTimes([]byte(lease), clockFields("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"), 3*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","resourceVersion":"12345678901234567"},` +
		`"spec":{"leaseDurationSeconds":40,"renewTime":"2026-01-01T10:03:00.000001Z"}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestClockShiftReachesTheConditionsOfAStatusPatch(t *testing.T) {
	patch := `{"status":{"$setElementOrder/conditions":[{"type":"Ready"}],` +
		`"conditions":[{"lastHeartbeatTime":"2026-01-01T10:00:00Z","lastTransitionTime":null,"type":"Ready"}]}}`
	got, err := shiftTimes([]byte(patch), clockFields("PATCH", "/api/v1/nodes/n1/status"), -time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"status":{"$setElementOrder/conditions":[{"type":"Ready"}],` +
		`"conditions":[{"lastHeartbeatTime":"2026-01-01T09:00:00Z","lastTransitionTime":null,"type":"Ready"}]}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestClockShiftLeavesOtherRequestsAlone(t *testing.T) {
	for _, r := range [][2]string{
		{"GET", "/api/v1/nodes/n1"},
		{"PATCH", "/api/v1/namespaces/default/pods/p/status"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/x"},
	} {
		if fields := clockFields(r[0], r[1]); fields != nil {
			t.Errorf("%s %s: fields %v, want none", r[0], r[1], fields)
		}
	}
}
