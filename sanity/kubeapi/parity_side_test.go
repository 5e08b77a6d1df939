package kubeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// side is one of the two servers, and what was seen of it.
type side struct {
	name   string
	host   string
	client *http.Client
	// objects are the versions of each object that were seen, by path.
	objects map[string][]map[string]any
	// uids and lists number what was seen, in order.
	uids  map[string]int
	lists []string // resourceVersions of lists
}

func newSide(t *testing.T, name string, config *rest.Config) *side {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 30 * time.Second
	return &side{name: name, host: config.Host, client: client, objects: map[string][]map[string]any{}, uids: map[string]int{}}
}

// reply is what is compared.
type reply struct {
	Code   int
	Reason string
	Object string
}

// ask makes a request. body nil: none.
func (s *side) ask(method, path string, query url.Values, contentType string, body []byte) (int, map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	target := s.host + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "parity/1")
	if body != nil {
		r.Header.Set("Content-Type", contentType)
	}
	out, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if err != nil {
		return 0, nil, err
	}
	object := map[string]any{}
	if err := json.Unmarshal(text, &object); err != nil {
		return 0, nil, fmt.Errorf("%s %s answers %d %q", method, path, out.StatusCode, text)
	}
	return out.StatusCode, object, nil
}

// answer makes a request and keeps what can be compared of its answer.
func (s *side) answer(t *testing.T, method, path string, query url.Values, contentType string, body []byte) reply {
	t.Helper()
	code, object, err := s.ask(method, path, query, contentType, body)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	a := reply{Code: code}
	if object["kind"] == "Status" {
		a.Reason, _ = object["reason"].(string)
		details, _ := object["details"].(map[string]any)
		a.Object = fmt.Sprint(details["kind"], "/", details["name"], " ", object["status"])
		return a
	}
	if items, is := object["items"].([]any); is {
		a.Object = s.list(object, items)
		return a
	}
	s.see(object)
	a.Object = text(s.normal(object))
	return a
}

func (s *side) list(list map[string]any, items []any) string {
	s.lists = append(s.lists, at(list, "metadata", "resourceVersion").(string))
	var out []string
	for _, item := range items {
		o := item.(map[string]any)
		s.see(o)
		out = append(out, text(s.normal(o)))
	}
	more := at(list, "metadata", "continue") != nil
	return fmt.Sprintf("%s, more: %t, remaining: %v\n%s", list["kind"], more, at(list, "metadata", "remainingItemCount"), strings.Join(out, "\n"))
}

// see remembers a version of an object.
func (s *side) see(o map[string]any) {
	key := keyOf(o)
	seen := s.objects[key]
	for _, old := range seen {
		if at(old, "metadata", "resourceVersion") == at(o, "metadata", "resourceVersion") {
			return
		}
	}
	s.objects[key] = append(seen, o)
	s.uid(o)
}

func keyOf(o map[string]any) string {
	kind, _ := o["kind"].(string)
	if kind == "" {
		kind = "item"
	}
	return fmt.Sprint(at(o, "metadata", "namespace"), "/", at(o, "metadata", "name"))
}

func (s *side) uid(o map[string]any) int {
	uid, _ := at(o, "metadata", "uid").(string)
	n, seen := s.uids[uid]
	if !seen {
		n = len(s.uids)
		s.uids[uid] = n
	}
	return n
}

// past is the version of an object that was seen back versions ago; nil: there is
// none.
func (s *side) past(key string, back int) map[string]any {
	seen := s.objects[key]
	if len(seen) == 0 {
		return nil
	}
	return clone(seen[max(0, len(seen)-1-back)])
}

// normal is an object without what differs from server to server.
func (s *side) normal(o map[string]any) map[string]any {
	o = clone(o)
	m := o["metadata"].(map[string]any)
	version := m["resourceVersion"]
	for i, old := range s.objects[keyOf(o)] {
		if at(old, "metadata", "resourceVersion") == version {
			m["resourceVersion"] = fmt.Sprint("version ", i)
		}
	}
	m["uid"] = fmt.Sprint("uid ", s.uid(o))
	delete(m, "managedFields")
	delete(o, "kind")
	delete(o, "apiVersion")
	if status, is := o["status"].(map[string]any); is && len(status) == 0 {
		delete(o, "status") // CSINodes have one since Kubernetes 1.37
	}
	times(o)
	return o
}

// times replaces the server's times by their presence.
func times(o map[string]any) {
	for name, value := range o {
		switch name {
		case "creationTimestamp", "deletionTimestamp", "lastPhaseTransitionTime":
			if value != nil {
				o[name] = "a time"
			}
		}
		if inner, is := value.(map[string]any); is {
			times(inner)
		}
	}
}

func at(o map[string]any, path ...string) any {
	var value any = o
	for _, name := range path {
		m, _ := value.(map[string]any)
		value = m[name]
	}
	return value
}

func clone(o map[string]any) map[string]any {
	out := map[string]any{}
	if err := json.Unmarshal([]byte(text(o)), &out); err != nil {
		panic(err)
	}
	return out
}

func text(o any) string {
	out, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(out)
}
