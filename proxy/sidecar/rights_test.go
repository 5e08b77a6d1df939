package sidecar

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

// authorizer is an API server that only says who may do what.
type authorizer struct {
	mu sync.Mutex
	// lacks holds "verb resource", with " in NAMESPACE" where it is in one.
	lacks map[string]bool
	// nowhere: the namespace of the records is missing.
	nowhere bool
	// guardOnly: a policy keeps it from vouching for fences, with ownStorage but those of
	// the driver's own storage.
	guardOnly, ownStorage bool
	asked                 []authorizationv1.ResourceAttributes
	written               []string // Leases that were to stay
}

func (a *authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var out any
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if json.NewDecoder(r.Body).Decode(&review) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		right := review.Spec.ResourceAttributes
		a.asked = append(a.asked, *right)
		what := right.Verb + " " + right.Resource
		if right.Namespace != "" {
			what += " in " + right.Namespace
		}
		review.Status.Allowed = !a.lacks[what]
		out = review
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		out = authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:storage:controller"}}}
	case strings.HasSuffix(r.URL.Path, "/leases") && r.Method == http.MethodPost:
		if r.URL.Query().Get("dryRun") != metav1.DryRunAll {
			a.written = append(a.written, r.URL.Path)
		}
		out = coordinationv1.Lease{}
		if a.nowhere {
			status := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "fences").Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.WriteHeader(int(status.Code))
			out = status
		}
		var lease coordinationv1.Lease
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &lease) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if f := lease.Annotations[noderecord.FencedAnnotation]; a.guardOnly && f != "" && !(a.ownStorage && strings.HasPrefix(f, "disk.example.com=")) {
			status := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, lease.Name, errors.New("needs fences.csi-fencepost.io")).Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.WriteHeader(int(status.Code))
			out = status
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

// lacking changes what is missing, from now on.
func (a *authorizer) lacking(nowhere bool, rights ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lacks, a.nowhere = map[string]bool{}, nowhere
	for _, r := range rights {
		a.lacks[r] = true
	}
}

// checked is the check once it says want; empty: once it passes.
func (a *authorizer) checked(t *testing.T, c *config.Configuration) (says func(want string) string) {
	t.Helper()
	return a.checkedBy(t, func(api *rest.Config) (func() error, error) {
		return CheckRights(t.Context(), api, c, "disk.example.com", false)
	})
}

func (a *authorizer) checkedBy(t *testing.T, begin func(api *rest.Config) (check func() error, err error)) (says func(want string) string) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.mu.Lock() // it answers nothing until the first check is made
	check, err := begin(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err == nil && check() == nil {
		t.Error("it passes before anything was answered")
	}
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return func(want string) string {
		t.Helper()
		var got string
		for end := time.Now().Add(3 * rightsAgain); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if got = ""; check() != nil {
				got = check().Error()
			}
			if want == "" && got == "" || want != "" && strings.Contains(got, want) {
				return got
			}
		}
		t.Fatalf("it says %q, want %q", got, want)
		return ""
	}
}

func enforcing() *config.Configuration {
	c := config.Default()
	c.Fencing.Namespace = "fences"
	return c
}

func TestEachRightThatIsMissingIsNamedUntilItIsThere(t *testing.T) {
	t.Parallel()
	a := &authorizer{}
	a.lacking(false, "patch persistentvolumes", "get leases in fences", "list leases in fences")
	says := a.checked(t, enforcing())
	want := "system:serviceaccount:storage:controller may not get, list leases.coordination.k8s.io in namespace fences, nor patch persistentvolumes: apply what deploy/rbac has for mode Enforce"
	says(want)
	a.lacking(false)
	says("")
	if len(a.written) > 0 {
		t.Errorf("it wrote %v", a.written)
	}
}

func TestARightThatFailoverApartLacksIsNamedWithItsOwnManifest(t *testing.T) {
	t.Parallel()
	a := &authorizer{}
	a.lacking(false, "delete pods", "list clusterrolebindings")
	says := a.checkedBy(t, func(api *rest.Config) (func() error, error) {
		return CheckApartRights(t.Context(), api, enforcing(), false)
	})
	says("system:serviceaccount:storage:controller may not list clusterrolebindings.rbac.authorization.k8s.io, nor delete pods: apply deploy/failover/rbac.yaml, or")
	a.lacking(false)
	says("")
	for _, right := range a.asked {
		if right.Resource == "persistentvolumes" && right.Verb == "patch" {
			t.Errorf("asked for %+v, which is a guard's", right)
		}
	}
}

func TestAMissingNamespaceOfTheRecordsIsSaidWhereRecordsAreWritten(t *testing.T) {
	t.Parallel()
	a := &authorizer{}
	a.lacking(true)
	says := a.checked(t, enforcing())
	says("kubectl create namespace fences")
	a.lacking(false)
	says("")

	observing := &authorizer{nowhere: true}
	c := enforcing()
	c.Mode = config.Observe
	observing.checked(t, c)("")
}

// With deploy/admission it would be found out at the first node that is to be fenced.
func TestWhoFencesAndMayNotVouchForItIsNotReady(t *testing.T) {
	t.Parallel()
	program, storage := config.Agent{}, config.Agent{CSIAddons: &config.CSIAddons{}}
	const needed = "needs fences.csi-fencepost.io"
	for name, c := range map[string]struct {
		agents     []config.Agent
		ownStorage bool // its account may vouch for its driver's storage fences
		want       string
	}{
		"a guard alone":                     {nil, false, ""},
		"with an agent":                     {[]config.Agent{program}, false, needed},
		"with its driver's own":             {[]config.Agent{storage}, false, needed},
		"with its driver's own, and may":    {[]config.Agent{storage}, true, ""},
		"with both, and may the driver's":   {[]config.Agent{storage, program}, true, needed},
		"a guard alone, and may all of one": {nil, true, ""},
	} {
		a := &authorizer{guardOnly: true, ownStorage: c.ownStorage}
		configured := enforcing()
		if len(c.agents) > 0 {
			configured.Fencing.Levels = []config.Level{{Agents: c.agents}}
		}
		t.Log(name)
		a.checked(t, configured)(c.want)
		if len(a.written) > 0 {
			t.Errorf("it wrote %v", a.written)
		}
	}
}

// What is asked for is what the mode's manifests give, and no more: who observes needs
// no right to write.
func TestWhatIsAskedForIsWhatTheModeNeeds(t *testing.T) {
	t.Parallel()
	failover := enforcing()
	failover.Failover.Enabled = true
	observe := enforcing()
	observe.Mode = config.Observe
	for name, tt := range map[string]struct {
		config       *config.Configuration
		patches, ask bool
	}{"observe": {observe, false, false}, "enforce": {enforcing(), true, false}, "failover": {failover, true, true}} {
		a := &authorizer{}
		a.checked(t, tt.config)("")
		var patches, deletes, reads bool
		for _, right := range a.asked {
			patches = patches || right.Verb == "patch" && right.Resource == "persistentvolumes"
			deletes = deletes || right.Verb == "delete" && right.Resource == "pods"
			reads = reads || right.Verb == "watch" && right.Resource == "leases" && right.Namespace == "kube-node-lease"
			if strings.Contains(right.Namespace, "own") {
				t.Errorf("%s: it asks about %+v", name, right)
			}
		}
		if patches != tt.patches || deletes != tt.ask || !reads {
			t.Errorf("%s: patches PersistentVolumes %v, deletes pods %v, reads the kubelets' leases %v: %d rights", name, patches, deletes, reads, len(a.asked))
		}
	}
}
