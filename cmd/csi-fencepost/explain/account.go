package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ObserveRole is what every sidecar is bound to, whatever its mode; see deploy/rbac. The
// binding has the driver's name behind it.
const ObserveRole = "csi-fencepost-observe"

// An account is a service account that a sidecar runs as.
type account struct{ namespace, name string }

func (a account) String() string { return a.namespace + "/" + a.name }

// runs tells whether a pod of its namespace is the account's.
func (a account) runs(pod *corev1.Pod) bool {
	name := pod.Spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	return name == a.name
}

// sidecarAccounts are the accounts that ClusterRoleBindings of ours name: those of the
// driver's own binding, or, where none has its name, all. Nobody whose rights end with a
// namespace can write one; pods, ConfigMaps, Leases and RoleBindings he can.
func sidecarAccounts(ctx context.Context, client kubernetes.Interface, driver string) ([]account, error) {
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list ClusterRoleBindings: %w", err)
	}
	var own, all []account
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name != ObserveRole {
			continue
		}
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind {
				continue
			}
			all = append(all, account{s.Namespace, s.Name})
			if b.Name == ObserveRole+"-"+driver {
				own = append(own, account{s.Namespace, s.Name})
			}
		}
	}
	if len(own) > 0 {
		all = own
	}
	slices.SortFunc(all, func(a, b account) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all), nil
}

// list names accounts as a sentence does.
func list(accounts []account) string {
	words := make([]string, len(accounts))
	for i, a := range accounts {
		words[i] = a.String()
	}
	return strings.Join(words, " or ")
}
