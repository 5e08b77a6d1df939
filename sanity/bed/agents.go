package bed

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

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

// anotherBMC knows the machine's UUID as its own does.
func (n *Node) anotherBMC(power bmc.PowerSwitch) *bmc.BMC {
	n.stage.T.Helper()
	b, err := bmc.Start(n.stage.ctx(), n.stage.folder, bmc.Options{GUID: n.kube.SystemUUID(), User: bmcUser, Password: bmcPassword, Power: power})
	n.stage.must("another BMC of "+n.Name, err)
	n.stage.T.Cleanup(b.Stop)
	return b
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

// shellAgent keeps the fence-agents contract. It notes each off in a file before
// and after, and does an off without any contract when called as: NAME now PORT.
const shellAgent = `#!/bin/sh
if [ "$1" = -o ]; then cat <<'END'
<?xml version="1.0" ?>
<resource-agent name="%[1]s" shortdesc="a fence agent that takes its time">
<parameters>
<parameter name="action" unique="0" required="1"><getopt mixed="-o, --action=[action]" /><content type="string" default="reboot" /></parameter>
<parameter name="plug" unique="0" required="1"><getopt mixed="-n, --plug=[id]" /><content type="string" /></parameter>
</parameters>
<actions><action name="on" automatic="0"/><action name="off"/><action name="status"/><action name="metadata"/></actions>
</resource-agent>
END
exit 0; fi
note() { echo "$1" >>'%[2]s'; }
power() { ipmitool -I lanplus -C 3 -H 127.0.0.1 -p "$plug" -U '%[3]s' -f '%[4]s' chassis power "$1"; }
if [ "$1" = now ]; then plug=$2; power off; note late; exit; fi
while IFS='=' read -r key value || [ -n "$key" ]; do
  case $key in action) action=$value ;; plug) plug=$value ;; esac
done
case $action in
status)
  case $(power status) in
  *" is on") echo "Status: ON"; exit 0 ;;
  *" is off") echo "Status: OFF"; exit 2 ;;
  esac
  exit 1 ;;
off) note off; %[5]s
  power off || exit 1
  note done ;;
on) power on || exit 1 ;;
*) exit 1 ;;
esac
`

// ShellAgent writes a fence agent that switches the machines through their BMCs,
// has csi-fencepost allow its folder, and returns its configuration: "exec: " and
// this. It needs the files of IPMI, which it makes. beforeOff is shell code that
// runs before each off is sent, in which $plug is the machine's, and "$0" now
// "$plug" switches it off.
func (s *Stage) ShellAgent(name, beforeOff string) string {
	s.T.Helper()
	s.IPMI()
	folder := s.socket("agents")
	s.must("folder of agents", os.MkdirAll(folder, 0o755))
	text := fmt.Sprintf(shellAgent, name, s.socket(name+".calls"), bmcUser, s.socket("bmc-password"), beforeOff)
	s.must(name, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755))
	s.Options.FencepostArgs = append(s.Options.FencepostArgs, "--agent-dirs="+folder)
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
