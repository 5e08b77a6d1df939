package controlplane

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inotifyEnv turns the test binary into one that is allowed so many inotify instances, in a
// user namespace of its own, and says whether a kubelet has room.
const inotifyEnv = "SANITY_INOTIFY_HELPER"

func roomForKubeletOf(limit string) error {
	if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte(limit), 0); err != nil {
		return err
	}
	return roomForKubelet()
}

func TestAKubeletNeedsRoom(t *testing.T) {
	for limit, want := range map[string]string{"2": "no room for another kubelet", "3": "<nil>"} {
		helper := exec.Command(os.Args[0])
		helper.Env = append(os.Environ(), inotifyEnv+"="+limit)
		one := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		helper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one(os.Getuid()), GidMappings: one(os.Getgid())}
		out, err := helper.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s instances: %v, %q, want %q", limit, err, out, want)
		}
	}
}
