package bed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// crashScript starts csi-fencepost so that it kills itself at the first point of
// the list at which it has not done so yet: each restart takes the next one.
const crashScript = `#!/bin/sh
while read -r point; do
  if [ ! -e "%[1]s/crashed-$point" ]; then
    export CSI_FENCEPOST_CRASH_AT="$point" CSI_FENCEPOST_CRASHED="%[1]s/crashed-$point"
    break
  fi
done < "%[1]s/crash-at"
exec "%[2]s" "$@"
`

// program is what StartFencepost starts.
func (s *Stage) program() string {
	s.T.Helper()
	if !s.Options.Crashes {
		return s.Bed.Fencepost
	}
	path := filepath.Join(s.folder, "fencepost.sh")
	if !exists(path) {
		s.must("crash list", os.WriteFile(filepath.Join(s.folder, "crash-at"), nil, 0o644))
		s.must("crash script", os.WriteFile(path, fmt.Appendf(nil, crashScript, s.folder, s.Bed.Fencepost), 0o755))
	}
	return path
}

// CrashAt starts csi-fencepost again, and from then on it ends itself by SIGKILL
// at each of the points once, in this order (see package proxy, Effect; such as
// "after:unpublish"). The stage needs StageOptions.Crashes.
func (s *Stage) CrashAt(points ...string) {
	s.T.Helper()
	s.must("crash list", tool.WriteWhole(filepath.Join(s.folder, "crash-at"), []byte(strings.Join(points, "\n")+"\n"), 0o644))
	s.must("restart of csi-fencepost", s.Fencepost.Kill())
}

// CrashedAt tells whether csi-fencepost has ended itself at that point.
func (s *Stage) CrashedAt(point string) bool {
	return exists(filepath.Join(s.folder, "crashed-"+point))
}
