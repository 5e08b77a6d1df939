package tool

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteWhole writes a file in place of an earlier one: who reads meanwhile reads the
// one or the other, and no half of either.
func WriteWhole(path string, content []byte, mode os.FileMode) error {
	half, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = half.Write(content)
	if err = errors.Join(err, half.Chmod(mode), half.Close()); err == nil {
		err = os.Rename(half.Name(), path)
	}
	if err != nil {
		os.Remove(half.Name())
	}
	return err
}
