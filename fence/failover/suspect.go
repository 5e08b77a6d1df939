package failover

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// suspect says who is suspected and what is awaited, where a person looks: on
// the pods that wait, since nothing of it reaches them otherwise.
func (w *worker) suspect(ctx context.Context, s *state) error {
	w.Metrics.FencingBlocked(w.name, NoBrake)
	key, awaited := w.awaited(s)
	w.sayAll(ctx, s, warning, ReasonSuspected, key, silence(s)+"; "+awaited)
	return nil
}

// silence says what speaks against the node.
func silence(s *state) string {
	switch {
	case s.Node == nil:
		return fmt.Sprintf("node %s has no Node object, and may still hold this volume", s.Name)
	case s.Life == fence.Unknown:
		return fmt.Sprintf("node %s has no lease, so nobody knows whether it runs", s.Name)
	}
	return fmt.Sprintf("node %s has not renewed its lease for %s", s.Name, s.Age.Round(time.Second))
}

// awaited says what would let the volume move. key is the same for what reads
// the same but for times.
func (w *worker) awaited(s *state) (key, text string) {
	byHand := fmt.Sprintf("or, if it is certainly off: csi-fencepost fence confirm %s --reason ...", printable.Word(s.Name))
	why, unblock := unprovable(s.Node, w.shared(s.Node))
	switch {
	case s.optedOut():
		return "optout", "its annotation " + OptOutAnnotation + " is \"false\", so csi-fencepost neither fences it nor moves its pods"
	case why != "" && !(s.Covered && w.storageOnly(s.Node)):
		return "unprovable", fmt.Sprintf("no proof that it is off could count: %s; %s", why, unblock)
	case !s.Covered:
		return "uncovered", fmt.Sprintf("no fence agent covers it: if it is certainly off, put the taint node.kubernetes.io/out-of-service on, "+
			"or confirm: csi-fencepost fence confirm %s --reason ...", printable.Word(s.Name))
	case s.Answer == nil:
		return "asking", "asking " + w.Fencer.Agents(s.Name) + " whether it is off"
	case s.Answer.State == agent.Off && s.othersFence():
		// No fence of this machine came of it.
		return "others fence " + s.Answer.Why, fmt.Sprintf("%s, which proves nothing: the fence on record is of another machine that had its name (node UID %s, boot ID %s). "+
			"%s; %s", s.Answer.Why, s.Fence.NodeUID, s.Fence.BootID, w.clearOthers(s), byHand)
	case s.storageFenced():
		name := printable.Word(s.Name)
		return "unread " + s.Answer.Why, fmt.Sprintf("it is under a storage fence, and whether that is in place its agents do not tell: %s; they are asked again every %s. "+
			"If they never tell: csi-fencepost fence off %s --reason ..., if another agent can turn it off, or csi-fencepost fence withdraw %s --reason ..., and it is fenced as if it were not yet; %s",
			s.Answer.Why, w.AskEvery, name, name, byHand)
	case w.FenceAfter > 0:
		return "due " + s.Answer.Why, fmt.Sprintf("%s; it is fenced when its lease is unchanged for %s, %s", s.Answer.Why, w.FenceAfter, byHand)
	}
	return "asked " + s.Answer.Why, fmt.Sprintf("%s; the agents are asked again every %s until it is off (fencing.fenceAfter is not set): fence it with csi-fencepost fence off %s, %s",
		s.Answer.Why, w.AskEvery, s.Name, byHand)
}
