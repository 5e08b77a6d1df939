package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

const (
	user, password = "admin", "s3cret-of-the-bmc"
	agentName      = "fence_soak"
)

// program keeps the fence-agents contract: a machine is on while it has a file.
const program = `#!/bin/sh
if [ "$1" = -o ]; then cat <<'END'
<?xml version="1.0" ?>
<resource-agent name="fence_soak" shortdesc="reads the power from files">
<parameters>
<parameter name="action" unique="0" required="1"><getopt mixed="-o, --action=[action]" /><content type="string" default="reboot" /></parameter>
<parameter name="plug" unique="0" required="1"><getopt mixed="-n, --plug=[id]" /><content type="string" /></parameter>
</parameters>
<actions><action name="on" automatic="0"/><action name="off"/><action name="status"/><action name="metadata"/></actions>
</resource-agent>
END
exit 0; fi
while IFS='=' read -r key value || [ -n "$key" ]; do
  case $key in action) action=$value ;; plug) plug=$value ;; esac
done
[ "$action" = status ] || exit 1
if [ -e "$plug" ]; then echo "Status: ON"; exit 0; fi
echo "Status: OFF"; exit 2
`

// agents are the two kinds of fence agents that every machine which may lose power
// has: a BMC, and a program.
type agents struct {
	t                  bed.T
	folder             string // of the program, and of the files that it reads
	userFile, passFile string
	bmcs               map[*machine]*bmc.BMC
}

func newAgents(t bed.T, write func(name, content string, mode os.FileMode) string, folder string) (*agents, error) {
	a := &agents{t: t, folder: filepath.Join(folder, "agents"), bmcs: map[*machine]*bmc.BMC{},
		userFile: write("bmc-user", user+"\n", 0o600), passFile: write("bmc-password", password+"\n", 0o600)}
	if err := os.Mkdir(a.folder, 0o755); err != nil {
		return nil, err
	}
	return a, os.WriteFile(filepath.Join(a.folder, agentName), []byte(program), 0o755)
}

func (a *agents) add(ctx context.Context, m *machine) error {
	b, err := bmc.Start(ctx, a.folder, bmc.Options{GUID: m.uuid, User: user, Password: password, Power: m})
	if err != nil {
		return err
	}
	a.t.Cleanup(b.Stop)
	a.bmcs[m] = b
	return a.tell(m, true)
}

// tell the program of a machine's power.
func (a *agents) tell(m *machine, on bool) error {
	if on {
		return os.WriteFile(a.plug(m), nil, 0o644)
	}
	return os.Remove(a.plug(m))
}

func (a *agents) plug(m *machine) string { return filepath.Join(a.folder, m.name+".on") }

// levels is the configuration: both agents have to confirm.
func (a *agents) levels(all []*machine) string {
	var nodes, plugs []string
	for _, m := range all {
		if b := a.bmcs[m]; b != nil {
			nodes = append(nodes, fmt.Sprintf("%s: %q", m.name, b.Addr))
			plugs = append(plugs, fmt.Sprintf("%s: %q", m.name, a.plug(m)))
		}
	}
	return fmt.Sprintf("[{agents: [{name: bmc, timeout: 10s, attempts: 2, ipmi: {usernameFile: %s, passwordFile: %s, nodes: {%s}}}, "+
		"{name: program, timeout: 10s, attempts: 2, exec: {agent: %s, nodeParameters: {plug: {%s}}}}]}]",
		a.userFile, a.passFile, strings.Join(nodes, ", "), agentName, strings.Join(plugs, ", "))
}
