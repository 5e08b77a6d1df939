package bed

import (
	"bytes"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/csi-fencepost/csi-fencepost/deploy"
)

const controllerAccount = "driver-controller"

// rights gives the driver's service account what deploy/rbac ships, and nothing
// more.
func (s *Stage) rights() {
	s.T.Helper()
	_, err := s.Client.CoreV1().ServiceAccounts(s.Name).Create(s.ctx(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: controllerAccount}}, metav1.CreateOptions{})
	s.must("service account", err)
	names := deploy.Names{Namespace: s.Name, ServiceAccount: controllerAccount, Driver: s.Driver}
	render := deploy.Enforce
	switch {
	case s.Options.ObserveRights:
		render = deploy.Observe
	case s.Options.Failover:
		render = deploy.Failover
	}
	manifests, err := render(names)
	s.must("RBAC of deploy/", err)
	if s.Options.Rights != nil {
		manifests = []byte(s.Options.Rights(string(manifests)))
	}
	s.Apply(manifests)
}

// Apply applies manifests as `kubectl apply --server-side` does.
func (s *Stage) Apply(manifests []byte) {
	s.T.Helper()
	s.apply(s.objects(manifests))
}

// objects reads a stream of manifests.
func (s *Stage) objects(manifests []byte) (objects []*unstructured.Unstructured) {
	s.T.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return objects
		}
		s.must("manifest", err)
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}

func (s *Stage) apply(objects []*unstructured.Unstructured) {
	s.T.Helper()
	admin := s.Bed.Cluster.Admin()
	disco, err := discovery.NewDiscoveryClientForConfig(admin)
	s.must("discovery", err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	client, err := dynamic.NewForConfig(admin)
	s.must("client", err)
	for _, obj := range objects {
		mapping, err := mapper.RESTMapping(obj.GroupVersionKind().GroupKind(), obj.GroupVersionKind().Version)
		s.must("kind "+obj.GetKind(), err)
		var api dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if obj.GetNamespace() != "" {
			api = client.Resource(mapping.Resource).Namespace(obj.GetNamespace())
		}
		_, err = api.Apply(s.ctx(), obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "bed", Force: true})
		if apierrors.IsConflict(err) {
			_, err = api.Apply(s.ctx(), obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "bed", Force: true})
		}
		s.must("apply "+obj.GetKind()+" "+obj.GetName(), err)
	}
}

// serviceAccount is a kubeconfig of the driver's service account.
func (s *Stage) serviceAccount() string {
	s.T.Helper()
	path, err := s.Bed.Cluster.ServiceAccountKubeconfig(s.ctx(), s.Name, controllerAccount)
	s.must("token of the service account", err)
	return path
}
