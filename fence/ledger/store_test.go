package ledger

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/format"
)

const (
	driver  = "d.example.com"
	cluster = "cluster-uid"
	handle  = "vol-1"
)

func newPV(name string, options ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	for _, option := range options {
		option(pv)
	}
	return pv
}

func annotated(text string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, Annotation, text)
	}
}

// carrying makes the PV carry a ledger with these entries.
func carrying(entries ...Entry) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		annotated(ledgerOn(pv, entries...).String())(pv)
	}
}

// deleting has it be deleted while only a finalizer of somebody else keeps it.
func deleting(pv *corev1.PersistentVolume) {
	now := metav1.Now()
	pv.DeletionTimestamp = &now
	finalized("example.com/mine")(pv)
}

func finalized(by string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, by) }
}

func ledgerOn(pv *corev1.PersistentVolume, entries ...Entry) *Ledger {
	return &Ledger{Version: 1, Driver: driver, Handle: handle, Cluster: cluster, PVUID: string(pv.UID), Holders: entries}
}

func entry(id string, state fence.State) Entry {
	return Entry{NodeID: id, NodeName: "node-" + id, Token: "token-" + id, State: state}
}

func newStore(a *apiServer) *Store {
	return New(a.client(), cluster, &csi.Identity{Driver: driver})
}

func read(t *testing.T, s *Store, pvs ...string) *Book {
	t.Helper()
	b, err := s.Read(t.Context(), handle, pvs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// put writes one more entry.
func put(t *testing.T, s *Store, b *Book, e Entry) (*Book, error) {
	t.Helper()
	l := b.Ledger.Clone()
	l.Put(e)
	return s.Write(t.Context(), b, l)
}

// stands asserts the node IDs of the ledger that a PV carries.
func stands(t *testing.T, a *apiServer, pv string, ids ...string) {
	t.Helper()
	l, err := Parse(a.pv(pv).Annotations[Annotation])
	if err != nil {
		t.Fatalf("PV %s: %v", pv, err)
	}
	var got []string
	for _, e := range l.Holders {
		got = append(got, e.NodeID)
	}
	if !reflect.DeepEqual(got, ids) {
		t.Errorf("PV %s carries %v, want %v", pv, got, ids)
	}
}

func TestReadTellsAMissingLedgerFromAnEmptyOne(t *testing.T) {
	a := newAPIServer(t, newPV("bare"), newPV("empty", carrying()), newPV("full", carrying(entry("a", fence.Held))))
	s := newStore(a)
	if b := read(t, s, "bare"); !b.Missing || len(b.Ledger.Holders) != 0 || b.Canonical().Name != "bare" {
		t.Errorf("bare: %+v", b)
	}
	if b := read(t, s, "empty"); b.Missing || len(b.Ledger.Holders) != 0 {
		t.Errorf("empty: %+v", b)
	}
	if b := read(t, s, "full"); b.Missing || b.Ledger.Get("a") == nil {
		t.Errorf("full: %+v", b)
	}
}

func TestReadPassesOverPVsThatAreGoneOrNotOfTheVolume(t *testing.T) {
	a := newAPIServer(t, newPV("b"), newPV("a"),
		newPV("other-handle", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "vol-2" }, annotated("garbled")),
		newPV("other-driver", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "e.example.com" }, annotated("garbled")),
		newPV("a-nfs", func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }),
		newPV("nfs", func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }))
	b := read(t, newStore(a), "a-first-and-gone", "gone", "b", "other-handle", "other-driver", "nfs", "a", "b")
	var names []string
	for _, pv := range b.PVs {
		names = append(names, pv.Name)
	}
	if got := strings.Join(names, " "); got != "a b" || b.Canonical().Name != "a" {
		t.Errorf("read %s", got)
	}
}

func TestAForeignLedgerIsSetAsideByName(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Ledger)
		says   string
	}{
		{"another cluster", func(l *Ledger) { l.Cluster = "elsewhere" }, "another cluster (kube-system UID elsewhere, here cluster-uid)"},
		{"restored or created again", func(l *Ledger) { l.PVUID = "old" }, "restored from a backup"},
		{"another volume", func(l *Ledger) { l.Handle = "vol-2" }, "volume vol-2, not vol-1"},
		{"another driver", func(l *Ledger) { l.Driver = "e.example.com" }, "driver e.example.com, not d.example.com"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pv := newPV("pv")
			l := ledgerOn(pv, entry("old", fence.Held))
			test.change(l)
			annotated(l.String())(pv)
			a := newAPIServer(t, pv)
			s := newStore(a)
			b := read(t, s, "pv")
			if !b.Missing || len(b.Ledger.Holders) != 0 || len(b.SetAside) != 1 || !strings.Contains(b.SetAside[0], test.says) || !strings.Contains(b.SetAside[0], "PersistentVolume pv") {
				t.Fatalf("missing %v, %s, set aside %q", b.Missing, b.Ledger, b.SetAside)
			}
			if _, err := put(t, s, b, entry("new", fence.Publishing)); err != nil {
				t.Fatal(err)
			}
			stands(t, a, "pv", "new")
			if b := read(t, s, "pv"); b.Missing || b.SetAside != nil {
				t.Errorf("after the write: %+v", b)
			}
		})
	}
}

