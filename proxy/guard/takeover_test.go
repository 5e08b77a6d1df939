package guard

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/survey"
	"github.com/csi-fencepost/csi-fencepost/fence/throttle"
)

// heard is a Reporter that notes what it is told.
type heard struct {
	decisions []Decision
	takeovers int
	from      []string
	aside     []string
	failed    int
}

func (h *heard) Decided(d Decision) { h.decisions = append(h.decisions, d) }

func (h *heard) TookOver(_ Decision, from []fence.Holder, took time.Duration) {
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

func listen(r *rig) *heard {
	h := &heard{}
	r.guard.Reporter = h
	return h
}

// acting is the rig's driver with something that happens while it is called.
type acting struct {
	*rig
	publish, unpublish func() error
}

func (a acting) Publish(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	resp, err := a.rig.Publish(ctx, req)
	if a.publish != nil {
		err = errors.Join(err, a.publish())
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (a acting) Unpublish(ctx context.Context, req *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	resp, err := a.rig.Unpublish(ctx, req)
	if err == nil && a.unpublish != nil {
		err = a.unpublish()
	}
	return resp, err
}

func (a acting) publishTo(node string) error {
	a.t.Helper()
	a.look()
	_, err := a.guard.ControllerPublishVolume(a.t.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: id(node),
		Secrets: map[string]string{"password": "hunter22"}, VolumeCapability: &spec.VolumeCapability{}}, a)
	return err
}

func TestATakeoverUnpublishesThenPublishesAndTellsFromWhom(t *testing.T) {
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	h := listen(r)
	r.must(r.publish("next"))
	r.called("unpublish id-old", "publish id-next")
	if r.state("old") != fence.TakenOver || r.ledger().Get(id("old")).Unproven || r.state("next") != fence.Publishing {
		t.Errorf("the ledger says %s", r.ledger())
	}
	if !slices.Equal(h.from, []string{"id-old"}) {
		t.Errorf("taken over from %q", h.from)
	}
	if got, want := h.last(), `ControllerPublishVolume vol-1 of pv-1 for id-next (next): allow HolderFenced, holder ""`; got != want {
		t.Errorf("reported %s\nwant %s", got, want)
	}
	// The old one's late unpublish is answered, and reaches no driver.
	r.calls = nil
	r.must(r.unpublish(id("old")))
	r.called()
	if got, want := h.last(), `ControllerUnpublishVolume vol-1 of pv-1 for id-old (old): answer AlreadyTakenOver, holder ""`; got != want {
		t.Errorf("reported %s\nwant %s", got, want)
	}
}

func TestAPublishWithoutATakeoverTellsOfNone(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	h := listen(r)
	r.must(r.publish("n"))
	r.must(r.publish("n")) // a retry
	if h.takeovers != 0 || len(h.decisions) != 2 {
		t.Errorf("heard %+v", h)
	}
	r.called("publish id-n", "publish id-n")
}

func TestEachHolderIsUnpublishedWithTheRequestsOwnSecrets(t *testing.T) {
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	r.change(func(l *ledger.Ledger) {
		e := *l.Get(id("old"))
		e.NodeID, e.NodeName, e.NodeUID = "id-second", "second", ""
		e.State = fence.Released
		l.Put(e)
	})
	var seen []string
	r.must(acting{rig: r, publish: nil}.withSecrets(&seen).publishTo("next"))
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

func (n noting) publishTo(node string) error {
	n.look()
	_, err := n.guard.ControllerPublishVolume(n.t.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: id(node),
		Secrets: map[string]string{"password": "hunter22"}, VolumeCapability: &spec.VolumeCapability{}}, n)
	return err
}

func TestAnUnpublishThatFailsInATakeoverIsToldAsItIs(t *testing.T) {
	for said, want := range map[codes.Code]codes.Code{codes.Unavailable: codes.Unavailable, codes.DeadlineExceeded: codes.Unavailable,
		codes.Canceled: codes.Unavailable, codes.Aborted: codes.Aborted, codes.Internal: codes.FailedPrecondition} {
		r := fenced(t, fence.Policy{}, fence.PowerReading)
		h := listen(r)
		token := r.ledger().Get(id("old")).Token
		r.unpublishErr = status.Error(said, "cannot reach the VM with hunter22")
		err := acting{rig: r}.publishTo("next")
		r.refused(err, want, "volume pv-1: node old", "no longer counts (HolderFenced)", said.String()+": cannot reach the VM", "["+string(fence.UnpublishFailed)+"]")
		if strings.Contains(err.Error(), "hunter22") {
			t.Errorf("a secret: %v", err)
		}
		r.called("unpublish id-old")
		if r.state("old") != fence.Leaving || r.ledger().Get(id("old")).Token != token || r.state("next") != fence.NotInLedger {
			t.Errorf("the ledger says %s", r.ledger())
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
		r := fenced(t, tt.policy, tt.kinds...)
		r.unpublishErr = gone
		if err := r.publish("next"); (err == nil) != tt.moves {
			t.Errorf("%v, %+v: publish elsewhere: %v", tt.kinds, tt.policy, err)
		}
		r = fenced(t, tt.policy, tt.kinds...)
		r.unpublishErr = gone
		if err := r.unpublish(id("old")); (err == nil) != tt.moves {
			t.Errorf("%v, %+v: unpublish: %v", tt.kinds, tt.policy, err)
		}
	}
	// Another error of it is one.
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	r.unpublishErr = errThrottled
	r.refused(r.unpublish(id("old")), codes.Internal, "throttled")
}

// What was judged is what is written against: somebody else's write in between
// has the call judged again.
func TestAWriteThatLosesARaceIsJudgedAgain(t *testing.T) {
	for n, what := range []string{"the leaving mark", "the record"} {
		r := fenced(t, fence.Policy{}, fence.PowerReading)
		r.beforeWrite(n+1, func() {
			r.change(func(l *ledger.Ledger) {
				l.Put(ledger.Entry{NodeID: "id-third", NodeName: "third", Token: "x", State: fence.Publishing})
			})
		})
		r.refused(r.publish("next"), codes.FailedPrecondition, "node third", "["+string(fence.HolderUnknown)+"]")
		if slices.Contains(r.calls, "publish id-next") {
			t.Errorf("%s: published beside another: %q", what, r.calls)
		}
	}
}

func TestALedgerThatChangesAllTheTimeIsAPendingOperation(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	n := 0
	r.client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		n++
		r.change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: "id-n", State: fence.Publishing, Token: fmt.Sprint(n)})
		})
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolume"}, pvName, nil)
	})
	r.refused(r.publish("n"), codes.Aborted, "["+string(fence.OperationPending)+"]")
	if n != rounds {
		t.Errorf("judged %d times, want %d", n, rounds)
	}
	r.called()
}

