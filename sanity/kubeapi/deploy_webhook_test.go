package kubeapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
)

// The ways in which the chart puts the sidecar into pods, as injection.by has them.
const (
	byPolicy  = "Policy"
	byWebhook = "Webhook"
)

// releasesOfInjection counts them: the webhooks of two have names of their own.
var releasesOfInjection atomic.Int32

// eachWay runs a test with each of the ways: what comes of a pod is the same.
func eachWay(t *testing.T, run func(t *testing.T, by string)) {
	single.take(t)
	whole.use(t)
	for _, by := range []string{byPolicy, byWebhook} {
		t.Run(by, func(t *testing.T) { run(t, by) })
	}
}

// putIn applies what injection has rendered, and runs the webhook, if it is one.
func putIn(t *testing.T, by string, manifests []byte) {
	t.Helper()
	if by == byPolicy {
		applyAll(t, manifests)
		return
	}
	startWebhook(t, manifests)
}

// A hook is csi-fencepost-webhook as its manifests start it, but on loopback: its Service is the name of
// this host, where the API server finds it at a port of its own, by the certificate that it has made.
type hook struct {
	t          *testing.T
	command    *exec.Cmd
	ended      chan error
	log        *bytes.Buffer
	namespace  string
	name       string // of all that it has in its namespace
	port       int    // at which the API server calls
	probes     string // where its probes are
	kubeconfig string
	args       []string
	template   corev1.PodTemplateSpec
}

func startWebhook(t *testing.T, manifests []byte) *hook {
	t.Helper()
	h := &hook{t: t, port: freePort(t), probes: fmt.Sprint("localhost:", freePort(t))}
	makeNamespace(t, "ops")
	var text bytes.Buffer
	for _, o := range objects(t, manifests) {
		switch o.GetKind() {
		case "Service":
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			if o.GetLabels()["admissions.enforcer/disabled"] != "true" || o.GetAnnotations()["admissions.enforcer/disabled"] != "true" {
				t.Errorf("%s: AKS leaves its own namespaces out of it", o.GetKind())
			}
			digest := fmt.Sprintf("/%x", sha256.Sum256([]byte(o.GetAnnotations()["csi-fencepost.io/policy"])))[:17]
			for _, w := range o.Object["webhooks"].([]any) {
				path, _, err := unstructured.NestedString(w.(map[string]any), "clientConfig", "service", "path")
				must(t, err)
				// A replica with another policy of that name must not say yes where a pod is to be refused.
				if refuses := w.(map[string]any)["failurePolicy"] == "Fail"; refuses != strings.HasSuffix(path, digest) {
					t.Errorf("%s: at %s, and its policy is %s", o.GetKind(), path, digest)
				}
				must(t, unstructured.SetNestedField(w.(map[string]any), int64(h.port), "clientConfig", "service", "port"))
			}
		case "Deployment":
			var d appsv1.Deployment
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
			h.template = d.Spec.Template
			h.namespace, h.name, h.args = d.Namespace, d.Spec.Template.Spec.ServiceAccountName, d.Spec.Template.Spec.Containers[0].Args
			if c := d.Spec.Template.Spec.Containers[0]; len(c.Command) != 1 || c.Command[0] != "/csi-fencepost-webhook" {
				t.Fatalf("its command is %q", c.Command)
			}
		}
		one, err := o.MarshalJSON()
		must(t, err)
		fmt.Fprintf(&text, "---\n%s\n", one)
	}
	if h.name == "" {
		t.Fatalf("no webhook was rendered:\n%s", manifests)
	}
	applyAll(t, text.Bytes())
	var err error
	h.kubeconfig, err = whole.bed.Cluster.ServiceAccountKubeconfig(t.Context(), h.namespace, h.name)
	must(t, err)
	h.start()
	return h
}

