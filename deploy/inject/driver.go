package inject

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
)

// nameFlags and nameVariables are how drivers are told their name, without
// dashes and underscores, in lower case.
var nameFlags = []string{"drivername", "csidrivername", "provisionername"}
var nameVariables = []string{"drivername", "csidrivername", "xcsidrivername", "provisionername", "csiprovisionername"}

// A candidate is one external-attacher of the input, and of which driver it is.
type candidate struct {
	*attacher
	w           *Workload
	before      earlier
	driver, why string // empty where nothing says it
	chosen      bool   // it is to be injected
}

// candidates are the attachers of the workloads, not named yet.
func candidates(workloads []*Workload) (all []*candidate, err error) {
	for _, w := range workloads {
		found := w.attachers()
		if err := w.inTheWay(); err != nil && (len(found) > 0 || len(w.Template.Spec.InitContainers) > 0) {
			return nil, w.at(err)
		}
		for _, index := range found {
			a, err := readAttacher(&w.Template.Spec.Containers[index], index)
			if err != nil {
				return nil, w.at(fmt.Errorf("%s: %w", w.name(), err))
			}
			all = append(all, &candidate{attacher: a, w: w})
		}
	}
	return all, nil
}

// at puts file and line before an error.
func (w *Workload) at(err error) error {
	if w.Where == "" {
		return err
	}
	return fmt.Errorf("%s: %w", w.Where, err)
}

// String is how --driver tells it from the others.
func (c *candidate) String() string {
	return strings.TrimPrefix(c.w.ObjectMeta.Namespace+"/", "/") + c.w.ObjectMeta.Name + "/" + c.Name
}

// nameDrivers says of which driver each attacher is, and which are chosen. With
// names given, the attachers of these, and no other; without, all of a workload,
// or those that it was injected with before. It guarantees that no two chosen
// ones have one driver, and that a name that is given is one of the CSIDrivers
// that stand beside them, where any does.
func nameDrivers(all []*candidate, given []string) error {
	for _, c := range all {
		c.driver, c.why = driverName(c.w, c.attacher)
	}
	var err error
	if len(given) > 0 {
		err = choose(all, given)
	} else {
		err = chooseAll(all)
	}
	if err != nil {
		return err
	}
	of := map[string]*candidate{}
	for _, c := range all {
		if attaches, known := c.w.CSIDrivers[c.driver]; !c.chosen || known && !attaches {
			continue
		}
		if other := of[c.driver]; other != nil {
			return c.w.at(fmt.Errorf("%s and %s would both be attachers of the driver %s (%s; %s): one driver has one controller. Give inject one of them at a time, or say of which driver each is: --driver %s=NAME", other, c, c.driver, other.why, c.why, c))
		}
		of[c.driver] = c
	}
	return nil
}

// choose takes NAME and ATTACHER=NAME, at most one attacher for each. NAME is the
// attacher of which its pod says so, else the only one of which nothing is known.
func choose(all []*candidate, given []string) error {
	var names []string
	for _, g := range given {
		which, name, apart := strings.Cut(g, "=")
		if !apart {
			names, name = append(names, g), g
		}
		if err := isDeclared(all, name); err != nil {
			return err
		}
		if !apart {
			continue
		}
		found := filter(all, func(c *candidate) bool { return strings.HasSuffix("/"+c.String(), "/"+which) })
		if len(found) != 1 {
			return fmt.Errorf("--driver %s: %d attachers are called %s; there are: %s", g, len(found), which, list(all))
		}
		found[0].is(name)
	}
	for _, name := range names {
		found := filter(all, func(c *candidate) bool { return c.driver == name })
		open := filter(all, func(c *candidate) bool { return c.driver == "" })
		if len(found) == 0 {
			found = filter(open, func(c *candidate) bool { return slices.Contains(c.before.Drivers, name) })
		}
		if len(found) == 0 {
			found = open
		}
		switch {
		case len(found) == 1:
			found[0].is(name)
		case len(found) > 1:
			return found[0].w.at(fmt.Errorf("--driver %s may be any of %d attachers: say which, --driver %s=%s. There are: %s", name, len(found), found[0], name, list(found)))
		case len(all) > 0:
			return all[0].w.at(fmt.Errorf("no attacher is of --driver %s; there are: %s. If one of them is all the same, say which: --driver %s=%s", name, list(all), all[0], name))
		}
	}
	return nil
}

// is chooses the attacher, as that driver's.
func (c *candidate) is(driver string) {
	c.chosen = true
	switch {
	case c.driver == "":
		c.why = "--driver"
	case c.driver != driver:
		c.why = fmt.Sprintf("--driver (%s would say %s)", c.why, c.driver)
	}
	c.driver = driver
}

// isDeclared holds a name that a person gave against the CSIDrivers.
func isDeclared(all []*candidate, name string) error {
	if len(all) == 0 || len(all[0].w.CSIDrivers) == 0 {
		return nil
	}
	if _, known := all[0].w.CSIDrivers[name]; known {
		return nil
	}
	return fmt.Errorf("--driver %q: there is no such CSIDriver. %s", name, declared(all))
}

