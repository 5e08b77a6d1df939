package kubeapi

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

var (
	seeds = flag.Uint64("seeds", 4, "how many random runs of the parity test")
	first = flag.Uint64("seed", 1, "the first run's seed")
	steps = flag.Int("steps", 250, "operations in a run")
)

// plugins that the model does not have.
const plugins = "DefaultTolerationSeconds,Priority,ServiceAccount,StorageObjectInUseProtection,TaintNodesByCondition"

func replace(text string, oldnew ...string) string {
	return strings.NewReplacer(oldnew...).Replace(text)
}

// wipe takes away what a run before left behind.
func wipe(t *testing.T, s *side, all []*playedKind) {
	for _, k := range all {
		for _, name := range []string{nameOf(k, 0), nameOf(k, 1), nameOf(k, 2), lastName(k), "another"} {
			path := k.collection() + "/" + name
			for _, step := range [][3]string{{"PATCH", mergeType, `{"metadata":{"finalizers":null}}`}, {"DELETE", jsonType, `{"gracePeriodSeconds":0}`}, {"DELETE", jsonType, `{"gracePeriodSeconds":0}`}} {
				if _, _, err := s.ask(step[0], path, nil, step[1], []byte(step[2])); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// modelConfig is a new model's.
func modelConfig(t *testing.T) *rest.Config {
	model := apiserver.New(apiserver.Options{})
	t.Cleanup(func() {
		for _, c := range model.Complaints() {
			t.Errorf("the model complains: %s", c)
		}
	})
	return model.Config("parity", nil)
}

// The same random operations, of the kinds that csi-fencepost and those around it use,
// are played on both, and every answer's code and reason, every object and every event
// of the watches has to be the same.
//
// Left out of the comparison are: the words of messages, and which fields an Invalid
// names; managedFields; the values of UIDs, versions and times, of which only the
// order and the presence are compared; the status that CSINodes have since
// Kubernetes 1.37. Both sides are asked in JSON: that protobuf says the same is tested in
// package apiserver. Not compared either: reads that may be stale, and compaction. The
// real server runs without the admission plugins that the model does not have (doc.go
// there).
func TestTheModelAnswersAsTheRealServerDoes(t *testing.T) {
	single.take(t)
	realConfig := ownServer(t, "--disable-admission-plugins="+plugins).Cluster.Admin()
	codes, kindsPlayed := map[int]int{}, map[string]int{}
	for seed := *first; seed < *first+*seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			all := kinds()
			real, model := newSide(t, "real", realConfig), newSide(t, "model", modelConfig(t))
			wipe(t, real, all)
			from := [2]map[string]string{versions(t, real, all), versions(t, model, all)}
			play(t, seed, real, model, all, codes, kindsPlayed)
			for _, k := range all {
				compareWatches(t, k, real, model, from)
			}
			wipe(t, real, all)
		})
	}
	t.Logf("%d operations on each side, by the code of the answer: %v; by verb: %v", *seeds*uint64(*steps), codes, kindsPlayed)
	for _, code := range []int{200, 201, 400, 404, 409, 422} {
		if codes[code] == 0 && !t.Failed() {
			t.Errorf("no operation was answered %d: the operations prove too little", code)
		}
	}
}

// play plays the seed's operations on both and compares the answers, and what is
// there afterwards.
func play(t *testing.T, seed uint64, real, model *side, all []*playedKind, codes map[int]int, verbs map[string]int) {
	r := rand.New(rand.NewPCG(seed, 0))
	differences := 0
	for step := range *steps {
		o := draw(r, all)
		want, got := o.do(t, real), o.do(t, model)
		codes[want.Code]++
		verbs[strings.Fields(o.what)[0]]++
		if want != got {
			t.Errorf("step %d, %s:\nreal  %d %s %s\nmodel %d %s %s", step, o.what, want.Code, want.Reason, want.Object, got.Code, got.Reason, got.Object)
			if differences++; differences == 5 {
				t.Fatal("and so on")
			}
		}
		for _, k := range all {
			if strings.Contains(o.what, k.name+"-") && !strings.HasPrefix(o.what, "get") {
				everything := op{"", func(t *testing.T, s *side) reply { return s.answer(t, "GET", k.collection(), nil, "", nil) }}
				if want, got := everything.do(t, real), everything.do(t, model); want != got {
					t.Fatalf("after step %d, %s, there are:\nreal  %s\nmodel %s", step, o.what, want.Object, got.Object)
				}
			}
		}
	}
}

// versions are where the watches begin.
func versions(t *testing.T, s *side, all []*playedKind) map[string]string {
	out := map[string]string{}
	for _, k := range all {
		_, list, err := s.ask("GET", k.everywhere(), nil, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		out[k.name] = at(list, "metadata", "resourceVersion").(string)
	}
	return out
}

// compareWatches watches a kind from the beginning of the run on both, whole and
// through each selector.
func compareWatches(t *testing.T, k *playedKind, real, model *side, from [2]map[string]string) {
	selectors := append([]string{"", "metadata.name!=" + nameOf(k, 1)}, k.watched...)
	for _, s := range []*side{real, model} {
		if code, _, err := s.ask("POST", k.collection(), nil, jsonType, []byte(text(k.make(lastName(k))))); err != nil || code != 201 {
			t.Fatalf("%s: the last %s: %d %v", s.name, k.name, code, err)
		}
	}
	for _, selector := range selectors {
		want, got := real.watch(t, k, selector, from[0][k.name]), model.watch(t, k, selector, from[1][k.name])
		if !slices.Equal(want, got) {
			i := 0
			for i < len(want) && i < len(got) && want[i] == got[i] {
				i++
			}
			t.Errorf("watch of %s %s: %d events on the real one, %d on the model; from event %d on:\nreal  %s\nmodel %s", k.name, selector, len(want), len(got), i,
				strings.Join(want[i:min(len(want), i+2)], "\n"), strings.Join(got[i:min(len(got), i+2)], "\n"))
		}
	}
	for _, s := range []*side{real, model} {
		if _, _, err := s.ask("DELETE", k.collection()+"/"+lastName(k), nil, jsonType, []byte(`{"gracePeriodSeconds":0}`)); err != nil {
			t.Fatal(err)
		}
	}
}

func lastName(k *playedKind) string { return k.name + "-last-a" }

// watch reads all events from a version to the last object's.
func (s *side) watch(t *testing.T, k *playedKind, selector, from string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	query := url.Values{"watch": {"true"}, "resourceVersion": {from}}
	if selector != "" {
		query.Set("fieldSelector", selector)
	}
	r, err := http.NewRequestWithContext(ctx, "GET", s.host+k.everywhere()+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	out, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	order := map[any]int{} // of the versions, as they appear
	var events []string
	lines := json.NewDecoder(bufio.NewReader(out.Body))
	for {
		var e struct {
			Type   string
			Object map[string]any
		}
		if err := lines.Decode(&e); err != nil {
			t.Fatalf("%s: the watch of %s %s ends after %d events: %v", s.name, k.name, selector, len(events), err)
		}
		m, _ := e.Object["metadata"].(map[string]any)
		if m["name"] == lastName(k) {
			return events
		}
		version := m["resourceVersion"]
		if _, seen := order[version]; !seen {
			order[version] = len(order)
		}
		o := s.normal(e.Object)
		o["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint("version ", order[version])
		events = append(events, e.Type+" "+text(o))
	}
}
