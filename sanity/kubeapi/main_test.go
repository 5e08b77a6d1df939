package kubeapi

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
)

// The API servers that tests share. A test that fits none of them has one of its
// own (ownServer).
var (
	// common is of the tests with a driver and a sidecar: each keeps to objects of
	// its own names, and all live on the ClusterRoles of deploy/rbac.
	common = &server{}
	// whole is of those that count, list, define or remove what is in the whole
	// cluster, these ClusterRoles too: one at a time, and each leaves it as it was.
	whole = &server{}
	// policed has the policies of deploy/admission.
	policed = &server{}
)

// namespace of the nodes' records.
const namespace = "csi-fencepost"

// turns is how many tests of a kind run at once. All others wait, whatever
// -parallel says.
type turns chan struct{}

var (
	// staged tests have a driver and its sidecar each, and wait more than they
	// compute. More of them at once would not end sooner than the single ones, and
	// with ten a call took ten seconds on two cores.
	staged = make(turns, 6)
	// parts of these, on their driver: subtests, for which they wait.
	parts = make(turns, 6)
	// single tests come one after the other, beside the staged ones.
	single = make(turns, 1)
)

// take waits for the test's turn, which ends with the test. sanity/gotest takes what
// it waited off the time that the test took.
func (q turns) take(t *testing.T) {
	t.Helper()
	q.takeAfter(t, func() {})
}

// takeAfter is take, once what comes before has returned.
func (q turns) takeAfter(t *testing.T, before func()) {
	t.Helper()
	t.Parallel()
	began := time.Now()
	before()
	q <- struct{}{}
	t.Logf("its turn came after %.1fs", time.Since(began).Seconds())
	t.Cleanup(func() { <-q })
}

// answering is held, for reading, by who has agents on the server with the policies, and may vouch for what
// they read: it answers the questions of all, also that none of its agents knows the node. Who
// wants nobody to answer holds it alone.
var answering sync.RWMutex

// run is what the tests of this run have in common.
var run struct {
	folder string // of the programs
	code   int    // of all tests; not known before they end
}

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "200") // turns are what limits them
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if err := controlplane.NoteSources(); err != nil {
		return 1, err
	}
	scratch, err := tempdir.New()
	if err != nil {
		return 1, err
	}
	defer scratch.Remove(false)
	run.folder = scratch.Path
	whole.prepare, policed.prepare = prepareWhole, preparePoliced
	run.code = m.Run()
	return run.code, errors.Join(common.stop(), whole.stop(), policed.stop())
}

// programs are built once, csi-fencepost with the race detector, into a folder that
// can stand in PATH.
var programs = sync.OnceValues(func() (bed.Programs, error) {
	return bed.Build(context.Background(), os.Stderr, run.folder, true)
})

// server is an API server that starts with the first test that uses it.
type server struct {
	// prepare is called once it serves.
	prepare func(context.Context, *bed.Bed) error

	once    sync.Once
	bed     *bed.Bed
	admin   kubernetes.Interface // may do anything, as dynamic
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
	cluster string // its identity
	err     error
}

// use starts the server, if no test before has.
func (s *server) use(t *testing.T) *bed.Bed {
	t.Helper()
	s.once.Do(s.start)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.bed
}

func (s *server) start() {
	ctx := context.Background()
	built, err := programs()
	if err == nil {
		s.bed, err = bed.StartBare(ctx, built, func() bool { return run.code != 0 })
	}
	if s.err = err; err != nil {
		return
	}
	if s.err = s.connect(ctx); s.err != nil {
		return
	}
	if s.prepare != nil {
		s.err = s.prepare(ctx, s.bed)
	}
}

func (s *server) connect(ctx context.Context) error {
	s.admin = s.bed.Cluster.Client()
	config := s.bed.Cluster.Admin()
	var err error
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.admin.Discovery()))
	system, err := s.admin.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err == nil {
		s.cluster = string(system.UID)
	}
	return err
}

func (s *server) stop() error {
	if s.bed == nil {
		return nil
	}
	return s.bed.Stop()
}

func prepareWhole(ctx context.Context, b *bed.Bed) error {
	_, namespaced := whole.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	// No controller makes it, and no pod is let in without it.
	_, account := whole.admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	return errors.Join(namespaced, account, prepareEvidence(ctx, b.Cluster))
}

// ownServer starts an API server for one test, with more arguments.
func ownServer(t *testing.T, args ...string) *bed.Bed {
	t.Helper()
	built, err := programs()
	must(t, err)
	b, err := bed.StartBare(t.Context(), built, t.Failed, args...)
	must(t, err)
	t.Cleanup(func() { must(t, b.Stop()) })
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
