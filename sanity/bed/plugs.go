package bed

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// agentScript keeps the fence-agents contract. Its parts are the agent's name, shell
// code before the parameters are read, what is done then with $action, $plug and
// $password, and 1 for an agent that cuts off disks, so that a node has to be let in at its boot.
const agentScript = `#!/bin/sh
if [ "$1" = -o ]; then cat <<'END'
<?xml version="1.0" ?>
<resource-agent name="%[1]s" shortdesc="a fence agent of a stage">
<parameters>
<parameter name="action" unique="0" required="1"><getopt mixed="-o, --action=[action]" /><content type="string" default="reboot" /></parameter>
<parameter name="plug" unique="0" required="1"><getopt mixed="-n, --plug=[id]" /><content type="string" /></parameter>
<parameter name="password" unique="0" required="0"><getopt mixed="-p, --password=[password]" /><content type="string" /></parameter>
</parameters>
<actions><action name="on" automatic="%[4]d"/><action name="off"/><action name="status"/><action name="metadata"/></actions>
</resource-agent>
END
exit 0; fi
%[2]swhile IFS='=' read -r key value || [ -n "$key" ]; do
  case $key in action) action=$value ;; plug) plug=$value ;; password) password=$value ;; esac
done
%[3]s`

// agent writes a fence agent and has csi-fencepost allow its folder. Call it before
// csi-fencepost is started.
func (s *Stage) agent(name, before, then string) {
	s.T.Helper()
	disks := 0
	if name == "fence_brocade" {
		disks = 1
	}
	folder := s.socket("agents")
	s.must("folder of agents", os.MkdirAll(folder, 0o755))
	s.must(name, os.WriteFile(filepath.Join(folder, name), fmt.Appendf(nil, agentScript, name, before, then, disks), 0o755))
	if allow := "--agent-dirs=" + folder; !slices.Contains(s.Options.FencepostArgs, allow) {
		s.Options.FencepostArgs = append(s.Options.FencepostArgs, allow)
	}
}

const plugThen = `test "$action" = status && echo read >>'%[1]s'/".reads-$plug"
state=$(cat '%[1]s'/"$plug" 2>/dev/null) || { echo "login <refused> for $password" >&2; exit 1; }
case $action in
status) echo "Status: $state"; test "$state" = ON || exit 2 ;;
off|on) echo "$action" | tr a-z A-Z >'%[1]s'/".$plug-$$" && mv '%[1]s'/".$plug-$$" '%[1]s'/"$plug" ;;
esac
`

// Plugs are a power switch of files, or with fence_brocade the switch of a storage network: a
// plug, or port, is on or off while a file of its name says so. For a plug without one the switch does not answer, and its agents quote
// the password that they were given.
type Plugs struct{ folder string }

// Plugs makes the switch and fence agents of these names for it: "exec: {agent:
// NAME, nodeParameters: {plug: …}}". Call it before csi-fencepost is started.
func (s *Stage) Plugs(agents ...string) Plugs {
	s.T.Helper()
	p := Plugs{s.socket("plugs")}
	s.must("folder of plugs", os.MkdirAll(p.folder, 0o755))
	for _, name := range agents {
		s.agent(name, "", fmt.Sprintf(plugThen, p.folder))
	}
	return p
}

// Reads counts how often agents have asked whether the plug is on.
func (p Plugs) Reads(plug string) (int, error) {
	text, err := os.ReadFile(filepath.Join(p.folder, ".reads-"+plug))
	if os.IsNotExist(err) {
		return 0, nil
	}
	return strings.Count(string(text), "\n"), err
}

// On tells whether the plug is on.
func (p Plugs) On(plug string) (bool, error) {
	state, err := os.ReadFile(filepath.Join(p.folder, plug))
	return string(state) == "ON\n", err
}

// Set turns a plug on or off.
func (p Plugs) Set(plug string, on bool) error {
	state := "OFF"
	if on {
		state = "ON"
	}
	return tool.WriteWhole(filepath.Join(p.folder, plug), []byte(state+"\n"), 0o644)
}
