package contract

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// SameUUID compares system UUIDs. SMBIOS has the first three fields little-endian, and some
// platforms, and kernels before 2.4 of it, print them in the other order.
func SameUUID(a, b string) bool {
	x, y := parseUUID(a), parseUUID(b)
	if x == nil || y == nil || placeholder(a) || placeholder(b) {
		return false
	}
	return slices.Equal(x, y) || slices.Equal(swapped(x), y)
}

func parseUUID(text string) []byte {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != 16 {
		return nil
	}
	return raw
}

// Swapped is the UUID in the other order, in which a platform may know it; empty: it is none.
func Swapped(text string) string {
	raw := parseUUID(text)
	if raw == nil {
		return ""
	}
	raw = swapped(raw)
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

func swapped(raw []byte) []byte {
	raw = slices.Clone(raw)
	slices.Reverse(raw[0:4])
	slices.Reverse(raw[4:6])
	slices.Reverse(raw[6:8])
	return raw
}

// placeholders are fence.SharedSystems, which this module cannot import; sanity/agents holds it
// against that list.
var placeholders = []string{
	"03000200-0400-0500-0006-000700080009",
	"12345678-1234-5678-90ab-cddeefaabbcc",
	"4c4c4544-0000-2010-8020-80c04f202020",
}

// placeholder tells whether other machines have that UUID, too, or it is none.
func placeholder(text string) bool {
	raw := parseUUID(text)
	if raw == nil {
		return true
	}
	if all := slices.Repeat(raw[:1], 16); slices.Equal(raw, all) && (raw[0] == 0 || raw[0] == 0xff) {
		return true
	}
	return slices.ContainsFunc(placeholders, func(p string) bool {
		one := parseUUID(p)
		return slices.Equal(raw, one) || slices.Equal(raw, swapped(one))
	})
}
