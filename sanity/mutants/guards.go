package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// readSource parses one file of a checkout.
func readSource(root, name string) (*source, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{name: name, text: string(text), set: set, file: file}, nil
}

// ours are the kinds of mutants that are made here.
var ours = []string{"guard out", "case out", "value out", "answer turned round", "negation dropped", "statement out"}

// guardsOut are the mutants in which a guard, or a statement, is not there.
func (s *source) guardsOut() []mutant {
	var all []mutant
	add := func(m mutant) { all = append(all, m) }
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			add(s.mutant("guard out", n.Cond, n.Cond.Pos(), n.Cond.End(), "false && ("+s.of(n.Cond)+")"))
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				s.caseOut(c.(*ast.CaseClause), n.Tag != nil, add)
			}
		case *ast.ReturnStmt:
			for _, r := range n.Results {
				if id, ok := r.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") {
					add(s.mutant("answer turned round", n, id.Pos(), id.End(), map[string]string{"true": "false", "false": "true"}[id.Name]))
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				add(s.mutant("negation dropped", n, n.Pos(), n.X.Pos(), ""))
			}
		case *ast.BlockStmt:
			s.statementsOut(n.List, add)
		case *ast.CaseClause:
			s.statementsOut(n.Body, add)
		case *ast.CommClause:
			s.statementsOut(n.Body, add)
		}
		return true
	})
	return all
}

// caseOut takes each condition of a case out, and each value of a list.
func (s *source) caseOut(c *ast.CaseClause, tagged bool, add func(mutant)) {
	switch {
	case len(c.List) == 0: // default
	case !tagged:
		for _, e := range c.List {
			add(s.mutant("case out", e, e.Pos(), e.End(), "false && ("+s.of(e)+")"))
		}
	case len(c.List) == 1:
		m := s.leftOut("case out", c)
		m.Of = nameOf(c.List[0]) // without what it does
		add(m)
	default:
		last := len(c.List) - 1
		for i := range c.List[:last] {
			add(s.mutant("value out", c.List[i], c.List[i].Pos(), c.List[i+1].Pos(), ""))
		}
		add(s.mutant("value out", c.List[last], c.List[last-1].End(), c.List[last].End(), ""))
	}
}

// statementsOut leaves out each call and each assignment, but logging, which
// promises nothing.
func (s *source) statementsOut(list []ast.Stmt, add func(mutant)) {
	for _, st := range list {
		switch st := st.(type) {
		case *ast.ExprStmt, *ast.DeferStmt:
		case *ast.AssignStmt:
			if st.Tok == token.DEFINE {
				continue
			}
		default:
			continue
		}
		if !strings.Contains(s.of(st), "klog.") {
			add(s.leftOut("statement out", st))
		}
	}
}

// of is the text of a node.
func (s *source) of(n ast.Node) string {
	return s.text[s.set.Position(n.Pos()).Offset:s.set.Position(n.End()).Offset]
}