// A PV that was restored has another UID, and what its ledger says of holders may still be true.
func TestWhoHeldTheVolumeBeforeItsPVWasMadeAnewIsTold(t *testing.T) {
	taken, unproven := entry("taken", fence.TakenOver), entry("unproven", fence.TakenOver)
	unproven.Unproven = true
	entries := []Entry{entry("held", fence.Held), entry("leaving", fence.Leaving), taken, unproven}
	stale := func(change func(*Ledger)) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			l := ledgerOn(pv, entries...)
			l.PVUID = "uid-of-the-earlier-one"
			change(l)
			annotated(l.String())(pv)
		}
	}
	for name, c := range map[string]struct {
		pvs  []*corev1.PersistentVolume
		want []string
	}{
		"made anew":            {[]*corev1.PersistentVolume{newPV("a", stale(func(*Ledger) {}))}, []string{"held", "leaving", "unproven"}},
		"of another cluster":   {[]*corev1.PersistentVolume{newPV("a", stale(func(l *Ledger) { l.Cluster = "another" }))}, nil},
		"of another volume":    {[]*corev1.PersistentVolume{newPV("a", stale(func(l *Ledger) { l.Handle = "vol-2" }))}, nil},
		"beside one that does": {[]*corev1.PersistentVolume{newPV("a", stale(func(*Ledger) {})), newPV("b", carrying())}, nil},
	} {
		a := newAPIServer(t, c.pvs...)
		var names []string
		for _, pv := range c.pvs {
			names = append(names, pv.Name)
		}
		if b := read(t, newStore(a), names...); !reflect.DeepEqual(b.Before, c.want) || len(b.SetAside) != 1 {
			t.Errorf("%s: %q, set aside %q; want %q", name, b.Before, b.SetAside, c.want)
		}
	}
}

// The resourceVersion says that nothing has changed; the text says so too, to whoever has no
// resourceVersion that can be relied upon.
func TestAWriteTestsTheVersionAndTheText(t *testing.T) {
	pv := newPV("a", carrying(entry("a", fence.Held)))
	pv.ResourceVersion = "7"
	text := pv.Annotations[Annotation]
	for _, to := range []*string{&text, nil} {
		patch := string(exchange(pv, page{text: text, there: true}, to))
		for _, want := range []string{`"path":"/metadata/resourceVersion","value":"7"`, `"path":"/metadata/uid","value":"uid-of-a"`, `{"op":"test","path":"/metadata/annotations/csi-fencepost.io~1holders"`} {
			if !strings.Contains(patch, want) {
				t.Errorf("%s lacks %s", patch, want)
			}
		}
	}
	if patch := string(exchange(newPV("a"), page{}, &text)); strings.Contains(patch, `"test","path":"/metadata/annotations`) {
		t.Errorf("%s tests what is not there", patch)
	}
}

func TestAWriteKeepsWhatTheLedgerHasBesidesItsHolders(t *testing.T) {
	a := newAPIServer(t, newPV("a", carrying()))
	s := newStore(a)
	b := read(t, s, "a")
	l := b.Ledger.Clone()
	l.Forced("b1")
	l.Later = format.Later(`{"later":1}`)
	if _, err := s.Write(t.Context(), b, l); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "a").Ledger; !got.WasForcedIn("b1") || !strings.Contains(string(got.Later), `"later":1`) {
		t.Errorf("%s", got)
	}
}

func TestASetAsideLedgerIsReplacedOnlyAsItWasRead(t *testing.T) {
	pv := newPV("pv")
	l := ledgerOn(pv, entry("old", fence.Held))
	l.Cluster = "elsewhere"
	annotated(l.String())(pv)
	a := newAPIServer(t, pv)
	s := newStore(a)
	b := read(t, s, "pv")
	a.change("pv", func(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
		carrying(entry("rival", fence.Publishing))(pv)
		return pv
	})
	if _, err := put(t, s, b, entry("new", fence.Publishing)); !errors.Is(err, ErrConflict) {
		t.Fatalf("got %v", err)
	}
	stands(t, a, "pv", "rival")
}

