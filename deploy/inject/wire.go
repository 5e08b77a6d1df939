package inject

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A Wire is one external-attacher of a pod as it runs, and where it calls to.
type Wire struct {
	Attacher *corev1.Container
	// Driver that it is of, as the pod itself says it, and Why; empty: nothing in it does.
	Driver, Why string
	// Socket that it calls. Guard is the csi-fencepost that listens there; nil: it calls past
	// every one.
	Socket string
	Guard  *corev1.Container
	// Beside are those that it passes by: they call the same driver, or nobody calls them.
	Beside []*corev1.Container
	// Elsewhere tells that the attacher has a --kubeconfig, so that it attaches in another cluster.
	Elsewhere bool
	// Err says why it cannot be told where it calls; nil: it can.
	Err error
}

// Wires are the external-attachers of a pod. drivers are the cluster's CSIDrivers, by
// attachRequired: they help to tell of which driver one is.
func Wires(pod *corev1.PodSpec, drivers map[string]bool) (wires []Wire) {
	w := &Workload{Template: corev1.PodTemplateSpec{Spec: *pod}, CSIDrivers: drivers}
	all := containersOf(pod)
	var guards []*corev1.Container
	for _, c := range all {
		if listens(c) {
			guards = append(guards, c)
		}
	}
	for i, c := range all {
		if !isAttacher(c) {
			continue
		}
		wire := Wire{Attacher: c}
		a, err := readAttacher(c, indexIn(i, pod))
		if wire.Err = err; err != nil {
			wires = append(wires, wire)
			continue
		}
		wire.Socket, wire.Elsewhere = a.socket, a.line.get("kubeconfig") != nil
		at := place(pod, c, a.socket)
		for j, g := range all {
			if !listens(g) || place(pod, g, socketOf(g, "listen")) != at {
				continue
			}
			wire.Guard = g
			// Behind it is the driver, whose containers say its name.
			behind := &attacher{Container: g, index: indexIn(j, pod), socket: socketOf(g, "csi-address")}
			behind.mount, _ = mountOf(g, behind.socket)
			wire.Driver, wire.Why = driverName(w, behind)
		}
		if wire.Guard == nil {
			wire.Driver, wire.Why = driverName(w, a)
		}
		for _, g := range guards {
			if wire.Guard == nil && place(pod, g, socketOf(g, "csi-address")) == at {
				wire.Beside = append(wire.Beside, g)
			}
		}
		wires = append(wires, wire)
	}
	for i := range wires {
		for _, g := range guards {
			called := slices.ContainsFunc(wires, func(w Wire) bool { return w.Guard == g })
			if wires[i].Guard == nil && wires[i].Err == nil && !called && !slices.Contains(wires[i].Beside, g) {
				wires[i].Beside = append(wires[i].Beside, g)
			}
		}
	}
	return wires
}

// containersOf a pod, those first that Plans are made for.
func containersOf(pod *corev1.PodSpec) (all []*corev1.Container) {
	for _, list := range [][]corev1.Container{pod.Containers, pod.InitContainers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// indexIn pod.Containers of the i-th of containersOf; -1: it is an init container.
func indexIn(i int, pod *corev1.PodSpec) int {
	if i < len(pod.Containers) {
		return i
	}
	return -1
}

// listens tells whether a container is csi-fencepost, beside a driver.
func listens(c *corev1.Container) bool {
	return slices.Contains(append(slices.Clone(c.Command), c.Args...), "run") && socketOf(c, "listen") != "" && !isAttacher(c)
}

// socketOf is the path that a flag of csi-fencepost names; empty: it cannot be read.
func socketOf(c *corev1.Container, flag string) string {
	flags := *c
	isRun := func(word string) bool { return word == "run" }
	flags.Command, flags.Args = slices.DeleteFunc(slices.Clone(c.Command), isRun), slices.DeleteFunc(slices.Clone(c.Args), isRun)
	line, err := readCommandLine(&flags)
	if err != nil {
		return ""
	}
	address, err := line.expanded(flag, "")
	if err != nil || address == "" {
		return ""
	}
	return path.Clean(strings.TrimPrefix(strings.TrimPrefix(address, "unix:"), "//"))
}

// place of a file that a container names: two containers that name one place open one socket.
func place(pod *corev1.PodSpec, c *corev1.Container, file string) string {
	m, ok := mountOf(c, file)
	if !ok {
		return "in " + c.Name + ": " + file
	}
	within := path.Join(m.SubPath, strings.TrimPrefix(file, path.Clean(m.MountPath)))
	for _, v := range pod.Volumes {
		if v.Name == m.Name && v.HostPath != nil {
			return "on the node: " + path.Join(v.HostPath.Path, within)
		}
	}
	return "volume " + m.Name + ": " + path.Join("/", within)
}
