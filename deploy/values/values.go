package values

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

// A tree of values, decoded from YAML.
type tree = map[string]any

// Merge returns the values of several files, as Helm merges them: mappings are merged, everything
// else is replaced, and null takes away. An error names the file.
func Merge(files []inject.File) (tree, error) {
	all := tree{}
	for _, f := range files {
		var one any
		if err := yaml.Unmarshal(f.Text, &one); err != nil {
			return nil, fmt.Errorf("%s: it is no file of values: %w", f.Name, format.Explain(err))
		}
		values, ok := one.(tree)
		if !ok && one != nil {
			return nil, fmt.Errorf("%s: it is no file of values: it has to be a mapping", f.Name)
		}
		merge(all, values)
	}
	return all, nil
}

func merge(into, from tree) {
	for key, value := range from {
		have, isTree := into[key].(tree)
		more, both := value.(tree)
		switch {
		case isTree && both:
			merge(have, more)
		case value == nil:
			delete(into, key)
		default:
			into[key] = value
		}
	}
}

// Fit makes the options those of a plan that the chart can carry out. An error says which of them
// it cannot.
func (c *Chart) Fit(o *inject.Options) error {
	if c.Patches != "" {
		return nil
	}
	if o.Native != nil && *o.Native != c.Native {
		return fmt.Errorf("--native-sidecar=%t: the chart of %s has a place for a sidecar in %s only", *o.Native, c.Name, c.Containers)
	}
	o.Native, o.InDriversFolder = &c.Native, true
	return nil
}

// Render returns the values that carry the plans out, to be given behind those that the manifests
// of the plans were rendered with. An error says what of them no value can do.
func (c *Chart) Render(plans []*inject.Plan, given tree) ([]byte, error) {
	if len(plans) != 1 {
		return nil, fmt.Errorf("%d attachers are to be guarded, and the values of %s are for one: choose it with --driver", len(plans), c.Name)
	}
	p := plans[0]
	if c.Patches != "" {
		return c.renderPatch(p, given)
	}
	containers, err := c.given(given, c.Containers)
	if err != nil {
		return nil, err
	}
	volumes, err := c.given(given, c.Volumes)
	if err != nil {
		return nil, err
	}
	args, err := c.given(given, c.Args)
	if err != nil {
		return nil, err
	}
	if err := c.rendered(p, containers, args); err != nil {
		return nil, err
	}
	ours := tree{}
	set(ours, c.Containers, append(containers, p.Sidecar))
	set(ours, c.Volumes, appendAll(volumes, p.Volumes))
	set(ours, c.Args, appendAll(args, p.Attacher.Flags))
	return write(fmt.Sprintf(`# Puts csi-fencepost into %s %s. Written by csi-fencepost inject --as-values %s.
#
#   kubectl apply -f %s
#   helm upgrade --install RELEASE CHART -f YOUR-VALUES -f this file
#
# Helm replaces a list as a whole: each begins with what your values had in it. Have this file
# written anew with each version of the chart, and when one of these lists of yours changes.
`, p.Kind, p.Name, c.Name, inject.DocumentsFile), ours)
}

// given is a list of the values that a release has.
func (c *Chart) given(values tree, at path) ([]any, error) {
	var value any = values
	for _, word := range at.words() {
		inner, ok := value.(tree)
		if !ok && value != nil {
			return nil, fmt.Errorf("--values: %s is no mapping where the chart of %s has one", at, c.Name)
		}
		value = inner[word]
	}
	list, ok := value.([]any)
	switch {
	case value == nil && c.Patches == "":
		// Helm takes a value that no chart reads without a word.
		return nil, fmt.Errorf("--values has no %s, which the chart of %s has as a list, if an empty one: give the chart's own values first (helm show values CHART). If these have none, this version has another name for it; if they stand below a name, as in a chart around this one, render and write this chart by itself, and put what is written below that name", at, c.Name)
	case !ok && value != nil:
		return nil, fmt.Errorf("--values: %s is no list, as the chart of %s has it", at, c.Name)
	}
	return slices.Clone(list), nil
}

// rendered is an error where the values cannot be those that the manifests were rendered with:
// what is in the pod and not in them would be lost.
func (c *Chart) rendered(p *inject.Plan, containers, args []any) error {
	const whole = "--values has to be all that the manifests were rendered with: helm show values CHART first, then your own"
	var names []string
	for _, item := range containers {
		container, _ := item.(tree)
		name, _ := container["name"].(string)
		names = append(names, name)
	}
	inPod := slices.DeleteFunc(slices.Clone(p.Beside), func(name string) bool { return slices.Contains(c.Own, name) })
	if !slices.Equal(names, inPod) {
		return fmt.Errorf("the pod has [%s] where the values have [%s] in %s: %s", strings.Join(inPod, " "), strings.Join(names, " "), c.Containers, whole)
	}
	var words []string
	for _, arg := range args {
		if words = append(words, fmt.Sprint(arg)); strings.Contains(words[len(words)-1], "{{") {
			return nil // the chart renders it first
		}
	}
	before := p.Attacher.ArgsBefore
	if len(words) > len(before) || !slices.Equal(before[len(before)-len(words):], words) {
		return fmt.Errorf("the attacher's arguments [%s] do not end with those that the values have in %s, [%s]: %s", strings.Join(before, " "), c.Args, strings.Join(words, " "), whole)
	}
	return nil
}

func appendAll[T any](list []any, more []T) []any {
	for _, item := range more {
		list = append(list, item)
	}
	return list
}

