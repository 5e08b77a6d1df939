package main

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// productFolders are where the code of the sidecar is.
var productFolders = []string{"cmd", "csi", "fence", "proxy"}

// simulated is the package whose tests are the simulation.
const simulated = "proxy/sidecar"

// nested tells whether the folder is a module of its own, whose tests the main module's go
// test does not run.
func nested(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// productPackages are those of the product, by their folders, which it walks: a list kept by
// hand would lack the next one.
func productPackages(root string) (all []string, err error) {
	for _, top := range productFolders {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && (d.Name() == "testdata" || nested(path)) {
				return cmp.Or(err, fs.SkipDir)
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if !slices.Contains(all, folder) {
				all = append(all, folder)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
