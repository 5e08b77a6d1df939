package failover

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// pod is one that uses volumes of the drivers.
type pod struct {
	*corev1.Pod
	// OptedOut tells that the pod, or a claim of it, opts out of failover.
	OptedOut bool
	// PVs name its volumes of the drivers.
	PVs []string
	// Foreign are the other drivers of its attachable volumes, sorted.
	Foreign []string
}

// claims are the PersistentVolumeClaims of a namespace by name.
type claims map[string]*corev1.PersistentVolumeClaim

// podsOf reads live which pods of the node use volumes of the drivers. Those
// that have ended use none. kept tells that one that uses none opts out.
func (w *worker) podsOf(ctx context.Context) (pods []pod, kept bool, err error) {
	list, err := w.Client.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", w.name).String()})
	if err != nil {
		return nil, false, fmt.Errorf("cannot list the pods of node %s: %w", w.name, err)
	}
	byNamespace, attach := map[string]claims{}, map[string]bool{}
	pods = []pod{}
	for i := range list.Items {
		p := &list.Items[i]
		names := claimNames(p)
		if p.Spec.NodeName != w.name || ended(p) {
			continue
		}
		if len(names) == 0 {
			kept = kept || OptedOut(p.Annotations)
			continue
		}
		if byNamespace[p.Namespace] == nil {
			if byNamespace[p.Namespace], err = w.claimsIn(ctx, p.Namespace, ""); err != nil {
				return nil, false, err
			}
		}
		found, ours, err := w.sort(ctx, p, names, byNamespace[p.Namespace], attach)
		if err != nil {
			return nil, false, err
		}
		if ours {
			pods = append(pods, found)
		} else {
			kept = kept || found.OptedOut
		}
	}
	return pods, kept, nil
}

// sort tells whose volumes a pod uses.
func (w *worker) sort(ctx context.Context, p *corev1.Pod, names []string, in claims, attach map[string]bool) (out pod, ours bool, err error) {
	out = pod{Pod: p, OptedOut: OptedOut(p.Annotations)}
	for _, name := range names {
		claim := in[name]
		if claim == nil {
			continue
		}
		out.OptedOut = out.OptedOut || OptedOut(claim.Annotations)
		if claim.Spec.VolumeName == "" {
			continue
		}
		pv, is := w.volume(claim.Spec.VolumeName)
		switch {
		case pv == nil:
			out.Foreign = append(out.Foreign, "PersistentVolume "+claim.Spec.VolumeName)
			continue
		case is:
			ours = true
			out.PVs = append(out.PVs, pv.Name)
			continue
		}
		driver, attachable, err := w.foreign(ctx, pv, attach)
		if err != nil {
			return out, false, err
		}
		if attachable {
			out.Foreign = append(out.Foreign, driver)
		}
	}
	slices.Sort(out.Foreign)
	out.Foreign = slices.Compact(out.Foreign)
	return out, ours, nil
}

// volume is a PV as it is watched, and whether it is of the drivers; nil: there is none.
func (w *worker) volume(name string) (pv *corev1.PersistentVolume, ours bool) {
	for _, d := range w.Drivers {
		if pv = d.Index.Volume(name); pv != nil {
			if _, ours = d.IDs.PVHandle(pv); ours {
				break
			}
		}
	}
	return pv, ours
}

// foreign names the driver of another's PV, and tells whether its volumes are
// attached to nodes. What is not known is.
func (w *worker) foreign(ctx context.Context, pv *corev1.PersistentVolume, known map[string]bool) (driver string, attachable bool, err error) {
	if pv.Spec.CSI == nil {
		s := pv.Spec.PersistentVolumeSource
		return "in-tree volume " + pv.Name, s.NFS == nil && s.HostPath == nil && s.Local == nil && s.CephFS == nil, nil
	}
	driver = pv.Spec.CSI.Driver
	attachable, asked := known[driver]
	if asked {
		return driver, attachable, nil
	}
	d, err := w.Client.StorageV1().CSIDrivers().Get(ctx, driver, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", false, fmt.Errorf("cannot read CSIDriver %s: %w", driver, err)
	}
	attachable = err != nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
	known[driver] = attachable
	return driver, attachable, nil
}

