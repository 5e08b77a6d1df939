// Package simulate explores what may go wrong around csi-fencepost: the real code
// is driven, one step after another, through schedules that a seed or a script
// stands for.
//
//	               seed ─▶ scheduler ─▶ one event ─▶ oracle (R1, R2) ─┐
//	                          ▲                                       │
//	                          └──────── everybody waits ◀─────────────┘
//	attacher ─call─▶ csi-fencepost ─┬─▶ API server      each call is parked until the
//	kubelets, attach-detach         ├─▶ driver, array   scheduler serves it, fails it,
//	controller, operators           └─▶ fence agents    or loses its answer
//
// One schedule is one testing/synctest bubble: its clock moves only when the
// scheduler says so, and whatever csi-fencepost asks of the world waits there until
// the scheduler has chosen what becomes of it. So a schedule is repeated by its
// seed, and a failing one shrinks to a script that a person can read (event.go has
// the verbs).
//
// # Two tiers
//
// Tier 1 is the guard with survey, ledger, decision, sources, records, liveness,
// fencer and the levels of agents, all real; the API server is typed objects in
// memory, the watch an index that can stall. The loops of liveness (a tick every
// half second, a probe every two) run as often as the scheduler lets time pass,
// every 5 s at least. Left out are HTTP, client-go's informers, the wake-ups, the
// Events, the throttle, the proxy and failover's loop: tier 2 has them.
//
// Deployed, csi-fencepost answers refused calls that are repeated from memory when more
// than 16 wait. So many never wait here: in every other schedule of tier 2 all of them
// are answered so (Setup.Spares), and are judged anew only when something was found.
//
// # What is judged
//
// See oracle.go for R1 and R2 and what exactly is excused. At the end of each
// schedule all faults cease, an honest operator says what is true of dead nodes, and
// everything has to come right within finishWithin of the model's time.
//
// Whether a refusal kept a volume from somebody whom Kubernetes alone would have served,
// and harmed nobody by it (R6), is judged by forks: obligation.go, fork.go, twin.go.
// There the honest operator helps nobody. liveness.go leaves one fault for ever.
//
// # Clocks
//
// Timers run by the bubble's clock. Stamps are of the wall clock of who writes them: each
// machine's, the API server's, the controllers'. A third of the schedules begin with
// skews, and in half of them clocks jump, by less than a second up to an hour, forwards
// and backwards (skew.go). A kubelet whose clock was set back is taken for silent by the
// node controller, though it renews its lease.
//
// The wall clock of a replica of csi-fencepost is not set: it decides nothing. Ages,
// locks, deadlines and retries are differences of one process's monotonic time; what it
// stamps (audit trails, confirmations, bindings) is for people. Two look at the wall
// clock: liveness, for which a jump of more than 5 s is a suspension, after which every
// node's age begins anew (package observe has the tests), and failover's brakes, which
// count the fences of an hour by their stamps: a clock set forward forgets them early,
// one set back keeps them for longer. Nothing is permitted by either.
//
// # Ways that are cut
//
// Cut are kubelet and API server, csi-fencepost and API server, driver or agents, and the
// attach-detach controller and the API server. The other ways are these, or nothing that
// could be told apart:
//
//   - attacher and API server: it makes no call, or makes one for what has changed
//     since, and its answer is not written down: a call that the scheduler does not
//     choose, a late duplicate (LateUnpub), a lost answer. A publish for a
//     VolumeAttachment that is being deleted, out of a cache, is not simulated;
//   - attacher and csi-fencepost: the answer is lost, or the call gives up;
//   - node and array, while the kubelet lives: containers have I/O errors and hold the
//     mount. The oracle goes by mount and access and asks of nobody whether a write
//     succeeds: it is a machine that writes seldom. A client that finds its way back
//     without a new publish is one that holds on (session.holdsOn);
//   - the controllers and the API server but for the attach-detach controller's: events
//     that the scheduler does not choose;
//   - a controller whose cache is behind, while its writes arrive: not simulated. It may
//     take a volume off volumesAttached that is in use again; force detach and a false
//     taint do the same to it.
//
// # What is assumed of the world
//
//   - A kubelet mounts only after its report of the volume in use is written and a
//     live read shows it in volumesAttached; one that restarts forgets what it has
//     mounted and is not in volumesAttached then (kubelet.go).
//   - The attach-detach controller's two writes of a detach, volumesAttached and the
//     VolumeAttachment, come within a second of each other (enabled.go).
//   - The driver does one thing with a volume at a time, in the order in which it was
//     asked, and a call whose caller is gone is over within a minute. An attach that
//     fails and lands later is explored; an unpublish that lands after later calls of
//     the same volume were answered is not: no proxy could tell.
//   - There is one API server's clock. That of two, of which one stamps a deletion and
//     the other a heartbeat, is the same as one that is set back in between.
//   - No clock is set back by just as long as it takes until a kubelet's Ready condition
//     changes again: its lastTransitionTime would be what it was, to the second.
//   - Fence agents tell the truth or nothing, and leave nothing behind when their time
//     is up (package agent asks that of them).
//   - Nothing is published to a node between the moment in which another machine
//     takes its name over while the one of before goes on, cut off, and the moment
//     in which the new one's driver registers: the CSINode names the machine of
//     before, and its ID goes into the ledger with the new machine's boot.
//   - A process does not stop between its last write to the ledger and the call to the
//     driver that follows it for longer than another process takes for a whole
//     operation: the driver cannot tell an old call from a new one.
package simulate
