package record_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/record/leasetest"
)

func powerFence(id string) record.Fence {
	return record.Fence{ID: id, Kind: fence.PowerReading, Phase: record.Fenced, Actor: "a", StartedAt: "2026-01-02T03:04:05Z",
		Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "7", SystemUUID: "s1"}}
}

// vouching is a record with power fence f1, for which its writer vouches.
func vouching(t *testing.T) (*leasetest.Server, *record.Store) {
	t.Helper()
	server, s := serve(t)
	update(t, s, func(r *record.Record) { r.PutFence(powerFence("f1"), "Fenced") })
	return server, s
}

func update(t *testing.T, s *record.Store, change func(*record.Record)) {
	t.Helper()
	if _, err := s.Update(t.Context(), "n1", func(r *record.Record) (bool, error) { change(r); return true, nil }); err != nil {
		t.Fatal(err)
	}
}

func vouchOn(server *leasetest.Server) string {
	return server.Lease(ns, record.LeaseName("n1")).Annotations[record.FencedAnnotation]
}

// vouched tells it of the current power fence, as it is read anew.
func vouched(t *testing.T, s *record.Store) bool {
	t.Helper()
	r := get(t, s, "n1")
	return r.Vouched(r.Fence(fence.PowerReading, ""))
}

var digests = regexp.MustCompile(`^(d=)?[0-9a-f]{64}(,(d=)?[0-9a-f]{64})*$`)

func TestWhoWritesAFenceVouchesForItFromItsBeginning(t *testing.T) {
	for _, kind := range []fence.Kind{fence.PowerReading, fence.StorageFence} {
		server, s := serve(t)
		f := powerFence("f1")
		if f.Kind = kind; kind == fence.StorageFence {
			f.Driver = "d"
		}
		seen := map[string]bool{}
		for _, next := range []func(){
			func() { f.Phase = record.Fencing },
			func() { f.Phase = record.Fenced },
			func() { f.Machine.LeaseRV = "8" },
			func() { f.Phase, f.LiftReason = record.Lifting, "booted" },
		} {
			if next(); f.BeingLifted() && kind == fence.PowerReading {
				break
			}
			update(t, s, func(r *record.Record) { r.PutFence(f, "Fence") })
			got := vouchOn(server)
			if r := get(t, s, "n1"); !digests.MatchString(got) || seen[got] || !r.Vouched(r.Fence(kind, "d")) {
				t.Errorf("%s: %s of %s: vouched for is %q", f.Phase, kind, f.Machine.LeaseRV, got)
			}
			seen[got] = true
		}
	}
}

