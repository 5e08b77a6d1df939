package tempdir

import (
	"os"
	"path/filepath"
	"strings"
)

// Runs tells whether a process on this machine runs a program below the folder,
// as far as this user may know.
func Runs(folder string) bool {
	processes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range processes {
		if program, err := os.Readlink(exe); err == nil && strings.HasPrefix(program, folder+"/") {
			return true
		}
	}
	return false
}
