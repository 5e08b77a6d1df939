package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// A mutant is one change to one file.
type mutant struct {
	// File from the top of the repository, and the function in it.
	File, Func string
	Line       int
	// Operator says what kind of change it is.
	Operator string
	// Old and New are the line before and after.
	Old, New string

	start, end int // bytes of the file that give way
	with       string
}

// key is what stays the same when lines above change.
func (m mutant) key() string { return m.File + " " + m.Func + "\n- " + m.Old + "\n+ " + m.New }

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d %s, %s\n\t- %s\n\t+ %s", m.File, m.Line, m.Func, m.Operator, m.Old, m.New)
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

// mutant makes the change from one position to another.
func (s *source) mutant(operator string, from, to token.Pos, with string) mutant {
	m := mutant{File: s.name, Func: s.function(from), Line: s.set.Position(from).Line, Operator: operator,
		start: s.set.Position(from).Offset, end: s.set.Position(to).Offset, with: with}
	m.Old = lineAt(s.text, m.start)
	m.New = lineAt(m.applied(s.text), m.start)
	return m
}

// leftOut is the mutant without a statement, or a case.
func (s *source) leftOut(operator string, n ast.Node) mutant {
	m := s.mutant(operator, n.Pos(), n.End(), "")
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

// function names the function or method around a position; a dash outside of all.
func (s *source) function(at token.Pos) string {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || at < f.Pos() || at >= f.End() {
			continue
		}
		if f.Recv == nil {
			return f.Name.Name
		}
		of := f.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		return s.text[s.set.Position(of.Pos()).Offset:s.set.Position(of.End()).Offset] + "." + f.Name.Name
	}
	return "-"
}
