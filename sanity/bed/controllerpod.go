package bed

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// controllerPod is the pod of a driver's controller as its manifests have it,
// played by processes. Each of the pod's volumes is a folder of the stage's, and
// a container reaches nothing but the volumes that it mounts: a path in its
// arguments that lies on none of them fails the test.
//
// It plays the driver (the array, on the container's --endpoint), csi-fencepost
// with the rights of the pod's service account, and external-attacher with an
// administrator's: else its rights would make up for those that csi-fencepost
// was not given. Nobody plays the other sidecars.
type controllerPod struct {
	stage     *Stage
	namespace string
	spec      corev1.PodSpec
}

// controllerPod applies the stage's manifests, but the workload, and makes the
// volumes of its pod.
func (s *Stage) controllerPod() *controllerPod {
	s.T.Helper()
	p := &controllerPod{stage: s}
	var others []*unstructured.Unstructured
	for _, obj := range s.objects(s.Options.Manifests(s)) {
		if kind := obj.GetKind(); kind == "Deployment" || kind == "StatefulSet" {
			p.read(obj)
		} else {
			others = append(others, obj)
		}
	}
	if p.namespace == "" {
		s.T.Fatalf("%s: the manifests have no Deployment and no StatefulSet with a namespace", s.Name)
	}
	p.configure(others)
	s.apply(others)
	for _, v := range p.spec.Volumes {
		p.makeVolume(v)
	}
	return p
}

// read takes the pod out of the workload.
func (p *controllerPod) read(workload *unstructured.Unstructured) {
	p.stage.T.Helper()
	if p.namespace != "" {
		p.stage.T.Fatalf("%s: the manifests have a second workload: %s", p.stage.Name, workload.GetName())
	}
	p.namespace = workload.GetNamespace()
	template, _, err := unstructured.NestedMap(workload.Object, "spec", "template")
	p.stage.must("pod template of "+workload.GetName(), err)
	var pod corev1.PodTemplateSpec
	p.stage.must("pod template of "+workload.GetName(), runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(template, &pod, true))
	p.spec = pod.Spec
}

// configure adds the stage's configuration to the ConfigMap that the pod mounts, as an
// operator does: in the manifests before they are applied, or, where they were applied
// already, in the API server.
func (p *controllerPod) configure(others []*unstructured.Unstructured) {
	p.stage.T.Helper()
	for _, v := range p.spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		here := slices.IndexFunc(others, func(obj *unstructured.Unstructured) bool {
			return obj.GetKind() == "ConfigMap" && obj.GetName() == v.ConfigMap.Name
		})
		if here >= 0 {
			text, _, err := unstructured.NestedString(others[here].Object, "data", "config.yaml")
			p.stage.must("ConfigMap "+v.ConfigMap.Name, err)
			text += "\n" + p.stage.Options.Config + "\n"
			p.stage.must("ConfigMap "+v.ConfigMap.Name, unstructured.SetNestedField(others[here].Object, text, "data", "config.yaml"))
			continue
		}
		maps := p.stage.Client.CoreV1().ConfigMaps(p.namespace)
		m, err := maps.Get(p.stage.ctx(), v.ConfigMap.Name, metav1.GetOptions{})
		p.stage.must("ConfigMap "+v.ConfigMap.Name, err)
		m.Data["config.yaml"] += "\n" + p.stage.Options.Config + "\n"
		_, err = maps.Update(p.stage.ctx(), m, metav1.UpdateOptions{})
		p.stage.must("ConfigMap "+v.ConfigMap.Name, err)
	}
}

// makeVolume makes the folder of one of the pod's volumes, with what is in it
// when the containers start.
func (p *controllerPod) makeVolume(v corev1.Volume) {
	p.stage.T.Helper()
	folder := p.stage.socket(v.Name)
	p.stage.must("volume "+v.Name, os.MkdirAll(folder, 0o755))
	switch {
	case v.EmptyDir != nil || v.HostPath != nil:
	case v.ConfigMap != nil:
		m, err := p.stage.Client.CoreV1().ConfigMaps(p.namespace).Get(p.stage.ctx(), v.ConfigMap.Name, metav1.GetOptions{})
		p.stage.must("ConfigMap of volume "+v.Name, err)
		for key, text := range m.Data {
			p.stage.must("volume "+v.Name, os.WriteFile(filepath.Join(folder, key), []byte(text), 0o644))
		}
	default:
		p.stage.T.Fatalf("%s: volume %s is of a kind that is not played here: it has to be an emptyDir, a hostPath or a ConfigMap", p.stage.Name, v.Name)
	}
}

