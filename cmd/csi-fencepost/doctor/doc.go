// Package doctor is csi-fencepost doctor: is every driver of this cluster guarded, and what would
// happen if a node died now. It reads (get and list, Secrets never), and writes nothing.
//
//	cluster ──▶ facts ──▶ drivers: wired, mode, rights, failover ─┐
//	                  └─▶ fates: what would become of each node ──┴▶ Report ──▶ text, JSON
//	                                                                      └────▶ bundle
//
//	doctor.go   flags, and the look
//	facts.go    everything that is read, each list once and in pages
//	rbac.go     what an account may do, by the Roles that are bound to it
//	drivers.go  each driver: who attaches it, past whom, with which configuration
//	fates.go    each node: the judgement of the guard, the fence agents and failover's brakes
//	report.go   the findings and views, as JSON has them; print.go: as people read them
//	bundle.go   the archive for somebody who helps; strip.go: what is taken out of it
//
// # Guarantees
//
// What would happen is asked of the code that does it: package fence judges the volume, fencer
// the agents and what is bound of the machine, failover the brakes of the Node, inject the wires.
//
// Only a pod counts as a driver's whose account may attach volumes in the whole cluster, as RBAC
// says: what a tenant makes look like one in his namespace is passed over.
//
// A right that doctor lacks is named, and what it would have shown is left out. What it could not
// see it never calls ok.
//
// No value of a Secret, of an environment variable, of a volume's attributes or of a parameter
// that may be a secret is in a bundle.
//
// # Non-guarantees
//
// It is one look. Whether a node lives is its Node's word (Ready), no lease is watched; brakes that
// other nodes set (a storm, so many an hour) are not foreseen; agents and drivers are not asked.
package doctor
