// Package array is a simulated storage array with a CSI driver, and the oracle
// of every scenario: it is the disk, so it knows who could write and who did.
//
//	 external-attacher / csi-fencepost        kubelet of machine n1, n2, ...
//	              │ controller socket                │ node socket each
//	              ▼                                  ▼
//	┌───────────────────────────── Array ─────────────────────────────┐
//	│ volumes: attached to which node IDs      machines: power, pause,│
//	│                                          staged, published      │
//	│        ▲ accepts or rejects each write          │               │
//	│        └────────── writers, every few ms ◀──────┘               │
//	│ oracle: DoubleWrite, CouldDoubleWrite, TakenInUse               │
//	└─────────────────────────────────────────────────────────────────┘
//
// It guarantees:
//
//   - A machine writes to a volume from NodePublishVolume (read-write) until
//     NodeUnpublishVolume or PowerOff, whether or not its kubelet, the driver's
//     sockets or the API server live: as a container would.
//   - A write is accepted exactly when the array grants that machine access at
//     that instant.
//   - The rules of the oracle are judged at each change of state, under the
//     same lock as the change, so that no moment is missed, however short.
//   - A restart of the driver (Stop or Kill, then Serve) loses nothing.
//   - All methods are safe for concurrent use.
//
// It does not mount anything: a staged or published volume is a record here and
// an empty folder or file at the target path. Machines know no partition from
// the array; a partition from the control plane is a kubelet that does not run.
package array