func TestAGarbledLedgerRefusesItsOwnVolumeAndNamesItsPV(t *testing.T) {
	a := newAPIServer(t, newPV("good", carrying()), newPV("bad", annotated(`{"version":1,"pvUID":"uid-of-bad",`)))
	s := newStore(a)
	_, err := s.Read(t.Context(), handle, []string{"good", "bad"})
	var garbled *GarbledError
	if !errors.As(err, &garbled) || garbled.PV != "bad" {
		t.Errorf("got %v", err)
	}
	changed, err := s.Update(t.Context(), handle, []string{"bad"}, func(*Ledger) bool { return true })
	if !errors.As(err, &garbled) || changed != nil {
		t.Errorf("an Update: %v, %v", changed, err)
	}
	if _, patches := a.counts(); patches != 0 {
		t.Error("a garbled ledger was overwritten")
	}
	if b := read(t, s, "good"); b.Missing {
		t.Error("the other volume is refused too")
	}
}

// A ledger names the UID of its PV, which nobody can know who brings text along with a new
// one. That keeps no volume waiting whose ledger is elsewhere, and is one of no other.
func TestWhatCameWithASecondPVAndIsNoLedgerIsSetAside(t *testing.T) {
	newer := strings.Replace(ledgerOn(newPV("before"), entry("new", fence.Held)).String(), `"version":1`, `"version":2`, 1)
	for _, text := range []string{"", "x", `{"version":1,"holders":`, newer} {
		a := newAPIServer(t, newPV("a-second", annotated(text)), newPV("pv", carrying(entry("n1", fence.Held))), newPV("z-second", annotated(text)))
		s := newStore(a)
		b := read(t, s, "a-second", "pv", "z-second")
		if b.Missing || len(b.Ledger.Holders) != 1 || len(b.SetAside) != 2 || !strings.Contains(b.SetAside[0], "a-second") || !strings.Contains(b.SetAside[1], "z-second") {
			t.Errorf("%q: %+v", text, b)
		}
		if _, err := put(t, s, b, entry("n2", fence.Publishing)); err != nil {
			t.Error(err)
		}
		stands(t, a, "a-second", "n1", "n2")
		// Where no PV has a ledger, it may be what is left of one.
		a = newAPIServer(t, newPV("a-second", annotated(text)), newPV("pv"))
		var garbled *GarbledError
		if _, err := newStore(a).Read(t.Context(), handle, []string{"a-second", "pv"}); !errors.As(err, &garbled) || garbled.PV != "a-second" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWriteIsACompareAndSwap(t *testing.T) {
	set := func(f func(*corev1.PersistentVolume)) func(*corev1.PersistentVolume) *corev1.PersistentVolume {
		return func(pv *corev1.PersistentVolume) *corev1.PersistentVolume { f(pv); return pv }
	}
	held := carrying(entry("a", fence.Held))
	tests := []struct {
		name  string
		pv    *corev1.PersistentVolume
		race  func(*corev1.PersistentVolume) *corev1.PersistentVolume
		fails bool
	}{
		{"another holder was written", newPV("pv", held), set(carrying(entry("a", fence.Held), entry("b", fence.Publishing))), true},
		{"the first holder was written", newPV("pv"), set(carrying(entry("b", fence.Publishing))), true},
		{"an empty ledger was written", newPV("pv"), set(carrying()), true},
		{"the ledger was wiped", newPV("pv", held), set(func(pv *corev1.PersistentVolume) { pv.Annotations = nil }), true},
		{"the ledger was reformatted", newPV("pv", held), set(func(pv *corev1.PersistentVolume) {
			pv.Annotations[Annotation] += " "
		}), true},
		{"the PV was deleted", newPV("pv", held), func(*corev1.PersistentVolume) *corev1.PersistentVolume { return nil }, true},
		{"the bare PV was deleted", newPV("pv"), func(*corev1.PersistentVolume) *corev1.PersistentVolume { return nil }, true},
		{"the PV was created again with its ledger", newPV("pv", held), set(func(pv *corev1.PersistentVolume) { pv.UID = "another" }), true},
		{"the bare PV was created again", newPV("pv"), set(func(pv *corev1.PersistentVolume) { pv.UID = "another" }), true},
		{"the attacher put its finalizer on", newPV("pv", held), set(func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"external-attacher/d"} }), false},
		{"the attacher put its finalizer on before the first publish", newPV("pv"), set(func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"external-attacher/d"} }), false},
		{"another annotation was written before the first publish", newPV("pv"), set(func(pv *corev1.PersistentVolume) { pv.Annotations = map[string]string{"other": "x"} }), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := newAPIServer(t, test.pv)
			s := newStore(a)
			b := read(t, s, "pv")
			a.change("pv", test.race)
			raced := a.pv("pv")
			if err := s.Confirm(t.Context(), b); errors.Is(err, ErrConflict) != test.fails || !test.fails && err != nil {
				t.Errorf("confirmed: %v", err)
			}
			next, err := put(t, s, b, entry("new", fence.Publishing))
			if !test.fails {
				if err != nil {
					t.Fatal(err)
				}
				now := a.pv("pv")
				if !reflect.DeepEqual(now.Finalizers, raced.Finalizers) || now.Annotations["other"] != raced.Annotations["other"] {
					t.Errorf("the other's change is lost: %+v", now)
				}
				if next.Ledger.Get("new") == nil || next.Missing || next.PVs[0].ResourceVersion != now.ResourceVersion {
					t.Errorf("next Book: %+v", next)
				}
				return
			}
			if !errors.Is(err, ErrConflict) || next != nil {
				t.Errorf("got %v, %v", next, err)
			}
			if now := a.pv("pv"); !reflect.DeepEqual(now, raced) {
				t.Errorf("written over: %+v", now)
			}
		})
	}
}

