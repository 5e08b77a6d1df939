// Package setup is what the suite of package fitness is told: its Config, the
// flags of csi-fencepost sanity, and the files that they name.
//
// It is a package of its own so that csi-fencepost can read and explain the flags
// without the test framework, which the sidecar does not carry.
//
// It guarantees that a Config which Check passes can be run: what is missing or
// contradicts itself is an error that names the flag and what would be right. It
// prints no secret, in errors neither.
package setup
