package guards

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/sanity/code"
)

// A Change is made in one function. What it is made to is named by itself (package
// code), never by a line, and has to be there exactly once, or as often as the
// change says.
type Change interface {
	cuts(f *code.Func) ([]cut, error)
}

// A cut is the part of a file that gives way, and to what.
type cut struct {
	file       *code.File
	start, end int
	with       string
}

type (
	// IfOut leaves an if out. If is its condition, with what stands before it:
	// "err != nil", or "err := f(); err != nil".
	IfOut struct{ If string }
	// IfNever has the condition of an if never hold: where a variable would be
	// left without a use.
	IfNever struct{ If string }
	// IfAlways has the condition of an if always hold.
	IfAlways struct{ If string }
	// CaseOut leaves out the case that has this value or condition, with all its
	// others.
	CaseOut struct{ Value string }
	// LoopOut leaves out the loop over it.
	LoopOut struct{ Over string }
	// StatementOut leaves a statement out.
	StatementOut struct{ Statement string }
	// ItemOut leaves an item of a list out: an argument, an element of a literal,
	// a value of a case. Times is how often it is there, if more than once.
	ItemOut struct {
		Item  string
		Times int
	}
	// ItemIn puts an item into a list, behind another one.
	ItemIn struct{ Item, Behind string }
	// Becomes replaces an expression, or a statement.
	Becomes struct{ Was, Is string }
	// Before puts code in front of a statement.
	Before struct{ Statement, Put string }
)

func (c IfOut) cuts(f *code.Func) ([]cut, error) {
	return ifs(f, c.If, func(n *ast.IfStmt) cut { return replace(f, n, n, "") })
}

func (c IfNever) cuts(f *code.Func) ([]cut, error) {
	return ifs(f, c.If, func(n *ast.IfStmt) cut {
		return replace(f, n.Cond, n.Cond, "false && ("+f.Package.Of(f.File, n.Cond)+")")
	})
}

func (c IfAlways) cuts(f *code.Func) ([]cut, error) {
	return ifs(f, c.If, func(n *ast.IfStmt) cut { return replace(f, n.Cond, n.Cond, "true") })
}

func ifs(f *code.Func, wanted string, change func(*ast.IfStmt) cut) ([]cut, error) {
	var all []place
	for n := range nodes[*ast.IfStmt](f) {
		header := code.Print(n.Cond)
		if n.Init != nil {
			header = code.Print(n.Init) + "; " + header
		}
		p := place{name: header, cut: change(n)}
		if n.Else != nil {
			p.fault = "has an else"
		}
		all = append(all, p)
	}
	return pick(f, "`if` whose condition is", wanted, 1, all)
}

func (c CaseOut) cuts(f *code.Func) ([]cut, error) {
	var all []place
	for n := range nodes[*ast.CaseClause](f) {
		for _, e := range n.List {
			all = append(all, place{name: code.Print(e), cut: replace(f, n, n, "")})
		}
	}
	return pick(f, "case", c.Value, 1, all)
}

func (c LoopOut) cuts(f *code.Func) ([]cut, error) {
	var all []place
	for n := range nodes[*ast.RangeStmt](f) {
		all = append(all, place{name: code.Print(n.X), cut: replace(f, n, n, "")})
	}
	return pick(f, "loop over", c.Over, 1, all)
}

func (c StatementOut) cuts(f *code.Func) ([]cut, error) {
	return pick(f, "statement", c.Statement, 1, statements(f, func(n ast.Stmt) cut { return replace(f, n, n, "") }))
}

func (c Before) cuts(f *code.Func) ([]cut, error) {
	return pick(f, "statement", c.Statement, 1, statements(f, func(n ast.Stmt) cut {
		at := f.Package.Offset(n.Pos())
		return cut{f.File, at, at, c.Put + "\n"}
	}))
}

// statements are those of a block or a case that are not built of others.
func statements(f *code.Func, change func(ast.Stmt) cut) (all []place) {
	for n := range nodes[ast.Stmt](f) {
		switch n.(type) {
		case *ast.ExprStmt, *ast.AssignStmt, *ast.ReturnStmt, *ast.DeferStmt, *ast.GoStmt, *ast.DeclStmt, *ast.BranchStmt, *ast.IncDecStmt, *ast.SendStmt:
			all = append(all, place{name: code.Print(n), cut: change(n)})
		}
	}
	return all
}

func (c ItemOut) cuts(f *code.Func) ([]cut, error) {
	var all []place
	for _, list := range lists(f) {
		for i, e := range list {
			p := place{name: code.Print(e)}
			switch {
			case i+1 < len(list):
				p.cut = cut{f.File, f.Package.Offset(e.Pos()), f.Package.Offset(list[i+1].Pos()), ""}
			case i > 0:
				p.cut = cut{f.File, f.Package.Offset(list[i-1].End()), f.Package.Offset(e.End()), ""}
			default:
				p.cut = replace(f, e, e, "")
			}
			all = append(all, p)
		}
	}
	return pick(f, "item of a list", c.Item, max(1, c.Times), all)
}