// start runs the program with the account and the arguments of its Deployment, and waits until it is ready.
func (h *hook) start() {
	h.t.Helper()
	args := append([]string{}, h.args...)
	for i, a := range args {
		switch flag, _, _ := strings.Cut(a, "="); flag {
		case "--listen":
			args[i] = fmt.Sprint(flag, "=localhost:", h.port)
		case "--http-endpoint":
			args[i] = flag + "=" + h.probes
		}
	}
	h.log = &bytes.Buffer{}
	h.command = exec.Command(webhookTool.build(h.t), append(args, "--kubeconfig="+h.kubeconfig)...)
	h.command.Env = append(os.Environ(), "POD_NAMESPACE="+h.namespace)
	h.command.Stdout, h.command.Stderr = h.log, h.log
	must(h.t, h.command.Start())
	started, ended := h.command, make(chan error, 1)
	h.ended = ended
	go func() { ended <- started.Wait(); close(ended) }()
	h.t.Cleanup(func() {
		_ = started.Process.Kill()
		for range ended { // until it is gone
		}
		if h.t.Failed() {
			h.t.Logf("csi-fencepost-webhook:\n%s", h.log)
		}
	})
	h.wait("it is ready", func() bool {
		select {
		case err := <-ended:
			h.t.Fatalf("it has ended: %v\n%s", err, h.log)
		default:
		}
		answer, err := http.Get("http://" + h.probes + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

func (h *hook) wait(what string, is func() bool) {
	h.t.Helper()
	if err := wait.PollUntilContextTimeout(h.t.Context(), 50*time.Millisecond, time.Minute, true, func(_ context.Context) (bool, error) { return is(), nil }); err != nil {
		h.t.Fatalf("%s: %v\n%s", what, err, h.log)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// guardedByWebhook is one driver whose unguarded pods are refused, in a namespace of its own, by the webhook.
func guardedByWebhook(t *testing.T, name string) (*hook, controllerPod) {
	t.Helper()
	c := controllerPod{driver: name + ".example.com", namespace: "webhook-" + name, account: "array-controller"}
	makeAccount(t, c.namespace, c.account)
	makeAccount(t, c.namespace, "other")
	h := startWebhook(t, injection(t, byWebhook, map[string]any{"drivers": []any{injects(c, map[string]any{"pods": "All"})},
		"injection": map[string]any{"enabled": true, "onProblem": "Refuse"}, "image": map[string]any{"repository": "csi-fencepost", "tag": "dev"}}))
	h.wait("a pod gets the sidecar", func() bool { return h.guards(c) == nil })
	return h, c
}

// guards is nil where a pod of the driver gets the sidecar.
func (h *hook) guards(c controllerPod) error {
	pod, err := create(h.t, c.namespace, ofVendor(h.t), nil)
	if err == nil && !hasSidecar(pod) {
		err = errors.New("it is let in without a sidecar")
	}
	return err
}

// A webhook that is away keeps no pod out but those of the driver's controller: neither its own, wherever
// they are, nor others of that namespace.
func TestAWebhookThatIsAwayHoldsUpNobodyElse(t *testing.T) {
	single.take(t)
	whole.use(t)
	h, c := guardedByWebhook(t, "away")
	must(t, h.command.Process.Kill())
	for range h.ended {
	}
	if err := h.guards(c); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a pod of the driver: %v", err)
	}
	if _, err := create(t, c.namespace, ofVendor(t, "serviceAccountName: array-controller", "serviceAccountName: other"), nil); err != nil {
		t.Errorf("another account's pod in that namespace: %v", err)
	}
	// The node plugin names the driver, as an account of its own or as that of the controller.
	for _, account := range []string{"other", "array-controller"} {
		plugin := ofVendor(t, "csi-attacher:v4.10.0", "csi-node-driver-registrar:v2", "name: csi-attacher", "name: registrar", "- --timeout=15s", "- --kubelet-registration-path=/var/lib/kubelet/plugins/"+c.driver+"/csi.sock",
			"serviceAccountName: array-controller", "serviceAccountName: "+account)
		if _, err := create(t, c.namespace, plugin, nil); err != nil {
			t.Errorf("the node plugin as account %s: %v", account, err)
		}
	}
	makeAccount(t, c.namespace, h.name)
	if pod, err := create(t, c.namespace, h.template, nil); err != nil || hasSidecar(pod) {
		t.Errorf("a pod of the webhook in that namespace: %v", err)
	}
	h.start()
	h.wait("it is back", func() bool { return h.guards(c) == nil })
}

// A configuration answers for itself alone: whoever may make another one changes no driver's pods by it,
// and one that may not be patched holds up nobody else's.
func TestAConfigurationAnswersForNoOther(t *testing.T) {
	single.take(t)
	whole.use(t)
	h, c := guardedByWebhook(t, "foreign")
	ctx, api := t.Context(), whole.admin.AdmissionregistrationV1()
	pair, err := api.MutatingWebhookConfigurations().Get(ctx, "csi-fencepost-inject-"+c.driver, metav1.GetOptions{})
	must(t, err)
	own := pair.Annotations["csi-fencepost.io/policy"]
	_, digest, _ := strings.Cut(strings.TrimPrefix(*pair.Webhooks[0].ClientConfig.Service.Path, "/mutate/"), "/")
	hostile := func(name string) map[string]string {
		return map[string]string{"csi-fencepost.io/policy": fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":%[1]q},"spec":{"failurePolicy":"Fail","reinvocationPolicy":"IfNeeded",
"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},
"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"add\", path: \"/spec/containers/0/image\", value: \"evil\"}]"}}]}}
---
{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"b"},"spec":{"policyName":%[1]q}}
`, name)}
	}
	never, none := "a-namespace-that-is-not-there", admissionv1.SideEffectClassNone
	calls := admissionv1.ValidatingWebhook{Name: "a.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: never}}, ClientConfig: pair.Webhooks[0].ClientConfig}
	for name, w := range map[string]*admissionv1.ValidatingWebhookConfiguration{
		"foreign-empty":  {ObjectMeta: metav1.ObjectMeta{Annotations: hostile("csi-fencepost-inject-" + c.driver)}},
		"foreign-digest": {ObjectMeta: metav1.ObjectMeta{Annotations: hostile("csi-fencepost-inject-" + c.driver + "/" + digest)}, Webhooks: []admissionv1.ValidatingWebhook{calls}},
		"foreign-calls":  {ObjectMeta: metav1.ObjectMeta{Annotations: hostile("csi-fencepost-inject-" + c.driver)}, Webhooks: []admissionv1.ValidatingWebhook{calls}},
		"foreign-copy":   {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"csi-fencepost.io/policy": own}}, Webhooks: []admissionv1.ValidatingWebhook{calls}},
	} {
		w.Name = name
		_, err := api.ValidatingWebhookConfigurations().Create(ctx, w, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			_ = api.ValidatingWebhookConfigurations().Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
	mutating := pair.DeepCopy()
	mutating.ObjectMeta = metav1.ObjectMeta{Name: "foreign-mutating", Annotations: hostile("csi-fencepost-inject-" + c.driver)}
	mutating.Webhooks[0].NamespaceSelector = calls.NamespaceSelector
	_, err = api.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = api.MutatingWebhookConfigurations().Delete(context.Background(), mutating.Name, metav1.DeleteOptions{})
	})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		pod, err := create(t, c.namespace, ofVendor(t), nil)
		if err != nil || !hasSidecar(pod) || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == "evil" }) {
			t.Fatalf("another configuration answers for the driver: %v, %+v", err, pod)
		}
	}
	// They lack the authority, for ever. A replica that starts serves all the same.
	other := *h
	other.port, other.probes = freePort(t), fmt.Sprint("localhost:", freePort(t))
	other.start()
}

// All replicas have one certificate. It is made anew without a pod that is refused meanwhile, and what
// somebody takes away of it is back by itself.
func TestTheWebhookKeepsItsCertificate(t *testing.T) {
	single.take(t)
	whole.use(t)
	h, c := guardedByWebhook(t, "certificate")
	secrets := whole.admin.CoreV1().Secrets(h.namespace)
	served := func(h *hook) []byte {
		connection, err := tls.Dial("tcp", fmt.Sprint("localhost:", h.port), &tls.Config{InsecureSkipVerify: true})
		must(t, err)
		defer connection.Close()
		return connection.ConnectionState().PeerCertificates[0].Raw
	}
	other := *h // another replica
	other.port, other.probes = freePort(t), fmt.Sprint("localhost:", freePort(t))
	other.start()
	first := served(h)
	if !bytes.Equal(served(&other), first) {
		t.Error("two replicas have two certificates")
	}

	// Somebody puts a certificate there that ends in ten minutes.
	secret, err := secrets.Get(t.Context(), h.name, metav1.GetOptions{})
	must(t, err)
	short, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: h.name + "." + h.namespace + ".svc", MaxAge: 70 * time.Minute})
	must(t, err)
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = short, key
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	must(t, err)
	for deadline := time.Now().Add(time.Minute); bytes.Equal(served(h), first) || bytes.Equal(served(&other), first); time.Sleep(100 * time.Millisecond) {
		if err := h.guards(c); err != nil || time.Now().After(deadline) {
			t.Fatalf("while it gets a new certificate: %v\n%s", err, h.log)
		}
	}
	if !bytes.Equal(served(h), served(&other)) {
		t.Error("two replicas have two certificates after it was made anew")
	}
	must(t, h.guards(c))

	// Somebody takes its authority out of a configuration, then all of it away.
	name := "csi-fencepost-inject-" + c.driver
	_, err = whole.admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(t.Context(), name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`), metav1.PatchOptions{})
	must(t, err)
	h.wait("it is trusted again", func() bool {
		got, err := whole.admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && len(got.Webhooks[0].ClientConfig.CABundle) > 0 && h.guards(c) == nil
	})
	must(t, secrets.Delete(t.Context(), h.name, metav1.DeleteOptions{}))
	_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: h.name}}, metav1.CreateOptions{}) // the next upgrade of the release
	must(t, err)
	second := served(h)
	for deadline := time.Now().Add(time.Minute); bytes.Equal(served(h), second) || bytes.Equal(served(&other), second); time.Sleep(100 * time.Millisecond) {
		if err := h.guards(c); err != nil || time.Now().After(deadline) {
			t.Fatalf("while its Secret is made anew: %v\n%s", err, h.log)
		}
	}
	must(t, h.guards(c))
}

