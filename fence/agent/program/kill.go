package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// markName is a variable in the environment of each run: descendants inherit
// it, also those that made themselves a session (ssh under a pseudo terminal
// does), which no longer are in the process group.
const markName = "CSI_FENCEPOST_CALL"

// killAll kills the group, and the descendants that left it. Those may fork
// while they are looked for: it looks until none is left.
func killAll(pgid int, mark string) {
	_ = syscall.Kill(-pgid, syscall.SIGKILL)
	for range 5 {
		found := marked(mark)
		if len(found) == 0 {
			return
		}
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// marked are the living processes of a run. A dead one has no environment.
func marked(mark string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reap takes the group's dead off the process table. As the first process of a
// container we inherit them; anywhere else there are none.
func reap(pgid int) {
	for {
		pid, err := syscall.Wait4(-pgid, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
