package explain

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// A sidecarPod is a pod that has csi-fencepost in it.
type sidecarPod struct {
	pod       *corev1.Pod
	container *corev1.Container
}

func (s sidecarPod) String() string {
	return "container " + s.container.Name + " of pod " + s.pod.Namespace + "/" + s.pod.Name
}

// Account is the service account that it runs as; an empty name stands for its namespace's default.
func (s sidecarPod) Account() (namespace, name string) {
	return s.pod.Namespace, s.pod.Spec.ServiceAccountName
}

// FindSidecars lists the pods that run csi-fencepost, or are about to, wherever they are.
// Whoever has a namespace can have one there that looks so: it is a suspicion, and no word
// of theirs is to be taken.
func FindSidecars(ctx context.Context, client kubernetes.Interface) ([]sidecarPod, error) {
	return sidecarsIn(ctx, client, metav1.NamespaceAll)
}

func sidecarsIn(ctx context.Context, client kubernetes.Interface, namespace string) ([]sidecarPod, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list Pods: %w", err)
	}
	var found []sidecarPod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if c := SidecarOf(pod); c != nil {
			found = append(found, sidecarPod{pod, c})
		}
	}
	return found, nil
}

// SidecarOf is the first container of a pod that is csi-fencepost; nil: none.
func SidecarOf(pod *corev1.Pod) *corev1.Container {
	if all := SidecarsOf(pod); len(all) > 0 {
		return all[0]
	}
	return nil
}

// SidecarsOf are the containers of a pod that are csi-fencepost, known by their name
// or by what they are told, which nobody renames.
func SidecarsOf(pod *corev1.Pod) (found []*corev1.Container) {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			_, listens := Argument(c, "listen")
			_, talks := Argument(c, "csi-address")
			told := slices.Contains(append(slices.Clone(c.Command), c.Args...), "run")
			if c.Name == "csi-fencepost" || told && listens && talks {
				found = append(found, c)
			}
		}
	}
	return found
}

// Argument is the value of a flag that a container is started with.
func Argument(c *corev1.Container, flag string) (value string, given bool) {
	words := append(slices.Clone(c.Command), c.Args...)
	for i, word := range words {
		name, value, whole := strings.Cut(word, "=")
		if name != "--"+flag && name != "-"+flag {
			continue
		}
		if !whole && i+1 < len(words) {
			value = words[i+1]
		}
		return value, true
	}
	return "", false
}

// A sidecarConfig is the configuration that a driver's sidecar was found to run
// with.
type sidecarConfig struct {
	config *config.Configuration
	// found is where it was read; assumed why the defaults are taken instead.
	// One of them is set.
	found, assumed string
}

// findConfig looks for the configuration of the driver's sidecar, with read
// rights only. What it cannot read is replaced by the defaults, and said. Whose pod
// is the sidecar, the cluster's RBAC says: what a tenant has in his namespace is not
// looked at.
func findConfig(ctx context.Context, client kubernetes.Interface, driver string) sidecarConfig {
	defaults := func(format string, args ...any) sidecarConfig {
		return sidecarConfig{config: config.Default(), assumed: fmt.Sprintf(format, args...)}
	}
	accounts, err := sidecarAccounts(ctx, client, driver)
	switch {
	case apierrors.IsForbidden(err):
		return defaults("the sidecar was not looked for (missing right: list clusterrolebindings, which tell whose pod is the sidecar)")
	case err != nil:
		return defaults("the sidecar was not found: %v", err)
	case len(accounts) == 0:
		return defaults("no running sidecar was found: no ClusterRoleBinding gives ClusterRole %s to a service account", ObserveRole)
	}
	var all []sidecarPod
	for _, a := range accounts {
		pods, err := sidecarsIn(ctx, client, a.namespace)
		switch {
		case apierrors.IsForbidden(err):
			return defaults("the sidecar was not looked for (missing right: list pods in namespace %s)", a.namespace)
		case err != nil:
			return defaults("the sidecar was not found: %v", err)
		}
		all = append(all, slices.DeleteFunc(pods, func(s sidecarPod) bool { return !a.runs(s.pod) })...)
	}
	one := chooseSidecar(ctx, client, all, driver)
	switch {
	case len(all) == 0:
		return defaults("no running sidecar was found (looked for as service account %s)", list(accounts))
	case one == nil:
		return defaults("there are sidecars in %d pods, and which of them is %s's cannot be told", len(all), driver)
	}
	return configOf(ctx, client, one)
}

