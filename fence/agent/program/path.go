package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// refused are programs that cannot prove anything, whatever their metadata say.
var refused = map[string]string{
	"fence_sbd":          "it reports success with no sbd daemon anywhere, and a self-fence is no proof",
	"fence_watchdog":     "a self-fence is no proof: a machine that is paused writes after its watchdog should have fired",
	"fence_ack_manual":   "it is a person's word; use csi-fencepost fence confirm",
	"fence_compute":      "its status is what Nova says of a service, not of the machine's power",
	"fence_evacuate":     "its status is what Nova says of a service, not of the machine's power",
	"fence_kdump":        "it waits for a message of the crashed kernel and has no status",
	"fence_nova_host":    "its status is what Nova says of a service, not of the machine's power",
	"fence_nova_compute": "its status is what Nova says of a service, not of the machine's power",
}

// callsSuspendedOff are the programs that read a suspended machine as off, and whose output does
// not show it. It could be resumed, and write (read in fence-agents 4.12.1).
var callsSuspendedOff = map[string]bool{
	"fence_vmware_soap": true, "fence_vmware_rest": true, "fence_vmware_vcloud": true, "fence_virsh": true, "fence_skalar": true,
}

// StorageByName tells whether a program, known by the last element of its path, is one that cuts a
// node off from its disks.
func StorageByName(path string) bool {
	return slices.Contains([]string{"fence_scsi", "fence_mpath"}, filepath.Base(path))
}

// find turns the configured program into a path inside dirs.
func find(program string, dirs []string) (string, error) {
	switch {
	case program == "":
		return "", errors.New("no program is named")
	case filepath.IsAbs(program):
		return filepath.Clean(program), nil
	case program != filepath.Base(program) || program == "." || program == "..":
		return "", fmt.Errorf("the program %q is neither a name nor an absolute path", program)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, program)
		if _, err := os.Lstat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s in %s", program, strings.Join(dirs, ", "))
}

// identity of a file: with the same one its metadata are the same.
type identity struct {
	target        string
	dev, ino      uint64
	size          int64
	mtime, change syscall.Timespec
}

// inspect follows symbolic links and holds the file against the rules. The
// program is run by path, not by its target: some look at their own name.
func inspect(path string, dirs []string) (identity, error) {
	folders, err := existing(dirs)
	if err != nil {
		return identity{}, err
	}
	target, err := follow(path)
	if errors.Is(err, os.ErrNotExist) {
		return identity{}, fmt.Errorf("the program cannot be found: %w", err)
	}
	if err != nil {
		return identity{}, err
	}
	for _, name := range []string{filepath.Base(path), filepath.Base(target)} {
		if why, no := refused[strings.TrimSuffix(name, ".py")]; no {
			return identity{}, fmt.Errorf("%s is not used: %s", name, why)
		}
	}
	if !allowed(filepath.Dir(path), folders) || !allowed(filepath.Dir(target), folders) {
		return identity{}, fmt.Errorf("the program %s (really %s) is not in an allowed folder: %s", path, target, strings.Join(dirs, ", "))
	}
	info, err := os.Lstat(target)
	if err != nil {
		return identity{}, fmt.Errorf("the program cannot be read: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !ok || !mode.IsRegular():
		return identity{}, fmt.Errorf("%s is no regular file", target)
	case mode.Perm()&0o111 == 0:
		return identity{}, fmt.Errorf("%s is not executable", target)
	case mode.Perm()&0o022 != 0:
		return identity{}, fmt.Errorf("%s has mode %v: others than its owner may write to it; chmod go-w", target, mode.Perm())
	}
	return identity{target, uint64(stat.Dev), stat.Ino, stat.Size, stat.Mtim, stat.Ctim}, nil
}

// allowed tells whether a folder is one of dirs or beneath one. They have no
// links any more.
func allowed(folder string, dirs []string) bool {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(dirs, func(dir string) bool {
		rel, err := filepath.Rel(dir, folder)
		return err == nil && filepath.IsLocal(rel)
	})
}
