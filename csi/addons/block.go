package addons

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ParseBlock reads a CIDR block, or an address as the block of it alone. The
// block is masked, and IPv4 where it is IPv4 written as IPv6.
func ParseBlock(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, noBlock(text)
		}
		return HostBlock(address), nil
	}
	block, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, noBlock(text)
	}
	if address := block.Addr(); address.Is4In6() && block.Bits() >= 96 {
		block = netip.PrefixFrom(address.Unmap(), block.Bits()-96)
	}
	return block.Masked(), nil
}

// noBlock shows only the beginning of the text: who wrote it may have written much.
func noBlock(text string) error {
	return fmt.Errorf("%.64q is neither an IP address nor a CIDR block", text)
}

// ParseHost reads one address of one machine, as the block of it alone. What names
// a network, has a zone, or is Special is an error. An IPv4 address that is written
// as IPv6 (::ffff:192.0.2.1) is the IPv4 address.
func ParseHost(text string) (netip.Prefix, error) {
	block, err := ParseBlock(text)
	switch {
	case err != nil:
		return netip.Prefix{}, err
	case !block.IsSingleIP():
		return netip.Prefix{}, fmt.Errorf("%.64q is a network: single addresses only", text)
	case strings.Contains(text, "%"):
		return netip.Prefix{}, fmt.Errorf("%.64q has a zone, which means something on one machine alone: single addresses only, without a zone", text)
	case Special(block) != "":
		return netip.Prefix{}, fmt.Errorf("%s is %s: a fence may not name it", block.Addr(), Special(block))
	}
	return block, nil
}

// special are the blocks that name no machine, or not one alone.
var special = []struct {
	block netip.Prefix
	what  string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	// A block within it is read as IPv4, so that what overlaps it here is all of IPv4.
	{netip.MustParsePrefix("::ffff:0:0/96"), "all of IPv4"},
}

// Special says what the block is, or overlaps, if that names no machine or not one
// alone: "loopback", "multicast" and the like. Empty: it is nothing of the kind.
func Special(block netip.Prefix) string {
	for _, s := range special {
		if s.block.Overlaps(block) {
			return s.what
		}
	}
	return ""
}

// HostBlock is the block of one address: /32, or /128 for IPv6.
func HostBlock(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	return netip.PrefixFrom(address, address.BitLen())
}

// Covers tells whether one of the blocks holds all of the other.
func Covers(blocks []netip.Prefix, all netip.Prefix) bool {
	return slices.ContainsFunc(blocks, func(block netip.Prefix) bool {
		return block.Bits() <= all.Bits() && block.Contains(all.Addr())
	})
}
