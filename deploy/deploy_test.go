package deploy

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

var names = Names{Namespace: "storage", ServiceAccount: "array-controller", Driver: "array.example.com"}

// parse reads a stream of manifests; an unknown or repeated field is an error.
func parse(t *testing.T, manifests []byte) (objects []runtime.Object) {
	t.Helper()
	strict := serializer.NewCodecFactory(clientscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(manifests)))
	defer documents.Close()
	buffer := make([]byte, len(manifests))
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		object, _, err := strict.Decode(buffer[:n], nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, buffer[:n])
		}
		objects = append(objects, object)
	}
}

// The end of one driver's release takes nothing from another's: not its rights, nor
// the nodes' records in the namespace.
func TestWhatDriversShareOutlivesARelease(t *testing.T) {
	text, err := Failover(names)
	if err != nil {
		t.Fatal(err)
	}
	other := names
	other.Driver, other.Namespace, other.ServiceAccount = "file.example.com", "files", "files-controller"
	theirs, err := Failover(other)
	if err != nil {
		t.Fatal(err)
	}
	shared := map[string]bool{}
	key := func(o runtime.Object) string {
		m := o.(metav1.Object)
		return o.GetObjectKind().GroupVersionKind().Kind + " " + m.GetNamespace() + "/" + m.GetName()
	}
	for _, o := range parse(t, theirs) {
		shared[key(o)] = true
	}
	kept := 0
	for _, o := range parse(t, text) {
		keep := o.(metav1.Object).GetAnnotations()["helm.sh/resource-policy"] == "keep"
		if keep != shared[key(o)] {
			t.Errorf("%s: shared %t, kept when a Helm release ends %t", key(o), shared[key(o)], keep)
		}
		if keep {
			kept++
		}
	}
	if kept < 5 {
		t.Errorf("%d objects are kept", kept)
	}
}

func TestEveryManifestIsStrictlyValid(t *testing.T) {
	files := 0
	err := fs.WalkDir(Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		text, err := Files.ReadFile(path)
		if err != nil {
			return err
		}
		if objects := parse(t, text); len(objects) == 0 {
			t.Errorf("%s holds no object", path)
		}
		return nil
	})
	if err != nil || files != 13 {
		t.Errorf("%d files, want 13: %v", files, err)
	}
}

// rights are "where: group/resource[/name] verb" of every rule that is bound to
// the service account, or, with its name before, to KubeletAccount.
func rights(t *testing.T, manifests []byte, account Names) map[string]bool {
	t.Helper()
	rules, all := map[string][]rbacv1.PolicyRule{}, map[string]bool{}
	objects := parse(t, manifests)
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rules["/"+role.Name] = role.Rules
		case *rbacv1.Role:
			rules[role.Namespace+"/"+role.Name] = role.Rules
		}
	}
	grant := func(where, role string, subjects []rbacv1.Subject) {
		want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.ServiceAccount, Namespace: account.Namespace}}
		whose := ""
		if slices.Equal(subjects, []rbacv1.Subject{{Kind: "ServiceAccount", Name: KubeletAccount, Namespace: "csi-fencepost"}}) {
			whose = KubeletAccount + " "
		} else if !slices.Equal(subjects, want) {
			t.Errorf("%s is bound to %v", role, subjects)
		}
		if len(rules[where+"/"+role]) == 0 {
			t.Errorf("a binding in %q names %s, which is not there", where, role)
		}
		for _, rule := range rules[where+"/"+role] {
			expand(rule, func(right string) { all[whose+where+": "+right] = true })
		}
		delete(rules, where+"/"+role)
	}
	for _, object := range objects {
		switch binding := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			grant("", binding.RoleRef.Name, binding.Subjects)
		case *rbacv1.RoleBinding:
			grant(binding.Namespace, binding.RoleRef.Name, binding.Subjects)
		}
	}
	for unbound := range rules {
		t.Errorf("role %s is bound to nobody", unbound)
	}
	return all
}

func expand(rule rbacv1.PolicyRule, each func(right string)) {
	objects := rule.ResourceNames
	if len(objects) == 0 {
		objects = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range objects {
				for _, verb := range rule.Verbs {
					each(strings.TrimSuffix(group+"/"+resource+"/"+name, "/") + " " + verb)
				}
			}
		}
	}
}

