package doctor

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

var update = flag.Bool("update", false, "write the golden files; review their diff")

const ownVersion = "v1.3.0"

func TestMain(m *testing.M) {
	cli.LinkedAs(ownVersion)
	os.Exit(m.Run())
}

// golden holds text against a file, or writes it there.
func golden(t *testing.T, name, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("it is not testdata/%s (-update writes it):\n%s", name, text)
	}
}

// world is a cluster that is put together.
type world struct {
	t       *testing.T
	objects []runtime.Object
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	w.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-uid"}})
	return w
}

func (w *world) add(all ...runtime.Object) { w.objects = append(w.objects, all...) }

// look is one look at it.
func (w *world) look(node string, forbidden ...string) *doctoring {
	w.t.Helper()
	return w.lookWith(w.client(), node, forbidden...)
}

func (w *world) client() *fake.Clientset { return fake.NewClientset(w.objects...) }

func (w *world) lookWith(client *fake.Clientset, node string, forbidden ...string) *doctoring {
	w.t.Helper()
	client.PrependReactor("*", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		if !slices.Contains([]string{"get", "list"}, a.GetVerb()) {
			w.t.Errorf("doctor asks to %s %s", a.GetVerb(), a.GetResource().Resource)
		}
		if a.GetResource().Resource == "secrets" {
			w.t.Error("doctor asks for Secrets")
		}
		if right := a.GetVerb() + " " + a.GetResource().Resource; slices.Contains(forbidden, right) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", errors.New("no right"))
		}
		return false, nil, nil
	})
	client.AddProxyReactor("*", func(a ktesting.Action) (bool, rest.ResponseWrapper, error) {
		get := a.(ktesting.ProxyGetAction)
		return true, page(get.GetName() + ":" + get.GetPort() + get.GetPath()), nil
	})
	d, err := look(w.t.Context(), &cluster.Cluster{Client: client, Config: config.Default()}, node)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// page is what a pod's port answers.
type page string

func (p page) DoRaw(context.Context) ([]byte, error) { return []byte(p), nil }
func (p page) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(string(p))), nil
}

func (d *doctoring) text() string {
	var out bytes.Buffer
	d.print(&out, cli.Style{Width: cli.MaxWidth})
	return out.String()
}

// says asserts that there is a finding of that grade about it with these words.
func (d *doctoring) says(t *testing.T, g Grade, about, words string) {
	t.Helper()
	if !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Grade == g && f.About == about && strings.Contains(f.What, words) }) {
		t.Errorf("no finding %q about %s says %q:\n%s", g, about, words, d.text())
	}
}

// fateOn is what is said of a node.
func (d *doctoring) fateOn(t *testing.T, driver, node string) Fate {
	t.Helper()
	for _, f := range d.Fates {
		if f.Driver == driver && slices.Contains(f.Nodes, node) {
			return f
		}
	}
	t.Fatalf("nothing is said of %s on %s:\n%s", driver, node, d.text())
	return Fate{}
}

// driver adds a CSIDriver, and a controller of it with an external-attacher. guard is its
// csi-fencepost, listening where it says; calls is what the attacher calls.
func (w *world) driver(name, image, calls string, rights func(deploy.Names) ([]byte, error)) *corev1.Pod {
	short, _, _ := strings.Cut(name, ".")
	w.add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}})
	account := short + "-controller"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: account + "-0", Namespace: "storage", OwnerReferences: owned("ReplicaSet", account+"-7f9")}}
	pod.Spec.ServiceAccountName = account
	pod.Spec.Volumes = []corev1.Volume{{Name: "socket"}, {Name: "fencepost-socket"},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "csi-fencepost-" + short}}}}}
	pod.Spec.Containers = []corev1.Container{
		{Name: "driver", Image: "registry.example.com/driver:v1", Args: []string{"--drivername=" + name}, VolumeMounts: []corev1.VolumeMount{{Name: "socket", MountPath: "/csi"}}},
		{Name: "csi-attacher", Image: "registry.k8s.io/sig-storage/csi-attacher:v4.12.0", Args: []string{"--csi-address=" + calls},
			VolumeMounts: []corev1.VolumeMount{{Name: "socket", MountPath: "/csi"}, {Name: "fencepost-socket", MountPath: "/fencepost"}}},
	}
	if image != "" {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "csi-fencepost", Image: image,
			Args:         []string{"run", "--csi-address=/csi/csi.sock", "--listen=/fencepost/csi.sock", "--config=/etc/csi-fencepost/config.yaml", "--http-endpoint=:9810"},
			VolumeMounts: []corev1.VolumeMount{{Name: "socket", MountPath: "/csi"}, {Name: "fencepost-socket", MountPath: "/fencepost"}, {Name: "config", MountPath: "/etc/csi-fencepost"}}})
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "csi-fencepost", Ready: true}}
	}
	w.add(pod, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: account + "-7f9", Namespace: "storage", OwnerReferences: owned("Deployment", account)}})
	w.attaches("storage", account)
	if rights != nil {
		w.rights(rights, deploy.Names{Namespace: "storage", ServiceAccount: account, Driver: name})
	}
	return pod
}

