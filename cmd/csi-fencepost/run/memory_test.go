package run

import "testing"

func TestTheHeapHasRoomForCallsAndNotForASecondCluster(t *testing.T) {
	for inUse, want := range map[uint64]int{0: 20, 4 << 20: 20, 40 << 20: 20, 50 << 20: 16, 1 << 30: 10} {
		if got := gcPercent(inUse); got != want {
			t.Errorf("%d bytes in use: %d %%, want %d %%", inUse, got, want)
		}
	}
}