// Who may vouch for the storage fences of one driver speaks for those of no other, and for
// no machine's power: by what stands before the digest a policy tells them apart.
func TestAStorageFenceIsVouchedForInTheNameOfItsDriver(t *testing.T) {
	storage := func(id, driver string) record.Fence {
		f := powerFence(id)
		f.Kind, f.Driver = fence.StorageFence, driver
		return f
	}
	server, s := serve(t)
	update(t, s, func(r *record.Record) {
		r.PutFence(powerFence("power"), "Fenced")
		r.PutFence(storage("of-d", "d"), "Fenced")
		r.PutFence(storage("of-e", "e"), "Fenced")
	})
	is := func(want ...string) {
		t.Helper()
		r := get(t, s, "n1")
		var got []string
		for _, f := range r.Fences {
			if r.Vouched(&f) {
				got = append(got, f.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("vouched for are %v, want %v", got, want)
		}
	}
	is("power", "of-d", "of-e")
	all := vouchOn(server)
	write := func(change func(of, digest string) string) {
		t.Helper()
		lease := server.Lease(ns, record.LeaseName("n1"))
		entries := strings.Split(all, ",")
		for i, e := range entries {
			of, digest, named := strings.Cut(e, "=")
			if !named {
				of, digest = "", e
			}
			entries[i] = change(of, digest)
		}
		lease.Annotations[record.FencedAnnotation] = strings.Join(entries, ",")
		server.Put(lease)
	}
	write(func(of, digest string) string { return "d=" + digest })
	is("of-d")
	write(func(of, digest string) string { return digest })
	is("power")
	write(func(of, digest string) string { return "D=" + digest })
	is()

	// Names that no driver has are no way around that.
	for _, driver := range []string{"d=x", "d,e", ","} {
		_, s := serve(t)
		update(t, s, func(r *record.Record) {
			f := storage("f", driver)
			r.PutFence(f, "Fenced")
			if r.Vouched(&f) {
				t.Errorf("%q: a writer vouches for it", driver)
			}
		})
		if r := get(t, s, "n1"); r.Vouched(r.Fence(fence.StorageFence, driver)) {
			t.Errorf("%q: it is vouched for", driver)
		}
	}
}

func TestAFenceThatFailedIsVouchedForByNobody(t *testing.T) {
	for _, phase := range []record.Phase{record.Failed, record.Void} {
		server, s := serve(t)
		update(t, s, func(r *record.Record) {
			f := powerFence("f1")
			f.Phase = phase
			r.PutFence(f, "Fence")
		})
		if v := vouchOn(server); v != "" {
			t.Errorf("%s: %s", phase, v)
		}
	}
}

// What lifts a storage fence is part of what is vouched for: the boot that it was made in,
// the kubelet that was watched, and that somebody has begun to.
func TestWhatLiftsAStorageFenceCannotBePutIntoTheRecord(t *testing.T) {
	storage := func(t *testing.T) (*leasetest.Server, *record.Store) {
		t.Helper()
		server, s := serve(t)
		update(t, s, func(r *record.Record) {
			f := powerFence("f1")
			f.Kind, f.Driver = fence.StorageFence, "d"
			r.PutFence(f, "Fenced")
		})
		return server, s
	}
	vouches := func(s *record.Store) bool { r := get(t, s, "n1"); return r.Vouched(r.Fence(fence.StorageFence, "d")) }
	seen := record.Witness{NodeUID: "u1", BootID: "b1", ReadySince: "x", LeaseRV: "7", Actor: "a"}
	_, s := storage(t)
	update(t, s, func(r *record.Record) { r.PutWitness("f1", seen) })
	if !vouches(s) {
		t.Error("who may fence writes a witness, and the fence is vouched for no more")
	}
	other := get(t, s, "n1")
	other.Fences[0].Witness.ReadySince = "y"
	if other.Vouched(&other.Fences[0]) {
		t.Error("another witness than the one that was vouched for is")
	}
	update(t, s, func(r *record.Record) { f := &r.Fences[0]; r.Still(f, func() bool { return f.Lift("booted") }) })
	if !vouches(s) {
		t.Error("who may fence begins to lift, and the fence is vouched for no more")
	}
	update(t, s, func(r *record.Record) { r.Still(&r.Fences[0], r.Fences[0].CallOffLift) })
	if !vouches(s) {
		t.Error("who may fence calls that off, and the fence is vouched for no more")
	}
	for name, forge := range map[string]func(*record.Record){
		"a witness":         func(r *record.Record) { r.Fences[0].Witness = &seen },
		"another boot":      func(r *record.Record) { r.Fences[0].Machine.BootID = "b0" },
		"that it is lifted": func(r *record.Record) { r.Fences[0].Lift("booted") },
		"another driver":    func(r *record.Record) { r.Fences[0].Driver = "e" },
		"more that was cut": func(r *record.Record) { r.Fences[0].What = "192.0.2.9/32" },
		"one more request": func(r *record.Record) {
			r.Fences[0].Steps = []record.FenceStep{{Agent: "array", Action: "off", Detail: "192.0.2.9/32"}}
		},
		"the Node's own word": func(r *record.Record) { r.Fences[0].OwnWord = true },
		"another actor":       func(r *record.Record) { r.Fences[0].Actor = "b" },
	} {
		_, s := storage(t)
		update(t, s, forge)
		r := get(t, s, "n1")
		if r.Vouched(&r.Fences[0]) {
			t.Errorf("%s is vouched for", name)
		}
		// Nor by who goes on with it.
		update(t, s, func(r *record.Record) {
			r.Still(&r.Fences[0], func() bool { return r.Fences[0].Lift("booted") || true })
		})
		if r := get(t, s, "n1"); r.Vouched(&r.Fences[0]) {
			t.Errorf("%s is vouched for once somebody lifts it", name)
		}
		// Nor is it once the record is as it was.
		update(t, s, func(r *record.Record) {
			f := powerFence("f1")
			r.Fences[0].Witness, r.Fences[0].Machine, r.Fences[0].Driver, r.Fences[0].Phase, r.Fences[0].LiftReason = nil, f.Machine, "d", record.Fenced, ""
			r.Fences[0].What, r.Fences[0].Steps, r.Fences[0].Actor, r.Fences[0].OwnWord = "", nil, f.Actor, false
		})
		if vouches(s) {
			t.Errorf("%s: what has ended is taken up again", name)
		}
	}
}

// The record itself is written by the sidecars of all drivers.
func TestAVouchIsForTheVeryMachineAndLease(t *testing.T) {
	for name, forge := range map[string]func(string) string{
		"another fence":       func(text string) string { return strings.Replace(text, `"id":"f1"`, `"id":"f2"`, 1) },
		"another Node":        func(text string) string { return strings.Replace(text, `"nodeUID":"u1"`, `"nodeUID":"u2"`, 1) },
		"another boot":        func(text string) string { return strings.Replace(text, `"bootID":"b1"`, `"bootID":"b2"`, 1) },
		"another lease":       func(text string) string { return strings.Replace(text, `"leaseRV":"7"`, `"leaseRV":"8"`, 1) },
		"another system UUID": func(text string) string { return strings.Replace(text, `"systemUUID":"s1"`, `"systemUUID":"s2"`, 1) },
		"under way":           func(text string) string { return strings.Replace(text, `"phase":"Fenced"`, `"phase":"Fencing"`, 1) },
	} {
		server, s := vouching(t)
		lease := server.Lease(ns, record.LeaseName("n1"))
		text := lease.Annotations[record.Annotation]
		lease.Annotations[record.Annotation] = forge(text)
		if lease.Annotations[record.Annotation] == text {
			t.Fatalf("%s: nothing was changed in %s", name, text)
		}
		server.Put(lease)
		if vouched(t, s) {
			t.Errorf("%s is vouched for", name)
		}
	}
}

// Who may not add to an annotation is refused by the API server where it grows.
func TestAChangeOfSomethingElseAddsNoVouch(t *testing.T) {
	server, s := vouching(t)
	was := vouchOn(server)
	update(t, s, func(r *record.Record) { r.Note("a", "Test", "x") })
	if got := vouchOn(server); got != was {
		t.Errorf("the vouch became %s", got)
	}
	for name, text := range map[string]string{"none": "", "unreadable": "{", "of no fence that there is": strings.Repeat("0", 64)} {
		lease := server.Lease(ns, record.LeaseName("n1"))
		lease.Annotations[record.FencedAnnotation] = text
		server.Put(lease)
		if vouched(t, s) {
			t.Errorf("%s: it is vouched for", name)
		}
		update(t, s, func(r *record.Record) { r.Note("a", "Test", name) })
		if got := vouchOn(server); got != "" {
			t.Errorf("%s: the vouch became %s", name, got)
		}
	}
}

// Somebody made the record say that the fence has ended. Whoever sees that next, also one
// who then finds nothing to end, has that stay so.
func TestWhatEndedInTheRecordIsVouchedForNoMore(t *testing.T) {
	server, s := vouching(t)
	lease := server.Lease(ns, record.LeaseName("n1"))
	text := lease.Annotations[record.Annotation]
	lease.Annotations[record.Annotation] = strings.Replace(text, `"phase":"Fenced"`, `"phase":"Void"`, 1)
	server.Put(lease)
	if _, err := s.Update(t.Context(), "n1", func(r *record.Record) (bool, error) { return r.EndFence("f1", record.Void, "on", "a"), nil }); err != nil {
		t.Fatal(err)
	}
	lease = server.Lease(ns, record.LeaseName("n1"))
	lease.Annotations[record.Annotation] = text
	server.Put(lease)
	if vouched(t, s) {
		t.Error("it is taken up again")
	}
	writes := server.Writes()
	if _, err := s.Update(t.Context(), "n1", func(r *record.Record) (bool, error) { return false, nil }); err != nil || server.Writes() != writes {
		t.Errorf("nothing changes, and it is written: %v", err)
	}
}

func TestAFenceThatEndsIsNotVouchedForAnyMore(t *testing.T) {
	for name, end := range map[string]func(*record.Record){
		"ended":       func(r *record.Record) { r.EndFence("f1", record.Void, "read as on again", "a") },
		"given power": func(r *record.Record) { r.GivePowerBack("f1", "x", "a") },
		"withdrawn":   func(r *record.Record) { r.WithdrawFence("f1", "x", "a") },
	} {
		server, s := vouching(t)
		update(t, s, end)
		if v := vouchOn(server); v != "" {
			t.Errorf("%s: the vouch is still %s", name, v)
		}
	}
}

// Without this a storage fence that is put next would take the power fence's vouch along,
// or drop it.
func TestAStorageFenceBesideItLeavesThePowerFencesVouch(t *testing.T) {
	server, s := vouching(t)
	was := vouchOn(server)
	update(t, s, func(r *record.Record) {
		f := powerFence("f9")
		f.Kind, f.Driver = fence.StorageFence, "d"
		r.PutFence(f, "Fenced")
	})
	update(t, s, func(r *record.Record) { r.EndFence("f9", record.Lifted, "x", "a") })
	if got := vouchOn(server); got != was || !vouched(t, s) {
		t.Errorf("the vouch is %s", got)
	}
}

func confirmation(id string) record.Confirmation {
	return record.Confirmation{ID: id, By: "ann", Reason: "unplugged", At: "2026-01-02T03:04:05Z",
		Machines: []record.Machine{{NodeID: "i1", NodeUID: "u1", BootID: "b1", SystemUUID: "s1", LeaseRV: "7"}, {NodeUID: "u0"}}}
}

func released(id string) record.Release {
	return record.Release{ID: id, Driver: "d1", Volume: "v1", NodeID: "i1", NodeUID: "u1", BootID: "b1", SystemUUID: "s1", LeaseRV: "7",
		Life: record.Silent, Attachment: "a1", Token: "t1", By: "ann", Reason: "looked"}
}

func override(id string) record.Override {
	return record.Override{ID: id, Agent: "bmc", By: "ann", Reason: "broken", Machine: record.Machine{NodeID: "i1", NodeUID: "u1", BootID: "b1", SystemUUID: "s1", LeaseRV: "7"}}
}

// said is a record with a confirmation, a release and an override, as people say them.
func said(t *testing.T) (*leasetest.Server, *record.Store) {
	t.Helper()
	server, s := serve(t)
	_, err1 := s.Confirm(t.Context(), "n1", confirmation("c1"))
	_, err2 := s.ReleaseVolume(t.Context(), "n1", released("r1"))
	_, err3 := s.OverrideAgent(t.Context(), "n1", override("o1"))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return server, s
}

// claims tells which of the three somebody vouches for.
func claims(t *testing.T, s *record.Store) (all string) {
	t.Helper()
	r := get(t, s, "n1")
	for i := range r.Confirmations {
		c := &r.Confirmations[i]
		for j := range c.Machines {
			all += fmt.Sprintln(c.ID, r.Vouched(c.Of(&c.Machines[j])))
		}
	}
	for i := range r.Releases {
		all += fmt.Sprintln(r.Releases[i].ID, r.Vouched(&r.Releases[i]))
	}
	for i := range r.Overrides {
		all += fmt.Sprintln(r.Overrides[i].ID, r.Vouched(&r.Overrides[i]))
	}
	return all
}

func expectClaims(t *testing.T, s *record.Store, what string, want ...string) {
	t.Helper()
	if got := claims(t, s); got != strings.Join(append(want, ""), "\n") {
		t.Errorf("%s: vouched for are\n%swant %v", what, got, want)
	}
}

func TestWhatPeopleSayIsVouchedForUntilTheyTakeItBack(t *testing.T) {
	server, s := said(t)
	expectClaims(t, s, "said", "c1 true", "c1 true", "r1 true", "o1 true")
	lease := func() map[string]string { return server.Lease(ns, record.LeaseName("n1")).Annotations }
	whole := lease()[record.ClaimedAnnotation]
	update(t, s, func(r *record.Record) { r.PutFence(powerFence("f1"), "Fenced") })
	_, err := s.VoidMachine(t.Context(), "n1", "c1", confirmation("c1").Machines[1], "booted", "a")
	if err == nil {
		_, err = s.VoidRelease(t.Context(), "n1", "r1", "booted", "a")
	}
	if err != nil {
		t.Fatal(err)
	}
	now := strings.Split(lease()[record.ClaimedAnnotation], ",")
	if len(now) != 2 || !strings.Contains(whole, now[0]) || !strings.Contains(whole, now[1]) {
		t.Errorf("what is void is vouched for still, or more is than before: %s, then %s", whole, now)
	}
	expectClaims(t, s, "void", "c1 true", "c1 false", "r1 false", "o1 true")

	again := released("r2")
	if _, err := s.ReleaseVolume(t.Context(), "n1", again); err != nil {
		t.Fatal(err)
	}
	expectClaims(t, s, "released once more", "c1 true", "c1 false", "r2 true", "o1 true")
	for what, take := range map[string]func() error{
		"c1": func() error { _, err := s.Withdraw(t.Context(), "n1", "ann", "wrong"); return err },
		"r2": func() error {
			_, err := s.WithdrawReleases(t.Context(), "n1", "ann", "wrong", func(*record.Release) bool { return true })
			return err
		},
		"o1": func() error { _, err := s.WithdrawOverrides(t.Context(), "n1", "ann", "wrong"); return err },
	} {
		was := strings.Count(lease()[record.ClaimedAnnotation], ",")
		if err := take(); err != nil {
			t.Fatal(err)
		}
		if text := lease()[record.ClaimedAnnotation]; was > 0 && strings.Count(text, ",") != was-1 {
			t.Errorf("%s was taken back, and the vouch is %s", what, text)
		}
	}
	if text, there := lease()[record.ClaimedAnnotation]; there {
		t.Errorf("nothing is said any more, and the vouch is %s", text)
	}
	if !vouched(t, s) {
		t.Error("the power fence lost its vouch")
	}
}

func TestWhatASidecarMakesOfAPersonsWordIsVouchedForByNobody(t *testing.T) {
	forge := func(from, to string) func(string) string {
		return func(text string) string { return strings.Replace(text, from, to, 1) }
	}
	machine := []string{`"nodeID":"i1"`, `"nodeUID":"u1"`, `"bootID":"b1"`, `"systemUUID":"s1"`, `"leaseRV":"7"`}
	for part, c := range map[string]struct {
		fields []string
		want   []string
	}{
		`"confirmations":`: {machine, []string{"c1 false", "c1 true", "r1 true", "o1 true"}},
		`"releases":`: {append([]string{`"id":"r1"`, `"driver":"d1"`, `"volume":"v1"`, `"life":"silent"`, `"attachment":"a1"`, `"token":"t1"`}, machine...),
			[]string{"c1 true", "c1 true", "r1 false", "o1 true"}},
		`"overrides":`: {append([]string{`"id":"o1"`, `"agent":"bmc"`}, machine...), []string{"c1 true", "c1 true", "r1 true", "o1 false"}},
	} {
		for _, field := range c.fields {
			server, s := said(t)
			lease := server.Lease(ns, record.LeaseName("n1"))
			before, after, found := strings.Cut(lease.Annotations[record.Annotation], part)
			forged := regexp.MustCompile(`"([a-z]*\d?)"(}?)$`).ReplaceAllString(field, `"${1}9"$2`)
			if part == `"releases":` && strings.Contains(field, "life") {
				forged = `"life":"gone"`
			}
			lease.Annotations[record.Annotation] = before + part + forge(field, forged)(after)
			if !found || forged == field || !strings.Contains(after, field) {
				t.Fatalf("%s: %s is not in %s", part, field, after)
			}
			server.Put(lease)
			want := slices.Clone(c.want)
			if id, is := strings.CutPrefix(field, `"id":"`); is {
				for i := range want {
					want[i] = strings.Replace(want[i], strings.Trim(id, `"`)+" ", strings.Trim(id, `"`)+"9 ", 1)
				}
			}
			expectClaims(t, s, part+field, want...)
		}
	}
	// Nor does a second one come in under the vouch of the first.
	_, s := said(t)
	update(t, s, func(r *record.Record) {
		r.Confirmations = append(r.Confirmations, confirmation("c2"))
		r.Confirmations[0].Machines = append(r.Confirmations[0].Machines, record.Machine{NodeUID: "u9"})
	})
	expectClaims(t, s, "added", "c1 true", "c1 true", "c1 false", "c2 false", "c2 false", "r1 true", "o1 true")
}

// A digest of words that were only strung together would be that of others, too.
func TestWordsAreToldApart(t *testing.T) {
	_, s := serve(t)
	c := confirmation("c1")
	c.Machines = []record.Machine{{NodeUID: "u1", BootID: "2"}}
	if _, err := s.Confirm(t.Context(), "n1", c); err != nil {
		t.Fatal(err)
	}
	update(t, s, func(r *record.Record) { r.Confirmations[0].Machines = []record.Machine{{NodeUID: "u", BootID: "12"}} })
	if r := get(t, s, "n1"); r.Vouched(r.Confirmations[0].Of(&r.Confirmations[0].Machines[0])) {
		t.Error("a machine that has the same letters is vouched for")
	}
}

// Readings are dropped from a record that grows too large before what is vouched for is.
func TestARecordThatIsBoundedKeepsWhatIsVouchedFor(t *testing.T) {
	_, s := serve(t)
	long := strings.Repeat("x", 250)
	update(t, s, func(r *record.Record) {
		f := powerFence("f1")
		f.Steps = []record.FenceStep{{Agent: "bmc", Action: "off", Detail: "sent"}}
		for range 20 {
			f.Steps = append(f.Steps, record.FenceStep{Agent: long, Action: "status", Detail: long, Err: long})
		}
		r.PutFence(f, "Fenced")
	})
	for i := range 8 {
		update(t, s, func(r *record.Record) {
			f := powerFence(fmt.Sprint("s", i))
			f.Kind, f.Driver = fence.StorageFence, fmt.Sprint("d", i)
			for range 20 {
				f.Steps = append(f.Steps, record.FenceStep{Agent: long, Action: "status", Detail: long, Err: long})
			}
			r.PutFence(f, "Fenced")
		})
	}
	if !vouched(t, s) {
		t.Error("the power fence lost its vouch")
	}
	r := get(t, s, "n1")
	if steps := r.Fence(fence.PowerReading, "").Steps; len(steps) > 19 || len(steps) == 0 || steps[0].Action != "off" {
		t.Errorf("%d steps of the first are left, the first of them %+v", len(steps), steps[:min(1, len(steps))])
	}
}

// Somebody took the record off and left the vouch: a withdrawal finds nothing, and ends it
// all the same.
func TestWhatIsVouchedForWithoutARecordEndsWithTheNextLook(t *testing.T) {
	server, s := said(t)
	lease := server.Lease(ns, record.LeaseName("n1"))
	text := lease.Annotations[record.Annotation]
	delete(lease.Annotations, record.Annotation)
	server.Put(lease)
	if _, err := s.Withdraw(t.Context(), "n1", "ann", "wrong"); err != nil {
		t.Fatal(err)
	}
	lease = server.Lease(ns, record.LeaseName("n1"))
	lease.Annotations[record.Annotation] = text
	server.Put(lease)
	expectClaims(t, s, "put back", "c1 false", "c1 false", "r1 false", "o1 false")
}

// Who may fence must not speak for a person, nor the other way round: each writes one of
// the annotations.
func TestOneAnnotationVouchesForNothingOfTheOther(t *testing.T) {
	server, s := said(t)
	update(t, s, func(r *record.Record) { r.PutFence(powerFence("f1"), "Fenced") })
	lease := server.Lease(ns, record.LeaseName("n1"))
	a := lease.Annotations
	a[record.FencedAnnotation], a[record.ClaimedAnnotation] = a[record.ClaimedAnnotation], a[record.FencedAnnotation]
	server.Put(lease)
	if vouched(t, s) {
		t.Error("a person vouches for a fence")
	}
	expectClaims(t, s, "vouched for by who may fence", "c1 false", "c1 false", "r1 false", "o1 false")
}

// bound is a record in which systemUUID and node ID are bound, by who may fence.
func bound(t *testing.T) (*leasetest.Server, *record.Store) {
	t.Helper()
	server, s := serve(t)
	update(t, s, func(r *record.Record) {
		says := []record.Identifier{{Kind: record.SystemUUID, Value: "11111111-2222-3333-4444-555555555555"}, {Kind: record.NodeID("d"), Value: "i1"}}
		r.Bind("u1", says, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} })
	})
	return server, s
}

