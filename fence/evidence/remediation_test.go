package evidence

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// customs is an API server for custom resources: lists by path. What is not in
// it is not installed.
type customs struct {
	rest.Interface
	mu     sync.Mutex
	bodies map[string]any
	code   int // of every answer, unless 0
	asked  []string
}

func newCustoms(t *testing.T) *customs {
	t.Helper()
	c := &customs{bodies: map[string]any{}}
	web := httptest.NewServer(c)
	t.Cleanup(web.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: web.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	c.Interface = client.CoreV1().RESTClient()
	return c
}

func (c *customs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, r.URL.Path)
	body, there := c.bodies[r.URL.Path]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case c.code != 0:
		w.WriteHeader(c.code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"as told"}`,
			map[int]string{403: "Forbidden", 500: "InternalError"}[c.code], c.code)
	case !there:
		http.NotFound(w, r)
	default:
		_ = json.NewEncoder(w).Encode(body)
	}
}

func (c *customs) set(r resource, items ...map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if items == nil {
		items = []map[string]any{}
	}
	c.bodies[r.path()] = map[string]any{"metadata": map[string]any{"resourceVersion": "5"}, "items": items}
}

// garble makes the list of that kind no list.
func (c *customs) garble(r resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies[r.path()] = "garbage"
}

func (c *customs) answer(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.code = code
}

func object(name, uid string, fields map[string]any) map[string]any {
	meta := map[string]any{"name": name, "uid": uid, "namespace": "medik8s"}
	for key, value := range fields {
		if key == "annotations" || key == "deletionTimestamp" {
			meta[key] = value
			delete(fields, key)
		}
	}
	o := map[string]any{"metadata": meta}
	for key, value := range fields {
		o[key] = value
	}
	return o
}

// operators are the two of medik8s: a request, and the claim that it is done.
var operators = []struct {
	source           func(rest.Interface, Records) *Remediation
	pending, claims  func() map[string]any
	detail, notClaim string
}{
	{
		source:  FenceAgentsRemediations,
		pending: func() map[string]any { return conditions("Processing", "True", "RemediationStarted") },
		claims: func() map[string]any {
			return conditions("FenceAgentActionSucceeded", "True", "FenceAgentSucceeded")
		},
		detail: "FenceAgentActionSucceeded: FenceAgentSucceeded",
	},
	{
		source: SelfNodeRemediations,
		pending: func() map[string]any {
			return map[string]any{"status": map[string]any{"phase": "Pre-Reboot-Completed"}}
		},
		claims: func() map[string]any { return map[string]any{"status": map[string]any{"phase": "Reboot-Completed"}} },
		detail: "phase Reboot-Completed",
	},
}

func conditions(kind, status, reason string) map[string]any {
	return map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": kind, "status": status, "reason": reason}}}}
}

// eachOperator runs f for both kinds: they share all rules. say puts what the
// operator says of n1 into the cluster, as object "r1": nil takes it away.
func eachOperator(t *testing.T, f func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func())) {
	t.Helper()
	for _, o := range operators {
		w, c := newWorld(t), newCustoms(t)
		s := o.source(c, w.records())
		t.Run(s.Name(), func(t *testing.T) {
			w.t = t
			f(t, w, s, c, func() { c.set(s.resource, object("n1", "r1", o.pending())) }, func() { c.set(s.resource, object("n1", "r1", o.claims())) })
		})
	}
}

func (w *world) sightRemediation(s *Remediation) {
	w.t.Helper()
	if err := s.Sight(w.t.Context(), w.node, w.leaseRV); err != nil {
		w.t.Fatal(err)
	}
}

func TestWithoutTheKindsInTheClusterThereIsNothing(t *testing.T) {
	eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v", found)
		}
		w.sightRemediation(s)
		if w.server.Writes() != 0 || len(c.asked) != 2 {
			t.Fatalf("%d writes, asked %q", w.server.Writes(), c.asked)
		}
	})
}

func TestARemediationCountsOnceItsOperatorClaimsTheFence(t *testing.T) {
	for _, o := range operators {
		w, c := newWorld(t), newCustoms(t)
		s := o.source(c, w.records())
		c.set(s.resource, object("n1", "r1", o.pending()))
		if found := w.ask(s); found != nil {
			t.Fatalf("%s: a request is evidence: %+v", s.Name(), found)
		}
		w.leaseRV = "72" // it lived on until it was fenced
		c.set(s.resource, object("n1", "r1", o.claims()))
		w.expect(s, true, "")
		want := fence.Evidence{Kind: s.kind, Source: "n1", Detail: o.detail, NodeName: "n1", NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "72"}
		if found := w.ask(s); len(found) != 1 || found[0] != want {
			t.Fatalf("%s: evidence %+v", s.Name(), found)
		}
		if got := w.actions(); got != "BindRemediation BindRemediation" {
			t.Fatalf("audit trail: %s", got)
		}
		if b := w.record().Taints[s.prefix()+"r1"]; b.BoundAt == "" {
			t.Errorf("%+v does not say when it was bound", b)
		}
	}
}

func TestAClaimThatItsOperatorTakesBackIsNoEvidence(t *testing.T) {
	eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
		claims()
		w.expect(s, true, "")
		pending()
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v", found)
		}
	})
}

func TestAClaimCountsBesideARequestThatCameFirst(t *testing.T) {
	for _, o := range operators {
		w, c := newWorld(t), newCustoms(t)
		s := o.source(c, w.records())
		first := object("n1", "r1", o.pending())
		c.set(s.resource, first)
		w.sightRemediation(s)
		second := o.claims()
		second["annotations"] = map[string]string{remediatedNode: "n1"}
		c.set(s.resource, first, object("generated-x7", "r2", second))
		if found := w.ask(s); len(found) != 1 || found[0].Source != "generated-x7" || found[0].Void != "" {
			t.Errorf("%s: evidence %+v", s.Name(), found)
		}
	}
}

func TestOnlyTheOperatorsOwnSuccessIsAClaim(t *testing.T) {
	far, snr := FenceAgentsRemediations(nil, Records{}), SelfNodeRemediations(nil, Records{})
	for _, tt := range []struct {
		s      *Remediation
		fields map[string]any
		want   bool
	}{
		{far, conditions("FenceAgentActionSucceeded", "True", "x"), true},
		{far, conditions("FenceAgentActionSucceeded", "Unknown", "x"), false},
		{far, conditions("FenceAgentActionSucceeded", "False", "x"), false},
		{far, conditions("Succeeded", "True", "x"), false},
		{far, map[string]any{}, false},
		{snr, map[string]any{"status": map[string]any{"phase": "Fencing-Completed"}}, true},
		{snr, map[string]any{"status": map[string]any{"phase": "Fencing-Started"}}, false},
		{snr, map[string]any{"status": map[string]any{"phase": "Unknown"}}, false},
		{snr, map[string]any{"status": map[string]any{"timeAssumedRebooted": "2020-01-01T00:00:00Z"}}, false},
		{snr, map[string]any{}, false},
	} {
		text, err := json.Marshal(object("n1", "r1", tt.fields))
		if err != nil {
			t.Fatal(err)
		}
		var r remediation
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		if got := tt.s.claims(&r) != ""; got != tt.want {
			t.Errorf("%s: %v claims: %v", tt.s.Name(), tt.fields, got)
		}
	}
}

func TestARemediationThatTheNodeOutlivedIsDeadForGood(t *testing.T) {
	changes := map[string]struct {
		change func(w *world)
		note   string
	}{
		"lease renewed": {func(w *world) { w.leaseRV = "71" }, fence.VoidLeaseChanged},
		"rebooted":      {func(w *world) { w.node = machine("u1", "b2", "60") }, fence.VoidBootChanged},
		"boot ID lost":  {func(w *world) { w.node = machine("u1", "", "60") }, fence.VoidNoBootID},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
				claims()
				w.expect(s, true, "")
				before := w.node.DeepCopy()
				change.change(w)
				w.expect(s, false, change.note)
				before.ResourceVersion = "61"
				w.node, w.leaseRV = before, "70"
				w.expect(s, false, change.note)
				if got := w.record().Taints[string(s.kind)+"/r1"].Void; got != change.note {
					t.Fatalf("in the record: %q", got)
				}
				// Another remediation is another object.
				c.set(s.resource)
				w.sightRemediation(s)
				if len(w.record().Taints) != 0 || !strings.HasSuffix(w.actions(), " ClearRemediation") {
					t.Fatalf("not forgotten: %+v, audit trail: %s", w.record().Taints, w.actions())
				}
			})
		})
	}
}

func TestTheMachineThatCameUpDuringTheRemediationIsNotTheOneThatWasFenced(t *testing.T) {
	eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
		pending()
		w.sightRemediation(s)
		w.node = machine("u1", "b2", "60")
		w.holder.BootID = "b2"
		claims()
		w.expect(s, false, fence.VoidBootChanged)
		w.expect(s, false, fence.VoidBootChanged)
	})
}

func TestARemediationThatIsTakenBackOrOfAnotherNodeIsNoEvidence(t *testing.T) {
	for _, o := range operators {
		for name, fields := range map[string]map[string]any{
			"being deleted":          {"deletionTimestamp": "2026-01-01T00:00:00Z"},
			"of another node":        {"annotations": map[string]string{remediatedNode: "n2"}},
			"of the node, otherwise": {"annotations": map[string]string{remediatedNode: "n1"}},
		} {
			w, c := newWorld(t), newCustoms(t)
			s := o.source(c, w.records())
			for key, value := range o.claims() {
				fields[key] = value
			}
			objectName := "n1"
			if name == "of the node, otherwise" {
				objectName = "generated-x7"
			}
			c.set(s.resource, object("n7", "r7", o.claims()), object(objectName, "r1", fields))
			found := w.ask(s)
			if (len(found) == 1) != (objectName == "generated-x7") {
				t.Errorf("%s, %s: evidence %+v", s.Name(), name, found)
			}
		}
	}
}

func TestARemediationOfADeletedNodeCountsWhileItsLeaseIsUnchanged(t *testing.T) {
	eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
		claims()
		node := w.node
		w.node = nil
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence before it was ever bound %+v", found)
		}
		w.node = node
		w.expect(s, true, "")
		w.node = nil
		w.expect(s, true, "")
		w.leaseRV = "71"
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v", found)
		}
		w.leaseRV = ""
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence %+v", found)
		}
		w.node, w.leaseRV = machine("u2", "b2", "90"), "70"
		if found := w.ask(s); found != nil {
			t.Fatalf("evidence of another machine %+v", found)
		}
	})
}

func TestAReadOnlyRemediationIsReportedAndNothingIsWritten(t *testing.T) {
	for _, o := range operators {
		w, c := newWorld(t), newCustoms(t)
		s := o.source(c, Records{Store: w.store, ReadOnly: true})
		c.set(s.resource, object("n1", "r1", o.claims()))
		w.expect(s, true, "")
		reads := len(c.asked)
		w.sightRemediation(s)
		if w.server.Writes() != 0 || len(c.asked) != reads {
			t.Errorf("%s: something was written, or read for nothing", s.Name())
		}
	}
}

func TestAHolderOfUnknownNameHasNoRemediation(t *testing.T) {
	eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
		claims()
		q := w.question()
		q.Holder.NodeName = ""
		if found, err := s.Evidence(t.Context(), q); found != nil || err != nil || len(c.asked) > 0 {
			t.Fatalf("got %+v, %v, asked for %q", found, err, c.asked)
		}
	})
}

// Else a claim that the node has outlived would be bound anew, to the lease of now.
func TestRemediationsThatCannotBeReadAreNotTakenForGone(t *testing.T) {
	eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
		claims()
		w.sightRemediation(s)
		for _, code := range []int{403, 500} {
			c.answer(code)
			if err := s.Sight(t.Context(), w.node, w.leaseRV); err == nil {
				t.Errorf("%d: no error", code)
			}
		}
		if got := w.actions(); got != "BindRemediation" {
			t.Errorf("audit trail: %s", got)
		}
		c.answer(0)
		c.set(s.resource)
		w.server.Forbid("get")
		if err := s.Sight(t.Context(), w.node, w.leaseRV); !apierrors.IsForbidden(err) {
			t.Errorf("without the record: %v", err)
		}
	})
}

// Calls about many volumes of one node share it.
func TestTheRecordThatWasReadIsNotChanged(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
			claims()
			w.sightRemediation(s)
			w.leaseRV = "71"
			q, before := w.question(), w.record()
			s.records.ReadOnly = readOnly
			if found, err := s.Evidence(t.Context(), q); err != nil || len(found) != 1 || found[0].Void != fence.VoidLeaseChanged {
				t.Fatalf("got %+v, %v", found, err)
			}
			if !reflect.DeepEqual(q.Record, before) {
				t.Errorf("the record that was read has become %+v", q.Record)
			}
		})
	}
}

func TestARemediationThatCannotBeReadOrBoundIsAnError(t *testing.T) {
	eachOperator(t, func(t *testing.T, w *world, s *Remediation, c *customs, pending, claims func()) {
		claims()
		w.server.Forbid("create")
		if found, err := s.Evidence(t.Context(), w.question()); !apierrors.IsForbidden(err) || found != nil {
			t.Fatalf("got %+v, %v", found, err)
		}
		w.server.Forbid("")
		c.answer(500)
		found, err := s.Evidence(t.Context(), w.question())
		if err == nil || found != nil || !strings.Contains(err.Error(), s.Name()) {
			t.Fatalf("got %+v, %v", found, err)
		}
		// A right that is missing must not keep other evidence from counting.
		c.answer(403)
		w.expect(s, false, voidForbidden+s.resource.plural+"."+s.resource.group)
		c.answer(0)
		c.garble(s.resource)
		found, err = s.Evidence(t.Context(), w.question())
		if err == nil || found != nil || !strings.Contains(err.Error(), "cannot understand "+s.Name()) {
			t.Fatalf("got %+v, %v", found, err)
		}
	})
}
