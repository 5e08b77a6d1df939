package observe

// ref is the place of a record in its slab; 0: none.
type ref uint32

// chunkLen records are allocated at once. Not 256: Go puts 8 bytes before a chunk
// that has pointers, and what is 8 bytes too large for a size class takes the next,
// of volumes an eighth more.
const chunkLen = 255

// slab keeps records in chunks, without a word more for each than they are large,
// and gives the place of a dropped one to the next.
type slab[T any] struct {
	chunks []*[chunkLen]T
	free   []ref
	last   ref
}

// at is a record; it stays where it is until it is dropped.
func (s *slab[T]) at(r ref) *T { return &s.chunks[(r-1)/chunkLen][(r-1)%chunkLen] }

// add makes a record of zeros.
func (s *slab[T]) add() (ref, *T) {
	if n := len(s.free); n > 0 {
		r := s.free[n-1]
		s.free = s.free[:n-1]
		return r, s.at(r)
	}
	if int(s.last) == len(s.chunks)*chunkLen {
		s.chunks = append(s.chunks, new([chunkLen]T))
	}
	s.last++
	return s.last, s.at(s.last)
}

func (s *slab[T]) drop(r ref) {
	var none T
	*s.at(r) = none
	s.free = append(s.free, r)
}

// finder finds records by a key's hash. Records of one hash are chained: whoever
// asks compares the keys.
type finder struct {
	heads []ref // their number is a power of two
	next  []ref // by record
	count int
	hash  func(ref) uint64 // of a record's key
}

const (
	firstHeads = 64
	// chained is how many records there are for each head before there are twice
	// as many heads: to look at one more is cheap beside the memory.
	chained = 2
)

// first is a record that may have that hash, and after the next one; 0: none.
func (f *finder) first(hash uint64) ref {
	if len(f.heads) == 0 {
		return 0
	}
	return f.heads[hash&uint64(len(f.heads)-1)]
}

func (f *finder) after(r ref) ref { return f.next[r] }

func (f *finder) add(r ref) {
	if f.count >= chained*len(f.heads) {
		f.grow()
	}
	for int(r) >= len(f.next) {
		f.next = append(f.next, 0)
	}
	f.link(r)
	f.count++
}

func (f *finder) link(r ref) {
	head := &f.heads[f.hash(r)&uint64(len(f.heads)-1)]
	f.next[r], *head = *head, r
}

// drop takes a record out, whose key must still be what it was.
func (f *finder) drop(r ref) {
	unlink(&f.heads[f.hash(r)&uint64(len(f.heads)-1)], r, func(r ref) *ref { return &f.next[r] })
	f.count--
}

func (f *finder) grow() {
	old := f.heads
	f.heads = make([]ref, max(firstHeads, 2*len(old)))
	for _, r := range old {
		for r != 0 {
			after := f.next[r]
			f.link(r)
			r = after
		}
	}
}

// unlink takes r out of a chain that it is in.
func unlink(head *ref, r ref, next func(ref) *ref) {
	for *head != r {
		head = next(*head)
	}
	*head, *next(r) = *next(r), 0
}
