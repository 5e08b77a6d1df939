package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-fencepost/csi-fencepost/sanity/machine/guest"
)

// diskBytes has room for an hour of records. The file is sparse.
const diskBytes = 256 << 20

// Disk is a raw image.
type Disk struct {
	Path string
}

// NewDisk makes an empty disk.
func NewDisk(path string) (*Disk, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Disk{Path: path}, errors.Join(f.Truncate(diskBytes), f.Close())
}

// Stretch is an unbroken run of one writer's records.
type Stretch struct {
	Writer string
	First  int // sector
	Writes int
}

// Verify reads who wrote to the disk, in the order of the sectors. The error
// tells of every trace of two writers at once: a record of a machine behind one
// of its successor, a record that was overwritten or lost, or a torn sector.
func (d *Disk) Verify() ([]Stretch, error) {
	f, err := os.Open(d.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Stretch
	var faults []error
	last := map[string]uint64{}
	sector := make([]byte, guest.SectorSize)
	for n := 0; ; n++ {
		if _, err := f.ReadAt(sector, int64(n)*guest.SectorSize); err != nil {
			return all, errors.Join(append(faults, fmt.Errorf("%s is full: %w", d.Path, err))...)
		}
		r, err := guest.Decode(sector)
		if errors.Is(err, guest.ErrEmpty) {
			written, err := d.behind(f, int64(n+1)*guest.SectorSize)
			if written && d.filled(f, n) { // while we looked: read on
				n--
				continue
			}
			if written {
				err = fmt.Errorf("there are records behind the empty sector %d: a write in between is lost", n)
			}
			return all, errors.Join(append(faults, err)...)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("sector %d: %w", n, err))
			continue
		}
		_, known := last[r.Writer]
		if i := len(all) - 1; i >= 0 && all[i].Writer == r.Writer {
			all[i].Writes++
		} else {
			if known {
				faults = append(faults, fmt.Errorf("sector %d: %s wrote after %s had begun to", n, r.Writer, all[i].Writer))
			}
			all = append(all, Stretch{Writer: r.Writer, First: n, Writes: 1})
		}
		if r.Seq != last[r.Writer]+1 {
			faults = append(faults, fmt.Errorf("sector %d: write %d of %s follows its write %d: what was between them is lost", n, r.Seq, r.Writer, last[r.Writer]))
		}
		last[r.Writer] = r.Seq
	}
}

// behind tells whether anything is written from there on. Holes of the sparse
// file are not read.
func (d *Disk) behind(f *os.File, at int64) (bool, error) {
	chunk, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		var err error
		at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		n, err := f.ReadAt(chunk, at)
		if !bytes.Equal(chunk[:n], zero[:n]) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		at += int64(n)
	}
}

// filled tells whether a sector is empty no more.
func (d *Disk) filled(f *os.File, sector int) bool {
	record := make([]byte, guest.SectorSize)
	_, err := f.ReadAt(record, int64(sector)*guest.SectorSize)
	return err == nil && !bytes.Equal(record, make([]byte, guest.SectorSize))
}
