package guard_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// heard is a Reporter that notes what it is told.
type heard struct {
	decisions []guard.Decision
	takeovers int
	from      []string
	aside     []string
	failed    int
	turned    []string
}

func (h *heard) Decided(d guard.Decision) { h.decisions = append(h.decisions, d) }

func (h *heard) TookOver(_ guard.Decision, from []fence.Holder, took time.Duration) {
	h.takeovers++
	for i := range from {
		h.from = append(h.from, from[i].NodeID)
	}
	if took <= 0 || took > time.Minute {
		h.from = append(h.from, "in "+took.String())
	}
}
func (h *heard) SetAside(_, text string) { h.aside = append(h.aside, text) }
func (h *heard) LedgerWriteFailed()      { h.failed++ }

func (h *heard) TurnedAway(call, volume, nodeID string) {
	h.turned = append(h.turned, call+" "+volume+" "+nodeID)
}

// last is what was heard last, in short.
func (h *heard) last() string {
	if len(h.decisions) == 0 {
		return ""
	}
	d := h.decisions[len(h.decisions)-1]
	holder := ""
	if d.Holder != nil {
		holder = d.Holder.NodeID
	}
	return fmt.Sprintf("%s %s of %s for %s (%s): %s %s, holder %q", d.Call, d.Volume, d.PV, d.NodeID, d.NodeName, d.Action, d.Reason, holder)
}

func listen(r *guardrig.Rig) *heard {
	h := &heard{}
	r.Guard.Reporter = h
	return h
}

// acting is the rig's driver with something that happens while it is called.
type acting struct {
	*guardrig.Rig
	publish, unpublish func() error
}

func (a acting) Publish(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	resp, err := a.Rig.Publish(ctx, req)
	if a.publish != nil {
		err = errors.Join(err, a.publish())
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (a acting) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	resp, err := a.Rig.Unpublish(ctx, req)
	if err == nil && a.unpublish != nil {
		err = a.unpublish()
	}
	return resp, err
}

func (a acting) PublishTo(node string) error {
	a.T.Helper()
	a.Look()
	_, err := a.Guard.ControllerPublishVolume(a.By(a.T.Context()), &spec.ControllerPublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID(node),
		Secrets: map[string]string{"password": "hunter22"}, VolumeCapability: &spec.VolumeCapability{}}, a)
	return err
}

func TestATakeoverUnpublishesThenPublishesAndTellsFromWhom(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	h := listen(r)
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-old", "publish id-next")
	if r.State("old") != fence.TakenOver || r.Ledger().Get(guardrig.ID("old")).Unproven || r.State("next") != fence.Publishing {
		t.Errorf("the ledger says %s", r.Ledger())
	}
	if !slices.Equal(h.from, []string{"id-old"}) {
		t.Errorf("taken over from %q", h.from)
	}
	if got, want := h.last(), `ControllerPublishVolume vol-1 of pv-1 for id-next (next): allow HolderFenced, holder ""`; got != want {
		t.Errorf("reported %s\nwant %s", got, want)
	}
	// The old one's late unpublish is answered, and reaches no driver.
	r.Calls = nil
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called()
	if got, want := h.last(), `ControllerUnpublishVolume vol-1 of pv-1 for id-old (old): answer AlreadyTakenOver, holder ""`; got != want {
		t.Errorf("reported %s\nwant %s", got, want)
	}
}

func TestAPublishWithoutATakeoverTellsOfNone(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	h := listen(r)
	r.Must(r.PublishTo("n"))
	r.Must(r.PublishTo("n")) // a retry
	if h.takeovers != 0 || len(h.decisions) != 2 {
		t.Errorf("heard %+v", h)
	}
	r.Called("publish id-n", "publish id-n")
}

func TestEachHolderIsUnpublishedWithTheRequestsOwnSecrets(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Change(func(l *ledger.Ledger) {
		e := *l.Get(guardrig.ID("old"))
		e.NodeID, e.NodeName, e.NodeUID = "id-second", "second", ""
		e.State = fence.Released
		l.Put(e)
	})
	var seen []string
	r.Must(acting{Rig: r, publish: nil}.withSecrets(&seen).PublishTo("next"))
	if want := []string{"id-old hunter22", "id-second hunter22"}; !slices.Equal(seen, want) {
		t.Errorf("unpublished %q, want %q", seen, want)
	}
}

// withSecrets notes each unpublish with its secret.
func (a acting) withSecrets(seen *[]string) noting { return noting{a, seen} }

type noting struct {
	acting
	seen *[]string
}

func (n noting) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	*n.seen = append(*n.seen, req.GetNodeId()+" "+req.GetSecrets()["password"])
	return n.acting.Unpublish(ctx, req)
}

func (n noting) PublishTo(node string) error {
	n.Look()
	_, err := n.Guard.ControllerPublishVolume(n.T.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID(node),
		Secrets: map[string]string{"password": "hunter22"}, VolumeCapability: &spec.VolumeCapability{}}, n)
	return err
}

func TestAnUnpublishThatFailsInATakeoverIsToldAsItIs(t *testing.T) {
	for said, want := range map[codes.Code]codes.Code{codes.Unavailable: codes.Unavailable, codes.DeadlineExceeded: codes.Unavailable,
		codes.Canceled: codes.Unavailable, codes.Aborted: codes.Aborted, codes.Internal: codes.FailedPrecondition} {
		r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
		h := listen(r)
		token := r.Ledger().Get(guardrig.ID("old")).Token
		r.UnpublishErr = status.Error(said, "cannot reach the VM with hunter22")
		err := acting{Rig: r}.PublishTo("next")
		r.Refused(err, want, "volume pv-1: node old", "no longer counts (HolderFenced)", said.String()+": cannot reach the VM", "["+string(fence.UnpublishFailed)+"]")
		if strings.Contains(err.Error(), "hunter22") {
			t.Errorf("a secret: %v", err)
		}
		r.Called("unpublish id-old")
		if r.State("old") != fence.Leaving || r.Ledger().Get(guardrig.ID("old")).Token != token || r.State("next") != fence.NotInLedger {
			t.Errorf("the ledger says %s", r.Ledger())
		}
		if got, want := h.last(), `ControllerPublishVolume vol-1 of pv-1 for id-next (next): refuse UnpublishFailed, holder "id-old"`; got != want {
			t.Errorf("reported %s\nwant %s", got, want)
		}
	}
}

