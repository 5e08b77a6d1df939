package kubeapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// op is one operation. What it sends may depend on what the side showed before, and
// on nothing else of the side.
type op struct {
	what string
	do   func(t *testing.T, s *side) reply
}

const (
	jsonType      = "application/json"
	jsonPatchType = "application/json-patch+json"
	mergeType     = "application/merge-patch+json"
	strategicType = "application/strategic-merge-patch+json"
)

// draw makes a random operation.
func draw(r *rand.Rand, all []*playedKind) op {
	k := all[r.IntN(len(all))]
	name := nameOf(k, r.IntN(3))
	switch n := r.IntN(100); {
	case n < 18:
		return opCreate(r, k, name)
	case n < 38:
		return opPut(r, k, name)
	case n < 52:
		return patchJSON(r, k, name)
	case n < 72:
		return patchMerge(r, k, name)
	case n < 84:
		return opRemove(r, k, name)
	case n < 91:
		return opGet(k, name)
	default:
		return opList(r, k)
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// edit is a change to a whole object.
type edit struct {
	what string
	do   func(o m)
}

func edits(r *rand.Rand, k *playedKind) []edit {
	meta := func(what string, f func(meta m)) edit {
		return edit{what, func(o m) { f(o["metadata"].(m)) }}
	}
	value := fmt.Sprint(r.IntN(3))
	out := []edit{
		{"nothing", func(m) {}},
		meta("annotation "+value, func(m m) { m["annotations"] = map[string]any{"a": value} }),
		meta("annotation "+value, func(m m) { m["annotations"] = map[string]any{"a": value} }),
		meta("no annotations", func(m m) { delete(m, "annotations") }),
		meta("label "+value, func(m m) { m["labels"] = map[string]any{"l": value} }),
		meta("a label that is none", func(m m) { m["labels"] = map[string]any{"!": "?"} }),
		meta("a finalizer", func(m m) { m["finalizers"] = []any{"example.com/f"} }),
		meta("two finalizers", func(m m) { m["finalizers"] = []any{"example.com/f", "example.com/g"} }),
		meta("no finalizers", func(m m) { delete(m, "finalizers") }),
		meta("no finalizers", func(m m) { delete(m, "finalizers") }),
		meta("no version", func(m m) { delete(m, "resourceVersion") }),
		meta("no UID", func(m m) { delete(m, "uid") }),
		meta("another UID", func(m m) { m["uid"] = "00000000-0000-4000-8000-00000000dead" }),
		meta("another name", func(m m) { m["name"] = "another" }),
		meta("a generation", func(m m) { m["generation"] = 99 }),
		meta("another creation time", func(m m) { m["creationTimestamp"] = "2020-01-01T00:00:00Z" }),
		meta("a deletion time", func(m m) { m["deletionTimestamp"] = "2020-01-01T00:00:00Z" }),
	}
	if k.namespaced {
		out = append(out, meta("another namespace", func(m m) { m["namespace"] = "kube-system" }))
	}
	for _, patch := range append(append([]string{}, k.specs...), k.statuses...) {
		out = append(out, edit{patch, func(o m) {
			after, err := jsonpatch.MergePatch([]byte(text(o)), []byte(patch))
			if err != nil {
				panic(err)
			}
			clear(o)
			if err := json.Unmarshal(after, &o); err != nil {
				panic(err)
			}
		}})
	}
	return out
}

func opCreate(r *rand.Rand, k *playedKind, name string) op {
	e := edit{"nothing", func(m) {}}
	if r.IntN(3) == 0 {
		e = pick(r, edits(r, k))
	}
	return op{fmt.Sprintf("create %s with %s", name, e.what), func(t *testing.T, s *side) reply {
		o := k.make(name)
		e.do(o)
		return s.answer(t, "POST", k.collection(), nil, jsonType, []byte(text(o)))
	}}
}

// opPut sends an object as it was seen some versions ago, changed.
func opPut(r *rand.Rand, k *playedKind, name string) op {
	e, back := pick(r, edits(r, k)), 0
	if r.IntN(3) == 0 {
		back = 1 + r.IntN(3)
	}
	path := subresource(r, k, k.collection()+"/"+name)
	return op{fmt.Sprintf("put %s, %d versions old, with %s", path, back, e.what), func(t *testing.T, s *side) reply {
		o := s.past(k.key(name), back)
		if o == nil {
			o = k.make(name)
		}
		o["kind"], o["apiVersion"] = k.make(name)["kind"], k.make(name)["apiVersion"]
		e.do(o)
		return s.answer(t, "PUT", path, nil, jsonType, []byte(text(o)))
	}}
}

func subresource(r *rand.Rand, k *playedKind, path string) string {
	if k.status && r.IntN(3) == 0 {
		return path + "/status"
	}
	return path
}

// version is a placeholder that each side fills in.
func (s *side) version(k *playedKind, name string, back int) string {
	version, _ := at(s.past(k.key(name), back), "metadata", "resourceVersion").(string)
	return version
}

func (s *side) uidOf(k *playedKind, name string) string {
	uid, _ := at(s.past(k.key(name), 0), "metadata", "uid").(string)
	return uid
}

func patchJSON(r *rand.Rand, k *playedKind, name string) op {
	value, back := fmt.Sprint(r.IntN(3)), r.IntN(2)
	type maker struct {
		what string
		body func(s *side) string
	}
	test := maker{fmt.Sprintf("test of the version %d ago", back), func(s *side) string {
		return fmt.Sprintf(`[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/metadata/annotations","value":{"a":%q}}]`, s.version(k, name, back), value)
	}}
	all := []maker{test, test,
		{"test of the UID", func(s *side) string {
			return fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"add","path":"/metadata/annotations","value":{"b":%q}}]`, s.uidOf(k, name), value)
		}},
		{"test and replacement of the annotation", func(*side) string {
			return fmt.Sprintf(`[{"op":"test","path":"/metadata/annotations/a","value":%q},{"op":"replace","path":"/metadata/annotations/a","value":"9"}]`, value)
		}},
		{"addition where nothing is", func(*side) string { return `[{"op":"add","path":"/metadata/nowhere/x","value":"y"}]` }},
		{"removal of the annotation", func(*side) string { return `[{"op":"remove","path":"/metadata/annotations/a"}]` }},
		{"no patch", func(*side) string { return `{"op":"add"}` }},
		{"a name", func(*side) string { return `[{"op":"replace","path":"/metadata/name","value":"another"}]` }},
		{"a type that is wrong", func(*side) string { return `[{"op":"add","path":"/metadata/labels","value":"text"}]` }},
		{"no finalizers", func(*side) string { return `[{"op":"add","path":"/metadata/finalizers","value":[]}]` }},
	}
	p, path := pick(r, all), subresource(r, k, k.collection()+"/"+name)
	return op{fmt.Sprintf("JSON patch of %s: %s, value %s", path, p.what, value), func(t *testing.T, s *side) reply {
		return s.answer(t, "PATCH", path, nil, jsonPatchType, []byte(p.body(s)))
	}}
}

func patchMerge(r *rand.Rand, k *playedKind, name string) op {
	back, value := r.IntN(2), fmt.Sprint(r.IntN(3))
	bodies := []string{
		`{"metadata":{"annotations":{"a":"` + value + `"}}}`, `{"metadata":{"annotations":{"a":null}}}`,
		`{"metadata":{"resourceVersion":"VERSION","annotations":{"a":"` + value + `"}}}`, `{"metadata":{"uid":"UID","resourceVersion":"VERSION","annotations":{"c":"` + value + `"}}}`,
		`{"metadata":{"uid":"00000000-0000-4000-8000-00000000dead"}}`, `{"metadata":{"finalizers":["example.com/f"]}}`, `{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":null}}`,
		`{"metadata":{"labels":{"l":"` + value + `"}}}`, `{"metadata":{"name":"another"}}`, `{"metadata":{"deletionTimestamp":null}}`, `{"metadata":{"creationTimestamp":null}}`, `not json`, `{}`,
	}
	bodies = append(append(bodies, k.specs...), k.statuses...)
	body, path, contentType := pick(r, bodies), subresource(r, k, k.collection()+"/"+name), mergeType
	if r.IntN(4) == 0 {
		contentType = strategicType
	}
	return op{fmt.Sprintf("%s of %s, %d versions old: %s", contentType, path, back, body), func(t *testing.T, s *side) reply {
		text := body
		if version := s.version(k, name, back); version != "" {
			text = replace(text, "VERSION", version, "UID", s.uidOf(k, name))
		} else {
			text = replace(text, "VERSION", "1", "UID", "1")
		}
		return s.answer(t, "PATCH", path, nil, contentType, []byte(text))
	}}
}

func opRemove(r *rand.Rand, k *playedKind, name string) op {
	body := pick(r, []string{`{}`, `{}`, `{"preconditions":{"uid":"UID"}}`, `{"preconditions":{"uid":"00000000-0000-4000-8000-00000000dead"}}`,
		`{"preconditions":{"resourceVersion":"VERSION"}}`, `{"gracePeriodSeconds":0}`, `{"gracePeriodSeconds":0,"preconditions":{"uid":"UID"}}`,
		`{"gracePeriodSeconds":20}`, `{"gracePeriodSeconds":90}`, `{"gracePeriodSeconds":-5}`, `{"propagationPolicy":"Background"}`})
	back := r.IntN(2)
	return op{fmt.Sprintf("delete %s, %d versions old: %s", name, back, body), func(t *testing.T, s *side) reply {
		text := replace(body, "UID", s.uidOf(k, name), "VERSION", s.version(k, name, back))
		return s.answer(t, "DELETE", k.collection()+"/"+name, nil, jsonType, []byte(text))
	}}
}

func opGet(k *playedKind, name string) op {
	return op{"get " + name, func(t *testing.T, s *side) reply {
		return s.answer(t, "GET", k.collection()+"/"+name, nil, "", nil)
	}}
}

func opList(r *rand.Rand, k *playedKind) op {
	query := url.Values{}
	if len(k.selectors) > 0 && r.IntN(2) == 0 {
		query.Set("fieldSelector", pick(r, k.selectors))
	}
	switch r.IntN(5) {
	case 0:
		query.Set("labelSelector", pick(r, []string{"l=1", "l", "!l", "l in (0,2)", "of=" + k.name, "l=="}))
	case 1:
		query.Set("limit", "1")
	case 2:
		query.Set("resourceVersionMatch", pick(r, []string{"Exact", "NotOlderThan", "Roughly"}))
	}
	path, back := pick(r, []string{k.everywhere(), k.collection()}), r.IntN(4)
	return op{fmt.Sprintf("list %s?%s, %d lists ago", path, query.Encode(), back), func(t *testing.T, s *side) reply {
		if query.Get("resourceVersionMatch") == "Exact" && len(s.lists) > 0 {
			query.Set("resourceVersion", s.lists[max(0, len(s.lists)-1-back)])
		}
		return s.answer(t, "GET", path, query, "", nil)
	}}
}
