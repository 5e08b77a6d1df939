package simulate

import (
	"slices"
	"strings"

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
		case "boot":
			m.boots, m.counts = m.slot.nodes, true // it was never off
		case "id":
			if m.slot.name == "n2" {
				m.id = w.slot("n1").machine.id
			}
		}
	}
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
