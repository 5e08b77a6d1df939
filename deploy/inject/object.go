package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An object is one, decoded from YAML.
type object = map[string]any

// child returns a map in a map; nil if it is none.
func child(o object, names ...string) object {
	for _, name := range names {
		o, _ = o[name].(object)
	}
	return o
}

// plain turns typed values into what YAML decodes them to.
func plain(typed any) (value any, err error) {
	text, err := json.Marshal(typed)
	if err != nil {
		return nil, err
	}
	return value, yaml.Unmarshal(text, &value)
}

// Apply carries the plan out on the workload, decoded from YAML into maps. It
// changes nothing but what the plan names.
func (p *Plan) Apply(workload map[string]any) error {
	pod := child(workload, "spec", "template", "spec")
	containers, _ := pod["containers"].([]any)
	if p.Attacher.Index >= len(containers) {
		return fmt.Errorf("%s %s has no container %s", p.Kind, p.Name, p.Attacher.Container)
	}
	attacher, _ := containers[p.Attacher.Index].(object)
	if err := p.Attacher.apply(attacher); err != nil {
		return err
	}
	sidecar, err := plain(p.Sidecar)
	if err != nil {
		return err
	}
	delete(sidecar.(object), "resources")
	if len(p.Sidecar.Resources.Requests)+len(p.Sidecar.Resources.Limits) > 0 {
		if sidecar.(object)["resources"], err = plain(p.Sidecar.Resources); err != nil {
			return err
		}
	}
	list := "containers"
	if p.Native {
		list = "initContainers"
	}
	beside, _ := pod[list].([]any)
	pod[list] = append(slices.Clone(beside), sidecar)
	added, err := plain(p.Volumes)
	if err != nil {
		return err
	}
	volumes, _ := pod["volumes"].([]any)
	pod["volumes"] = append(slices.Clone(volumes), added.([]any)...)
	metadata := child(workload, "metadata")
	annotations := object{}
	maps.Copy(annotations, child(metadata, "annotations"))
	for name, value := range p.Annotations {
		annotations[name] = value
	}
	metadata["annotations"] = annotations
	return nil
}

// apply changes the attacher's lists. Mounts that stay keep every field.
func (a *Attacher) apply(container object) error {
	for name, list := range map[string]struct{ before, after []string }{"command": {a.CommandBefore, a.Command}, "args": {a.ArgsBefore, a.Args}} {
		if slices.Equal(list.before, list.after) {
			continue
		}
		value, err := plain(list.after)
		if err != nil {
			return err
		}
		container[name] = value
	}
	had, _ := container["volumeMounts"].([]any)
	var mounts []any
	for _, m := range a.VolumeMounts {
		i := slices.IndexFunc(had, func(item any) bool { return child(object{"": item}, "")["mountPath"] == m.MountPath })
		if i >= 0 {
			mounts = append(mounts, had[i])
			continue
		}
		value, err := plain(m)
		if err != nil {
			return err
		}
		mounts = append(mounts, value)
	}
	container["volumeMounts"] = mounts
	return nil
}

// restore takes one sidecar out of a workload by its record.
func (r record) restore(workload object, container string) error {
	pod := child(workload, "spec", "template", "spec")
	for list, ours := range map[string][]string{"containers": {r.Container}, "initContainers": {r.Container}, "volumes": r.Volumes} {
		had, _ := pod[list].([]any)
		switch left := without(had, ours); {
		case len(left) > 0:
			pod[list] = left
		case len(had) > 0:
			delete(pod, list)
		}
	}
	containers, _ := pod["containers"].([]any)
	for _, item := range containers {
		c, _ := item.(object)
		if c["name"] != container {
			continue
		}
		for name, list := range map[string]any{"command": r.Command, "args": r.Args, "volumeMounts": r.Mounts} {
			value, err := plain(list)
			if err != nil {
				return err
			}
			if value != nil {
				c[name] = value
			} else {
				delete(c, name)
			}
		}
	}
	metadata := child(workload, "metadata")
	annotations := child(metadata, "annotations")
	delete(annotations, recordPrefix+container)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	return nil
}

// without returns the items that have none of the names.
func without(list any, names []string) (left []any) {
	items, _ := list.([]any)
	for _, item := range items {
		m, _ := item.(object)
		if name, _ := m["name"].(string); !slices.Contains(names, name) {
			left = append(left, item)
		}
	}
	return left
}

// templateIn returns the first line of a node where a template is left in, and
// the template; 0 without one. Unquoted, YAML takes {{ x }} for a mapping whose
// key is a mapping.
func templateIn(n *yaml.Node) (line int, template string) {
	if n == nil {
		return 0, ""
	}
	if at := strings.Index(n.Value, "{{"); n.Kind == yaml.ScalarNode && at >= 0 {
		template, _, _ = strings.Cut(n.Value[at:], "\n")
		return n.Line, template
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Kind == yaml.MappingNode && len(c.Content) > 0 {
			return c.Line, "{{ " + c.Content[0].Value + " }}"
		}
		if line, template = templateIn(c); line > 0 {
			return line, template
		}
	}
	return 0, ""
}
