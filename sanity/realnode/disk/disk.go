//go:build linux

// Package disk is a disk with a file system as machines have it: a file, and for each
// machine that has it a loop device of its own, with a page cache of its own. Two loop
// devices of one file are two machines with one disk. It needs root, and losetup,
// mkfs.ext4, mount, umount and e2fsck.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/pages"
)

// Make makes an empty disk of so many bytes, without a file system.
func Make(path string, bytes int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(bytes), f.Close())
}

// Format puts ext4 on a disk that no machine has.
func Format(ctx context.Context, path string) error {
	return run(ctx, "mkfs.ext4", "-q", "-F", "-J", "size=1", path)
}

// Attach gives a machine the disk: a block device of its own.
func Attach(ctx context.Context, path string) (device string, err error) {
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", path).Output()
	if err != nil {
		return "", failed("losetup", err, nil)
	}
	return strings.TrimSpace(string(out)), nil
}

// Detach takes the block device away. One that is in use goes when it no longer is.
func Detach(ctx context.Context, device string) error { return run(ctx, "losetup", "-d", device) }

// Attached tells whether a block device still is the disk's.
func Attached(device, path string) bool {
	file, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop", "backing_file"))
	return err == nil && strings.TrimSpace(string(file)) == path
}

// shutdown and its flag are FS_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH of the
// kernel (include/uapi/linux/fs.h, fs/ext4/ext4.h).
const (
	shutdown   = 0x8004587d
	noLogFlush = 2
)

// PowerOff ends a mounted file system as a loss of power does: what is not on the disk
// when it returns never comes there, and who writes gets an error.
func PowerOff(folder string) error {
	f, err := openDisk(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		return fmt.Errorf("shutdown of the file system at %s: %w", folder, err)
	}
	if err := cutDevice(int(f.Fd())); err != nil {
		return fmt.Errorf("device of the file system at %s: %w", folder, err)
	}
	return nil
}

// cutDevice takes its size from the loop device under a file system. Else the kernel would
// still write what it has of it in its buffers, some time later or at the unmount: when
// another machine may have the disk.
func cutDevice(fd int) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", unix.Minor(s.Dev)), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		return err
	}
	info.Sizelimit = 4096
	for range 50 {
		// The answer EAGAIN says that something was dirtied while it emptied the buffers.
		if err = unix.IoctlLoopSetStatus64(int(device.Fd()), info); !errors.Is(err, unix.EAGAIN) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// freeze and thaw are FIFREEZE and FITHAW of the kernel (include/uapi/linux/fs.h).
const (
	freeze = 0xc0045877
	thaw   = 0xc0045878
)

// Hang has whoever writes to a mounted file system wait, until GoOn, in the kernel, where
// no signal reaches it, as for a disk that does not answer. So does who unmounts it.
func Hang(folder string) error { return control(folder, "freeze", freeze) }

// GoOn ends what Hang began: what was to be written meanwhile is written now.
func GoOn(folder string) error { return control(folder, "thaw", thaw) }

// openDisk opens a folder in which a disk is mounted. Any other file system, the one of
// this very machine, would be shut down or hang as well.
func openDisk(folder string) (*os.File, error) {
	const loop = 7 // the kernel's Documentation/admin-guide/devices.txt
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil || unix.Major(s.Dev) != loop {
		f.Close()
		return nil, fmt.Errorf("no disk is mounted at %s: %w", folder, errors.Join(err, unix.EINVAL))
	}
	return f, nil
}

func control(folder, what string, request uint) error {
	f, err := openDisk(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), request, 0); err != nil {
		return fmt.Errorf("%s of the file system at %s: %w", what, folder, err)
	}
	return nil
}

// Verdict is what is left on a disk.
type Verdict struct {
	// Damage is what e2fsck found after it had replayed the journal; empty: nothing.
	Damage string
	// Database is what its own check says.
	Database pages.Verdict
}

// Sound tells whether nothing is wrong.
func (v Verdict) Sound() bool { return v.Damage == "" && v.Database.Sound() }

// Faults is how many e2fsck has named.
func (v Verdict) Faults() int { return strings.Count(v.Damage, "\n") }

// String is the verdict in a sentence.
func (v Verdict) String() string {
	fs := "e2fsck finds the file system sound"
	if v.Damage != "" {
		fs = fmt.Sprintf("e2fsck finds %d faults of the file system", v.Faults())
	}
	return fs + "; " + v.Database.String()
}

// Judge looks at a copy of the disk, made in the folder work, as it would be found
// after all that had it were switched off: it replays the journal, as the next mount
// would, and has e2fsck and the database's check, with what its clients were told, look
// at what is there then.
func Judge(ctx context.Context, path, work string, told pages.Told) (Verdict, error) {
	copied := filepath.Join(work, filepath.Base(path)+".copy")
	if err := run(ctx, "cp", "--sparse=always", path, copied); err != nil {
		return Verdict{}, err
	}
	defer os.Remove(copied)
	// 1: it replayed it. More: it could not, which the next one tells.
	_ = exec.CommandContext(ctx, "e2fsck", "-p", "-E", "journal_only", copied).Run()
	out, err := exec.CommandContext(ctx, "e2fsck", "-fn", copied).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Verdict{}, failed("e2fsck", err, out)
	}
	v := Verdict{}
	if err != nil {
		v.Damage = faults(string(out))
	}
	folder := filepath.Join(work, filepath.Base(path)+".mounted")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return v, err
	}
	if err := run(ctx, "mount", "-t", "ext4", "-o", "loop,ro,noload,errors=continue", copied, folder); err != nil {
		v.Database.Missing = err.Error()
		return v, nil
	}
	v.Database = pages.Check(folder, told)
	return v, run(context.WithoutCancel(ctx), "umount", folder)
}

// faults are the lines in which e2fsck names what it found.
func faults(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "e2fsck ") || strings.HasPrefix(line, "Pass ") || strings.HasPrefix(line, "Fix?") || strings.Contains(line, "WARNING: Filesystem still has errors") || strings.Contains(line, " files (") {
			continue
		}
		lines = append(lines, line+"\n")
	}
	return strings.Join(lines, "")
}

func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return failed(name, err, out)
	}
	return nil
}

func failed(name string, err error, out []byte) error {
	if text := strings.TrimSpace(string(out)); text != "" {
		return fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return fmt.Errorf("%s: %w", name, err)
}
