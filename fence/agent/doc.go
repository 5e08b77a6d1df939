// Package agent is what reads and cuts the power of a machine, or its access to
// the storage.
//
//	Levels ─┬─ level 1: all of its agents ─▶ device
//	        └─ level 2: tried where level 1 did not confirm
//
// An Agent is one way to do it: package ipmi talks to BMCs, package program runs
// programs with the fence-agents contract, package csiaddons asks the driver's
// own FenceController. A vendor adds one by implementing Agent.
//
// # Guarantees
//
// Off is proven only by a reading: the agent's own Status, asked after Off, says
// off, of every agent of one level. A time-out, an error, an unclear or
// contradictory answer proves nothing.
//
// # Non-guarantees
//
// A device that lies, or that belongs to another machine and cannot be asked
// for its identity, is believed. A reading is true of the moment in which it was
// taken: package fence binds it to the node's lease and boot ID.
package agent
