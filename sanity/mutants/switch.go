package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Most mutants are built into one program, each behind a switch that the
// environment turns on, so that one build serves them all:
//
//	if a && b {   ─▶   if (!mutant(7) && (mutant(8) && (a || b) || !mutant(8) && (a && b))) {
//
// What cannot be told without types (a + may be one of strings), or is no
// expression or statement (a value of a case), is built by itself.

// A wrap puts text around a node. Two of one node are in the order in which they
// were made, the first one innermost.
type wrap struct {
	start, end    int
	before, after string
}

// wrapOf is the mutant as a switch; false: it has to be built by itself.
func (s *source) wrapOf(m mutant, n int) (wrap, bool) {
	on := "mutant(" + strconv.Itoa(n) + ")"
	node := s.nodeOf(m)
	if node == nil {
		return wrap{}, false
	}
	at := func(before, after string) (wrap, bool) {
		return wrap{s.offset(node.Pos()), s.offset(node.End()), before, after}, true
	}
	switch m.Operator {
	case "guard out", "case out":
		return at("(!"+on+" && (", "))")
	case "answer turned round", "negation dropped":
		return at("(("+on+") != (", "))")
	case "statement out":
		return at("if !"+on+" { ", " }")
	}
	switch node := node.(type) {
	case *ast.BranchStmt:
		if loop := s.loopOf(node); loop == nil || hasNoEnd(loop) {
			return wrap{}, false
		}
		label := ""
		if node.Label != nil {
			label = " " + node.Label.Name
		}
		return at("if "+on+" { "+m.with+label+" }; ", "")
	case *ast.BinaryExpr:
		if boolean(node.Op) {
			return at("("+on+" && (("+s.of(node.X)+") "+m.with+" ("+s.of(node.Y)+")) || !"+on+" && (", "))")
		}
	}
	return wrap{}, false
}

// loopOf is the innermost loop around a branch in its function; nil: there is
// none, as around the break of a switch, and a continue would not compile.
func (s *source) loopOf(branch *ast.BranchStmt) (loop ast.Node) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if n == nil || n.Pos() > branch.Pos() || n.End() < branch.End() {
			return false
		}
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			loop = n
		case *ast.FuncLit:
			loop = nil
		}
		return true
	})
	return loop
}

// hasNoEnd tells whether what follows has to return, once there is a break in the loop.
func hasNoEnd(loop ast.Node) bool {
	f, ok := loop.(*ast.ForStmt)
	return ok && f.Cond == nil
}

func boolean(op token.Token) bool {
	return logical(op) || op.IsOperator() && op.Precedence() == token.EQL.Precedence()
}

func logical(op token.Token) bool { return op == token.LAND || op == token.LOR }

// nodeOf is what the mutant changes; nil: nothing that can be switched.
func (s *source) nodeOf(m mutant) (found ast.Node) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if n == nil || found != nil {
			return false
		}
		begin, end := s.offset(n.Pos()), s.offset(n.End())
		if end <= m.start || begin >= m.end {
			return false
		}
		whole := begin == m.start && end == m.end && m.with != ""
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST // what is constant cannot be switched
		case *ast.BinaryExpr:
			if s.offset(n.OpPos) == m.start && m.by(gremlinsKinds) {
				found = n
			}
		case *ast.BranchStmt:
			if begin == m.start && m.by(gremlinsKinds) {
				found = n
			}
		case *ast.UnaryExpr:
			if begin == m.start && m.Operator == "negation dropped" {
				found = n
			}
		case *ast.ExprStmt:
			// Without a panic at its end a function may lack a return.
			if m.Operator == "statement out" && begin == m.start && !strings.HasPrefix(s.of(n), "panic(") {
				found = n
			}
		case *ast.AssignStmt, *ast.DeferStmt:
			if m.Operator == "statement out" && begin == m.start {
				found = n
			}
		}
		if e, ok := n.(ast.Expr); ok && whole && found == nil && m.by(wholeKinds) {
			found = e
		}
		return found == nil
	})
	return found
}

func (m mutant) by(kinds []string) bool { return slices.Contains(kinds, m.Operator) }

var (
	gremlinsKinds = []string{"conditionals boundary", "conditionals negation", "invert logical", "invert loopctrl"}
	wholeKinds    = []string{"guard out", "case out", "answer turned round"}
)

func (s *source) offset(at token.Pos) int { return s.set.Position(at).Offset }

// wrapped is the text with all wraps.
func (s *source) wrapped(wraps []wrap) string {
	type piece struct {
		at, rank int
		text     string
	}
	var pieces []piece
	for i, w := range wraps {
		// At one place: what ends there comes first, the shortest first; then
		// what begins there, the longest first.
		length := w.end - w.start
		pieces = append(pieces, piece{w.start, 1<<50 - length<<20 - i, w.before}, piece{w.end, length<<20 + i - 1<<50, w.after})
	}
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Or(a.at-b.at, a.rank-b.rank) })
	var out strings.Builder
	last := 0
	for _, p := range pieces {
		out.WriteString(s.text[last:p.at] + p.text)
		last = p.at
	}
	return out.String() + s.text[last:]
}

const switchFile = "mutant_switch.go"

const switchText = `package %s

import (
	"os"
	"strconv"
)

var mutantNumber, _ = strconv.Atoi(os.Getenv("%s"))

func mutant(n int) bool { return n == mutantNumber }
`

// switchVariable turns a mutant on.
const switchVariable = "FENCEPOST_MUTANT"

// switchAll writes the mutants into the copy as switches, numbered from 1 by
// their place in the list, and returns which could not.
func (c *scratch) switchAll(mutants []mutant) (switched []bool, err error) {
	switched = make([]bool, len(mutants))
	wraps, sources := map[string][]wrap{}, map[string]*source{}
	for i, m := range mutants {
		s := sources[m.File]
		if s == nil {
			if s, err = readSource(c.folder, m.File); err != nil {
				return nil, err
			}
			sources[m.File] = s
		}
		var w wrap
		if w, switched[i] = s.wrapOf(m, i+1); switched[i] {
			wraps[m.File] = append(wraps[m.File], w)
		}
	}
	for name, s := range sources {
		if err := os.WriteFile(filepath.Join(c.folder, name), []byte(s.wrapped(wraps[name])), 0o644); err != nil {
			return nil, err
		}
		text := fmt.Sprintf(switchText, s.file.Name.Name, switchVariable)
		if err := os.WriteFile(filepath.Join(c.folder, c.target.Folder, switchFile), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return switched, nil
}
