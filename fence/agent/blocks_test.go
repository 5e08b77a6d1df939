package agent

import (
	"slices"
	"testing"
)

// Who compares what two fences cut compares texts, and a driver is told of addresses.
func TestOneBlockIsReadAsOneTextHoweverItIsWritten(t *testing.T) {
	for detail, want := range map[string][]string{
		"fence 192.0.2.1/32, 2001:db8::1/128 at driver x, 192.0.2.9/32": {"192.0.2.1/32", "2001:db8::1/128"},
		"fence ::ffff:192.0.2.1/128 at driver x":                        {"192.0.2.1/32"},
		"fence ::ffff:c000:201/128":                                     {"192.0.2.1/32"},
		"fence 192.0.2.77/24, 2001:DB8:0::1/64 at driver x":             {"192.0.2.0/24", "2001:db8::/64"},
		"fence ::ffff:0:0/90 at driver x":                               {"::ffc0:0:0/90"},
		"fence 192.0.2.1, x/32, 192.0.2.1/33, fe80::1%eth0/64":          nil,
	} {
		if got := Blocks(detail); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", detail, got, want)
		}
	}
}
