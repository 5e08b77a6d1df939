package ipmi

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"
)

// wire is the one socket of one call. It gives the IPMI library four properties
// that it lacks: nothing is sent once the call's ctx has ended, an answer that does
// not carry the session's integrity code is not seen, nor one that cannot be
// decrypted, by which it would panic in a goroutine of its own, and a login's
// refusal that is cut short is understood.
type wire struct {
	net.Conn

	ctx   context.Context
	bmc   string
	user  credentials
	suite types.CipherSuiteID
	// release stops watching ctx.
	release func() bool

	mu sync.Mutex
	// ended tells that nothing may be sent any more.
	ended bool
	// expected is the payload type of the answer that is waited for.
	expected types.PayloadType
	// unanswered tells that something was sent and no answer has come since.
	unanswered bool
	// What the session's integrity key is made of, as it passed by.
	consoleRand, bmcRand []byte
	role                 byte
	// key is the integrity key (K1), and cipherKey that of the payloads (K2); nil until the session is active.
	key, cipherKey []byte
}

// errNoAnswer is returned where the BMC did not answer the last request.
var errNoAnswer = errors.New("no answer")

func newWire(ctx context.Context, bmc string, user credentials, suite types.CipherSuiteID) *wire {
	w := &wire{ctx: ctx, bmc: bmc, user: user, suite: suite}
	w.mu.Lock() // ctx may end at any time
	defer w.mu.Unlock()
	w.release = context.AfterFunc(ctx, w.end)
	return w
}

// Dial opens the socket; the library calls it, once.
func (w *wire) Dial(_, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(w.ctx, "udp", w.bmc)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.Conn != nil {
		conn.Close()
		return nil, fmt.Errorf("a second socket in one call: %w", net.ErrClosed)
	}
	w.Conn = conn
	return w, nil
}

// end closes the socket, for good.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.release()
	if !w.ended && w.Conn != nil {
		w.Conn.Close()
	}
	w.ended = true
}

// Close is the library's way to end.
func (w *wire) Close() error {
	w.end()
	return nil
}

// Write sends one packet, unless the call has ended.
func (w *wire) Write(packet []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || over(w.ctx) != nil {
		return 0, net.ErrClosed
	}
	w.sending(packet)
	return w.Conn.Write(packet)
}

// sending notes which answer belongs to the packet. In a login each payload type
// has its own, so that a late answer to a repeated request is not taken for the
// answer to the next.
func (w *wire) sending(packet []byte) {
	w.unanswered = true
	w.expected = types.PayloadTypeIPMI
	switch kind, payload := open20(packet); kind {
	case types.PayloadTypeRmcpOpenSessionRequest:
		w.expected = types.PayloadTypeRmcpOpenSessionResponse
	case types.PayloadTypeRAKPMessage1:
		w.expected = types.PayloadTypeRAKPMessage2
		if len(payload) > 24 {
			w.consoleRand, w.role = bytes.Clone(payload[8:24]), payload[24]
		}
	case types.PayloadTypeRAKPMessage3:
		w.expected = types.PayloadTypeRAKPMessage4
	}
}

// Read waits for the next packet that is an answer; others are dropped.
func (w *wire) Read(buffer []byte) (int, error) {
	for {
		n, err := w.Conn.Read(buffer)
		if err != nil {
			return n, err
		}
		if w.accepts(buffer[:n]) {
			return completed(buffer, n), nil
		}
	}
}

// refusalLength is that of an answer of the login that refuses (IPMI 2.0, tables 13-10,
// 13-12 and 13-14).
const refusalLength = 8

// completed makes an answer of the login that refuses as long as it has to be, and returns
// the new length of the packet, which is buffer[:n]. OpenIPMI's BMC ends it after the
// status, and the library would not see why it was refused.
func completed(buffer []byte, n int) int {
	kind, payload := open20(buffer[:n])
	end := headerLength + refusalLength
	if kind == types.PayloadTypeIPMI || len(payload) < 2 || payload[1] == byte(types.RmcpStatusCodeNoErrors) ||
		len(payload) >= refusalLength || len(buffer) < end {
		return n
	}
	clear(buffer[headerLength+len(payload) : end])
	binary.LittleEndian.PutUint16(buffer[14:16], refusalLength)
	return end
}

func (w *wire) accepts(packet []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind, payload := open20(packet)
	switch {
	case payload == nil || kind != w.expected:
		return false
	case kind == types.PayloadTypeIPMI && !(w.genuine(packet) && w.opens(packet[5], payload)):
		return false
	case kind == types.PayloadTypeRAKPMessage2 && len(payload) >= 24:
		w.bmcRand = bytes.Clone(payload[8:24])
	}
	w.unanswered = false
	return true
}

// activate derives the session's integrity key (IPMI 2.0, 13.31 and 13.32) from
// the login that has just passed. From now on answers have to carry its code.
func (w *wire) activate() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	auth, _, _, _ := types.GetCipherSuiteAlgorithms(w.suite)
	_, key, cipherKey, err := crypto.DeriveSessionKeys(auth, w.consoleRand, w.bmcRand, w.role, w.user.name, crypto.PadPassword20([]byte(w.user.password)))
	if err != nil {
		return fmt.Errorf("the session's integrity key: %w", err)
	}
	w.key, w.cipherKey = key, cipherKey
	return nil
}

// genuine tells whether the packet's integrity code is right.
func (w *wire) genuine(packet []byte) bool {
	_, integrity, _, _ := types.GetCipherSuiteAlgorithms(w.suite)
	length, ok := crypto.IntegrityAuthCodeLen(integrity)
	if !ok || length == 0 || w.key == nil {
		return false
	}
	_, payload := open20(packet)
	start := len(packet) - length
	if start < headerLength+len(payload) {
		return false
	}
	code, err := crypto.SessionIntegrityAuthCode(integrity, packet[4:start], w.key, "")
	return err == nil && hmac.Equal(code, packet[start:])
}

// opens tells whether the payload of a packet of that type is in clear, or can be decrypted (IPMI
// 2.0, 13.29; both suites have AES-CBC-128).
func (w *wire) opens(kind byte, payload []byte) bool {
	const isEncrypted = 0x80
	if kind&isEncrypted == 0 {
		return true
	}
	if len(payload) < 2*aes.BlockSize || len(payload)%aes.BlockSize != 0 {
		return false
	}
	_, err := crypto.DecryptAESPayload(payload, w.cipherKey)
	return err == nil
}

// over is ctx's error, at its deadline already: its timer fires a moment later.
func over(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

// blame adds to an error that the BMC did not answer, if so it was.
func (w *wire) blame(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || !w.unanswered {
		return err
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// headerLength is that of RMCP and RMCP+ together (IPMI 2.0, table 13-8).
const headerLength = 16

// open20 takes an RMCP+ packet apart; no payload: it is none.
func open20(packet []byte) (types.PayloadType, []byte) {
	const classIPMI, formatRMCPPlus = 0x07, 0x06
	if len(packet) < headerLength || packet[3]&0x1f != classIPMI || packet[4] != formatRMCPPlus {
		return 0, nil
	}
	end := headerLength + int(binary.LittleEndian.Uint16(packet[14:16]))
	if end > len(packet) {
		return 0, nil
	}
	return types.PayloadType(packet[5] & 0x3f), packet[headerLength:end]
}
