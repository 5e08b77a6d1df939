package record

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// full is a record with one of everything.
func full() *Record {
	return &Record{
		Version: 1, Node: "n1",
		Taints: map[string]TaintBinding{"node.kubernetes.io/out-of-service": {NodeUID: "u1", BootID: "b1", LeaseRV: "5", NodeRV: "9", Value: "nodeshutdown", BoundAt: "2026-01-02T03:04:05Z", Void: "the node has renewed its lease since"}},
		Confirmations: []Confirmation{{ID: "c1", By: "ann", Reason: "unplugged", At: "2026-01-02T03:04:05Z",
			Machines: []Machine{{NodeID: "id1", NodeUID: "u1", BootID: "b1", LeaseRV: "5", Void: "x"}}, Void: "y"}},
		Releases: []Release{{ID: "r1", Volume: "vol", Driver: "csi.example.com", NodeID: "id1", NodeUID: "u1", Token: "t", By: "ann", Reason: "checked", At: "2026-01-02T03:04:05Z"}},
		Audit:    []Audit{{At: "2026-01-02T03:04:05Z", Actor: "ann", Action: "Confirm", Detail: "c1"}},
	}
}

// stored is the record as it is stored. A field that is added is passed over by the
// version before, unless "must" names it; any other change needs a new version.
const stored = `{"version":1,"node":"n1",` +
	`"taints":{"node.kubernetes.io/out-of-service":{"nodeUID":"u1","bootID":"b1","leaseRV":"5","nodeRV":"9","value":"nodeshutdown","boundAt":"2026-01-02T03:04:05Z","void":"the node has renewed its lease since"}},` +
	`"confirmations":[{"id":"c1","by":"ann","reason":"unplugged","at":"2026-01-02T03:04:05Z","machines":[{"nodeID":"id1","nodeUID":"u1","bootID":"b1","leaseRV":"5","void":"x"}],"void":"y"}],` +
	`"releases":[{"id":"r1","volume":"vol","driver":"csi.example.com","nodeID":"id1","nodeUID":"u1","token":"t","by":"ann","reason":"checked","at":"2026-01-02T03:04:05Z"}],` +
	`"audit":[{"at":"2026-01-02T03:04:05Z","actor":"ann","action":"Confirm","detail":"c1"}]}`

func TestTheStoredFormatIsStable(t *testing.T) {
	text, err := full().encode()
	if err != nil {
		t.Fatal(err)
	}
	if text != stored {
		t.Errorf("encoded:\n%s\nwant:\n%s", text, stored)
	}
	r, err := Parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r, full()) {
		t.Errorf("parsed %+v", r)
	}
}