// attaches gives an account what external-attacher needs.
func (w *world) attaches(namespace, account string) {
	w.add(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "attacher-" + account}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "attacher-" + account}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "attacher-" + account},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}}})
}

func owned(kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(kind + name), Controller: &yes}}
}

// rights adds the manifests of deploy as they are applied, those that are there already once.
func (w *world) rights(render func(deploy.Names) ([]byte, error), names deploy.Names) {
	w.t.Helper()
	text, err := render(names)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var head metav1.PartialObjectMetadata
		w.decode(doc, &head)
		var o runtime.Object
		switch head.Kind {
		case "ClusterRole":
			o = &rbacv1.ClusterRole{}
		case "ClusterRoleBinding":
			o = &rbacv1.ClusterRoleBinding{}
		case "Role":
			o = &rbacv1.Role{}
		case "RoleBinding":
			o = &rbacv1.RoleBinding{}
		default:
			continue
		}
		w.decode(doc, o)
		same := func(other runtime.Object) bool {
			m, is := other.(metav1.Object)
			return is && fmt.Sprintf("%T", other) == fmt.Sprintf("%T", o) && m.GetName() == head.Name && m.GetNamespace() == head.Namespace
		}
		if !slices.ContainsFunc(w.objects, same) {
			w.add(o)
		}
	}
}

func (w *world) decode(doc string, o any) {
	w.t.Helper()
	if err := yaml.Unmarshal([]byte(doc), o); err != nil {
		w.t.Fatal(err)
	}
}

// config is the configuration of a driver's sidecar, or of csi-fencepost failover.
func (w *world) config(name, text string) {
	namespace := "storage"
	if name == "csi-fencepost-failover" {
		namespace = deploy.ApartNamespace
	}
	w.add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data: map[string]string{"config.yaml": "apiVersion: " + config.APIVersion + "\nkind: Configuration\n" + text}})
}

// failover adds csi-fencepost failover.
func (w *world) failover(text string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-failover-0", Namespace: deploy.ApartNamespace}}
	pod.Spec.ServiceAccountName = deploy.ApartAccount
	pod.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "csi-fencepost-failover"}}}}}
	pod.Spec.Containers = []corev1.Container{{Name: "failover", Image: "registry.example.com/csi-fencepost:" + ownVersion, Args: []string{"failover", "--config=/etc/csi-fencepost/config.yaml"},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/csi-fencepost"}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "failover", Ready: true}}
	w.add(pod)
	w.config("csi-fencepost-failover", text)
	w.rights(deploy.Apart, deploy.Names{Namespace: "x", ServiceAccount: "x", Driver: "x"})
	return pod
}

// node adds a Node on which these drivers run.
func (w *world) node(name string, drivers ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID = "b17ab5e8-7d3c-4e6e-8a3f-"+fmt.Sprintf("%012x", len(w.objects)), "c0ffee00-0000-4000-8000-"+fmt.Sprintf("%012x", len(w.objects))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, d := range drivers {
		c.Spec.Drivers = append(c.Spec.Drivers, storagev1.CSINodeDriver{Name: d, NodeID: "i-" + name})
	}
	w.add(n, c)
	return n
}

// volume adds a PersistentVolume that a pod on the node uses; attached by a VolumeAttachment, or
// by its ledger.
func (w *world) volume(name, driver, node string, inLedger bool) (*corev1.PersistentVolume, *corev1.Pod) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data-" + name}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-" + name}
	if inLedger {
		l := ledger.Ledger{Version: ledger.Version, Driver: driver, Handle: "vol-" + name, Cluster: "cluster-uid", PVUID: string(pv.UID),
			Holders: []ledger.Entry{{NodeID: "i-" + node, NodeName: node, Token: "t", State: "publishing"}}}
		pv.Annotations = map[string]string{ledger.Annotation: l.String()}
	} else {
		w.add(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + name},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}, Status: storagev1.VolumeAttachmentStatus{Attached: true}})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-" + name, Namespace: "shop"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.Spec.NodeName = node
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}}}}
	w.add(pv, pod)
	return pv, pod
}

