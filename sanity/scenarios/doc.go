// Package scenarios plays failures of the field on a real control plane, each
// as a test that is named after the rule it holds up. The oracle is the storage
// array (package array): a scenario passes only if it saw no violation.
//
// Scenarios share a control plane and run beside each other, each with nodes, a
// driver, an attacher and a csi-fencepost of its own; those that disturb the
// control plane itself have one to themselves. What each of them notices is shown
// by taking its guard out of the code: see sanity/mutants/guards.
//
//	go test ./sanity/scenarios                  with csi-fencepost, short clocks
//	go test ./sanity/scenarios -run TestKnownToFail -known-to-fail
//	                                            those that are known to fail with csi-fencepost
//	                                            (type mark): does each fail as its mark says
//	go test -tags catalogue -run TestCatalogue  each with Kubernetes alone as well,
//	                                            on Kubernetes' own clocks; keeps what came
//	                                            of it (package outcome), writes the page
package scenarios
