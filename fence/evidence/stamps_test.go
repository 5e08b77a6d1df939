package evidence

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	labelOfItsName = `{"f:metadata":{"f:labels":{"f:kubernetes.io/hostname":{}}}}`
	anotherLabel   = `{"f:metadata":{"f:labels":{"f:disk":{}}}}`
	someStatus     = `{"f:status":{"f:nodeInfo":{}}}`
)

func TestWhoRegisteredANodeIsWhoLabelsItAndWritesItsStatus(t *testing.T) {
	made := heard
	at := func(d time.Duration) time.Time { return made.Add(d) }
	unstamped := func(f metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		f.Time = nil
		return f
	}
	label, status := wrote("kubelet", "", at(0), labelOfItsName), wrote("kubelet", "status", at(time.Second), someStatus)
	for name, c := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"a kubelet": {[]metav1.ManagedFieldsEntry{label, status}, true},
		"a kubelet, beside who labels and who writes, too": {[]metav1.ManagedFieldsEntry{wrote("kubectl", "", at(0), anotherLabel), wrote("manager", "status", at(0), someStatus), label, status}, true},
		"stamped one after the other":                      {[]metav1.ManagedFieldsEntry{wrote("kubelet", "", at(-fence.StampResolution/2), labelOfItsName), status}, true},
		"stamped long before the Node that stands now":     {[]metav1.ManagedFieldsEntry{wrote("kubelet", "", at(-fence.StampResolution), labelOfItsName), status}, false},
		"no status since":                                  {[]metav1.ManagedFieldsEntry{label}, false},
		"a status from before the Node":                    {[]metav1.ManagedFieldsEntry{label, wrote("kubelet", "status", at(-time.Hour), someStatus)}, false},
		"a person from a file, and then a kubelet":         {[]metav1.ManagedFieldsEntry{wrote("kubectl", "", at(0), labelOfItsName), status}, false},
		"a person who writes other parts of the Node, too": {[]metav1.ManagedFieldsEntry{wrote("kubectl", "", at(0), labelOfItsName), wrote("kubectl", "", at(0), anotherLabel), status}, false},
		"nobody says who has the label":                    {[]metav1.ManagedFieldsEntry{wrote("kubelet", "", at(0), anotherLabel), status}, false},
		"the label in the part of a status":                {[]metav1.ManagedFieldsEntry{wrote("kubelet", "status", at(0), labelOfItsName), status}, false},
		"nobody says when the label was written":           {[]metav1.ManagedFieldsEntry{unstamped(label), status}, false},
		"nobody says when the status was written":          {[]metav1.ManagedFieldsEntry{label, unstamped(status)}, false},
		"what is owned is missing":                         {[]metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: label.Time}, status}, false},
		"what is owned cannot be read":                     {[]metav1.ManagedFieldsEntry{wrote("kubelet", "", at(0), `{"f:metadata":{"f:labels":{"f:kubernetes.io/hostname":{}}`), status}, false},
		"nobody owns anything":                             {nil, false},
	} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: metav1.NewTime(made), ManagedFields: c.fields}}
		if got := RegisteredByKubelet(node); got != c.want {
			t.Errorf("%s: registered by a kubelet: %v", name, got)
		}
	}
}

