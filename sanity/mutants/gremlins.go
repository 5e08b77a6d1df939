package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// buildGremlins builds the tool from the module that pins it.
func buildGremlins(ctx context.Context, root, program string, progress io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/go-gremlins/gremlins/cmd/gremlins")
	cmd.Dir = filepath.Join(root, "sanity/mutants/gremlins")
	cmd.Stdout, cmd.Stderr = progress, progress
	return cmd.Run()
}

// found is what gremlins writes down, as far as it is read here.
type found struct {
	Files []struct {
		Name      string `json:"file_name"`
		Mutations []struct {
			Type   string `json:"type"`
			Line   int    `json:"line"`
			Column int    `json:"column"`
		} `json:"mutations"`
	} `json:"files"`
}

// askGremlins has gremlins list the mutants of a target in a copy of it. Which
// lines a test reaches it would tell too, but it takes the conditions of a case,
// which Go's coverage does not count, for unreached.
func askGremlins(ctx context.Context, program, config string, c *scratch) ([]mutant, error) {
	list := filepath.Join(c.folder, "gremlins.json")
	cmd := exec.CommandContext(ctx, program, "unleash", "--config", config, "--dry-run", "--workers", "1", "--exclude-files", "/", "--output", list, filepath.Join(c.folder, c.target.Folder))
	cmd.Dir = c.folder
	// It would run the tests for their coverage, which is not used.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -run=^$"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gremlins in %s: %w\n%s", c.target.Folder, err, out)
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	var f found
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("what gremlins wrote of %s: %w", c.target.Folder, err)
	}
	return f.mutants(c)
}

func (f found) mutants(c *scratch) ([]mutant, error) {
	var all []mutant
	for _, file := range f.Files {
		s, err := readSource(c.folder, filepath.Join(c.target.Folder, file.Name))
		if err != nil {
			return nil, err
		}
		for _, g := range file.Mutations {
			at := s.set.File(s.file.FileStart).LineStart(g.Line) + token.Pos(g.Column-1)
			m, err := s.operator(g.Type, at)
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b mutant) int { return cmp.Or(strings.Compare(a.File, b.File), a.start-b.start) })
	return all, nil
}

// operator makes the mutant that gremlins names by type and place.
func (s *source) operator(kind string, at token.Pos) (mutant, error) {
	was := s.tokenAt(at)
	becomes, ok := mutations[kind][was]
	if !ok {
		return mutant{}, fmt.Errorf("%s: gremlins names a %s here, of %q, and this program does not know it", s.set.Position(at), kind, was)
	}
	of := s.withToken(at)
	if of == nil {
		return mutant{}, fmt.Errorf("%s: gremlins names a %s here, and this program does not know what the %q is of", s.set.Position(at), kind, was)
	}
	return s.mutant(operatorName(kind), of, at, at+token.Pos(len(was.String())), becomes.String()), nil
}

// withToken is the expression or the statement whose operator, or word, is at a
// position.
func (s *source) withToken(at token.Pos) ast.Node {
	for n := range ast.Preorder(s.file) {
		if operatorOf(n) == at {
			return n
		}
	}
	return nil
}

// operatorOf is where a node has the token that gremlins changes.
func operatorOf(n ast.Node) token.Pos {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return n.OpPos
	case *ast.UnaryExpr:
		return n.OpPos
	case *ast.IncDecStmt:
		return n.TokPos
	case *ast.AssignStmt:
		return n.TokPos
	case *ast.BranchStmt:
		return n.TokPos
	}
	return token.NoPos
}

func (s *source) tokenAt(at token.Pos) token.Token {
	rest := s.text[s.set.Position(at).Offset:]
	var sc scanner.Scanner
	set := token.NewFileSet()
	sc.Init(set.AddFile("", -1, len(rest)), []byte(rest), func(token.Position, string) {}, 0)
	_, tok, _ := sc.Scan()
	return tok
}

// operators are the names of all kinds of mutants: gremlins', and those of guardsOut.
func operators() []string {
	all := slices.Clone(ours)
	for kind := range mutations {
		all = append(all, operatorName(kind))
	}
	return all
}

func operatorName(kind string) string { return strings.ToLower(strings.ReplaceAll(kind, "_", " ")) }

// mutations of gremlins, by its own names: what each token becomes.
var mutations = map[string]map[token.Token]token.Token{
	"ARITHMETIC_BASE":       {token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL},
	"CONDITIONALS_BOUNDARY": {token.GEQ: token.GTR, token.GTR: token.GEQ, token.LEQ: token.LSS, token.LSS: token.LEQ},
	"CONDITIONALS_NEGATION": {token.EQL: token.NEQ, token.NEQ: token.EQL, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR, token.LSS: token.GEQ},
	"INCREMENT_DECREMENT":   {token.INC: token.DEC, token.DEC: token.INC},
	"INVERT_ASSIGNMENTS":    {token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN},
	"INVERT_BITWISE":        {token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND, token.AND_NOT: token.AND, token.SHL: token.SHR, token.SHR: token.SHL},
	"INVERT_BWASSIGN":       {token.AND_ASSIGN: token.OR_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN, token.XOR_ASSIGN: token.AND_ASSIGN, token.AND_NOT_ASSIGN: token.AND_ASSIGN, token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN},
	"INVERT_LOGICAL":        {token.LAND: token.LOR, token.LOR: token.LAND},
	"INVERT_LOOPCTRL":       {token.BREAK: token.CONTINUE, token.CONTINUE: token.BREAK},
	"INVERT_NEGATIVES":      {token.SUB: token.ADD},
	"REMOVE_SELF_ASSIGNMENTS": {token.ADD_ASSIGN: token.ASSIGN, token.SUB_ASSIGN: token.ASSIGN, token.MUL_ASSIGN: token.ASSIGN, token.QUO_ASSIGN: token.ASSIGN,
		token.REM_ASSIGN: token.ASSIGN, token.AND_ASSIGN: token.ASSIGN, token.OR_ASSIGN: token.ASSIGN, token.XOR_ASSIGN: token.ASSIGN,
		token.AND_NOT_ASSIGN: token.ASSIGN, token.SHL_ASSIGN: token.ASSIGN, token.SHR_ASSIGN: token.ASSIGN},
}
