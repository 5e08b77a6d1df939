package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	reviewv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
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

// Whatever is in the annotation of a webhook configuration: it is refused, or its policies answer at
// paths of their own names and of the text's digest, have what nothing here would look at nowhere, and
// answer what comes with a yes, or with why not.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(label + refuses))
	f.Add([]byte("---\n" + inFront + "---\n# no\n"))
	f.Add([]byte(strings.ReplaceAll(label, "matchLabels: {kubernetes.io/metadata.name: storage}", "matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [storage, other]}]")))
	f.Add([]byte(strings.ReplaceAll(label, "kubernetes.io/metadata.name: storage", "team: storage")))
	f.Add([]byte(strings.ReplaceAll(label, "spec: {policyName: label}", "spec: {policyName: label, matchResources: {namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}}")))
	f.Add([]byte(strings.ReplaceAll(label, "spec: {policyName: label}", "spec: {policyName: label, paramRef: {name: p, parameterNotFoundAction: Deny}}")))
	f.Add([]byte(strings.ReplaceAll(label, "  failurePolicy: Fail", "  failurePolicy: Ignore\n  paramKind: {apiVersion: v1, kind: ConfigMap}")))
	f.Add([]byte(strings.ReplaceAll(label, "operations: [CREATE]", "operations: null")))
	f.Add([]byte(strings.ReplaceAll(refuses, "[Deny]", "[]")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := load(text)
		if err != nil {
			if all != nil || err.Error() == "" {
				t.Errorf("%v, and %d policies", err, len(all))
			}
			return
		}
		for path, p := range all {
			name, digested := strings.CutSuffix(path, digest(text))
			kind, ok := strings.CutPrefix(name, "/mutate/")
			if !ok {
				kind, ok = strings.CutPrefix(name, "/validate/")
			}
			if _, both := all[name+digest(text)]; !ok || !both || !digested && strings.Contains(string(text), digest(text)) || kind == "" && !strings.Contains(string(text), "metadata") {
				t.Errorf("a policy answers at %q", path)
			}
			for _, namespace := range []string{"storage", "default"} {
				if answer := p.review(t.Context(), request(pod, namespace)); !answer.Allowed && (answer.Result == nil || answer.Result.Message == "" || answer.Patch != nil) {
					t.Errorf("%s refuses without a reason, or with a patch: %+v", path, answer)
				}
			}
		}
		for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
			document, err := documents.Read()
			if err != nil {
				return
			}
			var o struct {
				Spec struct {
					ParamKind, ParamRef              any
					MatchConstraints, MatchResources struct {
						NamespaceSelector struct {
							MatchLabels      map[string]string
							MatchExpressions []struct{ Key string }
						}
					}
				}
			}
			if err := yaml.Unmarshal(document, &o); err != nil {
				t.Fatal(err)
			}
			if o.Spec.ParamKind != nil || o.Spec.ParamRef != nil {
				t.Errorf("a policy with parameters, which are not read, is taken")
			}
			for _, s := range []struct {
				labels map[string]string
				more   []struct{ Key string }
			}{{o.Spec.MatchConstraints.NamespaceSelector.MatchLabels, o.Spec.MatchConstraints.NamespaceSelector.MatchExpressions},
				{o.Spec.MatchResources.NamespaceSelector.MatchLabels, o.Spec.MatchResources.NamespaceSelector.MatchExpressions}} {
				for key := range s.labels {
					s.more = append(s.more, struct{ Key string }{key})
				}
				for _, one := range s.more {
					if one.Key != "kubernetes.io/metadata.name" {
						t.Errorf("a policy that selects namespaces by %q, which no namespace has here, is taken", one.Key)
					}
				}
			}
		}
	})
}

// Whatever is in the Secret: a certificate that is kept is one for this host, of an authority beside it,
// that ends no sooner than in a third of its life; and beside a new authority stands a certificate or
// nothing, for the API server refuses a bundle with anything else in it.
func FuzzSecret(f *testing.F) {
	const host = "hook.storage.svc"
	pair := func(host string, age time.Duration) (chain, key, authority []byte) {
		chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: host, MaxAge: age})
		if err != nil {
			f.Fatal(err)
		}
		_, authority = pem.Decode(chain)
		return chain, key, authority
	}
	chain, key, authority := pair(host, certificateAge)
	otherChain, otherKey, otherAuthority := pair("other.storage.svc", certificateAge)
	soonChain, soonKey, soonAuthority := pair(host, 85*time.Minute) // it began an hour ago: 25 minutes are left
	f.Add(chain, key, authority)
	f.Add(chain, key, otherAuthority)
	f.Add(chain, key, []byte{})
	f.Add(chain, otherKey, authority)
	f.Add(otherChain, otherKey, otherAuthority)
	f.Add(soonChain, soonKey, soonAuthority)
	f.Add([]byte("x"), []byte("y"), []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add(chain, key, append(bytes.Clone(authority), key...))
	f.Add(chain, key, append(bytes.Clone(authority), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
	f.Add(key, chain, append(bytes.Clone(key), authority...))
	i := &identity{host: host}
	f.Fuzz(func(t *testing.T, chain, key, authority []byte) {
		if known := bundled(otherAuthority, authority); !bytes.HasPrefix(known, otherAuthority) {
			t.Errorf("the new authority does not come first: %s", known)
		} else if all, err := cert.ParseCertsPEM(known); err != nil || len(all) > 2 || bytes.Count(known, []byte("-----BEGIN ")) != len(all) {
			t.Errorf("%v: %d certificates in %s", err, len(all), known)
		}
		looked := time.Now()
		if !i.holds(&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key, caBundle: authority}}) {
			return
		}
		if all, err := cert.ParseCertsPEM(authority); err != nil || bytes.Count(authority, []byte("-----BEGIN ")) != len(all) {
			t.Errorf("%v: %d certificates in %s", err, len(all), authority)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			t.Fatal(err)
		}
		leaf := pair.Leaf
		if left, life := leaf.NotAfter.Sub(looked), leaf.NotAfter.Sub(leaf.NotBefore); leaf.VerifyHostname(host) != nil || left < life/3 {
			t.Errorf("%v holds for %s", leaf.DNSNames, left)
		}
		signed := false
		for block, rest := pem.Decode(authority); block != nil; block, rest = pem.Decode(rest) {
			if one, err := x509.ParseCertificate(block.Bytes); err == nil {
				signed = signed || one.Equal(leaf) || leaf.CheckSignatureFrom(one) == nil
			}
		}
		if !signed {
			t.Error("nobody beside it has signed it")
		}
	})
}
