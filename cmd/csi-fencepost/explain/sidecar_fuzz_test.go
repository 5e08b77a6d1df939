package explain

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cluster"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// reads is a cluster that answers with these objects, and in which nothing is written, and no Secret read.
func reads(t *testing.T, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset(objects...)
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if v := a.GetVerb(); v != "get" && v != "list" || a.GetResource().Resource == "secrets" {
			t.Errorf("it asks to %s %s", v, a.GetResource().Resource)
		}
		return false, nil, nil
	})
	return client
}

// said is the configuration's source as explain prints it.
func said(s sidecarConfig) string {
	var out strings.Builder
	cli.NewPrinter(&out, cli.Style{Width: cli.MaxWidth}).Paragraph(0, 2, "* "+s.found+s.assumed)
	return out.String()
}

// Whatever a tenant has in his namespace, pods that look like the sidecar, ConfigMaps, Leases and Roles for
// himself, and whatever ClusterRoleBindings there are of other roles: the configuration is found, or not
// found, as if they were not there.
func FuzzTenant(f *testing.F) {
	const own = `{"spec":{"serviceAccountName":"ctl","containers":[{"name":"csi-fencepost","args":["run","--listen=/a","--csi-address=/b","--config=/etc/c/config.yaml"],"volumeMounts":[{"name":"c","mountPath":"/etc/c"}]}],"volumes":[{"name":"c","configMap":{"name":"mine"}}]},"status":{"phase":"Running"}}`
	const text = "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Observe\n"
	f.Add([]byte(own), text, []byte(`{"metadata":{"name":"csi-fencepost-observe-csi.example.com"},"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"ServiceAccount","namespace":"a-tenant","name":"ctl"}]}`), "sidecar-0")
	f.Add([]byte(own), text, []byte(`{"metadata":{"name":"x"},"roleRef":{"kind":"Role","name":"csi-fencepost-observe"},"subjects":[{"kind":"ServiceAccount","namespace":"a-tenant","name":"ctl"}]}`), "p")
	f.Add([]byte(own), text, []byte(`{"metadata":{"name":"x"},"roleRef":{"kind":"ClusterRole","name":"csi-fencepost-observe"},"subjects":[{"kind":"User","namespace":"a-tenant","name":"ctl"},{"kind":"Group","name":"system:authenticated"}]}`), "p")
	f.Add([]byte(`{"spec":{"containers":[{"name":"csi-fencepost"}]}}`), "\x00", []byte(`{}`), "")
	w := &world{}
	w.runs("kube-system", "sidecar-0", "ctl", "real", "mode: Enforce\n")
	w.runs("kube-system", "other-0", "other", "others", "mode: Observe\n")
	for _, driver := range []string{sidecarsDriver, "other.example.com"} {
		*w = append(*w, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ObserveRole + "-" + driver}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: ObserveRole},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: map[bool]string{true: "ctl", false: "other"}[driver == sidecarsDriver]}}})
	}
	for _, without := range []bool{false, true} {
		if got := findConfig(f.Context(), fake.NewClientset((*w)[:len(*w)-map[bool]int{true: 2}[without]]...), sidecarsDriver); without != (got.assumed != "") {
			f.Fatalf("found %q, assumed %q", got.found, got.assumed)
		}
	}
	f.Fuzz(func(t *testing.T, podText []byte, configText string, bindingText []byte, holder string) {
		var pod corev1.Pod
		var binding rbacv1.ClusterRoleBinding
		if json.Unmarshal(podText, &pod) != nil || json.Unmarshal(bindingText, &binding) != nil {
			return
		}
		if binding.RoleRef.Kind == "ClusterRole" && binding.RoleRef.Name == ObserveRole {
			binding.Subjects = slices.DeleteFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind }) // nobody of a namespace writes it
		}
		binding.ObjectMeta = metav1.ObjectMeta{Name: "of-" + strings.ToValidUTF8(binding.Name, "")}
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: "a-tenant", Name: "p", Annotations: pod.Annotations, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences}
		tenants := []runtime.Object{&pod, &binding,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a-tenant", Name: "mine"}, Data: map[string]string{"config.yaml": configText}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a-tenant", Name: "real"}, Data: map[string]string{"config.yaml": configText}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a-tenant", Name: ObserveRole + "-" + sidecarsDriver}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: ObserveRole},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "a-tenant", Name: pod.Spec.ServiceAccountName}}}}
		for _, name := range []string{cluster.LockName(sidecarsDriver), AttacherLease(sidecarsDriver)} {
			tenants = append(tenants, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "a-tenant", Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
		}
		for _, world := range [][]runtime.Object{*w, (*w)[:len(*w)-2]} { // and where nobody is bound
			want := findConfig(t.Context(), fake.NewClientset(world...), sidecarsDriver)
			got := findConfig(t.Context(), reads(t, slices.Concat(world, tenants)...), sidecarsDriver)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("with what a tenant has it is found %q, assumed %q; without, found %q, assumed %q", got.found, got.assumed, want.found, want.assumed)
			}
		}
	})
}

// Whatever the pod of a driver's controller says, and whatever is in its ConfigMap: its configuration is
// that of the one key of the one ConfigMap of its namespace that stands where --config says, else the
// defaults are taken, and said to be; what is printed of it commands no terminal; and what a flag is said
// to be stands in the command line.
func FuzzSidecar(f *testing.F) {
	const text = "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nmode: Enforce\n"
	of := func(args, mount, volume string) []byte {
		return []byte(`{"spec":{"serviceAccountName":"ctl","containers":[{"name":"csi-fencepost","args":` + args + `,"volumeMounts":[` + mount + `]}],"volumes":[` + volume + `]},"status":{"phase":"Running"}}`)
	}
	f.Add(of(`["run","--listen=/a","--csi-address=/b","--config=/etc/c/config.yaml"]`, `{"name":"c","mountPath":"/etc/c"}`, `{"name":"c","configMap":{"name":"real"}}`), text, "config.yaml")
	f.Add(of(`["run","--config","/etc/c/config.yaml"]`, `{"name":"c","mountPath":"/etc/c/config.yaml","subPath":"a.yaml"}`, `{"name":"c","configMap":{"name":"real"}}`), text, "a.yaml")
	f.Add(of(`["run","-config=/etc/c/../c//b.yaml"]`, `{"name":"c","mountPath":"/etc/c/"}`, `{"name":"c","configMap":{"name":"real","items":[{"key":"k","path":"b.yaml"}]}}`), text, "k")
	f.Add(of(`["run","--config=/etc/c/config.yaml"]`, `{"name":"c","mountPath":"/etc/c"}`, `{"name":"c","secret":{"secretName":"real"}}`), text, "config.yaml")
	f.Add(of(`["run","--config=/etc/\u001b[2J"]`, `{"name":"\u001b[2J","mountPath":"/etc"}`, `{"name":"\u001b[2J","configMap":{"name":"real"}}`), "mode: \x1b[2J", "\x1b[2J")
	f.Add(of(`["run"]`, ``, ``), "", "")
	f.Add(of(`["run","--config"]`, `{"name":"c","mountPath":"/"}`, `{"name":"c","configMap":{}}`), text, ".")
	f.Fuzz(func(t *testing.T, podText []byte, configText, key string) {
		var pod corev1.Pod
		if json.Unmarshal(podText, &pod) != nil {
			return
		}
		pod.Namespace, pod.Name, pod.DeletionTimestamp = "kube-system", "sidecar-0", nil
		for _, c := range SidecarsOf(&pod) {
			words := slices.Concat(c.Command, c.Args)
			for _, flag := range []string{"config", "listen", "http-endpoint"} {
				value, given := Argument(c, flag)
				if stands := slices.ContainsFunc(words, func(w string) bool { return w == value || strings.HasSuffix(w, "-"+flag+"="+value) }); given && value != "" && !stands || !given && value != "" {
					t.Errorf("--%s is %q (%t) in %q", flag, value, given, words)
				}
			}
			client := reads(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "real"}, Data: map[string]string{key: configText, "other": "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a-tenant", Name: "real"}, Data: map[string]string{key: text}})
			got := configOf(t.Context(), client, &sidecarPod{&pod, c})
			if (got.found == "") == (got.assumed == "") || got.config == nil {
				t.Fatalf("found %q, assumed %q", got.found, got.assumed)
			}
			if out := said(got); strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }) {
				t.Errorf("a terminal acts on %q", out)
			}
			if got.assumed != "" && !reflect.DeepEqual(got.config, config.Default()) {
				t.Errorf("%s, and it is no default: %+v", got.assumed, got.config)
			}
			for _, a := range client.Actions() {
				if get, is := a.(clienttesting.GetAction); !is || a.GetNamespace() != "kube-system" || a.GetResource().Resource != "configmaps" || !mounted(&pod, get.GetName()) {
					t.Errorf("it reads %s %s", a.GetResource().Resource, a.GetNamespace())
				}
			}
		}
	})
}

// mounted: a volume of the pod is that ConfigMap.
func mounted(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == name })
}
