package kubeapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	wiring "github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// onlyReads are the rights that doctor needs, with its bundle.
func onlyReads() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		reads("", "persistentvolumes", "persistentvolumeclaims", "pods", "pods/log", "pods/proxy", "nodes", "namespaces", "configmaps", "events"),
		reads("storage.k8s.io", "volumeattachments", "csinodes", "csidrivers"), reads("coordination.k8s.io", "leases"), reads("apps", "replicasets", "deployments", "statefulsets", "daemonsets"),
		reads("rbac.authorization.k8s.io", "clusterrolebindings", "clusterroles", "roles", "rolebindings"),
		reads("admissionregistration.k8s.io", "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
	}
}

// listener hands requests on to the API server under somebody's credentials, and remembers them.
type listener struct {
	mu       sync.Mutex
	requests []string
}

// between is a kubeconfig whose requests are heard.
func between(t *testing.T, kubeconfig string) (heard *listener, file string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	transport, err := rest.TransportFor(config)
	must(t, err)
	to, err := url.Parse(config.Host)
	must(t, err)
	heard = &listener{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = transport
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard.mu.Lock()
		heard.requests = append(heard.requests, r.Method+" "+r.URL.Path)
		heard.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	c := clientcmdapi.NewConfig()
	c.Clusters["c"], c.Contexts["c"], c.CurrentContext = &clientcmdapi.Cluster{Server: web.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	file = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*c, file))
	return heard, file
}

// controller is a driver's controller pod that is wired through its sidecar, in mode Enforce.
func controller(t *testing.T, calls string) {
	t.Helper()
	drivers, pods := whole.admin.StorageV1().CSIDrivers(), whole.admin.CoreV1().Pods("default")
	_, err := drivers.Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}}, metav1.CreateOptions{})
	must(t, err)
	pod := sidecarPod("controller-0", nil)
	sockets := []corev1.VolumeMount{{Name: "csi", MountPath: "/csi"}, {Name: "f", MountPath: "/f"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "csi"}, {Name: "f"}}
	pod.Spec.Containers[0].VolumeMounts = sockets
	pod.Spec.Containers = append(pod.Spec.Containers,
		corev1.Container{Name: "driver", Image: "registry.example.com/driver:1", Args: []string{"--drivername=" + driver}, VolumeMounts: sockets[:1]},
		corev1.Container{Name: "csi-attacher", Image: "registry.k8s.io/sig-storage/csi-attacher:v4.12.0", Args: []string{"--csi-address=" + calls}, VolumeMounts: sockets})
	_, err = pods.Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	applyAll(t, []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: doctor-attacher}
rules: [{apiGroups: [storage.k8s.io], resources: [volumeattachments/status], verbs: [patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: doctor-attacher}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: doctor-attacher}
subjects: [{kind: ServiceAccount, namespace: default, name: default}]
`))
	t.Cleanup(func() {
		at := int64(0)
		must(t, pods.Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &at}))
		must(t, drivers.Delete(context.Background(), driver, metav1.DeleteOptions{}))
	})
}

// sidecarsLacks is what doctor says of the rights of the driver's sidecar.
func sidecarsLacks(t *testing.T, a answer) []string {
	t.Helper()
	var report struct {
		Drivers []struct {
			Name    string
			Sidecar *struct{ LacksRights []string }
		}
	}
	must(t, json.Unmarshal([]byte(a.stdout), &report))
	for _, d := range report.Drivers {
		if d.Name == driver && d.Sidecar != nil {
			return d.Sidecar.LacksRights
		}
	}
	t.Fatalf("nothing is said of %s:\n%s", driver, a.stdout)
	return nil
}

// Doctor asks to get and to list, of Secrets nothing, with and without a bundle; so it finds all
// with an account that may do no more.
func TestDoctorOnlyReads(t *testing.T) {
	single.take(t)
	whole.use(t)
	held(t, "data")
	controller(t, "/f/csi.sock")
	heard, kubeconfig := between(t, person(t, "doctor-reader", onlyReads()...))
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	a := runAs(t, kubeconfig, "doctor", "--bundle="+file)
	a.says(t, driver+" yes Enforce", "IF A NODE DIED NOW", "2: n1, n2", "its volumes wait for a person: no fence agent covers it", "nodes: not Ready, and they hold 1 volume: n1").saysNot(t, "Missing right")
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("the bundle: %v", err)
	}
	runAs(t, kubeconfig, "doctor", "node/n1").says(t, "Node n1, not Ready", driver+": data")
	if len(heard.requests) < 20 {
		t.Fatalf("only %d requests were heard", len(heard.requests))
	}
	for _, request := range heard.requests {
		if !strings.HasPrefix(request, "GET ") || strings.Contains(request, "/secrets") {
			t.Errorf("doctor asks: %s", request)
		}
	}
}

// What doctor reads out of the Roles is what the API server's own authorizer says.
func TestDoctorSeesTheRightsThatTheAPIServerGives(t *testing.T) {
	single.take(t)
	whole.use(t)
	controller(t, "/f/csi.sock")
	needed, err := deploy.Rights(deploy.Enforce)
	must(t, err)
	lacking := func() []string {
		var missing []authorizationv1.ResourceAttributes
		for _, right := range needed {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:default:default",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}, ResourceAttributes: &right}}
			answer, err := whole.admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			must(t, err)
			if !answer.Status.Allowed {
				missing = append(missing, right)
			}
		}
		return append([]string{}, wiring.RightsInWords(missing)...)
	}
	names := deploy.Names{Namespace: "default", ServiceAccount: "default", Driver: driver}
	for name, render := range map[string]func(deploy.Names) ([]byte, error){"nothing": nil, "Observe": deploy.Observe, "Enforce": deploy.Enforce} {
		t.Run(name, func(t *testing.T) {
			if render != nil {
				manifests, err := render(names)
				must(t, err)
				applyAll(t, manifests)
			}
			a, want := runAdmin(t, "doctor", "-o", "json"), lacking()
			if got := sidecarsLacks(t, a); !slices.Equal(got, want) || (len(want) == 0) != (name == "Enforce") {
				t.Errorf("doctor says that it lacks %q, the API server %q", got, want)
			}
		})
	}
}

// The worst finding is first, and the exit code says so.
func TestDoctorSaysFirstWhoGetsPastTheGuard(t *testing.T) {
	single.take(t)
	whole.use(t)
	controller(t, "/csi/csi.sock")
	a := runAdmin(t, "doctor").ends(t, 1)
	if first := strings.Split(a.stdout, "\n")[2]; !strings.HasPrefix(first, "BROKEN        "+driver+": NOT GUARDED although csi-fencepost is there") {
		t.Errorf("the first finding is %q", first)
	}
}

// Where rights are missing they are named, and the rest goes on.
func TestDoctorNamesTheRightsThatItLacks(t *testing.T) {
	single.take(t)
	whole.use(t)
	held(t, "data")
	controller(t, "/f/csi.sock")
	few := person(t, "doctor-few", reads("", "nodes", "persistentvolumes"), reads("storage.k8s.io", "csidrivers", "csinodes"))
	runAs(t, few, "doctor").says(t, "Not all could be seen", "list pods", "list clusterrolebindings", "get namespaces kube-system", driver+" unknown", "not known: no external-attacher of the driver was seen")
}