func (w *world) policies(names ...string) {
	for _, name := range names {
		w.add(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name}})
	}
}

// ledgerPolicy is the policy of ledgers, with that expression.
func (w *world) ledgerPolicy(expression string) {
	w.add(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-ledger"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		Validations: []admissionv1.Validation{{Expression: expression}}}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-ledger"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "csi-fencepost-ledger"}})
}

const (
	block, disk, share = "block.example.com", "disk.example.com", "share.example.com"
	image              = "registry.example.com/csi-fencepost:"
	bmc                = `failover: {enabled: true}
fencing:
  fenceAfter: 60s
  levels:
  - agents:
    - {name: bmc, ipmi: {usernameFile: /u, passwordFile: /p, nodes: {n1: "10.1.0.1:623", n2: "10.1.0.2:623", n3: "10.1.0.3:623", n4: "10.1.0.4:623", n5: "10.1.0.5:623", n6: "10.1.0.6:623", n7: "10.1.0.7:623"}}}
`
)

// three drivers and ten nodes: one driver guarded well, one called past, one not injected.
func three(t *testing.T) *world {
	w := newWorld(t)
	w.driver(block, image+ownVersion, "/fencepost/csi.sock", deploy.Enforce)
	w.config("csi-fencepost-block", "fencing: {apart: true}\n")
	w.driver(disk, image+"v1.2.0", "/csi/csi.sock", deploy.Observe)
	w.config("csi-fencepost-disk", "mode: Observe\n")
	w.driver(share, "", "/csi/csi.sock", nil)
	no := false
	w.add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "secrets-store.csi.k8s.io"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	w.failover(bmc)
	w.policies("csi-fencepost-ledger", "csi-fencepost-ledger-kept")
	w.rights(writers(t), deploy.Names{Namespace: "storage", ServiceAccount: "block-controller", Driver: block})
	for i := 1; i <= 10; i++ {
		node := fmt.Sprintf("n%d", i)
		n := w.node(node, block, disk, share)
		if i == 7 {
			n.Spec.Unschedulable = true
		}
		if i == 9 {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		for j := range 3 {
			w.volume(fmt.Sprintf("block-%d-%d", i, j), block, node, j > 0)
		}
		w.volume(fmt.Sprintf("share-%d", i), share, node, false)
	}
	w.volume("disk-1", disk, "n1", false)
	return w
}

// What somebody reads at three in the morning.
func TestThreeDriversAndTenNodesAreOneScreen(t *testing.T) {
	text := three(t).look("").text()
	golden(t, "three-drivers.txt", text)
	if n := strings.Count(text, "\n"); n > 50 {
		t.Errorf("%d lines are no screen", n)
	}
}

func TestOneNodeInFull(t *testing.T) { golden(t, "one-node.txt", three(t).look("n8").text()) }

// guarded is a cluster with one driver that is guarded, with this configuration.
func guarded(t *testing.T, text string, render func(deploy.Names) ([]byte, error)) (*world, *corev1.Pod) {
	w := newWorld(t)
	pod := w.driver(block, image+ownVersion, "/fencepost/csi.sock", render)
	w.config("csi-fencepost-block", text)
	return w, pod
}

func TestWhatIsFound(t *testing.T) {
	attacher := func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[1] }
	without := func(p *corev1.Pod) {
		p.Spec.Containers = p.Spec.Containers[:2]
		attacher(p).Args[0] = "--csi-address=/csi/csi.sock"
	}
	for name, c := range map[string]struct {
		text   string
		render func(deploy.Names) ([]byte, error)
		change func(w *world, p *corev1.Pod)
		grade  Grade
		about  string
		want   string
		value  string // of Guarded
	}{
		"past the guard": {"", deploy.Enforce, func(_ *world, p *corev1.Pod) { attacher(p).Args[0] = "--csi-address=/csi/csi.sock" }, Broken, block, "calls /csi/csi.sock, where no csi-fencepost listens", "past"},
		"one of two attachers": {"", deploy.Enforce, func(w *world, p *corev1.Pod) {
			other := p.DeepCopy()
			other.Name, other.OwnerReferences, other.Spec.Containers = "old-0", owned("StatefulSet", "old"), other.Spec.Containers[:2]
			attacher(other).Args[0] = "--csi-address=/csi/csi.sock"
			w.add(other)
		}, Broken, block, "of its attachers, external-attacher (container csi-attacher of StatefulSet storage/old) in pod old-0 calls the driver by itself", "partly"},
		"not injected": {"", nil, func(_ *world, p *corev1.Pod) { without(p) }, LookAt, block, "not guarded: no csi-fencepost is beside its external-attacher", "no"},
		"taken out":    {"", deploy.Enforce, func(_ *world, p *corev1.Pod) { without(p) }, Broken, block, "NOT GUARDED although it is set up for mode Enforce: no csi-fencepost is beside its external-attacher", "no"},
		"older than its policy": {"", deploy.Enforce, func(w *world, p *corev1.Pod) {
			without(p)
			w.policies("csi-fencepost-inject-" + block)
		}, Broken, block, "csi-fencepost-inject-block.example.com puts it into pods as they are created: pod block-controller-0 is older", "no"},
		"left out by its policy": {"", deploy.Observe, func(w *world, p *corev1.Pod) {
			without(p)
			p.Annotations = map[string]string{"csi-fencepost.io/inject": "disabled"}
			w.policies("csi-fencepost-inject-" + block)
		}, LookAt, block, "not guarded: no csi-fencepost is beside its external-attacher (container csi-attacher of Deployment storage/block-controller), whose pod says csi-fencepost.io/inject: disabled", "no"},
		"a policy without a binding": {"", deploy.Enforce, func(w *world, _ *corev1.Pod) {
			w.add(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost-inject-" + block}})
		}, LookAt, "policies", "csi-fencepost-inject-block.example.com has no binding", "yes"},
		"an older sidecar": {"", deploy.Enforce, func(_ *world, p *corev1.Pod) { p.Spec.Containers[2].Image = image + "v1.2.9" }, LookAt, block, "v1.2.9, older than this one (v1.3.0)", "yes"},
		"two versions": {"", deploy.Enforce, func(w *world, p *corev1.Pod) {
			other := p.DeepCopy()
			other.Name, other.Spec.Containers[2].Image = "block-controller-1", image+"v1.4.0"
			w.add(other)
		}, LookAt, block, "of several versions", "yes"},
		"not ready": {"", deploy.Enforce, func(_ *world, p *corev1.Pod) {
			p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "csi-fencepost", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
		}, Broken, block, "not ready in 1 of 1 pods: CrashLoopBackOff", "yes"},
		"mode Observe":               {"mode: Observe\n", deploy.Observe, nil, LookAt, block, "mode Observe: it reports", "yes"},
		"rights of Observe alone":    {"", deploy.Observe, nil, Broken, block, "may not patch persistentvolumes, nor patch volumeattachments.storage.k8s.io, nor create, update, delete leases.coordination.k8s.io in namespace csi-fencepost, which mode Enforce needs", "yes"},
		"rights of a version before": {"", withoutKubelets, nil, LookAt, block, "kubelets are not asked (evidence.kubelet): its account may not have tokens of csi-fencepost/csi-fencepost-kubelet made", "yes"},
		"failover without its":       {"failover: {enabled: true}\n", deploy.Enforce, nil, Broken, block, "may not patch nodes, nor delete pods", "yes"},
		"a policy without a writer":  {"", deploy.Enforce, func(w *world, _ *corev1.Pod) { w.policies("csi-fencepost-ledger") }, Broken, block, "may not write ledgers.csi-fencepost.io", "yes"},
		"a writer of all ledgers": {"", deploy.Enforce, func(w *world, _ *corev1.Pod) {
			w.policies("csi-fencepost-ledger")
			w.rights(func(n deploy.Names) ([]byte, error) {
				text, err := writers(t)(n)
				return bytes.ReplaceAll(text, []byte(`  resourceNames: ["`+n.Driver+"\"]\n"), nil), err
			}, deploy.Names{Namespace: "storage", ServiceAccount: "block-controller", Driver: block})
		}, LookAt, block, "storage/block-controller may write the ledgers of all drivers", "yes"},
		"a policy of all ledgers": {"", deploy.Enforce, func(w *world, _ *corev1.Pod) {
			w.ledgerPolicy("authorizer.group('csi-fencepost.io').resource('ledgers').check('write').allowed()")
		}, LookAt, "policies", "csi-fencepost-ledger is of an earlier build", "yes"},
		"a provisioner of all ledgers": {"", deploy.Enforce, func(w *world, _ *corev1.Pod) {
			w.policies("csi-fencepost-ledger")
			w.provisioner("csi-fencepost-provisioner")
		}, LookAt, "policies", "by ClusterRoleBinding mine storage/provisioner may have the ledgers of all drivers forgotten: a driver's external-provisioner needs its own driver's alone (ClusterRole csi-fencepost-provisioner-of-DRIVER", "yes"},
		"nobody moves pods":          {"", deploy.Enforce, nil, LookAt, block, "nobody moves the pods of a dead node", "yes"},
		"apart, and it is not there": {"fencing: {apart: true}\n", deploy.Enforce, nil, Broken, block, "no csi-fencepost failover runs", "yes"},
		"no configuration":           {"mode: Maybe\n", deploy.Enforce, nil, LookAt, block, "its configuration could not be read, the defaults are taken", "yes"},
		"agents of no node":          {bmc, deploy.Failover, nil, LookAt, block, "nodes that do not exist: n1, n2, n3 and 4 more", "yes"},
		"a garbled ledger": {"", deploy.Enforce, func(w *world, _ *corev1.Pod) {
			pv, _ := w.volume("pv-1", block, "n1", true)
			pv.Annotations[ledger.Annotation] = "{"
		}, Broken, "ledgers", "cannot be read, so that their volumes wait: pv-1", "yes"},
		"a Node that is gone": {"", deploy.Enforce, func(w *world, _ *corev1.Pod) { w.volume("pv-1", block, "n1", true) }, LookAt, "nodes", "no Node any more, and they hold 1 volume: n1", "yes"},
		"no attacher at all": {"", deploy.Enforce, func(w *world, _ *corev1.Pod) {
			w.add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: disk}})
			w.volume("pv-1", disk, "n1", false)
		}, LookAt, disk, "no external-attacher of it was found", "yes"},
		"policies": {"", deploy.Enforce, nil, LookAt, "policies", "not installed: ledger, ledger-kept, nodes, records, taint", "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			w, pod := guarded(t, c.text, c.render)
			if c.change != nil {
				c.change(w, pod)
			}
			d := w.look("")
			d.says(t, c.grade, c.about, c.want)
			if got := d.Drivers[0].Guarded; got != c.value {
				t.Errorf("guarded: %s, want %s", got, c.value)
			}
		})
	}
}