// The race between the patch and the look at why it failed.
func TestAnAbsentLedgerIsWrittenThoughThePVChangesMeanwhile(t *testing.T) {
	a := newAPIServer(t, newPV("pv"))
	s := newStore(a)
	b := read(t, s, "pv")
	rivals := 3
	a.before = func(method, _ string) int {
		if method == http.MethodPatch && rivals > 0 {
			rivals--
			a.change("pv", func(pv *corev1.PersistentVolume) *corev1.PersistentVolume { return pv })
		}
		return 0
	}
	if _, err := put(t, s, b, entry("new", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "pv", "new")
	if _, patches := a.counts(); patches != 4 {
		t.Errorf("%d patches, want 4", patches)
	}
}

func TestANextWriteGoesOnFromTheReturnedBook(t *testing.T) {
	a := newAPIServer(t, newPV("pv"))
	s := newStore(a)
	b := read(t, s, "pv")
	for _, id := range []string{"a", "<b>&\u2028é\"\\", "c"} {
		var err error
		if b, err = put(t, s, b, entry(id, fence.Publishing)); err != nil {
			t.Fatalf("entry %q: %v", id, err)
		}
	}
	stands(t, a, "pv", "a", "<b>&\u2028é\"\\", "c")
	if gets, patches := a.counts(); gets != 1 || patches != 3 {
		t.Errorf("%d GETs and %d PATCHes, want 1 and 3", gets, patches)
	}
}

// A retry finds its intent written down already. It acts on it all the same, so
// it has to stand.
func TestAnUnchangedLedgerIsHeldAgainstWhatWasRead(t *testing.T) {
	a := newAPIServer(t, newPV("pv", carrying(entry("a", fence.Publishing))))
	s := newStore(a)
	b, stale := read(t, s, "pv"), read(t, s, "pv")
	if _, err := s.Write(t.Context(), b, b.Ledger.Clone()); err != nil {
		t.Fatal(err)
	}
	if err := s.Confirm(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), handle, []string{"pv"}, func(l *Ledger) bool { return l.Cut("a", "token-a") }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(t.Context(), stale, stale.Ledger.Clone()); !errors.Is(err, ErrConflict) {
		t.Errorf("an entry that was cut meanwhile: %v, want ErrConflict", err)
	}
	if err := s.Confirm(t.Context(), stale); !errors.Is(err, ErrConflict) {
		t.Errorf("confirmed a ledger that changed meanwhile: %v, want ErrConflict", err)
	}
	a.before = func(string, string) int { return http.StatusForbidden }
	if err := s.Confirm(t.Context(), stale); err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("confirmed a ledger that cannot be read: %v", err)
	}
}

func TestAnUpdateThatChangesNothingIsNotWritten(t *testing.T) {
	a := newAPIServer(t, newPV("pv", carrying(entry("a", fence.Held))))
	s := newStore(a)
	if _, err := s.Update(t.Context(), handle, []string{"pv"}, func(l *Ledger) bool { return l.Cut("a", "another") }); err != nil {
		t.Fatal(err)
	}
	if _, patches := a.counts(); patches != 0 {
		t.Errorf("%d writes", patches)
	}
}

func TestTheLastHoldersCutLeavesAnEmptyLedger(t *testing.T) {
	a := newAPIServer(t, newPV("pv", carrying(entry("a", fence.Leaving))))
	s := newStore(a)
	b, err := s.Update(t.Context(), handle, []string{"pv"}, func(l *Ledger) bool { return l.Cut("a", "token-a") })
	if err != nil || b.Missing || len(b.Ledger.Holders) != 0 {
		t.Fatalf("%+v, %v", b, err)
	}
	if b := read(t, s, "pv"); b.Missing {
		t.Error("it is to be adopted again")
	}
}

