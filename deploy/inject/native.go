package inject

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// beNative makes the sidecar a native one, where that is asked for. It comes last of the init
// containers: one of them may fill a folder that it reads. It has no startup probe: the
// containers would wait for it, the driver among them, for which it waits.
func (p *Plan) beNative(w *Workload, o Options) error {
	if o.Native == nil || !*o.Native {
		return nil
	}
	c := &p.Sidecar
	if c.LivenessProbe == nil {
		// A Kubernetes without native sidecars refuses an init container with probes. One without
		// would be stored there, and be waited for: the pod would never start.
		return errors.New("--native-sidecar needs a port for the probes of the sidecar, and in a pod on its node's network none is chosen for you: choose one with --http-port")
	}
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	p.Native = true
	p.say("%s: a native sidecar (an init container with restartPolicy Always): it starts before all containers and ends after them. Kubernetes has them since 1.29; an older one refuses the %s", c.Name, w.Kind)
	if w.Template.Spec.HostNetwork {
		p.say("%s: before Kubernetes 1.34 (a late 1.33) the scheduler does not see the port of a native sidecar: on the network of the node, of two replicas on one node the second never gets ready, so keep them apart (podAntiAffinity), also while they are rolled", c.Name)
	}
	return nil
}

// startsNative refuses what a person has changed by hand in a native sidecar, or in a container
// that becomes one, where the pod would never start with it.
func (p *Plan) startsNative() error {
	c := &p.Sidecar
	switch {
	case !p.Native:
		return nil
	case c.StartupProbe != nil:
		return fmt.Errorf("%s: its startupProbe was added by hand, and a native sidecar cannot have it: the driver would wait until it succeeds, and it for the driver. Take the probe out, or choose --native-sidecar=false", c.Name)
	case c.LivenessProbe == nil && c.ReadinessProbe == nil:
		return fmt.Errorf("%s: its probes were taken out by hand, and a native sidecar needs one: a Kubernetes before 1.29, which has none, refuses an init container for its probes, and would wait for one without until it ends. Put one back, or choose --native-sidecar=false", c.Name)
	case c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways:
		return fmt.Errorf("%s: its restartPolicy was changed by hand: without Always the pod would wait for an init container that never ends. Put it back, or choose --native-sidecar=false", c.Name)
	}
	return nil
}
