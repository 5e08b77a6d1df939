package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
)

// workload is true of the plan's workload only.
func workload(p *inject.Plan) []admissionv1.MatchCondition {
	return []admissionv1.MatchCondition{{
		Name:       "this-workload",
		Expression: fmt.Sprintf("request.namespace == %q && object.metadata.name == %q", p.Namespace, p.Name),
	}}
}

// hasAttacher holds where the attacher is there: without it there is nothing to mutate, and the
// validation says so.
func hasAttacher(p *inject.Plan) admissionv1.MatchCondition {
	return admissionv1.MatchCondition{
		Name:       "has-the-attacher",
		Expression: fmt.Sprintf("object.spec.template.spec.containers.exists(c, c.name == %q)", p.Attacher.Container),
	}
}

// variables are what the patch is made of.
func variables(p *inject.Plan) []admissionv1.Variable {
	const pod = "object.spec.template.spec"
	return []admissionv1.Variable{
		{Name: "containers", Expression: pod + ".containers"},
		{Name: "names", Expression: pod + ".containers.map(c, c.name)"},
		{Name: "inits", Expression: "has(" + pod + ".initContainers) ? " + pod + ".initContainers.map(c, c.name) : []"},
		{Name: "volumes", Expression: "has(" + pod + ".volumes) ? " + pod + ".volumes.map(v, v.name) : []"},
		{Name: "at", Expression: fmt.Sprintf("variables.names.indexOf(%q)", p.Attacher.Container)},
		{Name: "attacher", Expression: "variables.containers[variables.at]"},
		{Name: "command", Expression: "has(variables.attacher.command) ? variables.attacher.command : []"},
		{Name: "args", Expression: "has(variables.attacher.args) ? variables.attacher.args : []"},
		{Name: "mounts", Expression: "has(variables.attacher.volumeMounts) ? variables.attacher.volumeMounts : []"},
	}
}

// patch is the JSON patch of the whole: a sum of lists of operations, each
// empty where there is nothing to do.
func patch(p *inject.Plan) (string, error) {
	const attacher = `"/spec/template/spec/containers/" + string(variables.at) + `
	to, err := addressOf(p)
	if err != nil {
		return "", err
	}
	var steps []string
	for _, list := range []struct {
		field         string
		before, after []string
	}{{"command", p.Attacher.CommandBefore, p.Attacher.Command}, {"args", p.Attacher.ArgsBefore, p.Attacher.Args}} {
		words, err := rewriteWords(to, "variables."+list.field, list.before, list.after)
		if err != nil {
			return "", err
		}
		if words != "" {
			steps = append(steps, add(attacher+strconv.Quote("/"+list.field), words))
		}
	}
	mounts, err := rewriteMounts(attacher+`"/volumeMounts`, p.Attacher.VolumeMountsBefore, p.Attacher.VolumeMounts)
	if err != nil {
		return "", err
	}
	steps = append(steps, mounts...)
	named, err := putNamed(p)
	if err != nil {
		return "", err
	}
	steps = append(steps, named...)
	return strings.Join(append(steps, putAnnotations(p)...), " +\n"), nil
}

// add is one operation, which also replaces what is there.
func add(path, value string) string {
	return fmt.Sprintf("[JSONPatch{op: \"add\", path: %s, value: %s}]", path, value)
}

// rewriteWords maps a list of arguments as the plan does, by their values: what
// the plan changes becomes what it changes it to, what it adds is added if it is
// not there yet. The driver's addresses all become ours, also those that are not
// in the plan. Empty: nothing changes.
func rewriteWords(to address, list string, before, after []string) (string, error) {
	addressed := make([]bool, len(before))
	for i := range before {
		_, addressed[i] = addressAt(before, i)
	}
	if slices.Equal(before, after) && !slices.Contains(addressed, true) {
		return "", nil
	}
	if len(after) < len(before) {
		return "", fmt.Errorf("the plan takes arguments away: %q to %q", before, after)
	}
	result := to.point(list)
	for i := len(before) - 1; i >= 0; i-- {
		if before[i] == after[i] || addressed[i] {
			continue
		}
		condition := fmt.Sprintf("a == %q", before[i])
		// A value on its own means nothing without the flag before it.
		if i > 0 && !strings.HasPrefix(before[i], "-") {
			condition += fmt.Sprintf(" && i > 0 && %s[i - 1] == %q", list, before[i-1])
		}
		result = fmt.Sprintf("%s ? %q\n  : %s", condition, after[i], result)
	}
	mapped := list
	if result != "a" {
		mapped = fmt.Sprintf("%s.transformList(i, a,\n  %s)", list, result)
	}
	if added := after[len(before):]; len(added) > 0 {
		words, err := literal(added)
		if err != nil {
			return "", err
		}
		mapped += fmt.Sprintf(" +\n%s.filter(a, !(a in %s))", words, list)
	}
	return mapped, nil
}