// Whoever has the token of the webhook's account writes the authority of its own configurations, and their
// Secret. He makes, removes and changes no other, and of these nothing else.
func TestWhoHasTheWebhooksTokenWritesTheAuthorityOfItsConfigurationsAlone(t *testing.T) {
	single.take(t)
	whole.use(t)
	h, c := guardedByWebhook(t, "token")
	ctx, name := t.Context(), "csi-fencepost-inject-"+c.driver
	client := clientOf(t, h.kubeconfig)
	api, secrets := client.AdmissionregistrationV1(), client.CoreV1().Secrets(h.namespace)
	mutating, validating := api.MutatingWebhookConfigurations(), api.ValidatingWebhookConfigurations()

	// Somebody else's configuration, which calls nobody.
	foreign := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}}
	made, err := whole.admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, foreign, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = whole.admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
	_, err = mutating.List(ctx, metav1.ListOptions{})
	allowed(t, "it reads all webhook configurations", err)
	_, err = secrets.Get(ctx, h.name, metav1.GetOptions{})
	allowed(t, "it reads the Secret of its certificate", err)
	_, err = validating.Patch(ctx, name, types.JSONPatchType, []byte(`[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"WA=="}]`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	allowed(t, "it writes the caBundle of its own", err)
	const nothing = "{}"
	for what, try := range map[string]func() error{
		"read another Secret": func() error { _, err := secrets.Get(ctx, "another", metav1.GetOptions{}); return err },
		"list Secrets":        func() error { _, err := secrets.List(ctx, metav1.ListOptions{}); return err },
		"make a Secret": func() error {
			_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token"}}, metav1.CreateOptions{})
			return err
		},
		"make a Secret that brings the token of another account": func() error {
			_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: h.name + "-token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
				Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{})
			return err
		},
		"change another Secret": func() error {
			_, err := secrets.Patch(ctx, "another", types.MergePatchType, []byte(nothing), metav1.PatchOptions{})
			return err
		},
		"remove another Secret": func() error { return secrets.Delete(ctx, "another", metav1.DeleteOptions{}) },
		"read the Secret of that name elsewhere": func() error {
			_, err := client.CoreV1().Secrets(c.namespace).Get(ctx, h.name, metav1.GetOptions{})
			return err
		},
		"list pods": func() error { _, err := client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{}); return err },
		"make a mutating webhook": func() error {
			_, err := mutating.Create(ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
			return err
		},
		"make a validating webhook": func() error {
			_, err := validating.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
			return err
		},
		"remove its mutating webhook":   func() error { return mutating.Delete(ctx, name, metav1.DeleteOptions{}) },
		"remove its validating webhook": func() error { return validating.Delete(ctx, name, metav1.DeleteOptions{}) },
		"remove all webhooks": func() error {
			return validating.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		},
		"remove somebody else's webhook": func() error { return mutating.Delete(ctx, made.Name, metav1.DeleteOptions{}) },
		"change somebody else's webhook": func() error {
			_, err := mutating.Patch(ctx, made.Name, types.MergePatchType, []byte(nothing), metav1.PatchOptions{})
			return err
		},
		"change a validating webhook of another name": func() error {
			_, err := validating.Patch(ctx, "another", types.MergePatchType, []byte(nothing), metav1.PatchOptions{})
			return err
		},
		"make one by a server-side apply": func() error {
			_, err := mutating.Patch(ctx, "made", types.ApplyPatchType, []byte(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"made"}}`), metav1.PatchOptions{FieldManager: "x"})
			return err
		},
		"remove the policy that bars it": func() error {
			policies, err := whole.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
			must(t, err)
			for _, p := range policies.Items {
				if err := api.ValidatingAdmissionPolicies().Delete(ctx, p.Name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
			}
			return api.ValidatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("it may %s: %v", what, err)
		}
	}
	for what, change := range map[string]string{
		"its rules":            `[{"op":"replace","path":"/webhooks/0/rules/0/resources","value":["*/*"]}]`,
		"its failurePolicy":    `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`,
		"its address":          `[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://evil.example.com"}]`,
		"its path":             `[{"op":"replace","path":"/webhooks/0/clientConfig/service/path","value":"/mutate/other"}]`,
		"whose pods are asked": `[{"op":"remove","path":"/webhooks/0/namespaceSelector"}]`,
		"its conditions":       `[{"op":"remove","path":"/webhooks/0/matchConditions"}]`,
		"what there is":        `[{"op":"remove","path":"/webhooks/0"}]`,
		"its version":          `[{"op":"replace","path":"/webhooks/0/admissionReviewVersions","value":["v1beta1"]}]`,
		"how long it may take": `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1}]`,
		"which requests match": `[{"op":"add","path":"/webhooks/0/matchPolicy","value":"Exact"}]`,
		"whose objects":        `[{"op":"add","path":"/webhooks/0/objectSelector","value":{"matchLabels":{"a":"b"}}}]`,
		"its side effects":     `[{"op":"replace","path":"/webhooks/0/sideEffects","value":"NoneOnDryRun"}]`,
		"by which policy":      `[{"op":"replace","path":"/metadata/annotations/csi-fencepost.io~1policy","value":""}]`,
		"whose release it is":  `[{"op":"remove","path":"/metadata/labels"}]`,
		"with whom it ends":    `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Namespace","name":"gone","uid":"1"}]}]`,
		"how it ends":          `[{"op":"add","path":"/metadata/finalizers","value":["example.com/for-ever"]}]`,
	} {
		for kind, patch := range map[string]func() error{
			"mutating": func() error {
				_, err := mutating.Patch(ctx, name, types.JSONPatchType, []byte(change), metav1.PatchOptions{})
				return err
			},
			"validating": func() error {
				_, err := validating.Patch(ctx, name, types.JSONPatchType, []byte(change), metav1.PatchOptions{})
				return err
			},
		} {
			if err := patch(); err == nil || !strings.Contains(err.Error(), "may write the caBundle of its webhooks, and nothing else") {
				t.Errorf("%s, %s: %v", kind, what, err)
			}
		}
	}
}
