// Package wire makes gRPC calls to a CSI driver twice, directly and through a
// proxy, and compares what the caller and the driver saw of each.
//
//	caller ──────────────────▶ Driver      the facts of a call, seen at both ends,
//	caller ──▶ the proxy ────▶ Driver      have to be the same
//
// It guarantees:
//
//   - Every RPC of the CSI spec is called, as its service descriptors list them
//     (a new version of the spec adds its own), and a service that no proxy has
//     heard of. Messages are bytes that are no protobuf, but for the two calls
//     that csi-fencepost judges.
//   - Whatever differs is a Difference. One that csi-fencepost declares carries
//     the name of that exception; all others are faults.
//
// It does not look at time: latency and the distribution of codes of calls that
// expire are measured elsewhere.
package wire
