package survey

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// world is what a Surveyor sees: an API server in memory with volume vol-1 on
// PersistentVolume pv-1, a driver, the watch of the leases, and a source.
type world struct {
	*Surveyor
	t       *testing.T
	client  *fake.Clientset
	objects clienttesting.ObjectTracker
	broken  map[string]error // of requests, by "verb resource" or "verb resource/name"

	silent    map[string]string // lease versions that the watch has shown unchanged for long, by node
	unwatched bool
	steady    time.Duration // for how long the leases were seen to be renewed
	storm     bool

	listed  []string // where the driver says that it is published
	unable  bool     // the driver cannot say
	listErr error
	takes   time.Duration // until the driver answers
	asks    int           // of the driver

	found     []fence.Evidence
	foundErr  error
	questions []evidence.Question
	meanwhile func() // happens while the source is asked
}

const (
	clusterUID = "cluster-uid"
	records    = "csi-fencepost"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	objects := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	w := &world{t: t, client: &fake.Clientset{}, objects: objects, broken: map[string]error{}, silent: map[string]string{}, steady: time.Hour, meanwhile: func() {}}
	w.client.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		what := a.GetVerb() + " " + a.GetResource().Resource
		if err := w.broken[what]; err != nil {
			return true, nil, err
		}
		if get, ok := a.(clienttesting.GetAction); ok && get.GetName() == "" {
			return true, nil, errors.New("resource name may not be empty")
		} else if ok && w.broken[what+"/"+get.GetName()] != nil {
			return true, nil, w.broken[what+"/"+get.GetName()]
		}
		return false, nil, nil
	})
	w.client.AddReactor("*", "*", clienttesting.ObjectReaction(objects))
	ids := &csi.Identity{Driver: liveDriver}
	w.Surveyor = &Surveyor{Client: w.client, IDs: ids, Ledgers: ledger.New(w.client, clusterUID, ids), Records: record.NewStore(w.client.CoordinationV1(), records),
		Sources: []evidence.Source{w}, Lives: w, Driver: w}
	w.put(livePV("pv-1", liveDriver, "vol-1"))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// put writes objects past all checks, in the place of those of their names.
func (w *world) put(all ...runtime.Object) {
	w.t.Helper()
	for _, o := range all {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		w.must(err)
		of, _ := meta.UnsafeGuessKindToResource(kinds[0])
		_ = w.objects.Delete(of, o.(metav1.Object).GetNamespace(), o.(metav1.Object).GetName())
		w.must(w.objects.Add(o))
	}
}

// node is a machine that has the driver, and a lease of version 70.
func (w *world) node(name string, change func(*corev1.Node)) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-" + name, SystemUUID: "system-" + name}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if change != nil {
		change(n)
	}
	w.put(n, liveCSINode(name, liveDriver, "id-"+name))
	w.lease(name, "70")
}

func (w *world) lease(node, version string) {
	w.t.Helper()
	w.put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node, ResourceVersion: version}})
}

func (w *world) record(node string, change func(*record.Record)) {
	w.t.Helper()
	_, err := w.Records.Update(w.t.Context(), node, func(r *record.Record) (bool, error) { change(r); return true, nil })
	w.must(err)
}

// garbled is a record that cannot be read.
func (w *world) garbled(node string) {
	w.t.Helper()
	w.put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: records, Name: record.LeaseName(node), Annotations: map[string]string{record.Annotation: "{"}}})
}

// gone deletes a Node, its CSINode and its lease.
func (w *world) gone(node string) {
	w.t.Helper()
	w.must(w.client.CoreV1().Nodes().Delete(w.t.Context(), node, metav1.DeleteOptions{}))
	w.must(w.client.StorageV1().CSINodes().Delete(w.t.Context(), node, metav1.DeleteOptions{}))
	w.must(w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(w.t.Context(), node, metav1.DeleteOptions{}))
}

// attachment is the VolumeAttachment of vol-1 for that node, which the attacher
// has noted that node ID on; empty: none.
func (w *world) attachment(node, id string, change func(*storagev1.VolumeAttachment)) {
	w.t.Helper()
	va := liveVA(csi.AttachmentName("vol-1", liveDriver, node), liveDriver, node, ofPV("pv-1"))
	if id != "" {
		va.Annotations = map[string]string{csi.NodeIDAnnotation: id}
	}
	if change != nil {
		change(va)
	}
	w.put(va)
}