func set(values tree, at path, value any) {
	words := at.words()
	for _, word := range words[:len(words)-1] {
		inner, ok := values[word].(tree)
		if !ok {
			inner = tree{}
			values[word] = inner
		}
		values = inner
	}
	values[words[len(words)-1]] = value
}

func write(head string, values tree) ([]byte, error) {
	text, err := yaml.Marshal(values)
	return append([]byte(head), text...), err
}

// renderPatch returns a merge patch of the custom resource: its own kustomize patches, and ours.
func (c *Chart) renderPatch(p *inject.Plan, given tree) ([]byte, error) {
	if given["kind"] != c.Kind {
		return nil, fmt.Errorf("--values has to be the %s itself, for the patches that it has: kubectl get %s NAME -o yaml", c.Kind, strings.ToLower(c.Kind))
	}
	patches, err := c.given(given, c.Patches)
	if err != nil {
		return nil, err
	}
	patches = slices.DeleteFunc(patches, func(item any) bool { return isOurs(p, item) })
	patch, err := strategic(p)
	if err != nil {
		return nil, err
	}
	ours := tree{}
	// The operator applies all patches to each of its components by itself. With a target, one that
	// is not of a component changes nothing; without, it is an error that ends the reconcile.
	group, version, _ := strings.Cut(p.APIVersion, "/")
	target := tree{"group": group, "version": version, "kind": p.Kind, "name": p.Name}
	set(ours, c.Patches, append(patches, tree{"patch": string(patch), "target": target}))
	return write(fmt.Sprintf(`# Puts csi-fencepost into %[1]s %[2]s.
# A patch that the operator applies itself, written by csi-fencepost inject --as-values %[3]s.
#
#   kubectl apply -f %[4]s
#   kubectl patch %[5]s NAME --type merge --patch-file this file
#
# The patches that the %[6]s had stand before it. Have this file written anew when they
# change. It has the attacher's arguments of this version of the operator: with another one, take
# the patch out first, and have it written from what the operator makes then.
`, p.Kind, p.Name, c.Name, inject.DocumentsFile, strings.ToLower(c.Kind), c.Kind), ours)
}

// isOurs tells a patch of an earlier run by the annotation that it puts on.
func isOurs(p *inject.Plan, item any) bool {
	one, _ := item.(tree)
	text, _ := one["patch"].(string)
	return slices.ContainsFunc(slices.Collect(maps.Keys(p.Annotations)), func(name string) bool { return strings.Contains(text, name) })
}

// Note is what a person has to know of values that Render has rendered; empty: nothing.
func (c *Chart) Note(plans []*inject.Plan, given tree) string {
	patches, _ := c.given(given, c.Patches)
	if c.Patches == "" || !slices.ContainsFunc(patches, func(item any) bool { return isOurs(plans[0], item) }) {
		return ""
	}
	return fmt.Sprintf("the %s has a patch of ours: behind it, what the operator itself gives the attacher cannot be seen, so the attacher's arguments stay those that the first run saw. After an upgrade of the operator take the patch out of %s, wait until the %s is the operator's own, and run this again; until it is applied, nothing is guarded", c.Kind, c.Patches, plans[0].Kind)
}

// Keep has Helm leave documents in the cluster that are applied apart from a release: one that had
// them before, by the post-renderer, deletes them else when it is upgraded without.
func Keep(documents []byte) ([]byte, error) {
	const metadata, keep = "\nmetadata:\n", "  annotations: {helm.sh/resource-policy: keep}"
	all := strings.Split(string(documents), "\n---\n")
	for i, text := range all {
		if !strings.Contains(text, keep) {
			text = strings.Replace(text, metadata, metadata+keep+"\n", 1)
		}
		var head struct{ Metadata metav1.ObjectMeta }
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			return nil, err
		}
		if head.Metadata.Annotations["helm.sh/resource-policy"] != "keep" {
			return nil, fmt.Errorf("%q cannot be marked to be kept", head.Metadata.Name)
		}
		all[i] = text
	}
	return []byte(strings.Join(all, "\n---\n")), nil
}

// strategic is a strategic merge patch that carries the plan out. It names no namespace, as the
// operator's own manifests name none.
func strategic(p *inject.Plan) ([]byte, error) {
	attacher := tree{"name": p.Attacher.Container}
	for field, list := range map[string]struct{ before, after []string }{"command": {p.Attacher.CommandBefore, p.Attacher.Command}, "args": {p.Attacher.ArgsBefore, p.Attacher.Args}} {
		if !slices.Equal(list.before, list.after) {
			attacher[field] = list.after
		}
	}
	var mounts []any
	for _, m := range p.Attacher.VolumeMountsBefore {
		if !slices.ContainsFunc(p.Attacher.VolumeMounts, func(stays corev1.VolumeMount) bool { return stays.MountPath == m.MountPath }) {
			mounts = append(mounts, tree{"mountPath": m.MountPath, "$patch": "delete"})
		}
	}
	for _, m := range p.Attacher.VolumeMounts {
		if !slices.ContainsFunc(p.Attacher.VolumeMountsBefore, func(had corev1.VolumeMount) bool { return had.MountPath == m.MountPath }) {
			mounts = append(mounts, m)
		}
	}
	attacher["volumeMounts"] = mounts
	pod := tree{"containers": []any{attacher}, "volumes": p.Volumes}
	if p.Native {
		pod["initContainers"] = []any{p.Sidecar}
	} else {
		pod["containers"] = []any{attacher, p.Sidecar}
	}
	return yaml.Marshal(tree{
		"apiVersion": p.APIVersion, "kind": p.Kind,
		"metadata": tree{"name": p.Name, "annotations": p.Annotations},
		"spec":     tree{"template": tree{"spec": pod}},
	})
}
