// Command chart keeps deploy/chart/csi-fencepost, a Helm chart of what csi-fencepost needs
// outside of a driver's pod, and packs it.
//
//	deploy/rbac, deploy/admission, ... ─▶ files/              copied, byte for byte
//	package fence/config               ─▶ values.schema.json  what a configuration may say
//	                                   └▶ files/config        and what it says where nothing is named
//	csi-fencepost/                     ─▶ bin/dist/csi-fencepost-VERSION.tgz
//
// Helm reads nothing outside of a chart's folder, and Flux takes no symbolic links out of Git:
// so the chart has copies. It guarantees that none of them differs from what it was copied from
// (go run ./deploy/chart -update; a test holds them against each other), and that the same
// sources are packed to the same bytes.
//
// What the chart renders is held against csi-fencepost inject, with Helm 3 and 4, in
// sanity/kubeapi.
package main