// chooseAll names what is left open as it was before, or by the one CSIDriver
// that is left over.
func chooseAll(all []*candidate) error {
	injected := map[*Workload]bool{}
	for _, c := range all {
		if len(c.before.Drivers) == 1 {
			injected[c.w] = true
			if driver := c.before.Drivers[0]; c.driver != driver {
				c.driver, c.why = driver, "what it was injected with before"
			}
		}
	}
	var open []*candidate
	for _, c := range all {
		c.chosen = !injected[c.w] || len(c.before.Drivers) == 1
		if c.chosen && c.driver == "" {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	if left := leftOver(all); len(left) == 1 && len(open) == 1 {
		open[0].driver, open[0].why = left[0], "the only CSIDriver object"
		if len(all[0].w.CSIDrivers) > 1 {
			open[0].why = "the only CSIDriver object that attaches and is no other attacher's"
		}
		return nil
	}
	say := "--driver NAME"
	if len(open) > 1 {
		say = "--driver " + open[0].String() + "=NAME, and so for each"
	}
	c := open[0]
	return c.w.at(fmt.Errorf("%s: the name of the driver behind %s is not known: neither an argument nor the image of its pod says it. %s. Say it with %s", c.w.name(), unnamed(open), declared(all), say))
}

// leftOver are the CSIDrivers that attach and are behind no attacher that is
// named; where none attaches, all of them.
func leftOver(all []*candidate) (names []string) {
	drivers := all[0].w.CSIDrivers
	attaching := maps.Clone(drivers)
	maps.DeleteFunc(attaching, func(_ string, attaches bool) bool { return !attaches })
	if len(attaching) == 0 {
		attaching = drivers
	}
	for _, name := range slices.Sorted(maps.Keys(attaching)) {
		if !slices.ContainsFunc(all, func(c *candidate) bool { return c.driver == name }) {
			names = append(names, name)
		}
	}
	return names
}

func filter(all []*candidate, keep func(*candidate) bool) (kept []*candidate) {
	for _, c := range all {
		if keep(c) {
			kept = append(kept, c)
		}
	}
	return kept
}

// list says what each of them is taken for.
func list(all []*candidate) string {
	var words []string
	for _, c := range all {
		of := "of an unknown driver"
		if c.driver != "" {
			of = fmt.Sprintf("of %s, by %s", c.driver, c.why)
		}
		words = append(words, c.String()+" ("+of+")")
	}
	return strings.Join(words, ", ")
}

func unnamed(open []*candidate) string {
	if len(open) == 1 {
		return "container " + open[0].Name
	}
	var words []string
	for _, c := range open {
		words = append(words, c.String())
	}
	return "the attachers " + strings.Join(words, ", ")
}

// declared names the CSIDrivers of the input.
func declared(all []*candidate) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all[0].w.CSIDrivers)) {
		if !all[0].w.CSIDrivers[name] {
			name += " (attachRequired: false)"
		}
		words = append(words, name)
	}
	if len(words) == 0 {
		return "No CSIDriver object stands beside it (kubectl get csidrivers lists the cluster's)"
	}
	return "The CSIDriver objects are " + strings.Join(words, ", ")
}

// driverName finds the name of the driver behind an attacher, and says how: from
// the pod's own words, from the CSIDriver objects beside it, or from its image.
func driverName(w *Workload, a *attacher) (name, why string) {
	drivers := drivers(w, a)
	for _, c := range drivers {
		if name, how := ownName(c); name != "" {
			return name, how
		}
	}
	if name := nameInPath(w, a); name != "" {
		return name, "its CSIDriver object, and the folder of its socket"
	}
	for _, c := range drivers {
		p := profile.ForImage(c.Image)
		if p == nil {
			continue
		}
		for _, declared := range slices.Sorted(maps.Keys(w.CSIDrivers)) {
			if profile.For(declared) == p || profile.For(declared).Name == p.Name {
				return declared, "its CSIDriver object, and the image " + c.Image
			}
		}
		if p.Driver() != "" {
			return p.Driver(), "the image " + c.Image
		}
	}
	return "", ""
}

// nameInPath is the one CSIDriver of which a folder on the way to the socket has
// the name: on the node, or where a container of the pod has the volume.
func nameInPath(w *Workload, a *attacher) string {
	paths := []string{a.socket, a.mount.SubPath}
	for _, v := range w.Template.Spec.Volumes {
		if v.Name == a.mount.Name && v.HostPath != nil {
			paths = append(paths, v.HostPath.Path)
		}
	}
	for _, c := range drivers(w, a) {
		for _, m := range c.VolumeMounts {
			if m.Name == a.mount.Name {
				paths = append(paths, m.MountPath)
			}
		}
	}
	found := map[string]bool{}
	for _, folder := range strings.Split(path.Join(paths...), "/") {
		if _, declared := w.CSIDrivers[folder]; declared {
			found[folder] = true
		}
	}
	for name := range found {
		if len(found) == 1 {
			return name
		}
	}
	return ""
}

// drivers are the other containers that have the volume of the socket. There is
// none where the driver runs in another pod.
func drivers(w *Workload, a *attacher) (found []*corev1.Container) {
	for i := range w.Template.Spec.Containers {
		c := &w.Template.Spec.Containers[i]
		if i != a.index && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == a.mount.Name }) {
			found = append(found, c)
		}
	}
	return found
}

// ownName is what a container says is the driver's name.
func ownName(c *corev1.Container) (name, how string) {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
	}
	if line, err := readCommandLine(c); line != nil && err == nil {
		for _, g := range line.flags {
			if value, err := expand(g.value, line.env); err == nil && slices.Contains(nameFlags, plain(g.name)) && strings.Contains(value, ".") {
				return value, fmt.Sprintf("--%s of container %s", g.name, c.Name)
			}
		}
	}
	for _, e := range c.Env {
		if slices.Contains(nameVariables, plain(e.Name)) && strings.Contains(e.Value, ".") {
			return e.Value, fmt.Sprintf("variable %s of container %s", e.Name, c.Name)
		}
	}
	return "", ""
}