// Each of these would have a command go to another machine, or keep one from going, and the
// sidecars of all drivers write the record.
func TestAForgedIdentityBindsNothing(t *testing.T) {
	for name, forge := range map[string]func(*record.Record){
		"another value":    func(r *record.Record) { r.Identity.Bound[0].Value = "66666666-7777-8888-9999-aaaaaaaaaaaa" },
		"another kind":     func(r *record.Record) { r.Identity.Bound[1].Kind = record.NodeID("e") },
		"another Node":     func(r *record.Record) { r.Identity.Bound[0].NodeUID = "u2" },
		"it has two nodes": func(r *record.Record) { r.Identity.Bound[0].Other = "n2" },
		"it came later":    func(r *record.Record) { r.Identity.Bound[0].Late = true },
		"one more": func(r *record.Record) {
			r.Identity.Bound = append(r.Identity.Bound, record.Binding{Identifier: record.Identifier{Kind: record.ProviderID, Value: "x/"}, NodeUID: "u1"})
		},
		"one less":            func(r *record.Record) { r.Identity.Bound = r.Identity.Bound[:1] },
		"none":                func(r *record.Record) { r.Identity = nil },
		"none, which is made": func(r *record.Record) { r.Identity = &record.Identity{} },
	} {
		server, s := bound(t)
		was := get(t, s, "n1").Identity
		update(t, s, forge)
		if r := get(t, s, "n1"); len(r.Known().Bound) > 0 || vouchOn(server) != "" {
			t.Errorf("%s: it is bound: %+v, %s", name, r.Known(), vouchOn(server))
		}
		// Nor is it once the record is as it was: what was bound is bound anew.
		update(t, s, func(r *record.Record) { r.Identity = was })
		if r := get(t, s, "n1"); len(r.Known().Bound) > 0 {
			t.Errorf("%s: it is taken up again", name)
		}
		update(t, s, func(r *record.Record) {
			r.Bind("u1", []record.Identifier{was.Of(record.SystemUUID).Identifier, {Kind: record.NodeID("d"), Value: "i2"}}, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} })
		})
		if got := get(t, s, "n1").Known(); len(got.Bound) != 2 || got.Of(record.NodeID("d")).Value != "i2" {
			t.Errorf("%s: bound anew is %+v", name, got)
		}
	}
}