// provisioner binds that ClusterRole to the account of an external-provisioner, by hand.
func (w *world) provisioner(role string) {
	w.add(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "storage", Name: "provisioner"}}})
}

// Nobody is told of a right that is as narrow as it can be, nor that there is a narrower one where the
// policy knows none, or where there is no policy.
func TestAProvisionersRightIsTooMuchOnlyWhereALesserOneIsEnough(t *testing.T) {
	const named, of = "authorizer.group('csi-fencepost.io').resource('ledgers').name(variables.driver).check('write').allowed()", "authorizer.group('csi-fencepost.io').resource('ledgers').check('write').allowed()"
	for _, c := range []struct {
		policy, role string
		tooMuch      bool
	}{
		{named, "csi-fencepost-provisioner", true},
		{named, "csi-fencepost-provisioner-of-" + block, false},
		{of, "csi-fencepost-provisioner", false},
		{"", "csi-fencepost-provisioner", false},
	} {
		w, _ := guarded(t, "", deploy.Enforce)
		if c.policy != "" {
			w.ledgerPolicy(c.policy)
		}
		w.provisioner(c.role)
		d := w.look("")
		if said := slices.ContainsFunc(d.Findings, func(f Finding) bool { return strings.Contains(f.What, "forgotten") }); said != c.tooMuch {
			t.Errorf("%s by %q: %+v", c.role, c.policy, d.Findings)
		}
	}
}

