package failover

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

var (
	onReal    = flag.Bool("real", false, "play on a real API server and in real time (minutes; make prove), not on its model")
	outcomeTo = flag.String("result", "", "write a sanity/prove/result.Result to this file")
)

// plays are what was run with -real, for the result.
var plays struct {
	mu     sync.Mutex
	count  int
	failed []string
}

func note(t *testing.T) {
	plays.mu.Lock()
	defer plays.mu.Unlock()
	plays.count++
	if t.Failed() {
		plays.failed = append(plays.failed, t.Name()+" failed on a real API server")
	}
}

// play runs a test on the model of the API server, on a clock of its own: no
// machine is too slow for it, and its waits cost nothing. With -real it runs on
// a real API server.
func play(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if *onReal {
		t.Cleanup(func() { note(t) })
		test(t)
		return
	}
	synctest.Test(t, test)
}

// played is a subtest that is run with play.
func played(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { play(t, test) }
}

// server is the API server of a world, with no controllers: the tests play them.
type server interface {
	Client() kubernetes.Interface
	Admin() *rest.Config
	StopAPIServer()
	StartAPIServer(context.Context) error
	// forbidDeletion has it refuse the deletion of these pods, as a webhook would
	// whose server was on the node.
	forbidDeletion(w *world, pods []string)
}

func newServer(t *testing.T) server {
	t.Helper()
	if *onReal {
		return realServer{apiServer(t)}
	}
	m := &modelled{Server: apiserver.New(apiserver.Options{})}
	apiserver.Put(m.Server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: recordNamespace}})
	m.client = kubernetes.NewForConfigOrDie(m.Admin())
	t.Cleanup(func() {
		if c := m.Complaints(); len(c) > 0 {
			t.Errorf("the model of the API server complains: %q", c)
		}
	})
	return m
}

// modelled is the model, and the gate before it.
type modelled struct {
	*apiserver.Server
	client kubernetes.Interface

	mu      sync.Mutex
	away    bool
	guarded []string // pods that cannot be deleted
}

func (m *modelled) Client() kubernetes.Interface { return m.client }
func (m *modelled) Admin() *rest.Config          { return m.Config("test", m) }

// StopAPIServer implements server: connections break, and nothing listens.
func (m *modelled) StopAPIServer() {
	m.mu.Lock()
	m.away = true
	m.mu.Unlock()
	for _, w := range m.Watches() {
		w.Cut(apiserver.ErrBroken)
	}
}

// StartAPIServer implements server.
func (m *modelled) StartAPIServer(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = false
	return nil
}

// Admit implements apiserver.Gate.
func (m *modelled) Admit(_ context.Context, r apiserver.Request) apiserver.Fate {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.away:
		return apiserver.Fate{How: apiserver.Fail, Err: apiserver.Refused}
	case r.Verb == apiserver.Delete && r.Resource == "pods" && slices.Contains(m.guarded, r.Name):
		return apiserver.Fate{How: apiserver.Fail, Err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, r.Name, errors.New("it is kept"))}
	}
	return apiserver.Fate{}
}

// Deliver implements apiserver.Gate.
func (m *modelled) Deliver(context.Context, apiserver.Event) apiserver.Passage {
	return apiserver.Passage{}
}

func (m *modelled) forbidDeletion(_ *world, pods []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.guarded = pods
}

// realServer is a kube-apiserver that all tests share.
type realServer struct{ *controlplane.Cluster }

var plane struct {
	once    sync.Once
	cluster *controlplane.Cluster
	err     error
}

func TestMain(m *testing.M) {
	flag.Parse()
	if !*onReal {
		// The second of client-go's handlers remembers when the last error was, on
		// whichever clock that happened, and would sleep from one clock to another.
		utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	}
	began := time.Now()
	code := m.Run()
	if *outcomeTo != "" {
		r := result.Result{Part: "failover", Command: "go test ./fence/failover -real", Began: began, Seconds: time.Since(began).Seconds(), Failures: plays.failed}
		r.Add("tests of the failover on a real API server, in real time", float64(plays.count), "tests")
		if err := r.Write(*outcomeTo); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = cmp.Or(code, 1)
		}
	}
	if plane.cluster != nil {
		if err := plane.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func apiServer(t *testing.T) *controlplane.Cluster {
	t.Helper()
	plane.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		binaries, err := controlplane.Build(ctx, os.Stderr)
		if err == nil {
			plane.cluster, err = controlplane.Start(ctx, controlplane.Options{Binaries: binaries, NoControllers: true})
		}
		if err == nil {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: recordNamespace}}
			_, err = plane.cluster.Client().CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		}
		plane.err = err
	})
	if plane.err != nil {
		t.Fatal(plane.err)
	}
	return plane.cluster
}

func (realServer) forbidDeletion(w *world, pods []string) {
	w.t.Helper()
	name := w.ns + "-keep"
	must(w.t, w.api.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: pods,
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("request.namespace != %q", w.ns)}},
		}})
	must(w.t, w.api.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}})
	w.t.Cleanup(func() {
		api := w.api.AdmissionregistrationV1()
		err := errors.Join(api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{}),
			api.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{}))
		if err != nil {
			w.t.Error(err)
		}
	})
	w.eventually("the API server refuses it", func() bool {
		for _, pod := range pods {
			if w.api.CoreV1().Pods(w.ns).Delete(w.t.Context(), pod, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}) == nil {
				return false
			}
		}
		return true
	})
}
