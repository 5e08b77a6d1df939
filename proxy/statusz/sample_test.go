package statusz

import "time"

// sample is a night as it could be.
func sample() *State {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	s := New(now)
	s.Driver, s.Version, s.Host, s.Mode, s.Leader, s.Ready, s.Watched = "disk.example.com", "v0.9.0", "controller-0", "Enforce", "Leading", true, 24
	s.Started = now.Add(-26 * time.Hour)
	s.Checks = []Check{{Name: "driver"}, {Name: "guard"}, {Name: "socket"}}
	refusal := "csi-fencepost: volume pvc-5b1f0c3e: node worker-07 (ID i-07) holds it, has stopped renewing its lease, and nothing proves that it has stopped writing. " +
		"To unblock: turn the node off and say so with 'csi-fencepost fence confirm worker-07 --reason ...'. [HolderStale] https://github.com/csi-fencepost/csi-fencepost/blob/main/docs/use/runbook.md#holderstale"
	s.Waiting = []Waiting{{Call: "ControllerPublishVolume", Volume: "vol-1", PV: "pvc-5b1f0c3e", Node: "worker-03", NodeID: "i-03", Holder: "worker-07", Reason: "HolderStale", Text: refusal,
		Runbook: "https://github.com/csi-fencepost/csi-fencepost/blob/main/docs/use/runbook.md#holderstale", Since: now.Add(-100 * time.Second), Times: 5}}
	s.Brakes = []Brake{{Node: "worker-07", Reason: "Cordoned", Text: "somebody has cordoned it; kubectl uncordon worker-07 to have it fenced"}}
	s.Nodes = []Node{
		{Name: "worker-07", State: Suspected, SilentSeconds: 130, Awaited: "bmc reads on; it is fenced when its lease is unchanged for 50s", Volumes: []string{"pvc-5b1f0c3e"}, Evidence: []Evidence{}, Audit: []Audit{}},
		{Name: "worker-11", State: Fenced, SilentSeconds: 900, Proof: "PowerReading", Volumes: []string{}, Evidence: []Evidence{{Kind: "PowerReading", Source: "bmc", Detail: "chassis power is off", Phase: "Counts",
			Why: "its lease was unchanged for 52s, more than fencing.fenceAfter 50s", At: now.Add(-14 * time.Minute), Steps: []Step{{Agent: "bmc", Action: "off", State: "off", TookMS: 2200, At: now.Add(-14 * time.Minute)}}}},
			Audit: []Audit{{At: now.Add(-14 * time.Minute), Actor: "csi-fencepost disk.example.com@controller-0", Action: "Fenced", Detail: "7f3: PowerReading"}}},
	}
	s.Agents = []Agent{{Name: "bmc", Proves: "PowerReading", Level: 1, State: "Answers", Last: []Asked{{Node: "worker-07", Action: "status", Result: "on", TookMS: 104, At: now.Add(-2 * time.Second)}}},
		{Name: "pdu", Proves: "PowerReading", Level: 2, State: "Fails", Last: []Asked{{Node: "worker-07", Action: "status", Result: "error", Error: "no answer within 20s", TookMS: 20000, At: now.Add(-time.Minute)}}},
		{Name: "array", Proves: "StorageFence", Level: 3, State: "NeverAsked", Last: []Asked{}}}
	s.Decisions = []Decision{
		{Call: "ControllerPublishVolume", Volume: "vol-1", PV: "pvc-5b1f0c3e", Node: "worker-03", NodeID: "i-03", Verdict: "refuse", Reason: "HolderStale", Text: refusal, First: now.Add(-100 * time.Second), Last: now.Add(-9 * time.Second), Times: 5},
		{Call: "ControllerPublishVolume", Volume: "vol-2", PV: "pvc-2", Node: "worker-03", NodeID: "i-03", Verdict: "took over", Reason: "HolderFenced", From: []string{"node worker-11 (ID i-11)"}, First: now.Add(-13 * time.Minute), Last: now.Add(-13 * time.Minute), Times: 1},
		{Call: "ControllerUnpublishVolume", Volume: "vol-3", Node: "worker-02", NodeID: "i-02", Verdict: "would refuse", Reason: "HolderAlive", Text: refusal, First: now, Last: now, Times: 1},
	}
	return s
}
