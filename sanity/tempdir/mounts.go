package tempdir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// removeAll removes a folder with everything below it. A kubelet that runs as
// root maps raw block volumes with a real bind mount and a real loop device;
// those that are left below the folder are let go first.
func removeAll(path string) error {
	releaseLoops(path)
	for _, target := range mountsBelow(path) {
		_ = unix.Unmount(target, unix.MNT_DETACH) // what stays is told by RemoveAll
	}
	return os.RemoveAll(path)
}

// mountsBelow lists the mount points below path, the deepest first.
func mountsBelow(path string) []string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var targets []string
	for line := range strings.Lines(string(text)) {
		// 36 35 98:0 /root /mount/point options … (proc_pid_mountinfo(5))
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], path+"/") {
			targets = append(targets, fields[4])
		}
	}
	slices.SortFunc(targets, func(a, b string) int { return len(b) - len(a) })
	return targets
}

// releaseLoops detaches the loop devices whose backing file is below path.
func releaseLoops(path string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(backing), path+"/") {
			continue
		}
		device := filepath.Base(filepath.Dir(filepath.Dir(file)))
		if loop, err := os.OpenFile("/dev/"+device, os.O_RDWR, 0); err == nil {
			_ = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
			loop.Close()
		}
	}
}
