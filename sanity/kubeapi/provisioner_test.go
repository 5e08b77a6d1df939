package kubeapi

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// provisioned is a claim's volume, which a real external-provisioner has made and deletes in the
// driver's controller pod, with the rights of its ClusterRole and the sidecar's and no others.
type provisioned struct {
	*policedRig
	class string
}

func newProvisioned(t *testing.T, name string) *provisioned {
	t.Helper()
	r := newPolicedRig(t, name)
	program, err := controlplane.BuildProvisioner(t.Context(), os.Stderr)
	must(t, err)
	rbac := policed.admin.RbacV1()
	// The rules of its deploy/kubernetes/rbac.yaml that it uses here.
	_, err = rbac.ClusterRoles().Create(r.ctx(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-provisioner"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "watch", "create", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses", "csinodes", "volumeattachments"}, Verbs: []string{"get", "list", "watch"}},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = rbac.ClusterRoleBindings().Create(r.ctx(), bindingTo(name+"-provisioner", "system:serviceaccount:"+r.Name+":"+account), metav1.CreateOptions{})
	must(t, err)
	_, err = policed.admin.StorageV1().StorageClasses().Create(r.ctx(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: r.Driver}, metav1.CreateOptions{})
	must(t, err)
	p, err := r.Bed.Cluster.StartProcess(controlplane.ProcessOptions{Name: name + "-provisioner", Path: program, Args: []string{"--csi-address=" + r.Socket("csi.sock"),
		"--kubeconfig=" + r.ServiceAccountKubeconfig(), "--retry-interval-start=200ms", "--retry-interval-max=1s", "--v=5"}})
	must(t, err)
	t.Cleanup(func() { p.Stop(5 * time.Second) })
	return &provisioned{r, name}
}

// volume is a claim that is bound, as Kubernetes' controllers would bind it, which are not here.
func (p *provisioned) volume(name string) *bed.Volume {
	p.t.Helper()
	claims := policed.admin.CoreV1().PersistentVolumeClaims(p.Name)
	claim, err := claims.Create(p.ctx(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": p.Driver}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(p.class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}}},
	}, metav1.CreateOptions{})
	p.must(err)
	pv := "pvc-" + string(claim.UID)
	p.WaitFor(30*time.Second, "the claim has a PersistentVolume", func() bool {
		found, err := policed.admin.CoreV1().PersistentVolumes().Get(p.ctx(), pv, metav1.GetOptions{})
		return err == nil && found.Spec.CSI != nil
	})
	found, err := policed.admin.CoreV1().PersistentVolumes().Get(p.ctx(), pv, metav1.GetOptions{})
	p.must(err)
	claim.Spec.VolumeName = pv
	_, err = claims.Update(p.ctx(), claim, metav1.UpdateOptions{})
	p.must(err)
	p.phase(pv, corev1.VolumeBound)
	return &bed.Volume{Name: pv, Handle: found.Spec.CSI.VolumeHandle}
}

