// Package run is csi-fencepost run, the process of the sidecar, and csi-fencepost failover, around
// proxy/sidecar.
//
//	flags.go      the flags, their defaults and checks
//	run.go        what is started, in which order, and how it stops
//	failover.go   csi-fencepost failover: failover alone, for all drivers
//	leader.go     leader election of the background work
//	http.go       metrics and health over HTTP; connections.go: how many at once;
//	              certificate.go: over TLS; authorize.go: for whom
//	advice.go     what bounds a failover and cannot be seen from here
//	memory.go, transport.go  what keeps it small
//
// Calls are served by every replica, whether it leads or not, and the loss of
// the leadership or of the Kubernetes API never ends the process: its end would
// end the attacher's too. SIGTERM and SIGINT let the calls in flight finish; a
// second signal ends the process at once.
package run