func deleted(va *storagev1.VolumeAttachment) {
	va.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// inLedger writes the ledger with these entries.
func (w *world) inLedger(entries ...ledger.Entry) {
	w.t.Helper()
	pv := livePV("pv-1", liveDriver, "vol-1")
	l := ledger.Ledger{Version: ledger.Version, Driver: liveDriver, Handle: "vol-1", Cluster: clusterUID, PVUID: string(pv.UID), Holders: entries}
	pv.Annotations = map[string]string{ledger.Annotation: l.String()}
	w.put(pv)
}

// entry of the machine that node makes.
func entry(node string) ledger.Entry {
	return ledger.Entry{NodeID: "id-" + node, NodeName: node, NodeUID: "uid-" + node, BootID: "boot-" + node, SystemUUID: "system-" + node, MachineID: "machine-1", State: fence.Publishing, Token: "token-" + node}
}

// listing makes a Node name vol-1 in volumesInUse.
func listing(n *corev1.Node) {
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/" + liveDriver + "^vol-1"}
}

// listingAttached makes a Node name vol-1 in volumesAttached.
func listingAttached(n *corev1.Node) {
	n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/" + liveDriver + "^vol-1"}}
}

// look gives the Surveyor an index of what is there now.
func (w *world) look() {
	w.t.Helper()
	index, err := ListLive(w.t.Context(), w.client, w.IDs)
	w.must(err)
	w.Index = index
}

// volume surveys vol-1 for nobody in particular.
func (w *world) volume() *Survey {
	w.t.Helper()
	w.look()
	s, err := w.Volume(w.t.Context(), "vol-1")
	w.must(err)
	return s
}

func (w *world) publish(nodeID string, suspects ...string) *Survey {
	w.t.Helper()
	w.look()
	s, err := w.Publish(w.t.Context(), "vol-1", nodeID, suspects)
	w.must(err)
	return s
}

func (w *world) unpublish(nodeID string) *Survey {
	w.t.Helper()
	w.look()
	s, err := w.Unpublish(w.t.Context(), "vol-1", nodeID)
	w.must(err)
	return s
}

// holder is the one with that node ID.
func (w *world) holder(s *Survey, nodeID string) *fence.Holder {
	w.t.Helper()
	h := s.Holder(nodeID)
	if h == nil {
		w.t.Fatalf("no holder %q among %+v", nodeID, s.Holders)
	}
	return h
}

// Judge implements Lives.
func (w *world) Judge(node string, lease *coordinationv1.Lease, nodeExists, _ bool) fence.Liveness {
	switch {
	case !nodeExists || lease == nil:
		return fence.Unknown
	case w.unwatched:
		return fence.Unwatched
	case lease.ResourceVersion == w.silent[node]:
		return fence.Stale
	}
	return fence.Alive
}

// Silent implements Lives.
func (w *world) Silent(node string) (string, bool) { v, silent := w.silent[node]; return v, silent }

// Storm implements Lives.
func (w *world) Storm() (bool, string) { return w.storm, "" }

// Steady implements Lives.
func (w *world) Steady(_ string, least time.Duration) bool { return least <= w.steady }

// PublishedNodes implements Published.
func (w *world) PublishedNodes(ctx context.Context, _ string) ([]string, bool, error) {
	w.asks++
	select {
	case <-ctx.Done():
	case <-time.After(w.takes):
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	return w.listed, !w.unable && w.listErr == nil, w.listErr
}

// Name implements evidence.Source.
func (*world) Name() string { return "test" }

// Evidence implements evidence.Source.
func (w *world) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	w.questions = append(w.questions, q)
	w.meanwhile()
	return w.found, w.foundErr
}

func TestTheLedgerThatAnActionStartsFrom(t *testing.T) {
	t.Run("where there was none, of all that are known", func(t *testing.T) {
		w := newWorld(t)
		w.node("a", nil)
		w.node("b", listing)
		w.node("c", nil)
		w.put(liveCSINode("c", "other.example.com", "x"))
		w.attachment("c", "", func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }) // nobody knows its ID
		w.listed = []string{"id-a", "id-z"}
		l := w.publish("id-next").Ledger()
		var got []string
		for _, e := range l.Holders {
			if e.State != fence.Held || e.Token == "" {
				t.Errorf("entry %+v", e)
			}
			got = append(got, strings.Join([]string{e.NodeID, e.NodeName, e.NodeUID, e.BootID, e.SystemUUID, string(e.From)}, " "))
		}
		want := []string{"id-a a uid-a boot-a system-a published_node_ids", "id-b b uid-b boot-b system-b ", "id-z     published_node_ids"}
		if !slices.Equal(got, want) {
			t.Errorf("entries %q, want %q", got, want)
		}
	})
	t.Run("where there is one, as it was read", func(t *testing.T) {
		w := inUse(t)
		w.node("b", listing)
		s := w.publish("id-next")
		if got, want := s.Ledger().String(), s.Book.Ledger.String(); got != want || s.Holder("id-b") == nil {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("one that only the driver listed is known better by now", func(t *testing.T) {
		for source, change := range map[fence.Source]func(w *world){
			fence.FromDriver: func(*world) {},
			"":               func(w *world) { w.node("old", listing) },
		} {
			w := newWorld(t)
			w.node("old", nil)
			e := entry("old")
			e.State, e.From = fence.Held, fence.FromDriver
			w.inLedger(e)
			w.listed = []string{"id-old"}
			change(w)
			if got := w.publish("id-next").Ledger().Get("id-old"); got == nil || got.From != source {
				t.Errorf("entry %+v, want it from %q", got, source)
			}
		}
	})
}

func TestOnlyAnAdoptedEntryIsOfTheDriverAlone(t *testing.T) {
	contest := &fence.Contest{BootID: "b"}
	h := fence.Holder{NodeID: "id", NodeName: "n", NodeUID: "u", BootID: "b", SystemUUID: "s", ReadySince: "r", Contest: contest, Sources: []fence.Source{fence.FromDriver}}
	want := ledger.Entry{NodeID: "id", NodeName: "n", NodeUID: "u", BootID: "b", SystemUUID: "s", ReadySince: "r", Contest: contest, State: fence.Held, Token: "t", From: fence.FromDriver}
	if got := EntryOf(&h, fence.Held, "t"); !reflect.DeepEqual(got, want) {
		t.Errorf("entry %+v, want %+v", got, want)
	}
	if got := EntryOf(&h, fence.Publishing, "t"); got.From != "" {
		t.Errorf("published to: %+v", got)
	}
	h.Sources = append(h.Sources, fence.FromAttachment)
	if got := EntryOf(&h, fence.Held, "t"); got.From != "" {
		t.Errorf("named by its VolumeAttachment too: %+v", got)
	}
}

func TestASurveySaysWhatItIsAbout(t *testing.T) {
	w := inUse(t)
	w.put(livePV("pv-2", liveDriver, "vol-1"))
	w.node("next", nil)
	w.Policy = fence.Policy{UnpublishRevokesAccess: true, ForwardUnfenced: true}
	s := w.publish("id-next")
	if s.Volume != "vol-1" || s.PV != "pv-1" || !slices.Equal(s.PVNames(), []string{"pv-1", "pv-2"}) || !slices.Equal(s.Targets, []string{"next"}) || s.Policy != w.Policy {
		t.Errorf("survey %+v", s)
	}
	if h := w.holder(s, "id-old"); h.State != fence.Publishing || h.Token != "token-old" {
		t.Errorf("holder %+v", h)
	}
	w.storm = true
	if p := w.publish("id-next").Policy; p.UnpublishRevokesAccess || !p.ForwardUnfenced {
		t.Errorf("in a storm: %+v", p)
	}
}

func TestManyMayWriteOnlyIfEveryPersistentVolumeSaysSo(t *testing.T) {
	const many, one = corev1.ReadWriteMany, corev1.ReadWriteOnce
	for _, tt := range []struct {
		modes []corev1.PersistentVolumeAccessMode // of one PV each
		want  csi.Writers
	}{
		{nil, csi.Unknown},
		{[]corev1.PersistentVolumeAccessMode{many}, csi.Multi},
		{[]corev1.PersistentVolumeAccessMode{one}, csi.Single},
		{[]corev1.PersistentVolumeAccessMode{many, many}, csi.Multi},
		{[]corev1.PersistentVolumeAccessMode{many, one}, csi.Single},
		{[]corev1.PersistentVolumeAccessMode{one, many}, csi.Single},
	} {
		w := newWorld(t)
		w.must(w.client.CoreV1().PersistentVolumes().Delete(t.Context(), "pv-1", metav1.DeleteOptions{}))
		for i, mode := range tt.modes {
			pv := livePV(fmt.Sprint("pv-", i), liveDriver, "vol-1")
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
			w.put(pv)
		}
		if got := w.volume().Writers; got != tt.want {
			t.Errorf("%v: %s, want %s", tt.modes, got, tt.want)
		}
	}
}

func TestAnUnpublishLearnsOfItsOwnNodeAloneUnlessAllAreWrittenDown(t *testing.T) {
	known := func(w *world) { w.inLedger(entry("a"), entry("b")) }
	multi := func(w *world) {
		pv := livePV("pv-1", liveDriver, "vol-1")
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		w.put(pv)
	}
	tests := []struct {
		name    string
		change  func(w *world)
		nodeID  string
		learned []string
		asks    int
	}{
		{"there is a ledger", known, "id-a", []string{"a"}, 0},
		{"of all nodes", known, "", []string{"a", "b"}, 0},
		{"there is no ledger", func(*world) {}, "id-a", []string{"a", "b"}, 1},
		{"there is none, and many may write", multi, "id-a", []string{"a"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("a", nil)
			w.node("b", nil)
			w.attachment("a", "id-a", nil)
			w.attachment("b", "id-b", nil)
			tt.change(w)
			var learned []string
			for _, h := range w.unpublish(tt.nodeID).Holders {
				if h.Node != nil {
					learned = append(learned, h.NodeName)
				}
			}
			if !slices.Equal(learned, tt.learned) || w.asks != tt.asks {
				t.Errorf("learned of %v, want %v; the driver was asked %d times, want %d", learned, tt.learned, w.asks, tt.asks)
			}
		})
	}
}

func TestWhatWasTakenFromIsLookedAtNoMoreByAPublish(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world, e *ledger.Entry)
		looks  bool
	}{
		{"proven", func(*world, *ledger.Entry) {}, false},
		{"without proof", func(_ *world, e *ledger.Entry) { e.Unproven = true }, true},
		{"and listed as attached again", func(w *world, _ *ledger.Entry) { w.node("old", listingAttached) }, true},
		{"and its Node is gone", func(w *world, _ *ledger.Entry) { w.gone("old") }, true},
		{"held", func(_ *world, e *ledger.Entry) { e.State = fence.Held }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.node("old", nil)
			w.node("next", nil)
			e := entry("old")
			e.State = fence.TakenOver
			tt.change(w, &e)
			w.inLedger(e)
			looked := func(s *Survey) bool {
				return w.holder(s, "id-old").LeaseRV != "" ||
					slices.ContainsFunc(w.questions, func(q evidence.Question) bool { return q.Holder.NodeID == "id-old" })
			}
			if got := looked(w.publish("id-next")); got != tt.looks {
				t.Errorf("looked at by a publish: %v", got)
			}
			if !looked(w.unpublish("id-old")) {
				t.Error("not looked at by its own unpublish")
			}
		})
	}
}

