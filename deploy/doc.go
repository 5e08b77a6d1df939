// Package deploy holds the manifests that put csi-fencepost into a driver's
// controller pod, as files and embedded.
//
//	rbac/namespace.yaml  the namespace of the nodes' records
//	rbac/observe.yaml    what mode Observe may do in the Kubernetes API
//	rbac/enforce.yaml    what mode Enforce may do besides
//	rbac/kubelet.yaml    by whom kubelets are asked in mode Enforce; it works without
//	rbac/failover.yaml   what failover.enabled may do besides
//	rbac/authorization.yaml  what --http-authorization needs besides
//	failover/            failover as a Deployment of its own account, one for all drivers
//	sidecar/patch.yaml   the container, and what changes at external-attacher
//	sidecar/config.yaml  a configuration to begin with
//	sidecar/networkpolicy.yaml  who reaches the sidecar's metrics; optional
//	injection/           policies by which the API server puts the container into pods
//	chart/               a Helm chart of all but sidecar/ (its files are copies)
//
// It guarantees that these files are what the scenarios run under: no test runs
// as an administrator where a driver would not. It does not narrow who else may
// write a ledger, a record or a taint; that is the cluster's own RBAC.
package deploy
