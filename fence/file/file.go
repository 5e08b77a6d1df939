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
	"path/filepath"
	"strings"
)

// Node stands in a path for the name of a node: a file of that node's own.
const Node = "$(NODE)"

// ForNode is path with the node's name where Node stands in it. A name that would lead
// to another folder is an error; no node in Kubernetes has one.
func ForNode(path, node string) (string, error) {
	if strings.Contains(path, Node) && (strings.Contains(node, "/") || !filepath.IsLocal(node)) {
		return "", fmt.Errorf("node %q has no file of its own in place of %s: a name without a path in it has", node, path)
	}
	return strings.ReplaceAll(path, Node, node), nil
}

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

// Same tells whether two paths are of one regular file, also where it is not there yet: what is
// written to one of them is written over the other. An empty path is of no file.
func Same(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	info, err := os.Stat(a)
	if err == nil {
		return info.Mode().IsRegular() && isOne(a, b)
	}
	return filepath.Base(a) == filepath.Base(b) && isOne(filepath.Dir(a), filepath.Dir(b))
}

// isOne tells whether both are there, and one file or folder.
func isOne(a, b string) bool {
	one, err := os.Stat(a)
	other, wrong := os.Stat(b)
	return err == nil && wrong == nil && os.SameFile(one, other)
}