func TestAVolumeThatNoPVNamesHasALedgerInMemory(t *testing.T) {
	a := newAPIServer(t)
	s := newStore(a)
	b := read(t, s, "gone")
	if b.Canonical() != nil || !b.Missing {
		t.Fatalf("%+v", b)
	}
	b, err := put(t, s, b, entry("a", fence.Publishing))
	if err != nil || b.Ledger.Get("a") == nil || !b.Missing {
		t.Errorf("%+v, %v", b, err)
	}
	if _, patches := a.counts(); patches != 0 {
		t.Errorf("%d writes", patches)
	}
}

func TestALedgerBehindAPVWithoutOneIsMergedAndTakenOffToo(t *testing.T) {
	a := newAPIServer(t, newPV("a", carrying(entry("a1", fence.Held))), newPV("b"), newPV("c", carrying(entry("c1", fence.Held))))
	s := newStore(a)
	if _, err := put(t, s, read(t, s, "a", "b", "c"), entry("new", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "a", "a1", "c1", "new")
	for _, name := range []string{"b", "c"} {
		if text, there := a.pv(name).Annotations[Annotation]; there {
			t.Errorf("PV %s carries %s", name, text)
		}
	}
}

func TestSeveralPVsOfOneVolumeHaveOneLedger(t *testing.T) {
	a := newAPIServer(t,
		newPV("b", carrying(entry("b1", fence.Held), entry("both", fence.Held))),
		newPV("c", carrying(entry("c1", fence.Held))),
		newPV("a", carrying(Entry{NodeID: "both", Token: "earlier", State: fence.TakenOver})))
	s := newStore(a)
	b := read(t, s, "c", "b", "a")
	if len(b.Ledger.Holders) != 3 || b.Ledger.Get("both").State != fence.Held || b.Ledger.PVUID != "uid-of-a" {
		t.Fatalf("merged: %s", b.Ledger)
	}
	var order []string
	a.before = func(method, pv string) int {
		if method == http.MethodPatch {
			order = append(order, pv)
		}
		return 0
	}
	b, err := put(t, s, b, entry("new", fence.Publishing))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "a b c" {
		t.Errorf("written in the order %s: entries were taken off before they stood elsewhere", got)
	}
	stands(t, a, "a", "both", "b1", "c1", "new")
	for _, pv := range []string{"b", "c"} {
		if text, there := a.pv(pv).Annotations[Annotation]; there {
			t.Errorf("PV %s still carries %s", pv, text)
		}
	}
	// The Book that came back knows it.
	if _, err := put(t, s, b, entry("newer", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "a b c a" {
		t.Errorf("written: %s", got)
	}
}

func TestAnEntryOnAnotherPVThatIsNewerThanTheBookIsNotTakenOff(t *testing.T) {
	a := newAPIServer(t, newPV("a"), newPV("b", carrying(entry("b1", fence.Held))))
	s := newStore(a)
	b := read(t, s, "a", "b")
	a.change("b", func(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
		carrying(entry("b1", fence.Held), entry("b2", fence.Publishing))(pv)
		return pv
	})
	if _, err := put(t, s, b, entry("new", fence.Publishing)); !errors.Is(err, ErrConflict) {
		t.Fatalf("got %v", err)
	}
	stands(t, a, "b", "b1", "b2")
	if b := read(t, s, "a", "b"); b.Ledger.Get("b2") == nil || b.Ledger.Get("new") == nil {
		t.Errorf("judged again without one of them: %s", b.Ledger)
	}
}

func TestAWriteWhoseAnswerIsLostIsLookedUp(t *testing.T) {
	for _, pv := range []*corev1.PersistentVolume{newPV("pv"), newPV("pv", carrying(entry("a", fence.Held)))} {
		a := newAPIServer(t, pv)
		s := newStore(a)
		b := read(t, s, "pv")
		a.after = func(method, _ string) bool { return method == http.MethodPatch }
		next, err := put(t, s, b, entry("new", fence.Publishing))
		if err != nil {
			t.Fatal(err)
		}
		if next.Ledger.Get("new") == nil || next.PVs[0].ResourceVersion != a.pv("pv").ResourceVersion {
			t.Errorf("%+v", next)
		}
		if _, patches := a.counts(); patches != 1 {
			t.Errorf("%d patches", patches)
		}
	}
}

func TestAWriteThatFailedIsAnErrorAndNoConflict(t *testing.T) {
	codes := map[int]func(error) bool{
		http.StatusForbidden:           apierrors.IsForbidden,
		http.StatusInternalServerError: apierrors.IsInternalError,
		// An admission policy's refusal has the code of a failed test.
		http.StatusUnprocessableEntity: apierrors.IsInvalid,
	}
	for code, is := range codes {
		for _, pv := range []*corev1.PersistentVolume{newPV("pv"), newPV("pv", carrying(entry("a", fence.Held)))} {
			a := newAPIServer(t, pv)
			s := newStore(a)
			b := read(t, s, "pv")
			a.before = func(method, _ string) int {
				if method == http.MethodPatch {
					return code
				}
				return 0
			}
			next, err := put(t, s, b, entry("new", fence.Publishing))
			if next != nil || !is(err) || errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "PersistentVolume pv") {
				t.Errorf("%d: got %v, %v", code, next, err)
			}
		}
	}
}

func TestAReadThatFailedIsNotAMissingLedger(t *testing.T) {
	a := newAPIServer(t, newPV("pv"))
	s := newStore(a)
	a.before = func(string, string) int { return http.StatusForbidden }
	if b, err := s.Read(t.Context(), handle, []string{"pv"}); b != nil || !apierrors.IsForbidden(err) {
		t.Errorf("got %v, %v", b, err)
	}
}

func TestAWriteSurvivesItsCallersCancellation(t *testing.T) {
	a := newAPIServer(t, newPV("pv", carrying(entry("a", fence.Leaving))))
	s := newStore(a)
	b := read(t, s, "pv")
	ctx, cancel := context.WithCancel(t.Context())
	a.before = func(method, _ string) int {
		if method == http.MethodPatch {
			cancel()
		}
		return 0
	}
	l := b.Ledger.Clone()
	l.Put(entry("b", fence.Publishing))
	if _, err := s.Write(ctx, b, l); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(ctx, handle, []string{"pv"}, func(l *Ledger) bool { return l.Cut("a", "token-a") }); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "pv", "b")
}

func TestManyWritersLoseNoUpdate(t *testing.T) {
	const writers, rounds = 8, 4
	a := newAPIServer(t, newPV("pv"), newPV("pv-2", carrying(entry("first", fence.Held))))
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			s := newStore(a) // a process of its own
			for r := range rounds {
				mine := entry(fmt.Sprintf("%d-%d", w, r), fence.Publishing)
				_, err := s.Update(t.Context(), handle, []string{"pv", "pv-2"}, func(l *Ledger) bool { l.Put(mine); return true })
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
				if r%2 == 0 {
					continue
				}
				if _, err := s.Update(t.Context(), handle, []string{"pv", "pv-2"}, func(l *Ledger) bool { return l.Cut(mine.NodeID, mine.Token) }); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	group.Wait()
	l := read(t, newStore(a), "pv", "pv-2").Ledger
	if want := 1 + writers*rounds/2; len(l.Holders) != want {
		t.Errorf("%d entries, want %d", len(l.Holders), want)
	}
	for w := range writers {
		for r := range rounds {
			if there := l.Get(fmt.Sprintf("%d-%d", w, r)) != nil; there != (r%2 == 0) {
				t.Errorf("entry %d-%d: there is %v", w, r, there)
			}
		}
	}
	if l.Get("first") == nil {
		t.Error("the other PV's entry is lost")
	}
}

// Two judges of one Book: at most one of them may act on it.
func TestOfManyWritersOfOneBookOneWins(t *testing.T) {
	for _, pv := range []*corev1.PersistentVolume{newPV("pv"), newPV("pv", carrying())} {
		a := newAPIServer(t, pv)
		b := read(t, newStore(a), "pv")
		const writers = 8
		var group sync.WaitGroup
		won := make(chan string, writers)
		for w := range writers {
			group.Go(func() {
				id := fmt.Sprint(w)
				_, err := put(t, newStore(a), b, entry(id, fence.Publishing))
				switch {
				case err == nil:
					won <- id
				case !errors.Is(err, ErrConflict):
					t.Errorf("writer %s: %v", id, err)
				}
			})
		}
		group.Wait()
		close(won)
		var winners []string
		for id := range won {
			winners = append(winners, id)
		}
		if len(winners) != 1 {
			t.Fatalf("winners: %v", winners)
		}
		stands(t, a, "pv", winners[0])
	}
}

func TestTokensComeFromTheSourceGiven(t *testing.T) {
	s := newStore(newAPIServer(t))
	if a, b := s.NewToken(), s.NewToken(); a == b || len(a) != 16 {
		t.Errorf("tokens %q, %q", a, b)
	}
	s.Random = strings.NewReader("12345678")
	if got := s.NewToken(); got != "3132333435363738" {
		t.Errorf("got %s", got)
	}
}

// The one asked for may name the volume otherwise (see csi.Identity.Same).
func TestALedgerCarriesItsPVsOwnHandle(t *testing.T) {
	const gce, own, asked = "pd.csi.storage.gke.io", "projects/p/zones/z/disks/d", "projects/UNSPECIFIED/zones/z/disks/d"
	pv := newPV("pv", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = gce, own })
	a := newAPIServer(t, pv)
	s := New(a.client(), cluster, &csi.Identity{Driver: gce})
	b, err := s.Read(t.Context(), asked, []string{"pv"})
	if err != nil || len(b.PVs) != 1 || b.Ledger.Handle != own || b.Ledger.PVUID != "uid-of-pv" {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := put(t, s, b, entry("a", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	if b, err = s.Read(t.Context(), own, []string{"pv"}); err != nil || b.Missing || len(b.SetAside) != 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// A guessable token could cut another's entry.
func TestWithoutRandomBytesThereIsNoToken(t *testing.T) {
	s := newStore(newAPIServer(t))
	s.Random = strings.NewReader("short")
	defer func() {
		if recover() == nil {
			t.Error("a token was made")
		}
	}()
	t.Errorf("the token %s", s.NewToken())
}

func TestEveryStateIsReadAgain(t *testing.T) {
	for _, state := range []fence.State{fence.Publishing, fence.Held, fence.Leaving, fence.Released, fence.TakenOver} {
		l := ledgerOn(newPV("pv"), entry("a", state))
		if again, err := Parse(l.String()); err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%s: %v, %v", state, again, err)
		}
	}
}

func TestWhatCouldNotBeReadAgainIsNotWritten(t *testing.T) {
	a := newAPIServer(t, newPV("pv"))
	s := newStore(a)
	if _, err := put(t, s, read(t, s, "pv"), Entry{NodeName: "n", State: fence.Publishing}); err == nil || errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "nodeID") {
		t.Errorf("got %v", err)
	}
	if _, patches := a.counts(); patches != 0 {
		t.Errorf("%d writes", patches)
	}
}

func TestAWriteKeepsTheLastTakenOverEntriesOnly(t *testing.T) {
	a := newAPIServer(t, newPV("pv"))
	s := newStore(a)
	b := read(t, s, "pv")
	l := b.Ledger.Clone()
	var last []string
	for i := range 2 * MaxTakenOver {
		l.Holders = append(l.Holders, entry(fmt.Sprint("n", i), fence.TakenOver))
		if i >= MaxTakenOver {
			last = append(last, fmt.Sprint("n", i))
		}
	}
	if _, err := s.Write(t.Context(), b, l); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "pv", last...)
}

// What went wrong was not the test of the patch: nobody knows what was written.
func TestAWriteThatFailedIsNotTriedAgainByItself(t *testing.T) {
	a := newAPIServer(t, newPV("pv"))
	s := newStore(a)
	b := read(t, s, "pv")
	a.before = func(method, _ string) int {
		if method != http.MethodPatch {
			return 0
		}
		a.change("pv", func(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
			pv.Labels = map[string]string{"other": "x"}
			return pv
		})
		a.before = nil
		return http.StatusForbidden
	}
	if _, err := put(t, s, b, entry("a", fence.Publishing)); err == nil || errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "writing the ledger of PersistentVolume pv") {
		t.Errorf("got %v", err)
	}
	if text, there := a.pv("pv").Annotations[Annotation]; there {
		t.Errorf("written: %s", text)
	}
}

func TestAWriteThatCanNotBeLookedUpIsAnError(t *testing.T) {
	a := newAPIServer(t, newPV("pv"))
	s := newStore(a)
	b := read(t, s, "pv")
	a.before = func(string, string) int { return http.StatusForbidden }
	if next, err := put(t, s, b, entry("a", fence.Publishing)); next != nil || err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("got %v, %v", next, err)
	}
}

