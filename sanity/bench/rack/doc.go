// Package rack simulates the machines of a storm: as many nodes as a machine
// with two cores cannot run kubelets for.
//
//	Machine ─┬─ Node, CSINode, Lease       as its own user (system:node:NAME)
//	         ├─ kubelet                    pods ─▶ volumesInUse ─▶ volumesAttached
//	         │                                  ─▶ NodeStageVolume … ─▶ Running
//	         └─ driver's node side         package array, over its socket
//
// Why not sigs.k8s.io/kwok: it knows no volumes. Its pods run as soon as they
// are scheduled, its Nodes never list a volume in use, and it calls no CSI
// driver. All that decides about a failover of volumes would have to be added;
// what it would take over is the Lease and the Node object.
//
// A Machine does what the kubelet of k8s.io/kubernetes does, with the same
// periods, under the rights that the Node authorizer gives to a kubelet:
//
//   - its lease is renewed every 10 s, at a random phase;
//   - a volume stands in volumesInUse, reported every 10 s, before it is mounted,
//     and until a report after it was unmounted;
//   - a volume is mounted only when a live read of the Node lists it in
//     volumesAttached; a pod runs only when all of its volumes are mounted;
//   - a pod that is deleted, or gone, is unmounted; then it is deleted for good.
//
// A Machine that loses power does nothing more from that instant on, and what it
// had mounted stops writing.
//
// It does not restart, record Events, probe or run anything. It has one driver,
// and mounts the claims of pods only.
package rack