// A build from before takes the vouch from what it writes. That proves nothing then, and what
// was in doubt stays so: who was late is late, and an earlier machine's is not this one's.
func TestADoubtOutlivesItsVouch(t *testing.T) {
	late := record.Identifier{Kind: record.NodeID("d"), Value: "i1"}
	earlier := record.Identifier{Kind: record.ProviderID, Value: "x://z/1"}
	says := []record.Identifier{{Kind: record.SystemUUID, Value: "66666666-7777-8888-9999-aaaaaaaaaaaa"}, earlier, late}
	server, s := bound(t)
	update(t, s, func(r *record.Record) {
		r.BindAs("u1", says, map[string]string{record.ProviderID: record.EarlierMachine}, "it is", "ada")
		r.TakeFrom([]record.Identifier{late}, "n2", "it is", "ada")
	})
	doubted := func(when string) {
		t.Helper()
		r := get(t, s, "n1")
		for _, c := range []struct {
			one          record.Identifier
			system, want string
		}{
			{earlier, says[0].Value, "an earlier machine under its Node was known by x://z/1"},
			{late, says[0].Value, "node n2 was known by i1 first"},
			{late, "11111111-2222-3333-4444-555555555555", "so that it may be another machine"},
			{says[0], says[0].Value, ""},
		} {
			if why := r.NotOwn(c.one, c.system, ""); !strings.Contains(why, c.want) || (why == "") != (c.want == "") {
				t.Errorf("%s, %v: %q, want %q", when, c.one, why, c.want)
			}
		}
	}
	doubted("vouched for")
	lease := server.Lease(ns, record.LeaseName("n1"))
	delete(lease.Annotations, record.FencedAnnotation)
	server.Put(lease)
	if r := get(t, s, "n1"); len(r.Known().Bound) > 0 {
		t.Errorf("it is bound: %+v", r.Known())
	}
	doubted("vouched for by nobody")
	update(t, s, func(r *record.Record) {
		for _, some := range [][]record.Identifier{nil, says[1:], {{Kind: record.SystemUUID, Value: "11111111-2222-3333-4444-555555555555"}, earlier}} {
			if r.Bind("u1", some, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} }) {
				t.Errorf("it says %v, which is not what it was known by, and is bound", some)
			}
		}
	})
	doubted("after it did not say the same UUID")
	bind := func(uid string) *record.Identity {
		update(t, s, func(r *record.Record) {
			r.Bind(uid, says, func(record.Identifier) record.IdentityClaim { return record.IdentityClaim{} })
		})
		return get(t, s, "n1").Known()
	}
	if got := bind("u1"); len(got.Bound) != 3 {
		t.Errorf("bound anew is %+v", got)
	}
	doubted("bound anew")
	// Under another Node of the name it is a first sight.
	for _, b := range bind("u2").Bound {
		if b.Late || b.NodeUID != "u2" {
			t.Errorf("%+v", b)
		}
	}
	var none *record.Record
	if why := none.NotOwn(late, says[0].Value, ""); why != "" {
		t.Error(why)
	}
}

