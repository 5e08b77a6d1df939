package explain

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/deploy"
)

// bound are the ClusterRoleBindings that deploy/rbac has for a driver's sidecar.
func bound(t *testing.T, driver, namespace, account string) (all []runtime.Object) {
	t.Helper()
	manifests, err := deploy.Enforce(deploy.Names{Namespace: namespace, ServiceAccount: account, Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		var b rbacv1.ClusterRoleBinding
		if err := documents.Decode(&b); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if b.Kind == "ClusterRoleBinding" {
			all = append(all, &b)
		}
	}
}

// A world is where a sidecar runs in kube-system, or wherever somebody has one look.
type world []runtime.Object

func (w *world) runs(namespace, name, account, configMap, text string) {
	*w = append(*w,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning}, Spec: corev1.PodSpec{ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "csi-fencepost", Args: []string{"run", "--listen=/a", "--csi-address=/b", "--config=/etc/c/config.yaml"}, VolumeMounts: []corev1.VolumeMount{{Name: "c", MountPath: "/etc/c"}}}},
			Volumes:    []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: configMap}, Data: map[string]string{"config.yaml": "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n" + text}})
}

func (w *world) leads(namespace, lease, holder string) {
	*w = append(*w, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
}

const sidecarsDriver = "csi.example.com"

// A tenant writes pods, ConfigMaps and Leases in his namespace, and no ClusterRoleBinding.
func TestATenantDoesNotChooseTheConfiguration(t *testing.T) {
	tenant := func(w *world) {
		w.runs("a-tenant", "x", "ctl", "mine", "mode: Observe\nfencing: {namespace: a-tenant}\ndriver: {unpublishRevokesAccess: true}\n")
		w.leads("a-tenant", cluster.LockName(sidecarsDriver), "x")
		w.leads("a-tenant", "external-attacher-leader-csi-example-com", "x")
		*w = append(*w, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a-tenant", Name: "csi-fencepost-observe-" + sidecarsDriver},
			RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "csi-fencepost-observe"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "a-tenant", Name: "ctl"}}},
			// Somebody gave his pods a right of the cluster; it is none of ours.
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "a-tenant-views"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "a-tenant", Name: "ctl"}}})
	}
	w := &world{}
	tenant(w)
	w.runs("kube-system", "ctl-0", "ctl", "real", "mode: Enforce\n")
	w.runs("kube-system", "other", "default", "no-ones", "mode: Observe\n")
	*w = append(*w, bound(t, sidecarsDriver, "kube-system", "ctl")...)
	*w = append(*w, bound(t, "other.example.com", "others", "ctl")...)
	if got := findConfig(t.Context(), fake.NewClientset(*w...), sidecarsDriver); !strings.Contains(got.found, "kube-system/real") || got.config.Mode != "Enforce" || got.config.Driver.UnpublishRevokesAccess {
		t.Errorf("found %q, assumed %q, namespace %s", got.found, got.assumed, got.config.Fencing.Namespace)
	}

	// Nor where no sidecar runs, or none has rights of ours.
	w = &world{}
	tenant(w)
	if got := findConfig(t.Context(), fake.NewClientset(*w...), sidecarsDriver); !strings.Contains(got.assumed, "no ClusterRoleBinding gives ClusterRole csi-fencepost-observe to a service account") {
		t.Errorf("found %q, assumed %q", got.found, got.assumed)
	}
	*w = append(*w, bound(t, sidecarsDriver, "kube-system", "ctl")...)
	if got := findConfig(t.Context(), fake.NewClientset(*w...), sidecarsDriver); !strings.Contains(got.assumed, "no running sidecar was found (looked for as service account kube-system/ctl)") {
		t.Errorf("found %q, assumed %q", got.found, got.assumed)
	}
}

// Each has a binding that carries its name, whichever leads.
func TestOfTwoDriversWithTwoAccountsTheBindingTellsTheSidecar(t *testing.T) {
	w := &world{}
	w.runs("storage", "a-0", "ctl-a", "a", "mode: Observe\n")
	w.runs("storage", "b-0", "", "b", "mode: Enforce\n") // as the account default
	*w = append(*w, bound(t, "other.example.com", "storage", "ctl-a")...)
	*w = append(*w, bound(t, sidecarsDriver, "storage", "default")...)
	if got := findConfig(t.Context(), fake.NewClientset(*w...), sidecarsDriver); !strings.Contains(got.found, "storage/b-0") {
		t.Errorf("found %q, assumed %q", got.found, got.assumed)
	}
}

