//go:build linux

// Command init is the first process of a real node, in namespaces of its own for
// mounts and processes: when it dies, everything on the node dies with it, as when the
// power fails.
//
//	init -boot-id FILE -machine-id FILE -system-uuid FILE -kept FOLDER
//
// It puts these files where a kubelet looks for the IDs of its machine, empties /run,
// shows the folder as /run/kept, says "ready", and buries the dead. It has to be started in the namespaces (unshare --mount --pid
// --fork --mount-proc).
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	boot := flag.String("boot-id", "", "file with the boot ID")
	machine := flag.String("machine-id", "", "file with the machine ID")
	system := flag.String("system-uuid", "", "file with the system UUID")
	kept := flag.String("kept", "", "folder that outlives the machine's boot")
	flag.Parse()
	if err := identify(*boot, *machine, *system, *kept); err != nil {
		fmt.Println("init:", err)
		os.Exit(1)
	}
	dead := make(chan os.Signal, 1)
	signal.Notify(dead, unix.SIGCHLD)
	fmt.Println("ready")
	for range dead {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func identify(boot, machine, system, kept string) error {
	if os.Getpid() != 1 {
		return errors.New("it is not the first process: start it in a process namespace of its own")
	}
	return errors.Join(
		// What a machine forgets when it boots, and keeps from its neighbours.
		empty("/run"), empty("/var/lib/cni"), os.MkdirAll("/run/kept", 0o755), over(kept, "/run/kept"),
		over(boot, "/proc/sys/kernel/random/boot_id"),
		over(machine, "/etc/machine-id"),
		firmware(system))
}

// empty puts an empty folder in the place of one.
func empty(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("an empty %s: %w", folder, err)
	}
	return nil
}

// over shows one file in the place of another.
func over(file, place string) error {
	if err := unix.Mount(file, place, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s over %s: %w", file, place, err)
	}
	return nil
}

// firmware gives the machine its system UUID. A virtual machine may have no firmware
// that tells one: then sysfs gets, beside the classes that it has, the one that does.
func firmware(file string) error {
	const classes, uuid = "/sys/class", "/sys/class/dmi/id/product_uuid"
	if _, err := os.Stat(uuid); err == nil {
		return over(file, uuid)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(classes)
	if err != nil {
		return err
	}
	kept := filepath.Join(filepath.Dir(file), "sys")
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/sys", kept, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("/sys on %s: %w", kept, err)
	}
	if err := unix.Mount("tmpfs", classes, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("a folder on %s: %w", classes, err)
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(kept, "class", e.Name()), filepath.Join(classes, e.Name())); err != nil {
			return err
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(uuid), 0o755); err != nil {
		return err
	}
	return os.WriteFile(uuid, content, 0o444)
}
