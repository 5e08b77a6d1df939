package controlplane

import (
	"io/fs"
	"os"
	"path/filepath"
)

// NoteSources looks at what BuildFencepost builds from, and at more folders, which no
// test imports: else `go test` would not know that a cached result is outdated. It is
// for the tests of packages right below sanity/.
func NoteSources(more ...string) error {
	folders := []string{"../../cmd", "../../csi", "../../deploy", "../../fence", "../../proxy"}
	for _, folder := range append(folders, more...) {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
