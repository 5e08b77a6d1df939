// Command csi-fencepost is a sidecar between external-attacher and a CSI
// driver: no single-writer volume is published to a node while another node may
// still write to it.
//
//	main.go           the table of subcommands
//	cli/              what they have in common: flags, help, errors, text
//
// The sidecar:
//
//	flags.go          the flags of run, their defaults and checks
//	run.go            run: what is started, in which order, and how it stops
//	leader.go         leader election of the background work
//	guard.go          the guard, and the background work that goes with it
//	sources.go        the sources of evidence that the configuration switches on
//	agents.go         the fence agents
//	fencing.go        what asks and uses them
//	sighting.go       binds taints to the boot that they were put on for
//	events.go         Events
//	http.go           metrics and health over HTTP
//	metrics.go        every metric of this program
//	statusz*.go       the status page's view of it all
//	memory.go, transport.go  what keeps it small
//
// The commands:
//
//	explain.go        explain: one look at a volume, with read rights only
//	explanation.go    what it shows, as JSON has it; asks the decision itself
//	explain_*.go      its subjects, nodes, agents, records, and the printing
//	remedy.go         what would unblock a holder, as commands to paste
//	fence.go, fence_*.go  fence status, test, off, on, withdraw
//	confirm.go        fence confirm
//	confirm_*.go      what an operator's word is bound to, and what speaks against it
//	node_now.go       what there is of a node now
//	holdings.go       the volumes that machines of its name may hold
//	release.go        release
//	ledger.go, ledger_*.go  ledger export, ledger repair
//	inject.go, inject_as.go  inject, uninject
//	uninstall.go, uninstall_*.go  uninstall: everything that we ever write
//	sanity.go         sanity: runs csi-fencepost-sanity
//	cluster.go        how the commands reach a cluster, and who the operator is
//	forgiving.go      reads on where a right is missing, for explain
//
// # Guarantees
//
// Calls are served by every replica, whether it leads or not, and the loss of
// the leadership or of the Kubernetes API never ends the process: its end would
// end the attacher's too. SIGTERM and SIGINT let the calls in flight finish; a
// second signal ends the process at once.
//
// Exit codes: 0, done or stopped as told; 1, it could not be done; 2, it was
// asked wrongly (flags, arguments, configuration).
package main
