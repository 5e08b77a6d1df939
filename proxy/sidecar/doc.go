// Package sidecar is the wiring of csi-fencepost: what `csi-fencepost run` starts,
// what the simulation plays, and what a vendor builds into a driver.
//
//	guard, background, err := sidecar.New(ctx, sidecar.Options{Conn: driver, Rest: api})
//	go sidecar.KeepRunning(ctx, background)
//	server, err := proxy.New(proxy.Options{Listen: socket, Driver: driver, Guard: guard})
//	err = server.Serve(ctx)
//
//	core.go       the judgement: survey, sources of evidence, fence agents
//	sidecar.go    around it what watches, reports, wakes and fails over
//	agents.go     the fence agents of a configuration
//	sources.go    the sources of evidence that a configuration switches on
//	sighting.go   taints and remediations are bound when they are first seen
//	statusz.go    the board, from which the status page is collected
//	observing.go  mode Observe forwards, whatever keeps the judgement from being built
//	rights.go     what the service account may not do, said at the start
//	metrics.go    every metric; readiness.go what /readyz answers
//
// # Guarantees
//
// All that guards is wired here and nowhere else. In mode Observe nothing is
// written but Events, and calls are forwarded whatever is missing.
//
// # Non-guarantees
//
// It elects no leader: the background work must run on one replica at a time, or
// fences and binds what another one fences and binds as well, which the records'
// locks bear and which is only wasteful. It serves no socket and no HTTP.
package sidecar
