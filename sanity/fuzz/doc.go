// Command fuzz runs every fuzz target of this repository, one after the other,
// each for a while, and says how many inputs it tried. The targets feed what
// others write (configuration, ledgers, answers of agents and drivers, objects of
// the Kubernetes API, manifests, requests) to the code that reads it.
//
// An input that breaks a rule is written by go test under testdata/fuzz of its
// package, where go test runs it from then on; so are the seeds. It exits with 1
// if there is one.
package main
