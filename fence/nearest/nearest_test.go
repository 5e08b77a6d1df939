package nearest

import (
	"slices"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "ip", 2},
		{"ip", "", 2},
		{"worker-1", "worker-1", 0},
		{"worker-1", "worker-2", 1},
		{"ipadr", "ipaddr", 1},
		{"ipaddr", "ipadr", 1},
		{"kitten", "sitting", 3},
		{"sitting", "kitten", 3},
		{"1a2b", "pvc-1a2b-5c", 1}, // contained
		{"pvc-1a2b-5c", "1a2b", 1},
		{"abc", "abcdef", 1},
		{"ip", "ipaddr", 4}, // too short to count as contained
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	among := []string{"worker-3", "worker-1 (gone)", "worker-2", "control-1", "worker-1 (gone)", "w"}
	for _, c := range []struct {
		name   string
		within int
		want   []string
	}{
		{"worker-1", 0, []string{"worker-1 (gone)"}},
		{"worker-2", 2, []string{"worker-2", "worker-1 (gone)", "worker-3"}}, // by the alphabet, and once
		{"worker-9", 9, []string{"worker-1 (gone)", "worker-2", "worker-3"}}, // no more than three
		{"contol-1", 1, []string{"control-1"}},
		{"database", 2, nil},
	} {
		if got := Names(c.name, among, c.within); !slices.Equal(got, c.want) {
			t.Errorf("%s within %d: %v, want %v", c.name, c.within, got, c.want)
		}
	}
}
