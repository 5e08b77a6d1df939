package ipmi

import (
	"context"
	"fmt"
	"strings"

	"github.com/bougou/go-ipmi/pkg/command/chassis"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// power reads the chassis status.
func (s *session) power(ctx context.Context) (agent.Reading, error) {
	status, err := s.client.GetChassisStatus(ctx)
	if err != nil {
		return agent.Reading{}, fmt.Errorf("chassis status: %w", err)
	}
	return judge(status), nil
}

// judge is the reading that a status gives. A fault says that the BMC's own picture of the power
// may be wrong, so that off is not believed; on is what a dead power supply of two leaves. The
// interlock and the overload are reasons to be off, so that with power on they contradict it.
func judge(status *chassis.GetChassisStatusResponse) agent.Reading {
	state, word := agent.Off, "off"
	if status.PowerIsOn {
		state, word = agent.On, "on"
	}
	var doubts []string
	for _, doubt := range []struct {
		is   bool
		text string
	}{
		{!status.PowerIsOn && status.PowerControlFault, "power control fault: a command did not have its effect"},
		{!status.PowerIsOn && status.PowerFault, "power fault"},
		{status.PowerIsOn && status.InterLock, "yet shut down by its interlock"},
		{status.PowerIsOn && status.PowerOverload, "yet shut down by an overload"},
	} {
		if doubt.is {
			doubts = append(doubts, doubt.text)
		}
	}
	if len(doubts) > 0 {
		state, word = agent.Unclear, word+", "+strings.Join(doubts, ", ")
	}
	return agent.Reading{State: state, Detail: "chassis power is " + word}
}
