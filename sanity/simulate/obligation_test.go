package simulate

import (
	"context"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
)

// refusing is a sidecar that refuses everything, but for the first publish of each
// volume of its world, without which nothing would begin.
type refusing struct {
	passed
	began *sync.Map // volumes that were published once, in this world
}

func (r refusing) ControllerPublishVolume(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	if _, again := r.began.Load(req.VolumeId); again {
		return nil, status.Error(codes.Aborted, "no")
	}
	answer, err := r.passed.ControllerPublishVolume(ctx, req)
	if err == nil {
		r.began.Store(req.VolumeId, true)
	}
	return answer, err
}

func (refusing) ControllerUnpublishVolume(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return nil, status.Error(codes.Aborted, "no")
}

func refusesAlways() Factory {
	var worlds sync.Map // by the connection to their driver
	return func(_ context.Context, p Parts) (Sidecar, error) {
		began, _ := worlds.LoadOrStore((*grpc.ClientConn)(p.Driver), &sync.Map{})
		return refusing{passed{spec.NewControllerClient(p.Driver)}, began.(*sync.Map)}, nil
	}
}

// TestWhoRefusesAlwaysKeepsNothing: the oracle of R6 catches the sidecar that no
// schedule could catch breaking R1. Whatever is owed and has no twin is a defect.
func TestWhoRefusesAlwaysKeepsNothing(t *testing.T) {
	for world, wide := range worlds {
		t.Run(world, func(t *testing.T) { keepsNothing(t, wide) })
	}
}

// worlds and whether they are wide.
var worlds = map[string]bool{"narrow": false, "wide": true}

func keepsNothing(t *testing.T, wide bool) {
	o := Obligations{Factory: refusesAlways(), Wide: wide, From: 1, Refusals: 32, Within: 10 * time.Minute}
	o.Run(t)
	if len(o.Broken) > 0 {
		t.Errorf("who refuses always breaks %v", o.Broken)
	}
	for _, j := range o.Judgements {
		if j.Verdict == Kept && !j.Stayed {
			t.Errorf("who refuses always keeps what is owed:\n%s", j.Script())
		}
	}
	if o.Count(Defect) < 5 || o.Count(NotRepeated) > 0 {
		t.Errorf("of %d refusals that were judged %d were owed something, %d kept it, %d are void, %d exceptions, %d defects, %d did not come again: want some defects",
			o.Judged, o.Owed(), o.Count(Kept), o.Count(Void), o.Count(Exception), o.Count(Defect), o.Count(NotRepeated))
	}
}

// TestWhoForwardsAlwaysBreaksR1: the other way out of the oracle of R6 is none.
func TestWhoForwardsAlwaysBreaksR1(t *testing.T) {
	for world, wide := range worlds {
		t.Run(world, func(t *testing.T) {
			refusals := 1500 // of about 6,500 schedules; in the wide world 600 of about 2,700
			if wide {
				refusals = 600
			}
			o := Obligations{Factory: Directly, Wide: wide, From: 1, Refusals: refusals, Within: 10 * time.Minute}
			o.Run(t)
			if o.Broken["R1"] == 0 || o.Count(Defect) > 0 {
				t.Errorf("%d schedules of one who forwards always broke %v, and %d refusals are defects", o.Schedules, o.Broken, o.Count(Defect))
			}
		})
	}
}