func TestWithoutTheAPIServerNothingIsForwarded(t *testing.T) {
	for _, tt := range []struct{ verb, resource, says string }{
		{"get", "persistentvolumes", "who holds it cannot be found out"},
		{"get", "nodes", "who holds it cannot be found out"},
		{"patch", "persistentvolumes", "volume pv-1: its ledger cannot be written"},
	} {
		for _, call := range []func(*rig) error{func(r *rig) error { return r.publish("next") }, func(r *rig) error { return r.unpublish(id("old")) }} {
			r := fenced(t, fence.Policy{}, fence.PowerReading)
			h := listen(r)
			r.look()
			index := r.guard.Surveyor.Index
			r.broken(tt.verb, tt.resource)
			r.guard.Surveyor.Index = index
			err := call(r)
			r.refused(err, codes.Unavailable, tt.says, "etcd is away", "["+string(fence.APIUnavailable)+"]")
			r.called()
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
		r := newRig(t, fence.Policy{})
		r.node("n", hourAgo)
		r.beforeRead(1, func() error { return slow })
		r.refused(r.publish("n"), codes.Unavailable, "who holds it cannot be found out: the API server does not answer in time. To unblock: nothing, once")
	}
}

func TestARightThatIsLackingIsNamed(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, pvName, errors.New("no"))
	})
	r.refused(r.publish("n"), codes.Unavailable, "persistentvolumes", "give csi-fencepost's service account the right")
}

