package controlplane

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func clientFrom(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAServiceAccountMayDoWhatRBACSays(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	admin := c.Client()
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sidecar"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := c.ServiceAccountKubeconfig(t.Context(), "default", "sidecar")
	if err != nil {
		t.Fatal(err)
	}
	sidecar := clientFrom(t, path)
	if _, err := sidecar.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing nodes without a role: %v, want forbidden", err)
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sidecar"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"}, // may list nodes
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "sidecar"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the role takes effect", func() (bool, string) {
		_, err := sidecar.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})

	path, err = c.Kubeconfig("someone", "somegroup")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFrom(t, path).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing nodes as a user without a role: %v, want forbidden", err)
	}
}

func TestOutagesOfTheControlPlaneBeginAndEnd(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	list := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := clientFrom(t, c.AdminKubeconfig()).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	}
	create := func(namespace string) {
		if _, err := c.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hasAccount := func(namespace string) (bool, string) {
		_, err := c.Client().CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	}

	if err := c.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := list(time.Second); err == nil {
		t.Error("a paused API server answers")
	}
	if err := c.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := list(20 * time.Second); err != nil {
		t.Errorf("after Resume: %v", err)
	}

	c.StopAPIServer()
	if err := list(time.Second); err == nil {
		t.Error("a stopped API server answers")
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := list(20 * time.Second); err != nil {
		t.Errorf("after StartAPIServer, on the same port: %v", err)
	}

	c.StopControllerManager()
	create("one")
	time.Sleep(2 * time.Second)
	if has, _ := hasAccount("one"); has {
		t.Error("a stopped controller manager works on")
	}
	if err := c.StartControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the controller manager does what was left undone", func() (bool, string) { return hasAccount("one") })
}

func TestAnAttacherThatExitsIsStartedAgain(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	n := addNodes(t, c, "n1")[0]
	_, socket := startDriver(t, c, n)
	p, err := c.StartAttacher(AttacherOptions{Address: socket, Restart: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	createVolume(t, c, "pv-1")
	createRunningPod(t, c, podWithVolume("writer", "n1", "pv-1"))
	if got := p.Restarts(); got != 1 {
		t.Errorf("%d restarts, want 1", got)
	}
	if got := filepath.Dir(filepath.Dir(p.LogFile())); got != c.Folder() {
		t.Errorf("log %s is not in the cluster's folder", p.LogFile())
	}
}
