package bed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// kubectl puts the control plane's kubectl into a folder.
func kubectl(kubernetes, folder string) error {
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' kubectl \"$@\"\n", kubernetes)
	return os.WriteFile(filepath.Join(folder, "kubectl"), []byte(script), 0o755)
}

// Shell runs commands as they stand on a page: in the stage's folder, with
// csi-fencepost and kubectl in PATH, as the cluster's administrator. One that
// fails, in a pipe too, fails the test. It returns what was printed.
func (s *Stage) Shell(commands string) (stdout, stderr string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.ctx(), commandTimeout)
	defer cancel()
	s.Log("$ %s", commands)
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", commands)
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.Bed.Fencepost)+":"+os.Getenv("PATH"),
		"KUBECONFIG="+s.Bed.Cluster.AdminKubeconfig(), "HOME="+s.folder)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		s.T.Fatalf("%s: $ %s: %v\n%s%s", s.Name, commands, err, out.String(), log.String())
	}
	return out.String(), log.String()
}