func TestADriverThatSeesAnotherHolderIsAskedWhoItIs(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.node("next", hourAgo)
	refusal := status.Error(codes.FailedPrecondition, "volume is attached to node id-old")
	a := acting{rig: r, publish: func() error { return refusal }}
	// The driver's own words name a node that lives.
	r.lists("old", false, false)
	r.lives["old"] = fence.Unwatched
	r.listed = nil
	r.status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "" })
	r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.refused(a.publishTo("next"), codes.FailedPrecondition, "id-old", "["+string(fence.HolderUnknown)+"]")
	r.called("publish id-next")
	// They name nobody, and its list does.
	refusal, r.listed = status.Error(codes.FailedPrecondition, "volume is in use"), []string{"id-old"}
	r.refused(a.publishTo("next"), codes.FailedPrecondition, "id-old", "["+string(fence.HolderUnknown)+"]")
	r.listErr = errThrottled
	if err := a.publishTo("next"); !errors.Is(err, refusal) {
		t.Errorf("where it cannot be asked: %v, want %v", err, refusal)
	}
	r.called("publish id-next", "publish id-next", "publish id-next")
	// A word that only contains the ID names nobody, and the refusal stands.
	r = newRig(t, fence.Policy{})
	r.node("old", hourAgo)
	r.node("next", hourAgo)
	r.listed = []string{"id-next"}
	r.change(func(l *ledger.Ledger) { l.Put(ledger.Entry{NodeID: "id-taken", Token: "k", State: fence.TakenOver}) })
	for _, words := range []string{"snapshot id-old2 is pending", "grid-old", "id-ol", "id-next is busy"} {
		refusal, r.calls = status.Error(codes.FailedPrecondition, words), nil
		err := acting{rig: r, publish: func() error { return refusal }}.publishTo("next")
		r.refused(err, codes.FailedPrecondition, words)
		if strings.Contains(err.Error(), fence.Mark) {
			t.Errorf("%q is answered in our words: %v", words, err)
		}
		r.called("publish id-next") // nobody is unpublished, and nothing tried again
	}
}

// The driver said yes to a publish that the ledger does not name any more.
func TestAPublishThatTheLedgerDoesNotNameAnyMoreIsTakenBack(t *testing.T) {
	for what, lost := range map[string]func(*ledger.Ledger){
		"cut":        func(l *ledger.Ledger) { l.Cut(id("next"), l.Get(id("next")).Token) },
		"taken over": func(l *ledger.Ledger) { l.MarkTaken(id("next"), l.Get(id("next")).Token, false) },
	} {
		r := newRig(t, fence.Policy{})
		r.node("next", hourAgo)
		err := acting{rig: r, publish: func() error { r.change(lost); return nil }}.publishTo("next")
		r.refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
		r.called("publish id-next", "unpublish id-next")
		if got := r.state("next"); got != fence.NotInLedger {
			t.Errorf("%s: the ledger says %s", what, got)
		}
	}
}

func TestAPublishThatCannotBeTakenBackStaysLeaving(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("next", hourAgo)
	r.unpublishErr = errThrottled
	err := acting{rig: r, publish: func() error {
		r.change(func(l *ledger.Ledger) { l.Cut(id("next"), l.Get(id("next")).Token) })
		return nil
	}}.publishTo("next")
	r.refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.called("publish id-next", "unpublish id-next")
	if got := r.state("next"); got != fence.Leaving {
		t.Errorf("the ledger says %q", got)
	}
}

func TestAVolumeComesBackToANodeThatItWasTakenFrom(t *testing.T) {
	for _, anew := range []bool{false, true} {
		r := fenced(t, fence.Policy{}, fence.PowerReading)
		r.must(r.publish("next"))
		taken := r.ledger().Get(id("old")).Token
		r.guard.Surveyor.Sources, r.lives["old"] = nil, fence.Alive
		if r.lists("old", false, false); anew {
			r.renewUID("old")
		}
		r.stripped("old")
		r.attachment("old", time.Time{})
		r.deleting("next")
		r.calls = nil
		r.must(r.publish("old"))
		r.called("unpublish id-next", "publish id-old")
		if e := r.ledger().Get(id("old")); e.State != fence.Publishing || e.Token == taken || e.Contest != nil {
			t.Errorf("the ledger says %+v", e)
		}
	}
}

func TestAPublishThatIsRepeatedGivesUpNothingThatIsKnown(t *testing.T) {
	for _, state := range []fence.State{fence.Publishing, fence.Held} {
		r := published(t, fence.Policy{})
		r.change(func(l *ledger.Ledger) {
			e := l.Get(id("old"))
			e.State, e.Contest, e.Token = state, &fence.Contest{BootID: "boot-of-old"}, "t"
		})
		r.must(r.publish("old"))
		if e := r.ledger().Get(id("old")); e.State != fence.Publishing || e.Token != "t" || e.Contest == nil {
			t.Errorf("%s: the ledger says %+v", state, e)
		}
	}
}

