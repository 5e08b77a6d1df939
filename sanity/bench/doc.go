// Command bench measures what csi-fencepost costs, and how quick a failover is
// with it, and prints one Markdown table that the documentation quotes.
//
//	callers ──unix──▶ (nothing | byte splice | csi-fencepost) ──unix──▶ driver
//
// Driver, splice and csi-fencepost are processes of their own; the callers are
// in this one. Figures of one machine mean little, and a shared machine is not
// the same from minute to minute. So what is compared is measured side by side,
// in rounds that take every path once, in an order that changes; a figure is
// the median of the rounds' figures, and a ratio the median of the ratios
// within each round, with the least and the greatest beside it. A row whose
// spread is too wide to mean anything says so. Nothing here passes or fails.
//
// The attach cycles run on a real control plane (package controlplane) with real
// kubelets and external-attacher, under the RBAC of deploy/; what csi-fencepost
// asks of the API server is counted by the API server's audit log.
//
// The failovers (package blackout) have machines that lose power, with BMCs, and
// a control plane for each run: with Kubernetes alone and an operator who never
// hesitates beside csi-fencepost. They take minutes each; -only=failover
// -failovers=N -kinds=... measures some of them.
//
// The storms have 1,000 volumes on 20 machines that lose power at once, with
// simulated kubelets (package rack says why, and what they do) on a control plane
// for each side. They want the machine for themselves;
// -only=storm -storm-volumes=60 -storm-nodes=3 -storm-takers=3 tries a small one.
package main
