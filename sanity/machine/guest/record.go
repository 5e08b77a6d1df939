// Package guest is the layout of what a machine writes to its disks.
package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// SectorSize is the length of a record: the unit that a disk writes whole.
const SectorSize = 512

const (
	magic   = "FPRECORD"
	maxName = 128
	seqAt   = len(magic)
	lenAt   = seqAt + 8
	nameAt  = lenAt + 2
	sumAt   = SectorSize - 4
)

// ErrEmpty tells of a sector that nobody has written to.
var ErrEmpty = errors.New("the sector is empty")

// Record is one write. Sector n of a disk holds the n-th.
type Record struct {
	// Writer is the machine, its boot, and which disk plugged in since it is.
	Writer string
	// Seq counts the writer's own writes to this disk, from 1.
	Seq uint64
}

// Encode writes the record into a sector.
func (r Record) Encode(sector []byte) error {
	if len(sector) != SectorSize || len(r.Writer) > maxName || r.Writer == "" {
		return fmt.Errorf("a record needs a sector of %d bytes and a writer of 1 to %d", SectorSize, maxName)
	}
	clear(sector)
	copy(sector, magic)
	binary.LittleEndian.PutUint64(sector[seqAt:], r.Seq)
	binary.LittleEndian.PutUint16(sector[lenAt:], uint16(len(r.Writer)))
	copy(sector[nameAt:], r.Writer)
	binary.LittleEndian.PutUint32(sector[sumAt:], crc32.ChecksumIEEE(sector[:sumAt]))
	return nil
}

// Decode reads a sector: ErrEmpty where nobody has written, another error where
// the sector is torn.
func Decode(sector []byte) (Record, error) {
	if len(sector) != SectorSize {
		return Record{}, fmt.Errorf("a sector has %d bytes, not %d", SectorSize, len(sector))
	}
	if bytes.Count(sector, []byte{0}) == SectorSize {
		return Record{}, ErrEmpty
	}
	n := int(binary.LittleEndian.Uint16(sector[lenAt:]))
	if string(sector[:seqAt]) != magic || n > maxName ||
		binary.LittleEndian.Uint32(sector[sumAt:]) != crc32.ChecksumIEEE(sector[:sumAt]) {
		return Record{}, errors.New("the sector is torn: it is no record")
	}
	return Record{Writer: string(sector[nameAt : nameAt+n]), Seq: binary.LittleEndian.Uint64(sector[seqAt:])}, nil
}
