package inject

import (
	"errors"

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
	return nil
}
