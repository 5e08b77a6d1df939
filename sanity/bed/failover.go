package bed

import (
	"fmt"
	"os"
)

// StartFailover starts csi-fencepost with failover.enabled and those levels of
// agents (YAML: a list of levels, empty for none), and the attacher. fencing are
// more fields of the configuration's fencing, one a line. Alone, it starts the
// attacher.
func (s *Stage) StartFailover(levels string, fencing ...string) {
	s.T.Helper()
	if !s.Options.Alone {
		s.Options.Config += failoverConfig(levels, fencing)
		s.StartFencepost()
	}
	s.StartAttacher()
}

// BMCs is one level with one agent: the BMC of each node.
func (s *Stage) BMCs() string {
	return fmt.Sprintf("[{agents: [{name: bmc, timeout: 10s, attempts: 2, ipmi: %s}]}]", s.IPMI())
}

// Write makes a file in the stage's folder and returns its path.
func (s *Stage) Write(name, content string, mode os.FileMode) string {
	s.T.Helper()
	path := s.socket(name)
	s.must(name, os.WriteFile(path, []byte(content), mode))
	return path
}