// A call comes right after the object that it is about was written: what the watch
// has not shown yet must not be missed.
func TestASurveyWaitsForTheWatchToShowWhatTheCallIsAbout(t *testing.T) {
	tests := []struct {
		name string
		late func(w *world) // written after the index
	}{
		{"its VolumeAttachment", func(w *world) { w.attachment("old", "id-old", nil) }},
		{"its PersistentVolume", func(w *world) { w.named("va-2", "old"); w.put(livePV("pv-1", liveDriver, "vol-1")) }},
	}
	for _, tt := range tests {
		for name, shows := range map[string]bool{"in time": true, "never": false} {
			t.Run(tt.name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.node("old", nil)
					pv := livePV("pv-1", liveDriver, "vol-1")
					pv.UID = "uid-before"
					if tt.name == "its PersistentVolume" {
						w.put(pv)
					}
					w.look()
					tt.late(w)
					late := &lateIndex{Index: w.Index}
					w.Index = late
					if shows {
						index, err := ListLive(t.Context(), w.client, w.IDs)
						w.must(err)
						time.AfterFunc(time.Second, func() { late.then.Store(index) })
					}
					begun := time.Now()
					s, err := w.Publish(t.Context(), "vol-1", "id-old", nil)
					switch waited := time.Since(begun); {
					case shows && (err != nil || waited > 1100*time.Millisecond):
						t.Errorf("got %v after %s", err, waited)
					case !shows && (err == nil || s != nil || !strings.Contains(err.Error(), "is behind") || waited > 3*time.Second):
						t.Errorf("got %+v, %v after %s", s, err, waited)
					}
				})
			})
		}
	}
}

func TestASurveyThatWaitsForTheWatchEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node("old", nil)
		w.look()
		w.attachment("old", "id-old", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if s, err := w.Publish(ctx, "vol-1", "id-old", nil); !errors.Is(err, context.DeadlineExceeded) || s != nil {
			t.Errorf("got %+v, %v", s, err)
		}
	})
}

// lateIndex is an index that another one follows.
type lateIndex struct {
	Index
	then atomic.Pointer[Live]
}

func (l *lateIndex) now() Index {
	if then := l.then.Load(); then != nil {
		return then
	}
	return l.Index
}

func (l *lateIndex) CaughtPV(name, uid string) bool { return l.now().CaughtPV(name, uid) }
func (l *lateIndex) CaughtAttachment(name, uid string) bool {
	return l.now().CaughtAttachment(name, uid)
}

func TestAPersistentVolumeThatOnlyTheVolumeAttachmentNamesIsReadToo(t *testing.T) {
	w := newWorld(t)
	w.node("old", nil)
	w.node("next", nil)
	w.must(w.client.CoreV1().PersistentVolumes().Delete(t.Context(), "pv-1", metav1.DeleteOptions{}))
	w.look()
	w.inLedger(entry("old"))
	w.attachment("next", "id-next", nil)
	index, err := ListLive(t.Context(), w.client, w.IDs)
	w.must(err)
	late := &lateIndex{Index: w.Index}
	late.then.Store(index)
	w.Index = late // which still knows neither by the volume
	s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
	w.must(err)
	if !slices.Equal(s.PVNames(), []string{"pv-1"}) || s.Holder("id-old") == nil {
		t.Errorf("PVs %q, holders %v", s.PVNames(), holders(s))
	}
}

