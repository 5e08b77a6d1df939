// Package csi is the CSI side of csi-fencepost: what a driver and the CSI
// objects of Kubernetes say about a volume.
//
//	accessmode.go  may only one node write to the volume?
//	volume.go      how Kubernetes' objects name a volume of one driver
//	published.go   where the driver itself says that it is published
//
// The record of who holds a volume is package fence/ledger.
//
// # Guarantees
//
// What cannot be told is taken as a single writer, so it is guarded.
// Driver.PublishedNodes never answers with a listing that is older than the
// question, but for one that took too long for whoever asked it before.
//
// # Non-guarantees
//
// published_node_ids may name nodes that the volume is not published to, and a
// driver may leave some out: they add suspicion and never take any away. Handles
// are compared as text; a driver that gives one disk two handles has two volumes
// here (GCE PD's handles with UNSPECIFIED in them are understood).
package csi
