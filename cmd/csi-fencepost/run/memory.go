package run

import (
	"os"
	"runtime"
	"runtime/debug"
)

// Go lets the heap grow to twice what is in use before it collects. What is
// watched of a large cluster is in use for good, and its double would never be
// needed: what is worth having is room for some calls, whose size does not depend
// on the cluster's.
const (
	// listingGC is the growth in percent while objects are listed: most of what
	// is allocated then is garbage at once.
	listingGC = 20
	// roomToGrow, in bytes, is left from then on, between leastGC and mostGC
	// percent of what is in use.
	roomToGrow      = 8 << 20
	leastGC, mostGC = 10, 20
)

// saveMemory has garbage collected early, until keepMemory. GOGC overrides both.
// Go's heap profile, which costs memory too, is off: nothing here serves it.
func saveMemory() {
	runtime.MemProfileRate = 0
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(listingGC)
	}
}

// keepMemory is called once everything was listed: it gives back what that took,
// and leaves room to grow.
func keepMemory() {
	if os.Getenv("GOGC") != "" {
		return
	}
	runtime.GC() // pools of buffers outlive one collection
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetGCPercent(gcPercent(m.HeapAlloc))
}

// gcPercent is the growth in percent that leaves roomToGrow.
func gcPercent(inUse uint64) int {
	return max(leastGC, min(mostGC, int(100*roomToGrow/max(1, inUse))))
}
