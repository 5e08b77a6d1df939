package ipmi

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"
)

// A lie is how an answer of a session is replaced.
type lie byte

const (
	asItIs  lie = iota // the payload, said to be encrypted
	sealed             // the payload, encrypted
	inClear            // the payload, said to be in clear
	data               // completion code and data, of the command that was asked, encrypted
)

// A liar is a BMC that knows its password, and whose answers are as somebody chooses: it replaces what the
// BMC before it says, and signs that with the session's own key.
type liar struct {
	mu       sync.Mutex
	session  wire
	suite    types.CipherSuiteID
	integ, k []byte // K1 and K2
	// kind is the type of the answers that are replaced, payload what by.
	kind    types.PayloadType
	payload []byte
	as      lie
}

// before puts the liar between the BMC and us.
func (l *liar) before(b *lan) {
	b.set(func() {
		b.toBMC = func(packet []byte) [][]byte {
			l.mu.Lock()
			defer l.mu.Unlock()
			if kind, payload := open20(packet); kind == types.PayloadTypeRmcpOpenSessionRequest && len(payload) > 12 {
				l.suite = suiteOf(payload[12], payload[20], payload[28])
			}
			l.session.sending(packet)
			return [][]byte{packet}
		}
		b.toUs = func(packet []byte) [][]byte {
			l.mu.Lock()
			defer l.mu.Unlock()
			kind, payload := open20(packet)
			if kind == types.PayloadTypeRAKPMessage2 && len(payload) >= 24 {
				auth, _, _, _ := types.GetCipherSuiteAlgorithms(l.suite)
				_, l.integ, l.k, _ = crypto.DeriveSessionKeys(auth, l.session.consoleRand, payload[8:24], l.session.role, user, crypto.PadPassword20([]byte(password)))
			}
			if kind != l.kind {
				return [][]byte{packet}
			}
			return [][]byte{l.answer(packet)}
		}
	})
}

func (l *liar) answer(packet []byte) []byte {
	payload := l.payload[:min(len(l.payload), 1000)]
	if l.kind != types.PayloadTypeIPMI {
		out := append(bytes.Clone(packet[:headerLength]), payload...)
		binary.LittleEndian.PutUint16(out[14:], uint16(len(payload)))
		return out
	}
	switch l.as {
	case sealed:
		payload, _ = crypto.EncryptAESPayload(payload, l.k, bytes.Repeat([]byte{5}, 16))
	case data:
		_, was := open20(packet)
		message, err := crypto.DecryptAESPayload(was, l.k)
		if err != nil || len(message) < 6 {
			return packet
		}
		message = append(bytes.Clone(message[:6]), payload...)
		sum := byte(0)
		for _, b := range message[3:] {
			sum -= b
		}
		payload, _ = crypto.EncryptAESPayload(append(message, sum), l.k, bytes.Repeat([]byte{5}, 16))
	}
	out := append(bytes.Clone(packet[:headerLength]), payload...)
	if l.as == inClear {
		out[5] &^= 0x80
	}
	binary.LittleEndian.PutUint16(out[14:], uint16(len(payload)))
	pad := types.IntegrityPadLen(headerLength-4, len(payload))
	out = append(out, bytes.Repeat([]byte{0xff}, pad)...)
	out = append(out, byte(pad), 7)
	_, integrity, _, _ := types.GetCipherSuiteAlgorithms(l.suite)
	code, _ := crypto.SessionIntegrityAuthCode(integrity, out[4:], l.integ, "")
	return append(out, code...)
}

// Whatever a BMC that knows the password answers: no panic, and no login but a right one leads to a reading.
func FuzzASignedAnswer(f *testing.F) {
	for _, kind := range []types.PayloadType{types.PayloadTypeIPMI, types.PayloadTypeRmcpOpenSessionResponse, types.PayloadTypeRAKPMessage2, types.PayloadTypeRAKPMessage4} {
		for _, length := range []int{0, 1, 8, 15, 16, 17, 32, 40, 48} {
			for as := range data + 1 {
				f.Add(byte(kind), bytes.Repeat([]byte{byte(as) - 1}, length), byte(as))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, payload []byte, as byte) {
		b := newLAN(t)
		l := &liar{kind: types.PayloadType(kind & 0x3f), payload: payload, as: lie(as) % (data + 1)}
		if !slices.Contains([]types.PayloadType{types.PayloadTypeIPMI, types.PayloadTypeRmcpOpenSessionResponse, types.PayloadTypeRAKPMessage2, types.PayloadTypeRAKPMessage4}, l.kind) {
			return
		}
		l.before(b)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		if got, err := newAgent(t, user, password, b.addr).Status(ctx, node); err == nil && l.kind != types.PayloadTypeIPMI {
			t.Errorf("a login that was answered with %x reads %v", payload, got)
		}
	})
}
