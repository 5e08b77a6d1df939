package ledger

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer serves GET and PATCH of PersistentVolumes as kube-apiserver does:
// the same patch library on the same encoding of the object, 422 for a patch
// that does not apply, a new resourceVersion for each change.
type apiServer struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	pvs     map[string]*corev1.PersistentVolume
	version int
	patches int
	gets    int
	// before runs ahead of a request and may change PVs; an int it returns
	// that is not 0 is the answer's code. after may lose the answer.
	before func(method, pv string) int
	after  func(method, pv string) (lost bool)
}

func newAPIServer(t *testing.T, pvs ...*corev1.PersistentVolume) *apiServer {
	a := &apiServer{t: t, pvs: map[string]*corev1.PersistentVolume{}, version: 100}
	for _, pv := range pvs {
		a.change(pv.Name, func(*corev1.PersistentVolume) *corev1.PersistentVolume { return pv })
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

func (a *apiServer) client() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: a.url, QPS: -1})
}

// change replaces a PV; nil deletes it.
func (a *apiServer) change(name string, f func(*corev1.PersistentVolume) *corev1.PersistentVolume) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changeLocked(name, f)
}

func (a *apiServer) changeLocked(name string, f func(*corev1.PersistentVolume) *corev1.PersistentVolume) {
	pv := f(a.pvs[name].DeepCopy())
	if pv == nil {
		delete(a.pvs, name)
		return
	}
	a.version++
	pv.ResourceVersion = strconv.Itoa(a.version)
	a.pvs[name] = pv
}

func (a *apiServer) pv(name string) *corev1.PersistentVolume {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pvs[name].DeepCopy()
}

func (a *apiServer) counts() (gets, patches int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gets, a.patches
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/api/v1/persistentvolumes/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	code := 0
	if a.before != nil {
		code = a.before(r.Method, name)
	}
	var answer any
	if code == 0 {
		code, answer = a.serve(r, name, body)
	}
	if a.after != nil && a.after(r.Method, name) {
		panic(http.ErrAbortHandler)
	}
	if code != http.StatusOK {
		answer = failure(code, answer)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		a.t.Error(err)
	}
}

func failure(code int, detail any) *metav1.Status {
	reason := map[int]metav1.StatusReason{
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
	}[code]
	message, _ := detail.(string)
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func (a *apiServer) serve(r *http.Request, name string, body []byte) (int, any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pv := a.pvs[name]
	switch r.Method {
	case http.MethodGet:
		a.gets++
		if v := r.URL.Query().Get("resourceVersion"); v != "" {
			a.t.Errorf("GET with resourceVersion %q may be answered from a cache", v)
		}
	case http.MethodPatch:
		a.patches++
	default:
		a.t.Errorf("unexpected %s %s", r.Method, r.URL)
	}
	if pv == nil {
		return http.StatusNotFound, "persistentvolumes " + name + " not found"
	}
	if r.Method == http.MethodGet {
		return http.StatusOK, typed(pv)
	}
	if got := r.Header.Get("Content-Type"); got != string(types.JSONPatchType) {
		a.t.Errorf("PATCH as %s", got)
	}
	after, err := applied(pv, body)
	if err != nil {
		return http.StatusUnprocessableEntity, err.Error()
	}
	a.changeLocked(name, func(*corev1.PersistentVolume) *corev1.PersistentVolume { return after })
	return http.StatusOK, typed(after)
}

func applied(pv *corev1.PersistentVolume, body []byte) (*corev1.PersistentVolume, error) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(typed(pv))
	if err != nil {
		return nil, err
	}
	if text, err = patch.Apply(text); err != nil {
		return nil, err
	}
	var after corev1.PersistentVolume
	return &after, json.Unmarshal(text, &after)
}

func typed(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	pv = pv.DeepCopy()
	pv.TypeMeta = metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"}
	return pv
}
