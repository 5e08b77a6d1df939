package bed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// commandTimeout is longer than a command's own watch of a lease.
const commandTimeout = 60 * time.Second

// TryCommand is Command that may fail: an error carries what was printed to
// standard error.
func (s *Stage) TryCommand(args ...string) (string, error) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.ctx(), commandTimeout)
	defer cancel()
	args = append(args, "--kubeconfig="+s.Bed.Cluster.AdminKubeconfig(), "--config="+s.config)
	cmd := exec.CommandContext(ctx, s.Bed.Fencepost, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("csi-fencepost %s: %w: %s", args[0], err, stderr.String())
	}
	return stdout.String(), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