// The VM is gone, and its disk with it from there. Under a storage fence, or on
// an operator's word for one volume, the machine may live.
func TestNotFoundIsSuccessOnlyOfAMachineThatIsProvenOff(t *testing.T) {
	gone := status.Error(codes.NotFound, "no such VM")
	for _, tt := range []struct {
		policy fence.Policy
		kinds  []fence.Kind
		moves  bool
	}{
		{fence.Policy{}, []fence.Kind{fence.PowerReading}, true},
		{fence.Policy{}, []fence.Kind{fence.OperatorConfirmation}, true},
		{fence.Policy{}, []fence.Kind{fence.StorageFence}, false},
		{fence.Policy{}, []fence.Kind{fence.VolumeRelease}, false},
		{fence.Policy{UnpublishRevokesAccess: true}, nil, false},
	} {
		r := guardrig.Fenced(t, tt.policy, tt.kinds...)
		r.UnpublishErr = gone
		if err := r.PublishTo("next"); (err == nil) != tt.moves {
			t.Errorf("%v, %+v: publish elsewhere: %v", tt.kinds, tt.policy, err)
		}
		r = guardrig.Fenced(t, tt.policy, tt.kinds...)
		r.UnpublishErr = gone
		if err := r.UnpublishFrom(guardrig.ID("old")); (err == nil) != tt.moves {
			t.Errorf("%v, %+v: unpublish: %v", tt.kinds, tt.policy, err)
		}
	}
	// Another error of it is one.
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.Internal, "throttled")
}

// What was judged is what is written against: somebody else's write in between
// has the call judged again.
func TestAWriteThatLosesARaceIsJudgedAgain(t *testing.T) {
	for n, what := range []string{"the leaving mark", "the record"} {
		r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
		r.BeforeWrite(n+1, func() {
			r.Change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "id-third", NodeName: "third", Token: "x", State: fence.Publishing})
			})
		})
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "node third", "["+string(fence.HolderUnknown)+"]")
		if slices.Contains(r.Calls, "publish id-next") {
			t.Errorf("%s: published beside another: %q", what, r.Calls)
		}
	}
}

func TestALedgerThatChangesAllTheTimeIsAPendingOperation(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	n := 0
	r.Client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		n++
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: "id-n", State: fence.Publishing, Token: fmt.Sprint(n)})
		})
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolume"}, guardrig.PVName, nil)
	})
	r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.OperationPending)+"]")
	if n != guard.Rounds {
		t.Errorf("judged %d times, want %d", n, guard.Rounds)
	}
	r.Called()
}

func TestWithoutTheAPIServerNothingIsForwarded(t *testing.T) {
	for _, tt := range []struct{ verb, resource, says string }{
		{"get", "persistentvolumes", "who holds it cannot be found out"},
		{"get", "nodes", "who holds it cannot be found out"},
		{"patch", "persistentvolumes", "volume pv-1: its ledger cannot be written"},
	} {
		for _, call := range []func(*guardrig.Rig) error{func(r *guardrig.Rig) error { return r.PublishTo("next") }, func(r *guardrig.Rig) error { return r.UnpublishFrom(guardrig.ID("old")) }} {
			r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
			h := listen(r)
			r.Look()
			index := r.Guard.Surveyor.Index
			r.Broken(tt.verb, tt.resource)
			r.Guard.Surveyor.Index = index
			err := call(r)
			r.Refused(err, codes.Unavailable, tt.says, "etcd is away", "["+string(fence.APIUnavailable)+"]")
			r.Called()
			if len(h.decisions) != 1 || h.decisions[0].Reason != fence.APIUnavailable || h.decisions[0].Action != fence.Refuse || h.decisions[0].NodeName == "" || h.decisions[0].NodeID == "" ||
				h.decisions[0].Text != status.Convert(err).Message() {
				t.Errorf("%s %s: reported %s", tt.verb, tt.resource, h.last())
			}
			if want := map[string]int{"patch": 1}[tt.verb]; h.failed != want {
				t.Errorf("%s %s: %d writes reported as failed, want %d", tt.verb, tt.resource, h.failed, want)
			}
		}
	}
}

// Its own words change from try to try, and each would be another Event.
func TestAnAPIServerThatIsSlowIsToldInWordsThatDoNotChange(t *testing.T) {
	resource := schema.GroupResource{Resource: "persistentvolumes"}
	for _, slow := range []error{context.DeadlineExceeded, apierrors.NewTimeoutError("try 1", 1), apierrors.NewServerTimeout(resource, "get", 1)} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("n", guardrig.HourAgo)
		r.BeforeRead(1, func() error { return slow })
		r.Refused(r.PublishTo("n"), codes.Unavailable, "who holds it cannot be found out: the API server does not answer in time. To unblock: nothing, once")
	}
}

func TestARightThatIsLackingIsNamed(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, guardrig.PVName, errors.New("no"))
	})
	r.Refused(r.PublishTo("n"), codes.Unavailable, "persistentvolumes", "give csi-fencepost's service account the right")
}