// Who may not bind changes something else in the record.
func TestAChangeOfSomethingElseLeavesWhatIsBound(t *testing.T) {
	server, s := bound(t)
	was := vouchOn(server)
	update(t, s, func(r *record.Record) { r.Note("a", "Test", "x") })
	if r := get(t, s, "n1"); vouchOn(server) != was || !digests.MatchString(was) || len(r.Known().Bound) != 2 {
		t.Errorf("the vouch became %s, what is bound %+v", vouchOn(server), r.Known())
	}
	update(t, s, func(r *record.Record) { r.PutFence(powerFence("f1"), "Fenced") })
	update(t, s, func(r *record.Record) { r.EndFence("f1", record.Void, "on", "a") })
	if vouchOn(server) != was {
		t.Errorf("the vouch became %s", vouchOn(server))
	}
}

// What a person binds is vouched for as well, and what is taken from another node stays so.
func TestWhatAPersonBindsIsVouchedFor(t *testing.T) {
	_, s := bound(t)
	says := []record.Identifier{{Kind: record.NodeID("d"), Value: "i1"}}
	update(t, s, func(r *record.Record) { r.TakeFrom(says, "n2", "it is", "ada") })
	if b := get(t, s, "n1").Known().Of(record.NodeID("d")); !b.Late || b.Other != "n2" {
		t.Errorf("%+v", b)
	}
	update(t, s, func(r *record.Record) { r.BindAs("u1", says, nil, "it is", "ada") })
	if got := get(t, s, "n1").Known(); len(got.Bound) != 2 || got.Of(record.NodeID("d")).Late || got.Of(record.SystemUUID).Value == "" {
		t.Errorf("%+v", got)
	}
}

