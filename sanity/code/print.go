package code

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"slices"
	"strings"
)

// Print is a node as gofmt would print it on one line, without its comments.
func Print(n ast.Node) string {
	var out strings.Builder
	// Without the positions of a file set the printer breaks no line but in a block.
	if err := printer.Fprint(&out, token.NewFileSet(), n); err != nil {
		return err.Error()
	}
	return oneLine(out.String())
}

// Normal is the text of an expression or a statement as Print has it.
func Normal(text string) string {
	if e, err := parser.ParseExpr(text); err == nil {
		return Print(e)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() { "+text+"\n}", parser.SkipObjectResolution)
	if err != nil || len(file.Decls) != 1 {
		return oneLine(text)
	}
	body := file.Decls[0].(*ast.FuncDecl).Body
	if len(body.List) != 1 {
		return oneLine(text)
	}
	return Print(body.List[0])
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Nearest are those of the names that are most like one, at most three, in
// backquotes.
func Nearest(name string, names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(likeness(b, name), likeness(a, name)) })
	if len(names) == 0 {
		return "none"
	}
	return "`" + strings.Join(names[:min(3, len(names))], "`, `") + "`"
}

// likeness is the share of the pairs of neighbouring letters that two texts have
// in common.
func likeness(a, b string) float64 {
	pairs := map[string]int{}
	for i := range len(a) - 1 {
		pairs[a[i:i+2]]++
	}
	common := 0
	for i := range len(b) - 1 {
		if pair := b[i : i+2]; pairs[pair] > 0 {
			pairs[pair]--
			common++
		}
	}
	return 2 * float64(common) / float64(max(1, len(a)+len(b)-2))
}
