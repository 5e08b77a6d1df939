package apiserver

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Namespaces.

func defaultNamespace(o Object) {
	n := o.(*corev1.Namespace)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
	if n.Status.Phase == "" {
		n.Status.Phase = corev1.NamespaceActive
	}
}

func createNamespace(o Object, _ metav1.Time) {
	n := o.(*corev1.Namespace)
	n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
}

func updateNamespace(o, old Object) {
	n, was := o.(*corev1.Namespace), old.(*corev1.Namespace)
	n.Spec.Finalizers, n.Status = was.Spec.Finalizers, was.Status
}

func updateNamespaceStatus(o, old Object, _ metav1.Time) {
	o.(*corev1.Namespace).Spec = old.(*corev1.Namespace).Spec
}

func namespaceFields(o Object) fields.Set {
	return fields.Set{"status.phase": string(o.(*corev1.Namespace).Status.Phase)}
}

// Nodes. A Node may be created with its status.

func defaultNode(o Object) {
	n := o.(*corev1.Node)
	if n.Status.Allocatable == nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

func updateNode(o, old Object) { o.(*corev1.Node).Status = old.(*corev1.Node).Status }

func updateNodeStatus(o, old Object, _ metav1.Time) {
	o.(*corev1.Node).Spec = old.(*corev1.Node).Spec
}

func validateNode(o Object) field.ErrorList {
	n := o.(*corev1.Node)
	return append(validation.ValidateObjectMeta(&n.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata")), validateTaints(n)...)
}

func validateNodeUpdate(o, old Object) field.ErrorList {
	n, was := o.(*corev1.Node), old.(*corev1.Node)
	errs := validateTaints(n)
	if was.Spec.ProviderID != "" && was.Spec.ProviderID != n.Spec.ProviderID {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	return errs
}

func validateTaints(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	type pair struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[pair]bool{}
	for i, t := range n.Spec.Taints {
		path := field.NewPath("metadata", "taints").Index(i)
		if t.Key == "" {
			errs = append(errs, field.Invalid(path.Child("key"), t.Key, "name part must be non-empty"))
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		case "":
			errs = append(errs, field.Required(path.Child("effect"), ""))
		default:
			errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
		if p := (pair{t.Key, t.Effect}); seen[p] {
			errs = append(errs, field.Duplicate(path, t))
		} else {
			seen[p] = true
		}
	}
	return errs
}

func nodeFields(o Object) fields.Set {
	return fields.Set{"spec.unschedulable": strconv.FormatBool(o.(*corev1.Node).Spec.Unschedulable)}
}

// Pods.

func defaultPod(o Object) {
	p := o.(*corev1.Pod)
	set(&p.Spec.DNSPolicy, corev1.DNSClusterFirst)
	set(&p.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	set(&p.Spec.SchedulerName, corev1.DefaultSchedulerName)
	fill(&p.Spec.SecurityContext, corev1.PodSecurityContext{})
	fill(&p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	fill(&p.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		set(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
		set(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
		set(&c.ImagePullPolicy, corev1.PullIfNotPresent)
	}
}

func createPod(o Object, _ metav1.Time) {
	p := o.(*corev1.Pod)
	p.Generation = 1
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
}

func updatePod(o, old Object) {
	p, was := o.(*corev1.Pod), old.(*corev1.Pod)
	p.Status = was.Status
	p.Generation = was.Generation
	if !equality.Semantic.DeepEqual(p.Spec, was.Spec) {
		p.Generation++
	}
}

func updatePodStatus(o, old Object, _ metav1.Time) {
	p, was := o.(*corev1.Pod), old.(*corev1.Pod)
	p.Spec, p.OwnerReferences, p.DeletionTimestamp = was.Spec, was.OwnerReferences, nil
	set(&p.Status.QOSClass, was.Status.QOSClass)
	if p.Status.ObservedGeneration == 0 {
		p.Status.ObservedGeneration = was.Status.ObservedGeneration
	}
}

func validatePod(o Object) field.ErrorList {
	p := o.(*corev1.Pod)
	errs := validation.ValidateObjectMeta(&p.ObjectMeta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if len(p.Spec.Containers) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec", "containers"), ""))
	}
	return errs
}

// A pod's spec may hardly change; of what may, nobody here changes anything.
func validatePodUpdate(o, old Object) field.ErrorList {
	if equality.Semantic.DeepEqual(o.(*corev1.Pod).Spec, old.(*corev1.Pod).Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than a few, none of which is modelled")}
}

func podFields(o Object) fields.Set {
	p := o.(*corev1.Pod)
	return fields.Set{
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"status.phase":             string(p.Status.Phase),
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

// Events.

func validateEvent(o Object) field.ErrorList {
	e := o.(*corev1.Event)
	errs := validation.ValidateObjectMeta(&e.ObjectMeta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	switch in := e.InvolvedObject.Namespace; {
	case in == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem && e.Namespace != "":
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), in, "does not match event.namespace"))
	case in != "" && in != e.Namespace:
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), in, "does not match event.namespace"))
	}
	return errs
}

func eventFields(o Object) fields.Set {
	e := o.(*corev1.Event)
	source := e.Source.Component
	set(&source, e.ReportingController)
	return fields.Set{
		"involvedObject.kind":            e.InvolvedObject.Kind,
		"involvedObject.namespace":       e.InvolvedObject.Namespace,
		"involvedObject.name":            e.InvolvedObject.Name,
		"involvedObject.uid":             string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
}

// set gives *p a default.
func set[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// fill gives *p a default.
func fill[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}