// Whoever may make and delete PersistentVolumes could have the ledger written on one of his
// own, which is being deleted, and then let that go.
func TestAPersistentVolumeThatIsBeingDeletedCarriesTheLedgerOnlyIfAllAre(t *testing.T) {
	a := newAPIServer(t, newPV("a", deleting), newPV("b", carrying(entry("b1", fence.Held))), newPV("c"))
	s := newStore(a)
	if _, err := put(t, s, read(t, s, "a", "b", "c"), entry("new", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "b", "b1", "new")
	if text, there := a.pv("a").Annotations[Annotation]; there {
		t.Errorf("PV a, which is being deleted, carries %s", text)
	}
	// What one has already counts, and goes to one that stays.
	a = newAPIServer(t, newPV("a", deleting, carrying(entry("a1", fence.Held))), newPV("b"))
	s = newStore(a)
	if _, err := put(t, s, read(t, s, "a", "b"), entry("new", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "b", "a1", "new")
	a = newAPIServer(t, newPV("a", deleting), newPV("b", deleting))
	s = newStore(a)
	if _, err := put(t, s, read(t, s, "b", "a"), entry("new", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "a", "new")
	// Of two PersistentVolumes that are being deleted, the one that external-attacher's finalizer
	// keeps carries the ledger: the other one may be gone at any moment.
	a = newAPIServer(t, newPV("a", deleting), newPV("b", deleting, finalized("external-attacher/d")))
	s = newStore(a)
	if _, err := put(t, s, read(t, s, "a", "b"), entry("new", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "b", "new")
}

// Nor does it go to one of his that is not being deleted, whatever its name: external-provisioner
// may delete that one, ledger and all.
func TestOfPersistentVolumesThatStayTheOldestCarriesTheLedger(t *testing.T) {
	made := func(day int) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.CreationTimestamp = metav1.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
		}
	}
	for what, pv := range map[string]*corev1.PersistentVolume{"with its ledger": newPV("pv", made(1), carrying(entry("n1", fence.Held))), "without": newPV("pv", made(1))} {
		a := newAPIServer(t, newPV("a-second", made(2)), pv, newPV("z-second", made(3)))
		s := newStore(a)
		if _, err := put(t, s, read(t, s, "a-second", "pv", "z-second"), entry("new", fence.Publishing)); err != nil {
			t.Fatal(err)
		}
		for _, second := range []string{"a-second", "z-second"} {
			if text, there := a.pv(second).Annotations[Annotation]; there {
				t.Errorf("%s: PV %s carries %s", what, second, text)
			}
		}
	}
	// What an earlier build wrote to the first by name goes to the oldest.
	a := newAPIServer(t, newPV("a-second", made(2), carrying(entry("n1", fence.Held))), newPV("pv", made(1)))
	s := newStore(a)
	if _, err := put(t, s, read(t, s, "a-second", "pv"), entry("new", fence.Publishing)); err != nil {
		t.Fatal(err)
	}
	stands(t, a, "pv", "n1", "new")
}

// Then another process may have found another PersistentVolume to be the canonical one.
func TestALedgerIsNotWrittenToWhatIsBeingDeletedSinceItWasRead(t *testing.T) {
	let := func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"example.com/mine"} }
	for name, test := range map[string]struct {
		before, after func(*corev1.PersistentVolume)
	}{
		"deleted":                 {func(*corev1.PersistentVolume) {}, deleting},
		"let go by its attacher":  {func(pv *corev1.PersistentVolume) { deleting(pv); finalized("external-attacher/d")(pv) }, let},
		"deleted, with finalizer": {finalized("external-attacher/d"), deleting},
	} {
		for what, ledger := range map[string]func(*corev1.PersistentVolume){
			"none": func(*corev1.PersistentVolume) {}, "a ledger": carrying(entry("a", fence.Held)), "one that is set aside": annotated(strings.Replace(ledgerOn(newPV("pv")).String(), "uid-of-pv", "uid-before", 1)),
		} {
			a := newAPIServer(t, newPV("pv", test.before, ledger))
			s := newStore(a)
			b := read(t, s, "pv")
			a.change("pv", func(pv *corev1.PersistentVolume) *corev1.PersistentVolume { test.after(pv); return pv })
			raced := a.pv("pv")
			if _, err := put(t, s, b, entry("new", fence.Publishing)); !errors.Is(err, ErrConflict) {
				t.Errorf("%s, %s: a new entry: %v, want ErrConflict", name, what, err)
			}
			if _, err := s.Write(t.Context(), b, b.Ledger.Clone()); !errors.Is(err, ErrConflict) {
				t.Errorf("%s, %s: what was read: %v, want ErrConflict", name, what, err)
			}
			if now := a.pv("pv"); !reflect.DeepEqual(now, raced) {
				t.Errorf("%s, %s: written over: %v", name, what, now.Annotations)
			}
		}
	}
}

func TestABookSaysWhetherItsLedgerMayGoAtAnyMoment(t *testing.T) {
	a := newAPIServer(t, newPV("stays"), newPV("kept", deleting, finalized("external-attacher/d")), newPV("loose", deleting))
	s := newStore(a)
	for pv, want := range map[string]bool{"stays": false, "kept": false, "loose": true, "gone": false} {
		if got := read(t, s, pv).Loose(); got != want {
			t.Errorf("%s: %v", pv, got)
		}
	}
}