// What has ended a claim is why it proves nothing, before that nobody vouches for it any more:
// a person who looks for the one has no use for the other.
func TestWhatEndedAClaimIsWhyItProvesNothing(t *testing.T) {
	const why = "the node was heard"
	of := func(c *record.Confirmation) record.Claim { return c.Of(&c.Machines[0]) }
	for name, tt := range map[string]struct {
		claim record.Claim
		want  string
	}{
		"a confirmation":                {of(&record.Confirmation{Machines: []record.Machine{{NodeUID: "u"}}}), fence.VoidUnclaimed},
		"one that is void":              {of(&record.Confirmation{Machines: []record.Machine{{NodeUID: "u"}}, Void: why}), why},
		"one that is void of a machine": {of(&record.Confirmation{Machines: []record.Machine{{NodeUID: "u", Void: why}}}), why},
		"a release":                     {&record.Release{Life: record.Silent}, fence.VoidUnclaimed},
		"one that is void, too":         {&record.Release{Life: record.Silent, Void: why}, why},
		"one of an older version":       {&record.Release{}, fence.VoidOlderVersion},
		"an override":                   {&record.Override{Machine: record.Machine{NodeUID: "u"}}, fence.VoidUnclaimed},
		"one whose machine was heard":   {&record.Override{Machine: record.Machine{NodeUID: "u", Void: why}}, why},
		"a fence":                       {&record.Fence{Phase: record.Fenced}, fence.VoidUnvouched},
		"one that is lifted":            {&record.Fence{Phase: record.Lifting}, fence.VoidLifting},
		"one that does not prove yet":   {&record.Fence{Phase: record.Fencing}, ""},
	} {
		if got := record.New("n1").Doubt(tt.claim); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// The policies let only those who may fence add to what is vouched for.
func TestWhatIsMissingIsVouchedForApartAndEndsWithTheFence(t *testing.T) {
	_, s := vouching(t)
	is := record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: "7", SystemUUID: "s1"}
	if get(t, s, "n1").Early(is) != nil {
		t.Error("a fence of which nobody looked what is missing is an early one")
	}
	update(t, s, func(r *record.Record) { r.PutMissed("f1", "a renewal was due") })
	if f := get(t, s, "n1").Early(is); f == nil || f.Missed != "a renewal was due" {
		t.Fatalf("early: %+v", f)
	}
	for name, m := range map[string]record.FencedMachine{
		"a renewal": {NodeUID: "u1", BootID: "b1", LeaseRV: "8", SystemUUID: "s1"}, "a boot": {NodeUID: "u1", BootID: "b2", LeaseRV: "7", SystemUUID: "s1"},
		"another Node": {NodeUID: "u2", BootID: "b1", LeaseRV: "7", SystemUUID: "s1"},
	} {
		if get(t, s, "n1").Early(m) != nil {
			t.Errorf("it holds after %s", name)
		}
	}
	update(t, s, func(r *record.Record) { r.Fences[0].Missed = "something else" })
	if get(t, s, "n1").Early(is) != nil || !vouched(t, s) {
		t.Error("what is missing is taken from whoever writes records, or the fence is believed no more, once the lease is silent")
	}
	update(t, s, func(r *record.Record) { r.PutMissed("f1", "a renewal was due") })
	update(t, s, func(r *record.Record) { r.EndFence("f1", record.Void, "on again", "b") })
	if get(t, s, "n1").Early(is) != nil {
		t.Error("a void fence proves early")
	}
}

// Nothing could renew it, so that nothing would void what was proven before it was silent.
func TestWithoutALeaseNothingIsProvenEarly(t *testing.T) {
	for leaseRV, want := range map[string]bool{"7": true, "": false} {
		r, is := record.New("n1"), record.FencedMachine{NodeUID: "u1", BootID: "b1", LeaseRV: leaseRV, SystemUUID: "s1"}
		r.PutFence(record.Fence{ID: "f1", Kind: fence.PowerReading, Phase: record.Fenced, Actor: "sidecar", Agents: []string{"bmc"}, Machine: is}, "FencedByReading")
		r.PutMissed("f1", "a renewal was due")
		if got := r.Early(is) != nil; got != want {
			t.Errorf("lease %q: %v", leaseRV, got)
		}
	}
}

func TestOfNoRecordNothingIsVouchedFor(t *testing.T) {
	var none *record.Record
	f := powerFence("f1")
	if none.Vouched(&f) {
		t.Error("a fence of no record is vouched for")
	}
}

// One account writes a fence, and one that may vouch for it does so afterwards, for a fence that
// is there.
func TestAFenceIsVouchedForAfterwards(t *testing.T) {
	server, s := vouching(t)
	lease := server.Lease(ns, record.LeaseName("n1"))
	delete(lease.Annotations, record.FencedAnnotation)
	server.Put(lease)
	if vouched(t, s) {
		t.Fatal("it is vouched for without the annotation")
	}
	next := powerFence("f1")
	next.Machine.LeaseRV = "9"
	update(t, s, func(r *record.Record) {
		r.VouchFor(powerFence("of another"), "b")
		r.VouchFor(next, "b")
	})
	r := get(t, s, "n1")
	if len(r.Fences) != 1 || r.Fences[0].Machine.LeaseRV != "9" || !vouched(t, s) {
		t.Errorf("the fences are %+v, vouched for: %t", r.Fences, vouched(t, s))
	}
	if last := r.Audit[len(r.Audit)-1]; last.Action != "VouchForFence" || last.Actor != "b" || !strings.HasPrefix(last.Detail, "f1: ") {
		t.Errorf("the trail ends with %+v", last)
	}
}
