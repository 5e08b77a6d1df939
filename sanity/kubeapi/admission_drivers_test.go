package kubeapi

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// migratedTo is where Kubernetes notes to which driver an in-tree volume was migrated, and where
// whoever may patch PersistentVolumes writes what he likes.
const migratedTo = "pv.kubernetes.io/migrated-to"

// volumesOf has a volume of each kind, by the driver whose it is; none: of no CSI driver.
var volumesOf = map[string]corev1.PersistentVolumeSource{
	"disks.example.com": {CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example.com", VolumeHandle: "h"}},
	"Upper.example.com": {CSI: &corev1.CSIPersistentVolumeSource{Driver: "Upper.example.com", VolumeHandle: "h"}},
	"ebs.csi.aws.com":   {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
	"disk.csi.azure.com": {AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", Kind: ptr.To(corev1.AzureManagedDisk),
		DataDiskURI: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"}},
	"file.csi.azure.com":       {AzureFile: &corev1.AzureFilePersistentVolumeSource{ShareName: "s", SecretName: "s", SecretNamespace: ptr.To("default")}},
	"cinder.csi.openstack.org": {Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "v"}},
	"pd.csi.storage.gke.io":    {GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}},
	"pxd.portworx.com":         {PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "v"}},
	"csi.vsphere.vmware.com":   {VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk"}},
	"none":                     {NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}},
}

// givenBy is a client of an account of namespace storage that has what these objects of writers.yaml
// give for the driver.
func givenBy(t *testing.T, name, driver string, objects ...string) kubernetes.Interface {
	t.Helper()
	names := strings.NewReplacer("${NAMESPACE}", "storage", "${SERVICE_ACCOUNT}", name, "${DRIVER}", driver)
	must(t, applySome(t.Context(), policyFolder+"writers.yaml", names, objects...))
	return as(t, "system:serviceaccount:storage:"+name)
}

// soon repeats what is refused until a role and its binding are in force.
func soon(t *testing.T, what string, do func() error) {
	t.Helper()
	err := do()
	for end := time.Now().Add(20 * time.Second); apierrors.IsForbidden(err) && time.Now().Before(end); err = do() {
		time.Sleep(100 * time.Millisecond)
	}
	allowed(t, what, err)
}

// heldFrom is a PersistentVolume with that source, which is in use by its ledger, and which says of itself that it
// was migrated to another driver.
func heldFrom(t *testing.T, name string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	t.Helper()
	pv := policedVolume(name)
	pv.Spec.PersistentVolumeSource, pv.Finalizers = source, []string{protectionFinalizer, attachersFinalizer}
	pv.Annotations = map[string]string{migratedTo: "other.example.com"}
	pv, err := policed.admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	must(t, annotateAs(t.Context(), policed.admin, name, on(pv, ledgerNaming("h", stateOf(fence.Held)))))
	return pv
}

// notIts fails unless that was refused for want of a right for the volumes of the driver.
func notIts(t *testing.T, what, driver string, err error) {
	t.Helper()
	words := ", or named as " + driver + " ("
	if driver == "none" {
		words = "of all drivers ("
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ledgers.csi-fencepost.io") || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v", what, err)
	}
}

// The policy says whose volume an in-tree one is, and so does csi-translation-lib. They say the same of each
// kind that the API has.
func TestEachKindOfVolumeThatIsMigratedIsOneWhoseDriverThePolicyIsTriedWith(t *testing.T) {
	translator := csitranslation.New()
	for driver, source := range volumesOf {
		pv := policedVolume("v")
		pv.Spec.PersistentVolumeSource = source
		if _, its := (&csi.Identity{Driver: driver}).PVHandle(pv); its != (driver != "none") {
			t.Errorf("%s: it is its volume: %t", driver, its)
		}
	}
	for kind := range reflect.TypeFor[corev1.PersistentVolumeSource]().Fields() {
		pv := policedVolume("v")
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{}
		reflect.ValueOf(&pv.Spec.PersistentVolumeSource).Elem().FieldByIndex(kind.Index).Set(reflect.New(kind.Type.Elem()))
		if !translator.IsPVMigratable(pv) {
			continue
		}
		plugin, err := translator.GetInTreePluginNameFromSpec(pv, nil)
		must(t, err)
		driver, err := translator.GetCSINameFromInTreeName(plugin)
		must(t, err)
		if tried, ok := volumesOf[driver]; !ok || reflect.ValueOf(tried).FieldByIndex(kind.Index).IsNil() {
			t.Errorf("a volume of kind %s is migrated to %s, and deploy/admission/ledger.yaml is not tried with one", kind.Name, driver)
		}
	}
}

