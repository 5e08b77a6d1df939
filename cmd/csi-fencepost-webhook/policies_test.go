package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	reviewv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// label and refuse are a policy of each kind, as a chart renders them.
const (
	label = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: storage}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: of-the-driver, expression: 'object.spec.?serviceAccountName.orValue("default") == "driver"'}]
  variables: [{name: words, expression: 'object.spec.containers.map(c, c.?args.orValue([]))'}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/spec/containers/0/args", value: variables.words[0].transformList(i, w, w + string(i))}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label}
`
	refuses = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: judge}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: storage}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: 'object.spec.containers.exists(c, c.?args.orValue([]).exists(a, a.endsWith("0")))', messageExpression: '"nobody has changed " + object.metadata.name'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: judge}
spec: {policyName: judge, validationActions: [Deny]}
`
)

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"storage","creationTimestamp":null},"spec":{"serviceAccountName":"driver","containers":[{"name":"a","args":["x","y"],"resources":{}}]},"status":{}}`

func request(object, namespace string) *reviewv1.AdmissionRequest {
	return &reviewv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: namespace, Name: "p", Operation: reviewv1.Create, Object: runtime.RawExtension{Raw: []byte(object)}}
}

func TestAPodIsChangedAndJudged(t *testing.T) {
	p, err := load([]byte(label + refuses))
	if err != nil {
		t.Fatal(err)
	}
	if a := p["/mutate/label"].review(t.Context(), request(pod, "storage")); !a.Allowed || string(a.Patch) != `[{"op":"replace","path":"/spec/containers/0/args/0","value":"x0"},{"op":"replace","path":"/spec/containers/0/args/1","value":"y1"}]` {
		t.Errorf("%+v, %s", a, a.Patch)
	}
	for what, r := range map[string]*reviewv1.AdmissionRequest{
		"another namespace": request(pod, "default"),
		"another account":   request(strings.Replace(pod, `"driver"`, `"other"`, 1), "storage"),
	} {
		if a := p["/mutate/label"].review(t.Context(), r); !a.Allowed || a.Patch != nil {
			t.Errorf("%s: %+v, %s", what, a, a.Patch)
		}
	}
	if a := p["/validate/judge"].review(t.Context(), request(pod, "storage")); a.Allowed || a.Result == nil || !strings.Contains(a.Result.Message, "nobody has changed p") || a.Result.Code != 422 {
		t.Errorf("%+v", a)
	}
	if a := p["/validate/judge"].review(t.Context(), request(strings.Replace(pod, `"x"`, `"x0"`, 1), "storage")); !a.Allowed {
		t.Errorf("%+v", a)
	}
	warns, err := load([]byte(label + strings.Replace(refuses, "[Deny]", "[Warn, Audit]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if a := warns["/validate/judge"].review(t.Context(), request(pod, "storage")); !a.Allowed || len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], "nobody has changed p") || a.AuditAnnotations["validation_failure"] == "" {
		t.Errorf("%+v", a)
	}
	for what, object := range map[string]string{"no JSON": "{", "no kind": `{"metadata":{}}`} {
		if a := p["/mutate/label"].review(t.Context(), request(object, "storage")); a.Allowed || a.Result.Code != 400 {
			t.Errorf("%s: %+v", what, a)
		}
	}
	// What cannot be evaluated is refused, as failurePolicy says.
	if a := p["/mutate/label"].review(t.Context(), request(strings.Replace(pod, `"containers":[`, `"no":[`, 1), "storage")); a.Allowed {
		t.Errorf("%+v", a)
	}
}

func TestPoliciesThatAreWrongAreNamed(t *testing.T) {
	for says, text := range map[string]string{
		"MutatingAdmissionPolicy label: variable words":  strings.Replace(label, "c.?args.orValue([])", "nothing", 1),
		"MutatingAdmissionPolicy label: mutation 0":      strings.Replace(label, "variables.words[0]", "variables.word[0]", 1),
		"MutatingAdmissionPolicy label: matchConditions": strings.Replace(label, `== "driver"`, "== driver", 1),
		"MutatingAdmissionPolicy label has no binding":   strings.Replace(label, "policyName: label", "policyName: other", 1),
		"ValidatingAdmissionPolicy judge has no binding": strings.Replace(refuses, "policyName: judge", "policyName: other", 1),
		"ValidatingAdmissionPolicy judge: ":              strings.Replace(refuses, "endsWith", "endWith", 1),
		"unknown field":                                  strings.Replace(label, "variables:", "variable:", 1),
		"Kind=Pod is no admission policy":                `{"apiVersion":"v1","kind":"Pod"}`,
		"no kind \"Nothing\" is registered":              `{"apiVersion":"v1","kind":"Nothing"}`,
		"it has no matchConstraints":                     "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: a}\nspec: {}\n",
		"mutation 0 is no jsonPatch":                     strings.Replace(strings.Replace(label, "jsonPatch:", "applyConfiguration:", 1), "patchType: JSONPatch", "patchType: ApplyConfiguration", 1),
		"MutatingAdmissionPolicy label: namespaceSelector: the label team is not read here, only kubernetes.io/metadata.name": strings.Replace(label, "kubernetes.io/metadata.name: storage", "team: storage", 1),
		"MutatingAdmissionPolicyBinding label: it has a paramRef, which is not read here":                                     strings.Replace(label, "policyName: label", "policyName: label, paramRef: {name: p}", 1),
		"ValidatingAdmissionPolicyBinding judge: namespaceSelector: the label team is not read here":                          strings.Replace(refuses, "policyName: judge", "policyName: judge, matchResources: {namespaceSelector: {matchLabels: {team: a}}}", 1),
		"it has a paramKind, which is not read here":                                                                          strings.Replace(label, "  failurePolicy: Fail", "  paramKind: {apiVersion: v1, kind: ConfigMap}", 1),
	} {
		if _, err := load([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// digestOf is what sha256sum and trunc of a chart make of the manifests, behind a slash.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "/" + hex.EncodeToString(sum[:])[:16]
}

func TestTheHandlerAnswersAsAWebhook(t *testing.T) {
	p, err := load([]byte(label + refuses))
	if err != nil {
		t.Fatal(err)
	}
	review := func(object string) string {
		text, err := json.Marshal(reviewv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request(object, "storage")})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for what, c := range map[string]struct {
		method, path, body string
		code               int
		says               string
	}{
		"a change":                  {"POST", "/mutate/label", review(pod), 200, `"patchType":"JSONPatch"`},
		"a refusal":                 {"POST", "/validate/judge", review(pod), 200, "nobody has changed p"},
		"a policy that is not here": {"POST", "/mutate/other", review(pod), 404, `there is no policy at "/mutate/other"`},
		"these very policies":       {"POST", "/mutate/label" + digestOf(label+refuses), review(pod), 200, `"patchType":"JSONPatch"`},
		"others of that name":       {"POST", "/mutate/label" + digestOf(label), review(pod), 404, "there is no policy"},
		"one of the other kind":     {"POST", "/validate/label", review(pod), 404, "there is no policy"},
		"no call":                   {"GET", "/mutate/label", "", 404, "there is no policy"},
		"no JSON":                   {"POST", "/mutate/label", "{", 400, "this is no AdmissionReview of admission.k8s.io/v1 with a request"},
		"no request":                {"POST", "/mutate/label", `{"apiVersion":"admission.k8s.io/v1"}`, 400, "with a request"},
		"another version":           {"POST", "/mutate/label", strings.Replace(review(pod), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), 400, "this is no AdmissionReview of admission.k8s.io/v1 with"},
		"too much":                  {"POST", "/mutate/label", strings.Repeat(" ", maxReview+1), 413, "too large"},
	} {
		w := httptest.NewRecorder()
		handler(func() *policies { return &p }).ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) || c.code == 200 && !strings.Contains(w.Body.String(), `"uid":"1"`) {
			t.Errorf("%s: %d, %s", what, w.Code, w.Body)
		}
	}
}

// Who sends half a review, and no more, keeps others waiting for as long as he may take, and no longer.
func TestSlowReviewsEndAndSoManyAreReadAtOnce(t *testing.T) {
	p, err := load([]byte(label + refuses))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler(func() *policies { return &p }))
	defer s.Close()
	half, began := make(chan int, reviewsAtOnce), time.Now()
	for range reviewsAtOnce {
		in, out := io.Pipe()
		go func() {
			r, err := http.Post(s.URL+"/mutate/label", "application/json", in)
			if err != nil {
				t.Error(err)
				half <- 0
				return
			}
			r.Body.Close()
			half <- r.StatusCode
		}()
		if _, err := out.Write([]byte("{")); err != nil { // it is being read
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	r, err := http.Post(s.URL+"/mutate/label", "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if took := time.Since(began); r.StatusCode != 400 || took < readTimeout-time.Second || took > readTimeout+3*time.Second {
		t.Errorf("the next one is answered with %d after %s, and should wait for one of %d for %s", r.StatusCode, took, reviewsAtOnce, readTimeout)
	}
	for range reviewsAtOnce {
		if code := <-half; code != 413 {
			t.Errorf("half a review is answered with %d", code)
		}
	}
}
