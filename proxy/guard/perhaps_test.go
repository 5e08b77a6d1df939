package guard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// perhaps is a volume on node old, whose Node may be another machine's by now: it has booted,
// its driver has another node ID, and node evil writes its system UUID.
func perhaps(t *testing.T, p fence.Policy) *guardrig.Rig {
	r := guardrig.New(t, p)
	r.Node("old", guardrig.HourAgo)
	r.Node("next", guardrig.HourAgo)
	r.Node("evil", guardrig.HourAgo)
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	r.Reboot("old", "boot-2")
	r.Register("old", "id-new")
	r.Status("evil", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "SYSTEM-OLD" })
	r.Calls = nil
	return r
}

// Whichever machine it is, it lives, and nothing is taken from it as from one that is gone.
func TestANodeOfWhichNothingTellsWhetherItIsTheHoldersIsNotTakenForGone(t *testing.T) {
	for _, p := range []fence.Policy{{}, {UnpublishRevokesAccess: true}, {ForwardUnfenced: true}, {UnpublishRevokesAccess: true, ForwardUnfenced: true}} {
		for _, lists := range []bool{false, true} {
			r := perhaps(t, p)
			r.Lists("old", lists, lists)
			refused := func() {
				t.Helper()
				reason := fence.HolderUnknown
				if lists {
					reason = fence.HolderAlive
				}
				r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(reason)+"]")
				r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(reason)+"]")
				r.Called()
			}
			refused()
			r.Attachment("old", guardrig.Now)
			refused()
			r.Stripped("old")
			refused()
			// Whether it lives is not known yet.
			r.Lives["old"] = fence.Unwatched
			r.Refused(r.PublishTo("next"), codes.FailedPrecondition)
			r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
			r.Called()
			// It is silent by now, whichever it is.
			r.Lives["old"] = fence.Stale
			err := r.UnpublishFrom(guardrig.ID("old"))
			if frees := p.UnpublishRevokesAccess || p.ForwardUnfenced; (err == nil) != frees {
				t.Errorf("%+v, listed %v: a silent one is unpublished: %v", p, lists, err)
			}
		}
	}
	// The same without evil: the system UUID is its own, and it booted long before the detach.
	r := perhaps(t, fence.Policy{})
	r.Status("old", func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.NewTime(guardrig.HourAgo) })
	r.Status("evil", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "system-evil" })
	r.Attachment("old", guardrig.Now)
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old", "unpublish id-new")
}

// What is refused while nothing tells is contested in the boot that runs: it may be the
// holder's, and then its kubelet can forget what it has mounted.
func TestAContestOfANodeThatMayBeTheHoldersIsOfTheBootThatRuns(t *testing.T) {
	r := perhaps(t, fence.Policy{})
	r.Lists("old", true, true)
	r.Attachment("old", guardrig.Now)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderAlive)+"]")
	if c := r.Ledger().Get(guardrig.ID("old")).Contest; c == nil || c.BootID != "boot-2" {
		t.Errorf("contested as %+v, want it of boot-2", c)
	}
	r.Status("evil", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "system-evil" })
	r.Lists("old", false, false)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderContested)+"]")
	r.Called()
}

// The controller lists the volume until its VolumeAttachment is gone, which waits for the
// unpublish: a word about the machine before is enough for that.
func TestAWordAboutTheMachineBeforeCountsWhileTheNodeThatMayBeItsIsBeingDetached(t *testing.T) {
	r := perhaps(t, fence.Policy{})
	r.Lists("old", false, true)
	r.Attachment("old", guardrig.Now)
	r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]", "fence confirm old --node-id id-old")
	r.Guard.Surveyor.Sources = []evidence.Source{ofTheMachineBefore{}}
	r.Must(r.UnpublishFrom(guardrig.ID("old")))
	r.Called("unpublish id-old")
}

// ofTheMachineBefore is an operator's word about the machine that the ledger names.
type ofTheMachineBefore struct{}

func (ofTheMachineBefore) Name() string { return string(fence.OperatorConfirmation) }

func (ofTheMachineBefore) Evidence(_ context.Context, q evidence.Question) ([]fence.Evidence, error) {
	h := q.Holder
	return []fence.Evidence{{Kind: fence.OperatorConfirmation, NodeID: h.NodeID, NodeUID: h.NodeUID, BootID: h.BootID, SystemUUID: h.SystemUUID}}, nil
}

// While the node plugin restarts, the CSINode has no node ID: that does not say that it is the
// holder's.
func TestAMachineOfOneTemplateIsNotTheHoldersWhileItsDriverIsAway(t *testing.T) {
	r := template(t, func(i *corev1.NodeSystemInfo) { i.MachineID = "machine-template" })
	r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.MachineID = "machine-template" })
	for _, id := range []string{"id-new", ""} {
		r.Register("old", id)
		r.Refused(r.PublishTo("next"), codes.FailedPrecondition, "["+string(fence.HolderUnknown)+"]")
	}
	r.Called()
}

