package doctor

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// commands tells where a terminal would act on a text; empty: nowhere.
func commands(text string) string {
	if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }); i >= 0 {
		return text[i:]
	}
	return ""
}

// Whatever the pod of a driver's controller says of itself, and whatever the configuration in its ConfigMap
// is: doctor looks, its report and its bundle show no parameter of an agent that is named like a secret,
// though the configuration is wrong, nor anything that a terminal acts on. SECRET stands for the parameter.
func FuzzController(f *testing.F) {
	const secret, quoted = `hunter2-long-enough`, "SECRET"
	const sound = "fencing: {levels: [{agents: [{name: pdu, exec: {agent: fence_x, parameters: {ip: 10.1.0.2, passwd: SECRET}, nodeParameters: {port: {n1: \"3\"}}}}]}]}\n"
	const pod = `{"spec":{"containers":[{"name":"csi-attacher","image":"csi-attacher:v4","args":["--csi-address=/fencepost/csi.sock"],"volumeMounts":[{"name":"s","mountPath":"/fencepost"}]},` +
		`{"name":"csi-fencepost","image":"r/csi-fencepost:v1.3.0","args":["run","--csi-address=/csi/csi.sock","--listen=/fencepost/csi.sock","--config=/etc/c/config.yaml","--http-endpoint=:9810"],"volumeMounts":[{"name":"s","mountPath":"/fencepost"},{"name":"config","mountPath":"/etc/c"}]}],` +
		`"volumes":[{"name":"s","emptyDir":{}},{"name":"config","configMap":{"name":"csi-fencepost-block"}}]},"status":{"containerStatuses":[{"name":"csi-fencepost","state":{"waiting":{"reason":"x"}}}]}}`
	f.Add(pod, sound)
	for _, text := range []string{"mode: Observe\n", "SECRET", "fencing: {levels: [{agents: [{name: SECRET", strings.Replace(sound, "passwd: SECRET", "passwd: [SECRET]", 1),
		strings.Replace(sound, "passwd: SECRET", "passwd: SECRET, passwd: SECRET", 1), strings.Replace(sound, "agent: fence_x", "agent: ../fence_x", 1), strings.Replace(sound, "passwd: SECRET", "passwd: \"${SECRET}\"", 1),
		strings.Replace(sound, "nodeParameters: {", "nodeParameters: {passwd: {n1: SECRET}, ", 1), strings.Replace(sound, "name: pdu", "name: \"\\e[2J\"", 1)} {
		f.Add(pod, text)
	}
	f.Add(strings.Replace(pod, "csi-fencepost:v1.3.0", `\u001b[2J:v1.0.0`, 1), sound)
	f.Add(strings.Replace(pod, `"reason":"x"`, `"reason":"\u001b]0;x\u0007"`, 1), sound)
	f.Add(strings.Replace(pod, "/fencepost/csi.sock", `/\u202e`, 1), sound)
	f.Add(`{"metadata":{"annotations":{"csi-fencepost.io/inject":"disabled"}},"spec":{"containers":[{"name":"csi-fencepost","args":["run"]}]}}`, sound)
	f.Fuzz(func(t *testing.T, podText, configText string) {
		var p corev1.Pod
		if strings.Contains(podText+configText, secret) || json.Unmarshal([]byte(podText), &p) != nil {
			return
		}
		w, own := guarded(t, "", deploy.Enforce)
		p.ObjectMeta, p.Spec.ServiceAccountName, p.Spec.NodeName = metav1.ObjectMeta{Name: own.Name, Namespace: own.Namespace, OwnerReferences: own.OwnerReferences, Annotations: p.Annotations}, own.Spec.ServiceAccountName, "n1"
		*own = p
		for _, o := range w.objects {
			if m, is := o.(*corev1.ConfigMap); is {
				m.Data = map[string]string{"config.yaml": "apiVersion: " + config.APIVersion + "\nkind: Configuration\n" + strings.ReplaceAll(configText, quoted, secret)}
			}
		}
		w.node("n1", block)
		w.volume("pv-1", block, "n1", false)
		d := w.look("")
		var report strings.Builder
		d.print(printable.Writer{To: &report}, cli.Style{Width: cli.MaxWidth}) // as stdout is
		shown := map[string]string{"the report": report.String()}
		for name, text := range d.collect(t.Context()).files {
			shown["the bundle's "+name] = text
		}
		for what, text := range shown {
			if where := commands(text); where != "" {
				t.Errorf("a terminal acts on %s: %q", what, where)
			}
			if isParameter(configText, quoted) && strings.Contains(text, secret) {
				t.Errorf("%s shows a parameter that may be a secret:\n%s", what, text)
			}
		}
	})
}

