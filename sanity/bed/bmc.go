package bed

import (
	"fmt"
	"os"
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
		b, err := bmc.Start(n.stage.ctx(), n.stage.folder, bmc.Options{GUID: n.kube.SystemUUID(), User: bmcUser, Password: bmcPassword, Power: n.hardware})
		n.stage.must("BMC of "+n.Name, err)
		n.stage.T.Cleanup(b.Stop)
		n.bmc = b
	}
	return n.bmc
}

// IPMI is the configuration of an agent that knows the BMCs of all nodes, as a
// YAML flow mapping: "ipmi: " and this.
func (s *Stage) IPMI() string {
	s.T.Helper()
	user, password := s.socket("bmc-user"), s.socket("bmc-password")
	s.must("credentials", os.WriteFile(user, []byte(bmcUser+"\n"), 0o600))
	s.must("credentials", os.WriteFile(password, []byte(bmcPassword+"\n"), 0o600))
	var nodes []string
	for _, n := range s.Nodes {
		nodes = append(nodes, fmt.Sprintf("%s: %q", n.Name, n.BMC().Addr))
	}
	return fmt.Sprintf("{usernameFile: %s, passwordFile: %s, nodes: {%s}}", user, password, strings.Join(nodes, ", "))
}
