// Package observe follows the Kubernetes objects that say who may hold a volume:
// PersistentVolumes, VolumeAttachments, Nodes, CSINodes, the kubelets' leases
// and the nodes' records.
//
// What it keeps is an index, not an answer: it tells which objects to read for
// a volume, and package survey reads those live. Its copies are used alone only
// to delay and to wake. From a node's lease it also tells whether the node is
// alive, stale or unknown:
//
//	Watch    those objects, for all drivers that this process works for
//	Index    what they say of one driver's volumes
//	Order    which came first, a detach or the kubelet's change of its word
//	Tracker  whether each node's lease goes on
//
// # Liveness
//
// A kubelet renews its lease every 10 seconds, or as it is told to; suspectAfter below is
// SuspectAfter. A Tracker is told the lease's
// resourceVersion, by a watch and by live reads, and measures on this process's
// own clock for how long it has not changed. It never reads renewTime: that is
// the node's clock.
//
//	first sight ──▶ Unwatched ──suspectAfter──▶ Stale
//	                    │  ▲                      │
//	             change │  │ Reset, storm over    │ change
//	                    ▼  └──────────────────────┤
//	                  Alive ◀─────────────────────┘
//	                    └──────suspectAfter─────▶ Stale
//
// # Guarantees
//
// No node is Stale unless its lease was watched unchanged for suspectAfter
// without a break. Breaks are a start, a Reset, the end of a storm, a suspension
// of this process, and, where Probe runs, an API server that does not answer. An
// error of the Tracker delays, and never makes a node look dead: what is not
// known to be unchanged counts as changed.
//
// Ready returns nil only after every kind was listed. Caught tells whether the
// index has seen an object that a live read returned, so that a survey never
// rests on an index that is older than the call it serves. While a kind is listed
// anew, what was known of it stays until the listing has ended: the index may then
// name too much, and never too little.
//
// # Non-guarantees
//
// Stale is not dead: a node that is cut off from the API server goes on
// writing. A watch that is silently stuck makes nodes look stale to Storm and
// to OnStale; Judge, which is given a live read, is not fooled.
//
// # What is kept
//
// No object, but the fields that a question is asked about (store.go), about 700
// bytes for a volume with its VolumeAttachment, its ledger's holder and its place
// in a Node's status. Of other drivers' objects there is: whose a PV is, and how
// many VolumeAttachments a node has. Events, Pods, Secrets and claims are not
// watched.
package observe
