// Package kubeapi holds csi-fencepost, as it is built and shipped, to its rules on
// a real etcd and kube-apiserver, with no controllers and no kubelets: the tests
// play them, object by object and call by call, so that each rule meets exactly the
// state that it is about. The driver is the reference driver (package array).
//
//	guard_*       what is published, refused, taken over, written down and woken
//	guard_writers, guard_claims, guard_pod, guard_lift, guard_rights, guard_fenceobject,
//	identity*, domains, rights
//	              the most that each actor of SECURITY.md can do
//	attacher_*    a real external-attacher that starts before the driver
//	statusz_*     /metrics and /statusz through a bad night, and what deploy/monitoring
//	              makes of them
//	authorization who sees /metrics and /statusz with --http-authorization
//	commands_*    csi-fencepost explain, ledger and uninstall, and kubectl fencepost
//	evidence_*    the sources of evidence that read other projects' custom resources:
//	              the definitions are installed, the sources have no right but
//	              evidenceRights, and what the operators behind the resources do is
//	              played. The storage's own word comes from the array over its socket
//	admission_*   the policies of deploy/admission: a stranger who has every right that
//	              RBAC can give on PersistentVolumes, Leases and Nodes may neither
//	              write a ledger, nor have it go with its volume while it names
//	              holders, nor a node's record, nor the out-of-service taint
//	deploy_*      what deploy/ ships, with kustomize, Helm 3 and 4, and its policies.
//	              The tools are in modules of their own under tools/, and are built
//	              into bin/ at the first test that needs them
//	inject_*      what inject writes, applied with strict fields, and uninjected from
//	              what the server has stored. The manifests are the project's own;
//	              those of a folder named by CSI_FENCEPOST_MANIFESTS come in addition
//	parity_*      the simulated API server (sanity/simulate/apiserver) against the real
//	              one
//
// Which API server a test runs on, and what may run beside it, is in main_test.go.
// What real kubelets and controllers do with it is played in sanity/scenarios.
package kubeapi
