// Package contract is the fence-agents contract, for agents that say what a platform
// itself knows of a machine.
//
//	stdin: action=status, plug=… ─▶ Values ─▶ Agent.Open ─▶ Platform ─▶ Machine ─▶ exit code and words
//
// An Agent is a table of parameters and a way to open a Platform; all else, the same for
// all of them, is here: reading the input, the metadata, who the machine is, waiting
// until it is off, and not showing secrets.
//
// # Guarantees
//
// Nothing is done without an action in the input (fence agents of others reboot then), nor
// with a parameter that the agent does not know.
//
// Status exits with 2, and prints "Status: OFF", only for a machine that the platform calls
// off in a way in which it keeps nothing of the machine's memory; with 0, and "Status: ON",
// only for one that runs. Every other state, and every error, exits with 1: stopping,
// starting, suspended, paused, hibernated, unknown, not found.
//
// Where the parameter uuid is given, nothing is said or done of a machine for which the
// platform says another system UUID, or none; the word none as its value says that the
// platform's is not to be looked at. "Identity: …" is printed for each name by
// which the platform itself knows the machine: package fence/agent/program holds
// these lines against the node.
//
// No error shows a parameter that is a secret, what a file holds that names one, or a token that
// was fetched by them and sent through package trust, also where the platform quotes it.
//
// Off is sent as the hardest off of the platform, and exits with 0 only once the machine
// reads off. All ends with the parameter timeout.
//
// # Non-guarantees
//
// A platform that lies is believed. What was sent to it cannot be called back when the time
// is over.
package contract
