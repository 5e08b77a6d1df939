package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// explain says in a person's words what is wrong and where to look. The error
// below it stays in the chain.
func explain(ctx context.Context, user credentials, err error) error {
	if ended := over(ctx); ended != nil {
		return fmt.Errorf("it did not answer in time (%w)", ended)
	}
	if text := refusal(user, err); text != "" {
		return fmt.Errorf("%s: %w", text, err)
	}
	if text := network(err); text != "" {
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}

// refusal is what the BMC has against the user.
func refusal(user credentials, err error) string {
	var status *types.RmcpStatusError
	var rmcp types.RmcpStatusCode
	if errors.As(err, &status) {
		rmcp = status.StatusCode()
	}
	switch {
	case errors.Is(err, client.ErrRAKPAuthentication), rmcp == types.RmcpStatusCodeInvalidIntegrityCheckValue:
		return fmt.Sprintf("wrong password in %s for the user in %s (or the BMC does not have that user)", user.passwordFile, user.nameFile)
	case rmcp == types.RmcpStatusCodeUnauthorizedName, rmcp == types.RmcpStatusCodeInvalidNameLength:
		return fmt.Sprintf("no such user, or it is disabled: the one in %s", user.nameFile)
	case lacksPrivilege(err):
		return fmt.Sprintf("no privilege: the user in %s needs privilege level OPERATOR to switch power, USER to read it", user.nameFile)
	case rmcp == types.RmcpStatusCodeNoResToCreateSess, rmcp == types.RmcpStatusCodeNoResToCreateSessAtRole:
		return "it has no free session: others are logged in, or were and did not log out"
	}
	return ""
}

func lacksPrivilege(err error) bool {
	if errors.Is(err, errPrivilege) {
		return true
	}
	var status *types.RmcpStatusError
	if errors.As(err, &status) {
		switch status.StatusCode() {
		case types.RmcpStatusCodeInvalidRole, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel:
			return true
		}
	}
	switch code(err) {
	case types.CodeInsufficientPrivilege,
		types.CodeSetSessionPrivilegeLevelLevelNotAvailable, types.CodeSetSessionPrivilegeLevelExceedsLimit:
		return true
	}
	return false
}

// network is what keeps us from the BMC.
func network(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("host %s is not known to DNS", dns.Name)
	case errors.As(err, &dns):
		return "DNS did not answer"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: nothing listens on that UDP port (is IPMI over LAN switched on?)"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable from here"
	case errors.Is(err, errNoAnswer):
		return fmt.Sprintf("it did not answer %d times", resends+1)
	}
	return ""
}