// What the machine held before a boot, it does not hold any more.
func TestAPublishAfterABootBeginsAnew(t *testing.T) {
	for _, anew := range []bool{false, true} {
		r := published(t, fence.Policy{})
		r.change(func(l *ledger.Ledger) { l.Get(id("old")).Contest = &fence.Contest{BootID: "boot-of-old"} })
		r.reboot("old", "boot-2")
		if anew {
			r.renewUID("old")
		}
		r.must(r.publish("old"))
		if e := r.ledger().Get(id("old")); e.BootID != "boot-2" || e.Contest != nil {
			t.Errorf("the ledger says %+v", e)
		}
	}
}

// Another process's publication of the same node is not ours to take back.
func TestAnothersPublicationIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fence.Policy{})
		r.node("next", hourAgo)
		began := time.Now()
		err := acting{rig: r, publish: func() error {
			r.change(func(l *ledger.Ledger) { l.Get(id("next")).Token = "another" })
			return nil
		}}.publishTo("next")
		r.refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
		r.called("publish id-next")
		if e := r.ledger().Get(id("next")); e == nil || e.Token != "another" || e.State != fence.Publishing {
			t.Errorf("the ledger says %+v", e)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("waited for %s", waited)
		}
	})
}

func TestAPublicationThatAnotherBeginsMeanwhileIsLeftAlone(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("next", hourAgo)
	r.beforeWrite(2, func() {
		r.change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: id("next"), NodeName: "next", Token: "another", State: fence.Publishing})
		})
	})
	err := acting{rig: r, publish: func() error {
		r.change(func(l *ledger.Ledger) { l.Cut(id("next"), l.Get(id("next")).Token) })
		return nil
	}}.publishTo("next")
	r.refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.called("publish id-next")
	if e := r.ledger().Get(id("next")); e == nil || e.Token != "another" || e.State != fence.Publishing {
		t.Errorf("the ledger says %+v", e)
	}
}

// An unpublish that stands nowhere could follow another process's publish.
func TestNothingIsTakenBackThatCannotBeWrittenDown(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("next", hourAgo)
	h := listen(r)
	err := acting{rig: r, publish: func() error {
		r.change(func(l *ledger.Ledger) { l.Cut(id("next"), l.Get(id("next")).Token) })
		r.broken("patch", "persistentvolumes")
		return nil
	}}.publishTo("next")
	r.refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
	r.called("publish id-next")
	if h.failed != 1 {
		t.Errorf("%d failed writes reported", h.failed)
	}
}

// A publish is answered only once nobody is unpublishing that very node.
func TestAPublishWaitsForAnUnpublishOfTheSameNode(t *testing.T) {
	for _, tt := range []struct {
		what   string
		then   func(*rig)
		driver []string
	}{
		{"it ends", func(r *rig) {
			time.AfterFunc(time.Second, func() { r.change(func(l *ledger.Ledger) { l.Cut(id("next"), l.Get(id("next")).Token) }) })
		}, []string{"publish id-next", "unpublish id-next"}},
		{"the API server goes away", func(r *rig) {
			r.beforeRead(3, func() error { return apierrors.NewInternalError(errors.New("etcd is away")) })
		}, []string{"publish id-next"}},
		{"it does not end", func(*rig) {}, []string{"publish id-next"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fence.Policy{})
			r.node("next", hourAgo)
			began := time.Now()
			err := acting{rig: r, publish: func() error {
				r.change(func(l *ledger.Ledger) { l.Get(id("next")).State = fence.Leaving })
				tt.then(r)
				return nil
			}}.publishTo("next")
			r.refused(err, codes.Aborted, "["+string(fence.LostRace)+"]")
			if waited := time.Since(began); waited == 0 || waited > writeTimeout {
				t.Errorf("%s: waited for %s", tt.what, waited)
			}
			r.called(tt.driver...)
		})
	}
}

