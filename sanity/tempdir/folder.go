package tempdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Prefix of every folder's name.
const Prefix = "fencepost-"

const (
	ownerFile = "owner.lock"
	keepFile  = "keep"
	// A unix socket's path has at most 107 bytes; a driver's socket lies about
	// 60 below the cluster's folder.
	maxTempDir = 32
)

// Folder is a temporary folder. Its owner holds a lock on a file in it, so that the
// next owner of one can clear away what a killed owner left.
type Folder struct {
	Path string
	lock *os.File
}

// Base is the folder that they are made in.
func Base() string {
	if base := os.TempDir(); len(base) <= maxTempDir {
		return base
	}
	return "/tmp"
}

// New makes a folder, and removes those whose owners were killed. End it with
// Remove.
func New() (*Folder, error) {
	base := Base()
	RemoveOrphans(base)
	for {
		path, err := os.MkdirTemp(base, Prefix)
		if err != nil {
			return nil, fmt.Errorf("temporary folder: %w", err)
		}
		lock, err := Lock(filepath.Join(path, ownerFile), true)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			os.RemoveAll(path)
			return nil, fmt.Errorf("temporary folder: %w", err)
		}
		if err == nil {
			if _, err := os.Stat(lock.Name()); err == nil {
				return &Folder{Path: path, lock: lock}, nil
			}
			lock.Close()
		}
		// Another process took it for an orphan before it was locked: once more.
	}
}

// Remove removes the folder, or marks it as one to be kept.
func (f *Folder) Remove(keep bool) error {
	defer f.lock.Close()
	if keep {
		return os.WriteFile(filepath.Join(f.Path, keepFile), nil, 0o644)
	}
	if err := removeAll(f.Path); err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	return nil
}

// RemoveOrphans removes the folders below base that nobody owns any more, but for
// those that are to be kept.
func RemoveOrphans(base string) {
	for _, path := range All(base) {
		if _, err := os.Stat(filepath.Join(path, keepFile)); err != nil {
			_, _ = RemoveUnowned(path)
		}
	}
}

// All are the folders below base, whoever owns them.
func All(base string) (paths []string) {
	owners, _ := filepath.Glob(filepath.Join(base, Prefix+"*", ownerFile))
	for _, owner := range owners {
		paths = append(paths, filepath.Dir(owner))
	}
	return paths
}

// RemoveUnowned removes a folder, also one that was to be kept, unless its owner
// lives or is another user.
func RemoveUnowned(path string) (removed bool, err error) {
	lock, err := Lock(filepath.Join(path, ownerFile), false)
	if err != nil {
		return false, nil
	}
	defer lock.Close()
	return true, removeAll(path)
}

// Lock opens path and locks it until the file is closed or the process
// ends. Without wait it fails when another holds the lock.
func Lock(path string, wait bool) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}

// IsLocked tells whether Lock failed because another holds the lock.
func IsLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }
