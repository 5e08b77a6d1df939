package ipmi

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// Whatever comes on the socket in a session: without the session's integrity
// code it is no answer.
func FuzzNoPacketWithoutItsCodeIsAnAnswer(f *testing.F) {
	header := func(kind types.PayloadType, payload ...byte) []byte {
		p := []byte{6, 0, 0xff, 7, 6, 0xc0 | byte(kind), 1, 0, 0, 0, 1, 0, 0, 0, byte(len(payload)), 0}
		return append(p, payload...)
	}
	f.Add(header(types.PayloadTypeIPMI, slices.Repeat([]byte{1}, 40)...), byte(types.PayloadTypeIPMI))
	f.Add(header(types.PayloadTypeRAKPMessage2, slices.Repeat([]byte{1}, 40)...), byte(types.PayloadTypeRAKPMessage2))
	f.Add(header(types.PayloadTypeRAKPMessage4), byte(types.PayloadTypeRAKPMessage4))
	f.Add([]byte{6, 0, 0xff, 7, 6}, byte(0))
	f.Fuzz(func(t *testing.T, packet []byte, expected byte) {
		w := &wire{suite: types.CipherSuiteID3, key: bytes.Repeat([]byte{7}, 20), expected: types.PayloadType(expected & 0x3f), unanswered: true}
		was := bytes.Clone(packet)
		kind, payload := open20(packet)
		if payload != nil && (len(payload) > len(packet)-headerLength || !bytes.Contains(packet, payload)) {
			t.Errorf("a payload of %d bytes in a packet of %d", len(payload), len(packet))
		}
		accepted := w.accepts(packet)
		if accepted && kind == types.PayloadTypeIPMI {
			t.Error("an answer without the key's code is accepted")
		}
		if accepted && kind != w.expected || accepted == w.unanswered {
			t.Errorf("accepted %v: type %v, while %v was expected; unanswered %v", accepted, kind, w.expected, w.unanswered)
		}
		if !bytes.Equal(was, packet) {
			t.Error("the packet was changed")
		}
	})
}

// Whatever GUID a BMC has and a Node says: one is the other's only if it has the
// same bytes, in one order or another.
func FuzzGUID(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), "33323130-3534-3736-3839-616263646566")
	f.Add(make([]byte, 16), "")
	f.Add(bytes.Repeat([]byte{0xff}, 16), "x")
	f.Fuzz(func(t *testing.T, raw []byte, uuid string) {
		if len(raw) < 16 {
			return
		}
		g := guid(raw[:16])
		id, err := compare(g, agent.Machine{Node: "n1", SystemUUID: uuid})
		is := err == nil && strings.Contains(id.note, "is the node's")
		node, ok := parse(uuid)
		if is && (!ok || !slices.Equal(slices.Sorted(slices.Values(g[:])), slices.Sorted(slices.Values(node[:])))) {
			t.Errorf("%x is taken for the machine with %q", g[:], uuid)
		}
		if !is && ok && g == node && !g.placeholder() {
			t.Errorf("%x is not taken for its own machine: %v", g[:], err)
		}
	})
}
