package bed

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

// StuckBMC gives the machine a BMC that says "on" for ever and takes every
// command without doing it. Call it before BMC.
func (n *Node) StuckBMC() *bmc.BMC {
	n.stage.T.Helper()
	n.bmc = n.anotherBMC(bmc.NewMachine(true))
	n.bmc.IgnorePower(true)
	return n.bmc
}

// OtherMachineAtBMC has another machine's BMC answer at the address of this one's, to
// the same credentials: addresses outlive machines. That machine has power or not.
func (n *Node) OtherMachineAtBMC(on bool) {
	n.stage.T.Helper()
	_, text, err := net.SplitHostPort(n.BMC().Addr)
	n.stage.must("address of the BMC of "+n.Name, err)
	port, err := strconv.Atoi(text)
	n.stage.must("port of the BMC of "+n.Name, err)
	n.bmc.Stop()
	n.bmc = n.stage.startBMC(bmc.Options{GUID: string(uuid.NewUUID()), Power: bmc.NewMachine(on), Port: port})
}

// anotherBMC knows the machine's UUID as its own does.
func (n *Node) anotherBMC(power bmc.PowerSwitch) *bmc.BMC {
	n.stage.T.Helper()
	return n.stage.StartBMC(n.kube.SystemUUID(), power)
}

// FenceIPMILAN is the configuration of Debian's fence_ipmilan with a second BMC
// for each machine: "exec: " and this. It needs the files of IPMI.
func (s *Stage) FenceIPMILAN() string {
	s.T.Helper()
	ports := s.ports(func(n *Node) *bmc.BMC { return n.anotherBMC(n.hardware) })
	return fmt.Sprintf(`{agent: fence_ipmilan, parameters: {ip: 127.0.0.1, lanplus: "1", cipher: "3", username: %s, power_timeout: "6"}, `+
		`parameterFiles: {password: %s}, nodeParameters: {ipport: %s}}`, bmcUser, s.socket("bmc-password"), ports)
}

// ports is a YAML flow mapping from the nodes' names to their BMCs' ports.
func (s *Stage) ports(of func(*Node) *bmc.BMC) string {
	s.T.Helper()
	var nodes []string
	for _, n := range s.Nodes {
		_, port, err := net.SplitHostPort(of(n).Addr)
		s.must("address of the BMC of "+n.Name, err)
		nodes = append(nodes, fmt.Sprintf("%s: %q", n.Name, port))
	}
	return "{" + strings.Join(nodes, ", ") + "}"
}

// shellBefore and shellThen note each off in a file before and after; called as NAME
// now PORT the agent does an off without any contract.
const (
	shellBefore = `note() { echo "$1" >>'%[1]s'; }
power() { ipmitool -I lanplus -C 3 -H 127.0.0.1 -p "$plug" -U '%[2]s' -f '%[3]s' chassis power "$1"; }
if [ "$1" = now ]; then plug=$2; power off; note late; exit; fi
`
	shellThen = `case $action in
status)
  case $(power status) in
  *" is on") echo "Status: ON"; exit 0 ;;
  *" is off") echo "Status: OFF"; exit 2 ;;
  esac
  exit 1 ;;
off) note off; %s
  power off || exit 1
  note done ;;
on) power on || exit 1 ;;
*) exit 1 ;;
esac
`
)

// ShellAgent writes a fence agent that switches the machines through their BMCs,
// has csi-fencepost allow its folder, and returns its configuration: "exec: " and
// this. It needs the files of IPMI, which it makes. beforeOff is shell code that
// runs before each off is sent, in which $plug is the machine's, and "$0" now
// "$plug" switches it off.
func (s *Stage) ShellAgent(name, beforeOff string) string {
	s.T.Helper()
	s.IPMI()
	s.agent(name, fmt.Sprintf(shellBefore, s.socket(name+".calls"), bmcUser, s.socket("bmc-password")), fmt.Sprintf(shellThen, beforeOff))
	return fmt.Sprintf("{agent: %s, nodeParameters: {plug: %s}}", name, s.ports((*Node).BMC))
}

// AgentNotes counts what a ShellAgent noted: "off" when one was asked for,
// "done" when one was sent, "late" for those past the contract.
func (s *Stage) AgentNotes(agent, word string) int {
	s.T.Helper()
	text, err := os.ReadFile(s.socket(agent + ".calls"))
	if !os.IsNotExist(err) {
		s.must("notes of "+agent, err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == word {
			count++
		}
	}
	return count
}
