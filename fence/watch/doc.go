// Package watch follows the Kubernetes objects that say who may hold a volume:
// PersistentVolumes, VolumeAttachments, Nodes, CSINodes, the kubelets' leases
// and the nodes' records.
//
// What it keeps is an index, not an answer: it tells which objects to read for
// a volume, and package survey reads those live. Its copies are used alone only
// to delay (liveness) and to wake.
//
// # Guarantees
//
// Ready returns nil only after every kind was listed. Caught tells whether the
// index has seen an object that a live read returned, so that a survey never
// rests on an index that is older than the call it serves. While a kind is listed
// anew, what was known of it stays until the listing has ended: the index may then
// name too much, and never too little.
//
// # What is kept
//
// No object, but the fields that a question is asked about (store.go), about 200
// bytes for a volume with its VolumeAttachment, its ledger's holder and its place
// in a Node's status. Of other drivers' objects there is: whose a PV is, and how
// many VolumeAttachments a node has. Events, Pods, Secrets and claims are not
// watched.
package watch