// A right more is a right that a stolen token has: whoever adds one writes it
// here as well.
func TestRBACIsTheLeast(t *testing.T) {
	observe := []string{
		": /events create", ": /events patch", ": events.k8s.io/events create", ": events.k8s.io/events patch",
		": /namespaces/kube-system get",
		": /nodes get", ": /nodes list", ": /nodes watch",
		": /persistentvolumes get", ": /persistentvolumes list", ": /persistentvolumes watch",
		": /pods list",
		": storage.k8s.io/csinodes get", ": storage.k8s.io/csinodes list", ": storage.k8s.io/csinodes watch",
		": storage.k8s.io/volumeattachments get", ": storage.k8s.io/volumeattachments list", ": storage.k8s.io/volumeattachments watch",
		"csi-fencepost: coordination.k8s.io/leases get", "csi-fencepost: coordination.k8s.io/leases list", "csi-fencepost: coordination.k8s.io/leases watch",
		"kube-node-lease: coordination.k8s.io/leases get", "kube-node-lease: coordination.k8s.io/leases list", "kube-node-lease: coordination.k8s.io/leases watch",
		": csiaddons.openshift.io/networkfences get", ": csiaddons.openshift.io/networkfences list", ": csiaddons.openshift.io/networkfences watch",
		": csiaddons.openshift.io/networkfenceclasses get", ": csiaddons.openshift.io/networkfenceclasses list", ": csiaddons.openshift.io/networkfenceclasses watch",
		": fence-agents-remediation.medik8s.io/fenceagentsremediations get", ": fence-agents-remediation.medik8s.io/fenceagentsremediations list", ": fence-agents-remediation.medik8s.io/fenceagentsremediations watch",
		": self-node-remediation.medik8s.io/selfnoderemediations get", ": self-node-remediation.medik8s.io/selfnoderemediations list", ": self-node-remediation.medik8s.io/selfnoderemediations watch",
		"storage: coordination.k8s.io/leases create",
		"storage: coordination.k8s.io/leases/csi-fencepost-leader-array.example.com get",
		"storage: coordination.k8s.io/leases/csi-fencepost-leader-array.example.com update",
	}
	enforce := append(slices.Clone(observe),
		": /persistentvolumes patch",
		": storage.k8s.io/volumeattachments patch",
		"csi-fencepost: coordination.k8s.io/leases create", "csi-fencepost: coordination.k8s.io/leases update", "csi-fencepost: coordination.k8s.io/leases delete",
		"csi-fencepost: /serviceaccounts/token/csi-fencepost-kubelet create", KubeletAccount+" : /nodes/metrics get",
	)
	failover := append(slices.Clone(enforce), ": /nodes patch", ": /pods delete", ": /persistentvolumeclaims list", ": storage.k8s.io/csidrivers get")
	// Of what the guards may it has no write: no ledger, no VolumeAttachment.
	apart := []string{
		": rbac.authorization.k8s.io/clusterrolebindings list",
		": /events create", ": /events patch", ": events.k8s.io/events create", ": events.k8s.io/events patch",
		": /namespaces/kube-system get",
		": /nodes get", ": /nodes list", ": /nodes watch", ": /nodes patch",
		": /persistentvolumes get", ": /persistentvolumes list", ": /persistentvolumes watch",
		": /persistentvolumeclaims list", ": /pods list", ": /pods delete",
		": storage.k8s.io/csinodes get", ": storage.k8s.io/csinodes list", ": storage.k8s.io/csinodes watch", ": storage.k8s.io/csidrivers get",
		": storage.k8s.io/volumeattachments get", ": storage.k8s.io/volumeattachments list", ": storage.k8s.io/volumeattachments watch",
		": csiaddons.openshift.io/networkfences list", ": csiaddons.openshift.io/networkfences watch",
		": fence-agents-remediation.medik8s.io/fenceagentsremediations list", ": fence-agents-remediation.medik8s.io/fenceagentsremediations watch",
		": self-node-remediation.medik8s.io/selfnoderemediations list", ": self-node-remediation.medik8s.io/selfnoderemediations watch",
		"kube-node-lease: coordination.k8s.io/leases get", "kube-node-lease: coordination.k8s.io/leases list", "kube-node-lease: coordination.k8s.io/leases watch",
		"csi-fencepost: coordination.k8s.io/leases get", "csi-fencepost: coordination.k8s.io/leases list", "csi-fencepost: coordination.k8s.io/leases watch",
		"csi-fencepost: coordination.k8s.io/leases create", "csi-fencepost: coordination.k8s.io/leases update", "csi-fencepost: coordination.k8s.io/leases delete",
		"csi-fencepost-failover: coordination.k8s.io/leases create",
		"csi-fencepost-failover: coordination.k8s.io/leases/csi-fencepost-leader-failover get", "csi-fencepost-failover: coordination.k8s.io/leases/csi-fencepost-leader-failover update",
	}
	authorization := []string{": authentication.k8s.io/tokenreviews create", ": authorization.k8s.io/subjectaccessreviews create"}
	for mode, c := range map[string]struct {
		manifests func(Names) ([]byte, error)
		want      []string
	}{"Observe": {Observe, observe}, "Enforce": {Enforce, enforce}, "Failover": {Failover, failover}, "authorization": {Authorization, authorization}, "Apart": {Apart, apart}} {
		manifests, err := c.manifests(names)
		if err != nil {
			t.Fatal(err)
		}
		account := names
		if mode == "Apart" {
			account = Names{Namespace: ApartNamespace, ServiceAccount: ApartAccount}
		}
		got := rights(t, manifests, account)
		for _, right := range c.want {
			if !got[right] {
				t.Errorf("%s: missing right %q", mode, right)
			}
			delete(got, right)
		}
		for right := range got {
			t.Errorf("%s: right too many %q", mode, right)
		}
	}
}