// Access that is revoked from a node ID comes back with the next publish to whoever has it.
func TestNothingIsRevokedFromANodeIDThatAnotherMachineMayHave(t *testing.T) {
	for _, id := range []string{"id-old", "id-new"} {
		r := guardrig.New(t, fence.Policy{UnpublishRevokesAccess: true})
		r.Node("old", guardrig.HourAgo)
		r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "" })
		r.Attachment("old", time.Time{})
		r.Must(r.PublishTo("old"))
		r.Attachment("old", guardrig.Now)
		r.RenewUID("old")
		r.Status("old", func(s *corev1.NodeStatus) { s.NodeInfo.BootID = "boot-2" })
		r.Register("old", id)
		r.Lives["old"] = fence.Stale
		if err := r.UnpublishFrom("id-old"); (err == nil) != (id == "id-new") {
			t.Errorf("the Node of its name has node ID %s: %v", id, err)
		}
	}
}

// template has two machines of one template under one Node, one after the other: the second
// was installed with another machine ID, and has the node ID of the first, which may run on.
func template(t *testing.T, change func(*corev1.NodeSystemInfo)) *guardrig.Rig {
	r := guardrig.New(t, fence.Policy{})
	for i, name := range []string{"old", "next", "twin"} {
		r.Node(name, guardrig.HourAgo)
		r.Status(name, func(s *corev1.NodeStatus) {
			s.NodeInfo.SystemUUID, s.NodeInfo.MachineID = "system-template", fmt.Sprint("machine-", i)
			change(&s.NodeInfo)
		})
	}
	r.Attachment("old", time.Time{})
	r.Must(r.PublishTo("old"))
	r.Status("old", func(s *corev1.NodeStatus) {
		s.NodeInfo.MachineID = "machine-9"
		if s.NodeInfo.BootID != "12" {
			s.NodeInfo.BootID = "boot-2"
		}
	})
	r.Calls = nil
	return r
}

func TestAMachineOfOneTemplateGetsNothingAsTheOneBeforeIt(t *testing.T) {
	for name, change := range map[string]func(*corev1.NodeSystemInfo){
		"boots":  func(*corev1.NodeSystemInfo) {},
		"counts": func(i *corev1.NodeSystemInfo) { i.BootID = "12" },
	} {
		for _, then := range []string{"now", "where the ledger does not say so", "when the others of the template are gone"} {
			t.Run(name+", "+then, func(t *testing.T) {
				r := template(t, change)
				if e := r.Ledger().Get(guardrig.ID("old")); !e.SystemShared {
					t.Errorf("the ledger does not say that the system UUID is shared: %+v", e)
				}
				switch then {
				case "where the ledger does not say so":
					r.Change(func(l *ledger.Ledger) { l.Get(guardrig.ID("old")).SystemShared = false })
				case "when the others of the template are gone":
					for _, name := range []string{"next", "twin"} {
						r.Status(name, func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "system-" + name })
					}
				}
				r.Refused(r.PublishTo("next"), codes.FailedPrecondition)
				r.Refused(r.PublishTo("old"), codes.FailedPrecondition)
				r.Attachment("old", guardrig.Now)
				r.Refused(r.UnpublishFrom(guardrig.ID("old")), codes.FailedPrecondition)
				r.Called()
			})
		}
	}
}

// An upgrade of the driver names its nodes otherwise; one that boots from the network has
// another machine ID each time.
func TestAMachineWithASystemUUIDOfItsOwnIsTheSameHoweverItIsInstalledAndNamed(t *testing.T) {
	for _, system := range []string{"system-old", ""} {
		r := guardrig.New(t, fence.Policy{})
		r.Node("old", guardrig.HourAgo)
		r.Node("next", guardrig.HourAgo)
		install := func(boot, machine string) {
			r.Status("old", func(s *corev1.NodeStatus) {
				s.NodeInfo = corev1.NodeSystemInfo{BootID: boot, MachineID: machine, SystemUUID: system}
			})
		}
		install("boot-1", "machine-1")
		r.Attachment("old", time.Time{})
		r.Must(r.PublishTo("old"))
		install("boot-2", "machine-2")
		r.Must(r.PublishTo("old"))
		install("boot-3", "machine-3")
		if system != "" {
			r.Register("old", "id-new")
		}
		r.Attachment("old", guardrig.Now)
		r.Must(r.UnpublishFrom(guardrig.ID("old")))
		want := []string{"publish id-old", "publish id-old", "unpublish id-old"}
		if system != "" {
			want = append(want, "unpublish id-new")
		}
		r.Called(want...)
	}
}

// k3s names machines after their nodes, and so does Windows its installations.
func TestAnIDThatIsTheNodesNameDoesNotTellARenamedMachineFromItself(t *testing.T) {
	r := guardrig.Renamed(t, false)
	r.Change(func(l *ledger.Ledger) {
		e := l.Get(guardrig.ID("old"))
		e.ProviderID, e.MachineID = "k3s://old", "OLD"
	})
	r.ChangeNode("renamed", func(n *corev1.Node) {
		n.Spec.ProviderID, n.Status.NodeInfo.MachineID = "k3s://renamed", "RENAMED"
	})
	r.Lists("renamed", true, false)
	r.Must(r.PublishTo("old"))
	r.WantHolder("renamed", fence.Publishing)
}
