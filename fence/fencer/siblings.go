package fencer

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// Two drivers may serve one storage. In the boot of another driver's fence a lift opens nothing of
// what that cuts off, and that fence proves nothing from before anything of it is opened.

// meet goes through the fences of other drivers that say that the machine is cut off from
// what is to be opened: two drivers may serve one storage (RBD and CephFS of one cluster),
// and nothing tells which do. In the boot of such a fence a lift waits until the sidecar of
// that driver finds that it may be lifted too. After a boot nothing is mounted that was before,
// so it waits for a minute, in which that sidecar can lift its fence for that boot. Then, and
// with On, where the caller has asked for the volumes of all drivers, the fence is to be lifted
// too, and nobody vouches for it any more. It would be proof as soon as the machine is cut off
// again, and be lifted at once, for a boot that used what it names. Only its own sidecar can
// vouch for it again, in the boot of then.
func (u *undoing) meet(r *record.Record) {
	names := u.names()
	opens := append(names, u.addresses...)
	unknown := !u.told && (u.action == "on" || len(names) == 0)
	booted := u.booted() && u.settled
	for i := range r.Fences {
		s := &r.Fences[i]
		if !u.anothers(*s) || !unknown && !overlap(blocks(s), opens) && !u.oneAgent(s) {
			continue
		}
		if u.action == "on" || booted && s.Machine.BootID != "" && s.Machine.BootID != u.now.BootID {
			u.ended = true
			s.Lift(u.reason)
			u.doubt += fmt.Sprintf("; fence %s of driver %s, which names the same, proves nothing any more", s.ID, s.Driver)
			continue
		}
		u.held = fmt.Sprintf("fence %s of driver %s keeps %s cut off too, and volumes of that driver may move because of it: it is opened once the sidecar of that driver finds that it may be lifted as well, or the node has booted; "+
			"by hand: csi-fencepost fence on %s", s.ID, s.Driver, listed(blocks(s)), printable.Word(u.t.Node))
	}
}

// settling is how long after a boot a lift waits for another driver's.
const settling = time.Minute

// settled tells whether the Node has been Ready for so long that every driver's sidecar has seen
// it. By a kubelet's clock that is ahead of ours it has, too.
func settled(n *corev1.Node) bool {
	c := fence.ReadyCondition(n)
	if c == nil {
		return true
	}
	since := time.Since(c.LastTransitionTime.Time)
	return since < 0 || since > settling
}

// anothers tells whether the fence is of another driver, and proves that the machine is cut off.
func (u *undoing) anothers(s record.Fence) bool {
	return s.Kind == fence.StorageFence && s.Driver != u.Driver && s.Phase == record.Fenced && !otherMachine(s.Machine, u.now)
}

// oneAgent tells whether the fence names no blocks, as of an agent that knows machines by other
// names, and is of an agent that is called as one of this driver's is: the two may be one array.
func (u *undoing) oneAgent(s *record.Fence) bool {
	return len(blocks(s)) == 0 && slices.ContainsFunc(u.StorageAgents(u.t.Node), func(name string) bool { return slices.Contains(s.Agents, name) })
}
