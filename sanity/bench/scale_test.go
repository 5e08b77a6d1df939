package main

import (
	"math"
	"testing"
)

func TestTheObjectsHaveTheSizeOfRealOnes(t *testing.T) {
	c := &cluster{driver: driverName, nodes: 500, volumes: 10_000}
	for what, size := range map[string]struct{ got, want int }{
		"a PersistentVolume": {c.volume(9_999).Size(), volumeBytes}, "a VolumeAttachment": {c.attachment(9_999).Size(), attachmentBytes}} {
		if off := float64(size.got)/float64(size.want) - 1; math.Abs(off) > sizeTolerance {
			t.Errorf("%s has %d bytes, %+.0f %% of %d", what, size.got, 100*off, size.want)
		}
		t.Logf("%s has %d bytes", what, size.got)
	}
}