func (p *provisioned) phase(pv string, phase corev1.PersistentVolumePhase) {
	p.t.Helper()
	_, err := policed.admin.CoreV1().PersistentVolumes().Patch(p.ctx(), pv, types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
	p.must(err)
}

// released takes the claim away, as whoever may write PersistentVolumes or claims can: Kubernetes'
// controllers find the PersistentVolume without it.
func (p *provisioned) released(v *bed.Volume, claim string) {
	p.t.Helper()
	claims := policed.admin.CoreV1().PersistentVolumeClaims(p.Name)
	p.must(claims.Delete(p.ctx(), claim, metav1.DeleteOptions{}))
	_, err := claims.Patch(p.ctx(), claim, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	p.must(err)
	p.phase(v.Name, corev1.VolumeReleased)
}

func (p *provisioned) ledger(v *bed.Volume) string {
	p.t.Helper()
	pv, err := policed.admin.CoreV1().PersistentVolumes().Get(p.ctx(), v.Name, metav1.GetOptions{})
	p.must(err)
	return pv.Annotations[ledger.Annotation]
}

// With the policies in force, external-provisioner in the driver's pod deletes what nobody holds any
// more, with its ledger. For whoever may write PersistentVolumes and has it delete the volume of a node
// that is silent, by the claim or by a second PersistentVolume, it tries, and the driver has the last
// word: the ledger stays, and what it says holds.
func TestARealProvisionerDeletesWhatNobodyHoldsAndNoMoreThanItsDriverLets(t *testing.T) {
	p := newProvisioned(t, "provisioned")
	n, target := p.node("n"), p.node("target")
	everyday, held := p.volume("everyday"), p.volume("held")
	for _, v := range []*bed.Volume{everyday, held} {
		p.settle()
		p.attach(v, n)
	}
	p.letGo(everyday, n)
	p.settle()
	p.must(p.unpublish(everyday.Handle, n))
	p.gone(everyday, n)
	if p.ledger(everyday) == "" || p.ledger(held) == "" {
		t.Fatal("they have no ledgers: nothing is shown")
	}
	pvs := policed.admin.CoreV1().PersistentVolumes()
	p.released(everyday, "everyday")
	p.WaitFor(30*time.Second, "external-provisioner deletes what nobody holds", func() bool {
		pv, err := pvs.Get(p.ctx(), everyday.Name, metav1.GetOptions{})
		if err == nil && pv.DeletionTimestamp != nil && !slices.Contains(pv.Finalizers, provisionerFinalizer) {
			// What is left is pv-protection, which Kubernetes' controller takes off.
			return keepAs(t, as(t, "system:serviceaccount:kube-system:pv-protection-controller"), everyday.Name, nil) == nil
		}
		return apierrors.IsNotFound(err)
	})

	n.fallSilent()
	was := p.ledger(held)
	twin := policedVolume("0-twin-of-held")
	twin.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": p.Driver}
	twin.Spec.CSI.Driver, twin.Spec.CSI.VolumeHandle, twin.Spec.PersistentVolumeReclaimPolicy = p.Driver, held.Handle, corev1.PersistentVolumeReclaimDelete
	_, err := stranger.CoreV1().PersistentVolumes().Create(p.ctx(), twin, metav1.CreateOptions{})
	allowed(t, "a stranger makes a second PersistentVolume", err)
	p.phase(twin.Name, corev1.VolumeReleased)
	p.released(held, "held")
	// It looks for VolumeAttachments by the name of the PersistentVolume: the second one has none.
	p.WaitEvent("PersistentVolume", held.Name, 30*time.Second, "VolumeDelete", "is still attached to node")
	p.WaitEvent("PersistentVolume", twin.Name, 30*time.Second, "VolumeFailedDelete", "is published to node")
	p.attachment(held, target)
	p.settle()
	if err := p.publish(held.Handle, target); err == nil {
		t.Error("it is published elsewhere")
	}
	if now := p.ledger(held); now != was {
		t.Errorf("its ledger was %s\nand is %s", was, now)
	}
	p.wantCalls(held.Handle, "publish "+n.id)
}

// A provisioner takes a PersistentVolume for its own by an annotation, which whoever may patch it writes; its
// driver knows no such volume, and says that it is deleted. The policy goes by the volume's source, and so
// keeps one of another driver's that is held.
func TestARealProvisionerDeletesNoVolumeOfAnotherDriverThatIsHeld(t *testing.T) {
	p := newProvisioned(t, "misled")
	pvs := policed.admin.CoreV1().PersistentVolumes()
	for name, text := range map[string]string{"misled-free": ledgerNaming("h"), "misled-held": ledgerNaming("h", stateOf(fence.Held))} {
		pv := policedVolume(name)
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		pv, err := pvs.Create(p.ctx(), pv, metav1.CreateOptions{})
		p.must(err)
		p.must(annotateAs(p.ctx(), policed.admin, name, on(pv, text)))
		_, err = stranger.CoreV1().PersistentVolumes().Patch(p.ctx(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":%q}}}`, p.Driver), metav1.PatchOptions{})
		allowed(t, "a stranger says whose it is", err)
		p.phase(name, corev1.VolumeReleased)
	}
	deleted := func(name string) bool {
		pv, err := pvs.Get(p.ctx(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && pv.DeletionTimestamp != nil
	}
	p.WaitFor(30*time.Second, "it deletes the one that nobody holds", func() bool { return deleted("misled-free") })
	p.Never(5*time.Second, "it deletes the one that is held", func() bool { return deleted("misled-held") })
}
