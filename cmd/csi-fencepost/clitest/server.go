package clitest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	Driver  = "disk.example.com"
	Handle  = "vol-0001"
	Cluster = "cluster-uid"
)

// kinds by resource, as lists name them.
var kinds = map[string]string{
	"persistentvolumes": "v1 PersistentVolume", "persistentvolumeclaims": "v1 PersistentVolumeClaim", "pods": "v1 Pod", "nodes": "v1 Node", "namespaces": "v1 Namespace",
	"volumeattachments": "storage.k8s.io/v1 VolumeAttachment", "csinodes": "storage.k8s.io/v1 CSINode", "csidrivers": "storage.k8s.io/v1 CSIDriver",
	"leases": "coordination.k8s.io/v1 Lease", "clusterrolebindings": "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
	"clusterroles": "rbac.authorization.k8s.io/v1 ClusterRole", "roles": "rbac.authorization.k8s.io/v1 Role", "rolebindings": "rbac.authorization.k8s.io/v1 RoleBinding",
	"validatingadmissionpolicies": "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy", "validatingadmissionpolicybindings": "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
}

// APIServer serves objects over HTTP as kube-apiserver does, as far as the
// commands ask: get, list, create and update with optimistic concurrency,
// Forbidden by verb and resource, and who asks.
type APIServer struct {
	t *testing.T
	// Forbidden holds "verb resource", or "verb resource/namespace".
	Forbidden map[string]bool
	user      string

	mu      sync.Mutex
	version int
	objects map[string]map[string]any // by path
	Writes  int
}

// NewAPI starts a server with a cluster identity, and returns it with the flag
// that has a command use it.
func NewAPI(t *testing.T) (*APIServer, string) {
	t.Helper()
	a := &APIServer{t: t, Forbidden: map[string]bool{}, user: "alice", objects: map[string]map[string]any{}, version: 100}
	web := httptest.NewServer(a)
	t.Cleanup(web.Close)
	a.Put("/api/v1/namespaces/kube-system", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: Cluster}})
	a.Put("/api/v1/namespaces/csi-fencepost", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "csi-fencepost", UID: "ns"}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: web.URL}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return a, "--kubeconfig=" + file
}

// Put stores an object past all checks.
func (a *APIServer) Put(path string, object any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, err := json.Marshal(object)
	if err != nil {
		a.t.Fatal(err)
	}
	var stored map[string]any
	if err := json.Unmarshal(text, &stored); err != nil {
		a.t.Fatal(err)
	}
	a.storeLocked(path, stored)
}

func (a *APIServer) storeLocked(path string, object map[string]any) map[string]any {
	a.version++
	object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[path] = object
	return object
}

