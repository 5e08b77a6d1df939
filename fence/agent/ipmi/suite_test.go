package ipmi

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	ipmiserver "github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// logins are what a BMC saw of logins: the cipher suites that were proposed to it, and how
// often it was shown a proof of the password, which is what it counts before it locks a user
// out.
type logins struct {
	mu     sync.Mutex
	suites []types.CipherSuiteID
	proofs int
}

// watch counts the logins on l.
func (seen *logins) watch(l *lan) {
	l.set(func() {
		l.toBMC = func(packet []byte) [][]byte {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			switch kind, payload := open20(packet); kind {
			case types.PayloadTypeRmcpOpenSessionRequest:
				seen.suites = append(seen.suites, suiteOf(payload[12], payload[20], payload[28]))
			case types.PayloadTypeRAKPMessage3:
				if payload[1] == byte(types.RmcpStatusCodeNoErrors) {
					seen.proofs++
				}
			}
			return [][]byte{packet}
		}
	})
}

func (seen *logins) expect(t *testing.T, what string, proofs int, suites ...types.CipherSuiteID) {
	t.Helper()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if !slices.Equal(seen.suites, suites) || seen.proofs != proofs {
		t.Errorf("%s: suites %v were proposed and the password proven %d times; expected %v, %d times", what, seen.suites, seen.proofs, suites, proofs)
	}
}

const suite17, suite3 = types.CipherSuiteID17, types.CipherSuiteID3

func only(suite types.CipherSuiteID) ipmiserver.ServerOption {
	return ipmiserver.WithCipherSuites([]types.CipherSuiteID{suite})
}

// answerTo changes each answer of that kind that comes after a login with the suite was begun.
func answerTo(l *lan, suite types.CipherSuiteID, kind types.PayloadType, change func(payload []byte) []byte) {
	var begun types.CipherSuiteID
	var mu sync.Mutex
	l.set(func() {
		counted := l.toBMC
		l.toBMC = func(packet []byte) [][]byte {
			if kind, payload := open20(packet); kind == types.PayloadTypeRmcpOpenSessionRequest {
				mu.Lock()
				begun = suiteOf(payload[12], payload[20], payload[28])
				mu.Unlock()
			}
			return counted(packet)
		}
		l.toUs = func(packet []byte) [][]byte {
			mu.Lock()
			defer mu.Unlock()
			if got, payload := open20(packet); got == kind && begun == suite {
				payload = change(bytes.Clone(payload))
				packet = append(packet[:headerLength:headerLength], payload...)
				packet[14], packet[15] = byte(len(payload)), 0
			}
			return [][]byte{packet}
		}
	})
}

// saying is an answer of RMCP+ that refuses with a status (IPMI 2.0, tables 13-10 and 13-12).
func saying(status types.RmcpStatusCode) func([]byte) []byte {
	return func(payload []byte) []byte { return append([]byte{payload[0], byte(status)}, payload[2:8]...) }
}

func TestSuite17IsProposedFirst(t *testing.T) {
	l := newLAN(t, ipmiserver.WithCipherSuites([]types.CipherSuiteID{suite3, suite17}))
	var seen logins
	seen.watch(l)
	if got := read(t, newAgent(t, user, password, l.addr)); got.State != agent.On {
		t.Errorf("%v", got)
	}
	seen.expect(t, "a BMC that has both", 1, suite17)
}

func TestABMCWithOneSuiteIsReachedWithIt(t *testing.T) {
	for suite, proposed := range map[types.CipherSuiteID][]types.CipherSuiteID{suite17: {suite17}, suite3: {suite17, suite3}} {
		l := newLAN(t, only(suite))
		var seen logins
		seen.watch(l)
		a := newAgent(t, user, password, l.addr)
		if got := read(t, a); got.State != agent.On {
			t.Errorf("%v", got)
		}
		seen.expect(t, "a login", 1, proposed...)
		if _, err := a.Off(within(t, 10*time.Second), node); err != nil {
			t.Error(err)
		}
	}
}

func TestSuite3IsProposedWhereTheBMCSaysThatItLacks17(t *testing.T) {
	otherwise := func(payload []byte) []byte {
		payload[16], payload[24] = 1, 1 // the algorithms of suite 3, whatever was proposed
		return payload
	}
	for what, test := range map[string]struct {
		kind   types.PayloadType
		answer func([]byte) []byte
	}{
		"invalid authentication algorithm":  {types.PayloadTypeRmcpOpenSessionResponse, saying(0x04)},
		"invalid integrity algorithm":       {types.PayloadTypeRmcpOpenSessionResponse, saying(0x05)},
		"no matching authentication":        {types.PayloadTypeRmcpOpenSessionResponse, saying(0x06)},
		"no matching integrity":             {types.PayloadTypeRmcpOpenSessionResponse, saying(0x07)},
		"invalid confidentiality algorithm": {types.PayloadTypeRmcpOpenSessionResponse, saying(0x10)},
		"no cipher suite match":             {types.PayloadTypeRmcpOpenSessionResponse, saying(0x11)},
		"cut short after the status":        {types.PayloadTypeRmcpOpenSessionResponse, func(payload []byte) []byte { return []byte{payload[0], 0x11} }},
		"other algorithms":                  {types.PayloadTypeRmcpOpenSessionResponse, otherwise},
		// Each suite has a limit of its own for the privilege of its sessions (IPMI 2.0, table
		// 22-17), and some BMCs have suite 17 and allow it nothing.
		"invalid role":                     {types.PayloadTypeRmcpOpenSessionResponse, saying(0x09)},
		"unauthorized role":                {types.PayloadTypeRmcpOpenSessionResponse, saying(0x0a)},
		"unauthorized role, once it knows": {types.PayloadTypeRAKPMessage2, saying(0x0a)},
	} {
		l := newLAN(t)
		var seen logins
		seen.watch(l)
		answerTo(l, suite17, test.kind, test.answer)
		if got := read(t, newAgent(t, user, password, l.addr)); got.State != agent.On {
			t.Errorf("%s: %v", what, got)
		}
		seen.expect(t, what, 1, suite17, suite3)
	}
}

// A BMC counts failed logins and locks the user out: a second try with another suite would
// count twice.
func TestAWrongPasswordIsTriedOnce(t *testing.T) {
	for what, option := range map[string]ipmiserver.ServerOption{"has both": ipmiserver.WithCipherSuites([]types.CipherSuiteID{suite3, suite17}), "has 17": only(suite17)} {
		l := newLAN(t, option)
		var seen logins
		seen.watch(l)
		_, err := newAgent(t, user, "wrong", l.addr).Status(within(t, 10*time.Second), node)
		refused(t, err, "wrong password")
		seen.expect(t, what, 0, suite17) // the BMC's own answer shows that the password is wrong
	}
}

func TestWhatIsNotAboutTheSuiteEndsTheLogin(t *testing.T) {
	for _, test := range []struct {
		kind   types.PayloadType
		status types.RmcpStatusCode
		proofs int
		words  string
	}{
		{types.PayloadTypeRmcpOpenSessionResponse, types.RmcpStatusCodeNoResToCreateSess, 0, "no free session"},
		{types.PayloadTypeRAKPMessage2, types.RmcpStatusCodeUnauthorizedName, 0, "no such user"},
		{types.PayloadTypeRAKPMessage4, types.RmcpStatusCodeInvalidIntegrityCheckValue, 1, "wrong password"},
	} {
		l := newLAN(t)
		var seen logins
		seen.watch(l)
		answerTo(l, suite17, test.kind, saying(test.status))
		_, err := newAgent(t, user, password, l.addr).Status(within(t, 10*time.Second), node)
		refused(t, err, test.words)
		seen.expect(t, test.words, test.proofs, suite17)
	}
}

func TestABMCThatTakesNoSuiteIsNamed(t *testing.T) {
	l := newLAN(t)
	refuseAll := func(packet []byte) [][]byte {
		if kind, payload := open20(packet); kind == types.PayloadTypeRmcpOpenSessionResponse {
			payload = saying(types.RmcpStatusCodeNoCipherSuiteMatch)(payload)
			packet = append(packet[:headerLength:headerLength], payload...)
			packet[14], packet[15] = byte(len(payload)), 0
		}
		return [][]byte{packet}
	}
	l.set(func() { l.toUs = refuseAll })
	_, err := newAgent(t, user, password, l.addr).Status(within(t, 10*time.Second), node)
	refused(t, err, "neither cipher suite 17 nor 3")
}

// What the BMC has against the user is told, not that it lacks the other suite.
func TestALackOfPrivilegeIsSaidThoughTheBMCHasOneSuite(t *testing.T) {
	for _, suite := range []types.CipherSuiteID{suite17, suite3} {
		l := newLAN(t, only(suite))
		l.set(func() { l.level = types.CodeSetSessionPrivilegeLevelExceedsLimit })
		_, err := newAgent(t, user, password, l.addr).Off(within(t, 10*time.Second), node)
		refused(t, err, "no privilege", "OPERATOR")
	}
}
