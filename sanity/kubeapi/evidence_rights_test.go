package kubeapi

import rbacv1 "k8s.io/api/rbac/v1"

// evidenceRights are all that the sources NetworkFence, FenceAgentsRemediation and
// SelfNodeRemediation, and the prompts, need beyond the records' Leases.
var evidenceRights = []rbacv1.PolicyRule{
	{APIGroups: []string{"csiaddons.openshift.io"}, Resources: []string{"networkfences"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"csiaddons.openshift.io"}, Resources: []string{"networkfenceclasses"}, Verbs: []string{"get"}},
	{APIGroups: []string{"fence-agents-remediation.medik8s.io"}, Resources: []string{"fenceagentsremediations"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"self-node-remediation.medik8s.io"}, Resources: []string{"selfnoderemediations"}, Verbs: []string{"list", "watch"}},
}