func TestADriverThatSeesAnotherHolderIsAskedWhoItIs(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	refusal := status.Error(codes.FailedPrecondition, "volume is attached to node id-old")
	a := acting{Rig: r, publish: func() error { return refusal }}
	// The driver's own words name a node that lives.
	r.Lists("old", false, false)
	r.Lives["old"] = fence.Unwatched
	r.Listed = nil
	r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "" })
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Refused(a.PublishTo("next"), codes.FailedPrecondition, "id-old", "["+string(fence.HolderUnknown)+"]")
	r.Called("publish id-next")
	// They name nobody, and its list does.
	refusal, r.Listed = status.Error(codes.FailedPrecondition, "volume is in use"), []string{"id-old"}
	r.Refused(a.PublishTo("next"), codes.FailedPrecondition, "id-old", "["+string(fence.HolderUnknown)+"]")
	r.ListErr = guardrig.ErrThrottled
	if err := a.PublishTo("next"); !errors.Is(err, refusal) {
		t.Errorf("where it cannot be asked: %v, want %v", err, refusal)
	}
	r.Called("publish id-next", "publish id-next", "publish id-next")
	// A word that only contains the ID names nobody, and the refusal stands.
	r = guardrig.New(t, fence.Policy{})
	r.Node("old", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	r.Listed = []string{"id-next"}
	r.Change(func(l *ledger.Ledger) { l.Put(ledger.Entry{NodeID: "id-taken", Token: "k", State: fence.TakenOver}) })
	for _, words := range []string{"snapshot id-old2 is pending", "grid-old", "id-ol", "id-next is busy"} {
		refusal, r.Calls = status.Error(codes.FailedPrecondition, words), nil
		err := acting{Rig: r, publish: func() error { return refusal }}.PublishTo("next")
		r.Refused(err, codes.FailedPrecondition, words)
		if strings.Contains(err.Error(), fence.Mark) {
			t.Errorf("%q is answered in our words: %v", words, err)
		}
		r.Called("publish id-next") // nobody is unpublished, and nothing tried again
	}
}

// The driver said yes to a publish that the ledger does not name any more.
func TestAPublishThatTheLedgerDoesNotNameAnyMoreIsTakenBack(t *testing.T) {
	for what, lost := range map[string]func(*ledger.Ledger){
		"cut":        func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) },
		"taken over": func(l *ledger.Ledger) { l.MarkTaken(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token, false) },
	} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("next", guardrig.HourAgo)
		err := acting{Rig: r, publish: func() error { r.Change(lost); return nil }}.PublishTo("next")
		r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
		r.Called("publish id-next", "unpublish id-next")
		if got := r.State("next"); got != fence.NotInLedger {
			t.Errorf("%s: the ledger says %s", what, got)
		}
	}
}

// A ledger that is gone has not given the volume away: the node may be the one that
// writes, and was published to once more.
func TestAPublishWhoseLedgerIsGoneIsNotTakenBack(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Calls = nil
	err := acting{Rig: r, publish: func() error { r.Lose(); return nil }}.PublishTo("old")
	r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.Called("publish id-old")
	r.Must(r.PublishTo("old")) // repeated, it stands in a ledger again
	if got := r.State("old"); got != fence.Publishing {
		t.Errorf("the ledger says %s", got)
	}
}

func TestAPublishThatCannotBeTakenBackStaysLeaving(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	r.UnpublishErr = guardrig.ErrThrottled
	err := acting{Rig: r, publish: func() error {
		r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) })
		return nil
	}}.PublishTo("next")
	r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.Called("publish id-next", "unpublish id-next")
	if got := r.State("next"); got != fence.Leaving {
		t.Errorf("the ledger says %q", got)
	}
}

func TestAVolumeComesBackToANodeThatItWasTakenFrom(t *testing.T) {
	for _, anew := range []bool{false, true} {
		r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
		r.Must(r.PublishTo("next"))
		taken := r.Ledger().Get(guardrig.ID("old")).Token
		r.Guard.Surveyor.Sources, r.Lives["old"] = nil, fence.Alive
		if r.Lists("old", false, false); anew {
			r.RenewUID("old")
		}
		r.Stripped("old")
		r.Attachment("old", time.Time{})
		r.Deleting("next")
		r.Calls = nil
		r.Must(r.PublishTo("old"))
		r.Called("unpublish id-next", "publish id-old")
		if e := r.Ledger().Get(guardrig.ID("old")); e.State != fence.Publishing || e.Token == taken || e.Contest != nil {
			t.Errorf("the ledger says %+v", e)
		}
	}
}

func TestAPublishThatIsRepeatedGivesUpNothingThatIsKnown(t *testing.T) {
	for _, state := range []fence.State{fence.Publishing, fence.Held} {
		r := guardrig.Published(t, fence.Policy{})
		r.Change(func(l *ledger.Ledger) {
			e := l.Get(guardrig.ID("old"))
			e.State, e.Contest, e.Token = state, &fence.Contest{BootID: "boot-of-old"}, "t"
		})
		r.Must(r.PublishTo("old"))
		if e := r.Ledger().Get(guardrig.ID("old")); e.State != fence.Publishing || e.Token != "t" || e.Contest == nil {
			t.Errorf("%s: the ledger says %+v", state, e)
		}
	}
}

// What the machine held before a boot, it does not hold any more.
func TestAPublishAfterABootBeginsAnew(t *testing.T) {
	for _, anew := range []bool{false, true} {
		r := guardrig.Published(t, fence.Policy{})
		r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Contest = &fence.Contest{BootID: "boot-of-old"} })
		r.Reboot("old", "boot-2")
		if anew {
			r.RenewUID("old")
		}
		r.Must(r.PublishTo("old"))
		if e := r.Ledger().Get(guardrig.ID("old")); e.BootID != "boot-2" || e.Contest != nil {
			t.Errorf("the ledger says %+v", e)
		}
	}
}

// Another process's publication of the same node is not ours to take back.
func TestAnothersPublicationIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.New(t, fence.Policy{})
		r.Node("next", guardrig.HourAgo)
		began := time.Now()
		err := acting{Rig: r, publish: func() error {
			r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("next")).Token = "another" })
			return nil
		}}.PublishTo("next")
		r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
		r.Called("publish id-next")
		if e := r.Ledger().Get(guardrig.ID("next")); e == nil || e.Token != "another" || e.State != fence.Publishing {
			t.Errorf("the ledger says %+v", e)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited for %s", waited)
		}
	})
}

