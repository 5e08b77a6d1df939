// Command csi-fencepost is a sidecar between external-attacher and a CSI
// driver: no single-writer volume is published to a node while another node may
// still write to it.
//
//	main.go      subcommands and exit codes
//	flags.go     the flags of run, their defaults and checks
//	run.go       run: what is started, in which order, and how it stops
//	leader.go    leader election of the background work
//	http.go      metrics and health over HTTP
//	metrics.go   every metric of this program
//	version.go   which build this is
//
//	explain.go        explain: one look at a volume, with read rights only
//	explanation.go    what it shows, as JSON has it; asks the decision itself
//	explain_print.go  and as a person reads it
//	explain_record.go and what the nodes' records keep, with its age
//	explain_sidecar.go finds the sidecar of a driver, and its configuration
//	remedy.go         what would unblock a holder, as commands to paste
//	fence.go          fence status, fence withdraw
//	confirm.go        fence confirm: what an operator's word is bound to
//	release.go        release
//	ledger.go         ledger export, ledger repair
//	uninstall.go      uninstall: everything that we ever write
//	plugin.go         the names of the commands under kubectl fencepost
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