// With the policies in force, the account of a driver's pod writes the ledgers of its own driver's volumes, also of
// those that were migrated to it, and of no other's, whatever they say of themselves: nor does it delete
// them while they are in use.
func TestADriversSidecarWritesTheLedgersOfItsOwnDriversVolumesAlone(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	for driver, source := range volumesOf {
		t.Run(driver, func(t *testing.T) {
			pv := heldFrom(t, "of-"+strings.ToLower(driver), source)
			text := on(pv, ledgerNaming("h", stateOf(fence.Held)))
			account := "its-" + strings.ToLower(driver)
			own := givenBy(t, account, driver, "csi-fencepost-writer-of-"+driver)
			provisioner := givenBy(t, "provisioner-"+account, driver, "csi-fencepost-provisioner-of-"+driver)
			_, err := policed.admin.RbacV1().ClusterRoleBindings().Create(ctx, bindingTo("csi-fencepost-provisioner-of-"+driver, "system:serviceaccount:storage:provisioner-"+account), metav1.CreateOptions{})
			must(t, err)

			others := map[string]kubernetes.Interface{"another driver's sidecar": guardOnly, "a sidecar with agents": sidecar, "one that cuts its storage": storageOnly}
			if driver == "none" {
				others["one named as none"] = own
			}
			for who, by := range others {
				notIts(t, who+" forges", driver, annotateAs(ctx, by, pv.Name, "forged"))
				notIts(t, who+" takes it off", driver, annotateAs(ctx, by, pv.Name, ""))
				notIts(t, who+" forges through the status", driver, annotateAs(ctx, by, pv.Name, "forged", "status"))
				notIts(t, who+" deletes the volume", driver, deleteAs(t, by, pv.Name))
				notIts(t, who+" strips it", driver, keepAs(t, by, pv.Name, nil))
				// The annotation is anybody's, the source nobody's.
				_, err := by.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"other.example.com","x":%q}}}`, migratedTo, who), metav1.PatchOptions{})
				allowed(t, who+" says what it was migrated to", err)
				_, err = by.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"forged"}},"spec":{"nfs":null,"csi":{"driver":"other.example.com","volumeHandle":"h"}}}`, ledger.Annotation), metav1.PatchOptions{})
				if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
					t.Errorf("%s makes it another driver's: %v", who, err)
				}
			}
			notIts(t, "a provisioner writes it", driver, annotateAs(ctx, provisioner, pv.Name, "forged"))
			if now, err := policed.admin.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{}); err != nil || now.DeletionTimestamp != nil || now.Annotations[ledger.Annotation] != text {
				t.Errorf("after that: %+v, %v", now, err)
			}

			allowed(t, "an operator writes it", annotateAs(ctx, operator, pv.Name, text+" "))
			if driver == "none" {
				allowed(t, "an operator deletes it", deleteAs(t, operator, pv.Name))
				return
			}
			soon(t, "its own sidecar writes it", func() error { return annotateAs(ctx, own, pv.Name, text) })
			notIts(t, "it writes another's", "none", annotateAs(ctx, own, heldFrom(t, "nfs-beside-"+strings.ToLower(driver), volumesOf["none"]).Name, "forged"))
			soon(t, "its provisioner deletes it", func() error { return deleteAs(t, provisioner, pv.Name) })
			allowed(t, "its own attacher lets it go", keepAs(t, own, pv.Name, nil))
			if !gone(t, pv.Name) {
				t.Error("it is still there")
			}
			another := heldFrom(t, "another-"+strings.ToLower(driver), source)
			allowed(t, "its own sidecar deletes it", deleteAs(t, own, another.Name))
		})
	}
}

// Who was given the rights of before they had a driver's name, for all drivers, has them still.
func TestTheRightsOfBeforeToTheLedgersOfAllDriversHold(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	const before, provisions = "system:serviceaccount:storage:before", "system:serviceaccount:storage:provisions-before"
	_, err := policed.admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-writer"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"csi-fencepost.io"}, Resources: []string{"ledgers", "records", "taints"}, Verbs: []string{"write"}}}}, metav1.CreateOptions{})
	must(t, err)
	for role, user := range map[string]string{"csi-fencepost-writer": before, "csi-fencepost-provisioner": provisions} {
		_, err := policed.admin.RbacV1().ClusterRoleBindings().Create(ctx, bindingTo(role, user), metav1.CreateOptions{})
		must(t, err)
	}
	sidecar, provisioner := as(t, before), as(t, provisions)
	for driver, source := range volumesOf {
		for who, by := range map[string]kubernetes.Interface{"sidecar": sidecar, "provisioner": provisioner} {
			pv := heldFrom(t, "before-"+who+"-"+strings.ToLower(driver), source)
			if who == "sidecar" {
				soon(t, driver+": it writes", func() error { return annotateAs(ctx, by, pv.Name, on(pv, ledgerNaming("h", stateOf(fence.Leaving)))) })
			}
			soon(t, driver+": it deletes", func() error { return deleteAs(t, by, pv.Name) })
		}
	}
}