// Two of which nobody knows the node ID: a refusal names the same one each time.
func TestHoldersOfUnknownNodeIDsComeInTheSameOrderEachTime(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		w.inLedger()
		for _, name := range []string{"b", "a"} {
			w.node(name, nil)
			w.put(liveCSINode(name, "other.example.com", "x"))
			w.attachment(name, "", func(va *storagev1.VolumeAttachment) { va.Status.Attached = true })
		}
		s := w.publish("id-next")
		if n := len(s.Holders); n < 2 || s.Holders[0].NodeName != "a" || s.Holders[1].NodeName != "b" {
			t.Fatalf("holders %+v", s.Holders)
		}
	}
}

// turning is an index that has seen node old turn after its VolumeAttachment va-old
// was deleted.
type turning struct{ Index }

func (turning) TurnedSince(node, attachment string) bool {
	return node == "old" && attachment == "va-old"
}

func TestAKubeletThatWasSeenToTurnAfterTheDeletionIsAFactOfTheVolumeAttachment(t *testing.T) {
	for _, is := range []bool{true, false} {
		w := newWorld(t)
		w.node("old", nil)
		w.inLedger(entry("old"))
		w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) {
			va.Name = "va-old"
			if is {
				deleted(va)
			}
		})
		w.look()
		w.Index = turning{w.Index}
		s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
		w.must(err)
		a := w.holder(s, "id-old").Attachment
		if a == nil || a.Turned != is {
			t.Errorf("deleted %v: %+v", is, a)
		}
	}
}

// turnsMeanwhile is an index that sees node old turn while its Node is being read.
type turnsMeanwhile struct {
	Index
	read *bool
}

func (i turnsMeanwhile) TurnedSince(node, attachment string) bool {
	return *i.read && node == "old" && attachment == "va-old"
}

func TestWhatANodeSaysIsNotReadBeforeItWasSeenToTurn(t *testing.T) {
	w := newWorld(t)
	w.node("old", nil)
	w.inLedger(entry("old"))
	w.attachment("old", "id-old", func(va *storagev1.VolumeAttachment) { va.Name = "va-old"; deleted(va) })
	w.look()
	var read bool
	w.client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		read = true
		return false, nil, nil
	})
	w.Index = turnsMeanwhile{w.Index, &read}
	s, err := w.Publish(t.Context(), "vol-1", "id-next", nil)
	w.must(err)
	if a := w.holder(s, "id-old").Attachment; a == nil || !a.Turned {
		t.Errorf("%+v", a)
	}
}
