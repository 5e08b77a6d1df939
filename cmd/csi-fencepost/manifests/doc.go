// Package manifests is csi-fencepost inject and uninject: the sidecar is put
// into a driver's manifests, and taken out again. It asks no cluster.
package manifests
