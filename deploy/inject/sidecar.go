package inject

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy"
)

// Names in deploy/sidecar/patch.yaml. A second sidecar in a pod has a number
// behind each.
const (
	sidecarName  = "csi-fencepost"
	socketVolume = "fencepost-socket"
	configVolume = "fencepost-config"
	driverVolume = "socket-dir"
)

// serviceAccountPath is where a pod's token is.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// template is the container of deploy/sidecar/patch.yaml, and its volumes.
func template() (*corev1.Container, []corev1.Volume, error) {
	text, err := deploy.Files.ReadFile("sidecar/patch.yaml")
	if err != nil {
		return nil, nil, err
	}
	var patch appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &patch); err != nil {
		return nil, nil, fmt.Errorf("deploy/sidecar/patch.yaml: %w", err)
	}
	for _, c := range patch.Spec.Template.Spec.Containers {
		if c.Name == sidecarName {
			return &c, patch.Spec.Template.Spec.Volumes, nil
		}
	}
	return nil, nil, errors.New("deploy/sidecar/patch.yaml has no container " + sidecarName)
}

// addSidecar makes the container and its volumes out of the template, and fits
// them to the pod and the attacher.
func (p *Plan) addSidecar(w *Workload, a *attacher, o Options) error {
	c, volumes, err := template()
	if err != nil {
		return err
	}
	suffix := freeSuffix(&w.Template.Spec)
	socket := ourSocket{volume: socketVolume + suffix, folder: freeFolder(a), name: "csi.sock"}
	if o.InDriversFolder {
		socket = ourSocket{folder: path.Dir(a.socket), name: sidecarName + suffix + ".sock"}
		volumes = slices.DeleteFunc(volumes, func(v corev1.Volume) bool { return v.Name == socketVolume })
	}
	p.Volumes = volumes
	for i := range p.Volumes {
		if p.Volumes[i].ConfigMap != nil {
			p.Volumes[i].ConfigMap.Name = configMapName(p.Driver)
		}
		p.Volumes[i].Name += suffix
	}
	c.Name += suffix
	if image := cmp.Or(o.Image, o.OwnImage); image != "" {
		c.Image = image
	} else {
		p.NoImage = true
	}
	c.VolumeMounts = sidecarMounts(c, a, suffix, socket)
	setArg(c, "csi-address", a.socket)
	setArg(c, "listen", socket.path())
	p.elect(c, w, a)
	p.serveHTTP(c, &w.Template.Spec, o)
	p.likeAttacher(c, w, a, o)
	p.reachAPI(c, a)
	p.Sidecar = *c
	p.pointAttacher(a, socket)
	return nil
}

// ourSocket is where csi-fencepost listens: in a volume of ours, or, without one, in the folder of
// the driver's socket.
type ourSocket struct{ volume, folder, name string }

func (s ourSocket) path() string { return s.folder + "/" + s.name }

// freeSuffix keeps the names apart from those that the pod has.
func freeSuffix(pod *corev1.PodSpec) string {
	taken := func(suffix string) bool {
		return slices.ContainsFunc(containersOf(pod), func(c *corev1.Container) bool { return c.Name == sidecarName+suffix }) ||
			slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
				return v.Name == socketVolume+suffix || v.Name == configVolume+suffix || strings.HasPrefix(v.Name, agentsVolume) && strings.HasSuffix(v.Name, suffix)
			})
	}
	suffix := ""
	for i := 2; taken(suffix); i++ {
		suffix = fmt.Sprintf("-%d", i)
	}
	return suffix
}

// freeFolder is where our socket is mounted, in both containers.
func freeFolder(a *attacher) string {
	folder := "/fencepost"
	for i := 2; slices.ContainsFunc(a.VolumeMounts, func(m corev1.VolumeMount) bool {
		return path.Clean(m.MountPath) == folder || isUnder(path.Clean(m.MountPath), folder)
	}); i++ {
		folder = fmt.Sprintf("/fencepost-%d", i)
	}
	return folder
}

