// Command gotest runs the tests as go test does, and says at the end what took
// longest.
//
//	go run ./sanity/gotest -- ./csi/... ./fence/...       one go test with these words
//	go run ./sanity/gotest -- -race ./csi -- -count=1 ./sanity/scenarios
//	                                                      two, one after the other
//	go run ./sanity/gotest -every -but='/slow$' -- ...    and fail at once where a package
//	                                                      that has tests is in none of them
//	go run ./sanity/gotest -check                         make check
//
// It prints what go test prints without -v: a line for each package, and for one
// that fails everything that its failing tests said. After the last package come
// the ten slowest packages, the ten slowest tests, and the names of all that
// failed. After one go test that fails no other is begun. It exits with 1 if a go test
// failed in any way, also if that wrote nothing that can be read.
//
// # make check
//
// What changed since the commit that the checkout and origin have in common, with
// what is not committed: gofmt and staticcheck of it, go vet of it and of what
// imports it, then the tests of those packages, the changed ones first. No tests of
// a package that only imports what changed are begun once the time is over, and
// packages whose tests start a control plane or virtual machines are left out; each
// that was not tested is named. It is no make test.
package main
