package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	reviewv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
)

// inFront puts a container before the others, and a word into each of theirs, as the injection does.
const inFront = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: in-front}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/spec/containers", value: [dyn({"name": "first"})] + object.spec.containers.map(c, dyn({"name": dyn(c.name), "args": dyn([dyn("more")] + c.?args.orValue([]))}))}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: in-front}
spec: {policyName: in-front}
`

func fuzzed(f *testing.F) policies {
	f.Helper()
	p, err := load([]byte(label + "---" + inFront + refuses))
	if err != nil {
		f.Fatal(err)
	}
	return p
}

// Whatever pod comes: no panic, a refusal has a reason, and the patch, applied as the API server does it
// (k8s.io/apiserver, plugin/webhook/mutating, dispatcher.go), makes what the policy has made of the pod.
func FuzzPod(f *testing.F) {
	p := fuzzed(f)
	f.Add([]byte(pod))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a"},{"name":"b","args":["1"],"securityContext":{"runAsUser":1000}},{"name":"a"}]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a/b~c":"\u0000\u2028<"}},"spec":{"containers":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"/mutate/label", "/mutate/in-front", "/validate/judge"} {
			answer := p[name].review(t.Context(), request(string(text), "storage"))
			switch {
			case !answer.Allowed && (answer.Result == nil || answer.Result.Message == "" || answer.Patch != nil):
				t.Fatalf("%s refuses without a reason, or with a patch: %+v", name, answer)
			case !answer.Allowed:
				continue
			case name == "/validate/judge" && answer.Patch != nil:
				t.Fatalf("%s changes a pod: %s", name, answer.Patch)
			case answer.Patch == nil:
				continue
			}
			made := &unstructured.Unstructured{}
			if err := made.UnmarshalJSON(text); err != nil {
				t.Fatal(err)
			}
			if err := p[name](t.Context(), &noted{Attributes: attributes(request(string(text), "storage"), made)}, admission.NewObjectInterfacesFromScheme(scheme.Scheme)); err != nil {
				t.Fatal(err)
			}
			patch, err := jsonpatch.DecodePatch(answer.Patch)
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, answer.Patch)
			}
			patched, err := patch.Apply(text)
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, answer.Patch)
			}
			got := &unstructured.Unstructured{}
			if err := got.UnmarshalJSON(patched); err != nil {
				t.Fatalf("%s: %v in %s", name, err, patched)
			}
			if !equality.Semantic.DeepEqual(got.Object, made.Object) {
				t.Fatalf("%s: the patch %s makes %s, and the policy %v", name, answer.Patch, patched, made.Object)
			}
		}
	})
}

// Whatever is posted: no panic, and what is answered with 200 is a review of the same version with an
// answer and without the request.
func FuzzReview(f *testing.F) {
	p := fuzzed(f)
	answers := handler(func() *policies { return &p })
	text, err := json.Marshal(reviewv1.AdmissionReview{Request: request(pod, "storage")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/mutate/label", bytes.Replace(text, []byte("{"), []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`), 1))
	f.Add("/validate/judge", bytes.Replace(text, []byte("{"), []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`), 1))
	f.Add("/validate/judge", []byte(`{"apiVersion":"admission.k8s.io/v1","request":{"object":null,"dryRun":null}}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		call := httptest.NewRequest("POST", "/", bytes.NewReader(body))
		call.URL.Path = path
		w := httptest.NewRecorder()
		answers.ServeHTTP(w, call)
		if w.Code != 200 {
			return
		}
		var review reviewv1.AdmissionReview
		if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil || review.Request != nil || review.APIVersion != "admission.k8s.io/v1" {
			t.Fatalf("%v, %s", err, w.Body)
		}
	})
}