// Beside a policy of before nobody is told to take the right away by which the driver's publishes pass it.
func TestTheRightToAllLedgersIsTooMuchOnlyByAPolicyThatKnowsALesserOne(t *testing.T) {
	for expression, tooMuch := range map[string]bool{
		"authorizer.group('csi-fencepost.io').resource('ledgers').check('write').allowed()":                        false,
		"authorizer.group('csi-fencepost.io').resource('ledgers').name(variables.driver).check('write').allowed()": true,
	} {
		w, _ := guarded(t, "", deploy.Enforce)
		w.ledgerPolicy(expression)
		w.rights(func(n deploy.Names) ([]byte, error) {
			text, err := writers(t)(n)
			return bytes.ReplaceAll(text, []byte(`  resourceNames: ["`+n.Driver+"\"]\n"), nil), err
		}, deploy.Names{Namespace: "storage", ServiceAccount: "block-controller", Driver: block})
		d := w.look("")
		said := func(words string) bool {
			return slices.ContainsFunc(d.Findings, func(f Finding) bool { return strings.Contains(f.What, words) })
		}
		if said("may write the ledgers of all drivers") != tooMuch || said("of an earlier build") == tooMuch {
			t.Errorf("%s: %+v", expression, d.Findings)
		}
	}
}

// withoutKubelets is mode Enforce without rbac/kubelet.yaml.
func withoutKubelets(n deploy.Names) ([]byte, error) {
	text, err := deploy.Enforce(n)
	before, _, _ := bytes.Cut(text, []byte("---\n# By whom csi-fencepost asks kubelets"))
	return before, err
}

