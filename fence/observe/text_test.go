package observe

import (
	"math/rand/v2"
	"strings"
	"testing"
)

var texts = []string{"", "a", "0", "g", "pvc-", "vol-0a1b2c3d4e5f67890", "00", "0", "000", "A0", "aB-9f", "pv-000123",
	"0b7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c1", "pvc-0b7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c1", "pvc-0B7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c1",
	"x0b7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c1", "0b7ab4c83a3b4a449c580d61e1a9f0c1", "pvc-0b7ab4c83a3b4a449c580d61e1a9f0c1",
	strings.Repeat("0", 31), strings.Repeat("0", 32), strings.Repeat("0", 33), strings.Repeat("f", 64), "ä", "ä1", "-", "--------0123456789abcdef0123456789ab"}

func TestATextIsItsStringAndEqualToNoOther(t *testing.T) {
	all := texts
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		b := make([]byte, r.IntN(45))
		for i := range b {
			b[i] = "0123456789abcdef0123456789abcdef--gZ"[r.IntN(36)]
		}
		all = append(all, string(b))
	}
	seen := map[text]string{}
	for _, s := range all {
		x := textOf(s)
		if x.String() != s || x.none() {
			t.Errorf("%q is kept as %q", s, x.String())
		}
		if other, there := seen[x]; there && other != s {
			t.Errorf("%q and %q are one text", s, other)
		}
		seen[x] = s
		if x != textOf(strings.Clone(s)) {
			t.Errorf("%q is not equal to itself", s)
		}
	}
	if (text{}).String() != "" || !(text{}).none() {
		t.Error("the zero text is one")
	}
}

func TestNamesShareTheirHeads(t *testing.T) {
	a, b := textOf("pvc-0b7ab4c8-3a3b-4a44-9c58-0d61e1a9f0c1"), textOf("pvc-ffffffff-3a3b-4a44-9c58-0d61e1a9f0c1")
	if a.form != b.form || textOf("vol-0a1b2c3d4e5f67890").form != textOf("vol-0fffffff4e5f67890").form {
		t.Error("two names of one provisioner take two heads")
	}
}