func TestANodeIsHeardWhenItsHeartbeatWasStamped(t *testing.T) {
	const beat = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`
	unstamped := wrote("kubelet", "status", heard, beat)
	unstamped.Time = nil
	for name, c := range map[string]struct {
		fields metav1.ManagedFieldsEntry
		want   time.Time
	}{
		"its heartbeat":                 {wrote("kubelet", "status", heard, beat), heard},
		"without a stamp":               {unstamped, time.Time{}},
		"what others write":             {wrote("manager", "status", heard, `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}}}`), time.Time{}},
		"of another condition":          {wrote("kubelet", "status", heard, `{"f:status":{"f:conditions":{"k:{\"type\":\"DiskPressure\"}":{"f:lastHeartbeatTime":{}}}}}`), time.Time{}},
		"not in the part of the status": {wrote("kubectl", "", heard, beat), time.Time{}},
		"what is owned is missing":      {metav1.ManagedFieldsEntry{Manager: "kubelet", Subresource: "status", Time: unstamped.Time}, time.Time{}},
	} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{c.fields}}}
		if got := HeardAt(node); !got.Equal(c.want) {
			t.Errorf("%s: heard at %s, want %s", name, got, c.want)
		}
	}
}

// Of a binding that counts for nothing anyway the first reason stays; and of a node without the
// taint nothing is said.
func TestATaintFromBeforeIsVoidOnlyWhereThereIsOneThatCounts(t *testing.T) {
	w := newWorld(t)
	for _, s := range []*Taint{OutOfServiceTaint(w.records()), CloudShutdownTaint(w.records())} {
		if b := s.seen(machine("u1", "b1", "51"), "70", nil); b.Void != "" {
			t.Errorf("%s, without a taint: %q", s.Name(), b.Void)
		}
		node := machine("u1", "", "51")
		node.Spec.Taints = []v1.Taint{{Key: s.key, Value: "x", Effect: v1.TaintEffectNoExecute}}
		if b := s.seen(node, "70", nil); b.Void != fence.VoidNoBootID {
			t.Errorf("%s, without a boot ID: %q", s.Name(), b.Void)
		}
	}
}

// A fence that was proven before the lease was silent does not hide one at the storage.
func TestAnEarlyFenceOfThePowerHidesNoStorageFence(t *testing.T) {
	r := provenEarly()
	f := withFence(fence.StorageFence, "other").Fences[0]
	f.ID = "f2"
	r.PutFence(f, "Fenced")
	q := stale(r)
	q.Holder.Liveness = fence.Unwatched
	if found := ask(t, Fences(apart(nil)), q); len(found) != 1 || found[0].Kind != fence.StorageFence {
		t.Errorf("%+v", found)
	}
}

// Who reads the power is asked about a claim only where he can be.
func TestWhatSpeaksAgainstAClaimIsAskedOfTheMachineThatIsMeant(t *testing.T) {
	claim := []fence.Evidence{{Kind: fence.OperatorConfirmation, NodeUID: "u1"}}
	for name, change := range map[string]func(*Question){
		"another machine of that name": func(q *Question) { q.Node = machine("u2", "b2", "51") },
		"for the storage alone":        func(q *Question) { q.Holder.Liveness, q.Record = fence.Alive, withFence(fence.StorageFence, "other") },
	} {
		a := &asker{power: true, storage: true}
		q := stale(claiming())
		q.Holder.Evidence = claim
		change(&q)
		if found := ask(t, against(a), q); len(a.asked) != 0 || len(found) != 0 {
			t.Errorf("%s: asked %d times, %+v", name, len(a.asked), found)
		}
	}
}

// A release says that the node is off where it was silent then, somebody vouches for it, and nothing
// has ended it.
func TestWhatAReleaseSaysOfTheNode(t *testing.T) {
	for name, c := range map[string]struct {
		life    record.Life
		vouched bool
		void    string
		want    bool
	}{
		"of a silent node":    {record.Silent, true, "", true},
		"of one that is gone": {record.Gone, true, "", true},
		"of a living one":     {record.Living, true, "", false},
		"ended":               {record.Silent, true, "booted", false},
		"nobody vouches":      {record.Silent, false, "", false},
		"living, and nobody":  {record.Living, false, "", false},
	} {
		w := newWorld(t)
		rel := record.Release{Volume: volume, Driver: driver, NodeID: "id1", NodeUID: "u1", Token: "tok", Life: c.life, By: "ann", Reason: "x"}
		if _, err := w.store.ReleaseVolume(t.Context(), "n1", rel); err != nil {
			t.Fatal(err)
		}
		r, err := w.store.Get(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		if !c.vouched {
			forged := record.New("n1")
			forged.Releases = r.Releases
			r = forged
		}
		r.Releases[0].Void = c.void
		q := stale(r)
		q.Holder.Token = "tok"
		if got := saidOff(&q); got != c.want {
			t.Errorf("%s: it says so: %v", name, got)
		}
	}
}
