package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

const (
	// Count is how many pages a database has.
	Count = 64
	// Size of a page, in bytes: a block of the file system.
	Size = 4096

	magic      = "FENCPAGE"
	writerSize = 40
	header     = len(magic) + 4 + 8 + writerSize
	sum        = Size - 4
)

// page is what one page says.
type page struct {
	number  uint32
	version uint64
	writer  string
}

// Commit gave a page a version.
type Commit struct {
	Page    uint32
	Version uint64
}

// String is the commit as ParseCommit reads it.
func (c Commit) String() string { return fmt.Sprintf("page %d version %d", c.Page, c.Version) }

// ParseCommit reads a line; false: it is not of a commit.
func ParseCommit(line string) (c Commit, ok bool) {
	n, err := fmt.Sscanf(line, "page %d version %d", &c.Page, &c.Version)
	return c, n == 2 && err == nil && c.Page < Count
}

// Told is what the clients of each writer were told.
type Told map[string][]Commit

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode makes the bytes of a page.
func (p page) encode() []byte {
	b := make([]byte, Size)
	copy(b, magic)
	at := len(magic)
	binary.BigEndian.PutUint32(b[at:], p.number)
	binary.BigEndian.PutUint64(b[at+4:], p.version)
	copy(b[at+12:header], p.writer)
	for i := header; i < sum; i++ {
		b[i] = byte(uint64(i)*2654435761 + p.version*31 + uint64(p.number))
	}
	binary.BigEndian.PutUint32(b[sum:], crc32.Checksum(b[:sum], castagnoli))
	return b
}

// decode reads the bytes of a page that has to have that number.
func decode(b []byte, number uint32) (page, error) {
	switch {
	case len(b) != Size:
		return page{}, fmt.Errorf("it has %d bytes", len(b))
	case string(b[:len(magic)]) != magic:
		return page{}, errors.New("it is no page")
	case binary.BigEndian.Uint32(b[sum:]) != crc32.Checksum(b[:sum], castagnoli):
		return page{}, errors.New("its checksum is wrong")
	}
	at := len(magic)
	p := page{number: binary.BigEndian.Uint32(b[at:]), version: binary.BigEndian.Uint64(b[at+4:]), writer: strings.TrimRight(string(b[at+12:header]), "\x00")}
	if p.number != number {
		return page{}, fmt.Errorf("it is page %d", p.number)
	}
	return p, nil
}

const commitSize = 64

// encodeCommit makes the bytes of the commit of a page.
func (p page) encodeCommit() []byte {
	b := make([]byte, commitSize)
	binary.BigEndian.PutUint32(b, p.number)
	binary.BigEndian.PutUint64(b[4:], p.version)
	copy(b[12:12+writerSize], p.writer)
	binary.BigEndian.PutUint32(b[commitSize-4:], crc32.Checksum(b[:commitSize-4], castagnoli))
	return b
}

// decodeCommit reads one.
func decodeCommit(b []byte) (page, bool) {
	if len(b) != commitSize || binary.BigEndian.Uint32(b[commitSize-4:]) != crc32.Checksum(b[:commitSize-4], castagnoli) {
		return page{}, false
	}
	p := page{number: binary.BigEndian.Uint32(b), version: binary.BigEndian.Uint64(b[4:]), writer: strings.TrimRight(string(b[12:12+writerSize]), "\x00")}
	return p, p.number < Count && p.version > 0
}
