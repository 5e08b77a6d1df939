package writer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// blockBytes is what each write writes, at the very beginning. It is a multiple of
// every disk's sector.
const blockBytes = 4096

// magic begins each block that a writer has written.
const magic = "csi-fencepost sanity writer\n"

// device is a Target: a block device or a file.
type device struct {
	file  *os.File
	block []byte // aligned as O_DIRECT needs it
}

// OpenPath returns what opens the path of a device or a file; $(VOLUME_ID),
// $(NODE_ID) and $(CONTEXT.key), a key of the publish context, are filled in. A
// file that does not exist is made. What holds data of others is refused, unless
// overwrite.
func OpenPath(path string, overwrite bool) Open {
	return func(s Start) (Target, string, error) {
		full, err := fill(path, s)
		if err != nil {
			return nil, "", err
		}
		return openDevice(full, overwrite)
	}
}

var variable = regexp.MustCompile(`\$\(([^)]*)\)`)

func fill(path string, s Start) (string, error) {
	var err error
	full := variable.ReplaceAllStringFunc(path, func(text string) string {
		name := text[2 : len(text)-1]
		switch key, isContext := strings.CutPrefix(name, "CONTEXT."); {
		case name == "VOLUME_ID":
			return s.VolumeID
		case name == "NODE_ID":
			return s.NodeID
		case isContext && s.PublishContext[key] != "":
			return s.PublishContext[key]
		}
		err = fmt.Errorf("path %s: %s is not known: there are $(VOLUME_ID), $(NODE_ID) and $(CONTEXT.key) with a key of the publish context", path, text)
		return ""
	})
	return full, err
}

func openDevice(path string, overwrite bool) (Target, string, error) {
	file, how, err := openSync(path)
	if err != nil {
		return nil, "", err
	}
	d := &device{file: file}
	// Memory of its own pages is aligned.
	if d.block, err = unix.Mmap(-1, 0, blockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err == nil {
		err = d.check(overwrite)
	}
	if err != nil {
		d.Close()
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return d, how, nil
}

// openSync opens past the page cache where the file system can.
func openSync(path string) (*os.File, string, error) {
	flags := os.O_RDWR | syscall.O_SYNC
	// A disk that is not there is no reason to make a file of its name.
	if !strings.HasPrefix(path, "/dev/") {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(path, flags|syscall.O_DIRECT, 0o600)
	if errors.Is(err, syscall.EINVAL) {
		file, err = os.OpenFile(path, flags, 0o600)
		return file, "sync", err
	}
	return file, "direct", err
}

// check refuses what is no disk, and what somebody's data is on.
func (d *device) check(overwrite bool) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	isDisk := info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0
	if !isDisk && !info.Mode().IsRegular() {
		return fmt.Errorf("it is neither a block device nor a file (%s)", info.Mode())
	}
	n, err := d.file.ReadAt(d.block, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	began := d.block[:n]
	if overwrite || bytes.HasPrefix(began, []byte(magic)) || len(bytes.Trim(began, "\x00")) == 0 {
		return nil
	}
	return errors.New("its first 4096 bytes hold data that no writer has written, and would be overwritten: give --overwrite if they may be")
}

// Write implements Target.
func (d *device) Write(n uint64) error {
	copy(d.block, magic)
	binary.BigEndian.PutUint64(d.block[len(magic):], n)
	_, err := d.file.WriteAt(d.block, 0)
	return err
}

// Close implements Target.
func (d *device) Close() error {
	err := d.file.Close()
	if d.block != nil {
		err = errors.Join(err, unix.Munmap(d.block))
	}
	return err
}
