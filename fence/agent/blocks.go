package agent

import (
	"net/netip"
	"strings"
)

// Blocks reads the CIDR blocks out of a Detail of an agent that cuts addresses
// off: those that it names before the words "at driver".
func Blocks(detail string) []string {
	var all []string
	detail, _, _ = strings.Cut(detail, " at driver ")
	for word := range strings.FieldsFuncSeq(detail, func(r rune) bool { return r == ' ' || r == ',' }) {
		if block, err := netip.ParsePrefix(word); err == nil {
			all = append(all, block.String())
		}
	}
	return all
}