func (c ItemIn) cuts(f *code.Func) ([]cut, error) {
	var all []place
	for _, list := range lists(f) {
		for _, e := range list {
			at := f.Package.Offset(e.End())
			all = append(all, place{name: code.Print(e), cut: cut{f.File, at, at, ", " + c.Item}})
		}
	}
	return pick(f, "item of a list", c.Behind, 1, all)
}

func lists(f *code.Func) (all [][]ast.Expr) {
	for n := range nodes[*ast.CallExpr](f) {
		all = append(all, n.Args)
	}
	for n := range nodes[*ast.CompositeLit](f) {
		all = append(all, n.Elts)
	}
	for n := range nodes[*ast.CaseClause](f) {
		all = append(all, n.List)
	}
	return all
}

func (c Becomes) cuts(f *code.Func) ([]cut, error) {
	is := c.Is
	if e, err := parser.ParseExpr(is); err == nil {
		if _, ok := e.(*ast.BinaryExpr); ok {
			is = "(" + is + ")"
		}
	}
	all := statements(f, func(n ast.Stmt) cut { return replace(f, n, n, c.Is) })
	for n := range nodes[ast.Expr](f) {
		p := place{name: code.Print(n), cut: replace(f, n, n, is)}
		// A call by itself is a statement, and an expression in the same place.
		if !slices.ContainsFunc(all, func(o place) bool { return o.name == p.name && o.cut.start == p.cut.start }) {
			all = append(all, p)
		}
	}
	return pick(f, "expression", c.Was, 1, all)
}

// nodes are those of a kind in a function's body, from top to bottom.
func nodes[N ast.Node](f *code.Func) func(yield func(N) bool) {
	return func(yield func(N) bool) {
		if f.Decl.Body == nil {
			return
		}
		for n := range ast.Preorder(f.Decl.Body) {
			if n, ok := n.(N); ok && !yield(n) {
				return
			}
		}
	}
}

func replace(f *code.Func, from, to ast.Node, with string) cut {
	return cut{f.File, f.Package.Offset(from.Pos()), f.Package.Offset(to.End()), with}
}

// A place is where a change could be made, by its name.
type place struct {
	name  string
	cut   cut
	fault string
}

// pick picks the places of a name.
func pick(f *code.Func, what, wanted string, times int, all []place) ([]cut, error) {
	var names []string
	var cuts []cut
	wanted = code.Normal(wanted)
	for _, p := range all {
		names = append(names, p.name)
		if p.name != wanted {
			continue
		}
		if p.fault != "" {
			return nil, fmt.Errorf("the %s `%s` of %s %s", what, wanted, f, p.fault)
		}
		cuts = append(cuts, p.cut)
	}
	switch len(cuts) {
	case times:
		return cuts, nil
	case 0:
		return nil, fmt.Errorf("%s has no %s `%s` any more; the nearest: %s", f, what, wanted, code.Nearest(wanted, names))
	}
	return nil, fmt.Errorf("%s has the %s `%s` %d times, want %d", f, what, wanted, len(cuts), times)
}

// applied is the text of a file with the cuts made, without the imports that are
// not used any more.
func applied(f *code.File, cuts []cut) (string, error) {
	slices.SortStableFunc(cuts, func(a, b cut) int { return cmp.Compare(a.start, b.start) })
	text, last := "", 0
	for _, c := range cuts {
		if c.start < last {
			return "", fmt.Errorf("two changes to the same code of %s: %q", f.Name, f.Text[c.start:min(last, c.end)])
		}
		text, last = text+f.Text[last:c.start]+c.with, c.end
	}
	return withoutImports(f, text+f.Text[last:])
}

// withoutImports blanks the imports that the file used before the change, and uses
// no more.
func withoutImports(before *code.File, text string) (string, error) {
	set := token.NewFileSet()
	after, err := parser.ParseFile(set, before.Name, text, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	were, are := qualifiers(before.AST), qualifiers(after)
	for _, i := range slices.Backward(after.Imports) {
		name := importName(i)
		if were[name] && !are[name] {
			start := set.Position(i.Pos()).Offset
			text = text[:start] + "_ " + text[set.Position(i.Path.Pos()).Offset:]
		}
	}
	return text, nil
}

// qualifiers are the names in front of a dot.
func qualifiers(f *ast.File) map[string]bool {
	all := map[string]bool{}
	for n := range ast.Preorder(f) {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok {
				all[id.Name] = true
			}
		}
	}
	return all
}

func importName(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	return lastOf(i.Path.Value)
}
