// Package parity holds the simulated API server (sanity/simulate/apiserver)
// against a real kube-apiserver: the same random operations, of the kinds that
// csi-fencepost and those around it use, are played on both, and every answer's code
// and reason, every object and every event of the watches has to be the same.
//
// Left out of the comparison are: the words of messages, and which fields an Invalid
// names; managedFields; the values of UIDs, versions and times, of which only the
// order and the presence are compared; the status that CSINodes have since
// Kubernetes 1.37. Both sides are asked in JSON: that protobuf says the same is tested in
// package apiserver. Not compared either: reads that may be stale, and compaction. The real server runs without the admission
// plugins that the model does not have (doc.go there).
package parity
