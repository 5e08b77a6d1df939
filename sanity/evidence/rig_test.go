package evidence

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

const namespace = "csi-fencepost"

// shared is the API server of all tests; admin may do anything there, sidecar
// only what Rules and the records need.
var shared struct{ admin, sidecar kubernetes.Interface }

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(controlplane.RunTests(m, share))
}

func share(ctx context.Context, cluster *controlplane.Cluster) error {
	shared.admin = cluster.Client()
	kubeconfig, err := cluster.Kubeconfig("sidecar")
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// As the sidecar's own client.
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	if shared.sidecar, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if _, err := shared.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return grant(ctx)
}

// grant gives the sidecar its rights.
func grant(ctx context.Context) error {
	rules := append([]rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list"}},
	}, Rules...)
	roles := shared.admin.RbacV1()
	if _, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sidecar"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sidecar"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sidecar"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "sidecar"}},
	}, metav1.CreateOptions{})
	return err
}

// kind is a custom resource of another project.
type kind struct {
	name, plural, group, scope string
}

var (
	networkFence = kind{"NetworkFence", "networkfences", "csiaddons.openshift.io", "Cluster"}
	class        = kind{"NetworkFenceClass", "networkfenceclasses", "csiaddons.openshift.io", "Cluster"}
	far          = kind{"FenceAgentsRemediation", "fenceagentsremediations", "fence-agents-remediation.medik8s.io", "Namespaced"}
	snr          = kind{"SelfNodeRemediation", "selfnoderemediations", "self-node-remediation.medik8s.io", "Namespaced"}
)

func (k kind) path(name string) string {
	path := "/apis/" + k.group + "/v1alpha1/"
	if k.scope == "Namespaced" {
		path += "namespaces/default/"
	}
	return strings.TrimSuffix(path+k.plural+"/"+name, "/")
}

type fields map[string]any

// install adds the definition and waits until it is served.
func (k kind) install(t *testing.T) {
	t.Helper()
	open := fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	definition := fields{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": fields{"name": k.plural + "." + k.group},
		"spec": fields{
			"group": k.group, "scope": k.scope, "names": fields{"kind": k.name, "plural": k.plural},
			"versions": []any{fields{"name": "v1alpha1", "served": true, "storage": true, "subresources": fields{"status": fields{}},
				"schema": fields{"openAPIV3Schema": fields{"type": "object", "properties": fields{"spec": open, "status": open}}}}},
		},
	}
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	must(t, send(t, "POST", path, definition, nil))
	t.Cleanup(func() {
		must(t, shared.admin.CoreV1().RESTClient().Delete().AbsPath(path+"/"+k.plural+"."+k.group).Do(context.Background()).Error())
		eventually(t, k.name+" is gone", func() bool { return !k.served() })
	})
	eventually(t, k.name+" is served", k.served)
}

func (k kind) served() bool {
	err := shared.admin.CoreV1().RESTClient().Get().AbsPath(k.path("")).SetHeader("Accept", "application/json").Do(context.Background()).Error()
	return err == nil
}

// put creates the object, or replaces it, with its status.
func (k kind) put(t *testing.T, name string, spec, status fields) {
	t.Helper()
	object := fields{"apiVersion": k.group + "/v1alpha1", "kind": k.name, "metadata": fields{"name": name}, "spec": spec, "status": status}
	var stored struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := send(t, "POST", k.path(""), object, &stored)
	if apierrors.IsAlreadyExists(err) {
		must(t, send(t, "GET", k.path(name), nil, &stored))
		object["metadata"] = fields{"name": name, "resourceVersion": stored.Metadata.ResourceVersion}
		err = send(t, "PUT", k.path(name), object, &stored)
	}
	must(t, err)
	object["metadata"] = fields{"name": name, "resourceVersion": stored.Metadata.ResourceVersion}
	must(t, send(t, "PUT", k.path(name)+"/status", object, nil))
}

func (k kind) remove(t *testing.T, name string) {
	t.Helper()
	must(t, send(t, "DELETE", k.path(name), nil, nil))
}

func send(t *testing.T, verb, path string, body, out any) error {
	request := shared.admin.CoreV1().RESTClient().Verb(verb).AbsPath(path).SetHeader("Accept", "application/json")
	if body != nil {
		text, err := json.Marshal(body)
		must(t, err)
		request = request.SetHeader("Content-Type", "application/json").Body(text)
	}
	raw, err := request.Do(t.Context()).Raw()
	if err == nil && out != nil {
		err = json.Unmarshal(raw, out)
	}
	return err
}

// node registers one without a kubelet.
func node(t *testing.T, name string, addresses ...string) *corev1.Node {
	t.Helper()
	n, err := shared.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, shared.admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
	n.Status.NodeInfo.BootID = "boot-of-" + name
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	n, err = shared.admin.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	must(t, err)
	return n
}

// question is about the holder on that node, read live but for the lease.
func question(t *testing.T, n *corev1.Node, driver string) evidence.Question {
	t.Helper()
	live, err := shared.sidecar.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
	must(t, err)
	r, err := store().Get(t.Context(), n.Name)
	must(t, err)
	return evidence.Question{
		Holder: fence.Holder{NodeID: "id-" + n.Name, NodeName: n.Name, NodeUID: string(live.UID), BootID: live.Status.NodeInfo.BootID},
		Volume: "vol-1", Driver: driver, Node: live, LeaseRV: "70", Record: r,
	}
}

func store() *record.Store { return record.NewStore(shared.sidecar.CoordinationV1(), namespace) }

func records() evidence.Records { return evidence.Records{Store: store(), Actor: "sidecar"} }

func ask(t *testing.T, s evidence.Source, q evidence.Question) []fence.Evidence {
	t.Helper()
	found, err := s.Evidence(t.Context(), q)
	must(t, err)
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
