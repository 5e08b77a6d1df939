package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/code"
)

// A mutant is one change to one file.
type mutant struct {
	// File from the top of the repository, and the function in it; outside of all,
	// the variable or constant.
	File, Func string
	Line       int
	// Operator says what kind of change it is, Of what is changed, as gofmt prints
	// it on one line.
	Operator, Of string
	// Nth of those of the function that have the same name; 0: the first.
	Nth int `json:",omitempty"`
	// Old and New are the line before and after.
	Old, New string

	start, end int // bytes of the file that give way
	with       string
}

// key is what stays the same when code moves within its package.
func (m mutant) key() string {
	return folderOf(m.File) + " " + m.Func + "\n" + m.Operator + ": " + m.Of + m.nth()
}

// nth tells it from those before it that have the same name.
func (m mutant) nth() string {
	if m.Nth < 2 {
		return ""
	}
	return fmt.Sprintf(" #%d", m.Nth)
}

// number numbers the mutants of a package that have the same name, from top to
// bottom.
func number(mutants []mutant) {
	order := make([]int, len(mutants))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(mutants[a].File, mutants[b].File), mutants[a].start-mutants[b].start)
	})
	so := map[string]int{}
	for _, i := range order {
		m := &mutants[i]
		m.Nth = 0
		so[m.key()]++
		if n := so[m.key()]; n > 1 {
			m.Nth = n
		}
	}
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d, %s\n\t- %s\n\t+ %s", m.File, m.Line, strings.ReplaceAll(m.key(), "\n", "\n\t"), m.Old, m.New)
}

// applied is the file's text with the change made.
func (m mutant) applied(text string) string { return text[:m.start] + m.with + text[m.end:] }

// source is one parsed file of the package that is mutated.
type source struct {
	name string // from the top of the repository
	text string
	set  *token.FileSet
	file *ast.File
}

// mutant makes a change of a node, from one position to another.
func (s *source) mutant(operator string, of ast.Node, from, to token.Pos, with string) mutant {
	m := mutant{File: s.name, Func: s.function(from), Line: s.set.Position(from).Line, Operator: operator, Of: nameOf(of),
		start: s.set.Position(from).Offset, end: s.set.Position(to).Offset, with: with}
	m.Old = lineAt(s.text, m.start)
	m.New = lineAt(m.applied(s.text), m.start)
	return m
}

// nameOf is a node without the bodies of functions in it: what they do is no name.
func nameOf(n ast.Node) string {
	for inner := range ast.Preorder(n) {
		if f, ok := inner.(*ast.FuncLit); ok {
			body := f.Body
			f.Body = &ast.BlockStmt{}
			defer func() { f.Body = body }()
		}
	}
	return code.Print(n)
}

// leftOut is the mutant without a statement, or a case.
func (s *source) leftOut(operator string, n ast.Node) mutant {
	m := s.mutant(operator, n, n.Pos(), n.End(), "")
	m.New = removed
	return m
}

// removed stands for a statement that is left out.
const removed = "(left out)"

// lineAt is the line that a byte of a text is in, without what is around it.
func lineAt(text string, at int) string {
	begin := strings.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := strings.Cut(text[begin:], "\n")
	return strings.TrimSpace(line)
}

// function names the function or method around a position; outside of all, the
// first variable or constant of its declaration.
func (s *source) function(at token.Pos) string {
	around := func(n ast.Node) bool { return n.Pos() <= at && at < n.End() }
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if around(d) {
				return code.FuncName(d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && around(v) {
					return v.Names[0].Name
				}
			}
		}
	}
	return "-"
}