func TestAPublishThatCannotBeHeldAgainstTheLedgerIsNotAnswered(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("next", hourAgo)
	h := listen(r)
	err := acting{rig: r, publish: func() error { r.broken("get", "persistentvolumes"); return nil }}.publishTo("next")
	r.refused(err, codes.Unavailable, "who holds it cannot be found out", "["+string(fence.APIUnavailable)+"]")
	if r.called("publish id-next"); len(h.decisions) != 1 || h.decisions[0].Action != fence.Refuse {
		t.Errorf("reported %s", h.last())
	}
}

func TestADriverThatFailsToPublishIsPassedOn(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("next", hourAgo)
	h := listen(r)
	if err := (acting{rig: r, publish: func() error { return errThrottled }}).publishTo("next"); !errors.Is(err, errThrottled) {
		t.Errorf("%v, want %v", err, errThrottled)
	}
	// The disk may be there all the same.
	if r.state("next") != fence.Publishing || len(h.decisions) != 0 {
		t.Errorf("the ledger says %s; reported %s", r.ledger(), h.last())
	}
}

// There is no ledger of it to hold anything against.
func TestAVolumeWithoutAPersistentVolumeIsPublished(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.must(r.client.CoreV1().PersistentVolumes().Delete(t.Context(), pvName, metav1.DeleteOptions{}))
	r.must(r.publish("n"))
	r.called("publish id-n")
}

func TestARequestThatCannotBeJudgedIsInvalid(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.look()
	for field, req := range map[string]*spec.ControllerPublishVolumeRequest{
		"volume_id":         {NodeId: "n", VolumeCapability: &spec.VolumeCapability{}},
		"node_id":           {VolumeId: "v", VolumeCapability: &spec.VolumeCapability{}},
		"volume_capability": {VolumeId: "v", NodeId: "n"},
	} {
		_, err := r.guard.ControllerPublishVolume(t.Context(), req, r)
		r.refused(err, codes.InvalidArgument, "ControllerPublishVolume without "+field)
	}
	_, err := r.guard.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{NodeId: "n"}, r)
	r.refused(err, codes.InvalidArgument, "ControllerUnpublishVolume without volume_id")
	r.called()
}

func TestASecondCallForAVolumeIsPendingWhileTheFirstIsUnderWay(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.must(acting{rig: r, publish: func() error {
		if got := r.guard.UnderWay(); !slices.Equal(got, []string{handle}) {
			t.Errorf("under way: %q", got)
		}
		r.refused(r.publish("n"), codes.Aborted, "["+string(fence.OperationPending)+"]")
		r.refused(r.unpublish(id("n")), codes.Aborted, "["+string(fence.OperationPending)+"]")
		return nil
	}}.publishTo("n"))
	r.called("publish id-n")
	if got := r.guard.UnderWay(); len(got) != 0 {
		t.Errorf("still under way: %q", got)
	}
	r.must(r.publish("n"))
}

func TestObserveForwardsEverythingAndSaysWhatItWouldHaveDone(t *testing.T) {
	r := held(t)
	h := listen(r)
	before := r.ledger().String()
	r.guard.Observe = true
	r.must(r.publish("next"))
	r.must(r.unpublish(id("old")))
	r.must(r.unpublish(""))
	r.called("publish id-next", "unpublish id-old", "unpublish ")
	if len(h.decisions) != 2 {
		t.Fatalf("reported %+v", h.decisions)
	}
	for i, d := range h.decisions {
		if !d.Observed || d.Action != fence.Refuse || d.Text == "" || d.Reason != fence.HolderAlive && d.Reason != fence.HolderWanted {
			t.Errorf("%d: reported %+v", i, d)
		}
	}
	if r.must(r.publish("old")); h.decisions[2].Action != fence.Allow || h.decisions[2].Text != "" {
		t.Errorf("of what it would have let through it says %+v", h.decisions[2])
	}
	if r.ledger().String() != before {
		t.Error("the ledger was written")
	}
	// What cannot be judged is forwarded too.
	r.look()
	r.broken("get", "persistentvolumes")
	r.calls = nil
	r.must(r.unpublish(id("old")))
	r.must(r.publish("next"))
	r.called("unpublish id-old", "publish id-next")
}

