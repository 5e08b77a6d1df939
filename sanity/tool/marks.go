package tool

import (
	"bytes"
	"fmt"
)

// Between is the page with content between the two lines that say by which command it is
// written. An error: the page lacks them.
func Between(page []byte, command string, content []byte) ([]byte, error) {
	begin, end := []byte("<!-- begin: written by "+command+" -->\n"), []byte("<!-- end -->\n")
	before, rest, begun := bytes.Cut(page, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !begun || !ended {
		return nil, fmt.Errorf("it lacks the lines %q and %q", begin, end)
	}
	return bytes.Join([][]byte{before, begin, content, end, after}, nil), nil
}
