// Package evidence holds the sources of evidence that read other projects'
// custom resources against a real API server: the definitions are installed
// there, the sources have no right but the ones in Rules, and the storage's own
// word comes from the reference array over its socket.
//
// What the operators behind the resources do is played: their objects are
// written as they write them.
package evidence

import rbacv1 "k8s.io/api/rbac/v1"

// Rules are all that the sources NetworkFence, FenceAgentsRemediation and
// SelfNodeRemediation, and the prompts, need beyond the records' Leases.
var Rules = []rbacv1.PolicyRule{
	{APIGroups: []string{"csiaddons.openshift.io"}, Resources: []string{"networkfences"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"csiaddons.openshift.io"}, Resources: []string{"networkfenceclasses"}, Verbs: []string{"get"}},
	{APIGroups: []string{"fence-agents-remediation.medik8s.io"}, Resources: []string{"fenceagentsremediations"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"self-node-remediation.medik8s.io"}, Resources: []string{"selfnoderemediations"}, Verbs: []string{"list", "watch"}},
}
