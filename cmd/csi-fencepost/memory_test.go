package main

import "testing"

func TestTheHeapHasRoomForCallsAndNotForASecondCluster(t *testing.T) {
	for inUse, want := range map[uint64]int{0: 35, 4 << 20: 35, 16 << 20: 35, 40 << 20: 20, 1 << 30: 10} {
		if got := gcPercent(inUse); got != want {
			t.Errorf("%d bytes in use: %d %%, want %d %%", inUse, got, want)
		}
	}
}
