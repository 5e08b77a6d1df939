// Package blackout is what a failover is measured on: databases with a volume
// each, all on one node of a stage, and the moments of what follows when that
// node loses power.
//
// The moments of volumes are those of the array, which knows the truth: a volume
// is published elsewhere when the driver has answered yes. All others are those
// at which a watch of the API server showed them to this process. All are read
// from one clock, this process's.
package blackout
