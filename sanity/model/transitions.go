package model

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

//go:embed transitions.tsv
var table string

// Transition is a row of transitions.tsv: an inline or a label of the model, and
// the function that does it.
type Transition struct {
	Name string
	// File, from the top of the repository, and Function, as Go prints it; File
	// "-": it is not the product's, and Function says whose.
	File, Function string
	Note           string
}

// Transitions reads transitions.tsv. An error names the line.
func Transitions() ([]Transition, error) {
	var all []Transition
	for number, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || slices.Contains(fields[:3], "") {
			return nil, fmt.Errorf("transitions.tsv:%d: %d fields, want name, file, function, note: %q", number+1, len(fields), line)
		}
		all = append(all, Transition{fields[0], fields[1], fields[2], fields[3]})
	}
	return all, nil
}

var (
	inlines = regexp.MustCompile(`(?m)^inline (\w+)\(`)
	labels  = regexp.MustCompile(`(?m)^(\w+):`)
)

// named are the inlines of a model, and the labels of its Replica.
func named(source string) []string {
	var names []string
	for _, m := range inlines.FindAllStringSubmatch(source, -1) {
		names = append(names, m[1])
	}
	_, replica, _ := strings.Cut(source, "proctype Replica(")
	replica, _, _ = strings.Cut(replica, "\n}\n")
	for _, m := range labels.FindAllStringSubmatch(replica, -1) {
		names = append(names, m[1])
	}
	return names
}

// declares tells whether a Go file declares a function, Name or Type.Method.
func declares(file, function string) (bool, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && nameOf(f) == function {
			return true, nil
		}
	}
	return false, nil
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
