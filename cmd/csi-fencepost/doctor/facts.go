package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/explain"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// pageSize of lists: large clusters are read in pieces that the API server serves in one go.
const pageSize = 1000

// facts are what was read of the cluster.
type facts struct {
	client kubernetes.Interface
	uid    string // the cluster's; empty: it may not be read

	drivers     []*storagev1.CSIDriver
	nodes       map[string]*corev1.Node
	ids         map[string]map[string]string // node ID by node and driver
	csiNodes    []*storagev1.CSINode
	pvs         []*corev1.PersistentVolume
	attachments []*storagev1.VolumeAttachment
	records     map[string]*record.Record
	garbled     []*record.GarbledError
	leases      []*coordinationv1.Lease // the records
	policies    []*admissionv1.ValidatingAdmissionPolicy
	bound       map[string]bool // policies that have a binding
	rbac        rbac

	pods  []*corev1.Pod // that an external-attacher or csi-fencepost is in
	users []user
	kept  map[string]bool // claims, namespace/name, that opt out of failover

	mu      sync.Mutex
	missing []string
}

// user is a pod of a node that uses claims.
type user struct {
	node   string
	claims []string // namespace/name
	stays  bool     // it opts out of failover
}

// readFacts lists everything once, several lists at the same time. An error says what could not
// be read for another reason than a right.
func readFacts(ctx context.Context, c *cluster.Cluster) (*facts, error) {
	f := &facts{client: c.Client, nodes: map[string]*corev1.Node{}, ids: map[string]map[string]string{}, records: map[string]*record.Record{}, bound: map[string]bool{}, kept: map[string]bool{}}
	core, storage, access, admission := c.Client.CoreV1(), c.Client.StorageV1(), c.Client.RbacV1(), c.Client.AdmissionregistrationV1()
	records := c.Config.Fencing.Namespace
	f.rbac.roles, f.rbac.clusterRoles = map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}
	reads := []func() error{
		func() (err error) {
			f.uid, err = cluster.Identity(ctx, c.Client)
			return f.forgive("get namespaces kube-system", err)
		},
		list(ctx, f, "csidrivers", storage.CSIDrivers().List, into(&f.drivers)),
		list(ctx, f, "nodes", core.Nodes().List, func(n *corev1.Node) { f.nodes[n.Name] = n }),
		list(ctx, f, "csinodes", storage.CSINodes().List, into(&f.csiNodes)),
		list(ctx, f, "persistentvolumes", core.PersistentVolumes().List, into(&f.pvs)),
		list(ctx, f, "volumeattachments", storage.VolumeAttachments().List, into(&f.attachments)),
		list(ctx, f, "pods", core.Pods("").List, f.addPod),
		list(ctx, f, "persistentvolumeclaims", core.PersistentVolumeClaims("").List, func(c *corev1.PersistentVolumeClaim) {
			f.kept[c.Namespace+"/"+c.Name] = failover.OptedOut(c.Annotations)
		}),
		list(ctx, f, "leases in namespace "+records, c.Client.CoordinationV1().Leases(records).List, f.addRecord),
		list(ctx, f, "clusterrolebindings", access.ClusterRoleBindings().List, into(&f.rbac.cluster)),
		list(ctx, f, "clusterroles", access.ClusterRoles().List, func(r *rbacv1.ClusterRole) { f.rbac.clusterRoles[r.Name] = r.Rules }),
		list(ctx, f, "validatingadmissionpolicies", admission.ValidatingAdmissionPolicies().List, into(&f.policies)),
		list(ctx, f, "validatingadmissionpolicybindings", admission.ValidatingAdmissionPolicyBindings().List,
			func(b *admissionv1.ValidatingAdmissionPolicyBinding) { f.bound[b.Spec.PolicyName] = true }),
		func() (err error) { // one after another: both fill one map
			for _, in := range slices.Compact([]string{corev1.NamespaceNodeLease, records}) {
				err = errors.Join(err, list(ctx, f, "roles in namespace "+in, access.Roles(in).List, func(r *rbacv1.Role) { f.rbac.roles[in+"/"+r.Name] = r.Rules })(),
					list(ctx, f, "rolebindings in namespace "+in, access.RoleBindings(in).List, into(&f.rbac.namespaced))())
			}
			return err
		},
	}
	errs := make([]error, len(reads))
	cluster.Each(reads, func(i int, read func() error) { errs[i] = read() })
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	for _, n := range f.csiNodes {
		f.ids[n.Name] = map[string]string{}
		for _, d := range n.Spec.Drivers {
			f.ids[n.Name][d.Name] = d.NodeID
		}
	}
	f.rbac.known = f.sees("clusterrolebindings") && f.sees("clusterroles")
	f.rbac.unseen = func(in string) bool {
		return !f.sees("roles in namespace "+in) || !f.sees("rolebindings in namespace "+in)
	}
	slices.Sort(f.missing)
	return f, nil
}

// list reads all of a kind in pages, when it is called. Where it may not be read, that is
// remembered.
func list[T any, L runtime.Object](ctx context.Context, f *facts, what string, page func(context.Context, metav1.ListOptions) (L, error), keep func(*T)) func() error {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return page(ctx, o) })
	p.PageSize = pageSize
	return func() error {
		return f.forgive("list "+what, p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			if m, ok := o.(metav1.Object); ok {
				m.SetManagedFields(nil) // half of the memory
			}
			keep(any(o).(*T))
			return nil
		}))
	}
}

// into keeps what is read in a list.
func into[T any](all *[]*T) func(*T) { return func(o *T) { *all = append(*all, o) } }

// forgive remembers a right that is missing. A kind that the API server does not have is empty.
func (f *facts) forgive(right string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("cannot %s: %w", right, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.missing, right) {
		f.missing = append(f.missing, right)
	}
	return nil
}

// sees tells whether something may be read.
func (f *facts) sees(what string) bool { return !slices.Contains(f.missing, "list "+what) }

// addPod keeps of most pods only what a failover would ask.
func (f *facts) addPod(p *corev1.Pod) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	if isApart(p) || len(inject.Wires(&p.Spec, nil)) > 0 || explain.SidecarOf(p) != nil {
		f.pods = append(f.pods, p)
	}
	u := user{node: p.Spec.NodeName, stays: failover.OptedOut(p.Annotations)}
	for i := range p.Spec.Volumes {
		if claim := csi.ClaimName(p, &p.Spec.Volumes[i]); claim != "" {
			u.claims = append(u.claims, p.Namespace+"/"+claim)
		}
	}
	if u.node != "" && len(u.claims) > 0 {
		f.users = append(f.users, u)
	}
}

// isApart tells whether it is a pod of csi-fencepost failover. Nobody else runs under its account.
func isApart(p *corev1.Pod) bool {
	return p.Namespace == deploy.ApartNamespace && p.Spec.ServiceAccountName == deploy.ApartAccount
}

func (f *facts) addRecord(lease *coordinationv1.Lease) {
	node, ok := record.NodeOf(lease)
	if !ok {
		return
	}
	f.leases = append(f.leases, lease)
	r, err := record.FromLease(lease, node)
	if bad, is := err.(*record.GarbledError); is {
		f.garbled = append(f.garbled, bad)
	} else if r != nil {
		f.records[node] = r
	}
}
