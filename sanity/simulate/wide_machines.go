package simulate

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// Machines of the wide world may be of one template, and have in common what tells
// machines apart elsewhere (Setup.Twins).

// twin gives a new machine what those of its template have in common.
func (w *World) twin(m *machine) {
	for what := range strings.SplitSeq(w.setup.Twins, ",") {
		switch what {
		case "system":
			m.system = "template-system"
		case "machine":
			m.install = "template-install"
		case "boot":
			m.boots, m.counts = m.slot.nodes, true // it was never off
		case "id":
			if m.slot.name == "n2" {
				m.id = w.slot("n1").machine.id
			}
		}
	}
}

// installation is its machine ID. One that boots from the network has another in each boot.
func (m *machine) installation(s Setup) string {
	if s.twins("netboot") {
		return m.install + "-" + strconv.Itoa(m.boots)
	}
	return m.install
}

// shared tells whether another Node reports that Node's system UUID.
func (w *World) shared(n *corev1.Node) bool {
	return slices.ContainsFunc(w.slots, func(s *slot) bool {
		other := w.peekNode(s.name)
		return other != nil && s.name != n.Name && fence.SystemKey(other.Status.NodeInfo.SystemUUID) == fence.SystemKey(n.Status.NodeInfo.SystemUUID)
	})
}

// twins tells whether machines have that in common.
func (s Setup) twins(what string) bool {
	return slices.Contains(strings.Split(s.Twins, ","), what)
}

// atAddress is the machine whose baseboard controller is asked, where a system UUID
// finds several: it has an address for each node's name, and says the UUID that it was
// asked for; nil: a UUID finds one alone.
func (w *World) atAddress(m agent.Machine) *machine {
	if !w.setup.twins("system") {
		return nil
	}
	if s := w.slot(m.Node); s != nil && s.machine.system == m.SystemUUID {
		return s.machine
	}
	return nil
}

// A hostile kubelet writes of its own node what it likes. Of its own machine nothing is
// promised: the oracle asks neither what it writes to the disks that it has access to, nor
// whether they are taken from it. It asks of everybody else, as ever: nothing that they
// hold is freed by what it says.

// hostileWords are what it may write.
var hostileWords = [...]string{"node-id", "system", "boot", "lists", "none"}

// wideMachineEvents are what may happen to the machines of the wide world alone.
func (w *World) wideMachineEvents(s *slot, n *corev1.Node, emit func(Event)) {
	if w.setup.Wide {
		w.withdrawEvents(s, emit)
		w.oldTaintEvents(s, n, emit)
	}
	if !w.setup.Wide || n == nil || !s.connected() || s.machine.kubelet.rebuild {
		return
	}
	for _, victim := range w.slots {
		if victim == s {
			continue
		}
		for _, what := range hostileWords {
			if s.machine.borrowed[what] != victim.machine {
				emit(Event{Borrow, s.name, victim.name, what})
			}
		}
	}
}

func (w *World) borrow(s *slot, victim *machine, what string) {
	m := s.machine
	m.hostile = true
	if m.borrowed == nil {
		m.borrowed = map[string]*machine{}
	}
	m.borrowed[what] = victim
	if what == "node-id" {
		w.register(s)
	}
	w.status(s)
}

// says is the node ID in its CSINode.
func (m *machine) says() string {
	if victim := m.borrowed["node-id"]; victim != nil {
		return victim.id
	}
	return m.id
}

// pretend puts what was borrowed in the place of what is so.
func (w *World) pretend(m *machine, n *corev1.Node) {
	if victim := m.borrowed["system"]; victim != nil {
		n.Status.NodeInfo.SystemUUID = victim.system
	}
	if victim := m.borrowed["boot"]; victim != nil {
		n.Status.NodeInfo.BootID = victim.boot()
	}
	if victim := m.borrowed["lists"]; victim != nil {
		if other := w.peekNode(victim.slot.name); other != nil {
			for _, name := range other.Status.VolumesInUse {
				if !slices.Contains(n.Status.VolumesInUse, name) {
					n.Status.VolumesInUse = append(n.Status.VolumesInUse, name)
				}
			}
		}
	}
	if m.borrowed["none"] != nil {
		n.Status.NodeInfo.SystemUUID, n.Status.NodeInfo.BootID, n.Status.NodeInfo.MachineID, n.Status.VolumesInUse = "", "", "", nil
	}
}

// hostileStatusNeeded tells whether the kubelet has yet to write what it wants to, once.
func (w *World) hostileStatusNeeded(s *slot, n *corev1.Node) bool {
	k := &s.machine.kubelet
	if readyStatus(n) != corev1.ConditionTrue {
		return true
	}
	return !k.rebuild && slices.ContainsFunc(w.volumes, func(v *volume) bool { return k.uses(v) != k.reported[v] })
}

// repairWide ends what the wide world alone has of faults: hostile machines are made anew.
func (w *World) repairWide() {
	w.unlisted = none
	w.comeBack()
	if w.mode != "" && w.mode != enforces {
		w.rollOut(enforces)
	}
	for _, m := range w.machines {
		if len(m.borrowed) == 0 {
			continue
		}
		m.borrowed = nil
		if m.power {
			w.powerOff(m)
			w.powerOn(m)
		}
		if s := m.slot; s.machine == m && w.peekCSINode(s.name) != nil {
			w.register(s)
		}
	}
}
