package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// A target is one fuzz function.
type target struct{ folder, name string }

func (t target) String() string { return t.folder + " " + t.name }

// find reads all test files below root, those of nested modules too, but for those of
// bin, and returns their fuzz functions in the order of their folders.
func find(root string, match *regexp.Regexp) ([]target, error) {
	var all []target
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && path != root && (name == "bin" || name == "testdata" || len(name) > 1 && name[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, f := range file.Decls {
			if f, ok := f.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
				if t := (target{folder, f.Name.Name}); match.MatchString(t.String()) {
					all = append(all, t)
				}
			}
		}
		return nil
	})
	return all, err
}
