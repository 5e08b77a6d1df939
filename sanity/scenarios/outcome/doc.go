// Package outcome keeps what came of each story of the catalogue, and makes the
// page of it.
//
// Playing everything on Kubernetes' own clocks takes hours. So each outcome is
// written down as soon as its story ends, with the commit, the version of
// Kubernetes, the clocks and the date that it holds for; a story can be played
// again by itself, and the page shows the latest outcome of each. A story without
// one is shown as not played yet; one that failed, as failed.
package outcome
