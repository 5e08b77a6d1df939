package wire

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // one property compresses
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// bytesCodec sends []byte as it is.
type bytesCodec struct{ subtype string }

var _ encoding.CodecV2 = bytesCodec{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("wire: a message is []byte, not %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("wire: a message is read into *[]byte, not %T", v)
	}
	*b = data.Materialize()
	return nil
}

func (c bytesCodec) Name() string { return c.subtype }

// futureField is a field of a CSI spec that is yet to be written. All messages
// of the spec can have it.
const futureField = 4711

// message is the i-th message of a call, of about size bytes: always the same,
// and no protobuf unless it has to be.
func (m Method) message(i, size int) []byte {
	noise := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(i), byte(size)})
	_, _ = source.Read(noise) // it never fails
	if !m.Judged {
		return append([]byte{0xff, 0xff, 0xff, 0x00, byte(i)}, noise...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, futureField, protowire.BytesType), noise)
}

// shuffled is a message whose fields stand in an order that no encoder writes.
func (m Method) shuffled() []byte {
	b := m.message(0, 8)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "node")
	// A volume ID in a request; a map entry, k: v, in a response.
	return protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), "\n\x01k\x12\x01v")
}

// digest names a message in a table.
func digest(b []byte) string {
	if len(b) <= 64 {
		return fmt.Sprintf("%x", b)
	}
	return fmt.Sprintf("%d bytes, sha256 %x", len(b), sha256.Sum256(b))
}
