// Package kubelet asks kubelets for their process: when it started, how much processor time it has
// used, and by which key it serves. A kubelet that restarts may forget what it has mounted, and
// says then that it does not use it. A kubelet whose process is the one that ran before the volume was
// published has forgotten nothing (fence.Holder.AsksKubelet).
//
// What is asked is /metrics of the kubelet's own server, at the address and port that its Node
// says, which takes get nodes/metrics (Kubernetes, "Kubelet authentication/authorization"). It is
// asked with a token of a service account of its own, which may do nothing else: who answers at an
// address is not known before, and kubelets' certificates are often self-signed, so whoever answers
// where a Ready node says that its kubelet is has a token that is worth the kubelets' metrics for
// half an hour. A question for the sake of a volume goes to no other key than was noted. Where the
// account is missing, or kubelets cannot be reached from here, nothing is known of any process, and
// everything is as without this package.
//
// An answer is the Node's kubelet's if it names that node. It is compared with an earlier one of
// the same key: an address that another machine has got meanwhile says nothing. A kubelet writes
// what it likes, and frees by that what its own node holds, as it does by its Node's status.
package kubelet
