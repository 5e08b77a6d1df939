package inject

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// An earlier is an injection that stands in the input.
type earlier struct {
	Options
	// put is the sidecar as it was put in, now as it is; a person may have changed
	// it. put is nil where the record does not have it.
	put, now *corev1.Container
	volumes  []corev1.Volume // of the pod, as it is now
}

// keep carries over to the sidecar what a person has changed in the one before,
// and the volumes that this needs. What the run changes too is as the run has it;
// both are said.
func (p *Plan) keep(w *Workload, before earlier) error {
	if before.now == nil {
		return nil
	}
	if before.put == nil {
		p.say("%s: what was changed in it by hand is not kept: the record does not say how it was put in", p.Sidecar.Name)
		return nil
	}
	now := before.now.DeepCopy()
	if now.ImagePullPolicy == defaultPullPolicy(now.Image) {
		now.ImagePullPolicy = before.put.ImagePullPolicy
	}
	var values [3]any
	for i, c := range []*corev1.Container{before.put, now, &p.Sidecar} {
		var err error
		if values[i], err = plain(c); err != nil {
			return err
		}
	}
	var m merger
	merged, err := yaml.Marshal(m.merge(nil, values[0], values[1], values[2]))
	if err != nil {
		return err
	}
	var c corev1.Container
	if err := yaml.UnmarshalStrict(merged, &c); err != nil {
		return fmt.Errorf("%s: what was changed in it by hand cannot be kept: %w", p.Sidecar.Name, err)
	}
	p.Sidecar = c
	for _, mount := range c.VolumeMounts {
		named := func(v corev1.Volume) bool { return v.Name == mount.Name }
		if i := slices.IndexFunc(before.volumes, named); i >= 0 && !slices.ContainsFunc(w.Template.Spec.Volumes, named) && !slices.ContainsFunc(p.Volumes, named) {
			p.Volumes = append(p.Volumes, before.volumes[i])
		}
	}
	if len(m.kept) > 0 {
		p.say("%s: kept as it was changed by hand: %s", c.Name, strings.Join(m.kept, ", "))
	}
	if len(m.lost) > 0 {
		p.say("%s: changed by hand, and now as this run has it: %s", c.Name, strings.Join(m.lost, ", "))
	}
	return nil
}

// defaults are what the API server writes into a container that leaves them
// open: no person has.
var defaults = object{
	"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
	"apiVersion": "v1", "scheme": "HTTP", "successThreshold": 1, "failureThreshold": 3,
}

// defaultPullPolicy is the one that the API server fills in.
func defaultPullPolicy(image string) corev1.PullPolicy {
	name := path.Base(image)
	if strings.HasSuffix(name, ":latest") || !strings.ContainsAny(name, ":@") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// A merger remembers the places at which a person's word was kept, or lost.
type merger struct{ kept, lost []string }

// merge returns what is to become of a value that was put in as put, is now, and
// would be put in as next. What is absent is nil.
func (m *merger) merge(at []string, put, now, next any) any {
	if reflect.DeepEqual(now, put) || reflect.DeepEqual(now, next) {
		return next
	}
	if fields, ok := now.(object); ok {
		if nextFields, ok := next.(object); ok {
			putFields, _ := put.(object)
			return m.mergeFields(at, putFields, fields, nextFields)
		}
	}
	if items, ok := keyed(now); ok {
		if nextItems, ok := keyed(next); ok && next != nil {
			putItems, _ := keyed(put)
			merged := m.mergeFields(at, putItems, items, nextItems)
			var list []any
			for _, item := range slices.Concat(next.([]any), now.([]any)) {
				if item, left := merged[keyOf(item)]; left {
					list = append(list, item)
					delete(merged, keyOf(item))
				}
			}
			return list
		}
	}
	if reflect.DeepEqual(put, next) {
		m.kept = append(m.kept, strings.Join(at, " "))
		return now
	}
	m.lost = append(m.lost, strings.Join(at, " "))
	return next
}

func (m *merger) mergeFields(at []string, put, now, next object) object {
	names := maps.Clone(next)
	maps.Copy(names, now)
	maps.Copy(names, put)
	merged := object{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		is := now[name]
		if value, known := defaults[name]; known && put[name] == nil && reflect.DeepEqual(is, value) {
			is = nil
		}
		if value := m.merge(append(slices.Clone(at), name), put[name], is, next[name]); value != nil {
			merged[name] = value
		}
	}
	return merged
}

// keyed are the items of a list by their keys; false where it is no list, or two
// items have one key.
func keyed(list any) (object, bool) {
	items, ok := list.([]any)
	found := object{}
	for _, item := range items {
		key := keyOf(item)
		if _, twice := found[key]; twice || key == "" {
			return nil, false
		}
		found[key] = item
	}
	return found, ok
}

// keyOf tells the items of a container's lists apart: arguments by their flag,
// mounts by their path, all others by their name.
func keyOf(item any) string {
	switch item := item.(type) {
	case string:
		flag, _, _ := strings.Cut(item, "=")
		return flag
	case object:
		for _, name := range []string{"mountPath", "name"} {
			if key, ok := item[name].(string); ok {
				return key
			}
		}
	}
	return ""
}