func TestParseTakesNothingSilently(t *testing.T) {
	tests := []struct{ name, text, says string }{
		{"empty", ``, "unexpected EOF"},
		{"cut off", stored[:len(stored)-9], "unexpected EOF"},
		{"not an object", `[]`, "array"},
		{"null", `null`, "version is missing"},
		{"no version", `{"node":"n1"}`, "version is missing"},
		{"a later version", `{"version":2,"node":"n1","new":true}`, "version 2 is newer"},
		{"a field that has to be known", `{"version":1,"must":["releases.scope"],"node":"n1"}`, `would have to know: releases.scope`},
		{"field in another case", `{"version":1,"Node":"n1"}`, `names no node`},
		{"repeated field", `{"version":1,"node":"n1","node":"n2"}`, `duplicate object member name "node"`},
		{"trailing text", `{"version":1,"node":"n1"} {}`, "after top-level value"},
		{"no node", `{"version":1}`, "names no node"},
		{"a binding to no machine", `{"version":1,"node":"n1","taints":{"k":{"boundAt":"x"}}}`, "nodeUID"},
		{"a confirmation of no machine", `{"version":1,"node":"n1","confirmations":[{"id":"c","by":"a","reason":"b","at":"x","machines":[]}]}`, "names no machine"},
		{"a confirmation of any machine", `{"version":1,"node":"n1","confirmations":[{"id":"c","by":"a","reason":"b","at":"x","machines":[{"bootID":"b"}]}]}`, "neither nodeID nor nodeUID"},
		{"a confirmation by nobody", `{"version":1,"node":"n1","confirmations":[{"id":"c","by":"","reason":"b","at":"x","machines":[{"nodeID":"b"}]}]}`, "by whom"},
		{"a release of every volume", `{"version":1,"node":"n1","releases":[{"id":"r","volume":"","driver":"d","nodeID":"i","by":"a","reason":"b","at":"x"}]}`, "does not name volume"},
		{"a binding to no taint", `{"version":1,"node":"n1","taints":{"":{"nodeUID":"u","boundAt":"x"}}}`, "lacks its key"},
		{"a confirmation without id", `{"version":1,"node":"n1","confirmations":[{"id":"","by":"a","reason":"b","at":"x","machines":[{"nodeID":"b"}]}]}`, "no id"},
		{"a release without id", `{"version":1,"node":"n1","releases":[{"id":"","volume":"v","driver":"d","nodeID":"i","by":"a","reason":"b","at":"x"}]}`, "no id"},
		{"a release by nobody", `{"version":1,"node":"n1","releases":[{"id":"r","volume":"v","driver":"d","nodeID":"i","by":"","reason":"b","at":"x"}]}`, "by whom"},
		{"too long", `{"version":1,"node":"` + strings.Repeat("n", maxBytes) + `"}`, "bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Parse(tt.text)
			if err == nil {
				t.Fatalf("parsed as %+v", r)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(stored)
	f.Add(`{"version":1,"node":"n1"}`)
	f.Add(`{"version":1,"node":"n1","taints":{"":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		again, err := r.Clone().encode()
		if err != nil {
			t.Fatalf("parsed, cannot be written: %v", err)
		}
		back, err := Parse(again)
		if err != nil {
			t.Fatalf("written, cannot be parsed: %v\n%s", err, again)
		}
		if len(back.Taints) != len(r.Taints) || back.Node != r.Node && utf8.ValidString(r.Node) {
			t.Fatalf("changed on the way: %+v, %+v", r, back)
		}
	})
}

func TestTheOldestGoesFirstWhenARecordGrows(t *testing.T) {
	r := New("n1")
	for i := range 1000 {
		r.audit("ann", "Confirm", fmt.Sprint(i, strings.Repeat("x", 10_000)))
		r.Releases = append(r.Releases, Release{ID: fmt.Sprint(i), Volume: strings.Repeat("v", 3000), Driver: "d", NodeID: "i", By: "ann", Reason: "y"})
		r.Confirmations = append(r.Confirmations, Confirmation{ID: fmt.Sprint(i), By: "ann", Reason: "y", Machines: []Machine{{NodeID: "i"}}})
	}
	text, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > maxBytes {
		t.Fatalf("%d bytes", len(text))
	}
	back, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(back.Audit); n == 0 || n > maxAudit || !strings.HasPrefix(back.Audit[n-1].Detail, "999") {
		t.Errorf("%d audit entries, the newest is not kept", n)
	}
	if n := len(back.Releases); n == 0 || back.Releases[n-1].ID != "999" || n > 1 && back.Releases[0].ID != fmt.Sprint(1000-n) {
		t.Errorf("%d releases, not the newest", n)
	}
	if n := len(back.Confirmations); n != maxConfirmations || back.Confirmations[n-1].ID != "999" {
		t.Errorf("%d confirmations, not the newest", n)
	}
}

func TestARecordKeepsAsManyClaimsAsItMayHave(t *testing.T) {
	r := New("n1")
	for i := range 2 * maxReleases {
		id := fmt.Sprint(i)
		r.audit("ann", "Confirm", id)
		r.Releases = append(r.Releases, Release{ID: id, Volume: "v", Driver: "d", NodeID: "i", By: "ann", Reason: "y"})
		r.Overrides = append(r.Overrides, Override{ID: id, Agent: id, By: "ann", Reason: "y", Machine: Machine{NodeUID: "u1"}})
		switch i + 1 {
		case maxOverrides, maxAudit, maxReleases:
			r.bound()
			if len(r.Releases) != i+1 || len(r.Overrides) != maxOverrides || len(r.Audit) != min(i+1, maxAudit) {
				t.Fatalf("of %d there are %d releases, %d overrides, %d audit entries", i+1, len(r.Releases), len(r.Overrides), len(r.Audit))
			}
		}
	}
	r.bound()
	if len(r.Releases) != maxReleases || len(r.Overrides) != maxOverrides || len(r.Audit) != maxAudit ||
		r.Releases[0].ID != "128" || r.Overrides[0].ID != "240" || r.Audit[0].Detail != "192" {
		t.Errorf("%d releases, %d overrides, %d audit entries, not the newest", len(r.Releases), len(r.Overrides), len(r.Audit))
	}
}

func TestARecordThatCannotBeMadeSmallEnoughIsNotWritten(t *testing.T) {
	r := full()
	r.Releases = append(r.Releases, r.Releases[0])
	r.Confirmations = append(r.Confirmations, r.Confirmations[0])
	r.Taints["k"] = TaintBinding{NodeUID: strings.Repeat("u", maxBytes)}
	if text, err := r.encode(); err == nil || !strings.Contains(err.Error(), "more than 204800") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// The last word that was given is not dropped without a sign.
func TestOfClaimsThatAreTooLongTheNewestIsKeptOrRefused(t *testing.T) {
	long := strings.Repeat("x", maxBytes*2/3)
	for what, add := range map[string]func(r *Record, id, text string){
		"release": func(r *Record, id, text string) {
			r.Releases = append(r.Releases, Release{ID: id, Volume: "v", Driver: "d", NodeID: "i", Token: text, By: "ann", Reason: "y"})
		},
		"confirmation": func(r *Record, id, text string) {
			r.Confirmations = append(r.Confirmations, Confirmation{ID: id, By: text, Reason: "y", Machines: []Machine{{NodeID: "i"}}})
		},
	} {
		r := New("n1")
		add(r, "old", long)
		add(r, "new", long)
		if text, err := r.encode(); err != nil || strings.Contains(text, `"old"`) || !strings.Contains(text, `"new"`) {
			t.Errorf("of two %ss the newest is not kept: %v", what, err)
		}
		add(r, "longer", long+long)
		if text, err := r.encode(); err == nil {
			t.Errorf("the only %s was dropped: %s", what, text)
		}
	}
}

// Of what makes a record too long the only question stays, too.
func TestTheOnlyQuestionIsNotDropped(t *testing.T) {
	r := New("n1")
	r.Questions = []Question{{ID: "q", Driver: "d", Actor: "a", At: "t", NodeUID: "u1"}}
	for _, id := range []string{"old", "new"} {
		r.Releases = append(r.Releases, Release{ID: id, Volume: "v", Driver: "d", NodeID: "i", Token: strings.Repeat("x", maxBytes*2/3), By: "ann", Reason: "y"})
	}
	if text, err := r.encode(); err != nil || !strings.Contains(text, `"id":"q"`) || strings.Contains(text, `"old"`) || !strings.Contains(text, `"new"`) {
		t.Errorf("%v, %d questions, %d releases", err, len(r.Questions), len(r.Releases))
	}
}

func TestARecordOfExactlyTheBoundIsWrittenAndRead(t *testing.T) {
	r := New(strings.Repeat("n", maxBytes-len(`{"version":1,"node":""}`)))
	text, err := r.encode()
	if err != nil || len(text) != maxBytes {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if _, err := Parse(text); err != nil {
		t.Error(err)
	}
	r.Node += "n"
	if _, err := r.encode(); err == nil {
		t.Error("one byte more is written")
	}
}

func TestAnAuditTrailIsBoundedBySizeNotOnlyByNumber(t *testing.T) {
	for n := range maxAudit + 1 {
		r := New("n1")
		for i := range n {
			r.audit(strings.Repeat("a", 100), strings.Repeat("c", 100), fmt.Sprint(i, strings.Repeat("x", maxText)))
		}
		r.bound()
		size := 0
		for _, a := range r.Audit {
			size += len(a.At) + len(a.Actor) + len(a.Action) + len(a.Detail)
		}
		if size > maxAuditBytes || len(r.Audit) < n && size < maxAuditBytes*9/10 {
			t.Fatalf("of %d entries %d are left, which have %d bytes; the bound is %d", n, len(r.Audit), size, maxAuditBytes)
		}
	}
}

func TestClippedTextIsValid(t *testing.T) {
	for n := range 8 {
		s := clip(strings.Repeat("a", n) + strings.Repeat("ü€😀", 500))
		if len(s) > maxText || !utf8.ValidString(s) {
			t.Fatalf("%d bytes, valid: %v", len(s), utf8.ValidString(s))
		}
	}
	for _, n := range []int{0, 1, maxText - 1, maxText} {
		if s := strings.Repeat("a", n); clip(s) != s {
			t.Errorf("a text of %d bytes is cut", n)
		}
	}
	if s := clip(strings.Repeat("a", maxText+1)); s != strings.Repeat("a", maxText-3)+"..." {
		t.Errorf("cut to %q", s)
	}
	if s := clip("a\xffb"); !utf8.ValidString(s) {
		t.Fatalf("%q", s)
	}
}

func TestEachNodeHasALeaseNameOfItsOwnThatIsValid(t *testing.T) {
	long := strings.Repeat("a", 253)
	nodes := []string{"n1", "ip-10-0-0-1.eu-west-1.compute.internal", long, long[:248], long[:249], "Upper", "upper", "under_score", "-", "a.", "", "ü"}
	nodes = append(nodes, strings.TrimPrefix(LeaseName(long), hashedPrefix), LeaseName(long), LeaseName("n1"))
	seen := map[string]string{}
	for _, node := range nodes {
		name := LeaseName(node)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("node %q: Lease name %q: %v", node, name, errs)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("nodes %q and %q share Lease %s", node, other, name)
		}
		seen[name] = node
		if node == "" {
			continue
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{NodeAnnotation: node}}}
		if got, ok := NodeOf(lease); !ok || got != node {
			t.Errorf("NodeOf Lease of %q is %q, %v", node, got, ok)
		}
		text, err := New(node).encode()
		if err != nil {
			t.Fatal(err)
		}
		lease.Annotations = map[string]string{Annotation: text}
		if got, ok := NodeOf(lease); !ok || got != node {
			t.Errorf("NodeOf Lease of %q, from its record, is %q, %v", node, got, ok)
		}
	}
	if LeaseName("n1") != "node-n1" {
		t.Errorf("the Lease of n1 is %s", LeaseName("n1"))
	}
}

func TestALeaseThatKeepsNoRecordIsNobodys(t *testing.T) {
	for _, lease := range []*coordinationv1.Lease{
		{ObjectMeta: metav1.ObjectMeta{Name: "leader-election"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "node-"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "sha256-00", Annotations: map[string]string{NodeAnnotation: "n1"}}},
	} {
		if node, ok := NodeOf(lease); ok {
			t.Errorf("Lease %s is taken for node %q's", lease.Name, node)
		}
	}
}

func TestAGarbledRecordSaysWhereItIsAndHowToMendIt(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "csi-fencepost", Name: "node-n1", Annotations: map[string]string{Annotation: `{"version":1,"node":"n2"}`}}}
	_, err := FromLease(lease, "n1")
	var bad *GarbledError
	if !errors.As(err, &bad) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"node n1", `about node "n2"`, "csi-fencepost/node-n1", "kubectl -n csi-fencepost annotate lease node-n1 csi-fencepost.io/record-"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// Removed, as a garbled one is, it would lose what the newer version claims.
func TestARecordOfANewerVersionIsToBeLeftAsItIs(t *testing.T) {
	for _, text := range []string{`{"version":2,"node":"n1"}`, `{"version":1,"must":["releases.scope"],"node":"n1"}`} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName("n1"), Annotations: map[string]string{Annotation: text}}}
		_, err := FromLease(lease, "n1")
		if err == nil || !strings.Contains(err.Error(), "run the newer csi-fencepost") || !strings.Contains(err.Error(), "leave it as it is") || strings.Contains(err.Error(), "kubectl") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
