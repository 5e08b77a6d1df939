// Package csiaddons cuts a node off the storage with the driver's own
// FenceController (csi-addons), by the node's network addresses.
//
//	addresses of the machine ─▶ special? outside the allowed subnets? another Node's,
//	        │                    or another client's? ─▶ refuse
//	        │ (declared for the node, else the driver's client of its node ID,
//	        │  else the Node's own, unless the driver alone may say it)
//	        ▼
//	FenceClusterNetwork ─▶ ListClusterFence: all listed = off, none = on, else unclear
//
// # Guarantees
//
// Off is read only where the driver's list, asked anew, covers every address of
// the machine, or all that the record says were fenced where nobody knows an
// address of it any more, and no other Node has one that neither the record nor the
// configuration says is this machine's. A fence never names an address that another Node has, Ready
// or not, or another of the driver's clients, both read live right before, nor one
// that is loopback, unspecified, multicast or link-local, nor one outside the allowed
// subnets; then nothing at all is fenced, and the error names who has it and says what
// a person can do. What a Node's status says is single addresses, never a network,
// for its kubelet writes it; the driver may name a block of up to /24 or /64 for one
// machine. On takes back what the record says was fenced as well as the addresses of
// now, or Machine.Only alone, but none of now where somebody else has one of them too. Each text of Off and
// Check lists the blocks (Blocks reads them back). Nothing is remembered between calls.
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
// on the same address. A kubelet that claims an address of another node keeps that
// node from being cut off here, until a person has found out which of the two has it.
package csiaddons