// A sidecar of this version that was not given the account yet is ready as before.
func TestNoModeNeedsTheAccountThatAsksKubelets(t *testing.T) {
	for mode, render := range map[string]func(Names) ([]byte, error){"Enforce": Enforce, "Failover": Failover} {
		needed, err := Rights(render)
		if err != nil || len(needed) == 0 {
			t.Fatalf("%s: %d rights, %v", mode, len(needed), err)
		}
		for _, right := range needed {
			if right.Name == KubeletAccount || strings.Contains(right.Resource, "/") {
				t.Errorf("%s needs %+v", mode, right)
			}
		}
	}
}

func TestNoPlaceholderIsLeft(t *testing.T) {
	manifests, err := Failover(names)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(manifests)) {
		if strings.Contains(line, "${") {
			t.Errorf("left: %s", line)
		}
	}
}

// A name that is none could add rules of its own to the manifest.
func TestWrongNameIsRefused(t *testing.T) {
	for what, change := range map[string]func(*Names){
		"namespace":       func(n *Names) { n.Namespace = "a\nrules: []" },
		"service account": func(n *Names) { n.ServiceAccount = "" },
		"driver":          func(n *Names) { n.Driver = "Array.example.com: x" },
	} {
		n := names
		change(&n)
		for _, render := range []func(Names) ([]byte, error){Observe, Enforce, Failover} {
			if manifests, err := render(n); err == nil || !strings.Contains(err.Error(), "the "+what) || manifests != nil {
				t.Errorf("%s: error %v", what, err)
			}
		}
	}
}

// The point of the whole: the attacher's calls go through csi-fencepost.
func TestAttacherIsPutOntoOurSocket(t *testing.T) {
	text, err := Files.ReadFile("sidecar/patch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := parse(t, text)[0].(*appsv1.Deployment).Spec.Template.Spec
	args, mounts := map[string]string{}, map[string][]corev1.VolumeMount{}
	for _, container := range pod.Containers {
		mounts[container.Name] = container.VolumeMounts
		for _, arg := range container.Args {
			name, value, _ := strings.Cut(arg, "=")
			args[container.Name+" "+name] = value
		}
	}
	socket := args["csi-fencepost --listen"]
	if socket == "" || args["csi-attacher --csi-address"] != socket || args["csi-fencepost --csi-address"] == socket {
		t.Errorf("csi-fencepost listens on %q and asks %q, csi-attacher asks %q", socket, args["csi-fencepost --csi-address"], args["csi-attacher --csi-address"])
	}
	for name, want := range map[string]string{"--timeout": "60s", "--worker-threads": "100", "--kube-api-qps": "100", "--kube-api-burst": "200"} {
		if got := args["csi-attacher "+name]; got != want {
			t.Errorf("csi-attacher %s=%s, want %s", name, got, want)
		}
	}
	for _, container := range []string{"csi-fencepost", "csi-attacher"} {
		if !slices.ContainsFunc(mounts[container], func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(socket, m.MountPath+"/") && m.Name == "fencepost-socket"
		}) {
			t.Errorf("%s does not mount the folder of %s", container, socket)
		}
	}
}

