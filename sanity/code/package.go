package code

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// A Package is the code of one folder, without its tests and without what is not
// built on this machine.
type Package struct {
	// Folder from the top of the repository.
	Folder string
	Files  []*File
	Set    *token.FileSet
}

// A File is one of a package.
type File struct {
	// Name from the top of the repository.
	Name, Text string
	AST        *ast.File
}

// Open reads a package of the repository whose top is root.
func Open(root, folder string) (*Package, error) {
	p := &Package{Folder: folder, Set: token.NewFileSet()}
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		base := filepath.Base(path)
		built, err := build.Default.MatchFile(filepath.Dir(path), base)
		if err != nil {
			return nil, err
		}
		if !built || strings.HasSuffix(base, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f := &File{Name: filepath.Join(folder, base), Text: string(text)}
		if f.AST, err = parser.ParseFile(p.Set, f.Name, text, parser.SkipObjectResolution|parser.ParseComments); err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	if len(p.Files) == 0 {
		return nil, fmt.Errorf("there is no package %s", folder)
	}
	return p, nil
}

// A Func is a function or method of a package.
type Func struct {
	Package *Package
	File    *File
	Decl    *ast.FuncDecl
	// Name is Name, or Type.Name of a method.
	Name string
}

func (f *Func) String() string {
	return fmt.Sprintf("function %s of package %s (%s)", f.Name, f.Package.Folder, filepath.Base(f.File.Name))
}

// Func finds a function, or names those that are nearest.
func (p *Package) Func(name string) (*Func, error) {
	var names []string
	var found []*Func
	for _, f := range p.Files {
		for _, d := range f.AST.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			names = append(names, FuncName(d))
			if FuncName(d) == name {
				found = append(found, &Func{Package: p, File: f, Decl: d, Name: name})
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("package %s has no function %s; the nearest: %s", p.Folder, name, Nearest(name, names))
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("package %s has %d functions %s", p.Folder, len(found), name)
}

// FuncName is Name, or Type.Name of a method, without a star.
func FuncName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.IndexListExpr:
			receiver = r.X
		default:
			return Print(receiver) + "." + f.Name.Name
		}
	}
}

// Offset is the byte of its file at which a position is.
func (p *Package) Offset(at token.Pos) int { return p.Set.Position(at).Offset }

// Of is the text of a node of the file.
func (p *Package) Of(f *File, n ast.Node) string { return f.Text[p.Offset(n.Pos()):p.Offset(n.End())] }
