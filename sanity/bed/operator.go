package bed

import (
	"context"
	"os/exec"
	"time"
)

// Command runs csi-fencepost as a person with admin rights does, with the
// configuration of the stage's sidecar, and returns what it prints.
func (s *Stage) Command(args ...string) string {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.ctx(), time.Minute)
	defer cancel()
	args = append(args, "--kubeconfig="+s.Bed.Cluster.AdminKubeconfig(), "--config="+s.config)
	out, err := exec.CommandContext(ctx, s.Bed.Fencepost, args...).CombinedOutput()
	if err != nil {
		s.T.Fatalf("%s: csi-fencepost %q: %v\n%s", s.Name, args, err, out)
	}
	return string(out)
}

// Confirm gives the operator's word that a node is off.
func (n *Node) Confirm(args ...string) string {
	n.stage.T.Helper()
	return n.stage.Command(append([]string{"fence", "confirm", n.Name, "--yes", "--reason=pulled the power cord"}, args...)...)
}
