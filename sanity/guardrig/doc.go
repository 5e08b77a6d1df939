// Package guardrig is what the tests of the guard, and of the calls that wait for it,
// stand on: a real guard, survey and ledger over an API server in memory, one volume
// of one driver, and nodes of which the test says whether they live.
//
//	rig := guardrig.Held(t)            // node old has the volume in use
//	rig.Lives["old"] = fence.Stale     // and falls silent
//	err := rig.PublishTo("next")       // refused
//
// What only a real API server can show is in sanity/kubeapi.
package guardrig