// isParameter: the word stands in the text as the value of a passwd alone, wherever that is.
func isParameter(text, word string) bool {
	for before, rest, found := strings.Cut(text, word); found; before, rest, found = strings.Cut(rest, word) {
		if strings.Contains(before, "\n#") || !strings.HasSuffix(before, "passwd: ") && !strings.HasSuffix(before, "passwd: [") && !strings.HasSuffix(before, "passwd: {n1: ") && !strings.HasSuffix(before, `passwd: "${`) {
			return false
		}
	}
	return true
}

// Whatever a tenant has in his namespace, pods that look like a driver's controller, or like csi-fencepost,
// claims, and Roles for himself, and whatever else of him others have bound: the report is the one without
// it.
func FuzzTenant(f *testing.F) {
	const pod = `{"spec":{"serviceAccountName":"block-controller","nodeName":"n1","containers":[{"name":"csi-attacher","image":"csi-attacher:v4","args":["--csi-address=/csi/csi.sock"],"volumeMounts":[{"name":"s","mountPath":"/csi"}]},` +
		`{"name":"csi-fencepost","args":["run","--csi-address=/csi/csi.sock","--listen=/fencepost/csi.sock"]},{"name":"driver","args":["--drivername=block.example.com"]}],"volumes":[{"name":"s","emptyDir":{}},{"name":"v","persistentVolumeClaim":{"claimName":"data-pv-1"}}]}}`
	f.Add(pod, `{"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"ServiceAccount","namespace":"a-tenant","name":"block-controller"}]}`, "false")
	f.Add(strings.Replace(pod, "block-controller", "csi-fencepost-failover", 1), `{"roleRef":{"kind":"ClusterRole","name":"edit"},"subjects":[{"kind":"Group","name":"system:serviceaccounts:a-tenant"}]}`, "true")
	f.Add(strings.Replace(pod, `["--csi-address=/csi/csi.sock"]`, `["--csi-address=/csi/csi.sock","--kubeconfig=/x"]`, 1), `{}`, "\x1b")
	f.Fuzz(func(t *testing.T, podText, bindingText, says string) {
		var p corev1.Pod
		var b rbacv1.ClusterRoleBinding
		if json.Unmarshal([]byte(podText), &p) != nil || json.Unmarshal([]byte(bindingText), &b) != nil {
			return
		}
		p.ObjectMeta = metav1.ObjectMeta{Name: "p", Namespace: "a-tenant", Annotations: p.Annotations, OwnerReferences: p.OwnerReferences}
		b.ObjectMeta = metav1.ObjectMeta{Name: "of-a-tenant"}
		if b.RoleRef.Kind == "ClusterRole" && b.RoleRef.Name != "edit" {
			b.RoleRef.Name = "view" // nobody else gives him more
		}
		look := func(with bool) *doctoring {
			w, _ := guarded(t, "mode: Enforce\n", deploy.Enforce)
			w.node("n1", block)
			w.volume("pv-1", block, "n1", false)
			w.add(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Verbs: []string{"*"}}}})
			if with {
				w.add(&p, &b, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-pv-1", Namespace: "a-tenant", Annotations: map[string]string{"csi-fencepost.io/failover": says}}},
					&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a-tenant"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "attacher-block-controller"},
						Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "a-tenant", Name: p.Spec.ServiceAccountName}}})
			}
			return w.look("")
		}
		got, want := look(true), look(false)
		if !reflect.DeepEqual(got.Report, want.Report) {
			t.Errorf("with what a tenant has it says\n%s\nand without\n%s", got.text(), want.text())
		}
	})
}
