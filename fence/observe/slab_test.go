package observe

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"
)

// A chunk a little larger than one of Go's size classes takes the whole next one.
func TestChunksFillWhatGoGivesThem(t *testing.T) {
	chunkTakes[disk](t, 1)
	chunkTakes[volume](t, 1)
	chunkTakes[attachment](t, 1)
	chunkTakes[holder](t, 1)
	chunkTakes[listing](t, 6) // between two classes, whatever its length
	chunkTakes[place](t, 1)
}

var kept any // so that it is allocated

func chunkTakes[T any](t *testing.T, percentMore int) {
	t.Helper()
	const chunks = 1000
	var s slab[T]
	s.chunks = make([]*[chunkLen]T, 0, chunks)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range chunks * chunkLen {
		s.add()
	}
	runtime.ReadMemStats(&after)
	kept = s
	var one T
	size := int(unsafe.Sizeof(one)) * chunkLen
	takes := int(after.TotalAlloc-before.TotalAlloc) / chunks
	what := fmt.Sprintf("%d of %T, %d bytes each: %d bytes take %d", chunkLen, one, unsafe.Sizeof(one), size, takes)
	t.Log(what)
	if takes > size+size*percentMore/100 {
		t.Error(what)
	}
}

// The chains of a finder stay short, and each record is in one.
func TestAFinderFindsAllThatItHas(t *testing.T) {
	const records = 10_000
	f := finder{hash: func(r ref) uint64 { return uint64(r) * 0x9e3779b97f4a7c15 >> 20 }}
	for r := ref(1); r <= records; r++ {
		f.add(r)
		if f.count > chained*len(f.heads) || len(f.heads) > firstHeads && f.count < chained*len(f.heads)/2 {
			t.Fatalf("%d heads for %d records", len(f.heads), f.count)
		}
	}
	for r := ref(2); r <= records; r += 2 {
		f.drop(r)
	}
	longest := 0
	for r := ref(1); r <= records; r++ {
		steps, found := 0, false
		for at := f.first(f.hash(r)); at != 0; at = f.after(at) {
			steps++
			found = found || at == r
		}
		longest = max(longest, steps)
		if found != (r%2 == 1) {
			t.Fatalf("record %d is found: %v", r, found)
		}
	}
	if longest > 10*chained {
		t.Errorf("a chain of %d records", longest)
	}
}