// Two drivers have one account: whose sidecar it is, the leaders' Leases beside it tell.
func TestOfTwoDriversWithOneAccountTheLeaseTellsTheSidecar(t *testing.T) {
	w := &world{}
	w.runs("storage", "a-0", "ctl", "a", "mode: Observe\n")
	w.runs("storage", "b-0", "ctl", "b", "mode: Enforce\n")
	*w = append(*w, bound(t, sidecarsDriver, "storage", "ctl")...)
	if got := findConfig(t.Context(), fake.NewClientset(*w...), sidecarsDriver); !strings.Contains(got.assumed, "which of them is csi.example.com's cannot be told") {
		t.Errorf("found %q, assumed %q", got.found, got.assumed)
	}
	w.leads("storage", cluster.LockName(sidecarsDriver), "b-0")
	if got := findConfig(t.Context(), fake.NewClientset(*w...), sidecarsDriver); !strings.Contains(got.found, "storage/b-0") {
		t.Errorf("found %q, assumed %q", got.found, got.assumed)
	}
}

// Who gave a binding another name still has his sidecar found.
func TestABindingOfAnotherNameNamesTheAccountToo(t *testing.T) {
	w := &world{}
	w.runs("storage", "a-0", "ctl", "a", "mode: Enforce\n")
	all := bound(t, sidecarsDriver, "storage", "ctl")
	for _, b := range all {
		b.(*rbacv1.ClusterRoleBinding).Name += "-renamed"
	}
	*w = append(*w, all...)
	if got := findConfig(t.Context(), fake.NewClientset(*w...), sidecarsDriver); !strings.Contains(got.found, "storage/a-0") {
		t.Errorf("found %q, assumed %q", got.found, got.assumed)
	}
}

func TestWithoutTheRightToReadBindingsExplainSaysSoAndGoesOn(t *testing.T) {
	for resource, says := range map[string]string{
		"clusterrolebindings": "missing right: list clusterrolebindings, which tell whose pod is the sidecar",
		"pods":                "missing right: list pods in namespace storage",
	} {
		w := &world{}
		w.runs("storage", "a-0", "ctl", "a", "mode: Enforce\n")
		*w = append(*w, bound(t, sidecarsDriver, "storage", "ctl")...)
		client := fake.NewClientset(*w...)
		client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
		})
		if got := findConfig(t.Context(), client, sidecarsDriver); !strings.Contains(got.assumed, says) || got.config.Mode != "Observe" && got.found != "" {
			t.Errorf("%s: found %q, assumed %q", resource, got.found, got.assumed)
		}
	}
}

func TestASidecarIsKnownByWhatItIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		container corev1.Container
		is        bool
	}{
		"by name":         {corev1.Container{Name: "csi-fencepost"}, true},
		"renamed":         {corev1.Container{Name: "guard", Args: []string{"run", "--csi-address=/a", "--listen=/b"}}, true},
		"one dash, apart": {corev1.Container{Name: "guard", Command: []string{"/csi-fencepost", "run"}, Args: []string{"-csi-address", "/a", "-listen", "/b"}}, true},
		"an attacher":     {corev1.Container{Name: "csi-attacher", Args: []string{"--csi-address=/a"}}, false},
		"a listener":      {corev1.Container{Name: "web", Args: []string{"run", "--listen=:80"}}, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "driver"}, c.container}}}
		if got := SidecarOf(pod) != nil; got != c.is {
			t.Errorf("%s: %v, want %v", name, got, c.is)
		}
	}
}

func TestAnArgumentIsFoundHoweverItIsWritten(t *testing.T) {
	for _, args := range [][]string{{"--config=/c"}, {"-config=/c"}, {"--config", "/c"}, {"run", "-config", "/c", "--v=2"}} {
		if value, given := Argument(&corev1.Container{Args: args}, "config"); !given || value != "/c" {
			t.Errorf("%v: %q, %v", args, value, given)
		}
	}
	if _, given := Argument(&corev1.Container{Args: []string{"--config-file=/c"}}, "config"); given {
		t.Error("another flag was taken for it")
	}
}
