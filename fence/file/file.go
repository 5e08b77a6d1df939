// Package file reads the files that somebody else writes: a configuration, a mounted
// Secret, a person's manifest.
//
// It guarantees that reading ends and takes no more memory than the caller allows. A
// device, such as /dev/zero, has no end, and a pipe that nobody writes to is never
// opened: both are refused, as a file is that is too large. It does not guarantee that
// the file stays the same while it is read.
package file

import (
	"fmt"
	"io"
	"os"
)

// Read returns what is in a regular file of at most most bytes. Its errors name the
// file and show nothing of what is in it. Symbolic links are followed.
func Read(path string, most int64) ([]byte, error) {
	// Before it is opened: opening a pipe waits for a writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return text, nil
}
