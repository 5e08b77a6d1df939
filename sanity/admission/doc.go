// Package admission holds the policies of deploy/admission against a real API
// server: a stranger who has every right that RBAC can give on PersistentVolumes,
// Leases and Nodes may neither write a ledger, nor a node's record, nor the
// out-of-service taint; the sidecar and the operators' group may; and what is
// none of these stays as free as without the policies.
package admission
