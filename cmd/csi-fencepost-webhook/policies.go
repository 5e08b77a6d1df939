package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// policies are admission policies by the path at which the API server calls for one: /mutate/NAME and
// /validate/NAME; and, for whoever wants no older or newer one, with /DIGEST behind it, the first 16 hex
// digits of the SHA-256 of the manifests that it came with. They are compiled and applied by the API server's own code, of the version that this
// program is built with. They may not have parameters, nor ask the authorizer, nor select namespaces by
// other labels than kubernetes.io/metadata.name: nothing is read from the cluster.
type policies map[string]policy

// A policy changes the object of a request, or refuses it by an error.
type policy func(context.Context, admission.Attributes, admission.ObjectInterfaces) error

// load reads a stream of manifests. An error names the object that is wrong.
func load(text []byte) (policies, error) {
	matcher := matching.NewMatcher(byName{}, nil)
	mutate := mutating.NewDispatcher(nobody{}, matcher, schemaless{})
	validate := validating.NewDispatcher(nobody{}, generic.NewPolicyMatcher(matcher))
	var mutations []mutating.PolicyHook
	var validations []validating.PolicyHook
	mutatingBindings, validatingBindings := map[string][]*admissionv1.MutatingAdmissionPolicyBinding{}, map[string][]*admissionv1.ValidatingAdmissionPolicyBinding{}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		switch o := object.(type) {
		case *admissionv1.MutatingAdmissionPolicy:
			hook, err := mutation(o)
			if err != nil {
				return nil, fmt.Errorf("MutatingAdmissionPolicy %s: %w", o.Name, err)
			}
			mutations = append(mutations, hook)
		case *admissionv1.MutatingAdmissionPolicyBinding:
			if err := bound(o.Spec.ParamRef, o.Spec.MatchResources); err != nil {
				return nil, fmt.Errorf("MutatingAdmissionPolicyBinding %s: %w", o.Name, err)
			}
			mutatingBindings[o.Spec.PolicyName] = append(mutatingBindings[o.Spec.PolicyName], o)
		case *admissionv1.ValidatingAdmissionPolicy:
			hook, err := validation(o)
			if err != nil {
				return nil, fmt.Errorf("ValidatingAdmissionPolicy %s: %w", o.Name, err)
			}
			validations = append(validations, hook)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			if err := bound(o.Spec.ParamRef, o.Spec.MatchResources); err != nil {
				return nil, fmt.Errorf("ValidatingAdmissionPolicyBinding %s: %w", o.Name, err)
			}
			validatingBindings[o.Spec.PolicyName] = append(validatingBindings[o.Spec.PolicyName], o)
		default:
			return nil, fmt.Errorf("%s is no admission policy of %s, nor the binding of one", kind, admissionv1.SchemeGroupVersion)
		}
	}
	all := policies{}
	add := func(path string, p policy) { all[path], all[path+digest(text)] = p, p }
	for _, h := range mutations {
		if h.Bindings = mutatingBindings[h.Policy.Name]; len(h.Bindings) == 0 {
			return nil, fmt.Errorf("MutatingAdmissionPolicy %s has no binding", h.Policy.Name)
		}
		add("/mutate/"+h.Policy.Name, func(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
			return mutate.Dispatch(ctx, a, o, []mutating.PolicyHook{h})
		})
	}
	for _, h := range validations {
		if h.Bindings = validatingBindings[h.Policy.Name]; len(h.Bindings) == 0 {
			return nil, fmt.Errorf("ValidatingAdmissionPolicy %s has no binding", h.Policy.Name)
		}
		add("/validate/"+h.Policy.Name, func(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
			return validate.Dispatch(ctx, a, o, []validating.PolicyHook{h})
		})
	}
	return all, nil
}

// digest is what stands behind the path of a policy that came with these manifests.
func digest(text []byte) string { return fmt.Sprintf("/%.8x", sha256.Sum256(text)) }

