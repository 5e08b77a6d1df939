package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// A request is repeated until it is answered, so often at most where no ctx ends
// it earlier. A step of the login is repeated later: a BMC may choose a new
// random number for each copy, and a login with two of them fails.
const (
	resendAfter      = time.Second
	resendLoginAfter = 2 * time.Second
	resends          = 9
)

// suites are tried in order: 17 (SHA-256) is the stronger one, 3 (SHA-1) what BMCs have
// that lack it. Suites without authentication are not here.
var suites = []types.CipherSuiteID{types.CipherSuiteID17, types.CipherSuiteID3}

// session is one login at one BMC.
type session struct {
	bmc    string
	client *client.Client
	wire   *wire
}

var (
	// errPrivilege is returned where the BMC grants the user less than was asked for.
	errPrivilege = errors.New("privilege refused")
	// errOtherAlgorithms is returned where the BMC answered a login with other algorithms than were
	// proposed.
	errOtherAlgorithms = errors.New("weaker or other algorithms")
)

// login opens a session with the first cipher suite that the BMC takes. The
// session ends with ctx at the latest.
//
// The next suite is tried only where the BMC says that this one is not to be had, or not
// with the privilege that is needed: each suite has a limit of its own. A wrong password
// is not tried again, since the BMC counts it and may lock the user out.
func login(ctx context.Context, bmc string, user credentials, level types.PrivilegeLevel) (*session, error) {
	var refused error
	for _, suite := range suites {
		s, err := open(ctx, bmc, user, level, suite)
		if err == nil || !suiteRefused(err) && !lacksPrivilege(err) {
			return s, err
		}
		if refused == nil || lacksPrivilege(err) {
			refused = err
		}
	}
	if lacksPrivilege(refused) {
		return nil, refused
	}
	return nil, fmt.Errorf("it takes neither cipher suite 17 nor 3: %w", refused)
}

func open(ctx context.Context, bmc string, user credentials, level types.PrivilegeLevel, suite types.CipherSuiteID) (_ *session, err error) {
	host, port, _ := net.SplitHostPort(bmc)
	number, _ := strconv.Atoi(port)
	c, err := client.NewClient(host, number, user.name, user.password)
	if err != nil {
		return nil, err
	}
	w := newWire(ctx, bmc, user, suite)
	c.WithUDPProxy(w).WithTimeout(resendLoginAfter).WithRetry(resends).
		WithCipherSuiteID(suite).WithMaxPrivilegeLevel(level)
	s := &session{bmc: bmc, client: c, wire: w}
	defer func() {
		if err != nil {
			err = w.blame(err)
			w.end()
		}
	}()
	// Not client.Connect: it leaves a goroutine that keeps the session alive,
	// and its errors do not tell a wrong password from a missing user.
	opened, err := c.OpenSession(ctx)
	if err != nil {
		return nil, err
	}
	if got := suiteOf(opened.AuthAlg, opened.IntegrityAlg, opened.CryptAlg); got != suite {
		return nil, fmt.Errorf("it answered a login with cipher suite %d with %w", suite, errOtherAlgorithms)
	}
	if _, err := c.RAKPMessage1(ctx); err != nil {
		return nil, err
	}
	if _, err := c.RAKPMessage3(ctx); err != nil {
		return nil, err
	}
	if err := w.activate(); err != nil {
		return nil, err
	}
	c.WithTimeout(resendAfter)
	if level == toRead {
		return s, nil // where each session begins
	}
	granted, err := c.SetSessionPrivilegeLevel(ctx, level)
	if err != nil {
		s.logout(ctx)
		return nil, fmt.Errorf("privilege level %s: %w", level, err)
	}
	if types.PrivilegeLevel(granted.PrivilegeLevel&0x0f) < level {
		s.logout(ctx)
		return nil, fmt.Errorf("%w: %s was granted, %s is needed", errPrivilege, types.PrivilegeLevel(granted.PrivilegeLevel&0x0f), level)
	}
	return s, nil
}

// logout frees the session at the BMC, which has few, and closes the socket. A
// BMC that does not answer is not waited for: it drops the session by itself.
func (s *session) logout(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resendAfter)
	defer cancel()
	_ = s.client.Close(ctx)
	s.wire.end()
}

// suiteRefused tells whether the BMC does not have these algorithms (IPMI 2.0, table 13-15).
func suiteRefused(err error) bool {
	if errors.Is(err, errOtherAlgorithms) {
		return true
	}
	var status *types.RmcpStatusError
	return errors.As(err, &status) && slices.Contains([]types.RmcpStatusCode{
		types.RmcpStatusCodeInvalidAuthAlg, types.RmcpStatusCodeInvalidIntegrityAlg,
		types.RmcpStatusCodeNoMatchingAuthPayload, types.RmcpStatusCodeNoMatchingIntegrityPayload,
		types.RmcpStatusCodeInvalidConfidentAlg, types.RmcpStatusCodeNoCipherSuiteMatch,
	}, status.StatusCode())
}

// suiteOf is the one of our suites that has these algorithms; 0 is none of them.
func suiteOf(auth, integrity, crypt uint8) types.CipherSuiteID {
	for _, suite := range suites {
		a, i, c, _ := types.GetCipherSuiteAlgorithms(suite)
		if uint8(a) == auth && uint8(i) == integrity && uint8(c) == crypt {
			return suite
		}
	}
	return 0
}

// code is the completion code with which a BMC refused a command; CodeOK where
// it is another error, or none.
func code(err error) types.CompletionCode {
	if refused, ok := types.IsResponseError(err); ok {
		return refused.CompletionCode()
	}
	return types.CodeOK
}
