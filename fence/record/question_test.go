package record_test

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/format"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

func question(id, driver string) record.Question {
	return record.Question{ID: id, Driver: driver, Actor: "sidecar of " + driver, NodeUID: "u1", BootID: "b1", SystemUUID: "s1", ProviderID: "p1", NodeID: "i1", LeaseRV: "7"}
}

var readOn = record.Answer{State: "on", On: []string{"bmc"}, Agents: []string{"bmc"}, Detail: "power:1", Why: "bmc reads on", Actor: "failover"}

// asked is a store, and what changes the record of node n1 and reads it anew.
func asked(t *testing.T) func(func(*record.Record)) *record.Record {
	t.Helper()
	_, s := serve(t)
	return func(f func(*record.Record)) *record.Record {
		update(t, s, f)
		return get(t, s, "n1")
	}
}

func TestAnAnswerIsVouchedForWithTheQuestionThatItAnswers(t *testing.T) {
	change := asked(t)
	r := change(func(r *record.Record) { r.Ask(question("q1", "d")) })
	if q := r.QuestionOf("d"); q == nil || q.At == "" || r.Vouched(q) || len(r.Open()) != 1 || r.QuestionOf("other") != nil {
		t.Fatalf("asked: %+v", r.Questions)
	}
	r = change(func(r *record.Record) {
		if r.Reply(question("q0", "d"), readOn) || !r.Reply(*r.Question("q1"), readOn) || r.Reply(*r.Question("q1"), record.Answer{State: "off", Actor: "late"}) {
			t.Error("not the one question was answered, once")
		}
	})
	q := r.QuestionOf("d")
	if !r.Vouched(q) || q.Answer.At == "" || q.Answer.State != "on" || len(r.Open()) != 0 || len(r.Audit) != 0 {
		t.Fatalf("answered: %+v", q)
	}
	for name, forge := range map[string]func(*record.Question){
		"the question":     func(q *record.Question) { q.ID = "q2" },
		"the driver":       func(q *record.Question) { q.Driver = "e" },
		"the Node":         func(q *record.Question) { q.NodeUID = "u2" },
		"the boot":         func(q *record.Question) { q.BootID = "b2" },
		"the system":       func(q *record.Question) { q.SystemUUID = "s2" },
		"the instance":     func(q *record.Question) { q.ProviderID = "p2" },
		"the node ID":      func(q *record.Question) { q.NodeID = "i2" },
		"the lease":        func(q *record.Question) { q.LeaseRV = "8" },
		"the state":        func(q *record.Question) { q.Answer.State = "unclear" },
		"who reads on":     func(q *record.Question) { q.Answer.On = nil },
		"by whom":          func(q *record.Question) { q.Answer.Agents = []string{"pdu"} },
		"whether by any":   func(q *record.Question) { q.Answer.Uncovered = true },
		"none was given":   func(q *record.Question) { q.Answer = nil },
		"another for both": func(q *record.Question) { q.Answer.On, q.Answer.Agents = nil, []string{"by", "bmc"} },
	} {
		forged := r.Clone()
		forge(&forged.Questions[0])
		if forged.Vouched(&forged.Questions[0]) {
			t.Errorf("%s: an answer with another one counts", name)
		}
	}
}

func TestANewQuestionEndsTheOldAnswer(t *testing.T) {
	change := asked(t)
	change(func(r *record.Record) { r.Ask(question("q1", "d")); r.Ask(question("q2", "e")) })
	change(func(r *record.Record) { r.Reply(*r.Question("q1"), readOn); r.Reply(*r.Question("q2"), readOn) })
	r := change(func(r *record.Record) {
		next := question("q3", "d")
		next.Answer = &readOn // as nobody but who answers may
		if r.Ask(question("q1", "d")) || !r.Ask(next) {
			t.Error("what was asked already is asked again, or what was not is not")
		}
	})
	if q := r.QuestionOf("d"); q.ID != "q3" || q.Answer != nil || r.Vouched(q) || !r.Vouched(r.QuestionOf("e")) {
		t.Errorf("questions %+v", r.Questions)
	}
}

