package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// Render returns the policies of the plans, and their bindings, as one stream of
// manifests. What else a plan needs (its Documents: rights and configuration) is
// not in it, and has to be applied before. An error says what of a plan no
// policy can express.
func Render(plans []*inject.Plan) ([]byte, error) {
	var out bytes.Buffer
	for i, p := range plans {
		if i > 0 {
			out.WriteString("---\n")
		}
		if err := render(&out, p); err != nil {
			return nil, fmt.Errorf("%s: %s %s/%s: %w", p.Where, p.Kind, p.Namespace, p.Name, err)
		}
	}
	return out.Bytes(), nil
}

func render(out *bytes.Buffer, p *inject.Plan) error {
	mutating, err := mutatingPolicy(p)
	if err != nil {
		return err
	}
	validating, err := validatingPolicy(p)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `# Adds csi-fencepost to each write of %s %s in namespace %s, whoever
# writes it, and refuses one that would get past it. They act on writes: have the
# workload written once, and see the pods change:
#
#   kubectl rollout restart %s %s -n %s
#
# After an upgrade of the driver, render this file anew (csi-fencepost inject
# --as-policy). To end it, delete what stands in this file.
`, p.Kind, p.Name, p.Namespace, strings.ToLower(p.Kind), p.Name, p.Namespace)
	for i, object := range []any{mutating, mutatingBinding(p), validating, validatingBinding(p)} {
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := marshal(object)
		if err != nil {
			return err
		}
		out.Write(text)
	}
	return nil
}

// marshal writes an object without the status that it has not yet.
func marshal(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	return yaml.Marshal(fields)
}

// name is of the policies and bindings: of one attacher in one workload, and no
// other's.
func name(p *inject.Plan) string {
	return p.Sidecar.Name + "." + p.Name + "." + p.Namespace
}

const api = "admissionregistration.k8s.io/v1"

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: api, Kind: kind} }

func objectMeta(p *inject.Plan) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name(p), Labels: map[string]string{"app.kubernetes.io/name": "csi-fencepost"}}
}

// match is the workload's kind and namespace. Its name is a condition.
func match(p *inject.Plan) *admissionv1.MatchResources {
	group, version, _ := strings.Cut(p.APIVersion, "/")
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": p.Namespace}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups:   []string{group},
				APIVersions: []string{version},
				Resources:   []string{strings.ToLower(p.Kind) + "s"},
			},
		}}},
	}
}

func mutatingPolicy(p *inject.Plan) (*admissionv1.MutatingAdmissionPolicy, error) {
	mutation, err := patch(p)
	if err != nil {
		return nil, err
	}
	// A write that cannot be judged is refused: the pods that run stay guarded.
	fail := admissionv1.Fail
	return &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   typeMeta("MutatingAdmissionPolicy"),
		ObjectMeta: objectMeta(p),
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match(p),
			MatchConditions:  append(workload(p), hasAttacher(p)),
			FailurePolicy:    &fail,
			// What others change after us may need us again.
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
			Variables:          variables(p),
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: mutation},
			}},
		},
	}, nil
}

func mutatingBinding(p *inject.Plan) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("MutatingAdmissionPolicyBinding"),
		ObjectMeta: objectMeta(p),
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name(p)},
	}
}

func validatingPolicy(p *inject.Plan) (*admissionv1.ValidatingAdmissionPolicy, error) {
	validations, err := validations(p)
	if err != nil {
		return nil, err
	}
	fail := admissionv1.Fail
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: objectMeta(p),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match(p),
			MatchConditions:  workload(p),
			FailurePolicy:    &fail,
			Variables:        words(p),
			Validations:      validations,
		},
	}, nil
}

func validatingBinding(p *inject.Plan) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: objectMeta(p),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name(p),
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}
