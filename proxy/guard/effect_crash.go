//go:build crashpoints

package guard

import (
	"os"
	"syscall"
)

// Built with the tag crashpoints, the process kills itself with SIGKILL at the
// point that CSI_FENCEPOST_CRASH_AT names (such as "after:unpublish"), once: the
// file CSI_FENCEPOST_CRASHED, which must not exist, is made first.
func init() {
	at, mark := os.Getenv("CSI_FENCEPOST_CRASH_AT"), os.Getenv("CSI_FENCEPOST_CRASHED")
	if at == "" || mark == "" {
		return
	}
	effectHook = func(point string) {
		if point != at {
			return
		}
		if f, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
}