// What is well is not spoken ill of.
func TestAClusterAsItShouldBeHasNoFinding(t *testing.T) {
	w, _ := guarded(t, bmc, deploy.Failover)
	for i := 1; i <= 7; i++ {
		w.node(fmt.Sprintf("n%d", i), block)
	}
	w.policies("csi-fencepost-ledger", "csi-fencepost-ledger-kept", "csi-fencepost-nodes", "csi-fencepost-records", "csi-fencepost-taint")
	w.rights(writers(t), deploy.Names{Namespace: "storage", ServiceAccount: "block-controller", Driver: block})
	if d := w.look(""); len(d.Findings) > 0 || len(d.MissingRights) > 0 || !strings.HasPrefix(d.text(), "Nothing is broken.\n") {
		t.Errorf("it finds fault:\n%s", d.text())
	}
	if d := w.look("", "get replicasets"); !strings.HasPrefix(d.text(), "Nothing broken was seen.\n") {
		t.Errorf("what it could not see it calls well:\n%s", d.text())
	}
}

// writers are the bindings of deploy/admission.
func writers(t *testing.T) func(n deploy.Names) ([]byte, error) {
	return func(n deploy.Names) ([]byte, error) {
		text := clitest.ReadFile(t, "deploy/admission/writers.yaml")
		return []byte(strings.NewReplacer("${DRIVER}", n.Driver, "${SERVICE_ACCOUNT}", n.ServiceAccount, "${NAMESPACE}", n.Namespace).Replace(text)), nil
	}
}

