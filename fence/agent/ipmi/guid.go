package ipmi

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

type guid [16]byte

// identity is what a BMC says of the machine that it sits in.
type identity struct {
	// guid as a person reads it; empty where it tells machines not apart.
	guid string
	// note says how sure it is that the BMC is the node's.
	note string
	// checked tells that it is the node's, and that no other Node may be the one that has it.
	checked bool
}

// identify holds the BMC's system GUID against the Node's system UUID. A
// mismatch is an error, with the identity that was found.
func (s *session) identify(ctx context.Context, m agent.Machine) (identity, error) {
	answer, err := s.client.GetSystemGUID(ctx)
	if err != nil && !unsupported(err) {
		return identity{}, fmt.Errorf("system GUID: %w", err)
	}
	if err != nil {
		return identity{note: "whose BMC it is was not checked: it does not tell a system GUID"}, nil
	}
	return compare(answer.GUID, m)
}

func compare(raw guid, m agent.Machine) (identity, error) {
	if raw.placeholder() {
		return identity{note: fmt.Sprintf("whose BMC it is was not checked: its system GUID %s is a placeholder", raw)}, nil
	}
	id := identity{guid: raw.readable().String()}
	node, ok := parse(m.SystemUUID)
	switch {
	case m.SystemUUID == "":
		id.note = fmt.Sprintf("whose BMC it is was not checked: node %s reports no system UUID (the BMC's system GUID is %s)", m.Node, id.guid)
	case !ok || node.placeholder():
		id.note = fmt.Sprintf("whose BMC it is was not checked: node %s reports system UUID %q, which names no machine (the BMC's system GUID is %s)", m.Node, m.SystemUUID, id.guid)
	case slices.Contains(raw.orders(), node):
		_, doubted := m.Doubts[agent.VarSystemUUID]
		id.note, id.checked = fmt.Sprintf("system GUID %s is the node's", node), !doubted
	default:
		return id, fmt.Errorf("it belongs to another machine: its system GUID is %s (bytes %x), node %s has system UUID %s; correct the BMC's address in the configuration", id.guid, raw[:], m.Node, node)
	}
	return id, nil
}

// orders are the UUIDs that these bytes stand for: as they are, as SMBIOS has
// them (the first three fields swapped), as IPMI has them (all swapped), and
// that as kernels print it that take SMBIOS's fields for big-endian.
func (g guid) orders() []guid {
	return []guid{g, g.fieldsSwapped(), g.reversed(), g.reversed().fieldsSwapped()}
}

func (g guid) reversed() guid {
	slices.Reverse(g[:])
	return g
}

func (g guid) fieldsSwapped() guid {
	slices.Reverse(g[0:4])
	slices.Reverse(g[4:6])
	slices.Reverse(g[6:8])
	return g
}

// readable is the order in which the bytes look most like a UUID of RFC 9562. It
// depends on the bytes alone, so that one BMC has one name.
func (g guid) readable() guid {
	for _, versions := range [][2]byte{{4, 4}, {1, 8}} { // most are of version 4
		for _, o := range g.orders() {
			version, variant := o[6]>>4, o[8]>>6
			if version >= versions[0] && version <= versions[1] && variant == 0b10 {
				return o
			}
		}
	}
	return g
}

// placeholder tells whether other machines have that GUID, too.
func (g guid) placeholder() bool {
	return slices.ContainsFunc(g.orders(), func(o guid) bool { return !fence.TellsSystem(o.String()) })
}

func (g guid) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", g[0:4], g[4:6], g[6:8], g[8:10], g[10:16])
}

func parse(text string) (guid, bool) {
	bytes, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(bytes) != 16 {
		return guid{}, false
	}
	return guid(bytes), true
}

// unsupported tells whether the BMC answered that it has no such command or data. A BMC that is
// busy, starting or being updated did not: asked again it may know.
func unsupported(err error) bool {
	switch code(err) {
	case types.CodeInvalidCommand, types.CodeInvalidCommandForLUN, types.CodeRequestedDataNotPresent,
		types.CodeIllegalCommand, types.CodeNotSupported, types.CodeSubFnDisabled, types.CodeInsufficientPrivilege:
		return true
	}
	return false
}
