package doctor

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// rbac are the Roles of the cluster, and who they are bound to. Other authorizers are not seen.
type rbac struct {
	known        bool                 // the cluster's Roles could be read
	unseen       func(in string) bool // those of a namespace could not
	clusterRoles map[string][]rbacv1.PolicyRule
	roles        map[string][]rbacv1.PolicyRule // namespace/name
	cluster      []*rbacv1.ClusterRoleBinding
	namespaced   []*rbacv1.RoleBinding
}

// An account is a service account.
type account struct{ namespace, name string }

func (a account) String() string { return a.namespace + "/" + a.name }

// among tells whether a binding is for the account, by name or by group.
func (a account) among(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return s.Namespace == a.namespace && s.Name == a.name
		case rbacv1.UserKind:
			return s.Name == "system:serviceaccount:"+a.namespace+":"+a.name
		}
		return s.Kind == rbacv1.GroupKind && slices.Contains([]string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + a.namespace}, s.Name)
	})
}

// lacks are the rights that the account does not have, of those that could be looked up.
func (r *rbac) lacks(a account, needed []authorizationv1.ResourceAttributes) (missing []authorizationv1.ResourceAttributes) {
	in := map[string][]rbacv1.PolicyRule{} // by namespace; "": everywhere
	for _, b := range r.cluster {
		if a.among(b.Subjects) {
			in[""] = append(in[""], r.clusterRoles[b.RoleRef.Name]...)
		}
	}
	for _, b := range r.namespaced {
		rules := r.roles[b.Namespace+"/"+b.RoleRef.Name]
		if b.RoleRef.Kind == "ClusterRole" {
			rules = r.clusterRoles[b.RoleRef.Name]
		}
		if a.among(b.Subjects) {
			in[b.Namespace] = append(in[b.Namespace], rules...)
		}
	}
	for _, right := range needed {
		allows := func(rule rbacv1.PolicyRule) bool { return allows(rule, right) }
		if !slices.ContainsFunc(in[""], allows) && !slices.ContainsFunc(in[right.Namespace], allows) && (right.Namespace == "" || !r.unseen(right.Namespace)) {
			missing = append(missing, right)
		}
	}
	return missing
}

// allows is what the API server's RBAC makes of one rule.
func allows(rule rbacv1.PolicyRule, right authorizationv1.ResourceAttributes) bool {
	has := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	return has(rule.Verbs, right.Verb) && has(rule.APIGroups, right.Group) && has(rule.Resources, right.Resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, right.Name))
}

// attaches tells whether the account may attach volumes in the whole cluster, as an
// external-attacher has to, and nobody may whose rights end with a namespace. Where the Roles
// cannot be read, everybody is taken to.
func (r *rbac) attaches(a account) bool {
	may := func(verb, resource string) bool {
		return len(r.lacks(a, []authorizationv1.ResourceAttributes{{Verb: verb, Group: "storage.k8s.io", Resource: resource}})) == 0
	}
	return !r.known || may("patch", "volumeattachments/status") || may("update", "volumeattachments/status") || may("patch", "volumeattachments")
}