func TestAVolumeOfManyWritersIsForwardedUnjudged(t *testing.T) {
	r := held(t)
	r.look()
	h := listen(r)
	_, err := r.guard.ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: handle, NodeId: id("next"),
		VolumeCapability: &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER}}}, r)
	r.must(err)
	r.called("publish id-next")
	if len(h.decisions) != 0 {
		t.Errorf("judged: %s", h.last())
	}
	// An unpublish carries no capability: the PV says so, unless a ledger says
	// that it was published to one.
	r.many()
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "node old")
	r.annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"cluster-uid","pvUID":"uid-of-pv-1","holders":[]}`)
	r.calls = nil
	r.must(r.unpublish(id("old")))
	r.called("unpublish id-old")
}

// The attacher takes the ID from the new machine's CSINode; the disk is on the
// old one.
func TestAnUnpublishForANewMachineUnderTheNameIsForwardedForTheOldOne(t *testing.T) {
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	csiNode, err := r.client.StorageV1().CSINodes().Get(t.Context(), "old", metav1.GetOptions{})
	r.must(err)
	csiNode.Spec.Drivers[0].NodeID = "id-newer"
	_, err = r.client.StorageV1().CSINodes().Update(t.Context(), csiNode, metav1.UpdateOptions{})
	r.must(err)
	h := listen(r)
	r.look()
	req := &spec.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: "id-newer"}
	_, err = r.guard.ControllerUnpublishVolume(t.Context(), req, r)
	r.must(err)
	if r.called("unpublish id-old"); req.GetNodeId() != "id-newer" {
		t.Errorf("the caller's own request is for %s now", req.GetNodeId())
	}
	if !strings.Contains(h.last(), "for id-old (old): allow HolderFenced") {
		t.Errorf("reported %s", h.last())
	}
	// Its status lists it still, so the entry stays, as taken over.
	if r.state("old") != fence.TakenOver {
		t.Errorf("the ledger says %s", r.ledger())
	}
}

func TestAnUnpublishedHolderIsCutUnlessItsNodeStillListsTheVolume(t *testing.T) {
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	r.must(r.unpublish(id("old")))
	if r.state("old") != fence.TakenOver {
		t.Errorf("listed: the ledger says %s", r.ledger())
	}
	r = fenced(t, fence.Policy{}, fence.PowerReading)
	r.lists("old", false, false)
	r.change(func(l *ledger.Ledger) { l.Get(id("old")).Contest = &fence.Contest{BootID: "boot-of-old"} })
	r.must(r.unpublish(id("old")))
	if r.state("old") != fence.NotInLedger {
		t.Errorf("not listed: the ledger says %s", r.ledger())
	}
}

func TestAnUnpublishWhoseCutCannotBeWrittenIsToldAgain(t *testing.T) {
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	h := listen(r)
	r.look()
	_, err := r.guard.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: id("old")},
		acting{rig: r, unpublish: func() error { r.broken("*", "persistentvolumes"); return nil }})
	r.refused(err, codes.Unavailable, "its ledger cannot be written")
	if h.failed != 1 {
		t.Errorf("%d failed writes reported", h.failed)
	}
}

func TestAnUnpublishOfNobodyIsForwardedAndReported(t *testing.T) {
	r := held(t)
	h := listen(r)
	before := r.ledger().String()
	r.must(r.unpublish("id-nobody"))
	r.called("unpublish id-nobody")
	if !strings.Contains(h.last(), "for id-nobody (): allow NotAHolder") || r.ledger().String() != before {
		t.Errorf("reported %s; the ledger is %s", h.last(), r.ledger())
	}
}

// Nothing is written down before it, so that it is still so is read.
func TestAnUnpublishOfNobodyIsNotForwardedForWhomAnotherHasPublishedTo(t *testing.T) {
	r := held(t)
	r.beforeRead(2, func() error {
		r.change(func(l *ledger.Ledger) {
			l.Put(ledger.Entry{NodeID: "id-nobody", Token: "x", State: fence.Publishing})
		})
		return nil
	})
	r.refused(r.unpublish("id-nobody"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	r.called()

	r = held(t)
	r.beforeRead(2, func() error { return apierrors.NewInternalError(errors.New("etcd is away")) })
	r.refused(r.unpublish("id-nobody"), codes.Unavailable, "volume pv-1: ", "["+string(fence.APIUnavailable)+"]")
	r.called()
}

func TestARefusedUnpublishContestsOnceAndKeepsWhatTheKubeletShowed(t *testing.T) {
	r := held(t)
	h := listen(r)
	want := *r.ledger().Get(id("old"))
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "node old", "["+string(fence.HolderAlive)+"]")
	got := *r.ledger().Get(id("old"))
	c := got.Contest
	if want.Contest = c; got != want {
		t.Errorf("the ledger says %+v, want %+v", got, want)
	}
	if c == nil || c.BootID != "boot-of-old" || c.SeenReadySince == "" {
		t.Fatalf("contested as %+v", c)
	}
	if got := h.last(); !strings.Contains(got, `for id-old (old): refuse HolderAlive, holder "id-old"`) {
		t.Errorf("reported %s", got)
	}
	writes := 0
	r.client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		writes++
		return false, nil, nil
	})
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "node old")
	if writes != 0 {
		t.Errorf("the same contest is written %d times more", writes)
	}
	r.called()
}

// Else what the kubelet says later would be believed.
func TestARefusedUnpublishThatCannotBeWrittenDownIsToldAsThat(t *testing.T) {
	r := held(t)
	r.broken("patch", "persistentvolumes")
	r.refused(r.unpublish(id("old")), codes.Unavailable, "its ledger cannot be written", "["+string(fence.APIUnavailable)+"]")
	r.called()
}

// It comes from before the volume was published there again.
func TestALateUnpublishContestsNothing(t *testing.T) {
	r := published(t, fence.Policy{})
	before := r.ledger().String()
	r.refused(r.unpublish(id("old")), codes.FailedPrecondition, "["+string(fence.HolderWanted)+"]")
	if r.called("publish id-old"); r.ledger().String() != before {
		t.Errorf("the ledger says %s", r.ledger())
	}
}

func TestANodeThatIsTakenFromAgainIsWrittenDownAnew(t *testing.T) {
	r := forwarded(t)
	token := r.ledger().Get(id("old")).Token
	r.lists("old", true, true)
	r.guard.Surveyor.Sources = []evidence.Source{says{fence.VolumeRelease}}
	r.unpublishErr = errThrottled
	r.refused(r.publish("next"), codes.FailedPrecondition, "["+string(fence.UnpublishFailed)+"]")
	if e := r.ledger().Get(id("old")); e.State != fence.Leaving || e.Token == "" || e.Token == token || e.Unproven {
		t.Errorf("the ledger says %+v", e)
	}
}

func TestAnUnpublishFromAllNodesCutsAllThatWereUnpublished(t *testing.T) {
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	r.change(func(l *ledger.Ledger) {
		l.Put(ledger.Entry{NodeID: "id-gone", NodeName: "gone", Token: "g", State: fence.Released})
		l.Put(ledger.Entry{NodeID: "id-taken", NodeName: "taken", Token: "k", State: fence.TakenOver})
	})
	r.unpublishErr = errThrottled
	r.refused(r.unpublish(""), codes.Internal, "throttled")
	if r.state("old") != fence.Leaving {
		t.Errorf("the ledger says %s", r.ledger())
	}
	r.unpublishErr = nil
	r.must(r.unpublish(""))
	r.called("unpublish ", "unpublish ")
	var left []string
	for _, e := range r.ledger().Holders {
		left = append(left, e.NodeID)
	}
	if !slices.Equal(left, []string{"id-taken"}) {
		t.Errorf("the ledger still has %q", left)
	}
	r = fenced(t, fence.Policy{}, fence.PowerReading)
	r.broken("patch", "persistentvolumes")
	r.refused(r.unpublish(""), codes.Unavailable, "its ledger cannot be written")
	r.called()
}

// A process may be killed anywhere: what is about to happen is written down by then.
func TestEachEffectIsAnnouncedBeforeAndAfterIt(t *testing.T) {
	r := fenced(t, fence.Policy{}, fence.PowerReading)
	var points []string
	effectHook = func(point string) {
		points = append(points, fmt.Sprintf("%s: old %s, next %s, driver %q", point, r.state("old"), r.state("next"), r.calls))
	}
	t.Cleanup(func() { effectHook = nil })
	r.must(r.publish("next"))
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
	r := newRig(t, fence.Policy{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	left, end := r.guard.surveyContext(ctx)
	deadline, _ := left.Deadline()
	if in := time.Until(deadline); in > 810*time.Millisecond || in < 500*time.Millisecond {
		t.Errorf("of a second %s are left", in)
	}
	end()
	if left.Err() == nil {
		t.Error("it does not end")
	}
	long, end := r.guard.surveyContext(t.Context())
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
		r := newRig(t, fence.Policy{})
		r.guard.Surveyor.Limit = throttle.New(0.05, 1)
		r.must(r.guard.Surveyor.Limit.Wait(t.Context()))
		began := time.Now()
		ctx, end := r.guard.surveyContext(t.Context())
		defer end()
		deadline, _ := ctx.Deadline()
		if waited, left := time.Since(began), time.Until(deadline); waited < 2*survey.Timeout || left != survey.Timeout {
			t.Errorf("after a turn that took %s there are %s", waited, left)
		}
	})
}

func TestALedgerOfAnotherClusterIsReported(t *testing.T) {
	r := newRig(t, fence.Policy{})
	r.node("n", hourAgo)
	r.annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"another","pvUID":"uid-of-pv-1","holders":[{"nodeID":"id-x","state":"held"}]}`)
	h := listen(r)
	r.must(r.publish("n"))
	if len(h.aside) == 0 || !strings.Contains(h.aside[0], "another cluster") {
		t.Errorf("set aside: %q", h.aside)
	}
	h.aside = nil
	r.annotate(`{"version":1,"driver":"disk.example.com","handle":"vol-1","cluster":"another","pvUID":"uid-of-pv-1","holders":[{"nodeID":"id-x","state":"held"}]}`)
	r.must(r.unpublish("id-nobody"))
	if len(h.aside) == 0 {
		t.Error("an unpublish does not report it")
	}
}

