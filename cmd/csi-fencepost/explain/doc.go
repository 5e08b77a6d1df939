// Package explain is csi-fencepost explain: one look at a volume or a node, with
// read rights only.
//
//	explain.go      flags, and the look
//	explanation.go  what it shows, as JSON has it; asks the decision itself
//	subject.go      volumes, claims, pods; node.go: nodes
//	agents.go, record.go  what fence agents read, and what the records keep
//	sidecar.go      finds the sidecar and its configuration; account.go: whose pod it is
//	print.go        the printing
//	remedy.go       what would mend a ledger that cannot be read; of holders, fence.Remedy
//	forgiving.go    reads on where a right is missing
package explain
