// Package controlplane runs a real Kubernetes control plane for scenarios:
// etcd, kube-apiserver (RBAC and the Node authorizer on), kube-controller-manager,
// kube-scheduler, kubelets and external-attacher, as processes on free loopback
// ports, in one temporary folder.
//
//	cluster ─┬─ etcd
//	         ├─ kube-apiserver            Stop/Start/Pause/ResumeAPIServer
//	         ├─ kube-controller-manager   Stop/StartControllerManager
//	         ├─ kube-scheduler
//	         ├─ node ─┬─ kubelet          Pause/Resume, KillKubelet/StartKubelet
//	         │        │                   Partition/Heal (its network, see NodeOptions)
//	         │        └─ container-runtime   PowerOff/Boot: both
//	         └─ processes: csi-attacher, csi-fencepost, …
//
// It guarantees:
//   - several clusters can run side by side on one machine;
//   - no process outlives the process that called [Start], not even when that is
//     killed with SIGKILL; [Cluster.Stop] also removes the folder and the nodes'
//     networks, and the next Start those that a killed process left;
//   - a kubelet answers at its Node's InternalIP and port: 127.0.0.1, or the
//     node's address on a network of its own; nothing listens elsewhere;
//   - binaries are built once for each version of the nested modules and Go
//     ([Build]); a build that is broken off leaves no half binary.
//
// It does not guarantee:
//   - durability: etcd runs without fsync;
//   - machines: the kubelets are those of kubemark, with the real volume manager,
//     CSI client, plugin registration, status manager and server (TLS, callers
//     known and allowed by the API server), but with no mount(8), no
//     cgroups, and a container runtime that only pretends. A CSI driver's node
//     socket is called as on a real node. Raw block volumes are attached but not
//     mapped into pods. Kubelets record no Events (kubemark's recorder is a
//     fake: with a real one a kubelet reads /dev/kmsg);
//   - any system but Linux: it relies on parent-death signals and /proc.
package controlplane
