//go:build linux

// Command init is the only program of a machine: it writes a numbered record to
// every disk that appears, as often as it can, until the disk goes.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-fencepost/csi-fencepost/sanity/machine/guest"
)

// pause between two records of a disk: a machine that QEMU translates has to leave the
// others some of the processor.
const pause = 20 * time.Millisecond

func main() {
	fmt.Println("guest: failed:", run())
	// The kernel panics when its init ends, and QEMU with it: leave time to read.
	time.Sleep(time.Minute)
}

// run goes on until something fails.
func run() error {
	writer, err := setUp()
	if err != nil {
		return err
	}
	fmt.Println("guest: up:", writer)
	writing := map[string]chan struct{}{}
	plugs := 0
	for {
		disks, err := filepath.Glob("/sys/block/vd*")
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, path := range disks {
			name := filepath.Base(path)
			there[name] = true
			if writing[name] == nil {
				done := make(chan struct{})
				writing[name] = done
				plugs++
				go write(name, fmt.Sprintf("%s/%d", writer, plugs), done)
			}
		}
		for name, done := range writing {
			if !there[name] {
				close(done)
				delete(writing, name)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// setUp mounts what is needed, loads the drivers, and says who this is.
func setUp() (writer string, err error) {
	for _, m := range []struct{ kind, at string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return "", err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return "", fmt.Errorf("mount %s: %w", m.kind, err)
		}
	}
	modules, err := os.ReadFile("/modules/order")
	if err != nil {
		return "", err
	}
	for _, name := range strings.Fields(string(modules)) {
		f, err := os.Open("/modules/" + name)
		if err != nil {
			return "", err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return "", fmt.Errorf("load %s: %w", name, err)
		}
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	for _, word := range strings.Fields(string(line)) {
		if name, ok := strings.CutPrefix(word, "fencepost.writer="); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("the kernel's command line has no fencepost.writer=: %s", line)
}

// write appends to one disk until it goes.
func write(disk, writer string, done chan struct{}) {
	fmt.Printf("guest: disk %s: begin\n", disk)
	n, err := appendRecords("/dev/"+disk, writer, done)
	for n == 0 && err != nil { // it can be listed before it can be opened
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
		}
		n, err = appendRecords("/dev/"+disk, writer, done)
	}
	fmt.Printf("guest: disk %s: %d records, then: %v\n", disk, n, err)
}

func appendRecords(path, writer string, done chan struct{}) (written uint64, err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_DIRECT|unix.O_SYNC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	sector, err := firstEmpty(fd)
	if err != nil {
		return 0, err
	}
	buffer := aligned(guest.SectorSize)
	for {
		select {
		case <-done:
			return written, nil
		case <-time.After(pause):
		}
		if err := (guest.Record{Writer: writer, Seq: written + 1}).Encode(buffer); err != nil {
			return written, err
		}
		if _, err := unix.Pwrite(fd, buffer, sector*guest.SectorSize); err != nil {
			return written, err
		}
		written++
		sector++
	}
}

// firstEmpty is the sector behind the last record.
func firstEmpty(fd int) (int64, error) {
	chunk := aligned(256 * guest.SectorSize)
	for at := int64(0); ; at += int64(len(chunk)) {
		n, err := unix.Pread(fd, chunk, at)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, errors.New("the disk is full")
		}
		for i := 0; i+guest.SectorSize <= n; i += guest.SectorSize {
			if _, err := guest.Decode(chunk[i : i+guest.SectorSize]); errors.Is(err, guest.ErrEmpty) {
				return (at + int64(i)) / guest.SectorSize, nil
			}
		}
	}
}

// aligned is a buffer that O_DIRECT takes.
func aligned(size int) []byte {
	const alignment = 4096
	b := make([]byte, size+alignment)
	off := alignment - int(uintptr(unsafe.Pointer(&b[0]))%alignment)
	return b[off : off+size : off+size]
}