// driverSocket is where the driver's container listens.
func (p *controllerPod) driverSocket() string {
	p.stage.T.Helper()
	c := p.container("the driver", func(c *corev1.Container) bool {
		_, has := flagOf(c.Args, "endpoint")
		return has
	})
	endpoint, _ := flagOf(p.args(c), "endpoint")
	return strings.TrimPrefix(endpoint, "unix://")
}

// start starts csi-fencepost and external-attacher with their containers'
// arguments, and returns when csi-fencepost's probes are content.
func (p *controllerPod) start() {
	s := p.stage
	s.T.Helper()
	fencepost := p.container("csi-fencepost", func(c *corev1.Container) bool { return strings.Contains(c.Image, "csi-fencepost") })
	args := p.args(fencepost)
	config, has := flagOf(args, "config")
	if !has {
		s.T.Fatalf("%s: csi-fencepost was given no --config", s.Name)
	}
	s.config = config
	// Outside of a pod there is no token of its service account.
	kubeconfig, err := s.Bed.Cluster.ServiceAccountKubeconfig(s.ctx(), p.namespace, p.spec.ServiceAccountName)
	s.must("token of the pod's service account", err)
	s.Fencepost = p.run("fp", s.program(), fencepost, append(args, "--kubeconfig="+kubeconfig))

	attacher := p.container("external-attacher", func(c *corev1.Container) bool { return strings.Contains(c.Image, "csi-attacher") })
	s.Attacher = p.run("attacher", s.Bed.Attacher, attacher, append(p.args(attacher), "--kubeconfig="+s.Bed.Cluster.AdminKubeconfig()))
	p.waitProbe(fencepost, fencepost.ReadinessProbe)
	p.waitProbe(fencepost, fencepost.LivenessProbe)
}

// run starts a container's program; it is started again when it ends.
func (p *controllerPod) run(name, program string, c *corev1.Container, args []string) *controlplane.Process {
	p.stage.T.Helper()
	if len(c.Command) > 0 {
		p.stage.T.Fatalf("%s: container %s has the command %q: only the arguments of its image's own are played", p.stage.Name, c.Name, c.Command)
	}
	env := append([]string(nil), p.stage.Options.Env...)
	for key, value := range p.env(c) {
		env = append(env, key+"="+value)
	}
	p.stage.Log("%s runs as %s %s", c.Name, name, strings.Join(args, " "))
	return p.stage.endingWithStage("container " + c.Name)(p.stage.Bed.Cluster.StartProcess(controlplane.ProcessOptions{
		Name: p.stage.Name + "-" + name, Path: program, Restart: true, Env: env, Args: args}))
}

// waitProbe waits until a probe that the kubelet would make is answered well.
func (p *controllerPod) waitProbe(c *corev1.Container, probe *corev1.Probe) {
	p.stage.T.Helper()
	if probe == nil || probe.HTTPGet == nil {
		p.stage.T.Fatalf("%s: container %s lacks a probe by HTTP: %+v", p.stage.Name, c.Name, probe)
	}
	served, _ := flagOf(c.Args, "http-endpoint")
	if asked := portOf(c, probe); served != ":"+asked {
		p.stage.T.Fatalf("%s: container %s is probed on port %s, and serves %q", p.stage.Name, c.Name, asked, served)
	}
	p.stage.WaitFor(90*time.Second, c.Name+" answers "+probe.HTTPGet.Path, func() bool {
		code, _ := p.stage.HTTP(p.stage.Fencepost, probe.HTTPGet.Path)
		return code == 200
	})
}

// portOf a probe: a number, or the name of one of the container's.
func portOf(c *corev1.Container, probe *corev1.Probe) string {
	port := probe.HTTPGet.Port.String()
	for _, named := range c.Ports {
		if named.Name == port {
			return strconv.Itoa(int(named.ContainerPort))
		}
	}
	return port
}

// container is the only one of that part.
func (p *controllerPod) container(part string, is func(*corev1.Container) bool) *corev1.Container {
	p.stage.T.Helper()
	var found *corev1.Container
	for i := range p.spec.Containers {
		if c := &p.spec.Containers[i]; is(c) {
			if found != nil {
				p.stage.T.Fatalf("%s: both %s and %s look like the container of %s", p.stage.Name, found.Name, c.Name, part)
			}
			found = c
		}
	}
	if found == nil {
		p.stage.T.Fatalf("%s: the pod has no container of %s", p.stage.Name, part)
	}
	return found
}

// serveArray starts the array where the driver's container would.
func (p *controllerPod) serveArray() {
	p.stage.T.Helper()
	p.stage.must("serving the driver", p.stage.Array.Serve(context.Background(), p.driverSocket()))
}
