package scenarios

import (
	"regexp"
	"testing"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// switched: what the configuration's switches change, and what not.
var switched = []scenario{
	{
		name:        "cloud-taint",
		rule:        "R1: the cloud's shutdown taint is proof where the operator says so",
		options:     bed.StageOptions{Config: "evidence: {cloudShutdownTaint: true}"},
		guardedOnly: true,
		story:       func(p *play) { cloudTaint(p, true) },
	},
	{
		name:        "cloud-untold",
		rule:        "R1: the cloud's shutdown taint is no proof by itself",
		guardedOnly: true,
		story:       func(p *play) { cloudTaint(p, false) },
	},
	{
		name:        "forward",
		rule:        "R2: unpublish.unfenced: Forward lets the force detach and the publish elsewhere through, and says so",
		options:     bed.StageOptions{Config: "unpublish: {unfenced: Forward}"},
		guardedOnly: true,
		story:       forwarded,
	},
	{
		name:        "observe",
		rule:        "R5: mode Observe forwards everything, writes nothing, and says what Enforce would have refused",
		options:     bed.StageOptions{Config: "mode: Observe", ObserveRights: true},
		guardedOnly: true,
		story:       observed,
	},
	{
		name:        "revokes",
		rule:        "R1: where unpublish revokes access, a silent node's volume moves without any proof",
		options:     bed.StageOptions{Config: "driver: {unpublishRevokesAccess: true}"},
		guardedOnly: true,
		story:       revoked,
	},
}

// cloudTaint: the cloud stops an instance and taints its Node.
func cloudTaint(p *play, counts bool) {
	v, old, next := p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	old.PowerOff()
	old.WaitNotReady()
	db.ForceDelete()
	db2 := p.Pod("db2", next, v)
	p.refusedFor(fence.HolderStale, v, old, next)
	old.Taint(shutdownTaint)
	tainted := time.Now()
	if counts {
		db2.WaitRunning(30 * time.Second)
		p.outcome("moved %.1f s after the cloud's taint", time.Since(tainted).Seconds())
		return
	}
	p.Never(20*time.Second, "the volume moved on the cloud's taint alone", func() bool { return v.AttachedTo(next) || !v.AttachedTo(old) })
	p.refusedFor(fence.HolderStale, v, old, next)
	old.Confirm()
	db2.WaitRunning(30 * time.Second)
	p.outcome("stayed for all the cloud's taint; moved after the operator's word")
}

// cutOffAndReplaced cuts a node off that writes, and starts its pod elsewhere.
func (p *play) cutOffAndReplaced() (v *bed.Volume, old, next *bed.Node, replacement *bed.Pod) {
	p.t.Helper()
	v, old, next = p.Volume("disk", bed.VolumeOptions{}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)
	p.mustWriteOn(v, old)
	old.CutOff()
	old.WaitNotReady()
	db.ForceDelete()
	return v, old, next, p.Pod("db2", next, v)
}

// takenOnly waits for the one violation that the configuration asked for, and
// fails for any other.
func (p *play) takenOnly(v *bed.Volume) {
	p.t.Helper()
	found := p.Array.Violations()
	if len(found) != 1 || found[0].Kind != array.TakenInUse || found[0].Volume != v.Handle {
		p.t.Fatalf("the volume was to be taken once from the node that used it, and nothing else; the oracle saw: %v", found)
	}
	p.outcome("taken from a node that used it, as configured")
	p.Array.ForgetViolations()
}

func forwarded(p *play) {
	v, old, next, db2 := p.cutOffAndReplaced()
	p.WaitLog(p.Fencepost, p.Bed.Clocks.ForceDetachAfter+60*time.Second, `"Decided" call="ControllerUnpublishVolume".*decision="allow" reason="`+string(fence.UnfencedForward)+`"`)
	if v.AttachedTo(old) {
		p.t.Error("the force detach did not reach the driver")
	}
	p.takenOnly(v)
	// The operator has chosen what Kubernetes does alone, so the volume moves.
	detached := time.Now()
	v.WaitPublished(next, 60*time.Second)
	db2.WaitRunning(60 * time.Second)
	p.outcome("taken by force from the silent node, as the operator chose; published elsewhere %.1f s after that", time.Since(detached).Seconds())
}

// denied is what the API server says of a right that RBAC does not give. Others are
// "forbidden" for other reasons: a list that an older server does not stream.
var denied = regexp.MustCompile(`cannot \w+ resource \\?"`)

func TestADeniedRightIsToldFromOtherForbiddenThings(t *testing.T) {
	for line, want := range map[string]bool{
		`pods is forbidden: User "system:serviceaccount:x:y" cannot list resource "pods" in API group "" at the cluster scope`:                                      true,
		`err="pods is forbidden: User \"system:serviceaccount:x:y\" cannot list resource \"pods\" in API group \"\" at the cluster scope"`:                          true,
		`why="the server does not stream the list: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is on"`: false,
	} {
		if got := denied.MatchString(line); got != want {
			t.Errorf("%v, want %v: %s", got, want, line)
		}
	}
}

func observed(p *play) {
	v, old, next, db2 := p.cutOffAndReplaced()
	v.WaitPublished(next, p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	db2.WaitRunning(60 * time.Second)
	text := p.WaitEvent("PersistentVolume", v.Name, 30*time.Second, "WouldRefuse", old.Name, "["+string(fence.HolderStale)+"]")
	p.Log("said: %s", text)
	p.WaitEvent("Node", old.Name, 30*time.Second, "WouldRefuse", v.Name)
	if l := v.Ledger(); l != "" {
		p.t.Errorf("mode Observe wrote a ledger: %s", l)
	}
	if log := p.LogOf(p.Fencepost); denied.MatchString(log) {
		p.t.Error("mode Observe asked for a right that it does not have: see its log")
	}
	p.takenOnly(v)
}

func revoked(p *play) {
	v, old, next, db2 := p.cutOffAndReplaced()
	v.WaitPublished(next, p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	db2.WaitRunning(60 * time.Second)
	p.WaitLog(p.Fencepost, 10*time.Second, `"Decided".*nodeID="`+old.ID+`".*decision="allow" reason="`+string(fence.HolderRevoked)+`"`)
	p.heldBy(v, next)
	p.takenOnly(v)
}