// claimsIn lists a namespace's claims; resourceVersion "0" is good enough for
// Events, and costs the API server less.
func (w *worker) claimsIn(ctx context.Context, namespace, resourceVersion string) (claims, error) {
	list, err := w.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{ResourceVersion: resourceVersion})
	if err != nil {
		return nil, fmt.Errorf("cannot list the claims of namespace %s: %w", namespace, err)
	}
	found := claims{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found, nil
}

// claimNames are the claims that a pod uses, those of its ephemeral volumes
// among them.
func claimNames(p *corev1.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		if name := csi.ClaimName(p, &p.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// concerned are the pods that need what the node holds: those of the node and
// those that wait elsewhere, not bound or not started.
func (w *worker) concerned(ctx context.Context, volumes []held) ([]*corev1.Pod, error) {
	wanted, namespaces := map[string]bool{}, map[string]bool{}
	if err := w.learnNamespaces(ctx); err != nil {
		return nil, err
	}
	for _, h := range volumes {
		if h.PV == "" {
			continue
		}
		ns, err := w.claimNamespace(ctx, h.PV)
		if err != nil {
			return nil, err
		}
		if ns != "" {
			wanted[h.PV], namespaces[ns] = true, true
		}
	}
	var found []*corev1.Pod
	for ns := range namespaces {
		in, err := w.claimsIn(ctx, ns, "0")
		if err != nil {
			return nil, err
		}
		pods, err := w.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, fmt.Errorf("cannot list the pods of namespace %s: %w", ns, err)
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; (p.Spec.NodeName == w.name || waits(p)) && uses(p, in, wanted) {
				found = append(found, p)
			}
		}
	}
	return found, nil
}

// learnNamespaces finds most claims through the node's own pods, in a few
// requests instead of one for each PV. Everybody may make a claim that names any PV: only
// Kubernetes says whose it is, by binding the two.
func (w *worker) learnNamespaces(ctx context.Context) error {
	if len(w.claims) > 0 {
		return nil
	}
	pods, err := w.Client.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{
		ResourceVersion: "0", FieldSelector: fields.OneTermEqualSelector("spec.nodeName", w.name).String()})
	if err != nil {
		return fmt.Errorf("cannot list the pods of node %s: %w", w.name, err)
	}
	seen := map[string]bool{}
	for i := range pods.Items {
		ns := pods.Items[i].Namespace
		if seen[ns] || len(claimNames(&pods.Items[i])) == 0 {
			continue
		}
		seen[ns] = true
		in, err := w.claimsIn(ctx, ns, "0")
		if err != nil {
			return err
		}
		for _, claim := range in {
			if claim.Spec.VolumeName != "" && claim.Status.Phase == corev1.ClaimBound {
				w.claims[claim.Spec.VolumeName] = ns
			}
		}
	}
	return nil
}

// claimNamespace is where the claim of a PV is; empty: it has none.
func (w *worker) claimNamespace(ctx context.Context, name string) (string, error) {
	if ns, known := w.claims[name]; known {
		return ns, nil
	}
	pv, err := w.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read PersistentVolume %s: %w", name, err)
	}
	ns := ""
	if pv.Spec.ClaimRef != nil {
		ns = pv.Spec.ClaimRef.Namespace
	}
	w.claims[name] = ns
	return ns, nil
}

// waits tells whether the pod has not started, as far as the API knows.
func waits(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending || p.Status.Phase == "" }

func uses(p *corev1.Pod, in claims, pvs map[string]bool) bool {
	return slices.ContainsFunc(claimNames(p), func(name string) bool {
		return in[name] != nil && pvs[in[name].Spec.VolumeName]
	})
}
