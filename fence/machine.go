package fence

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Machine is what can write, as somebody saw it at one time: a ledger when the volume was
// published there, a Node now, a piece of evidence when it was read. Empty is not known.
type Machine struct {
	// NodeName and NodeUID of the Node under which it is registered.
	NodeName, NodeUID string
	// NodeID is the driver's.
	NodeID string
	// BootID is a UUID that the kernel makes anew for each boot (Linux), or a count of
	// boots (Windows).
	BootID string
	// SystemUUID is the machine's own (DMI) UUID, ProviderID the cloud's name for it, and
	// MachineID its installation's.
	SystemUUID, ProviderID, MachineID string
	// SystemShared tells whether another Node reports the machine's system UUID, or did when this
	// was written down.
	SystemShared bool
}

// MachineOf is the machine of a Node; nil: of none. Neither the driver's node ID nor whether
// another Node reports its system UUID is known by that.
func MachineOf(node *corev1.Node) Machine {
	if node == nil {
		return Machine{}
	}
	info := node.Status.NodeInfo
	return Machine{NodeName: node.Name, NodeUID: string(node.UID), BootID: info.BootID,
		SystemUUID: info.SystemUUID, ProviderID: node.Spec.ProviderID, MachineID: info.MachineID}
}

// ReadyCondition is the condition Ready of the Node, which says since when; nil: there is none,
// or no Node.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := 0; node != nil && i < len(node.Status.Conditions); i++ {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

