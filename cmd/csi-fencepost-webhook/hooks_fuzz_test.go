package main

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// patched takes the patches that are sent to an API server, by the configuration's kind and name.
type patched struct {
	dynamic.NamespaceableResourceInterface
	kind schema.GroupVersionResource
	sent map[string][]byte
}

func (p patched) Resource(kind schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	p.kind = kind
	return p
}

func (p patched) Patch(_ context.Context, name string, _ types.PatchType, text []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	p.sent[p.kind.Resource+" "+name] = text
	return nil, nil
}

// ownHooks are the hooks of Service csi-fencepost/webhook, that have read these configurations.
func ownHooks(t *testing.T, mutating []*admissionv1.MutatingWebhookConfiguration, validating []*admissionv1.ValidatingWebhookConfiguration) (*hooks, patched) {
	t.Helper()
	sent := patched{sent: map[string][]byte{}}
	h := &hooks{client: sent, namespace: "csi-fencepost", service: "webhook", informers: map[schema.GroupVersionResource]cache.SharedIndexInformer{}}
	for _, kind := range kinds {
		h.informers[kind] = cache.NewSharedIndexInformer(nil, &unstructured.Unstructured{}, 0, cache.Indexers{})
	}
	add := func(kind schema.GroupVersionResource, o any) {
		all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err == nil {
			err = h.informers[kind].GetStore().Add(&unstructured.Unstructured{Object: all})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range mutating {
		add(mutates, one)
	}
	for _, one := range validating {
		add(validates, one)
	}
	return h, sent
}

// An api is how the API server calls one webhook.
type api struct {
	name   string
	client admissionv1.WebhookClientConfig
}

// A carrier is what of a configuration says whom it calls, and by which policy to answer.
type carrier struct {
	kind schema.GroupVersionResource
	path string
	meta metav1.ObjectMeta
	apis []api
}

// callsUs: every webhook of it calls this program's Service, and there is one.
func (c carrier) callsUs() bool {
	for _, a := range c.apis {
		if s := a.client.Service; s == nil || s.Namespace+"/"+s.Name != "csi-fencepost/webhook" {
			return false
		}
	}
	return len(c.apis) > 0
}

// Whatever webhook configurations there are, anybody's: what is answered at a path is the policy of the
// configuration of that kind and name, which calls this Service and no other, carries that policy itself,
// and is not answered by another's; one that is wrong takes nothing from the others; and nothing but the
// bundles of those that call this Service is changed.
func FuzzHooks(f *testing.F) {
	ours := func(name, policy string, more ...string) []byte {
		c := admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{policyKey: policy}}}
		for _, service := range append([]string{"webhook"}, more...) {
			c.Webhooks = append(c.Webhooks, admissionv1.MutatingWebhook{Name: service + ".example.com",
				ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "csi-fencepost", Name: service}, CABundle: []byte("before")}})
		}
		text, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		return text
	}
	weaker := strings.Replace(label, "w + string(i)", "w", 1)
	f.Add(ours("label", label), ours("judge", refuses))
	f.Add(ours("label", label+refuses), ours("other", label+refuses))
	f.Add(ours("judge", refuses), ours("judge", label+refuses))
	f.Add(ours("label", label), ours("label", weaker+refuses))     // of the other kind, with another policy of the name
	f.Add(ours("theirs", weaker+refuses), ours("judge", refuses))  // nobody's, with a policy of ours
	f.Add(ours("label", label, "another"), ours("judge", refuses)) // which calls another, too
	f.Add(ours("label", "no policy"), ours("judge", refuses))
	f.Add(ours("label", label), ours("judge", ""))
	f.Add([]byte(`{"metadata":{"name":"label","annotations":{"csi-fencepost.io/policy":"x"}},"webhooks":[{"name":"a","clientConfig":{"url":"https://example.com"}}]}`), []byte(`{"metadata":{"name":"judge"},"webhooks":[]}`))
	loads := map[string]policies{}
	of := func(text string) policies {
		if _, known := loads[text]; !known {
			loads[text], _ = load([]byte(text))
		}
		return loads[text]
	}
	f.Fuzz(func(t *testing.T, mutating, validating []byte) {
		var m admissionv1.MutatingWebhookConfiguration
		var v admissionv1.ValidatingWebhookConfiguration
		if json.Unmarshal(mutating, &m) != nil || json.Unmarshal(validating, &v) != nil || m.Name == "" || v.Name == "" {
			return // which no API server has
		}
		kept := carrier{mutates, "/mutate/in-front", metav1.ObjectMeta{Name: "in-front", Annotations: map[string]string{policyKey: inFront}},
			[]api{{"a.example.com", admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "csi-fencepost", Name: "webhook"}}}}}
		own := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: kept.meta, Webhooks: []admissionv1.MutatingWebhook{{Name: kept.apis[0].name, ClientConfig: kept.apis[0].client}}}
		if m.Name == own.Name {
			return
		}
		h, sent := ownHooks(t, []*admissionv1.MutatingWebhookConfiguration{own, &m}, []*admissionv1.ValidatingWebhookConfiguration{&v})
		all := []carrier{kept, {mutates, "/mutate/" + m.Name, m.ObjectMeta, nil}, {validates, "/validate/" + v.Name, v.ObjectMeta, nil}}
		for _, w := range m.Webhooks {
			all[1].apis = append(all[1].apis, api{w.Name, w.ClientConfig})
		}
		for _, w := range v.Webhooks {
			all[2].apis = append(all[2].apis, api{w.Name, w.ClientConfig})
		}

		for range 2 { // once more, with what was compiled before
			h.load(klog.NewContext(t.Context(), klog.Logger{})) // which says nothing
			answered := *h.current.Load()
			paths := map[string]policy{}
			for _, c := range all {
				if text := c.meta.Annotations[policyKey]; text != "" && c.callsUs() {
					if p := of(text)[c.path]; p != nil {
						paths[c.path], paths[c.path+digest([]byte(text))] = p, p
					}
				}
			}
			if got, want := slices.Sorted(maps.Keys(answered)), slices.Sorted(maps.Keys(paths)); !slices.Equal(got, want) {
				t.Fatalf("it answers at %q, and those who call it carry %q", got, want)
			}
			for path, p := range paths {
				got, want := outcome(t, answered[path]), outcome(t, p)
				if got != want {
					t.Errorf("at %s it answers %s, and the policy that the configuration carries %s", path, got, want)
				}
			}
		}

		if err := h.trust(t.Context(), []byte("after")); err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			text, told := sent.sent[c.kind.Resource+" "+c.meta.Name]
			if !c.callsUs() || c.meta.Annotations[policyKey] == "" {
				if told {
					t.Errorf("%s, which does not call it, is changed: %s", c.path, text)
				}
				continue
			}
			c.trusts(t, text)
		}
	})
}

// outcome is what a policy makes of a pod. The steps of its patch come in any order.
func outcome(t *testing.T, p policy) string {
	t.Helper()
	answer := p.review(t.Context(), request(pod, "storage"))
	if !answer.Allowed {
		return "no: " + answer.Result.Message
	}
	if answer.Patch == nil {
		return pod
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		t.Fatal(err)
	}
	made, err := patch.Apply([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	return string(made)
}

// trusts: after the patch all its webhooks trust the bundle, and nothing else of it is changed.
func (c carrier) trusts(t *testing.T, patch []byte) {
	t.Helper()
	before, names := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: c.meta}, map[string]bool{}
	for _, a := range c.apis {
		if names[a.name] || a.name == "" {
			return // the API server has each name once
		}
		names[a.name] = true
		before.Webhooks = append(before.Webhooks, admissionv1.MutatingWebhook{Name: a.name, ClientConfig: a.client})
	}
	text, err := json.Marshal(before)
	if err == nil {
		if len(patch) == 0 {
			patch = []byte("{}")
		}
		text, err = strategicpatch.StrategicMergePatch(text, patch, admissionv1.MutatingWebhookConfiguration{})
	}
	var after admissionv1.MutatingWebhookConfiguration
	if err == nil {
		err = json.Unmarshal(text, &after)
	}
	if err != nil {
		t.Fatalf("%s: %v in %s", c.path, err, patch)
	}
	want := map[string]admissionv1.WebhookClientConfig{}
	for _, a := range c.apis {
		a.client.CABundle = []byte("after")
		want[a.name] = a.client
	}
	got := map[string]admissionv1.WebhookClientConfig{}
	for _, w := range after.Webhooks {
		got[w.Name] = w.ClientConfig
	}
	if !reflect.DeepEqual(got, want) || len(after.Webhooks) != len(c.apis) || !reflect.DeepEqual(after.Annotations, before.Annotations) {
		t.Errorf("%s: %s makes %s", c.path, patch, text)
	}
}
