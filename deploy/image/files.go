package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A file is the content of one that a release consists of.
type file struct {
	content []byte
	mode    os.FileMode
}

// files are those of a release, by name.
type files map[string]file

// checksums is the content of SHA256SUMS, as sha256sum writes and checks it.
func (f files) checksums() []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(f[name].content), name)
	}
	return out.Bytes()
}

// write puts the files into a folder, each whole or not at all, and names them.
func (f files) write(folder string, progress io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		path := filepath.Join(folder, name)
		half := path + ".half"
		if err := os.WriteFile(half, f[name].content, f[name].mode); err != nil {
			return err
		}
		if err := os.Rename(half, path); err != nil {
			return err
		}
		fmt.Fprintln(progress, path)
	}
	return nil
}