// NodeReady tells whether the condition Ready of the Node is True; a nil Node is not ready.
func NodeReady(node *corev1.Node) bool {
	c := ReadyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Sameness is what two observations of machines say of each other. What is proven of the
// one is proven of the other only if they are Same, and a kubelet speaks for a holder only
// if its Node is the holder's own. Uncertain is no permission either way: what is asked for
// the sake of suspicion counts it as the same machine and as another at once.
type Sameness int

const (
	// Uncertain means that nothing tells. It is the zero value.
	Uncertain Sameness = iota
	// Same machine, in the same boot, under the same Node.
	Same
	// Rebooted means the same machine under the same Node, and not known to be in the same boot.
	Rebooted
	// Reregistered means the same machine in the same boot, with the same containers, under another
	// Node.
	Reregistered
	// ReturnedAnew means the same machine under another Node, and not known to be in the same boot.
	ReturnedAnew
	// Other means another machine.
	Other
)

func (s Sameness) String() string {
	return [...]string{"uncertain", "same", "rebooted", "registered again", "returned anew", "other"}[s]
}

// OneNode tells whether it is one machine under one Node.
func (s Sameness) OneNode() bool { return s == Same || s == Rebooted }

// OneMachine tells whether it is one machine, under whichever Node.
func (s Sameness) OneMachine() bool { return s != Uncertain && s != Other }

// Ended tells whether the boot in which machine m was seen is known to have ended, since the machine
// that was seen later under its name and node ID, now, is in another, or is another machine.
func (m Machine) Ended(now Machine) bool {
	return m.BootID != "" && now.BootID != "" && (m.BootID != now.BootID || m.Compare(now) == Other)
}

// Compare tells what machine m is to machine now, which was seen later.
//
// One boot ID is one boot where it is unique by construction: it is made by chance for each
// boot. Under another Node it is another's that was written there if what else is said does
// not fit. A boot ID that counts boots is not unique: of one machine it tells the boot, and of
// two nothing.
//
// Two system UUIDs are two machines. One system UUID is one machine only while no other Node
// reports it: virtual machines of one template may have it in common. Under another Node the
// provider ID and the machine ID have to agree with it where both sides have them; under one
// Node another machine ID is one that was installed anew, or makes it for each boot, as those
// do that boot from the network.
//
// Where neither tells, a Node is one machine's while what it says of that does not change; of
// several that share a system UUID only once the driver has said its node ID. A new machine
// may register under the Node of an old one of its name, mostly with another node ID of the
// driver; but so does one whose driver names its nodes otherwise than before.
func (m Machine) Compare(now Machine) Sameness {
	oneNode := m.NodeUID != "" && m.NodeUID == now.NodeUID
	oneBoot := m.BootID != "" && m.BootID == now.BootID
	other := otherSystem(m.SystemUUID, now.SystemUUID)
	oneSystem, shared := sameSystem(m.SystemUUID, now.SystemUUID), m.SystemShared || now.SystemShared
	unlike, anew := differ(m.provider(), now.provider()), differ(m.installation(), now.installation())
	switch {
	case oneBoot && !counts(m.BootID) && (oneNode || !other && !unlike):
		return pick(oneNode, Same, Reregistered)
	case oneBoot && !counts(m.BootID):
		return Uncertain
	case other:
		return Other
	case oneSystem && !shared && (oneNode || !unlike && !anew):
		if oneBoot {
			return pick(oneNode, Same, Reregistered)
		}
		return pick(oneNode, Rebooted, ReturnedAnew)
	case !oneNode, differ(m.NodeID, now.NodeID), oneSystem && anew, oneSystem && m.NodeID != "" && now.NodeID == "":
		return Uncertain
	}
	return Rebooted
}

// provider and installation are the provider ID and the machine ID, if they tell more than the
// name of the Node does: on Windows the machine ID is that name.
func (m Machine) provider() string     { return m.beyondName(m.ProviderID) }
func (m Machine) installation() string { return m.beyondName(m.MachineID) }

func (m Machine) beyondName(id string) string {
	if id == "" || m.NodeName != "" && strings.Contains(strings.ToLower(id), strings.ToLower(m.NodeName)) {
		return ""
	}
	return id
}

func pick(oneNode bool, own, anew Sameness) Sameness {
	if oneNode {
		return own
	}
	return anew
}

// RestsOnNodeID tells whether only the driver's node ID says that now is not machine m.
func (m Machine) RestsOnNodeID(now Machine) bool {
	if m.NodeID == "" {
		return false
	}
	now.NodeID = m.NodeID
	other := now
	other.NodeID += " of another"
	return m.Compare(now) != m.Compare(other)
}

// MayRunOn tells whether now may be machine m in the boot in which m was seen, with the
// containers that ran in it, and is not known to be it under its own Node.
func (m Machine) MayRunOn(now Machine) bool {
	s := m.Compare(now)
	return s == Reregistered || s == Uncertain && m.BootID != "" && m.BootID == now.BootID
}

// MayHaveReturned tells whether now may be machine m after a boot, under another Node.
func (m Machine) MayHaveReturned(now Machine) bool {
	return m.NodeUID != now.NodeUID && sameSystem(m.SystemUUID, now.SystemUUID)
}

// Since says what became of machine m, so that what was said of it then is void now; empty:
// it is the same machine in the same boot.
func (m Machine) Since(now Machine) string {
	switch s := m.Compare(now); {
	case s == Same:
		return ""
	case m.NodeUID != now.NodeUID || s == Other:
		return VoidOtherMachine
	case m.BootID == "" || now.BootID == "":
		return VoidNoBootID
	case m.BootID == now.BootID:
		return VoidNotUnique
	}
	return VoidBootChanged
}

func differ(a, b string) bool { return a != "" && b != "" && a != b }

// counts tells whether a boot ID is a count of boots: two machines may have it.
func counts(bootID string) bool { return strings.Trim(bootID, "0123456789") == "" }

// otherSystem tells whether two system UUIDs are of two machines. An empty one
// says nothing. Two that differ only in the byte order of their first three
// fields are one: firmware disagrees on it (SMBIOS 2.6 changed it), and so may
// one machine after an upgrade.
func otherSystem(a, b string) bool {
	return a != "" && b != "" && SystemKey(a) != SystemKey(b)
}

// sameSystem tells whether two system UUIDs are equal, and mean something.
func sameSystem(a, b string) bool {
	return a != "" && SystemKey(a) == SystemKey(b) && TellsSystem(a)
}

var uuidForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// IsUUID tells whether a text has the form of a UUID, as kubelets print a system UUID.
func IsUUID(text string) bool { return uuidForm.MatchString(text) }

// SharedSystems are system UUIDs that many boards have, by SystemKey: their maker wrote nothing,
// or (the last) it is Dell's where the service tag is empty.
var SharedSystems = []string{
	"00020003-0004-0005-0006-000700080009",
	"12345678-1234-5678-90ab-cddeefaabbcc",
	"44454c4c-0000-1020-8020-80c04f202020",
}

// TellsSystem tells whether a system UUID means something: an empty one, zeros, and what many
// boards have (SharedSystems) says nothing.
func TellsSystem(uuid string) bool {
	key := SystemKey(uuid)
	return strings.Trim(key, "0-") != "" && strings.Trim(key, "f-") != "" && !slices.Contains(SharedSystems, key)
}

// InstanceID is the last part of a provider ID: aws:///eu-central-1a/i-0abc. Empty: it has
// none.
func InstanceID(providerID string) string {
	if id := path.Base(providerID); id != "." && id != "/" && !strings.HasSuffix(providerID, "/") {
		return id
	}
	return ""
}

// SystemKey is the same for system UUIDs that are one.
func SystemKey(uuid string) string {
	uuid = strings.ToLower(uuid)
	return min(uuid, swapped(uuid))
}

// swapped has the first three fields of a UUID in the other byte order.
func swapped(uuid string) string {
	if len(uuid) != 36 || strings.Count(uuid, "-") != 4 {
		return uuid
	}
	fields := strings.Split(uuid, "-")
	for n, field := range fields[:3] {
		out := ""
		for i := 0; i+2 <= len(field); i += 2 {
			out = field[i:i+2] + out
		}
		fields[n] = out
	}
	return strings.Join(fields, "-")
}