// A tenant's pod that looks like a driver's controller, under an account that may attach
// nothing, is not looked at: neither does it guard a driver, nor is it an alarm.
func TestWhoMayAttachNothingIsNoDriversController(t *testing.T) {
	for _, calls := range []string{"/fencepost/csi.sock", "/csi/csi.sock"} {
		w, pod := guarded(t, "", deploy.Enforce)
		fake := pod.DeepCopy()
		fake.Name, fake.Namespace, fake.Spec.ServiceAccountName, fake.OwnerReferences = "trap", "tenant", "default", nil
		fake.Spec.Containers[1].Args[0] = "--csi-address=" + calls
		w.add(fake)
		if d := w.look(""); d.count(Broken, "") > 0 || d.Drivers[0].Guarded != "yes" || strings.Contains(d.text(), "tenant") {
			t.Errorf("it is believed:\n%s", d.text())
		}
	}
}

func TestWhatWouldHappen(t *testing.T) {
	const cloud = "failover: {enabled: true}\nfencing: {fenceAfter: 60s, levels: [{agents: [{name: cloud, exec: {agent: fence_x, parameters: {uuid: \"$(SYSTEM_UUID)\"}}}]}]}\n"
	const array = "failover: {enabled: true}\nfencing: {fenceAfter: 60s, levels: [{agents: [{name: array, csiAddons: {}}]}]}\n"
	for name, c := range map[string]struct {
		text    string
		change  func(n *corev1.Node, pv *corev1.PersistentVolume, p *corev1.Pod)
		outcome Outcome
		pods    int
		want    string
	}{
		"fenced":          {bmc, nil, Fenced, 1, "turned off by agent bmc after 1m of silence; then its pods move"},
		"asked, no mover": {strings.NewReplacer("true", "false", "60s", "0s").Replace(bmc), nil, Asked, 1, "its volumes may move, its pods wait for a person"},
		"asked":           {strings.Replace(bmc, "60s", "0s", 1), nil, Asked, 1, "no fenceAfter"},
		"cordoned":        {bmc, func(n *corev1.Node, _ *corev1.PersistentVolume, _ *corev1.Pod) { n.Spec.Unschedulable = true }, Braked, 1, "somebody has cordoned it"},
		"opted out": {bmc, func(n *corev1.Node, _ *corev1.PersistentVolume, _ *corev1.Pod) {
			n.Annotations = map[string]string{failover.OptOutAnnotation: "false"}
		}, Braked, 1, failover.OptOutAnnotation},
		"a pod opted out": {bmc, func(_ *corev1.Node, _ *corev1.PersistentVolume, p *corev1.Pod) {
			p.Annotations = map[string]string{failover.OptOutAnnotation: "false"}
		}, Fenced, 0, ""},
		"no boot ID":        {bmc, func(n *corev1.Node, _ *corev1.PersistentVolume, _ *corev1.Pod) { n.Status.NodeInfo.BootID = "" }, Waits, 1, "no proof that it is off could count"},
		"no identity bound": {cloud, nil, Waits, 1, "$(SYSTEM_UUID) of node n1 may be another machine's: it is not bound to the node yet"},
		"storage":           {array, nil, Fenced, 1, "cut off from the storage by agent array"},
		"storage, no boot":  {array, func(n *corev1.Node, _ *corev1.PersistentVolume, _ *corev1.Pod) { n.Status.NodeInfo.BootID = "" }, Fenced, 1, "cut off from the storage by agent array"},
		"no agent":          {"", nil, Waits, 1, "its volumes wait for a person: no fence agent covers it"},
		"forwarded":         {"unpublish: {unfenced: Forward}\n", nil, Forwarded, 1, "fenced or not"},
		"revoked":           {"driver: {unpublishRevokesAccess: true}\n", nil, Revoked, 1, "the driver cuts off whom it unpublishes"},
		"observed":          {"mode: Observe\n" + bmc, nil, NotGuarded, 1, "mode Observe only reports it"},
		"many writers": {bmc, func(_ *corev1.Node, pv *corev1.PersistentVolume, _ *corev1.Pod) {
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}, Fenced, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := guarded(t, c.text, deploy.Failover)
			n := w.node("n1", block)
			pv, pod := w.volume("pv-1", block, "n1", true)
			if c.change != nil {
				c.change(n, pv, pod)
			}
			f := w.look("").fateOn(t, block, "n1")
			if f.Outcome != c.outcome || f.Pods != c.pods || !strings.Contains(f.What, c.want) {
				t.Errorf("%s, %d pods: %s", f.Outcome, f.Pods, f.What)
			}
		})
	}
}

