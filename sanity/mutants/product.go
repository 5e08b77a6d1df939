package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// productFolders are where the code of the sidecar is.
var productFolders = []string{"cmd", "csi", "fence", "proxy"}

// simulated is the package whose tests are the simulation.
const simulated = "proxy/sidecar"

// A productPackage is one package of the product, by its folder.
type productPackage struct {
	folder string
	// generated: each of its files is.
	generated bool
}

// productPackages walks the folders: a list kept by hand would lack the next one.
func productPackages(root string) ([]productPackage, error) {
	var all []productPackage
	for _, top := range productFolders {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testdata" {
				return cmp.Or(err, fs.SkipDir)
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			i := slices.IndexFunc(all, func(p productPackage) bool { return p.folder == folder })
			if i < 0 {
				i, all = len(all), append(all, productPackage{folder, true})
			}
			all[i].generated = all[i].generated && ast.IsGenerated(file)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