// sidecarMounts are the driver's socket as the attacher has it, ours, and the configuration.
func sidecarMounts(c *corev1.Container, a *attacher, suffix string, socket ourSocket) (mounts []corev1.VolumeMount) {
	for _, m := range c.VolumeMounts {
		switch m.Name {
		case driverVolume:
			m = *a.mount.DeepCopy()
			m.ReadOnly = m.ReadOnly && socket.volume != ""
		case socketVolume:
			if m.Name, m.MountPath = socket.volume, socket.folder; socket.volume == "" {
				continue
			}
		case configVolume:
			m.Name = configVolume + suffix
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// setArg changes a --name=value of our own container.
func setArg(c *corev1.Container, name, value string) {
	for i, arg := range c.Args {
		if strings.HasPrefix(arg, "--"+name+"=") {
			c.Args[i] = "--" + name + "=" + value
			return
		}
	}
	c.Args = append(c.Args, "--"+name+"="+value)
}

func removeArg(c *corev1.Container, name string) {
	c.Args = slices.DeleteFunc(c.Args, func(arg string) bool {
		return arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=")
	})
}

// elect keeps --leader-election where there may be two of us.
func (p *Plan) elect(c *corev1.Container, w *Workload, a *attacher) {
	switch {
	case a.line.isOn("leader-election"):
		p.say("%s: --leader-election, as %s has it", c.Name, a.Name)
	case w.replicas() > 1:
		p.say("%s: --leader-election, for %d replicas", c.Name, w.replicas())
	default:
		removeArg(c, "leader-election")
	}
}

// serveHTTP chooses the port of metrics and probes. In a pod on its node's
// network every port is one of the node's, and another sidecar may have it.
func (p *Plan) serveHTTP(c *corev1.Container, pod *corev1.PodSpec, o Options) {
	port := o.HTTPPort
	if port == 0 && pod.HostNetwork {
		port = o.portBefore
	}
	if port == 0 && pod.HostNetwork {
		removeArg(c, "http-endpoint")
		c.Ports, c.LivenessProbe, c.ReadinessProbe = nil, nil, nil
		p.say("%s: no metrics and no probes: the pod is on its node's network, where any fixed port may be taken; choose one with --http-port", c.Name)
		return
	}
	if port == 0 {
		port = freePort(pod, c.Ports[0].ContainerPort)
	}
	c.Ports[0].ContainerPort = port
	setArg(c, "http-endpoint", fmt.Sprintf(":%d", port))
	p.say("%s: metrics and health on port %d", c.Name, port)
}

// freePort is the first from want on that no container of the pod names.
func freePort(pod *corev1.PodSpec, want int32) int32 {
	taken := func(port int32) bool {
		address := fmt.Sprintf(":%d", port)
		return slices.ContainsFunc(containersOf(pod), func(c *corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port }) ||
				slices.ContainsFunc(c.Args, func(arg string) bool {
					return strings.HasSuffix(arg, address) || strings.HasSuffix(arg, "port="+address[1:])
				})
		})
	}
	for taken(want) {
		want++
	}
	return want
}

// likeAttacher runs the sidecar as the attacher's user and group and under its
// SELinux label: whom the driver's socket lets in, it lets in from the sidecar
// too. No other right of the attacher is taken over. The other way round nothing
// is needed: our socket is in a folder that everybody may enter, and lets every
// user connect.
func (p *Plan) likeAttacher(c *corev1.Container, w *Workload, a *attacher, o Options) {
	ours, pods, theirs := c.SecurityContext, w.Template.Spec.SecurityContext, a.SecurityContext
	if pods == nil {
		pods = &corev1.PodSecurityContext{}
	}
	if theirs == nil {
		theirs = &corev1.SecurityContext{}
	}
	ours.RunAsUser, ours.RunAsGroup, ours.RunAsNonRoot = theirs.RunAsUser, theirs.RunAsGroup, theirs.RunAsNonRoot
	ours.SELinuxOptions = theirs.SELinuxOptions
	if pods.SeccompProfile != nil {
		ours.SeccompProfile = nil // the pod's holds
	}
	p.labelled(c, w, a, o)
	if p.isRoot(c, w, a) {
		// Root connects to the socket of another user only with it.
		ours.Capabilities.Add = []corev1.Capability{"DAC_OVERRIDE"}
	}
}

// isRoot says as whom the sidecar runs, and whether that is root for sure.
func (p *Plan) isRoot(c *corev1.Container, w *Workload, a *attacher) bool {
	ours, pods := c.SecurityContext, w.Template.Spec.SecurityContext
	if pods == nil {
		pods = &corev1.PodSecurityContext{}
	}
	nonRoot := ours.RunAsNonRoot
	if nonRoot == nil {
		nonRoot = pods.RunAsNonRoot
	}
	switch scc := w.Template.Annotations[requiredSCC]; {
	case ours.RunAsUser != nil:
		p.say("%s: runs as user %d, as %s does", c.Name, *ours.RunAsUser, a.Name)
		return *ours.RunAsUser == 0
	case pods.RunAsUser != nil:
		p.say("%s: runs as user %d of the pod, as %s does", c.Name, *pods.RunAsUser, a.Name)
		return *pods.RunAsUser == 0
	case scc != "" && !slices.Contains(imagesUser, scc):
		p.say("%s: runs as the user that OpenShift gives to all containers of the pod, which requires the SecurityContextConstraints %s", c.Name, scc)
		return false
	case nonRoot != nil && *nonRoot:
		p.say("%s: %s runs as the user of its image, which is not root and not in the manifest; if the driver's socket refuses csi-fencepost, set runAsUser of both", c.Name, a.Name)
		return false
	}
	root := int64(0)
	ours.RunAsUser = &root
	p.say("%s: runs as root: %s runs as the user of its image, which is root in external-attacher's", c.Name, a.Name)
	return true
}

// requiredSCC is the annotation of a pod that names the SecurityContextConstraints
// of OpenShift by which it is admitted.
const requiredSCC = "openshift.io/required-scc"

// imagesUser are those of OpenShift's own that leave a container the user of its
// image. Each other one gives it a user of its namespace, and refuses a pod that
// asks for root.
var imagesUser = []string{"anyuid", "hostmount-anyuid", "hostmount-anyuid-v2", "privileged"}

// labelled gives the sidecar the SELinux type that was asked for. Only a privileged
// attacher has one that nobody wrote down, and needs it where its driver's socket
// is in a folder of the node.
func (p *Plan) labelled(c *corev1.Container, w *Workload, a *attacher, o Options) {
	ours, theirs := c.SecurityContext, a.SecurityContext
	onNode := slices.ContainsFunc(w.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == a.mount.Name && v.HostPath != nil })
	switch {
	case o.SELinuxType != "":
		options := corev1.SELinuxOptions{}
		if ours.SELinuxOptions != nil {
			options = *ours.SELinuxOptions
		}
		options.Type, p.seLinuxType = o.SELinuxType, o.SELinuxType
		ours.SELinuxOptions = &options
		p.say("%s: SELinux type %s, as --selinux-type says", c.Name, o.SELinuxType)
	case theirs != nil && theirs.Privileged != nil && *theirs.Privileged && onNode:
		p.say("%s: %s is privileged, csi-fencepost is not. The driver's socket is in a folder of the node: where the nodes enforce SELinux, --selinux-type spc_t is what it needs to connect", c.Name, a.Name)
	}
}

