package bed

import (
	"fmt"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/bmc"
)

const (
	bmcUser     = "admin"
	bmcPassword = "s3cret-of-the-bmc"
)

// BMC is the machine's own, which knows the machine's UUID and switches its
// power. It is made at the first call.
func (n *Node) BMC() *bmc.BMC {
	n.stage.T.Helper()
	if n.bmc == nil {
		n.bmc = n.stage.StartBMC(n.kube.SystemUUID(), n.hardware)
	}
	return n.bmc
}

// StartBMC starts a BMC for a machine with that system UUID, with the user and the
// password that IPMI knows. It ends with the stage.
func (s *Stage) StartBMC(systemUUID string, power bmc.PowerSwitch) *bmc.BMC {
	s.T.Helper()
	return s.startBMC(bmc.Options{GUID: systemUUID, Power: power})
}

func (s *Stage) startBMC(o bmc.Options) *bmc.BMC {
	s.T.Helper()
	o.User, o.Password = bmcUser, bmcPassword
	b, err := bmc.Start(s.ctx(), s.folder, o)
	s.must("BMC", err)
	s.T.Cleanup(b.Stop)
	return b
}

// IPMI is the configuration of an agent that knows the BMCs of all nodes, as a
// YAML flow mapping: "ipmi: " and this.
func (s *Stage) IPMI() string {
	s.T.Helper()
	var nodes []string
	for _, n := range s.Nodes {
		nodes = append(nodes, fmt.Sprintf("%s: %q", n.Name, n.BMC().Addr))
	}
	return s.IPMIOf(nodes)
}

// IPMIOf is IPMI for BMCs of StartBMC, each as "node: address".
func (s *Stage) IPMIOf(nodes []string) string {
	s.T.Helper()
	user, password := s.Write("bmc-user", bmcUser+"\n", 0o600), s.Write("bmc-password", bmcPassword+"\n", 0o600)
	return fmt.Sprintf("{usernameFile: %s, passwordFile: %s, nodes: {%s}}", user, password, strings.Join(nodes, ", "))
}