// A node that was renamed keeps its driver's node ID; what the ledger says of the
// old name is over does not release the volume where it is in use now.
func TestWhatIsOverUnderAnotherNameReleasesNoNodeThatUsesTheVolume(t *testing.T) {
	for _, state := range []fence.State{fence.Released, fence.TakenOver} {
		r := held(t)
		r.change(func(l *ledger.Ledger) { e := l.Get("id-old"); e.NodeName, e.State = "renamed", state })
		if err := r.publish("next"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s under another name, publish elsewhere: %v", state, err)
		}
		if err := r.unpublish("id-old"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s under another name, unpublish: %v", state, err)
		}
		if len(r.calls) > 0 {
			t.Errorf("%s under another name: the driver saw %q", state, r.calls)
		}
	}
}

// Its Node and CSINode were away for the moment of its publish.
func TestAHolderWithoutANameIsNamedOnceItsNodeIsThere(t *testing.T) {
	r := held(t)
	r.change(func(l *ledger.Ledger) { e := l.Get("id-old"); e.NodeName, e.NodeUID, e.BootID = "", "", "" })
	if err := r.publish("next"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "node old ") {
		t.Errorf("the refusal does not name the node: %v", err)
	}
}

// A node that let go, in a drain, and was then scaled down: its driver's NOT_FOUND
// must not keep the volume for ever. Nothing is on a machine that let go.
func TestNotFoundIsSuccessOfANodeThatLetGoAndIsGone(t *testing.T) {
	r := published(t, fence.Policy{})
	r.attachment("old", now)
	r.unpublishErr = errThrottled
	r.refused(r.unpublish(id("old")), codes.Internal, "throttled")
	r.unpublishErr = status.Error(codes.NotFound, "no such VM")
	r.refused(r.unpublish(id("old")), codes.NotFound) // its Node is there: the driver is wrong about one of them
	r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.must(r.client.StorageV1().CSINodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.lives["old"] = fence.Unknown
	r.look()
	r.must(r.publish("next"))
	r.must(r.unpublish(id("old")))
}

// One that revokes has revoked nothing where it finds nothing.
func TestNotFoundRevokesNothing(t *testing.T) {
	r := published(t, fence.Policy{UnpublishRevokesAccess: true})
	r.lists("old", true, false)
	r.lives["old"] = fence.Stale
	r.attachment("old", now)
	r.unpublishErr = status.Error(codes.NotFound, "no such VM")
	r.refused(r.unpublish(id("old")), codes.NotFound)
	r.must(r.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}))
	r.lives["old"] = fence.Unknown
	r.look()
	if r.publish("next") == nil {
		t.Error("published elsewhere while the old node may write")
	}
}
