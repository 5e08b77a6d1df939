package kubeapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// sidecarOfEvidence may only do what evidenceRights and the records need.
var sidecarOfEvidence kubernetes.Interface

func prepareEvidence(ctx context.Context, cluster *controlplane.Cluster) error {
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
	if sidecarOfEvidence, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return grantEvidenceRights(ctx)
}

// grantEvidenceRights gives the sidecar its rights.
func grantEvidenceRights(ctx context.Context) error {
	rules := append([]rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: []string{"list"}},
	}, evidenceRights...)
	roles := whole.admin.RbacV1()
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

// customKind is a custom resource of another project, on one of the API servers.
type customKind struct {
	name, plural, group, scope string
	server                     *server
}

var (
	networkFence    = customKind{"NetworkFence", "networkfences", "csiaddons.openshift.io", "Cluster", whole}
	fenceClass      = customKind{"NetworkFenceClass", "networkfenceclasses", "csiaddons.openshift.io", "Cluster", whole}
	remediation     = customKind{"FenceAgentsRemediation", "fenceagentsremediations", "fence-agents-remediation.medik8s.io", "Namespaced", whole}
	selfRemediation = customKind{"SelfNodeRemediation", "selfnoderemediations", "self-node-remediation.medik8s.io", "Namespaced", whole}
)

// at is the kind on another API server.
func (k customKind) at(s *server) customKind { k.server = s; return k }

func (k customKind) path(name string) string {
	path := "/apis/" + k.group + "/v1alpha1/"
	if k.scope == "Namespaced" {
		path += "namespaces/default/"
	}
	return strings.TrimSuffix(path+k.plural+"/"+name, "/")
}

type fields map[string]any

// install adds the definition and waits until it is served.
func (k customKind) install(t *testing.T) {
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
	must(t, k.server.sendJSON(t, "POST", path, definition, nil))
	t.Cleanup(func() {
		must(t, k.server.admin.CoreV1().RESTClient().Delete().AbsPath(path+"/"+k.plural+"."+k.group).Do(context.Background()).Error())
		eventually(t, k.name+" is gone", func() bool { return !k.served() })
	})
	eventually(t, k.name+" is served", k.served)
}

func (k customKind) served() bool {
	err := k.server.admin.CoreV1().RESTClient().Get().AbsPath(k.path("")).SetHeader("Accept", "application/json").Do(context.Background()).Error()
	return err == nil
}

// put creates the object, or replaces it, with its status.
func (k customKind) put(t *testing.T, name string, spec, status fields) {
	t.Helper()
	object := fields{"apiVersion": k.group + "/v1alpha1", "kind": k.name, "metadata": fields{"name": name}, "spec": spec, "status": status}
	var stored struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := k.server.sendJSON(t, "POST", k.path(""), object, &stored)
	if apierrors.IsAlreadyExists(err) {
		must(t, k.server.sendJSON(t, "GET", k.path(name), nil, &stored))
		object["metadata"] = fields{"name": name, "resourceVersion": stored.Metadata.ResourceVersion}
		err = k.server.sendJSON(t, "PUT", k.path(name), object, &stored)
	}
	must(t, err)
	object["metadata"] = fields{"name": name, "resourceVersion": stored.Metadata.ResourceVersion}
	must(t, k.server.sendJSON(t, "PUT", k.path(name)+"/status", object, nil))
}

func (k customKind) remove(t *testing.T, name string) {
	t.Helper()
	must(t, k.server.sendJSON(t, "DELETE", k.path(name), nil, nil))
}

func (s *server) sendJSON(t *testing.T, verb, path string, body, out any) error {
	request := s.admin.CoreV1().RESTClient().Verb(verb).AbsPath(path).SetHeader("Accept", "application/json")
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

// addBareNode registers one without a kubelet.
func addBareNode(t *testing.T, name string, addresses ...string) *corev1.Node {
	t.Helper()
	n, err := whole.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, whole.admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
		_ = whole.admin.CoordinationV1().Leases(namespace).Delete(context.Background(), record.LeaseName(name), metav1.DeleteOptions{})
	})
	n.Status.NodeInfo.BootID = "boot-of-" + name
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	n, err = whole.admin.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	must(t, err)
	return n
}

// questionAbout is about the holder on that node, read live but for the lease.
func questionAbout(t *testing.T, n *corev1.Node, driver string) evidence.Question {
	t.Helper()
	live, err := sidecarOfEvidence.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
	must(t, err)
	r, err := sidecarStore().Get(t.Context(), n.Name)
	must(t, err)
	return evidence.Question{
		Holder: fence.Holder{NodeID: "id-" + n.Name, NodeName: n.Name, NodeUID: string(live.UID), BootID: live.Status.NodeInfo.BootID},
		Volume: "vol-1", Driver: driver, Node: live, LeaseRV: "70", Record: r,
	}
}

func sidecarStore() *record.Store {
	return record.NewStore(sidecarOfEvidence.CoordinationV1(), namespace)
}

func sidecarRecords() evidence.Records {
	return evidence.Records{Store: sidecarStore(), Actor: "sidecar"}
}

func askSource(t *testing.T, s evidence.Source, q evidence.Question) []fence.Evidence {
	t.Helper()
	found, err := s.Evidence(t.Context(), q)
	must(t, err)
	return found
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
