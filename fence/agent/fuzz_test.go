package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Whatever stands in a record as what an agent cut off: each block is one that is written there
// before the driver's name, and is read as one text. What is read is what is opened again.
func FuzzBlocks(f *testing.F) {
	f.Add("fence 192.0.2.1/32, 2001:db8::1/128 at driver d.example.com 192.0.2.9/32")
	f.Add("::ffff:192.0.2.7/120,0.0.0.0/0 ::/0 ::ffff:0:0/90")
	f.Add("192.0.2.1 fe80::1%eth0/64 1.2.3.4/33 at driver ")
	f.Fuzz(func(t *testing.T, detail string) {
		all := Blocks(detail)
		if again := Blocks(strings.Join(all, ", ")); !slices.Equal(again, all) {
			t.Errorf("%q are %q, and these are %q", detail, all, again)
		}
		before, _, _ := strings.Cut(detail, " at driver ")
		var said []netip.Prefix
		for _, word := range strings.FieldsFunc(before, func(r rune) bool { return r == ' ' || r == ',' }) {
			if p, err := netip.ParsePrefix(word); err == nil {
				said = append(said, p)
			}
		}
		if len(said) != len(all) {
			t.Fatalf("%q names %v, and %q are read", detail, said, all)
		}
		for i, text := range all {
			block, err := netip.ParsePrefix(text)
			if err != nil || block != block.Masked() || block.Addr().Is4In6() && block.Bits() >= 96 {
				t.Errorf("%q of %q is not as a block is written: %v", text, detail, err)
				continue
			}
			// As it stands there, an IPv4 address is in it or not, written either way.
			four := netip.AddrFrom4([4]byte{192, 0, 2, 7})
			mapped := netip.AddrFrom16(four.As16())
			in := said[i].Contains(four) || said[i].Bits() >= 96 && said[i].Masked().Contains(mapped)
			wide := said[i].Addr().BitLen() - said[i].Bits()
			if block.Contains(four) != in || block.Addr().BitLen()-block.Bits() != wide {
				t.Errorf("%s is read as %s", said[i], block)
			}
		}
	})
}