// Replicas of a driver's sidecar look at what waits, each by itself.
func TestReplicasDoNotTakeEachOthersQuestionsAway(t *testing.T) {
	change := asked(t)
	r := change(func(r *record.Record) {
		r.Ask(question("e", "e"))
		for n := range 8 {
			q := question(fmt.Sprint("q", n), "d")
			q.Actor = fmt.Sprint("replica ", n)
			r.Ask(q)
		}
	})
	var ids []string
	for _, q := range r.Questions {
		ids = append(ids, q.ID)
	}
	if strings.Join(ids, " ") != "e q2 q3 q4 q5 q6 q7" || r.QuestionOf("d").ID != "q7" || r.Question("q0") != nil {
		t.Errorf("questions %v", ids)
	}
}

// A question takes its actor's earlier one away, whatever others have asked since, and none besides.
func TestAQuestionTakesTheEarlierOneOfItsActorOnly(t *testing.T) {
	change := asked(t)
	r := change(func(r *record.Record) {
		for n := range 6 {
			q := question(fmt.Sprint("q", n), "d")
			q.Actor = fmt.Sprint("replica ", n)
			r.Ask(q)
		}
		r.Ask(question("e", "e"))
		again := question("again", "d")
		again.Actor = "replica 5"
		r.Ask(again)
	})
	var ids []string
	for _, q := range r.Questions {
		ids = append(ids, q.ID)
	}
	if got := strings.Join(ids, " "); got != "q0 q1 q2 q3 q4 e again" {
		t.Errorf("questions %s", got)
	}
}

// A record that cannot be read is of the version of its Lease.
func TestARecordThatCannotBeReadHasTheLeasesVersion(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{record.Annotation: `{"questions": [`}}}
	if got := record.Version(lease, "n1"); got != "7" {
		t.Errorf("version %q", got)
	}
}

// Who may write records and not fence writes an answer for which nobody vouches.
func TestAnAnswerThatNobodyVouchesForIsOpen(t *testing.T) {
	change := asked(t)
	r := change(func(r *record.Record) {
		r.Ask(question("q1", "d"))
		r.Questions[0].Answer = &readOn
	})
	if r.Vouched(r.QuestionOf("d")) || len(r.Open()) != 1 {
		t.Errorf("it counts: %+v", r.Questions)
	}
	r = change(func(r *record.Record) { r.Reply(*r.Question("q1"), record.Answer{State: "unclear", Actor: "failover"}) })
	if q := r.QuestionOf("d"); !r.Vouched(q) || q.Answer.State != "unclear" {
		t.Errorf("it is not answered in its place: %+v", q)
	}
}

// Of several machines of a Node that is gone one process asks at once.
func TestAQuestionAboutAnotherMachineTakesNoneAway(t *testing.T) {
	r := asked(t)(func(r *record.Record) {
		first, second, again := question("q1", "d"), question("q2", "d"), question("q3", "d")
		second.ProviderID, again.LeaseRV = "other", "9"
		r.Ask(first)
		r.Ask(second)
		r.Ask(again)
	})
	if len(r.Questions) != 2 || r.Question("q1") != nil {
		t.Errorf("questions %+v", r.Questions)
	}
}

// A pod that writes records and may not fence has no answer vouched for to anything but what it was
// given to.
func TestAQuestionThatWasChangedIsNotAnswered(t *testing.T) {
	for name, change := range map[string]func(*record.Question){
		"the driver": func(q *record.Question) { q.Driver = "e" }, "who asks": func(q *record.Question) { q.Actor = "x" },
		"the Node": func(q *record.Question) { q.NodeUID = "u2" }, "the boot": func(q *record.Question) { q.BootID = "b2" },
		"the system": func(q *record.Question) { q.SystemUUID = "s2" }, "the instance": func(q *record.Question) { q.ProviderID = "p2" },
		"the node ID": func(q *record.Question) { q.NodeID = "i2" }, "the lease": func(q *record.Question) { q.LeaseRV = "8" },
	} {
		r := asked(t)(func(r *record.Record) {
			r.Ask(question("q1", "d"))
			read := *r.Question("q1")
			change(&r.Questions[0])
			if r.Reply(read, readOn) {
				t.Errorf("%s: it is answered", name)
			}
		})
		if r.Vouched(&r.Questions[0]) {
			t.Errorf("%s: somebody vouches for it", name)
		}
	}
}