// A limit that is reached ends the sidecar, and whatever it guards waits: it is far above
// what was measured.
func TestTheSidecarsMemoryIsBoundedAndItsCPUIsNot(t *testing.T) {
	text, err := Files.ReadFile("sidecar/patch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := parse(t, text)[0].(*appsv1.Deployment).Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "csi-fencepost" })
	limits := pod.Containers[i].Resources.Limits
	if got := limits.Memory().Value(); got < 1<<30 {
		t.Errorf("memory is limited to %d bytes", got)
	}
	if _, limited := limits[corev1.ResourceCPU]; limited {
		t.Error("CPU is limited")
	}
}

// What people begin with is taken by the program, and changes nothing yet.
func TestSampleConfigurationIsValidAndObserves(t *testing.T) {
	text, err := Files.ReadFile("sidecar/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample := parse(t, text)[0].(*corev1.ConfigMap).Data["config.yaml"]
	c, err := config.Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	if c.Mode != config.Observe {
		t.Errorf("mode %s", c.Mode)
	}
}

// With it failover works as it stands: it moves what a person has confirmed, and turns nothing off.
func TestTheSampleConfigurationOfFailoverIsItsOwn(t *testing.T) {
	text, err := Files.ReadFile("failover/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample := parse(t, text)[0].(*corev1.ConfigMap).Data["config.yaml"]
	for name, text := range map[string]string{"as it is": sample, "with what stands in its comments": strings.ReplaceAll(strings.ReplaceAll(sample, "\n# ", "\n"), "\n#\n", "\n")} {
		if name != "as it is" {
			_, text, _ = strings.Cut(text, "\nfencing:")
			text = "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nfailover: {enabled: true}\nfencing:" + text
		}
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.CheckApart(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if agents := len(c.Fencing.Levels); (agents > 0) == (name == "as it is") {
			t.Errorf("%s it has %d levels", name, agents)
		}
	}
}

func TestTheDeploymentOfFailoverSurvivesANode(t *testing.T) {
	text, err := Files.ReadFile("failover/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, text)[0].(*appsv1.Deployment)
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas != 2 || d.Namespace != ApartNamespace || pod.ServiceAccountName != ApartAccount || pod.PriorityClassName != "system-cluster-critical" {
		t.Errorf("%d replicas in %s, account %s, priority %s", *d.Spec.Replicas, d.Namespace, pod.ServiceAccountName, pod.PriorityClassName)
	}
	apart := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(apart) != 1 || apart[0].TopologyKey != corev1.LabelHostname || !maps.Equal(apart[0].LabelSelector.MatchLabels, d.Spec.Template.Labels) {
		t.Errorf("both replicas may be on one node: %+v", apart)
	}
	c := pod.Containers[0]
	if c.Args[0] != "failover" || !slices.Contains(c.Args, "--leader-election") {
		t.Errorf("it is told %v", c.Args)
	}
	if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("CPU is limited")
	}
	if got := c.Resources.Limits.Memory().Value(); got < 1<<30 {
		t.Errorf("memory is limited to %d bytes", got)
	}
}

// The webhook answers whoever reaches it: what it may use has an end.
func TestTheWebhooksMemoryIsBounded(t *testing.T) {
	text, err := os.ReadFile("injection/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range parse(t, bytes.ReplaceAll(text, []byte("${DRIVER}"), []byte("d"))) {
		if d, is := o.(*appsv1.Deployment); is {
			if got := d.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value(); got != 256<<20 {
				t.Errorf("memory is limited to %d bytes", got)
			}
			return
		}
	}
	t.Error("there is no Deployment")
}

// Of failover's pods all but one namespace reach no port, and it the one of the metrics. What they have to
// reach themselves, BMCs and clouds, nothing closes.
func TestTheNetworkPolicyOfFailoverIsOfOnePort(t *testing.T) {
	text, err := Files.ReadFile("failover/networkpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, bytes.ReplaceAll(text, []byte("${PROMETHEUS}"), []byte("monitoring")))[0].(*networkingv1.NetworkPolicy)
	text, err = Files.ReadFile("failover/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, text)[0].(*appsv1.Deployment)
	port := slices.IndexFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == "fencepost" })
	if p.Namespace != d.Namespace || !maps.Equal(p.Spec.PodSelector.MatchLabels, d.Spec.Selector.MatchLabels) || !slices.Equal(p.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) || len(p.Spec.Egress) > 0 {
		t.Errorf("it is for %s in %s, of %v", p.Spec.PodSelector.MatchLabels, p.Namespace, p.Spec.PolicyTypes)
	}
	if len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) != 1 || p.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "monitoring" ||
		len(p.Spec.Ingress[0].Ports) != 1 || port < 0 || p.Spec.Ingress[0].Ports[0].Port.IntVal != d.Spec.Template.Spec.Containers[0].Ports[port].ContainerPort {
		t.Errorf("it lets in %+v", p.Spec.Ingress)
	}
}