// mutation compiles a policy as the API server does (k8s.io/apiserver, policy/mutating, compilePolicy).
func mutation(policy *admissionv1.MutatingAdmissionPolicy) (mutating.PolicyHook, error) {
	spec := &policy.Spec
	compiler, matcher, err := compile(policy.Name, &spec.MatchConstraints, spec.ParamKind, spec.Variables, spec.MatchConditions, spec.FailurePolicy)
	if err != nil {
		return mutating.PolicyHook{}, err
	}
	options := options
	options.HasPatchTypes = true
	e := mutating.PolicyEvaluator{Matcher: matcher, CompositedCompiler: compiler}
	for i, m := range spec.Mutations {
		if m.JSONPatch == nil {
			return mutating.PolicyHook{}, fmt.Errorf("mutation %d is no jsonPatch", i)
		}
		compiled := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, options, environment.StoredExpressions)
		if err := errors.Join(compiled.CompilationErrors()...); err != nil {
			return mutating.PolicyHook{}, fmt.Errorf("mutation %d: %w", i, err)
		}
		e.Mutators = append(e.Mutators, patch.NewJSONPatcher(compiled))
	}
	return mutating.PolicyHook{Policy: policy, Evaluator: e}, nil
}

// validation is the same of the other kind (policy/validating, compilePolicy).
func validation(policy *admissionv1.ValidatingAdmissionPolicy) (validating.PolicyHook, error) {
	spec := &policy.Spec
	compiler, matcher, err := compile(policy.Name, &spec.MatchConstraints, spec.ParamKind, spec.Variables, spec.MatchConditions, spec.FailurePolicy)
	if err != nil {
		return validating.PolicyHook{}, err
	}
	var conditions, messages []cel.ExpressionAccessor
	for _, v := range spec.Validations {
		conditions = append(conditions, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if v.MessageExpression != "" {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		} else {
			messages = append(messages, nil)
		}
	}
	says := options
	says.HasAuthorizer = false
	judges, words := compiler.CompileCondition(conditions, options, environment.StoredExpressions), compiler.CompileCondition(messages, says, environment.StoredExpressions)
	if err := errors.Join(append(judges.CompilationErrors(), words.CompilationErrors()...)...); err != nil {
		return validating.PolicyHook{}, err
	}
	notes := compiler.CompileCondition(nil, options, environment.StoredExpressions)
	return validating.PolicyHook{Policy: policy, Evaluator: validating.NewValidator(judges, matcher, notes, words, spec.FailurePolicy, nil)}, nil
}

var options = cel.OptionalVariableDeclarations{HasAuthorizer: true}

// compile is what both kinds have in common. It fills in what the API server fills in by default.
func compile(name string, match **admissionv1.MatchResources, param *admissionv1.ParamKind, variables []admissionv1.Variable, conditions []admissionv1.MatchCondition, onFailure *admissionv1.FailurePolicyType) (*cel.CompositedCompiler, matchconditions.Matcher, error) {
	switch {
	case param != nil:
		return nil, nil, errors.New("it has a paramKind, which is not read here")
	case *match == nil:
		return nil, nil, errors.New("it has no matchConstraints")
	}
	if err := bound(nil, *match); err != nil {
		return nil, nil, err
	}
	if m := *match; m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m := *match; m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, nil, err
	}
	for _, v := range variables {
		// What uses a variable that is wrong does not compile either, and says so less well.
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.StoredExpressions); result.Error != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", v.Name, result.Error)
		}
	}
	var all []cel.ExpressionAccessor
	for i := range conditions {
		all = append(all, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	judges := compiler.CompileCondition(all, options, environment.StoredExpressions)
	if err := errors.Join(judges.CompilationErrors()...); err != nil {
		return nil, nil, fmt.Errorf("matchConditions: %w", err)
	}
	return compiler, matchconditions.NewMatcher(judges, onFailure, "policy", "validate", name), nil
}

// bound is an error where a policy, or its binding, goes by what is not read here: it would be for no
// namespace, and say nothing.
func bound(param *admissionv1.ParamRef, match *admissionv1.MatchResources) error {
	if param != nil {
		return errors.New("it has a paramRef, which is not read here")
	}
	if match == nil || match.NamespaceSelector == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(match.NamespaceSelector)
	if err != nil {
		return fmt.Errorf("namespaceSelector: %w", err)
	}
	wants, _ := selector.Requirements()
	for _, want := range wants {
		if want.Key() != corev1.LabelMetadataName {
			return fmt.Errorf("namespaceSelector: the label %s is not read here, only %s", want.Key(), corev1.LabelMetadataName)
		}
	}
	return nil
}

// review applies the policy to the object of a request. What it answers is what the API server would have
// done with the same policy, but for its own defaults, which it fills in after it.
func (p policy) review(ctx context.Context, request *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
	answer := &reviewv1.AdmissionResponse{UID: request.UID}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
		return refuse(answer, apierrors.NewBadRequest("the request's object: "+err.Error()))
	}
	notes := &noted{Attributes: attributes(request, object)}
	objects := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	ctx = warning.WithWarningRecorder(ctx, notes)
	err := p(ctx, notes, objects)
	answer.Warnings, answer.AuditAnnotations = notes.warnings, notes.audit
	if err != nil {
		return refuse(answer, err)
	}
	answer.Allowed = true
	if answer.Patch, err = changes(request.Object.Raw, object); err != nil {
		return refuse(answer, apierrors.NewInternalError(err))
	}
	if answer.Patch != nil {
		kind := reviewv1.PatchTypeJSONPatch
		answer.PatchType = &kind
	}
	return answer
}