// configOf reads the configuration of a pod's csi-fencepost.
func configOf(ctx context.Context, client kubernetes.Interface, one *sidecarPod) sidecarConfig {
	defaults := func(format string, args ...any) sidecarConfig {
		return sidecarConfig{config: config.Default(), assumed: fmt.Sprintf(format, args...)}
	}
	file, given := Argument(one.container, "config")
	if !given {
		return sidecarConfig{config: config.Default(), found: fmt.Sprintf("%s, which has no --config: every default holds", one)}
	}
	text, where, err := mountedFile(ctx, client, one, file)
	if err != nil {
		return defaults("that of %s (%s) could not be read: %v", one, file, err)
	}
	c, err := config.Parse([]byte(text))
	if err != nil {
		return defaults("that of %s (%s) is not one that this version understands: %s", one, where, cli.OneLineOf(err))
	}
	return sidecarConfig{config: c, found: where + ", of " + one.String()}
}

// ConfigOf is the configuration that container c of a pod runs with, and where it stands. An
// error says why it cannot be known: then the defaults are returned. Whether the pod is what it
// looks like the caller knows.
func ConfigOf(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, c *corev1.Container) (conf *config.Configuration, where string, err error) {
	found := configOf(ctx, client, &sidecarPod{pod, c})
	if found.assumed != "" {
		err = errors.New(found.assumed)
	}
	return found.config, found.found, err
}

// chooseSidecar is the driver's: the pod whose name the driver's leaders carry
// (its own or its attacher's), or the only one that there is; nil: it cannot be
// told.
func chooseSidecar(ctx context.Context, client kubernetes.Interface, all []sidecarPod, driver string) *sidecarPod {
	for i := range all {
		for _, name := range []string{cluster.LockName(driver), AttacherLease(driver)} {
			// Whoever may not read it has the other sidecars to tell it from.
			lease, err := client.CoordinationV1().Leases(all[i].pod.Namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == all[i].pod.Name {
				return &all[i]
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	for i := range all {
		if owner(all[i].pod) != owner(all[0].pod) {
			return nil
		}
	}
	return &all[0]
}

// AttacherLease is the name of the Lease of external-attacher's leader, in its own namespace.
func AttacherLease(driver string) string {
	return "external-attacher-leader-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, driver)
}

// owner tells the replicas of one workload from those of another.
func owner(pod *corev1.Pod) string {
	if ref := metav1.GetControllerOf(pod); ref != nil {
		return pod.Namespace + "/" + string(ref.UID)
	}
	return pod.Namespace + "/" + pod.Name
}

// mountedFile reads a file of a container out of the ConfigMap that is mounted
// there. Secrets are left alone.
func mountedFile(ctx context.Context, client kubernetes.Interface, s *sidecarPod, file string) (text, where string, err error) {
	for _, mount := range s.container.VolumeMounts {
		key, within := strings.CutPrefix(path.Clean(file), strings.TrimSuffix(mount.MountPath, "/")+"/")
		if mount.MountPath == path.Clean(file) {
			key, within = path.Base(mount.SubPath), true
		}
		if !within {
			continue
		}
		i := slices.IndexFunc(s.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 || s.pod.Spec.Volumes[i].ConfigMap == nil {
			return "", "", fmt.Errorf("volume %s is no ConfigMap", mount.Name)
		}
		source := s.pod.Spec.Volumes[i].ConfigMap
		for _, item := range source.Items {
			if item.Path == key {
				key = item.Key
			}
		}
		where = "ConfigMap " + s.pod.Namespace + "/" + source.Name
		cm, err := client.CoreV1().ConfigMaps(s.pod.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
		if apierrors.IsForbidden(err) {
			return "", "", fmt.Errorf("missing right: get configmaps in namespace %s", s.pod.Namespace)
		}
		if err != nil {
			return "", "", err
		}
		text, there := cm.Data[key]
		if !there {
			return "", "", fmt.Errorf("%s has no key %s", where, key)
		}
		return text, where, nil
	}
	return "", "", fmt.Errorf("nothing is mounted there")
}
