// Command csi-fencepost is a sidecar between external-attacher and a CSI
// driver: no single-writer volume is published to a node while another node may
// still write to it. It also has the commands for people.
//
//	main.go     the table of subcommands
//	run/        run: the sidecar's process, around proxy/sidecar
//	explain/    explain: who holds a volume, and what would unblock it
//	doctor/     doctor: is every driver guarded, and what would happen if a node died
//	operate/    fence, release, ledger, uninstall
//	manifests/  inject, uninject
//	sanity.go   sanity: runs csi-fencepost-sanity
//	cluster/    what the commands see of a cluster, and how they reach it
//	cli/        what all have in common: flags, help, errors, text
//	clitest/    what their tests have in common
//
// Arrows point down: main to the subcommands, operate and doctor to explain, these to
// cluster, all to cli.
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
