package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	folderPrefix = "fencepost-"
	ownerFile    = "owner.lock"
	keepFile     = "keep"
	// A unix socket's path has at most 107 bytes; a driver's socket lies about
	// 60 below the cluster's folder.
	maxTempDir = 32
)

// folder is a cluster's temporary folder. Its owner holds a lock on a file in
// it, so that the next cluster can clear away what a killed owner left.
type folder struct {
	path string
	lock *os.File
}

func newFolder() (*folder, error) {
	base := os.TempDir()
	if len(base) > maxTempDir {
		base = "/tmp"
	}
	removeOrphanFolders(base)
	for {
		path, err := os.MkdirTemp(base, folderPrefix)
		if err != nil {
			return nil, fmt.Errorf("folder of the cluster: %w", err)
		}
		lock, err := lockFile(filepath.Join(path, ownerFile), true)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			os.RemoveAll(path)
			return nil, fmt.Errorf("folder of the cluster: %w", err)
		}
		if err == nil {
			if _, err := os.Stat(lock.Name()); err == nil {
				return &folder{path: path, lock: lock}, nil
			}
			lock.Close()
		}
		// Another process took it for an orphan before it was locked: once more.
	}
}

// remove removes the folder, or marks it as one to be kept.
func (f *folder) remove(keep bool) error {
	defer f.lock.Close()
	if keep {
		return os.WriteFile(filepath.Join(f.path, keepFile), nil, 0o644)
	}
	if err := removeAll(f.path); err != nil {
		return fmt.Errorf("folder of the cluster: %w", err)
	}
	return nil
}

func removeOrphanFolders(base string) {
	owners, _ := filepath.Glob(filepath.Join(base, folderPrefix+"*", ownerFile))
	for _, owner := range owners {
		path := filepath.Dir(owner)
		if _, err := os.Stat(filepath.Join(path, keepFile)); err == nil {
			continue
		}
		lock, err := lockFile(owner, false)
		if err != nil {
			continue // its owner lives, or it is another user's
		}
		_ = removeAll(path)
		lock.Close()
	}
}

// lockFile opens path and locks it until the file is closed or the process
// ends. Without wait it fails when another holds the lock.
func lockFile(path string, wait bool) (*os.File, error) {
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

func isLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }
