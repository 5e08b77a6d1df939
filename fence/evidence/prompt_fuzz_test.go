package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// listThenWatch is an API server with one list, and one watch after it.
type listThenWatch struct{ list, watch []byte }

func (l listThenWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return answers{l.watch}.RoundTrip(r)
	}
	return answers{l.list}.RoundTrip(r)
}

// prompts are those of one round of a list and the watch after it.
func prompts(t *testing.T, r resource, list, watch []byte) (all []Prompt, err error) {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: listThenWatch{list, watch}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	p := &Prompts{Client: client.CoreV1().RESTClient(), Call: func(_ context.Context, p Prompt) { all = append(all, p) }}
	_, err = p.round(t.Context(), r)
	return all, err
}

// Whatever a watch sends: it prompts of each object as a list of that one alone does, so of no
// node, address or driver that the object does not name, and of none that is being deleted. Nothing
// of one event stays for the next.
func FuzzPrompts(f *testing.F) {
	named := object("generated-x7", "r1", map[string]any{"annotations": map[string]string{remediatedNode: "n1"}})
	leaving := object("n3", "r3", map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"})
	for _, stream := range []string{
		event("ADDED", named) + event("ADDED", object("n2", "r2", nil)) + event("MODIFIED", leaving) + event("DELETED", named) + event("BOOKMARK", object("", "", nil)),
		event("ADDED", nf("a", nil, "192.0.2.1/32", "2001:db8::1/128")) + event("MODIFIED", map[string]any{"metadata": map[string]any{"name": "b"}}),
		event("ADDED", leaving) + event("ADDED", object("n4", "r4", map[string]any{"annotations": map[string]string{"x": "y"}})),
		event("ADDED", named) + `{"type":"ADDED"}` + event("ADDED", named),
		event("ADDED", named) + event("ERROR", map[string]any{"code": 410}) + event("ADDED", named),
		`{"type":"ADDED","object":null} {"object":{"metadata":{"name":"n1"}}} [] `,
		`{"type":"MODIFIED","object":{"metadata":{"name":"n1","annotations":null},"spec":{"cidrs":[null,""],"driver":null}}`,
	} {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, r := range []resource{networkFences, fenceAgentsRemediations, selfNodeRemediations} {
			got, _ := prompts(t, r, []byte(`{"items":[]}`), stream)
			var want []Prompt
			for decoder := json.NewDecoder(bytes.NewReader(stream)); ; {
				var e struct {
					Type   string
					Object json.RawMessage
				}
				if decoder.Decode(&e) != nil || e.Type == "ERROR" {
					break
				}
				if e.Type != "ADDED" && e.Type != "MODIFIED" {
					continue
				}
				one, err := prompts(t, r, slices.Concat([]byte(`{"items":[`), e.Object, []byte(`]}`)), nil)
				if err != nil || len(e.Object) == 0 {
					break
				}
				want = append(want, one...)
				for _, p := range one {
					names(t, r, p, e.Object)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%ss: %+v, and of each object alone %+v", r.kind, got, want)
			}
		}
	})
}

// names fails for what the prompt says and the object does not.
func names(t *testing.T, r resource, p Prompt, object []byte) {
	t.Helper()
	var o struct {
		Metadata struct{ DeletionTimestamp any }
	}
	if err := json.Unmarshal(object, &o); err != nil || o.Metadata.DeletionTimestamp != nil || p.Kind != r.kind || r == networkFences && p.Node != "" {
		t.Errorf("%s prompts %+v as a %s (%v)", object, p, r.kind, err)
	}
	said := words(object)
	for _, word := range append([]string{p.Name, p.Node, p.Driver}, p.CIDRs...) {
		if word != "" && !slices.Contains(said, word) {
			t.Errorf("%s prompts %+v, and does not say %q", object, p, word)
		}
	}
}
