package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
)

// nameFlags and nameVariables are how drivers are told their name, without
// dashes and underscores, in lower case.
var nameFlags = []string{"drivername", "csidrivername", "provisionername"}
var nameVariables = []string{"drivername", "csidrivername", "xcsidrivername", "provisionername", "csiprovisionername"}

// driverName finds the name of the driver behind an attacher, and says how: from
// the pod's own words, from the CSIDriver objects beside it, or from its image.
func driverName(w *Workload, a *attacher, o Options) (name, why string, err error) {
	drivers := drivers(w, a)
	for _, c := range drivers {
		if name, how := ownName(c); name != "" {
			return name, how, nil
		}
	}
	for _, c := range drivers {
		p := profile.ForImage(c.Image)
		if p == nil {
			continue
		}
		for _, declared := range slices.Sorted(maps.Keys(w.CSIDrivers)) {
			if profile.For(declared) == p || profile.For(declared).Name == p.Name {
				return declared, "its CSIDriver object, and the image " + c.Image, nil
			}
		}
		if p.Driver() != "" {
			return p.Driver(), "the image " + c.Image, nil
		}
	}
	if len(w.CSIDrivers) == 1 {
		for name := range w.CSIDrivers {
			return name, "the only CSIDriver object", nil
		}
	}
	if o.Driver != "" {
		return o.Driver, "--driver", nil
	}
	return "", "", fmt.Errorf("%s: the name of the driver behind container %s is not known: neither an argument nor the image of its pod says it, and there are %d CSIDriver objects. Say it with --driver (kubectl get csidrivers)", w.name(), a.Name, len(w.CSIDrivers))
}

// drivers are the other containers that have the volume of the socket; of all
// others, where the driver runs in another pod.
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
