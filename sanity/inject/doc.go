// Package inject holds what `csi-fencepost inject` writes against a real API
// server: every document of it is applied with a server-side dry-run and strict
// fields, and what the server has stored is uninjected again, without the marks
// that only a file keeps.
//
// The manifests are the project's own; those of a folder named by
// CSI_FENCEPOST_MANIFESTS come in addition.
package inject
