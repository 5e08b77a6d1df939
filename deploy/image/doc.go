// Image builds what a release of csi-fencepost consists of, without a container
// engine:
//
//	csi-fencepost_VERSION_linux_amd64           the program, static
//	csi-fencepost_VERSION_linux_arm64
//	csi-fencepost-agents_VERSION_linux_amd64    fence agents, static
//	csi-fencepost-agents_VERSION_linux_arm64
//	csi-fencepost-webhook_VERSION_linux_amd64   the chart's webhook, static
//	csi-fencepost-webhook_VERSION_linux_arm64
//	PROGRAM.cdx.json                            the SBOM of each: CycloneDX 1.6, from the
//	                                            modules that the linker noted in it
//	csi-fencepost_VERSION.oci.tar               the image, for both platforms
//	csi-fencepost-VERSION.tgz                   the Helm chart (package chart)
//	kubectl-fencepost_VERSION_linux_amd64.tar.gz
//	kubectl-fencepost_VERSION_linux_arm64.tar.gz
//	                                            the program as kubectl's plugin, for krew
//	fencepost.yaml                              krew's manifest of it
//	SHA256SUMS                                  of all of these
//
// The archive is an OCI image layout in a tar file: skopeo, podman, docker and
// containerd take it as it is. The image has three layers: csi-fencepost;
// csi-fencepost-agents with a link for each of its agents in /usr/sbin, where
// csi-fencepost finds them; and csi-fencepost-webhook. It runs as user 65532, and needs nothing that can be
// written.
//
// It guarantees that the same sources, version, date and Go toolchain give the
// same bytes, wherever and whenever it runs. It does not guarantee the same
// bytes for another Go toolchain.
//
//	go run ./deploy/image -version v1.0.0 -date 1700000000 -o bin/dist
//
// The file Containerfile is the recipe for a second image, with Debian's fence
// agents beside them; it needs a container engine.
package main