// Of two processes with agents one may not reach its devices.
func TestWhoCannotTellIsNotHeardBeforeWhoCan(t *testing.T) {
	unclear := record.Answer{State: "unclear", Actor: "first"}
	asked(t)(func(r *record.Record) {
		r.Ask(question("q1", "d"))
		q := *r.Question("q1")
		if !r.Reply(q, unclear) || r.Reply(q, unclear) || !r.Reply(q, readOn) || r.Reply(q, unclear) || r.Reply(q, record.Answer{State: "off", Actor: "x"}) {
			t.Error("what is unclear is no answer to who can tell, and what is clear is one")
		}
		if a := r.Question("q1").Answer; a.State != "on" || !r.Vouched(r.Question("q1")) {
			t.Errorf("answer %+v", a)
		}
	})
}

func TestQuestionsAreBounded(t *testing.T) {
	change := asked(t)
	r := change(func(r *record.Record) {
		for n := range 30 {
			r.Ask(question(fmt.Sprint("q", n), fmt.Sprint("d", n)))
		}
		long := readOn
		long.Why, long.Detail = strings.Repeat("x", 1<<20), strings.Repeat("y", 1<<20)
		for range 100 {
			long.On = append(long.On, strings.Repeat("z", 1<<10))
		}
		r.Reply(*r.Question("q29"), long)
	})
	if len(r.Questions) != 24 || r.QuestionOf("d5") != nil || !r.Vouched(r.QuestionOf("d29")) {
		t.Errorf("%d questions", len(r.Questions))
	}
	if a := r.QuestionOf("d29").Answer; len(a.Why) > 512 || len(a.Detail) > 256 || len(a.On) != 16 || len(a.On[0]) > 256 {
		t.Errorf("an answer of %d and %d bytes, by %d agents", len(a.Why), len(a.Detail), len(a.On))
	}
}

func TestWhatOnlyALaterVersionKnowsOfAQuestionIsKept(t *testing.T) {
	const text = `"questions":[{"id":"q","driver":"d","actor":"a","at":"t","nodeUID":"u1","answer":{"state":"on","actor":"f","at":"t","later":1},"later":{"x":2}}]`
	r, err := record.Parse(`{"version":1,"node":"n1",` + text + `}`)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := format.Text(r); err != nil || !strings.Contains(out, text) {
		t.Errorf("written as %s, %v", out, err)
	}
	for _, bad := range []string{`{"driver":"d","nodeUID":"u"}`, `{"id":"q","nodeUID":"u"}`, `{"id":"q","driver":"d"}`, `{"id":"q","driver":"d","nodeUID":"u","answer":{"state":"on"}}`} {
		if _, err := record.Parse(`{"version":1,"node":"n1","questions":[` + bad + `]}`); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
}

// What waits for a node is looked at again whenever its record changes, and asks again then.
func TestQuestionsAndAnswersAreNoOtherVersionOfARecord(t *testing.T) {
	server, s := serve(t)
	version := func(f func(*record.Record)) string {
		update(t, s, f)
		return record.Version(server.Lease(ns, record.LeaseName("n1")), "n1")
	}
	first := version(func(r *record.Record) { r.PutFence(powerFence("f1"), "Fenced"); r.Ask(question("q1", "d")) })
	for n, change := range []func(*record.Record){
		func(r *record.Record) { r.Reply(*r.Question("q1"), readOn) },
		func(r *record.Record) { r.Ask(question("q2", "d")) },
		func(r *record.Record) { r.Ask(question("q3", "e")) },
	} {
		if got := version(change); got != first {
			t.Errorf("change %d: another version", n)
		}
	}
	seen := map[string]bool{first: true}
	for n, change := range []func(*record.Record){
		func(r *record.Record) { r.EndFence("f1", record.Void, "back", "a") },
		func(r *record.Record) { r.PutFence(powerFence("f2"), "Fenced") },
		func(r *record.Record) {
			r.AddOverride(record.Override{ID: "o", Agent: "bmc", By: "ann", Reason: "x", Machine: record.Machine{NodeUID: "u1"}})
		},
	} {
		if got := version(change); seen[got] {
			t.Errorf("change %d: the same version", n)
		} else {
			seen[got] = true
		}
	}
	lease := server.Lease(ns, record.LeaseName("n1"))
	was := record.Version(lease, "n1")
	delete(lease.Annotations, record.FencedAnnotation)
	if record.Version(lease, "n1") == was {
		t.Error("that a fence is vouched for no more is the same version")
	}
}