// rewriteMounts does the same for the mounts, which are known by their paths.
// Those that stay are not written anew: Kubernetes 1.37 refuses a patch whose
// value holds an object of the workload (k8s.io/apiserver 0.37.2,
// pkg/cel/common/valuesschemalesstyped.go: a struct converts to no JSON).
func rewriteMounts(at string, before, after []corev1.VolumeMount) (steps []string, err error) {
	const list = "variables.mounts"
	is := func(m corev1.VolumeMount) string {
		return fmt.Sprintf("m.mountPath == %q && m.name == %q", m.MountPath, m.Name)
	}
	lacks := func(all []corev1.VolumeMount) func(corev1.VolumeMount) bool {
		return func(m corev1.VolumeMount) bool {
			return !slices.ContainsFunc(all, func(a corev1.VolumeMount) bool { return equality.Semantic.DeepEqual(a, m) })
		}
	}
	var gone []string
	for _, m := range only(before, lacks(after)) {
		gone = append(gone, "("+is(m)+")")
	}
	if len(gone) > 0 {
		// Each that goes moves those behind it up by one.
		steps = append(steps, fmt.Sprintf("%s.transformList(i, m, %s, i).transformList(n, i, JSONPatch{op: \"remove\", path: %s/\" + string(i - n)})",
			list, strings.Join(gone, " || "), at))
	}
	added := only(after, lacks(before))
	if len(added) > 0 {
		steps = append(steps, fmt.Sprintf("(size(%s) > 0 ? [] : %s)", list, add(at+`"`, "[]")))
	}
	for _, m := range added {
		mount, err := literal(m)
		if err != nil {
			return nil, err
		}
		steps = append(steps, fmt.Sprintf("(%s.exists(m, %s) ? [] : %s)", list, is(m), add(at+`/-"`, mount)))
	}
	return steps, nil
}

func only(mounts []corev1.VolumeMount, keep func(corev1.VolumeMount) bool) (kept []corev1.VolumeMount) {
	for _, m := range mounts {
		if keep(m) {
			kept = append(kept, m)
		}
	}
	return kept
}

// putNamed puts the sidecar and the volumes in, in place of those of the same
// name.
func putNamed(p *inject.Plan) ([]string, error) {
	steps := []string{}
	put := func(field, names, name string, object any) error { // into a list that is there
		value, err := literal(object)
		if err != nil {
			return err
		}
		path := fmt.Sprintf("\"/spec/template/spec/%s/\"", field)
		steps = append(steps, fmt.Sprintf("[JSONPatch{op: %[1]s in %[2]s ? \"replace\" : \"add\",\n  path: %[3]s + (%[1]s in %[2]s ? string(%[2]s.indexOf(%[1]s)) : \"-\"),\n  value: %[4]s}]",
			strconv.Quote(name), names, path, value))
		return nil
	}
	list := func(field string) {
		steps = append(steps, fmt.Sprintf("(has(object.spec.template.spec.%s) ? [] : %s)", field, add(strconv.Quote("/spec/template/spec/"+field), "[]")))
	}
	field, names, other, otherNames := "containers", "variables.names", "initContainers", "variables.inits"
	if p.Native {
		field, names, other, otherNames = other, otherNames, field, names
		list(field)
	}
	if err := put(field, names, p.Sidecar.Name, p.Sidecar); err != nil {
		return nil, err
	}
	// A sidecar in its other form, of an earlier policy, is in what is stored.
	steps = append(steps, fmt.Sprintf("(%[1]q in %[2]s ? [JSONPatch{op: \"remove\", path: \"/spec/template/spec/%[3]s/\" + string(%[2]s.indexOf(%[1]q))}] : [])", p.Sidecar.Name, otherNames, other))
	if len(p.Volumes) > 0 {
		list("volumes")
	}
	for _, v := range p.Volumes {
		if err := put("volumes", "variables.volumes", v.Name, v); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func putAnnotations(p *inject.Plan) (steps []string) {
	if len(p.Annotations) == 0 {
		return nil
	}
	steps = append(steps, "(has(object.metadata.annotations) ? [] : "+add(`"/metadata/annotations"`, "{}")+")")
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		steps = append(steps, add(fmt.Sprintf("\"/metadata/annotations/\" + jsonpatch.escapeKey(%q)", key), strconv.Quote(p.Annotations[key])))
	}
	return steps
}

// words are the variable that the validations go by: the attacher's command
// line, of which there is none without the attacher.
func words(p *inject.Plan) []admissionv1.Variable {
	return []admissionv1.Variable{{
		Name:       "words",
		Expression: fmt.Sprintf("object.spec.template.spec.containers.filter(c, c.name == %q).map(c,\n(has(c.command) ? c.command : []) + (has(c.args) ? c.args : []))", p.Attacher.Container),
	}}
}

// validations refuse what gets past the guard.
func validations(p *inject.Plan) ([]admissionv1.Validation, error) {
	to, err := addressOf(p)
	if err != nil {
		return nil, err
	}
	var needed []string
	for _, word := range slices.Concat(p.Attacher.Command, p.Attacher.Args) {
		if strings.HasSuffix(word, to.guard) {
			needed = append(needed, word)
		}
	}
	there := "object.spec.template.spec.containers.exists(c, c.name == %q)"
	if p.Native { // without its restartPolicy it is an init container that never ends
		there = "has(object.spec.template.spec.initContainers) &&\nobject.spec.template.spec.initContainers.exists(c, c.name == %q && has(c.restartPolicy) && c.restartPolicy == \"Always\")"
	}
	const again = "the driver's manifest is not what the policy was rendered from; render it anew with csi-fencepost inject --as-policy, or delete it"
	return []admissionv1.Validation{{
		Expression: fmt.Sprintf(there, p.Sidecar.Name),
		Message:    fmt.Sprintf("container %s is missing, and with it the guard of single-writer volumes: %s", p.Sidecar.Name, again),
	}, {
		Expression: fmt.Sprintf("variables.words.exists(w, %s.all(a, a in w))", oneLine(needed)),
		Message:    fmt.Sprintf("container %s would get past csi-fencepost, its arguments lack %s: %s", p.Attacher.Container, strings.Join(needed, " "), again),
	}, {
		Expression: "variables.words.all(w, " + to.only("w") + ")",
		Message:    fmt.Sprintf("container %s would get past csi-fencepost, an argument sets --csi-address to another socket than %s: %s", p.Attacher.Container, to.guard, again),
	}}, nil
}
