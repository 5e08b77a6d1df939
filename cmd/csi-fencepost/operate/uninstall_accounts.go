package operate

import (
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// accounts tell who may be a sidecar: an account that may list the cluster's PersistentVolumes, as
// every sidecar does in every mode, and nobody may whose rights end with a namespace. So no tenant
// steers by what he has in his namespace whether something is removed. What cannot be asked counts
// as one that may.
type accounts struct {
	client kubernetes.Interface
	may    map[string]bool // by namespace/name; nil: nobody was asked about yet
}

// sidecar tells whether that service account may be a sidecar's.
func (a *accounts) sidecar(ctx context.Context, namespace, name string) bool {
	if name == "" {
		name = "default"
	}
	key := namespace + "/" + name
	if may, known := a.may[key]; known {
		return may
	}
	review, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + namespace + ":" + name,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "persistentvolumes"},
	}}, metav1.CreateOptions{})
	if a.may == nil {
		a.may = map[string]bool{}
	}
	a.may[key] = err != nil || review.Status.Allowed || review.Status.EvaluationError != ""
	return a.may[key]
}

// in tells whether some account of the namespace may be a sidecar's: of those that a
// ClusterRoleBinding names, or any, by what all accounts may.
func (a *accounts) in(ctx context.Context, namespace string) bool {
	bindings, err := a.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return true
	}
	names := []string{"default"}
	for i := range bindings.Items {
		for _, s := range bindings.Items[i].Subjects {
			user, is := strings.CutPrefix(s.Name, "system:serviceaccount:"+namespace+":")
			switch {
			case s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace:
				names = append(names, s.Name)
			case s.Kind == rbacv1.UserKind && is:
				names = append(names, user)
			}
		}
	}
	return slices.ContainsFunc(names, func(name string) bool { return a.sidecar(ctx, namespace, name) })
}