// A right that is missing is named, and what it would have shown is not called well.
func TestAMissingRightIsNamedAndTheRestGoesOn(t *testing.T) {
	all := []string{"list csidrivers", "list nodes", "list csinodes", "list persistentvolumes", "list volumeattachments", "list pods", "list persistentvolumeclaims", "list leases",
		"list clusterrolebindings", "list clusterroles", "list roles", "list rolebindings", "list validatingadmissionpolicies", "list validatingadmissionpolicybindings",
		"get namespaces", "get configmaps", "get replicasets"}
	for _, right := range all {
		d := three(t).look("", right)
		text := strings.Join(strings.Fields(d.text()), " ")
		named := slices.ContainsFunc(d.MissingRights, func(m string) bool { return strings.HasPrefix(m, right) }) || strings.Contains(text, "missing right: "+right)
		if !named || strings.HasPrefix(text, "Nothing is broken.") {
			t.Errorf("without %s: %v\n%s", right, d.MissingRights, d.text())
		}
		if strings.HasPrefix(right, "list clusterrole") && slices.ContainsFunc(d.Drivers, func(v Driver) bool { return v.Process != nil && v.Lacks != nil }) {
			t.Error("rights are judged that could not be read")
		}
		if right == "list pods" && slices.ContainsFunc(d.Drivers, func(v Driver) bool { return v.Guarded != "unknown" }) {
			t.Error("a driver is judged whose pods could not be read")
		}
	}
	if d := three(t).look("", all...); len(d.MissingRights) < 14 {
		t.Errorf("without all of them: %v", d.MissingRights)
	}
}

// Each policy that is asked for is one of deploy/admission, and none is forgotten.
func TestPoliciesAreThoseOfTheManifests(t *testing.T) {
	var found []string
	for _, file := range []string{"ledger", "nodes", "records", "taint"} {
		for _, doc := range strings.Split(clitest.ReadFile(t, "deploy/admission/"+file+".yaml"), "\n---\n") {
			var o metav1.PartialObjectMetadata
			(&world{t: t}).decode(doc, &o)
			if o.Kind == "ValidatingAdmissionPolicy" {
				found = append(found, strings.TrimPrefix(o.Name, policyPrefix))
			}
		}
	}
	if !slices.Equal(found, policies) {
		t.Errorf("the manifests have %v, doctor asks for %v", found, policies)
	}
}

// Nothing of a cluster reaches a terminal as more than text.
func TestHostileNamesAreText(t *testing.T) {
	w, pod := guarded(t, "", deploy.Enforce)
	pod.OwnerReferences = owned("Deployment;reboot", "$(reboot)")
	pod.Spec.Containers[1].Args[0] = "--csi-address=/csi/csi.sock"
	pod.Spec.Containers[2].Image = "x\x1b[2J:v1.\u202e0"
	n := w.node("n1", block)
	n.Annotations = map[string]string{failover.MaintenanceAnnotation: "\x1b[31m"}
	var out strings.Builder
	w.look("").print(printable.Writer{To: &out}, cli.Style{Width: cli.MinWidth})
	if strings.ContainsAny(out.String(), "\x1b\u202e") || strings.Contains(out.String(), "get deployment;") || strings.Contains(out.String(), "storage $(reboot)") {
		t.Errorf("%q", out.String())
	}
}

// kubectl rollout restart knows three kinds; of another one it would be an error at three in the morning.
func TestOnlyWhatKubectlRestartsIsRestarted(t *testing.T) {
	for kind, want := range map[string]string{
		"Deployment":  "kubectl rollout restart deployment -n storage block",
		"StatefulSet": "kubectl rollout restart statefulset -n storage block",
		"DaemonSet":   "kubectl rollout restart daemonset -n storage block",
		"Pod":         "kubectl get pod -n storage block -o yaml",
		"ReplicaSet":  "kubectl get replicaset -n storage block -o yaml",
	} {
		if got := (workload{kind, "storage", "block"}).restart(); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
}
