package agent

import (
	"net/netip"
	"strings"
)

// Blocks reads the CIDR blocks out of a Detail of an agent that cuts addresses
// off: those that it names before the words "at driver". One block is read as one text,
// however it is written: without bits of its host, and an IPv4 one never as IPv6.
func Blocks(detail string) []string {
	var all []string
	detail, _, _ = strings.Cut(detail, " at driver ")
	for word := range strings.FieldsFuncSeq(detail, func(r rune) bool { return r == ' ' || r == ',' }) {
		if block, err := netip.ParsePrefix(word); err == nil {
			if a := block.Addr(); a.Is4In6() && block.Bits() >= 96 {
				block = netip.PrefixFrom(a.Unmap(), block.Bits()-96)
			}
			all = append(all, block.Masked().String())
		}
	}
	return all
}
