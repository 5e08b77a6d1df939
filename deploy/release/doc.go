// Command release writes the provenance of a release: what was built, from which commit, with
// which Go, by whom.
//
//	go run ./deploy/release -version v1.0.0 -builder https://... -o bin/dist
//
// It writes bin/dist/csi-fencepost_VERSION.intoto.json, an in-toto Statement v1
// (https://github.com/in-toto/attestation) with a predicate SLSA Provenance v1
// (https://slsa.dev/spec/v1.0/provenance), which make sign signs. Its subjects are all files in
// SHA256SUMS and the image, by the digest that a registry knows it by.
//
// What it says follows from what is there, not from what somebody claims: it ends with an error,
// and writes nothing, where a file is not what SHA256SUMS says, where a program is of another
// version or was built with another Go than the others, or where the checkout has anything that its commit does not have. It cannot
// tell whether the files were built from this checkout: make provenance builds them first. The
// same files, commit and flags give the same bytes.
//
// # Build type
//
// The buildType is the URL of this folder. It stands for
//
//	make dist VERSION=version DATE=date IMAGE=image
//
// in a checkout of source, where version, date (seconds since 1970, the commit's), image (absent:
// none) and source are the externalParameters. The one of internalParameters is go, the version
// of Go that the linker noted in the programs. Resolved dependencies are the commit, that Go, and
// the go.mod and go.sum of both programs' modules, which name all others with their hashes.
//
// # The rest of a release
//
// The Makefile has the steps (provenance, push, sign, sign-image, publish), the workflow
// .github/workflows/release.yaml their order. Module tools has the programs that sign and push.
package main
