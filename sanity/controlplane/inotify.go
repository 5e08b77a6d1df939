package controlplane

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A kubelet watches its CA, its serving certificate and the sockets of the drivers, each with
// an inotify instance of its own.
const kubeletInstances = 3

const instancesFile = "/proc/sys/fs/inotify/max_user_instances"

// roomForKubelet tells whether another kubelet can watch what it has to. Without the third
// instance it says nothing, gets Ready, and no driver registers with it for ever.
func roomForKubelet() error {
	for range kubeletInstances {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if errors.Is(err, unix.EMFILE) {
			limit, _ := os.ReadFile(instancesFile)
			return fmt.Errorf("no room for another kubelet, which takes %d inotify instances: fs.inotify.max_user_instances is %s here, and this user has almost all of them (as root, make deps raises it)",
				kubeletInstances, strings.TrimSpace(string(limit)))
		}
		if err != nil {
			return fmt.Errorf("inotify, which a kubelet needs: %w", err)
		}
		defer unix.Close(fd)
	}
	return nil
}
