// Package policy renders what [inject] plans as admission policies, for operators
// that write their controller's workload again and again and so revert every
// edit of it: then the API server itself adds csi-fencepost, to each write.
//
//	operator ──▶ kube-apiserver ─┬─ MutatingAdmissionPolicy: adds the sidecar,
//	                             │  points external-attacher at it
//	                             └─ ValidatingAdmissionPolicy: refuses a write in
//	                                which external-attacher would get past it
//
// It guarantees:
//   - what is stored is what Inject would have written, whatever the operator
//     sends, as long as its attacher looks as the plan has seen it;
//   - each --csi-address of the attacher, in whatever spelling and however many
//     of them (the last one wins), names our socket: one that names the driver's
//     is rewritten, one that names any other is refused;
//   - a write that is right already is not changed (no needless rollout);
//   - where the attacher no longer looks so, after an upgrade of the driver say,
//     the write is refused with a message, and the pods that run keep their
//     guard. Render the policy anew then.
//
// It does not guarantee anything for a workload that nobody writes: the policies
// see writes only. They also say nothing of pods that are made by hand.
//
// MutatingAdmissionPolicy is v1 since Kubernetes 1.36.
package policy