func TestAPublicationThatAnotherBeginsMeanwhileIsLeftAlone(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	r.BeforeWrite(2, func() {
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: guardrig.ID("next"), NodeName: "next", Token: "another", State: fence.Publishing})
		})
	})
	err := acting{Rig: r, publish: func() error {
		r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) })
		return nil
	}}.PublishTo("next")
	r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.Called("publish id-next")
	if e := r.Ledger().Get(guardrig.ID("next")); e == nil || e.Token != "another" || e.State != fence.Publishing {
		t.Errorf("the ledger says %+v", e)
	}
}

// An unpublish that stands nowhere could follow another process's publish.
func TestNothingIsTakenBackThatCannotBeWrittenDown(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	h := listen(r)
	err := acting{Rig: r, publish: func() error {
		r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) })
		r.Broken("patch", "persistentvolumes")
		return nil
	}}.PublishTo("next")
	r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.Called("publish id-next")
	if h.failed != 1 {
		t.Errorf("%d failed writes reported", h.failed)
	}
}

// A publish is answered only once nobody is unpublishing that very node.
func TestAPublishWaitsForAnUnpublishOfTheSameNode(t *testing.T) {
	for _, tt := range []struct {
		what   string
		then   func(*guardrig.Rig)
		driver []string
	}{
		{"it ends", func(r *guardrig.Rig) {
			time.AfterFunc(time.Second, func() {
				r.Change(func(l *ledger.Ledger) { l.Cut(guardrig.ID("next"), l.Get(guardrig.ID("next")).Token) })
			})
		}, []string{"publish id-next", "unpublish id-next"}},
		{"the API server goes away", func(r *guardrig.Rig) {
			r.BeforeRead(3, func() error { return apierrors.NewInternalError(errors.New("etcd is away")) })
		}, []string{"publish id-next"}},
		{"it does not end", func(*guardrig.Rig) {}, []string{"publish id-next"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := guardrig.New(t, fence.Policy{})
			r.Node("next", guardrig.HourAgo)
			began := time.Now()
			err := acting{Rig: r, publish: func() error {
				r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("next")).State = fence.Leaving })
				tt.then(r)
				return nil
			}}.PublishTo("next")
			r.Refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
			if waited := time.Since(began); waited == 0 || waited > guard.WriteTimeout {
				t.Errorf("%s: waited for %s", tt.what, waited)
			}
			r.Called(tt.driver...)
		})
	}
}

func TestAPublishThatCannotBeHeldAgainstTheLedgerIsNotAnswered(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	h := listen(r)
	err := acting{Rig: r, publish: func() error { r.Broken("get", "persistentvolumes"); return nil }}.PublishTo("next")
	r.Refused(err, codes.Unavailable, "who holds it cannot be found out", "["+string(fence.APIUnavailable)+"]")
	if r.Called("publish id-next"); len(h.decisions) != 1 || h.decisions[0].Action != fence.Refuse {
		t.Errorf("reported %s", h.last())
	}
}

func TestADriverThatFailsToPublishIsPassedOn(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	h := listen(r)
	if err := (acting{Rig: r, publish: func() error { return guardrig.ErrThrottled }}).PublishTo("next"); !errors.Is(err, guardrig.ErrThrottled) {
		t.Errorf("%v, want %v", err, guardrig.ErrThrottled)
	}
	// The disk may be there all the same.
	if r.State("next") != fence.Publishing || len(h.decisions) != 0 {
		t.Errorf("the ledger says %s; reported %s", r.Ledger(), h.last())
	}
}

// There is no ledger of it to hold anything against.
func TestAVolumeWithoutAPersistentVolumeIsPublished(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Must(r.Client.CoreV1().PersistentVolumes().Delete(t.Context(), guardrig.PVName, metav1.DeleteOptions{}))
	r.Must(r.PublishTo("n"))
	r.Called("publish id-n")
}

func TestARequestThatCannotBeJudgedIsInvalid(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Look()
	for field, req := range map[string]*spec.ControllerPublishVolumeRequest{
		"volume_id":         {NodeId: "n", VolumeCapability: &spec.VolumeCapability{}},
		"node_id":           {VolumeId: "v", VolumeCapability: &spec.VolumeCapability{}},
		"volume_capability": {VolumeId: "v", NodeId: "n"},
	} {
		_, err := r.Guard.ControllerPublishVolume(t.Context(), req, r)
		r.Refused(err, codes.InvalidArgument, "ControllerPublishVolume without "+field)
	}
	_, err := r.Guard.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{NodeId: "n"}, r)
	r.Refused(err, codes.InvalidArgument, "ControllerUnpublishVolume without volume_id")
	r.Called()
}

func TestASecondCallForAVolumeIsPendingWhileTheFirstIsUnderWay(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	h := listen(r)
	r.Node("n", guardrig.HourAgo)
	r.Must(acting{Rig: r, publish: func() error {
		if got := r.Guard.UnderWay(); !slices.Equal(got, []string{guardrig.Handle}) {
			t.Errorf("under way: %q", got)
		}
		r.Refused(r.PublishTo("n"), codes.Aborted, "["+string(fence.OperationPending)+"]")
		r.Refused(r.UnpublishFrom(guardrig.ID("n")), codes.Aborted, "["+string(fence.OperationPending)+"]")
		return nil
	}}.PublishTo("n"))
	r.Called("publish id-n")
	if got := r.Guard.UnderWay(); len(got) != 0 {
		t.Errorf("still under way: %q", got)
	}
	if want := []string{"ControllerPublishVolume vol-1 id-n", "ControllerUnpublishVolume vol-1 id-n"}; !slices.Equal(h.turned, want) {
		t.Errorf("turned away: %q, want %q", h.turned, want)
	}
	r.Must(r.PublishTo("n"))
}