// reachAPI copies what the attacher needs beyond its pod's own token to reach
// the Kubernetes API.
func (p *Plan) reachAPI(c *corev1.Container, a *attacher) {
	copyMount := func(m corev1.VolumeMount) {
		if !slices.ContainsFunc(c.VolumeMounts, func(have corev1.VolumeMount) bool { return path.Clean(have.MountPath) == path.Clean(m.MountPath) }) {
			c.VolumeMounts = append(c.VolumeMounts, *m.DeepCopy())
		}
	}
	for _, m := range a.VolumeMounts {
		if path.Clean(m.MountPath) == serviceAccountPath {
			copyMount(m)
			p.say("%s: the token that %s mounts by itself", c.Name, a.Name)
		}
	}
	for _, e := range a.Env {
		if e.Name == "KUBERNETES_SERVICE_HOST" || e.Name == "KUBERNETES_SERVICE_PORT" {
			c.Env = append(c.Env, *e.DeepCopy())
		}
	}
	file, err := a.line.expanded("kubeconfig", "")
	if file == "" || err != nil {
		return
	}
	c.Args = append(c.Args, "--kubeconfig="+file)
	if m, ok := mountOf(a.Container, path.Clean(file)); ok {
		copyMount(m)
	}
	p.kubeconfig = file
	if namespace, err := a.line.expanded("leader-election-namespace", ""); namespace != "" && err == nil {
		p.leaseNamespace = namespace
		setArg(c, "leader-election-namespace", namespace)
	}
	p.say("%s: --kubeconfig=%s as %s has it; the rights are for that cluster, and come apart from the rest", c.Name, file, a.Name)
}

// pointAttacher makes the attacher use our socket, and raises its limits.
func (p *Plan) pointAttacher(a *attacher, socket ourSocket) {
	p.Attacher = Attacher{Container: a.Name, Index: a.index, CommandBefore: a.Command, ArgsBefore: a.Args, VolumeMountsBefore: a.VolumeMounts}
	p.say("%s: --csi-address from %s, the driver's socket, to %s, which csi-fencepost serves", a.Name, a.socket, socket.path())
	onlyForSocket := a.onlyForSocket() // before the address changes
	a.line.set("csi-address", socket.path())
	a.raise(p.say)
	p.Attacher.Flags = a.flags()
	p.Attacher.Command, p.Attacher.Args = a.line.command, a.line.args
	if socket.volume == "" {
		p.Attacher.VolumeMounts = a.VolumeMounts
		return
	}
	for _, m := range a.VolumeMounts {
		if m.MountPath == a.mount.MountPath && onlyForSocket {
			p.say("%s: the mount %s of the driver's socket is taken off: nothing else of it needs it, and no call can get past the guard", a.Name, m.MountPath)
			continue
		}
		p.Attacher.VolumeMounts = append(p.Attacher.VolumeMounts, m)
	}
	p.Attacher.VolumeMounts = append(p.Attacher.VolumeMounts, corev1.VolumeMount{Name: socket.volume, MountPath: socket.folder})
}