// changes is the JSON patch from before to after; nil: there are none.
func changes(before []byte, after *unstructured.Unstructured) ([]byte, error) {
	text, err := after.MarshalJSON()
	if err != nil {
		return nil, err
	}
	steps, err := jsonpatch.CreatePatch(before, text)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	return json.Marshal(steps)
}

// refuse has the API server refuse the request, with the status of err.
func refuse(answer *reviewv1.AdmissionResponse, err error) *reviewv1.AdmissionResponse {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	said := status.Status()
	said.Message = plain(said.Message) // it has names of whoever asks, and is shown to others
	if said.Details != nil {
		details := *said.Details
		details.Causes = slices.Clone(details.Causes)
		for i := range details.Causes {
			details.Causes[i].Message = plain(details.Causes[i].Message)
		}
		said.Details = &details
	}
	answer.Allowed, answer.Result = false, &said
	return answer
}

func attributes(request *reviewv1.AdmissionRequest, object *unstructured.Unstructured) admission.Attributes {
	return admission.NewAttributesRecord(object, nil, schema.GroupVersionKind(request.Kind), request.Namespace, request.Name,
		schema.GroupVersionResource(request.Resource), request.SubResource, admission.Operation(request.Operation), nil, request.DryRun != nil && *request.DryRun, userOf(request))
}

func userOf(request *reviewv1.AdmissionRequest) user.Info {
	u := &user.DefaultInfo{Name: request.UserInfo.Username, UID: request.UserInfo.UID, Groups: request.UserInfo.Groups, Extra: map[string][]string{}}
	for key, values := range request.UserInfo.Extra {
		u.Extra[key] = values
	}
	return u
}

// noted are a request's attributes, with what the policies say besides their verdict.
type noted struct {
	admission.Attributes
	warnings []string
	audit    map[string]string
}

// AddWarning implements warning.Recorder.
func (n *noted) AddWarning(_, text string) { n.warnings = append(n.warnings, plain(text)) }

// AddAnnotation keeps one for the audit log. The API server puts the webhook's name before the key,
// which may have no second slash then.
func (n *noted) AddAnnotation(key, value string) error {
	if n.audit == nil {
		n.audit = map[string]string{}
	}
	n.audit[path.Base(key)] = plain(value)
	return nil
}

func (n *noted) AddAnnotationWithLevel(key, value string, _ auditinternal.Level) error {
	return n.AddAnnotation(key, value)
}

// byName knows each namespace by its name, which is the label that the policies select by.
type byName struct{ corelisters.NamespaceLister }

func (byName) Get(name string) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}, nil
}

// nobody has no rights.
type nobody struct{}

func (nobody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

// schemaless is a cluster without schemas: no policy here is an apply configuration, for which a
// schema would be asked.
type schemaless struct{}

func (schemaless) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	return managedfields.NewDeducedTypeConverter()
}

func (schemaless) Run(context.Context) {}
