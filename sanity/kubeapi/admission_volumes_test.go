package kubeapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

const (
	attachersFinalizer   = "external-attacher/array-example-com"
	protectionFinalizer  = "kubernetes.io/pv-protection"
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)

// policedRig is a rig where the policies are in force. Its sidecar's account may write ledgers
// and records.
type policedRig struct {
	*rig
	guard *controlplane.Process
}

func newPolicedRig(t *testing.T, name string) *policedRig {
	t.Helper()
	// It writes no record of the nodes that the tests beside it taint.
	r := newRigOn(t, policed, name, bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}"})
	r.writer("csi-fencepost-writer-of-")
	p := &policedRig{r, r.start("fp")}
	r.proxy = r.dial("fp")
	return p
}

// ledgerNaming is the ledger of a volume with these entries, as the sidecar writes it; on
// has it name its PersistentVolume.
func ledgerNaming(handle string, entries ...ledger.Entry) string {
	return (&ledger.Ledger{Version: ledger.Version, Driver: "array.example.com", Handle: handle, Cluster: policed.cluster, PVUID: "u", Holders: append([]ledger.Entry{}, entries...)}).String()
}

func on(pv *corev1.PersistentVolume, text string) string {
	return strings.Replace(text, `"pvUID":"u"`, fmt.Sprintf(`"pvUID":%q`, pv.UID), 1)
}

func stateOf(state fence.State) ledger.Entry {
	return ledger.Entry{NodeID: "id-" + string(state), NodeName: "n1", Token: "t", State: state}
}

// heldVolume is a PersistentVolume with that ledger, which its attacher and Kubernetes
// keep from going; ledger empty: there is none.
func heldVolume(t *testing.T, name, text string) *corev1.PersistentVolume {
	t.Helper()
	pv := policedVolume(name)
	pv.Finalizers = []string{protectionFinalizer, attachersFinalizer}
	pv, err := policed.admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	if text != "" {
		must(t, annotateAs(t.Context(), policed.admin, name, on(pv, text)))
	}
	return pv
}

func deleteAs(t *testing.T, by kubernetes.Interface, pv string) error {
	t.Helper()
	return by.CoreV1().PersistentVolumes().Delete(t.Context(), pv, metav1.DeleteOptions{})
}

// keepAs leaves a PersistentVolume these finalizers only.
func keepAs(t *testing.T, by kubernetes.Interface, pv string, finalizers []string, subresource ...string) error {
	t.Helper()
	list := "null"
	if len(finalizers) > 0 {
		list = `["` + strings.Join(finalizers, `","`) + `"]`
	}
	_, err := by.CoreV1().PersistentVolumes().Patch(t.Context(), pv, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, list), metav1.PatchOptions{}, subresource...)
	return err
}