func (a *APIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, out := http.StatusOK, any(nil)
	object, err := a.serve(r)
	if out = object; err != nil {
		status := err.Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code, out = int(status.Code), status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(out); err != nil {
		a.t.Error(err)
	}
}

func (a *APIServer) serve(r *http.Request) (map[string]any, *apierrors.StatusError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource, namespace, name := split(r.URL.Path)
	gr := schema.GroupResource{Resource: resource}
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update"}[r.Method]
	if verb == "get" && name == "" {
		verb = "list"
	}
	if a.Forbidden[verb+" "+resource] || a.Forbidden[verb+" "+resource+"/"+namespace] {
		return nil, apierrors.NewForbidden(gr, name, errors.New("no right"))
	}
	switch {
	case resource == "selfsubjectreviews":
		return map[string]any{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "status": map[string]any{"userInfo": map[string]any{"username": a.user}}}, nil
	case verb == "list":
		return a.listLocked(resource, r.URL.Path), nil
	case verb == "get":
		if object := a.objects[r.URL.Path]; object != nil {
			return a.typed(resource, object), nil
		}
		return nil, apierrors.NewNotFound(gr, name)
	}
	return a.writeLocked(verb, gr, r)
}

func (a *APIServer) writeLocked(verb string, gr schema.GroupResource, r *http.Request) (map[string]any, *apierrors.StatusError) {
	in, err := decoded(r.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	meta := in["metadata"].(map[string]any)
	at := r.URL.Path
	if verb == "create" {
		at = path.Join(at, meta["name"].(string))
	}
	stored := a.objects[at]
	switch {
	case verb == "create" && stored != nil:
		return nil, apierrors.NewAlreadyExists(gr, at)
	case verb == "update" && stored == nil:
		return nil, apierrors.NewNotFound(gr, at)
	case verb == "update" && meta["resourceVersion"] != stored["metadata"].(map[string]any)["resourceVersion"]:
		return nil, apierrors.NewConflict(gr, at, errors.New("changed"))
	}
	a.Writes++
	return a.typed(gr.Resource, a.storeLocked(at, in)), nil
}

// decoded reads a body in JSON or protobuf, whichever the client chose.
func decoded(body io.Reader) (map[string]any, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(object)
}

func (a *APIServer) listLocked(resource, at string) map[string]any {
	kind, items := kinds[resource], []any{}
	for p, object := range a.objects {
		if path.Dir(p) == at {
			items = append(items, object)
		}
	}
	version, name, _ := strings.Cut(kind, " ")
	return map[string]any{"kind": name + "List", "apiVersion": version, "metadata": map[string]any{}, "items": items}
}

func (a *APIServer) typed(resource string, object map[string]any) map[string]any {
	version, name, ok := strings.Cut(kinds[resource], " ")
	if !ok {
		a.t.Errorf("no kind for resource %s", resource)
	}
	object["kind"], object["apiVersion"] = name, version
	return object
}

// split takes a request's path apart. A Namespace is its own namespace.
func split(p string) (resource, namespace, name string) {
	parts := strings.Split(strings.Trim(p, "/"), "/")
	parts = parts[2:] // api/v1
	if strings.HasPrefix(p, "/apis/") {
		parts = parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	return parts[0], namespace, name
}

// DeleteRecord deletes a node's record.
func (a *APIServer) DeleteRecord(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, "/apis/coordination.k8s.io/v1/namespaces/csi-fencepost/leases/"+record.LeaseName(node))
}

// Record reads a node's record as the sidecar does.
func (a *APIServer) Record(node string) *record.Record {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	object := a.objects["/apis/coordination.k8s.io/v1/namespaces/csi-fencepost/leases/"+record.LeaseName(node)]
	if object == nil {
		return nil
	}
	lease := &coordinationv1.Lease{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, lease)
	r, err2 := record.FromLease(lease, node)
	if err = errors.Join(err, err2); err != nil {
		a.t.Fatal(err)
	}
	return r
}

// Unvouch is what a build from before leaves of a record that it writes: nobody vouches for
// what it says.
func (a *APIServer) Unvouch(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	object := a.objects["/apis/coordination.k8s.io/v1/namespaces/csi-fencepost/leases/"+record.LeaseName(node)]
	delete(object["metadata"].(map[string]any)["annotations"].(map[string]any), record.FencedAnnotation)
}

// AddPV stores a PersistentVolume of the test's volume, and its ledger.
func (a *APIServer) AddPV(name string, entries ...ledger.Entry) *corev1.PersistentVolume {
	pv := PV(name, entries...)
	a.Put("/api/v1/persistentvolumes/"+name, pv)
	return pv
}

func PV(name string, entries ...ledger.Entry) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data-0"}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: Handle}
	if entries != nil {
		l := ledger.Ledger{Version: 1, Driver: Driver, Handle: Handle, Cluster: Cluster, PVUID: string(pv.UID), Holders: entries}
		pv.Annotations = map[string]string{ledger.Annotation: l.String()}
	}
	return pv
}

// AddNode stores a Node, its CSINode and its lease.
func (a *APIServer) AddNode(name, uid, bootID, nodeID string, change ...func(*corev1.Node)) {
	node := Node(name, uid, bootID)
	for _, c := range change {
		c(node)
	}
	a.Put("/api/v1/nodes/"+name, node)
	a.Put("/apis/storage.k8s.io/v1/csinodes/"+name, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: Driver, NodeID: nodeID}}}})
	a.Put("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"}})
}

func Node(name, uid, bootID string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	node.Status.NodeInfo.BootID = bootID
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	return node
}

func InUse(n *corev1.Node) {
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/" + Driver + "^" + Handle}
}

func ListedAttached(n *corev1.Node) {
	n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/" + Driver + "^" + Handle}}
}

func Entry(nodeID, node, uid, bootID string, state fence.State) ledger.Entry {
	return ledger.Entry{NodeID: nodeID, NodeName: node, NodeUID: uid, BootID: bootID, Token: "token-" + nodeID, State: state}
}

// Line runs a command line of the table and asserts its exit code.
func Line(t *testing.T, table []cli.Command, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	if code := cli.Run(context.Background(), table, args, &out, &errs); code != want {
		t.Fatalf("%v: exit code %d, want %d\nstdout: %s\nstderr: %s", args, code, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// Says asserts that a text has all parts.
func Says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

// AddAttachment stores the VolumeAttachment of pv-1 on a node.
func (a *APIServer) AddAttachment(node string, attached bool) {
	a.AddAttachmentOf(Driver, Handle, "pv-1", node, attached)
}

// AddAttachmentOf adds one of another driver.
func (a *APIServer) AddAttachmentOf(driver, handle, pv, node string, attached bool) {
	name := csi.AttachmentName(handle, driver, node)
	a.Put("/apis/storage.k8s.io/v1/volumeattachments/"+name, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "va-uid"},
		Spec:   storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		Status: storagev1.VolumeAttachmentStatus{Attached: attached}})
}

// ReadFile returns a file of the repository.
func ReadFile(t *testing.T, name string) string {
	t.Helper()
	root, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatal("there is no go.mod above")
		}
		root = filepath.Dir(root)
	}
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// KubeletReady has the Node's kubelet say that it is ready.
func KubeletReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }
