package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	// systemFolders hold folders with programs of all kinds, or what anybody left.
	systemFolders = []string{"/boot", "/etc", "/home", "/lib", "/lib64", "/run", "/tmp", "/usr", "/var", "/var/tmp"}
	// kernelFolders hold nothing that anybody installed, and ways to every file
	// of other processes.
	kernelFolders = []string{"/dev", "/proc", "/sys"}
)

// CheckFolder tells whether a folder may be named as one of fence agents: it is
// absolute, and no root of a system, beneath which there are other programs.
// What is in it, and whether it is there, is looked at when an agent is made.
func CheckFolder(folder string) error {
	clean := filepath.Clean(folder)
	if !filepath.IsAbs(folder) {
		return fmt.Errorf("folder %q is not an absolute path", folder)
	}
	if clean == "/" {
		return fmt.Errorf("folder %s: every program of the container would be a fence agent; name the folder that holds the agents, such as /usr/sbin", folder)
	}
	system := slices.Contains(systemFolders, clean)
	top := "/" + strings.Split(clean, "/")[1]
	if slices.Contains(kernelFolders, top) {
		system, clean = true, top
	}
	if system {
		return fmt.Errorf("folder %s: %s is a folder of the system; name the folder that holds the agents, such as /usr/sbin", folder, clean)
	}
	return nil
}

func checkFolders(folders []string) error {
	var errs []error
	for _, folder := range folders {
		errs = append(errs, CheckFolder(folder))
	}
	return errors.Join(errs...)
}

// existing are the folders that there are, without links.
func existing(dirs []string) (all []string, err error) {
	for _, dir := range dirs {
		target, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if err := CheckFolder(target); err != nil {
			return nil, fmt.Errorf("the folder of agents %s is really %s: %w", dir, target, err)
		}
		all = append(all, target)
	}
	return all, nil
}

// maxLinks is what Linux follows on one way.
const maxLinks = 40

// follow is filepath.EvalSymlinks, and holds each step against who could have
// another program run in the place of this one: no part belongs to anybody but
// root and the user of this process, and nobody else may write to a folder.
func follow(path string) (string, error) {
	at, rest := "/", steps(path)
	for links := 0; len(rest) > 0; {
		step := rest[0]
		rest = rest[1:]
		// In the sticky /tmp nobody can replace what is ours. Still the agents'
		// own folder may not be one: anybody could add a program.
		if err := onlyOursToWrite(at, len(rest) > 0); err != nil {
			return "", err
		}
		next := filepath.Join(at, step)
		info, err := os.Lstat(next)
		if err == nil && !info.IsDir() {
			err = ours(next, info)
		}
		if err != nil {
			return "", err
		}
		if info.Mode().Type() != os.ModeSymlink {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s leads through too many links", path)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(steps(target), rest...)
	}
	return at, nil
}

func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// ours is an error unless the file belongs to root or to the user of this process.
func ours(path string, info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: whose it is cannot be told", path)
	}
	if uid := int(stat.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who could have another program run in its place: it has to belong to root, or to user %d, whom csi-fencepost runs as",
			path, uid, os.Geteuid())
	}
	return nil
}

// onlyOursToWrite tells whether others may add to the folder or replace what is
// in it; with sticky, whether they may replace what is ours. The volumes of
// Kubernetes are everybody's to write (mode 0777 for an emptyDir and a
// ConfigMap, the group's with fsGroup); mounted read-only they are nobody's here.
func onlyOursToWrite(folder string, sticky bool) error {
	var mount unix.Statfs_t
	if err := unix.Statfs(folder, &mount); err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	if mount.Flags&unix.ST_RDONLY != 0 {
		return nil
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	if err := ours(folder, info); err != nil {
		return err
	}
	mode := info.Mode()
	if mode.Perm()&0o022 == 0 || sticky && mode&os.ModeSticky != 0 {
		return nil
	}
	return fmt.Errorf("the folder %s has mode %v: others than root and user %d may put another program there; mount it with readOnly: true if it is a volume, else chmod go-w",
		folder, mode, os.Geteuid())
}