func gone(t *testing.T, pv string) bool {
	t.Helper()
	_, err := policed.admin.CoreV1().PersistentVolumes().Get(t.Context(), pv, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err != nil
}

// as is a client of somebody who has every right on PersistentVolumes.
func as(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	client, err := impersonate(policed.bed, rest.ImpersonationConfig{UserName: user, Groups: groups})
	must(t, err)
	return client
}

func bindingTo(role, user string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role + "-" + strings.ReplaceAll(user, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}

// A volume that is made anew under the same handle would have an empty ledger.
func TestAStrangerDoesNotLoseALedgerThatNamesHoldersByDeletingItsVolume(t *testing.T) {
	single.take(t)
	policed.use(t)
	unproven, contested := stateOf(fence.TakenOver), stateOf(fence.Held)
	unproven.Unproven, contested.Contest = true, &fence.Contest{BootID: "b"}
	for name, text := range map[string]string{
		"publishing": ledgerNaming("h", stateOf(fence.Publishing)),
		"held":       ledgerNaming("h", stateOf(fence.TakenOver), stateOf(fence.Held)),
		"contested":  ledgerNaming("h", contested),
		"leaving":    ledgerNaming("h", stateOf(fence.Leaving)),
		"released":   ledgerNaming("h", stateOf(fence.Released)),
		"unproven":   ledgerNaming("h", unproven),
		"later":      strings.Replace(ledgerNaming("h", stateOf(fence.TakenOver)), `"version":1`, `"version":2`, 1),
		"must":       strings.Replace(ledgerNaming("h", stateOf(fence.TakenOver)), `"version":1`, `"version":1,"must":["x"]`, 1),
		"unknown":    strings.Replace(ledgerNaming("h", stateOf(fence.TakenOver)), `"takenOver"`, `"newer"`, 1),
		"by-hand":    strings.Replace(ledgerNaming("h", stateOf(fence.Held)), `"state":"held"`, `"state": "held"`, 1),
		"escaped":    ledgerNaming(`"holders":[]`, ledger.Entry{NodeID: `"state":"takenOver"`, State: fence.Held}),
		"garbage":    `{"version":1,"holders":`,
		"spaced":     strings.Replace(ledgerNaming("h", stateOf(fence.Held)), `"pvUID":"u"`, `"pvUID": "u"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			pv := "lost-" + name
			text = on(heldVolume(t, pv, text), text)
			refused(t, deleteAs(t, stranger, pv), "ledgers.csi-fencepost.io")
			refused(t, stranger.CoreV1().PersistentVolumes().DeleteCollection(t.Context(), metav1.DeleteOptions{},
				metav1.ListOptions{FieldSelector: "metadata.name=" + pv}), "ledgers.csi-fencepost.io")
			refused(t, keepAs(t, stranger, pv, nil), "ledgers.csi-fencepost.io")
			refused(t, keepAs(t, stranger, pv, nil, "status"), "ledgers.csi-fencepost.io")
			refused(t, keepAs(t, stranger, pv, []string{protectionFinalizer, "example.com/mine"}), "ledgers.csi-fencepost.io")
			if err := deleteAs(t, stranger, pv); err == nil || !strings.Contains(err.Error(), "csi-fencepost explain pv "+pv) ||
				!strings.Contains(err.Error(), "kubectl annotate pv "+pv+" csi-fencepost.io/holders-") {
				t.Errorf("the refusal does not say how to see who it is, and what to do: %v", err)
			}
			if now, err := policed.admin.CoreV1().PersistentVolumes().Get(t.Context(), pv, metav1.GetOptions{}); err != nil || now.DeletionTimestamp != nil || now.Annotations[ledger.Annotation] != text {
				t.Errorf("after that: %+v, %v", now, err)
			}
		})
	}
}

func TestAVolumeWhoseLedgerNamesNobodyIsDeletedByWhoMayDeleteIt(t *testing.T) {
	single.take(t)
	policed.use(t)
	for name, text := range map[string]string{
		"no-ledger":  "",
		"nobody":     ledgerNaming("h"),
		"taken-over": ledgerNaming("h", stateOf(fence.TakenOver)),
		// It came with a restore, or from another cluster, and counts for nothing.
		"anothers": strings.Replace(ledgerNaming("h", stateOf(fence.Held)), `"pvUID":"u"`, `"pvUID":"another"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			pv := "free-" + name
			heldVolume(t, pv, text)
			allowed(t, "a stranger takes another's finalizer off", keepAs(t, stranger, pv, []string{attachersFinalizer}))
			allowed(t, "a stranger deletes it", deleteAs(t, stranger, pv))
			allowed(t, "a stranger strips it", keepAs(t, stranger, pv, nil))
			if !gone(t, pv) {
				t.Error("it is still there")
			}
		})
	}
}

// They may delete everything, and an ownerReference that a stranger writes says what.
func TestKubernetesOwnCollectorsLoseNoLedgerThatNamesHolders(t *testing.T) {
	single.take(t)
	policed.use(t)
	for _, name := range []string{"generic-garbage-collector", "namespace-controller"} {
		user := "system:serviceaccount:kube-system:" + name
		may, err := policed.admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "csi-fencepost.io", Resource: "ledgers", Verb: "delete"}}}, metav1.CreateOptions{})
		must(t, err)
		if !may.Status.Allowed {
			t.Fatalf("%s may not delete everything: %+v", user, may.Status)
		}
		collector, pv := as(t, user), "collected-by-"+name
		heldVolume(t, pv, ledgerNaming("h", stateOf(fence.Held)))
		_, err = stranger.CoreV1().PersistentVolumes().Patch(t.Context(), pv, types.MergePatchType,
			[]byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"gone"}]}}`), metav1.PatchOptions{})
		allowed(t, "a stranger writes an ownerReference", err)
		for what, err := range map[string]error{"deletes it": deleteAs(t, collector, pv), "strips it": keepAs(t, collector, pv, nil)} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "forget ledgers.csi-fencepost.io") {
				t.Errorf("%s %s: %v", user, what, err)
			}
		}
		free := heldVolume(t, "free-"+pv, ledgerNaming("h"))
		allowed(t, "it deletes what nobody holds", deleteAs(t, collector, free.Name))
	}
}

// A tear-down in one go, by an account that may delete PersistentVolumes and no more, comes
// before the pods have ended. What the refusal says is the way: it is repeated after that. Where the
// driver with its sidecar went first, nothing detaches the volume, and an operator takes the
// ledger off.
func TestATearDownThatWasRefusedIsRepeatedOnceThePodsHaveEnded(t *testing.T) {
	r := newPolicedRig(t, "tear-down")
	last, first, n := r.volume("last"), r.volume("first"), r.node("n")
	for _, v := range []*bed.Volume{last, first} {
		r.attach(v, n)
		r.settle()
		refused(t, deleteAs(t, stranger, v.Name), "ledgers.csi-fencepost.io")
		r.wantState(v, n, fence.Publishing)
		r.letGo(v, n)
	}
	r.settle()
	refused(t, deleteAs(t, stranger, last.Name), "ledgers.csi-fencepost.io")
	r.must(r.unpublish(last.Handle, n))
	r.gone(last, n)
	allowed(t, "it is repeated", deleteAs(t, stranger, last.Name))

	r.guard.Stop(5 * time.Second)
	r.gone(first, n) // whoever tears down strips what stays
	refused(t, deleteAs(t, stranger, first.Name), "ledgers.csi-fencepost.io")
	allowed(t, "an operator takes the ledger off", annotateAs(t.Context(), operator, first.Name, ""))
	allowed(t, "it is repeated", deleteAs(t, stranger, first.Name))
	for _, v := range []*bed.Volume{last, first} {
		allowed(t, "Kubernetes lets it go", keepAs(t, stranger, v.Name, nil))
		if !gone(t, v.Name) {
			t.Errorf("%s is still there", v.Name)
		}
	}
}

// With the policies, too, anybody may make a PersistentVolume for a volume that another one
// names. It gets no ledger, whatever it is called, and what it brings along as one keeps
// nobody waiting.
func TestASecondPersistentVolumeHidesNoLedgerAndKeepsNoVolumeWaiting(t *testing.T) {
	r := newPolicedRig(t, "second")
	v, n, target := r.volume("v"), r.node("n"), r.node("target")
	r.attach(v, n)
	r.attachment(v, target)
	time.Sleep(1100 * time.Millisecond) // the API server stamps to the second
	brings := map[string]string{"0-plain": "", "0-garbled": "x", "0-newer": `{"version":99}`, "0-forged": r.ledgerText(v)}
	for name, text := range brings {
		mine := policedVolume(name)
		mine.Spec.CSI.Driver, mine.Spec.CSI.VolumeHandle = r.Driver, v.Handle
		if text != "" {
			mine.Annotations = map[string]string{ledger.Annotation: text}
		}
		_, err := stranger.CoreV1().PersistentVolumes().Create(t.Context(), mine, metav1.CreateOptions{})
		allowed(t, "a stranger makes "+name, err)
	}
	r.settle()
	r.wantRefused(r.publish(v.Handle, target), fence.HolderAlive, n.name)
	r.letGo(v, n)
	r.settle()
	r.must(r.publish(v.Handle, target)) // with a ledger that is written
	r.wantState(v, target, fence.Publishing)
	for name, text := range brings {
		pv, err := policed.admin.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || pv.Annotations[ledger.Annotation] != text {
			t.Errorf("%s: %+v, %v", name, pv, err)
		}
	}
	allowed(t, "a stranger deletes his own", deleteAs(t, stranger, "0-plain"))
	refused(t, deleteAs(t, stranger, v.Name), "ledgers.csi-fencepost.io")
}

// With the policies in force, whoever may write PersistentVolumes keeps one waiting that was never
// published, by a second one with an annotation that is no ledger. Not one that has a ledger, also
// one of nobody, and not for longer than until an operator takes the annotation off.
func TestAnAnnotationThatIsNoLedgerKeepsOnlyAVolumeWaitingThatWasNeverPublished(t *testing.T) {
	r := newPolicedRig(t, "no-ledger")
	n, never, once := r.node("n"), r.volume("never"), r.volume("once")
	r.attach(once, n)
	r.letGo(once, n)
	r.settle()
	r.must(r.unpublish(once.Handle, n))
	r.gone(once, n)
	time.Sleep(1100 * time.Millisecond) // the API server stamps to the second
	twin := func(v *bed.Volume) string { return "0-twin-of-" + v.Name }
	for _, v := range []*bed.Volume{never, once} {
		mine := policedVolume(twin(v))
		mine.Spec.CSI.Driver, mine.Spec.CSI.VolumeHandle = r.Driver, v.Handle
		mine.Annotations = map[string]string{ledger.Annotation: "x"}
		_, err := stranger.CoreV1().PersistentVolumes().Create(t.Context(), mine, metav1.CreateOptions{})
		allowed(t, "a stranger makes a second PersistentVolume", err)
		r.attachment(v, n)
	}
	r.settle()
	r.must(r.publish(once.Handle, n))
	r.wantRefused(r.publish(never.Handle, n), fence.LedgerUnreadable, twin(never))
	r.wantCalls(never.Handle)
	allowed(t, "an operator takes it off", annotateAs(t.Context(), operator, twin(never), ""))
	r.settle()
	r.must(r.publish(never.Handle, n))
}

// What deletes volumes every day: external-provisioner, in the controller's pod or
// under an account of its own, people on call, administrators; and then the attacher
// and Kubernetes' own controller let it go, in any order.
func TestAVolumeThatIsDeletedByWhoMayGoesWhoeverItsLedgerNames(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	const account = "system:serviceaccount:storage:provisioner"
	_, err := policed.admin.RbacV1().ClusterRoleBindings().Create(ctx, bindingTo("csi-fencepost-provisioner", account), metav1.CreateOptions{})
	must(t, err)
	provisioner, controller := as(t, account), as(t, "system:serviceaccount:kube-system:pv-protection-controller")
	text := ledgerNaming("h", stateOf(fence.Held))
	for name, who := range map[string]kubernetes.Interface{
		"sidecar": sidecar, "provisioner": provisioner, "operator": operator, "administrator": policed.admin,
	} {
		for _, attacherFirst := range []bool{true, false} {
			pv := fmt.Sprintf("by-%s-%t", name, attacherFirst)
			heldVolume(t, pv, text)
			allowed(t, name+" puts its finalizer on", keepAs(t, who, pv, []string{protectionFinalizer, attachersFinalizer, provisionerFinalizer}))
			allowed(t, name+" deletes it", deleteAs(t, who, pv))
			allowed(t, name+" takes its finalizer off", keepAs(t, who, pv, []string{protectionFinalizer, attachersFinalizer}))
			refused(t, keepAs(t, stranger, pv, nil), "ledgers.csi-fencepost.io")
			if attacherFirst {
				allowed(t, "the attacher takes its finalizer off", keepAs(t, sidecar, pv, []string{protectionFinalizer}))
				allowed(t, "Kubernetes takes its finalizer off", keepAs(t, controller, pv, nil))
			} else {
				allowed(t, "Kubernetes takes its finalizer off", keepAs(t, controller, pv, []string{attachersFinalizer}))
				allowed(t, "the attacher takes its finalizer off", keepAs(t, sidecar, pv, nil))
			}
			if !gone(t, pv) {
				t.Errorf("%s is still there", pv)
			}
		}
	}
	heldVolume(t, "by-nobody", text)
	if err := annotateAs(ctx, provisioner, "by-nobody", "forged"); !apierrors.IsForbidden(err) {
		t.Errorf("a provisioner writes a ledger: %v", err)
	}
}

// A stranger may delete a volume that nobody holds yet. It stays for as long as it is
// bound, and may be attached in the same moment.
func TestALedgerIsKeptThatNamedItsFirstHolderWhenItsVolumeWasBeingDeleted(t *testing.T) {
	single.take(t)
	policed.use(t)
	late := heldVolume(t, "late", "")
	allowed(t, "a stranger deletes it", deleteAs(t, stranger, "late"))
	allowed(t, "the sidecar names a holder", annotateAs(t.Context(), sidecar, "late", on(late, ledgerNaming("h", stateOf(fence.Publishing)))))
	refused(t, keepAs(t, stranger, "late", nil), "ledgers.csi-fencepost.io")
	refused(t, keepAs(t, stranger, "late", []string{protectionFinalizer}), "ledgers.csi-fencepost.io")
	allowed(t, "the sidecar cuts it", annotateAs(t.Context(), sidecar, "late", on(late, ledgerNaming("h"))))
	allowed(t, "whoever may lets it go", keepAs(t, stranger, "late", nil))
	if !gone(t, "late") {
		t.Error("it is still there")
	}
}

// Kubernetes' own authorizer and admission narrow a kubelet to its own Node.
func TestAKubeletWritesItsOwnCSINodeAndNoVolumeAttachment(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	csiNode := func(name, id string) *storagev1.CSINode {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "array.example.com", NodeID: id}}}}
	}
	const own, victim = "kubelets-own", "kubelets-victim"
	kubelet := as(t, "system:node:"+own, "system:nodes").StorageV1()
	for _, name := range []string{own, victim} {
		_, err := policed.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
	}
	_, err := policed.admin.StorageV1().CSINodes().Create(ctx, csiNode(victim, "id-victim"), metav1.CreateOptions{})
	must(t, err)
	pv := "pv-of-the-victim"
	va, err := policed.admin.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "of-the-victim"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "array.example.com", NodeName: victim, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}, metav1.CreateOptions{})
	must(t, err)

	_, err = kubelet.CSINodes().Create(ctx, csiNode(own, "id-victim"), metav1.CreateOptions{})
	allowed(t, "a kubelet says what its node ID is", err)
	attached := []byte(`{"status":{"attached":false}}`)
	for what, try := range map[string]func() error{
		"deletes another's CSINode": func() error { return kubelet.CSINodes().Delete(ctx, victim, metav1.DeleteOptions{}) },
		"changes another's CSINode": func() error {
			_, err := kubelet.CSINodes().Patch(ctx, victim, types.MergePatchType, []byte(`{"spec":{"drivers":[]}}`), metav1.PatchOptions{})
			return err
		},
		"makes another's CSINode": func() error {
			_, err := kubelet.CSINodes().Create(ctx, csiNode("kubelets-third", "x"), metav1.CreateOptions{})
			return err
		},
		"writes the status of a VolumeAttachment": func() error {
			_, err := kubelet.VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, attached, metav1.PatchOptions{}, "status")
			return err
		},
		"deletes a VolumeAttachment": func() error { return kubelet.VolumeAttachments().Delete(ctx, va.Name, metav1.DeleteOptions{}) },
		"makes a VolumeAttachment": func() error {
			mine := va.DeepCopy()
			mine.ObjectMeta, mine.Spec.NodeName = metav1.ObjectMeta{Name: "of-mine"}, own
			_, err := kubelet.VolumeAttachments().Create(ctx, mine, metav1.CreateOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet %s: %v", what, err)
		}
	}
}
