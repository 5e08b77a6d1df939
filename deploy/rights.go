package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Rights are all that the manifests of render (Observe, Enforce, Failover, Apart) allow, one
// verb and one resource each, as the Kubernetes API is asked about them. Left out is
// what they allow in the namespace of the pod, the Lease of the leader: which one that is, the
// process is told by a flag. So is what KubeletAccount's roles allow, which no mode needs.
func Rights(render func(Names) ([]byte, error)) ([]authorizationv1.ResourceAttributes, error) {
	const driver = "the-drivers-own"
	manifests, err := render(Names{Namespace: driver, ServiceAccount: driver, Driver: driver})
	if err != nil {
		return nil, err
	}
	var all []authorizationv1.ResourceAttributes
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		var role rbacv1.Role // a ClusterRole reads the same, and has no namespace
		if err := documents.Decode(&role); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("deploy/rbac: %w", err)
		}
		if role.Namespace == driver || role.Namespace == ApartNamespace || role.Name == KubeletAccount {
			continue
		}
		for _, rule := range role.Rules {
			all = append(all, each(rule, role.Namespace)...)
		}
	}
}

// each is a rule taken apart.
func each(rule rbacv1.PolicyRule, namespace string) (all []authorizationv1.ResourceAttributes) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					all = append(all, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name})
				}
			}
		}
	}
	return all
}
