package observe

import (
	"encoding/hex"
	"strings"
	"unique"
)

// text is a string in 24 bytes. Names and handles are mostly a head that many
// share ("pvc-", "vol-", a node's "ip-10-0-") and hexadecimal digits, so the head
// is kept once for all of them, and of the digits the bits. Two texts are equal
// if and only if their strings are. The zero text is none.
type text struct {
	form unique.Handle[form]
	tail [16]byte
}

// form is what is not in the tail.
type form struct {
	head string
	// digits that follow the head, of 0-9 and a-f; asUUID: 36 characters.
	digits int8
}

const (
	maxDigits = 32
	asUUID    = -1
	uuidLen   = 36
)

// dashes of a UUID, by their place.
func isDash(i int) bool { return i == 8 || i == 13 || i == 18 || i == 23 }

func textOf(s string) (t text) {
	if head, digits, ok := cutUUID(s); ok {
		_, _ = hex.Decode(t.tail[:], digits[:])
		t.form = unique.Make(form{head: head, digits: asUUID})
		return t
	}
	n := 0
	for n < min(maxDigits, len(s)) && isDigit(s[len(s)-1-n]) {
		n++
	}
	head, digits := s[:len(s)-n], s[len(s)-n:]
	for i := range len(digits) {
		t.tail[i/2] |= value(digits[i]) << (4 * (1 - i%2))
	}
	t.form = unique.Make(form{head: head, digits: int8(n)})
	return t
}

// String is the string that the text was made of; empty for none.
func (t text) String() string {
	if t.none() {
		return ""
	}
	f := t.form.Value()
	var digits [maxDigits]byte
	hex.Encode(digits[:], t.tail[:])
	if f.digits != asUUID {
		return f.head + string(digits[:f.digits])
	}
	var s strings.Builder
	s.Grow(len(f.head) + uuidLen)
	s.WriteString(f.head)
	for i, from := range []int{0, 8, 12, 16, 20} {
		if i > 0 {
			s.WriteByte('-')
		}
		s.Write(digits[from:[]int{8, 12, 16, 20, 32}[i]])
	}
	return s.String()
}

func (t text) none() bool { return t.form == unique.Handle[form]{} }

// cutUUID cuts a UUID in lower case off the end of s.
func cutUUID(s string) (head string, digits [maxDigits]byte, ok bool) {
	if len(s) < uuidLen {
		return "", digits, false
	}
	head, uuid := s[:len(s)-uuidLen], s[len(s)-uuidLen:]
	n := 0
	for i := range uuidLen {
		switch c := uuid[i]; {
		case isDash(i) != (c == '-'), !isDash(i) && !isDigit(c):
			return "", digits, false
		case c != '-':
			digits[n] = c
			n++
		}
	}
	return head, digits, true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func value(digit byte) byte {
	if digit >= 'a' {
		return digit - 'a' + 10
	}
	return digit - '0'
}