// judged judges a story's refusal, with a sidecar that refuses always.
func judged(t *testing.T, script string) Judgement {
	t.Helper()
	j, err := JudgeScript(t, refusesAlways(), script)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestATwinExcusesWhatItsNeighbourDoesNot: one fact that can be told apart makes a
// defect of an exception.
func TestATwinExcusesWhatItsNeighbourDoesNot(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   Verdict
		hidden hidden
	}{
		"a pod that is deleted moves, and its node lets go":      {"setup\ndelete-pod v1\nclock 5s\nowed\n", Defect, ""},
		"a machine lost its power, and nobody can tell":          {"setup\npower-off n1\nforce-delete-pod v1\nschedule v1 n2\nclock 60s\nowed\nclock 370s\n", Exception, runs},
		"the same, and a fence agent tells":                      {"setup agents=true\npower-off n1\nforce-delete-pod v1\nschedule v1 n2\nclock 60s\nowed\nclock 370s\n", Defect, ""},
		"the same, and a person said so":                         {"setup\npower-off n1\nclock 60s\nconfirm n1\nforce-delete-pod v1\nschedule v1 n2\nowed\nclock 370s\n", Defect, ""},
		"it boots unseen: nobody can tell that either":           {"setup\ncut-node n1\npower-off n1\npower-on n1\nforce-delete-pod v1\nschedule v1 n2\nowed\nclock 370s\n", Exception, runs},
		"a machine that is cut off goes on":                      {"setup\ncut-node n1\nforce-delete-pod v1\nschedule v1 n2\nowed\nclock 370s\n", NothingOwed, ""},
		"the driver moves it from a machine that is cut off":     {"setup nodes=2 single=moves\ncut-node n1\ndelete-node n1\ncut-api r1\nforce-delete-pod v1\nowed\nstrip-va v1 n1\n", Exception, takes},
		"a driver that attaches it twice leaves two writers":     {"setup nodes=2\ncut-node n1\ndelete-node n1\ncut-api r1\nforce-delete-pod v1\nowed\nstrip-va v1 n1\n", NothingOwed, ""},
		"it revokes it of one that lives, as it is declared to":  {"setup revokes=true\ndelete-va v1 n1\nforce-delete-pod v1\nschedule v1 n2\nowed\n", AgainstR2, ""},
		"it may have let go by then, or not":                     {"setup\ndelete-va v1 n1\nforce-delete-pod v1\nschedule v1 n2\nowed\n", Exception, mounted},
		"a kubelet that was forced may have forgotten the mount": {"setup\npause n1\nforce-delete-pod v1\nclock 370s\nnot-ready n1\nunlist v1 n1\ndetach v1 n1\nresume n1\nrestart-kubelet n1 quick\nsync n1\nunmount v1 n1\nstatus n1\nschedule v1 n2\nowed\n", Exception, mounted},
		"one that runs still can say that it has not":            {"setup\npause n1\nforce-delete-pod v1\nclock 370s\nnot-ready n1\nunlist v1 n1\ndetach v1 n1\nresume n1\nsync n1\nunmount v1 n1\nstatus n1\nschedule v1 n2\nowed\n", Defect, ""},
		"nobody forced it":                                       {"setup\ndelete-pod v1\nsync n1\nunmount v1 n1\nstatus n1\nend-pod v1\nschedule v1 n2\nowed\n", Defect, ""},
		// The wide world.
		"of two pods one moves, the other waits":                {"setup wide=true\nanother-pod v1 n2\ndelete-pod v1\nclock 5s\nowed\n", Defect, ""},
		"one of the two runs":                                   {"setup wide=true\nanother-pod v1 n2\nclock 5s\nowed\n", NothingOwed, ""},
		"two write what was published for many, and both may":   {"setup wide=true\nmode bypass\nstart r1\naccess v1 many\ndelete-pod v1\nsettle\nschedule v1 n1\nsettle\nmode enforce\nstart r1\nanother-pod v1 n2\nclock 5s\nforce-delete-pod v1\ncut-node n1\nowed\n", Defect, ""},
		"two write what was published for one":                  {"setup wide=true\nmode bypass\nstart r1\ndelete-pod v1\nsettle\nschedule v1 n1\nsettle\nmode enforce\nstart r1\nanother-pod v1 n2\nclock 5s\nforce-delete-pod v1\ncut-node n1\nowed\n", NothingOwed, ""},
		"nobody joins a node that is cut off":                   {"setup wide=true\ncut-node n1\nforce-delete-pod v1\nclock 60s\nowed\n", NothingOwed, ""},
		"a node that was cut off is joined as everything heals": {"setup wide=true\ncut-node n1\nforce-delete-pod v1\nclock 60s\nowed\nheal\n", Defect, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if j := judged(t, c.script); j.Verdict != c.want || j.Hidden != string(c.hidden) {
				t.Errorf("%s (hidden %q, owed %s after %s), want %s (hidden %q)", j.Verdict, j.Hidden, j.Volume, j.Owed, c.want, c.hidden)
			}
		})
	}
}

// TestACallThatFailsIsNoRest: once the call that was under way has failed, whoever forwards
// always goes on at once, as Kubernetes alone does, before anything else comes from outside.
func TestACallThatFailsIsNoRest(t *testing.T) {
	j, err := JudgeScript(t, Directly, `setup nodes=3 single=refuses agents=true
force-delete-pod v1
schedule v1 n2
clock 16s
sync n1
unmount v1 n1
status n1
clock 1s
sync n2
status n2
sight r1 n2
delete-pod v1
unlist v1 n1
sight r1 n1
sync n2
end-pod v1
schedule v1 n2
sync n2
detach v1 n1
unpublish r1 v1 n1
serve r1 driver:unpublish/v1/n1-id1
serve r1 answer:unpublish/v1/n1
attach v1 n2
clock 370s
publish r1 v1 n2
strip-va v1 n2
attach v1 n2
lose r1 driver:publish/v1/n2-id1
late-unpub r1 v1 n1
serve r1 answer:publish/v1/n2
owed
fail r1 driver:unpublish/v1/n1-id1
cut-api r1
delete-pod v1
schedule v1 n3
`)
	if err != nil || j.Verdict != Kept {
		t.Errorf("%s, %v: %s", j.Verdict, err, j.Why)
	}
}

// Who was taken over first is the only thing in a ledger that two plays of one script may
// differ in.
func TestTheOrderOfThoseTakenOverIsNoDifference(t *testing.T) {
	entry := func(id string, state fence.State) ledger.Entry {
		return ledger.Entry{NodeID: id, Token: "t-" + id, State: state}
	}
	text := func(holders ...ledger.Entry) string {
		l := ledger.Ledger{Version: ledger.Version, Driver: "d", Handle: "h", Cluster: "c", PVUID: "u", Holders: holders}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ledger.Annotation: l.String()}}}
		(&World{}).settled(pv)
		return pv.Annotations[ledger.Annotation]
	}
	one, two := entry("one", fence.TakenOver), entry("two", fence.TakenOver)
	mine, yours := entry("mine", fence.Publishing), entry("yours", fence.Publishing)
	if a, b := text(one, mine, two), text(two, one, mine); a != b {
		t.Errorf("%s\nand\n%s", a, b)
	}
	for _, other := range []string{text(one, mine), text(one, two, yours), text(two, entry("one", fence.Publishing), mine)} {
		if other == text(one, two, mine) {
			t.Errorf("no difference to %s", other)
		}
	}
	if text(mine, yours) == text(yours, mine) {
		t.Error("the order of those that hold it is no difference")
	}
}
