// Package bed sets a stage for a scenario: real kubelets, a storage array that
// knows the truth (package array), external-attacher and, between them,
// csi-fencepost, on a control plane that stages share (package controlplane).
//
//	Bed    one control plane
//	Stage  one driver with its array, nodes, attacher and csi-fencepost, in a
//	       namespace of its own: stages run beside each other
//	Node   one machine: a kubelet, and the array's idea of its power
//
// A stage is played with csi-fencepost or without it (Alone), so that a
// scenario can show both outcomes. csi-fencepost runs under the RBAC that
// deploy/ ships, never as an administrator.
//
// Everything fails through T, so that a scenario reads as its story.
package bed
