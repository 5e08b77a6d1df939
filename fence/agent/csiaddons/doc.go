// Package csiaddons cuts a node off the storage with the driver's own
// FenceController (csi-addons), by the node's network addresses.
//
//	addresses of the machine ─▶ of another Ready node? special? ─▶ refuse
//	        │ (the driver's client of its node ID,
//	        │  else the Node's own)
//	        ▼
//	FenceClusterNetwork ─▶ ListClusterFence: all listed = off, none = on, else unclear
//
// # Guarantees
//
// Off is read only where the driver's list, asked anew, covers every address of
// the machine, or all that the record says were fenced where nobody knows an
// address of it any more. A fence never names an address that another Ready Node
// has, read live right before, nor one that is loopback, unspecified, multicast or
// link-local; then nothing at all is fenced, and the error names node and
// address. On takes back what the record says was fenced as well as the
// addresses of now. Each text of Off and Check lists the blocks (Blocks reads
// them back). Nothing is remembered between calls.
//
// The driver's clients (GetFenceClients) count only under the driver's node ID:
// known drivers answer with the address of whichever process was asked, under
// the ID of the storage cluster, and a fence of that would cut off our own pod.
//
// # Non-guarantees
//
// Whether a fence ends the sessions that are open, and over which networks a
// node reaches the storage beyond the addresses that are known, is the driver's
// and the cluster's business: a driver that lists a client as fenced and lets it
// write on is believed. A driver that goes on with a call whose caller has given
// up may fence later; its list shows it. On lifts a fence that somebody else put
// on the same address.
package csiaddons