func TestObserveForwardsEverythingAndSaysWhatItWouldHaveDone(t *testing.T) {
	r := guardrig.Held(t)
	h := listen(r)
	before := r.Ledger().String()
	r.Guard.Observe = true
	r.Must(r.PublishTo("next"))
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Must(r.UnpublishFrom(""))
	r.Called("publish id-next", "unpublish id-old", "unpublish ")
	if len(h.decisions) != 2 {
		t.Fatalf("reported %+v", h.decisions)
	}
	for i, d := range h.decisions {
		if !d.Observed || d.Action != fence.Refuse || d.Text == "" || d.Reason != fence.HolderAlive && d.Reason != fence.HolderWanted {
			t.Errorf("%d: reported %+v", i, d)
		}
	}
	if r.Must(r.PublishTo("old")); h.decisions[2].Action != fence.Allow || h.decisions[2].Text != "" {
		t.Errorf("of what it would have let through it says %+v", h.decisions[2])
	}
	if r.Ledger().String() != before {
		t.Error("the ledger was written")
	}
	// What cannot be judged is forwarded too.
	r.Look()
	r.Broken("get", "persistentvolumes")
	r.Calls = nil
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Must(r.PublishTo("next"))
	r.Called("unpublish id-old", "publish id-next")
}

func TestAnUnpublishOfAVolumeOfManyWritersIsForwardedUnlessALedgerNamesTheNode(t *testing.T) {
	r := guardrig.Held(t)
	// An unpublish carries no capability: the PV says so, unless a ledger says
	// that it was published to one.
	r.Many()
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "node old")
	r.Attachment("next", time.Time{})
	r.Lists("next", true, true)
	r.Must(r.UnpublishFrom(guardrig.ID("next")))
	r.Refused(r.UnpublishFrom(""), codes.FailedPrecondition)
	r.Called("unpublish id-next")
	r.Annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"cluster-uid","pvUID":"uid-of-pv-1","holders":[]}`)
	r.Calls = nil
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old")
}

// The same where that is another machine, of which the ledger says nothing.
func TestAnUnpublishForANewMachineUnderTheNameIsForwardedForTheOldOne(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Register("old", "id-newer")
	r.RenewUID("old")
	r.Status("old", func(s *corev1.NodeStatus) {
		s.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-of-newer", SystemUUID: "system-newer"}
	})
	r.Lists("old", false, false)
	r.Must(r.UnpublishFrom("id-newer"))
	r.Called("unpublish id-old")
}

// The attacher takes the ID from the CSINode; the disk was published under the one of before.
func TestAnUnpublishByANewIDIsForwardedForTheOldOneFirst(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	csiNode, err := r.Client.StorageV1().CSINodes().Get(t.Context(), "old", metav1.GetOptions{})
	r.Must(err)
	csiNode.Spec.Drivers[0].NodeID = "id-newer"
	_, err = r.Client.StorageV1().CSINodes().Update(t.Context(), csiNode, metav1.UpdateOptions{})
	r.Must(err)
	h := listen(r)
	r.Look()
	req := &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: "id-newer"}
	_, err = r.Guard.ControllerUnpublishVolume(t.Context(), req, r)
	r.Must(err)
	if r.Called("unpublish id-old", "unpublish id-newer"); req.GetNodeId() != "id-newer" {
		t.Errorf("the caller's own request is for %s now", req.GetNodeId())
	}
	if !strings.Contains(h.last(), "for id-old (old): allow HolderFenced") {
		t.Errorf("reported %s", h.last())
	}
	// Its status lists it still, so the entry stays, as taken over.
	if r.State("old") != fence.TakenOver {
		t.Errorf("the ledger says %s", r.Ledger())
	}
}

func TestAnUnpublishedHolderIsCutUnlessItsNodeStillListsTheVolume(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	if r.State("old") != fence.TakenOver {
		t.Errorf("listed: the ledger says %s", r.Ledger())
	}
	r = guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Lists("old", false, false)
	r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).Contest = &fence.Contest{BootID: "boot-of-old"} })
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	if r.State("old") != fence.NotInLedger {
		t.Errorf("not listed: the ledger says %s", r.Ledger())
	}
}

func TestAnUnpublishWhoseCutCannotBeWrittenIsToldAgain(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	h := listen(r)
	r.Look()
	_, err := r.Guard.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: guardrig.Handle, NodeId: guardrig.ID("old")},
		acting{Rig: r, unpublish: func() error { r.Broken("*", "persistentvolumes"); return nil }})
	r.Refused(err, codes.Unavailable, "its ledger cannot be written")
	if h.failed != 1 {
		t.Errorf("%d failed writes reported", h.failed)
	}
}

func TestAnUnpublishOfNobodyIsForwardedAndReported(t *testing.T) {
	r := guardrig.Held(t)
	h := listen(r)
	before := r.Ledger().String()
	r.Must(r.UnpublishFrom("id-nobody"))
	r.Called("unpublish id-nobody")
	if !strings.Contains(h.last(), "for id-nobody (): allow NotAHolder") || r.Ledger().String() != before {
		t.Errorf("reported %s; the ledger is %s", h.last(), r.Ledger())
	}
}

// Nothing is written down before it, so that it is still so is read.
func TestAnUnpublishOfNobodyIsNotForwardedForWhomAnotherHasPublishedTo(t *testing.T) {
	r := guardrig.Held(t)
	r.BeforeRead(2, func() error {
		r.Change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: "id-nobody", Token: "x", State: fence.Publishing})
		})
		return nil
	})
	r.Refused(r.UnpublishFrom("id-nobody"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	r.Called()

	r = guardrig.Held(t)
	r.BeforeRead(2, func() error { return apierrors.NewInternalError(errors.New("etcd is away")) })
	r.Refused(r.UnpublishFrom("id-nobody"), codes.Unavailable, "volume pv-1: ", "["+string(fence.APIUnavailable)+"]")
	r.Called()
}

func TestARefusedUnpublishContestsOnceAndKeepsWhatTheKubeletShowed(t *testing.T) {
	r := guardrig.Held(t)
	h := listen(r)
	want := *r.Ledger().Get(guardrig.ID("old"))
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "node old", "["+string(fence.HolderAlive)+"]")
	got := *r.Ledger().Get(guardrig.ID("old"))
	c := got.Contest
	if want.Contest = c; !reflect.DeepEqual(got, want) {
		t.Errorf("the ledger says %+v, want %+v", got, want)
	}
	if c == nil || c.BootID != "boot-of-old" || c.SeenReadySince == "" {
		t.Fatalf("contested as %+v", c)
	}
	if got := h.last(); !strings.Contains(got, `for id-old (old): refuse HolderAlive, holder "id-old"`) {
		t.Errorf("reported %s", got)
	}
	writes := 0
	r.Client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		writes++
		return false, nil, nil
	})
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "node old")
	if writes != 0 {
		t.Errorf("the same contest is written %d times more", writes)
	}
	r.Called()
}

// readyAnew: the kubelet of old is Ready since after the publish.
func readyAnew(r *guardrig.Rig) {
	r.Status("old", func(s *corev1.NodeStatus) {
		s.Conditions[0].LastTransitionTime = metav1.NewTime(guardrig.Now.Add(time.Hour))
	})
}

// A kubelet that restarted has another Ready condition than at the publish. Where it is
// the same, the list is its own, and counts without having been watched for long.
func TestWhatAKubeletListsThatIsReadySinceBeforeThePublishIsItsWord(t *testing.T) {
	r := guardrig.Held(t)
	r.Unsynced.Store(true)
	r.Attachment("old", time.Now())
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Lists("old", false, false)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
}

// A kubelet that has just started leaves the list of the one before it for a while, and
// what it then drops it may have forgotten.
func TestWhatAKubeletListsBeforeItHasSyncedIsNotWhatItShowed(t *testing.T) {
	for _, unsynced := range []bool{true, false} {
		r := guardrig.Held(t)
		r.Unsynced.Store(unsynced)
		readyAnew(r)
		r.Attachment("old", time.Now())
		r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
		r.Lists("old", false, false)
		if err := r.UnpublishFrom(guardrig.ID("old")); (err != nil) != unsynced {
			t.Errorf("unsynced %v: %v", unsynced, err)
		}
		if unsynced {
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
			r.Called()
		}
	}
}

// A node that boots says Ready with the list of before its boot; that contests no boot in which
// nothing can have been mounted, and keeps nobody.
func TestABootWithTheListOfBeforeIsContestedOnlyWhereTheVolumeMayBeMounted(t *testing.T) {
	for _, refusedBefore := range []bool{true, false} {
		for _, known := range []string{"read before, and that lasted", "read before", "nothing"} {
			booted := known == "read before, and that lasted"
			r := guardrig.Held(t)
			r.Attachment("old", time.Now())
			r.Lists("old", true, false)
			if refusedBefore {
				r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
			}
			r.Reboot("old", "boot-2")
			r.Lists("old", true, false)
			r.Booted.Store(known != "nothing")
			r.BootUnsure.Store(!booted)
			r.Unsynced.Store(true)
			if booted {
				r.Must(r.UnpublishFrom(guardrig.ID("old")))
				continue
			}
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
			r.Lists("old", false, false)
			if r.UnpublishFrom(guardrig.ID("old")) == nil {
				t.Errorf("refused before %v, known of the boot before: %s: what it may have mounted is taken from it", refusedBefore, known)
			}
		}
	}
}

// A Node that a person makes from a file says a boot of before, and that its kubelet wrote it then.
func TestABootUnderAnotherNodeCountsOnceItsKubeletHasWrittenThere(t *testing.T) {
	made := time.Now().Add(-time.Hour).Truncate(time.Second)
	for after, counts := range map[time.Duration]bool{-time.Hour: false, 0: false, 2 * time.Second: false, 3 * time.Second: true, time.Minute: true} {
		r := guardrig.Published(t, fence.Policy{})
		r.Attachment("old", time.Now())
		r.RenewUID("old")
		r.Reboot("old", "boot-2")
		r.ChangeNode("old", func(n *corev1.Node) {
			at := metav1.NewTime(made.Add(after))
			n.CreationTimestamp, n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(made), at
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Subresource: "status", Time: &at,
				FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`)}}
		})
		r.Booted.Store(true)
		if err := r.UnpublishFrom(guardrig.ID("old")); (err == nil) != counts {
			t.Errorf("written %v after it was made: %v", after, err)
		}
	}
	// A Node that its kubelet has registered itself counts at once, though its heartbeat is as old as the
	// Node. Owners and times are as a control plane of v1.37 writes them, of a Node that a kubelet registers,
	// and of one that kubectl makes from a file with owners and without.
	owns := func(manager, subresource, fields string, after time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource, Time: ptr.To(metav1.NewTime(made.Add(after))), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const (
		labels = `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/arch":{},"f:kubernetes.io/hostname":{}}}}`
		arch   = `{"f:metadata":{"f:labels":{"f:kubernetes.io/arch":{}}}}`
		ready  = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:message":{},"f:reason":{},"f:status":{}}}}}`
	)
	for name, c := range map[string]struct {
		owners []metav1.ManagedFieldsEntry
		counts bool
	}{
		"a kubelet registers it":        {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "", labels, 0), owns("kubelet", "status", ready, 0)}, counts: true},
		"k3s does":                      {owners: []metav1.ManagedFieldsEntry{owns("k3s", "", labels, 0), owns("k3s", "status", ready, time.Second)}, counts: true},
		"and others label it":           {owners: []metav1.ManagedFieldsEntry{owns("kubectl-label", "", arch, 0), owns("kubelet", "", labels, 0), owns("kubelet", "status", ready, 0)}, counts: true},
		"a file without owners":         {owners: []metav1.ManagedFieldsEntry{owns("kubectl-create", "", labels, 0)}},
		"and a controller has judged":   {owners: []metav1.ManagedFieldsEntry{owns("kubectl-create", "", labels, 0), owns("k3s", "status", ready, time.Second)}},
		"a file with them":              {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "status", ready, -time.Hour), owns("kubectl-create", "", labels, 0)}},
		"and a kubelet labels it":       {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "", arch, 0), owns("kubelet", "status", ready, -time.Hour), owns("kubectl-create", "", labels, 0)}},
		"restored by a tool, all kept":  {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "", labels, -time.Hour), owns("kubelet", "status", ready, time.Second)}},
		"stamped a second before":       {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "", labels, -time.Second), owns("kubelet", "status", ready, 0)}, counts: true},
		"and labelled once more":        {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "", labels, time.Minute), owns("kubelet", "status", ready, 0)}, counts: true},
		"its status is of before":       {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "", labels, 0), owns("kubelet", "status", ready, -2*time.Second)}},
		"and nobody has written it yet": {owners: []metav1.ManagedFieldsEntry{owns("kubelet", "", labels, 0)}},
	} {
		r := guardrig.Published(t, fence.Policy{})
		r.Attachment("old", time.Now())
		r.RenewUID("old")
		r.Reboot("old", "boot-2")
		r.ChangeNode("old", func(n *corev1.Node) {
			n.CreationTimestamp, n.Status.Conditions[0].LastHeartbeatTime, n.ManagedFields = metav1.NewTime(made), metav1.NewTime(made), c.owners
		})
		r.Booted.Store(true)
		if err := r.UnpublishFrom(guardrig.ID("old")); (err == nil) != c.counts {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A controller of the same name as the kubelet has written since, and the heartbeat is of
	// before; or nobody says when it was written.
	for name, change := range map[string]func(*corev1.Node){
		"of before":       func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(made) },
		"nobody's fields": func(n *corev1.Node) { n.ManagedFields = nil },
		"no condition":    func(n *corev1.Node) { n.Status.Conditions = nil },
	} {
		r := guardrig.Published(t, fence.Policy{})
		r.Attachment("old", time.Now())
		r.RenewUID("old")
		r.Reboot("old", "boot-2")
		r.ChangeNode("old", func(n *corev1.Node) {
			at := metav1.NewTime(made.Add(time.Minute))
			n.CreationTimestamp, n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(made), at
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "k3s", Subresource: "status", Time: &at,
				FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`)}}
			change(n)
		})
		r.Booted.Store(true)
		if err := r.UnpublishFrom(guardrig.ID("old")); err == nil {
			t.Errorf("%s: it counts", name)
		}
	}
}

// A boot that was contested for what it had mounted stays so.
func TestAContestOfTheBootOutlivesWhatIsSaidOfIt(t *testing.T) {
	r := guardrig.Held(t)
	r.Attachment("old", time.Now())
	r.Reboot("old", "boot-2")
	r.Lists("old", true, true)
	r.Unsynced.Store(true)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Booted.Store(true)
	r.Lists("old", true, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	r.Lists("old", false, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Called()
}

// Else what the kubelet says later would be believed.
func TestARefusedUnpublishThatCannotBeWrittenDownIsToldAsThat(t *testing.T) {
	r := guardrig.Held(t)
	r.Broken("patch", "persistentvolumes")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.Unavailable, "its ledger cannot be written", "["+string(fence.APIUnavailable)+"]")
	r.Called()
}

// Two pods wait for one volume on two nodes. The first is given it, and is silent before
// its kubelet has said that it wants it: heard again, it mounts by its VolumeAttachment.
func TestASilentNodeThatWasJustGivenTheVolumeKeepsIt(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Attachment("next", time.Time{})
	r.Lives["old"] = fence.Stale
	for _, attached := range []bool{false, true} {
		if attached {
			r.SaysAttached("old")
		}
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderStale)+"]", "node old (ID id-old) holds it")
	}
	r.Attachment("old", guardrig.Now) // Kubernetes wants it there no more
	r.Must(r.PublishTo("next"))
	r.Called("publish id-old", "unpublish id-old", "publish id-next")
}

// It comes from before the volume was published there again.
func TestALateUnpublishContestsNothing(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	before := r.Ledger().String()
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderWanted)+"]")
	if r.Called("publish id-old"); r.Ledger().String() != before {
		t.Errorf("the ledger says %s", r.Ledger())
	}
}

func TestANodeThatIsTakenFromAgainIsWrittenDownAnew(t *testing.T) {
	r := forwarded(t)
	token := r.Ledger().Get(guardrig.ID("old")).Token
	r.Lists("old", true, true)
	r.Guard.Surveyor.Sources = []evidence.Source{guardrig.Says{fence.VolumeRelease}}
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.UnpublishFailed)+"]")
	if e := r.Ledger().Get(guardrig.ID("old")); e.State != fence.Leaving || e.Token == "" || e.Token == token || e.Unproven {
		t.Errorf("the ledger says %+v", e)
	}
}

func TestAnUnpublishFromAllNodesCutsAllThatWereUnpublished(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: "id-gone", NodeName: "gone", Token: "g", State: fence.Released})
		l.Put(ledger.Entry{NodeID: "id-taken", NodeName: "taken", Token: "k", State: fence.TakenOver})
	})
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.UnpublishFrom(""), codes.Internal, "throttled")
	if r.State("old") != fence.Leaving {
		t.Errorf("the ledger says %s", r.Ledger())
	}
	r.UnpublishErr = nil
	r.Must(r.UnpublishFrom(""))
	r.Called("unpublish ", "unpublish ")
	var left []string
	for _, e := range r.Ledger().Holders {
		left = append(left, e.NodeID)
	}
	if !slices.Equal(left, []string{"id-taken"}) {
		t.Errorf("the ledger still has %q", left)
	}
	r = guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.Broken("patch", "persistentvolumes")
	r.Refused(r.UnpublishFrom(""), codes.Unavailable, "its ledger cannot be written")
	r.Called()
}

// A process may be killed anywhere: what is about to happen is written down by then.
func TestEachEffectIsAnnouncedBeforeAndAfterIt(t *testing.T) {
	r := guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	var points []string
	guard.SetEffectHook(func(point string) {
		points = append(points, fmt.Sprintf("%s: old %s, next %s, driver %q", point, r.State("old"), r.State("next"), r.Calls))
	})
	t.Cleanup(func() { guard.SetEffectHook(nil) })
	r.Must(r.PublishTo("next"))
	want := []string{
		`before:leaving: old publishing, next , driver []`,
		`after:leaving: old leaving, next , driver []`,
		`before:unpublish: old leaving, next , driver []`,
		`after:unpublish: old leaving, next , driver ["unpublish id-old"]`,
		`before:record: old leaving, next , driver ["unpublish id-old"]`,
		`after:record: old takenOver, next publishing, driver ["unpublish id-old"]`,
		`before:publish: old takenOver, next publishing, driver ["unpublish id-old"]`,
		`after:publish: old takenOver, next publishing, driver ["unpublish id-old" "publish id-next"]`,
		`before:answer: old takenOver, next publishing, driver ["unpublish id-old" "publish id-next"]`,
		`after:answer: old takenOver, next publishing, driver ["unpublish id-old" "publish id-next"]`,
	}
	if !slices.Equal(points, want) {
		t.Errorf("announced\n%s\nwant\n%s", strings.Join(points, "\n"), strings.Join(want, "\n"))
	}
}

// A call leaves a fifth of its time for its answer.
func TestAnAPIServerThatDoesNotAnswerIsToldBeforeTheCallerGivesUp(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	left, end := r.Guard.SurveyContext(ctx)
	deadline, _ := left.Deadline()
	if in := time.Until(deadline); in > 810*time.Millisecond || in < 500*time.Millisecond {
		t.Errorf("of a second %s are left", in)
	}
	end()
	if left.Err() == nil {
		t.Error("it does not end")
	}
	long, end := r.Guard.SurveyContext(t.Context())
	if deadline, ok := long.Deadline(); !ok || time.Until(deadline) > survey.Timeout || time.Until(deadline) < survey.Timeout/2 {
		t.Errorf("without a deadline it has until %v", deadline)
	}
	if end(); long.Err() == nil {
		t.Error("without a deadline it does not end")
	}
}

// What waits for its turn in a storm has heard nothing of the API server yet.
func TestTheTimeToJudgeBeginsWithTheFirstTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := guardrig.New(t, fence.Policy{})
		r.Guard.Surveyor.Limit = throttle.New(0.05, 1)
		r.Must(r.Guard.Surveyor.Limit.Wait(t.Context()))
		began := time.Now()
		ctx, end := r.Guard.SurveyContext(t.Context())
		defer end()
		deadline, _ := ctx.Deadline()
		if waited, left := time.Since(began), time.Until(deadline); waited < 2*survey.Timeout || left != survey.Timeout {
			t.Errorf("after a turn that took %s there are %s", waited, left)
		}
	})
}

func TestALedgerOfAnotherClusterIsReported(t *testing.T) {
	r := guardrig.New(t, fence.Policy{})
	r.Node("n", guardrig.HourAgo)
	r.Annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"another","pvUID":"uid-of-pv-1","holders":[{"nodeID":"id-x","state":"held"}]}`)
	h := listen(r)
	r.Must(r.PublishTo("n"))
	if len(h.aside) == 0 || !strings.Contains(h.aside[0], "another cluster") {
		t.Errorf("set aside: %q", h.aside)
	}
	h.aside = nil
	r.Annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"another","pvUID":"uid-of-pv-1","holders":[{"nodeID":"id-x","state":"held"}]}`)
	r.Must(r.UnpublishFrom("id-nobody"))
	if len(h.aside) == 0 {
		t.Error("an unpublish does not report it")
	}
}

// A node that was renamed keeps its driver's node ID; what the ledger says of the
// old name is over does not release the volume where it is in use now.
func TestWhatIsOverUnderAnotherNameReleasesNoNodeThatUsesTheVolume(t *testing.T) {
	for _, state := range []fence.State{fence.Released, fence.TakenOver} {
		r := guardrig.Held(t)
		r.Change(func(l *ledger.Ledger) { e := l.Get("id-old"); e.NodeName, e.State = "renamed", state })
		if err := r.PublishTo("next"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s under another name, publish elsewhere: %v", state, err)
		}
		if err := r.UnpublishFrom("id-old"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s under another name, unpublish: %v", state, err)
		}
		if len(r.Calls) > 0 {
			t.Errorf("%s under another name: the driver saw %q", state, r.Calls)
		}
	}
}

// Its Node and CSINode were away for the moment of its publish.
func TestAHolderWithoutANameIsNamedOnceItsNodeIsThere(t *testing.T) {
	r := guardrig.Held(t)
	r.Change(func(l *ledger.Ledger) { e := l.Get("id-old"); e.NodeName, e.NodeUID, e.BootID = "", "", "" })
	if err := r.PublishTo("next"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "node old ") {
		t.Errorf("the refusal does not name the node: %v", err)
	}
}

// A node that let go, in a drain, and was then scaled down: its driver's NOT_FOUND
// must not keep the volume for ever. Nothing is on a machine that let go.
func TestNotFoundIsSuccessOfANodeThatLetGoAndIsGone(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{})
	r.Attachment("old", guardrig.Now)
	r.UnpublishErr = guardrig.ErrThrottled
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.Internal, "throttled")
	r.UnpublishErr = status.Error(codes.NotFound, "no such VM")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.NotFound) // its Node is there: the driver is wrong about one of them
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Must(r.Client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Lives["old"] = fence.Unknown
	r.Look()
	r.Must(r.PublishTo("next"))
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
}

// One that revokes has revoked nothing where it finds nothing.
func TestNotFoundRevokesNothing(t *testing.T) {
	r := guardrig.Published(t, fence.Policy{UnpublishRevokesAccess: true})
	r.Lists("old", true, false)
	r.Lives["old"] = fence.Stale
	r.Attachment("old", guardrig.Now)
	r.UnpublishErr = status.Error(codes.NotFound, "no such VM")
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.NotFound)
	r.Must(r.Client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.Lives["old"] = fence.Unknown
	r.Look()
	if r.PublishTo("next") == nil {
		t.Error("published elsewhere while the old node may write")
	}
}
